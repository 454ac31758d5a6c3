//! Bare rusqlite, in place: what SQLite itself costs.
//!
//! `sqlite-bare fill FILE` makes the file that all programs copy.

use std::path::{Path, PathBuf};

use cenote_bench_sqlite_harness::{Account, Engine, Failure, ROWS, Session, Synchronous, run, sql};
use rusqlite::{Connection, TransactionBehavior};

fn main() {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("fill"), Some(file)) => fill(Path::new(&file)).expect("the file can be made"),
        _ => run::<Bare>(true),
    }
}

fn fill(file: &Path) -> rusqlite::Result<()> {
    let mut connection = Connection::open(file)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.execute_batch(
        "CREATE TABLE account (id INTEGER PRIMARY KEY, name TEXT NOT NULL, balance INTEGER NOT NULL)",
    )?;
    let transaction = connection.transaction()?;
    for id in 1..=ROWS {
        transaction.execute(
            "INSERT INTO account VALUES (?, ?, 100)",
            (id, format!("account {id}")),
        )?;
    }
    transaction.commit()?;
    // Closing moves the write-ahead log into the file.
    connection.close().map_err(|(_, error)| error)
}

#[derive(Clone)]
struct Bare {
    file: PathBuf,
    synchronous: Synchronous,
}

impl Bare {
    fn connect(&self) -> rusqlite::Result<Connection> {
        let connection = Connection::open(&self.file)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", self.synchronous.word())?;
        connection.pragma_update(None, "foreign_keys", true)?;
        connection.pragma_update(None, "busy_timeout", 30_000)?;
        Ok(connection)
    }
}

impl Engine for Bare {
    type Session = Own;

    async fn open(file: &Path, synchronous: Synchronous) -> Self {
        let file = file.to_owned();
        Bare { file, synchronous }
    }

    async fn reader(&self) -> Own {
        Own(self.connect().expect("the file can be opened"))
    }

    async fn writer(&self) -> Own {
        self.reader().await
    }
}

/// A connection that one task has for itself.
struct Own(Connection);

impl Session for Own {
    async fn read(&mut self, id: i64) -> Account {
        let mut statement = self.0.prepare_cached(sql::READ).expect("it is right");
        let row = statement.query_row([id], |row| {
            Ok(Account {
                id: row.get(0)?,
                name: row.get(1)?,
                balance: row.get(2)?,
            })
        });
        row.expect("the row is there")
    }

    async fn scan(&mut self, sql: &str, limit: i64) -> i64 {
        let mut statement = self.0.prepare_cached(sql).expect("it is right");
        let sum = statement.query_row([limit], |row| row.get(0));
        sum.expect("a sum has a row")
    }

    async fn write(&mut self, id: i64) -> Result<(), Failure> {
        self.0.prepare_cached(sql::PUT)?.execute([id])?;
        Ok(())
    }

    async fn transfer(&mut self, from: i64, to: i64) -> Result<(), Failure> {
        let transaction = self
            .0
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.prepare_cached(sql::TAKE)?.execute([from])?;
        transaction.prepare_cached(sql::PUT)?.execute([to])?;
        transaction.commit()?;
        Ok(())
    }
}
