//! sqlx's pool. It holds database connections only, so these are SQLite's, in
//! memory. By default every checkout pings its connection, and so does every
//! return, in a task of its own; a ping is a message to the connection's thread
//! and back. That is in its numbers. It always has a timeout.

use std::future::Future;
use std::hint::black_box;

use sqlx::pool::{PoolConnection, PoolOptions};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Pool, Sqlite};

use super::{Kind, Patience, Subject};

pub struct Sqlx(Pool<Sqlite>);

impl Subject for Sqlx {
    const NAME: &'static str = "sqlx";
    const KIND: Kind = Kind::Peer;

    type Lease = PoolConnection<Sqlite>;
    type Error = sqlx::Error;

    async fn open(max: usize, patience: Patience) -> Option<Self> {
        let max = u32::try_from(max).expect("a small number");
        let options = PoolOptions::new().max_connections(max);
        let options = match patience {
            Patience::Default => options,
            Patience::Forever => return None,
            Patience::Within(limit) => options.acquire_timeout(limit),
        };
        let memory = SqliteConnectOptions::new().in_memory(true);
        Some(Sqlx(options.connect_lazy_with(memory)))
    }

    fn acquire(
        &'static self,
    ) -> impl Future<Output = Result<Self::Lease, Self::Error>> + Send + 'static {
        self.0.acquire()
    }

    fn touch(lease: &mut Self::Lease) {
        black_box(&mut **lease);
    }

    async fn close(&'static self) {
        // Every connection has a thread.
        self.0.close().await;
    }
}
