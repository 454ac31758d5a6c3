//! SQLite through sqlx's pool, on its defaults but for WAL, which is Db's default.

use std::path::Path;
use std::time::Duration;

use cenote_bench_sqlite_harness::{Account, Engine, Failure, Session, Synchronous, run, sql};
use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

fn main() {
    run::<Sqlx>(false);
}

#[derive(Clone)]
struct Sqlx(SqlitePool);

impl Engine for Sqlx {
    type Session = Sqlx;

    async fn open(file: &Path, synchronous: Synchronous) -> Self {
        let options = SqliteConnectOptions::new()
            .filename(file)
            .journal_mode(SqliteJournalMode::Wal)
            .busy_timeout(Duration::from_secs(30))
            .foreign_keys(true)
            .synchronous(match synchronous {
                Synchronous::Normal => SqliteSynchronous::Normal,
                Synchronous::Full => SqliteSynchronous::Full,
            });
        let pool = SqlitePoolOptions::new().connect_with(options).await;
        Sqlx(pool.expect("the file can be opened"))
    }

    async fn reader(&self) -> Sqlx {
        self.clone()
    }

    async fn writer(&self) -> Sqlx {
        self.clone()
    }
}

impl Session for Sqlx {
    async fn read(&mut self, id: i64) -> Account {
        let row = sqlx::query_as(sql::READ).bind(id).fetch_one(&self.0).await;
        let (id, name, balance) = row.expect("the row is there");
        Account { id, name, balance }
    }

    async fn scan(&mut self, sql: &str, limit: i64) -> i64 {
        let sql = sqlx::AssertSqlSafe(sql);
        let sum = sqlx::query_scalar(sql).bind(limit).fetch_one(&self.0);
        sum.await.expect("a sum has a row")
    }

    async fn write(&mut self, id: i64) -> Result<(), Failure> {
        sqlx::query(sql::PUT).bind(id).execute(&self.0).await?;
        Ok(())
    }

    async fn transfer(&mut self, from: i64, to: i64) -> Result<(), Failure> {
        let mut transaction = self.0.begin_with("BEGIN IMMEDIATE").await?;
        let take = sqlx::query(sql::TAKE).bind(from);
        take.execute(&mut *transaction).await?;
        let put = sqlx::query(sql::PUT).bind(to);
        put.execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(())
    }
}
