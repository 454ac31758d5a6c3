//! SQLite through tokio-rusqlite: a connection of its own for each reader, one for all that
//! write, and a whole transaction in one trip to its thread.

use std::path::{Path, PathBuf};

use cenote_bench_sqlite_harness::{Account, Engine, Failure, Session, Synchronous, run, sql};
use tokio_rusqlite::Connection;
use tokio_rusqlite::rusqlite::{Error, TransactionBehavior};

fn main() {
    run::<Threads>(false);
}

#[derive(Clone)]
struct Threads {
    file: PathBuf,
    synchronous: Synchronous,
    writer: Connection,
}

async fn connect(file: &Path, synchronous: Synchronous) -> Connection {
    let connection = Connection::open(file)
        .await
        .expect("the file can be opened");
    let set = connection.call(move |connection| {
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", synchronous.word())?;
        connection.pragma_update(None, "foreign_keys", true)?;
        connection.pragma_update(None, "busy_timeout", 30_000)
    });
    set.await.expect("the pragmas are right");
    connection
}

impl Engine for Threads {
    type Session = Shared;

    async fn open(file: &Path, synchronous: Synchronous) -> Self {
        Threads {
            file: file.to_owned(),
            synchronous,
            writer: connect(file, synchronous).await,
        }
    }

    async fn reader(&self) -> Shared {
        Shared(connect(&self.file, self.synchronous).await)
    }

    async fn writer(&self) -> Shared {
        Shared(self.writer.clone())
    }
}

/// One connection that many tasks share.
struct Shared(Connection);

impl Session for Shared {
    async fn read(&mut self, id: i64) -> Account {
        let row = self.0.call(move |connection| {
            connection
                .prepare_cached(sql::READ)?
                .query_row([id], |row| {
                    Ok(Account {
                        id: row.get(0)?,
                        name: row.get(1)?,
                        balance: row.get(2)?,
                    })
                })
        });
        row.await.expect("the row is there")
    }

    async fn scan(&mut self, sql: &str, limit: i64) -> i64 {
        let sql = sql.to_owned();
        let sum = self.0.call(move |connection| {
            connection
                .prepare_cached(&sql)?
                .query_row([limit], |row| row.get(0))
        });
        sum.await.expect("a sum has a row")
    }

    async fn write(&mut self, id: i64) -> Result<(), Failure> {
        let written = self
            .0
            .call(move |connection| connection.prepare_cached(sql::PUT)?.execute([id]));
        written.await?;
        Ok(())
    }

    async fn transfer(&mut self, from: i64, to: i64) -> Result<(), Failure> {
        let moved = self.0.call(move |connection| {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            transaction.prepare_cached(sql::TAKE)?.execute([from])?;
            transaction.prepare_cached(sql::PUT)?.execute([to])?;
            transaction.commit()?;
            Ok::<_, Error>(())
        });
        moved.await?;
        Ok(())
    }
}
