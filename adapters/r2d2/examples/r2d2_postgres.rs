//! r2d2_postgres's manager on cenote-pool, from async tasks and from plain threads.
//!
//! ```text
//! cargo run -p cenote-r2d2 --example r2d2_postgres -- postgres://user:password@localhost/database
//! ```

use std::error::Error;

use cenote_pool::Pool;
use cenote_r2d2::{FromR2d2, run};
use r2d2_postgres::PostgresConnectionManager;
use r2d2_postgres::postgres::{Client, NoTls};
use tokio::task::JoinSet;

type BoxError = Box<dyn Error + Send + Sync>;

fn double(client: &mut Client, number: i64) -> Result<i64, r2d2_postgres::postgres::Error> {
    Ok(client
        .query_one("SELECT $1::bigint * 2", &[&number])?
        .get(0))
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let url = std::env::args()
        .nth(1)
        .ok_or("the argument is the address of a PostgreSQL")?;

    // Before: r2d2::Pool::builder().max_size(4).build(manager)?
    let manager = PostgresConnectionManager::new(url.parse()?, NoTls);
    let pool = Pool::builder(FromR2d2::new(manager)).max(4).open().await?;

    let mut tasks = JoinSet::new();
    for number in 0..50 {
        let pool = pool.clone();
        // Before: spawn_blocking(move || pool.get()…)
        tasks.spawn(async move {
            let doubled = run(&pool, move |client: &mut Client| double(client, number)).await??;
            Ok::<i64, BoxError>(doubled)
        });
    }
    let mut sum = 0;
    while let Some(task) = tasks.join_next().await {
        sum += task??;
    }

    let of_a_thread = std::thread::spawn({
        let pool = pool.clone();
        move || -> Result<i64, BoxError> {
            let mut client = pool.acquire_blocking()?; // before: pool.get()
            Ok(double(&mut client, 21)?)
        }
    });
    // The thread's acquire may need this runtime, so it is not joined on a runtime thread.
    let of_a_thread = tokio::task::spawn_blocking(move || of_a_thread.join());
    let of_a_thread = of_a_thread.await?.map_err(|_| "the thread panicked")??;
    let made = pool.counters().created;
    println!("50 tasks added up to {sum}, a thread to {of_a_thread}, over {made} connections");
    assert!(sum == 2450 && of_a_thread == 42 && made <= 4);
    pool.close().await?;
    Ok(())
}
