//! deadpool: a Tokio semaphore, and a mutex round a ring buffer.

use std::convert::Infallible;
use std::future::Future;
use std::hint::black_box;

use deadpool::managed::{
    Hook, Manager, Metrics, Object, Pool, PoolBuilder, PoolError, RecycleResult,
};

use super::{Kind, Patience, Resource, Subject};

/// One manager type for each subject, as for cenote-pool.
pub struct Plain<const SUBJECT: usize>;

impl<const SUBJECT: usize> Manager for Plain<SUBJECT> {
    type Type = Resource;
    type Error = Infallible;

    async fn create(&self) -> Result<Resource, Infallible> {
        Ok(0)
    }

    async fn recycle(&self, _: &mut Resource, _: &Metrics) -> RecycleResult<Infallible> {
        Ok(())
    }
}

fn build<const SUBJECT: usize>(
    builder: PoolBuilder<Plain<SUBJECT>>,
    max: usize,
    patience: Patience,
) -> Pool<Plain<SUBJECT>> {
    let builder = builder.max_size(max);
    let builder = match patience {
        // No timeout is the default.
        Patience::Default | Patience::Forever => builder,
        Patience::Within(limit) => builder
            .wait_timeout(Some(limit))
            .runtime(deadpool::Runtime::Tokio1),
    };
    builder.build().expect("the settings are valid")
}

/// Every hook it has, ready at once.
fn hooked() -> PoolBuilder<Plain<1>> {
    let look = || {
        Hook::sync_fn(|resource: &mut Resource, _| {
            black_box(*resource);
            Ok(())
        })
    };
    Pool::builder(Plain)
        .post_create(look())
        .pre_recycle(look())
        .post_recycle(look())
}

macro_rules! subject {
    ($(#[$doc:meta])* $subject:ident, $name:literal, $manager:ty, $builder:expr) => {
        $(#[$doc])*
        pub struct $subject(Pool<$manager>);

        impl Subject for $subject {
            const NAME: &'static str = $name;
            const KIND: Kind = Kind::Peer;

            type Lease = Object<$manager>;
            type Error = PoolError<Infallible>;

            async fn open(max: usize, patience: Patience) -> Option<Self> {
                Some($subject(build($builder, max, patience)))
            }

            fn acquire(
                &'static self,
            ) -> impl Future<Output = Result<Self::Lease, Self::Error>> + Send + 'static {
                self.0.get()
            }

            fn touch(lease: &mut Self::Lease) {
                **lease = lease.wrapping_add(1);
                black_box(&mut **lease);
            }
        }
    };
}

subject!(
    /// With its defaults.
    Deadpool,
    "deadpool",
    Plain<0>,
    Pool::builder(Plain)
);

subject!(
    /// With every hook it has.
    DeadpoolHooks,
    "deadpool-hooks",
    Plain<1>,
    hooked()
);
