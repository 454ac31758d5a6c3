//! mobc: a Tokio semaphore and an async mutex; a lease goes back in a task of
//! its own. By default it keeps two idle resources and drops the others.

use std::convert::Infallible;
use std::future::Future;
use std::hint::black_box;

use mobc::{Connection, Error, Manager, Pool, async_trait};

use super::{Kind, Patience, Resource, Subject};

pub struct Plain;

#[async_trait]
impl Manager for Plain {
    type Connection = Resource;
    type Error = Infallible;

    async fn connect(&self) -> Result<Resource, Infallible> {
        Ok(0)
    }

    async fn check(&self, resource: Resource) -> Result<Resource, Infallible> {
        Ok(resource)
    }
}

pub struct Mobc(Pool<Plain>);

impl Subject for Mobc {
    const NAME: &'static str = "mobc";
    const KIND: Kind = Kind::Peer;

    type Lease = Connection<Plain>;
    type Error = Error<Infallible>;

    async fn open(max: usize, patience: Patience) -> Option<Self> {
        let builder = Pool::builder().max_open(max as u64);
        let builder = match patience {
            Patience::Default => builder,
            Patience::Forever => builder.get_timeout(None),
            Patience::Within(limit) => builder.get_timeout(Some(limit)),
        };
        Some(Mobc(builder.build(Plain)))
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
