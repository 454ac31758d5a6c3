//! What a call through `Db` costs beside the same call on the bare driver connection.
//!
//! Prints one line for each measurement: `NAME NANOSECONDS`. `layer.sh` runs it in turn with the
//! peers and takes the medians.

mod null;

use std::hint::black_box;
use std::time::Instant;

use cenote::driver::{ConnectSettings, Connection, Driver, Dsn, Options, Param, Request, Value};
use cenote::{Credentials, Db, Result};

const SQL: &str = "SELECT id, name, balance FROM account WHERE id = ?";

/// Calls in a round that cost nothing in themselves, and of those that go to SQLite.
const NULL_CALLS: u32 = 200_000;
const SQLITE_CALLS: u32 = 5_000;

#[tokio::main]
async fn main() -> Result<()> {
    // One task, spawned, as a server has them.
    let run = tokio::runtime::Handle::current().spawn(async { measure().await });
    run.await.expect("nothing in it panics")
}

async fn measure() -> Result<()> {
    let dsn = "null:";
    let mut bare = connect(&null::Null, dsn).await?;
    let db = Db::builder_with(null::Null, dsn).open().await?;
    on_bare("null-bare", NULL_CALLS, &mut *bare).await?;
    through(&db, "null", NULL_CALLS).await?;

    let folder = tempfile::tempdir().expect("a temporary folder");
    let dsn = format!("sqlite:{}", folder.path().join("bench.db").display());
    let db = Db::open(&dsn).await?;
    db.exec("CREATE TABLE account (id INTEGER PRIMARY KEY, name TEXT, balance INTEGER)", ())
        .await?;
    let accounts = (0..1000_i64).map(|id| (id, format!("account {id}"), 100));
    db.exec_many("INSERT INTO account VALUES (?, ?, ?)", accounts).await?;
    let mut bare = connect(&cenote::sqlite::Sqlite::new(), &dsn).await?;
    on_bare("sqlite-bare", SQLITE_CALLS, &mut *bare).await?;
    through(&db, "sqlite", SQLITE_CALLS).await?;
    Ok(())
}

async fn connect(driver: &impl Driver, dsn: &str) -> Result<Box<dyn Connection>> {
    let template = driver.template(&Dsn::parse(dsn)?, &Options::new())?;
    let settings = ConnectSettings::new(64);
    template.connect(Credentials::default(), &settings).await
}

async fn on_bare(name: &str, calls: u32, connection: &mut dyn Connection) -> Result<()> {
    let began = Instant::now();
    for n in 0..calls {
        let params = [Param::Value(Value::from(n % 1000))];
        black_box(connection.run(Request::new(SQL, &params)).await?);
    }
    report(name, calls, began);
    Ok(())
}

async fn through(db: &Db, name: &str, calls: u32) -> Result<()> {
    let began = Instant::now();
    for n in 0..calls {
        black_box(db.query(SQL, (n % 1000,)).await?);
    }
    report(&format!("{name}-unpinned"), calls, began);

    cenote::scope(async {
        let began = Instant::now();
        for n in 0..calls {
            black_box(db.query(SQL, (n % 1000,)).await?);
        }
        report(&format!("{name}-in-scope"), calls, began);
        Ok::<_, cenote::Error>(())
    })
    .await?;

    db.transaction(async || {
        let began = Instant::now();
        for n in 0..calls {
            black_box(db.query(SQL, (n % 1000,)).await?);
        }
        report(&format!("{name}-in-transaction"), calls, began);
        Ok(())
    })
    .await
}

fn report(name: &str, calls: u32, began: Instant) {
    let nanoseconds = began.elapsed().as_nanos() / u128::from(calls);
    println!("{name} {nanoseconds}");
}
