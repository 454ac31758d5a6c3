//! The calls of `bench/layer`, through sqlx's SQLite pool and on a bare sqlx connection.

use std::hint::black_box;
use std::time::Instant;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use sqlx::{ConnectOptions, Executor};

const SQL: &str = "SELECT id, name, balance FROM account WHERE id = ?";
const CALLS: u32 = 5_000;

#[tokio::main]
async fn main() -> Result<(), sqlx::Error> {
    tokio::spawn(measure()).await.expect("nothing in it panics")
}

async fn measure() -> Result<(), sqlx::Error> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let options = SqliteConnectOptions::new()
        .filename(folder.path().join("bench.db"))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal);
    let pool = SqlitePoolOptions::new().connect_with(options.clone()).await?;
    pool.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, name TEXT, balance INTEGER)")
        .await?;
    let mut filling = pool.begin().await?;
    for id in 0..1000_i64 {
        sqlx::query("INSERT INTO account VALUES (?, ?, 100)")
            .bind(id)
            .bind(format!("account {id}"))
            .execute(&mut *filling)
            .await?;
    }
    filling.commit().await?;

    let mut bare = options.connect().await?;
    let began = Instant::now();
    for n in 0..CALLS {
        black_box(sqlx::query(SQL).bind(n % 1000).fetch_all(&mut bare).await?);
    }
    report("sqlx-bare", began);

    let began = Instant::now();
    for n in 0..CALLS {
        black_box(sqlx::query(SQL).bind(n % 1000).fetch_all(&pool).await?);
    }
    report("sqlx-pool", began);

    let mut transaction = pool.begin().await?;
    let began = Instant::now();
    for n in 0..CALLS {
        black_box(sqlx::query(SQL).bind(n % 1000).fetch_all(&mut *transaction).await?);
    }
    report("sqlx-in-transaction", began);
    transaction.commit().await
}

fn report(name: &str, began: Instant) {
    println!("{name} {}", began.elapsed().as_nanos() / u128::from(CALLS));
}
