//! bb8: one mutex, and a notification for those who wait. It always has a timeout.

use std::convert::Infallible;
use std::future::Future;
use std::hint::black_box;

use bb8::{ManageConnection, Pool, PooledConnection, RunError};

use super::{Kind, Patience, Resource, Subject};

pub struct Plain;

impl ManageConnection for Plain {
    type Connection = Resource;
    type Error = Infallible;

    async fn connect(&self) -> Result<Resource, Infallible> {
        Ok(0)
    }

    async fn is_valid(&self, _: &mut Resource) -> Result<(), Infallible> {
        Ok(())
    }

    fn has_broken(&self, _: &mut Resource) -> bool {
        false
    }
}

pub struct Bb8(Pool<Plain>);

impl Subject for Bb8 {
    const NAME: &'static str = "bb8";
    const KIND: Kind = Kind::Peer;

    type Lease = PooledConnection<'static, Plain>;
    type Error = RunError<Infallible>;

    async fn open(max: usize, patience: Patience) -> Option<Self> {
        let max = u32::try_from(max).expect("a small number");
        let builder = Pool::builder().max_size(max);
        let builder = match patience {
            Patience::Default => builder,
            Patience::Forever => return None,
            Patience::Within(limit) => builder.connection_timeout(limit),
        };
        let pool = builder.build(Plain).await;
        Some(Bb8(pool.expect("it makes nothing yet")))
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
