//! fast_pool: a channel of idle resources and counters round it. It always has
//! a timeout.

use std::future::Future;
use std::hint::black_box;

use fast_pool::{ConnectionGuard, Manager, Pool};

use super::{Kind, Patience, Resource, Subject};

pub struct Plain;

impl Manager for Plain {
    type Connection = Resource;
    type Error = String;

    async fn connect(&self) -> Result<Resource, String> {
        Ok(0)
    }

    async fn check(&self, _: &mut Resource) -> Result<(), String> {
        Ok(())
    }
}

pub struct FastPool(Pool<Plain>);

impl Subject for FastPool {
    const NAME: &'static str = "fast_pool";
    const KIND: Kind = Kind::Peer;

    type Lease = ConnectionGuard<Plain>;
    type Error = String;

    async fn open(max: usize, patience: Patience) -> Option<Self> {
        let pool = Pool::new(Plain);
        pool.set_max_open(max as u64);
        match patience {
            Patience::Default => {}
            Patience::Forever => return None,
            Patience::Within(limit) => pool.set_timeout_wait(Some(limit)),
        }
        Some(FastPool(pool))
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
