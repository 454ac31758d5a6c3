//! deadpool: a Tokio semaphore, and a mutex round a ring buffer.

use std::convert::Infallible;
use std::future::Future;
use std::hint::black_box;

use deadpool::managed::{
    Hook, Manager, Metrics, Object, Pool, PoolBuilder, PoolError, RecycleResult,
};

use super::{Kind, Patience, Resource, Subject};

pub struct Plain;

impl Manager for Plain {
    type Type = Resource;
    type Error = Infallible;

    async fn create(&self) -> Result<Resource, Infallible> {
        Ok(0)
    }

    async fn recycle(&self, _: &mut Resource, _: &Metrics) -> RecycleResult<Infallible> {
        Ok(())
    }
}

fn build(builder: PoolBuilder<Plain>, max: usize, patience: Patience) -> Pool<Plain> {
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
fn hooked() -> PoolBuilder<Plain> {
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
    ($(#[$doc:meta])* $subject:ident, $name:literal, $builder:expr) => {
        $(#[$doc])*
        pub struct $subject(Pool<Plain>);

        impl Subject for $subject {
            const NAME: &'static str = $name;
            const KIND: Kind = Kind::Peer;

            type Lease = Object<Plain>;
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
    /// As it comes.
    Deadpool,
    "deadpool",
    Pool::builder(Plain)
);

subject!(
    /// With every hook it has.
    DeadpoolHooks,
    "deadpool-hooks",
    hooked()
);
