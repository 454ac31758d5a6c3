//! Who holds the connections and who waits for them: [`Db::holders`](cenote::Db::holders) and
//! [`Db::queued`](cenote::Db::queued).

use std::time::Duration;

use cenote::{ConnectionHolder, Db, PinReason, QueueReason, Result};
use cenote_testkit::poll::Hand;
use cenote_testkit::{Fake, ManualRuntime};

fn open(fake: &Fake, runtime: &ManualRuntime, max: usize) -> Db {
    let builder = fake.builder().max(max).runtime(runtime.clone());
    runtime.finish(builder.open()).unwrap()
}

fn only(db: &Db) -> ConnectionHolder {
    let mut holders = db.holders();
    assert_eq!(holders.len(), 1, "{holders:?}");
    holders.remove(0)
}

#[test]
fn holder_of_a_transaction_names_its_line_pin_and_statement() {
    let (runtime, fake) = (ManualRuntime::new(), Fake::new());
    let db = open(&fake, &runtime, 2);
    let _watch = db.watch_statements();
    assert!(db.holders().is_empty());
    fake.hold("UPDATE");
    let line = line!() + 1;
    let mut transaction = Hand::new(db.transaction(async || {
        db.exec("UPDATE account SET balance = 12345 WHERE id = 'hush'", ())
            .await
    }));
    transaction.waits();
    runtime.advance(Duration::from_millis(70));
    let holder = only(&db);
    assert!(holder.caller.file().ends_with("holders.rs"));
    assert_eq!(holder.caller.line(), line);
    assert_eq!(holder.pin, Some(PinReason::Transaction));
    assert!(holder.held_for >= Duration::from_millis(60));
    let statement = holder.statement.unwrap();
    assert_eq!(&*statement.summary, "UPDATE account");
    let masked = "UPDATE account SET balance = *** WHERE id = ***";
    assert_eq!(&*statement.text, masked);
    assert_eq!(statement.caller.line(), line + 1);
    assert!(statement.running);
    assert!(statement.age >= Duration::from_millis(60));
    fake.release();
    transaction.finish().unwrap();
    assert!(db.holders().is_empty());
}

#[tokio::test]
async fn each_kind_of_pin_is_named() -> Result<()> {
    let db = Db::builder("sqlite:file:holders-pins?mode=memory&cache=shared")
        .max(2)
        .open()
        .await?;
    let pins = || {
        db.holders()
            .iter()
            .map(|holder| holder.pin)
            .collect::<Vec<_>>()
    };
    let connection = db.connection().await?;
    assert_eq!(pins(), vec![Some(PinReason::Explicit)]);
    drop(connection);
    cenote::scope(async {
        let statement = db.prepare("SELECT 1").await?;
        assert_eq!(pins(), vec![Some(PinReason::Statement)]);
        drop(statement);
        db.exec("CREATE TEMP TABLE mine (n INTEGER)", ()).await?;
        assert_eq!(pins(), vec![Some(PinReason::Session)]);
        let transaction = db.begin().await?;
        assert_eq!(pins(), vec![Some(PinReason::Transaction)]);
        transaction.rollback().await
    })
    .await?;
    assert_eq!(pins(), vec![]);
    Ok(())
}

#[test]
fn call_without_a_pin_has_no_pin_reason() {
    let (runtime, fake) = (ManualRuntime::new(), Fake::new());
    let db = open(&fake, &runtime, 1);
    fake.hold("SELECT");
    let mut query = Hand::new(db.query("SELECT 1", ()));
    query.waits();
    let holder = only(&db);
    assert_eq!(holder.pin, None);
    assert!(holder.statement.is_none(), "nobody watches statements");
    fake.release();
    query.finish().unwrap();
}

#[test]
fn next_holder_does_not_inherit_the_last_statement() {
    let (runtime, fake) = (ManualRuntime::new(), Fake::new());
    let db = open(&fake, &runtime, 1);
    let watch = db.watch_statements();
    let connection = runtime.finish(db.connection()).unwrap();
    runtime
        .finish(connection.exec("DELETE FROM cart", ()))
        .unwrap();
    let statement = only(&db).statement.unwrap();
    assert_eq!(
        (&*statement.summary, statement.running),
        ("DELETE cart", false)
    );
    drop(connection);
    let connection = runtime.finish(db.connection()).unwrap();
    assert!(only(&db).statement.is_none());
    runtime
        .finish(connection.exec("DELETE FROM cart", ()))
        .unwrap();
    assert!(only(&db).statement.is_some());
    drop(watch);
    assert!(
        only(&db).statement.is_none(),
        "nobody watches statements any more"
    );
}

#[test]
fn queued_calls_name_their_lines_and_reasons() {
    let (runtime, fake) = (ManualRuntime::new(), Fake::new());
    let db = open(&fake, &runtime, 1);
    let connection = runtime.finish(db.connection()).unwrap();
    let line = line!() + 1;
    let mut first = Hand::new(db.query("SELECT 1", ()));
    first.waits();
    runtime.advance(Duration::from_millis(50));
    let mut second = Hand::new(db.query("SELECT 2", ()));
    second.waits();
    let queued = db.queued(10);
    assert_eq!(queued.len(), 2);
    assert_eq!(queued[0].caller.line(), line);
    assert_eq!(queued[0].waited, Duration::from_millis(50));
    assert_eq!(queued[0].reason, QueueReason::Full);
    assert_eq!(db.queued(1), queued[..1]);
    drop(connection);
    first.finish().unwrap();
    second.finish().unwrap();
    assert!(db.queued(10).is_empty());
}

#[tokio::test]
async fn calls_that_wait_to_write_are_queued_as_writers() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let dsn = format!("sqlite:{}", folder.path().join("t.db").display());
    // Of two connections one may write.
    let db = Db::builder(&dsn).max(2).open().await?;
    db.exec("CREATE TABLE t (n INTEGER)", ()).await?;
    let hold = tokio::sync::Notify::new();
    let holds = db.transaction(async || {
        db.exec("INSERT INTO t VALUES (1)", ()).await?;
        hold.notified().await;
        Ok(())
    });
    let waits = db.exec("INSERT INTO t VALUES (2)", ());
    let looks = async {
        loop {
            let queued = db.queued(10);
            if let [call] = queued.as_slice() {
                assert_eq!(call.reason, QueueReason::Writers);
                assert!(call.caller.file().ends_with("holders.rs"));
                break;
            }
            tokio::task::yield_now().await;
        }
        assert_eq!(db.status().waiting, 1);
        hold.notify_one();
    };
    let limit = Duration::from_secs(30);
    let all = async { tokio::join!(holds, waits, looks) };
    let (held, waited, ()) = tokio::time::timeout(limit, all).await.unwrap();
    held?;
    waited?;
    assert!(db.queued(10).is_empty());
    Ok(())
}
