//! bb8-postgres's manager on cenote-pool: 100 tasks share 8 connections.
//!
//! ```text
//! cargo run -p cenote-bb8 --example bb8_postgres -- postgres://user:password@localhost/database
//! ```

use std::error::Error;
use std::time::Duration;

use bb8_postgres::PostgresConnectionManager;
use cenote_bb8::FromBb8;
use cenote_pool::Pool;
use tokio::task::JoinSet;
use tokio_postgres::NoTls;

type BoxError = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let url = std::env::args()
        .nth(1)
        .ok_or("the argument is the address of a PostgreSQL")?;

    // Before: bb8::Pool::builder().max_size(8).build(manager).await?
    let manager = PostgresConnectionManager::new_from_stringlike(url, NoTls)?;
    let manager = FromBb8::new(manager).check_after(Duration::from_millis(500));
    let pool = Pool::builder(manager).max(8).open().await?;

    let mut tasks = JoinSet::new();
    for number in 0..100_i64 {
        let pool = pool.clone();
        tasks.spawn(async move {
            let connection = pool.acquire().await?; // before: pool.get()
            let row = connection
                .query_one("SELECT $1::bigint * 2", &[&number])
                .await?;
            Ok::<i64, BoxError>(row.get(0))
        });
    }
    let mut sum = 0;
    while let Some(task) = tasks.join_next().await {
        sum += task??;
    }
    let made = pool.counters().created;
    println!("100 tasks added up to {sum} over {made} connections");
    assert!(sum == 9900 && made <= 8);

    // A connection that the server has closed is seen by `has_broken` and replaced.
    let connection = pool.acquire().await?;
    let killed = connection
        .execute("SELECT pg_terminate_backend(pg_backend_pid())", &[])
        .await;
    assert!(killed.is_err());
    while !connection.is_closed() {
        tokio::task::yield_now().await;
    }
    drop(connection);
    assert_eq!(
        pool.acquire()
            .await?
            .query_one("SELECT 1", &[])
            .await?
            .get::<_, i32>(0),
        1
    );
    Ok(())
}
