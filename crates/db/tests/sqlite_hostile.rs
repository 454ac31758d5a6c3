//! What an adversary tried against short runs in place, the writer lane and joined writes.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod sqlite_support;

use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc::channel;
use std::time::Duration;

use cenote::driver::{Connection, Outcome, Param, Request, Value};
use cenote::{Result, Violation};
use sqlite_support::*;

/// A file that nobody gives up waiting for.
struct Place(TempDb);

impl Place {
    async fn with(schema: &str) -> Self {
        let place = Place(TempDb::new());
        exec_script(&mut place.open("").await, schema).await;
        place
    }

    /// With these options besides.
    async fn open(&self, options: &str) -> Box<dyn Connection> {
        let mut db = open(&format!("{}?busy_timeout=1d{options}", self.0.dsn())).await;
        sqlite(&mut db).time_nothing();
        db
    }
}

/// A write that nothing else on its connection depends on.
fn alone<'a>(sql: &'a str, params: &'a [Param<'a>]) -> Request<'a> {
    let mut request = Request::new(sql, params);
    request.alone = true;
    request
}

type Call<'c> = Pin<Box<dyn Future<Output = Result<Outcome>> + Send + 'c>>;
type Write = (&'static str, i64);

async fn write(db: &mut Box<dyn Connection>, (sql, value): Write) -> Result<Outcome> {
    let params = [Param::Value(Value::Int(value))];
    db.run(alone(sql, &params)).await
}

/// Waits until so many wait in the lane, seen by one who does not.
fn until_waiting(seen_by: &mut Box<dyn Connection>, writers: usize) {
    while sqlite(seen_by).waiting_writers() != writers {
        std::thread::yield_now();
    }
}

/// Lets all writers queue, in this order, behind one who holds the lock; then lets them go. The
/// first is the one that writes for those behind it.
async fn queued(
    place: &Place,
    writers: &mut [Box<dyn Connection>],
    writes: &[Write],
) -> Vec<Result<Outcome>> {
    let mut holder = place.open("").await;
    begin(&mut holder).await;
    let params: Vec<_> = writes
        .iter()
        .map(|(_, v)| [Param::Value(Value::Int(*v))])
        .collect();
    let mut running: Vec<Call<'_>> = Vec::new();
    for (n, db) in writers.iter_mut().enumerate() {
        let mut call = db.run(alone(writes[n].0, &params[n]));
        assert_pending(&mut call);
        running.push(call);
        until_waiting(&mut holder, n + 1);
    }
    holder.commit().await.unwrap();
    let mut answers = Vec::new();
    for call in running {
        answers.push(call.await);
    }
    answers
}

const TABLE: &str = "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER UNIQUE)";
const INSERT: &str = "INSERT INTO t (n) VALUES (?1)";
const FAMILY: &str = "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER UNIQUE);
                      CREATE TABLE child (of INTEGER REFERENCES t (n));
                      INSERT INTO t (n) VALUES (1)";
const CHILD: &str = "INSERT INTO child VALUES (?1)";

#[tokio::test]
async fn a_handle_that_checks_foreign_keys_has_them_checked_whoever_writes() {
    let place = Place::with(FAMILY).await;
    let mut lax = place.open("&foreign_keys=off").await;
    let mut strict = place.open("").await;
    write(&mut lax, (INSERT, 2)).await.unwrap();
    write(&mut strict, (CHILD, 1)).await.unwrap();
    let answers = queued(&place, &mut [lax, strict], &[(INSERT, 3), (CHILD, 77)]).await;
    let error = answers[1].as_ref().expect_err("there is no parent 77");
    assert_eq!(error.violation(), Some(Violation::ForeignKey));
}

#[tokio::test]
async fn a_handle_that_can_only_read_never_writes() {
    let place = Place::with(TABLE).await;
    let mut writer = place.open("").await;
    let mut reader = place.open("&mode=ro").await;
    write(&mut writer, (INSERT, 1)).await.unwrap();
    write(&mut reader, (INSERT, 2)).await.unwrap_err();
    let answers = queued(&place, &mut [writer, reader], &[(INSERT, 3), (INSERT, 4)]).await;
    assert!(answers[1].is_err(), "a read-only handle has written");
}

#[tokio::test]
async fn a_transaction_on_a_file_that_can_only_be_read_waits_for_no_writer() {
    let place = Place::with(TABLE).await;
    let mut writer = place.open("").await;
    begin(&mut writer).await;
    let mut reader = open(&format!("{}?mode=ro&busy_timeout=300", place.0.dsn())).await;
    begin(&mut reader).await;
    let count: i64 = one(&mut reader, "SELECT count(*) FROM t").await;
    assert_eq!(count, 0);
}

#[tokio::test]
async fn what_one_handle_writes_never_lands_in_a_temporary_table_of_another() {
    let place = Place::with("CREATE TABLE t (n); CREATE TABLE other (n)").await;
    let insert = "INSERT INTO t (n) VALUES (?1)";
    let other = "INSERT INTO other VALUES (?1)";
    let mut shadowing = place.open("").await;
    let mut plain = place.open("").await;
    // As an `on_connect` would do it.
    exec(&mut shadowing, "CREATE TEMP TABLE t (n)").await;
    write(&mut shadowing, (other, 1)).await.unwrap();
    write(&mut plain, (insert, 1)).await.unwrap();
    let answers = queued(&place, &mut [shadowing, plain], &[(other, 2), (insert, 2)]).await;
    assert_eq!(answers[1].as_ref().unwrap().affected, 1);
    let mut outside = place.open("").await;
    let count: i64 = one(&mut outside, "SELECT count(*) FROM t").await;
    assert_eq!(count, 2, "an acknowledged write is lost");
}

#[tokio::test]
async fn a_late_foreign_key_is_found_also_where_like_minds_the_case() {
    let schema = "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER UNIQUE);
                  CREATE TABLE child (
                      of INTEGER REFERENCES t (n) DEFERRABLE INITIALLY DEFERRED);
                  INSERT INTO t (n) VALUES (1)";
    let place = Place::with(schema).await;
    let options = "&pragma.case_sensitive_like=1";
    let mut first = place.open(options).await;
    let mut second = place.open(options).await;
    write(&mut first, (CHILD, 1)).await.unwrap();
    write(&mut second, (INSERT, 2)).await.unwrap();
    let answers = queued(&place, &mut [first, second], &[(CHILD, 7), (INSERT, 7)]).await;
    assert!(answers[0].is_err(), "it had no parent when it was written");
}

#[tokio::test]
async fn keys_that_a_setting_makes_late_are_still_checked_for_each_write() {
    let place = Place::with(FAMILY).await;
    let mut first = place.open("").await;
    let mut second = place.open("").await;
    write(&mut first, (CHILD, 1)).await.unwrap();
    write(&mut second, (INSERT, 2)).await.unwrap();
    first
        .set("defer_foreign_keys", &Value::Int(1))
        .await
        .unwrap();
    let answers = queued(&place, &mut [first, second], &[(CHILD, 7), (INSERT, 7)]).await;
    assert!(answers[0].is_err(), "it had no parent when it was written");
}

/// So many rows, as many as it is told.
const MANY: &str = "INSERT INTO t (n) WITH RECURSIVE n(i) AS
                    (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT ?1) SELECT -i - abs(random() / 2) FROM n";

#[tokio::test]
async fn a_write_that_runs_away_can_be_cancelled_also_when_it_was_joined() {
    let place = Place::with("CREATE TABLE t (n)").await;
    let mut first = place.open("").await;
    let mut second = place.open("").await;
    write(&mut first, (INSERT, 1)).await.unwrap();
    write(&mut second, (MANY, 1)).await.unwrap();
    let mut holder = place.open("").await;
    begin(&mut holder).await;
    let params = [
        [Param::Value(Value::Int(2))],
        [Param::Value(Value::Int(20_000_000))],
    ];
    let mut one = first.run(alone(INSERT, &params[0]));
    assert_pending(&mut one);
    until_waiting(&mut holder, 1);
    let mut two = second.run(alone(MANY, &params[1]));
    assert_pending(&mut two);
    until_waiting(&mut holder, 2);
    holder.commit().await.unwrap();
    // Both are taken out of the queue when the first begins.
    until_waiting(&mut holder, 0);
    drop(two);
    let quick = tokio::time::timeout(Duration::from_secs(3), one).await;
    assert!(
        quick.is_ok(),
        "a dropped write of another stands in its way"
    );
    quick.unwrap().unwrap();
}

#[tokio::test]
async fn a_write_in_place_does_not_keep_the_task_for_good() {
    let place = Place::with("CREATE TABLE t (n)").await;
    let mut db = open(&place.0.dsn()).await;
    begin(&mut db).await;
    for _ in 0..50 {
        let params = [Param::Value(Value::Int(1))];
        db.run(Request::new(MANY, &params)).await.unwrap();
    }
    let params = [Param::Value(Value::Int(3_000_000))];
    let mut call = db.run(Request::new(MANY, &params));
    // It is to go to the thread, or to come back soon.
    assert_pending(&mut call);
}

#[tokio::test]
async fn in_a_shared_cache_a_write_in_place_waits_for_a_reader_as_on_the_thread() {
    let dsn = format!("{}&busy_timeout=1d", shared_memory());
    let template = template(&dsn);
    let mut reader = connect(&template).await;
    let mut writer = connect(&template).await;
    sqlite(&mut writer).time_nothing();
    exec(&mut writer, "CREATE TABLE t (n)").await;
    begin(&mut writer).await;
    for _ in 0..10 {
        exec(&mut writer, "INSERT INTO t VALUES (1)").await;
    }
    writer.commit().await.unwrap();
    exec(&mut reader, "BEGIN").await;
    exec(&mut reader, "SELECT * FROM t").await;
    begin(&mut writer).await;
    let mut call = writer.run(Request::new("INSERT INTO t VALUES (1)", &[]));
    assert_pending(&mut call);
    exec(&mut reader, "COMMIT").await;
    call.await.unwrap();
}

#[test]
fn in_a_shared_cache_a_read_in_place_does_not_wait_for_what_another_thread_runs() {
    let (driver, gate) = Gate::new();
    let template = try_template(&driver, &shared_memory()).unwrap();
    let mut slow = block_on(connect(&template));
    let mut quick = block_on(connect(&template));
    sqlite(&mut quick).time_nothing();
    block_on(exec(&mut slow, "CREATE TABLE t (n)"));
    block_on(exec(&mut slow, "INSERT INTO t VALUES (1)"));
    for _ in 0..10 {
        block_on(exec(&mut quick, "SELECT n FROM t"));
    }
    let mut at_gate = slow.run(Request::new("SELECT gate() FROM t", &[]));
    assert_pending(&mut at_gate);
    gate.wait();
    let (polled, is_polled) = channel();
    let task = std::thread::spawn(move || {
        let mut reading = quick.run(Request::new("SELECT n FROM t", &[]));
        let ready = poll_times(&mut reading, 1);
        polled.send(()).unwrap();
        match ready {
            Some(done) => done,
            None => block_on(reading),
        }
    });
    let soon = is_polled.recv_timeout(Duration::from_secs(5));
    gate.open();
    task.join().unwrap().unwrap();
    block_on(at_gate).unwrap();
    assert!(soon.is_ok(), "the calling task was blocked");
}

#[tokio::test]
async fn who_writes_for_others_compiles_nothing_again() {
    let place = Place::with("CREATE TABLE t (n)").await;
    let mut writers = [place.open("").await, place.open("").await];
    for db in &mut writers {
        write(db, (INSERT, 1)).await.unwrap();
        write(db, (INSERT, 1)).await.unwrap();
    }
    let before = sqlite(&mut writers[0]).compiled_statements();
    for _ in 0..10 {
        for answer in queued(&place, &mut writers, &[(INSERT, 2), (INSERT, 3)]).await {
            answer.unwrap();
        }
    }
    assert_eq!(sqlite(&mut writers[0]).compiled_statements(), before);
}

#[tokio::test]
async fn who_joins_waits_no_longer_for_another_program_than_it_was_told_to() {
    let place = Place::with(TABLE).await;
    let dsn = format!("{}?busy_timeout=500", place.0.dsn());
    let mut writers = [open(&dsn).await, open(&dsn).await];
    for (n, db) in (1..).zip(&mut writers) {
        write(db, (INSERT, n)).await.unwrap();
    }
    let outside = rusqlite::Connection::open(place.0.path()).unwrap();
    let began = now();
    {
        let params = [[Param::Value(Value::Int(7))], [Param::Value(Value::Int(8))]];
        let mut holder = place.open("").await;
        begin(&mut holder).await;
        let [first, second] = &mut writers;
        let mut one = first.run(alone(INSERT, &params[0]));
        assert_pending(&mut one);
        until_waiting(&mut holder, 1);
        let mut two = second.run(alone(INSERT, &params[1]));
        assert_pending(&mut two);
        until_waiting(&mut holder, 2);
        holder.commit().await.unwrap();
        outside.execute_batch("BEGIN IMMEDIATE").ok();
        let _ = one.await;
        let took_one = began.elapsed();
        let _ = two.await;
        let took_two = began.elapsed();
        println!("{took_one:?} {took_two:?}");
        assert!(took_one < Duration::from_millis(900), "{took_one:?}");
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "how long SQLite is waited for is real time"
)]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}
