//! cenote-pool, in every shape that is compared.

use std::convert::Infallible;
use std::future::Future;
use std::hint::black_box;

use cenote_pool::{
    AcquireError, Builder, FnManager, FnPool, Info, Lease, Manager, Order, OwnedLease, Pool,
    Verdict,
};

use super::{Kind, Patience, Resource, Subject};

/// A manager that only makes resources. Every subject has one of its own, by the
/// number: with one for all, what the compiler inlines for one subject would
/// depend on the others.
pub struct Plain<const SUBJECT: usize>;

impl<const SUBJECT: usize> Manager for Plain<SUBJECT> {
    type Resource = Resource;
    type Error = Infallible;

    async fn create(&self) -> Result<Resource, Infallible> {
        Ok(0)
    }
}

/// A manager with every hook; each is ready at its first poll.
pub struct Hooked;

impl Manager for Hooked {
    type Resource = Resource;
    type Error = Infallible;

    async fn create(&self) -> Result<Resource, Infallible> {
        Ok(0)
    }

    async fn destroy(&self, resource: Resource) -> Result<(), Infallible> {
        black_box(resource);
        Ok(())
    }

    async fn healthcheck(&self, resource: &mut Resource, _: Info<'_>) -> Result<bool, Infallible> {
        Ok(is_fine(resource))
    }

    async fn before_acquire(
        &self,
        resource: &mut Resource,
        _: Info<'_>,
    ) -> Result<bool, Infallible> {
        Ok(is_fine(resource))
    }

    fn before_release(&self, resource: &mut Resource, _: Info<'_>) -> Verdict {
        if is_fine(resource) {
            Verdict::Keep
        } else {
            Verdict::Discard
        }
    }

    async fn recycle(&self, resource: &mut Resource, _: Info<'_>) -> Result<bool, Infallible> {
        Ok(is_fine(resource))
    }
}

/// The work of a hook: a read that the compiler cannot remove.
fn is_fine(resource: &mut Resource) -> bool {
    black_box(*resource) < Resource::MAX
}

fn set<M: Manager>(builder: Builder<M>, max: usize, patience: Patience) -> Pool<M> {
    let builder = builder.max(max);
    let builder = match patience {
        // No timeout is the default.
        Patience::Default | Patience::Forever => builder,
        Patience::Within(limit) => builder.acquire_timeout(limit),
    };
    builder.build().expect("the settings are valid")
}

fn closures() -> Builder<FnManager<Resource, Infallible>> {
    Pool::from_fn(|| async { Ok(0) })
}

fn use_it(resource: &mut Resource) {
    *resource = resource.wrapping_add(1);
    black_box(resource);
}

/// Writes a subject whose leases borrow the pool.
macro_rules! subject {
    ($(#[$doc:meta])* $subject:ident, $name:literal, $manager:ty, $builder:expr) => {
        $(#[$doc])*
        pub struct $subject(Pool<$manager>);

        impl Subject for $subject {
            const NAME: &'static str = $name;
            const KIND: Kind = Kind::Ours;

            type Lease = Lease<'static, $manager>;
            type Error = AcquireError<Infallible>;

            async fn open(max: usize, patience: Patience) -> Option<Self> {
                Some($subject(set($builder, max, patience)))
            }

            fn acquire(
                &'static self,
            ) -> impl Future<Output = Result<Self::Lease, Self::Error>> + Send + 'static {
                self.0.acquire()
            }

            fn touch(lease: &mut Self::Lease) {
                use_it(lease);
            }
        }
    };
}

subject!(
    /// A manager known at compile time.
    Static,
    "cenote",
    Plain<0>,
    Pool::builder(Plain)
);

subject!(
    /// A closure as the factory.
    Closures,
    "cenote-closures",
    FnManager<Resource, Infallible>,
    closures()
);

subject!(
    /// Every hook, as methods of the manager.
    Hooks,
    "cenote-hooks",
    Hooked,
    Pool::builder(Hooked)
);

subject!(
    /// Every hook, as closures.
    HookClosures,
    "cenote-hooks-closures",
    FnManager<Resource, Infallible>,
    closures()
        .destroy(|resource: Resource| {
            black_box(resource);
        })
        .healthcheck(is_fine)
        .before_acquire(is_fine)
        .before_release(is_fine)
);

subject!(
    /// The resource that came back first goes out first.
    Fifo,
    "cenote-fifo",
    Plain<1>,
    Pool::builder(Plain).order(Order::Fifo)
);

/// Leases that borrow nothing.
pub struct Owned(Pool<Plain<3>>);

impl Subject for Owned {
    const NAME: &'static str = "cenote-owned";
    const KIND: Kind = Kind::Ours;

    type Lease = OwnedLease<Plain<3>>;
    type Error = AcquireError<Infallible>;

    async fn open(max: usize, patience: Patience) -> Option<Self> {
        Some(Owned(set(Pool::builder(Plain), max, patience)))
    }

    fn acquire(
        &'static self,
    ) -> impl Future<Output = Result<Self::Lease, Self::Error>> + Send + 'static {
        self.0.acquire_owned()
    }

    fn touch(lease: &mut Self::Lease) {
        use_it(lease);
    }
}

/// `FnPool` is what a user writes for the type of a pool of closures; this does
/// not compile if that is another type than the one measured here.
const _: fn(FnPool<Resource, Infallible>) -> Closures = Closures;
