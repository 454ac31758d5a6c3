//! SQLite through `Db`, on the builder's defaults.

use std::path::Path;

use cenote::Db;
use cenote_bench_sqlite_harness::{Account, Engine, Failure, Session, Synchronous, run, sql};

fn main() {
    run::<Ours>(false);
}

#[derive(Clone)]
struct Ours(Db);

impl Engine for Ours {
    type Session = Ours;

    async fn open(file: &Path, synchronous: Synchronous) -> Self {
        let dsn = format!("sqlite:{}", file.display());
        let db = Db::builder(&dsn).option("synchronous", synchronous.word());
        Ours(db.open().await.expect("the file can be opened"))
    }

    async fn reader(&self) -> Ours {
        self.clone()
    }

    async fn writer(&self) -> Ours {
        self.clone()
    }
}

impl Session for Ours {
    async fn read(&mut self, id: i64) -> Account {
        let row = self.0.query_one(sql::READ, (id,)).await;
        let row = row.expect("the row is there");
        Account {
            id: row.get(0).expect("a number"),
            name: row.get(1).expect("a text"),
            balance: row.get(2).expect("a number"),
        }
    }

    async fn scan(&mut self, sql: &str, limit: i64) -> i64 {
        let row = self.0.query_one(sql, (limit,)).await;
        let row = row.expect("a sum has a row");
        row.get(0).expect("a number")
    }

    async fn write(&mut self, id: i64) -> Result<(), Failure> {
        self.0.exec(sql::PUT, (id,)).await?;
        Ok(())
    }

    async fn transfer(&mut self, from: i64, to: i64) -> Result<(), Failure> {
        let db = &self.0;
        db.transaction(async || {
            db.exec(sql::TAKE, (from,)).await?;
            db.exec(sql::PUT, (to,)).await?;
            Ok(())
        })
        .await?;
        Ok(())
    }
}
