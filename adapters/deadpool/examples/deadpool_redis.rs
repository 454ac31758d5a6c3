//! deadpool-redis's manager on cenote-pool: 100 tasks share 8 connections.
//!
//! ```text
//! cargo run -p cenote-deadpool --example deadpool_redis -- redis://127.0.0.1:6379
//! ```

use std::error::Error;

use cenote_deadpool::FromDeadpool;
use cenote_pool::Pool;
use deadpool_redis::Manager;
use deadpool_redis::redis::{self, AsyncCommands};
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let url = std::env::args()
        .nth(1)
        .ok_or("the argument is the address of a Redis")?;

    // Before: deadpool_redis::Pool::builder(manager).max_size(8).build()?
    let manager = Manager::new(url)?;
    let pool = Pool::builder(FromDeadpool::new(manager))
        .max(8)
        .open()
        .await?;

    let key = format!("cenote:deadpool:{}", std::process::id());
    let mut tasks = JoinSet::new();
    for _ in 0..100 {
        let (pool, key) = (pool.clone(), key.clone());
        tasks.spawn(async move {
            let mut connection = pool.acquire().await?; // before: pool.get()
            connection.incr::<_, _, ()>(&key, 1).await?;
            Ok::<(), Box<dyn Error + Send + Sync>>(())
        });
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    let sum: u32 = pool.acquire().await?.get_del(&key).await?;
    let made = pool.counters().created;
    println!("100 tasks counted to {sum} over {made} connections");
    assert!(sum == 100 && made <= 8);

    // A connection that the server has closed is refused by `recycle` and replaced in the same acquire.
    let mut connection = pool.acquire().await?;
    let id: i64 = redis::cmd("CLIENT")
        .arg("ID")
        .query_async(&mut *connection)
        .await?;
    let mut killer = pool.acquire().await?;
    let mut kill = redis::cmd("CLIENT");
    kill.arg("KILL")
        .arg("ID")
        .arg(id)
        .exec_async(&mut *killer)
        .await?;
    drop((connection, killer));
    for _ in 0..made {
        let mut connection = pool.acquire().await?;
        let other: i64 = redis::cmd("CLIENT")
            .arg("ID")
            .query_async(&mut *connection)
            .await?;
        assert_ne!(id, other, "the closed connection is gone");
    }
    Ok(())
}
