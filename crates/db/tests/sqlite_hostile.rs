//! What an adversary tried against short runs in place, the writer lane and joined writes.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod sqlite_support;

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use cenote::driver::{Begin, Connection, Outcome, Param, Request, Status, Template, Value};
use cenote::sqlite::Sqlite;
use cenote::{Result, Violation};
use sqlite_support::*;

/// A file that nobody gives up waiting for.
struct Place(TempDb, Mutex<HashMap<String, Arc<dyn Template>>>);

impl Place {
    fn new() -> Self {
        Place(TempDb::new(), Mutex::default())
    }

    async fn with(schema: &str) -> Self {
        let place = Place::new();
        exec_script(&mut place.open("").await, schema).await;
        place
    }

    /// With these options besides. All with the same options are of one handle.
    async fn open(&self, options: &str) -> Box<dyn Connection> {
        let dsn = format!("{}?busy_timeout=1d{options}", self.0.dsn());
        let known = || template(&dsn);
        let template = Arc::clone(
            self.1
                .lock()
                .unwrap()
                .entry(options.to_owned())
                .or_insert_with(known),
        );
        let mut db = connect(&template).await;
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

/// The same, while a call goes on that must not end.
fn until_waiting_while(seen_by: &mut Box<dyn Connection>, writers: usize, call: &mut Call<'_>) {
    while sqlite(seen_by).waiting_writers() != writers {
        assert_pending(call);
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
    let mut holder = place.open("&synchronous=off").await;
    queued_behind(&mut holder, writers, writes).await
}

async fn queued_behind(
    holder: &mut Box<dyn Connection>,
    writers: &mut [Box<dyn Connection>],
    writes: &[Write],
) -> Vec<Result<Outcome>> {
    begin(holder).await;
    let params: Vec<_> = writes
        .iter()
        .map(|(_, v)| [Param::Value(Value::Int(*v))])
        .collect();
    let mut running: Vec<Call<'_>> = Vec::new();
    for (n, db) in writers.iter_mut().enumerate() {
        let mut call = db.run(alone(writes[n].0, &params[n]));
        assert_pending(&mut call);
        running.push(call);
        until_waiting(holder, n + 1);
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
    // It does not even queue.
    begin(&mut writer).await;
    write(&mut reader, (INSERT, 3)).await.unwrap_err();
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
    // The first has its turn, and takes the second along.
    assert_pending(&mut one);
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
    let mut watching = place.open("").await;
    let (mut before, mut behind) = (place.open("").await, place.open("").await);
    let dsn = format!("{}?busy_timeout=700", place.0.dsn());
    let (mut first, mut second) = (open(&dsn).await, open(&dsn).await);
    write(&mut first, (INSERT, 1)).await.unwrap();
    write(&mut second, (INSERT, 2)).await.unwrap();
    let outside = rusqlite::Connection::open(place.0.path()).unwrap();
    outside.execute_batch("BEGIN IMMEDIATE").unwrap();
    // One of them has its turn and waits for the other program, the other waits for its turn.
    let start = Begin::default();
    let mut gone = [
        before.begin_with(&start, None),
        behind.begin_with(&start, None),
    ];
    gone.iter_mut().for_each(assert_pending);
    until_waiting(&mut watching, 1);
    let params = [[Param::Value(Value::Int(7))], [Param::Value(Value::Int(8))]];
    let mut one = first.run(alone(INSERT, &params[0]));
    assert_pending(&mut one);
    until_waiting(&mut watching, 2);
    let mut two = second.run(alone(INSERT, &params[1]));
    assert_pending(&mut two);
    until_waiting(&mut watching, 3);
    let began = now();
    drop(gone);
    let error = one.await.unwrap_err();
    assert_eq!(error.violation(), Some(Violation::Locked));
    let took = began.elapsed();
    assert!(took < Duration::from_millis(1300), "{took:?}");
    two.await.unwrap_err();
}

#[tokio::test]
async fn a_function_in_a_stream_is_not_held_against_the_next_statement() {
    let driver = Sqlite::new().function("f", 0, false, |_| Ok(1));
    let place = Place::with(TABLE).await;
    let mut db = open_with(&driver, &place.0.dsn()).await;
    sqlite(&mut db).time_nothing();
    db.start_stream(Request::new("SELECT f()", &[]))
        .await
        .unwrap();
    db.end_stream().await.unwrap();
    for _ in 0..10 {
        exec(&mut db, "SELECT count(*) FROM t").await;
    }
    assert!(sqlite(&mut db).in_place_runs() > 0);
}

#[tokio::test]
async fn a_file_that_is_replaced_while_it_is_opened_has_a_lane_of_its_own() {
    let place = Place::new();
    let old = rusqlite::Connection::open(place.0.path()).unwrap();
    old.execute_batch("PRAGMA journal_mode = delete; CREATE TABLE t (n); BEGIN EXCLUSIVE")
        .unwrap();
    let next = rusqlite::Connection::open(place.0.file("next.db")).unwrap();
    next.execute_batch("CREATE TABLE t (n)").unwrap();
    drop(next);
    let dsn = format!("{}?busy_timeout=1d&journal_mode=delete", place.0.dsn());
    let templ = template(&dsn);
    let mut opening = Box::pin(try_connect(&templ));
    assert_pending(&mut opening);
    // It stands before the lock of the old file.
    let began = now();
    while began.elapsed() < Duration::from_millis(200) {
        std::thread::yield_now();
    }
    std::fs::rename(place.0.file("next.db"), place.0.path()).unwrap();
    old.execute_batch("COMMIT").unwrap();
    let mut on_old = opening.await.unwrap();
    let mut on_new = open(&dsn).await;
    begin(&mut on_old).await;
    // Another file: nobody is in its way.
    let mut call = on_new.run(Request::new("INSERT INTO t VALUES (1)", &[]));
    let began = now();
    while began.elapsed() < Duration::from_secs(2) && sqlite(&mut on_old).waiting_writers() == 0 {
        if poll_times(&mut call, 1).is_some() {
            return;
        }
        std::thread::yield_now();
    }
    panic!("it waits for the writer of another file");
}

/// Drops a future after so many polls.
async fn cut<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = Box::pin(future);
    let mut left = polls;
    std::future::poll_fn(move |cx| {
        if let Poll::Ready(done) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(done));
        }
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_dropped_a_success_is_committed_and_a_failure_is_not() {
    for options in ["synchronous=off", "journal_mode=delete&synchronous=off"] {
        let unknown = stress(options).await;
        assert!(unknown > 0, "nothing was dropped in the middle");
    }
}

/// Many write at once, and many of them are dropped. How many nobody knows of.
async fn stress(options: &str) -> usize {
    let schema = "CREATE TABLE t (
                      id INTEGER PRIMARY KEY, n INTEGER UNIQUE CHECK (n % 97 != 0))";
    let place = Place::new();
    let db = cenote::Db::builder(&format!("{}?{options}", place.0.dsn()))
        .max(12)
        .open()
        .await
        .unwrap();
    db.exec(schema, ()).await.unwrap();
    let insert = "INSERT INTO t (n) VALUES (?)";
    let mut tasks = Vec::new();
    for task in 0..60_i64 {
        let db = db.clone();
        tasks.push(cenote::spawn(async move {
            let mut fates = Vec::new();
            let mut seed = u64::try_from(task).unwrap() * 7919 + 1;
            for round in 0..40_i64 {
                let n = task * 1000 + round;
                seed = seed
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let polls = usize::try_from(seed >> 33).unwrap() % 40;
                let done = match (seed >> 20) % 5 {
                    0 => cut(db.exec(insert, (n,)), polls).await,
                    1 => Some(db.transaction(async || db.exec(insert, (n,)).await).await),
                    2 => {
                        let both = db.transaction(async || db.exec(insert, (n,)).await);
                        cut(both, polls * 3).await
                    }
                    _ => Some(db.exec(insert, (n,)).await),
                };
                fates.push((n, done.map(|done| done.map(|o| o.last_insert_id))));
            }
            fates
        }));
    }
    let mut unknown = 0;
    for task in tasks {
        for (n, fate) in task.await.unwrap() {
            let there: Vec<i64> = db
                .query_as("SELECT id FROM t WHERE n = ?", (n,))
                .await
                .unwrap();
            match fate {
                None => unknown += 1,
                Some(Ok(id)) => assert_eq!(id, there.first().copied(), "{n}"),
                Some(Err(error)) => {
                    assert!(n % 97 == 0, "{n}: {error}");
                    assert!(there.is_empty(), "{n}: {error}");
                }
            }
        }
    }
    db.close_and_drain(Duration::from_secs(20)).await.unwrap();
    unknown
}

/// All kinds of rules, tables and triggers.
const ZOO: &str = "
    CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, n INTEGER UNIQUE, m INTEGER DEFAULT 0,
                    twice INTEGER GENERATED ALWAYS AS (n * 2) STORED, CHECK (n <> 13));
    CREATE TABLE log (id INTEGER PRIMARY KEY, what TEXT, n INTEGER);
    CREATE TABLE child (id INTEGER PRIMARY KEY, of INTEGER REFERENCES t (n) ON DELETE CASCADE);
    CREATE TABLE keyed (k INTEGER PRIMARY KEY, n INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE strict (n INTEGER NOT NULL) STRICT;
    CREATE TABLE guarded (n INTEGER);
    CREATE TRIGGER fails BEFORE INSERT ON guarded WHEN new.n % 5 = 0
        BEGIN SELECT raise(FAIL, 'five'); END;
    CREATE TRIGGER rolls BEFORE INSERT ON guarded WHEN new.n % 7 = 0
        BEGIN INSERT INTO log (what, n) VALUES ('seven', new.n);
              SELECT raise(ROLLBACK, 'seven'); END;
    CREATE TRIGGER aborts AFTER INSERT ON guarded WHEN new.n % 3 = 0
        BEGIN INSERT INTO log (what, n) VALUES ('three', new.n);
              SELECT raise(ABORT, 'three'); END;
    CREATE TRIGGER ignores BEFORE INSERT ON guarded WHEN new.n % 11 = 0
        BEGIN SELECT raise(IGNORE); END;
    CREATE TRIGGER logs AFTER INSERT ON t
        BEGIN INSERT INTO log (what, n) VALUES ('t', new.n); END;
    CREATE TRIGGER logs_loss AFTER DELETE ON t
        BEGIN INSERT INTO log (what, n) VALUES ('gone', old.n); END;
    CREATE VIEW v AS SELECT n FROM t;
    CREATE TRIGGER into_v INSTEAD OF INSERT ON v
        BEGIN INSERT INTO keyed VALUES (new.n, 1); INSERT INTO strict VALUES (new.n); END;
    CREATE VIRTUAL TABLE words USING fts5 (w);
    CREATE VIRTUAL TABLE old_words USING fts4 (w);
    CREATE VIRTUAL TABLE box USING rtree (id, low, high);
    INSERT INTO t (n) VALUES (1), (2), (3);";

const WRITES: &[&str] = &[
    "INSERT INTO t (n) VALUES (?1)",
    "INSERT OR IGNORE INTO t (n) VALUES (?1)",
    "INSERT OR REPLACE INTO t (n) VALUES (?1)",
    "INSERT OR FAIL INTO t (n) VALUES (?1 + 20), (?1), (?1 + 30)",
    "INSERT OR ROLLBACK INTO t (n) VALUES (?1 + 50), (?1)",
    "INSERT INTO t (n) VALUES (?1) ON CONFLICT (n) DO UPDATE SET m = m + 1 RETURNING id, n, m",
    "UPDATE t SET n = n + ?1 WHERE n % 2 = 0 RETURNING n",
    "UPDATE OR FAIL t SET n = ?1",
    "UPDATE OR REPLACE t SET n = ?1 WHERE n < ?1",
    "DELETE FROM t WHERE n = ?1 RETURNING id, twice",
    "INSERT INTO child (of) VALUES (?1)",
    "INSERT INTO child (of) SELECT n FROM t WHERE n < ?1",
    "REPLACE INTO keyed VALUES (?1, ?1)",
    "INSERT INTO keyed VALUES (?1 + 1, 1), (?1, NULL)",
    "INSERT INTO strict VALUES (?1)",
    "INSERT INTO strict SELECT CASE WHEN ?1 % 2 THEN 'text' ELSE 1 END",
    "INSERT INTO guarded VALUES (?1 + 1), (?1), (?1 + 2)",
    "INSERT INTO v VALUES (?1)",
    "INSERT INTO words (rowid, w) VALUES (?1, 'one two')",
    "INSERT INTO old_words (docid, w) VALUES (?1 + 3, 'a'), (?1, 'b')",
    "DELETE FROM words WHERE words MATCH 'two' AND rowid < ?1",
    "INSERT OR REPLACE INTO box VALUES (?1, 1, 2)",
    "WITH w(i) AS (VALUES (?1), (?1 + 1)) INSERT INTO log (what, n) SELECT 'with', i FROM w",
    "INSERT INTO t (id, n) VALUES ('no number', ?1)",
];

/// What is in all tables.
async fn contents(db: &mut Box<dyn Connection>) -> Vec<String> {
    let mut all = Vec::new();
    for table in [
        "t",
        "log",
        "child",
        "keyed",
        "strict",
        "guarded",
        "words",
        "old_words",
        "box",
        "sqlite_sequence",
    ] {
        let rows = exec(db, &format!("SELECT * FROM {table} ORDER BY 1")).await;
        for row in rows.rows.unwrap().into_rows() {
            all.push(format!("{table} {row:?}"));
        }
    }
    all
}

fn told(answer: &Result<Outcome>) -> String {
    match answer {
        Ok(outcome) => {
            let rows = outcome.rows.clone().map(|rows| {
                let rows = rows.into_rows().map(|row| format!("{row:?}"));
                rows.collect::<Vec<_>>()
            });
            format!("{} {:?} {rows:?}", outcome.affected, outcome.last_insert_id)
        }
        Err(error) => format!("{:?} {}", error.code(), error.message()),
    }
}

#[tokio::test]
async fn writes_that_are_joined_come_to_what_they_would_one_after_the_other() {
    let (joined, apart) = (Place::with(ZOO).await, Place::with(ZOO).await);
    let mut seed = 4_u64;
    let mut random = |below: usize| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap() % below
    };
    let (mut one, mut other) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        one.push(joined.open("&synchronous=off").await);
        other.push(apart.open("&synchronous=off").await);
    }
    let mut together = 0;
    for round in 0..200 {
        let mut writes: Vec<Write> = Vec::new();
        for n in 0..one.len() {
            // First everybody gets to know all of them.
            let which = match round * one.len() {
                before if round < WRITES.len() => (before / one.len() + n) % WRITES.len(),
                _ => random(WRITES.len()),
            };
            writes.push((WRITES[which], i64::try_from(random(40)).unwrap()));
        }
        let before: i64 = one_value(&mut one[0]).await;
        let answers = queued(&joined, &mut one, &writes).await;
        together += i64::from(one_value(&mut one[0]).await - before > 3);
        for ((answer, db), sql) in answers.iter().zip(&mut other).zip(&writes) {
            let alone = write(db, *sql).await;
            assert_eq!(
                told(answer),
                told(&alone),
                "round {round}: {sql:?} of {writes:?}"
            );
        }
        assert_eq!(
            contents(&mut one[0]).await,
            contents(&mut other[0]).await,
            "round {round}: {writes:?}"
        );
    }
    assert!(together > 20, "hardly any was joined: {together}");
}

async fn one_value(db: &mut Box<dyn Connection>) -> i64 {
    one(db, "SELECT total_changes()").await
}

const UPSERT: &str = "INSERT INTO t (n) VALUES (?1) ON CONFLICT (n) DO UPDATE SET n = n";

#[tokio::test]
async fn an_upsert_that_inserted_tells_its_id_whatever_was_inserted_before() {
    let place = Place::with(TABLE).await;
    let mut db = place.open("").await;
    exec(&mut db, "CREATE TABLE other (n)").await;
    exec(&mut db, "INSERT INTO other VALUES (1)").await;
    let done = write(&mut db, (UPSERT, 5)).await.unwrap();
    assert_eq!(done.last_insert_id, Some(1));
}

#[tokio::test]
async fn an_upsert_that_inserted_tells_its_id_also_after_it_was_tried_together() {
    let place = Place::with(TABLE).await;
    let mut first = place.open("").await;
    let mut second = place.open("").await;
    let rollback = "INSERT OR ROLLBACK INTO t (n) VALUES (?1)";
    write(&mut first, (UPSERT, 1)).await.unwrap();
    write(&mut second, (rollback, 2)).await.unwrap();
    let writes = [(UPSERT, 3), (rollback, 1)];
    let answers = queued(&place, &mut [first, second], &writes).await;
    assert!(answers[1].is_err());
    assert_eq!(answers[0].as_ref().unwrap().last_insert_id, Some(3));
}

#[tokio::test]
async fn what_a_handle_has_set_holds_for_what_is_written_after_it() {
    let place = Place::with(FAMILY).await;
    let dsn = format!("{}?busy_timeout=1d&foreign_keys=off", place.0.dsn());
    let db = cenote::Db::builder(&dsn).max(4).open().await.unwrap();
    let mut holder = place.open("").await;
    // Two connections that know both statements.
    for _ in 0..3 {
        begin(&mut holder).await;
        let mut one = Box::pin(db.exec("INSERT INTO child VALUES (?)", (1,)));
        let mut two = Box::pin(db.exec("INSERT INTO child VALUES (?)", (1,)));
        until_queued(&mut holder, &mut one, &mut two).await;
        holder.commit().await.unwrap();
        one.await.unwrap();
        two.await.unwrap();
    }
    begin(&mut holder).await;
    let mut one = Box::pin(db.exec("INSERT INTO child VALUES (?)", (1,)));
    while sqlite(&mut holder).waiting_writers() < 1 {
        assert_pending(&mut one);
        tokio::task::yield_now().await;
    }
    db.set_default("foreign_keys", 1);
    let mut two = Box::pin(db.exec("INSERT INTO child VALUES (?)", (77,)));
    until_queued(&mut holder, &mut one, &mut two).await;
    holder.commit().await.unwrap();
    one.await.unwrap();
    let error = two.await.expect_err("there is no parent 77");
    assert!(error.is_foreign_key_violation());
}

async fn until_queued<F: Future, G: Future>(
    holder: &mut Box<dyn Connection>,
    one: &mut Pin<Box<F>>,
    two: &mut Pin<Box<G>>,
) {
    while sqlite(holder).waiting_writers() < 2 {
        assert_pending(one);
        assert_pending(two);
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn closing_a_handle_whose_writers_wait_lets_them_write_and_ends() {
    let place = Place::with(TABLE).await;
    let dsn = format!("{}?busy_timeout=1d", place.0.dsn());
    let db = cenote::Db::builder(&dsn).max(4).open().await.unwrap();
    let mut holder = place.open("").await;
    begin(&mut holder).await;
    let mut one = Box::pin(db.exec("INSERT INTO t (n) VALUES (?)", (1,)));
    let mut two = Box::pin(db.exec("INSERT INTO t (n) VALUES (?)", (2,)));
    until_queued(&mut holder, &mut one, &mut two).await;
    db.recycle();
    let mut closing = Box::pin(db.close_and_drain(Duration::from_secs(20)));
    assert_pending(&mut closing);
    drop(two);
    holder.commit().await.unwrap();
    one.await.unwrap();
    closing.await.unwrap();
    until_waiting(&mut holder, 0);
    let there: i64 = one_of(&mut holder).await;
    assert_eq!(there, 1);
}

async fn one_of(db: &mut Box<dyn Connection>) -> i64 {
    one(db, "SELECT count(*) FROM t").await
}

#[test]
fn a_runtime_that_ends_while_its_writers_wait_leaves_nobody_in_the_lane() {
    let place = block_on(Place::with(TABLE));
    let mut holder = block_on(place.open(""));
    block_on(begin(&mut holder));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let dsn = format!("{}?busy_timeout=1d", place.0.dsn());
    runtime.block_on(async {
        let db = cenote::Db::builder(&dsn).max(4).open().await.unwrap();
        for n in 0..4_i64 {
            let db = db.clone();
            drop(cenote::spawn(async move {
                db.exec("INSERT INTO t (n) VALUES (?)", (n,)).await
            }));
        }
        while sqlite(&mut holder).waiting_writers() < 4 {
            tokio::task::yield_now().await;
        }
    });
    drop(runtime);
    until_waiting(&mut holder, 0);
    block_on(holder.commit()).unwrap();
    assert_eq!(block_on(one_of(&mut holder)), 0);
    block_on(exec(&mut holder, "INSERT INTO t (n) VALUES (1)"));
}

#[tokio::test]
async fn a_full_disk_is_everybodys_own_error_and_nothing_that_was_acknowledged_is_lost() {
    let place = Place::with("CREATE TABLE t (n, b); CREATE TABLE u (n)").await;
    let blob = "INSERT INTO t VALUES (?1, zeroblob(?1 * 1000))";
    let small = "INSERT INTO u VALUES (?1)";
    let limit = "&pragma.max_page_count=30";
    let mut writers = vec![
        place.open(limit).await,
        place.open(limit).await,
        place.open(limit).await,
    ];
    write(&mut writers[0], (small, 1)).await.unwrap();
    write(&mut writers[1], (blob, 1)).await.unwrap();
    write(&mut writers[2], (small, 1)).await.unwrap();
    let answers = queued(&place, &mut writers, &[(small, 2), (blob, 500), (small, 3)]).await;
    assert!(answers[0].is_ok() && answers[2].is_ok());
    let error = answers[1].as_ref().unwrap_err();
    assert_eq!(error.code(), Some(13), "{error}");
    let mut outside = place.open("").await;
    let numbers = exec(&mut outside, "SELECT n FROM u ORDER BY n").await;
    assert_eq!(column::<i64>(numbers.rows.unwrap()), [1, 1, 2, 3]);
    assert_eq!(one_of(&mut outside).await, 1);
}

#[tokio::test]
async fn one_that_another_writes_for_can_be_cancelled_while_that_waits_for_another_program() {
    let place = Place::with(TABLE).await;
    let mut watching = place.open("").await;
    let (mut before, mut behind) = (place.open("").await, place.open("").await);
    let (mut first, mut second) = (place.open("").await, place.open("").await);
    write(&mut first, (INSERT, 1)).await.unwrap();
    write(&mut second, (INSERT, 2)).await.unwrap();
    let outside = rusqlite::Connection::open(place.0.path()).unwrap();
    outside.execute_batch("BEGIN IMMEDIATE").unwrap();
    // One of them has its turn and waits for the other program, the other waits for its turn.
    let start = Begin::default();
    let mut gone = [
        before.begin_with(&start, None),
        behind.begin_with(&start, None),
    ];
    gone.iter_mut().for_each(assert_pending);
    until_waiting(&mut watching, 1);
    let params = [[Param::Value(Value::Int(7))], [Param::Value(Value::Int(8))]];
    let mut one = first.run(alone(INSERT, &params[0]));
    assert_pending(&mut one);
    until_waiting(&mut watching, 2);
    let mut two = second.run(alone(INSERT, &params[1]));
    assert_pending(&mut two);
    until_waiting(&mut watching, 3);
    drop(gone);
    // Now the first waits for the other program, and the second behind it.
    until_waiting_while(&mut watching, 1, &mut one);
    drop(two);
    let settled = tokio::time::timeout(Duration::from_secs(3), second.settle()).await;
    outside.execute_batch("COMMIT").unwrap();
    one.await.unwrap();
    assert!(settled.is_ok(), "a dropped call goes on waiting");
}

#[tokio::test]
async fn a_commit_for_others_that_waits_for_a_reader_can_be_cancelled() {
    let options = "&journal_mode=delete";
    let place = Place::new();
    let mut holder = place.open(options).await;
    exec(&mut holder, TABLE).await;
    let mut first = place.open(options).await;
    let mut second = place.open(options).await;
    write(&mut first, (INSERT, 1)).await.unwrap();
    write(&mut second, (INSERT, 2)).await.unwrap();
    let reader = rusqlite::Connection::open(place.0.path()).unwrap();
    reader.execute_batch("BEGIN; SELECT * FROM t").unwrap();
    begin(&mut holder).await;
    let params = [[Param::Value(Value::Int(7))], [Param::Value(Value::Int(8))]];
    let mut one = first.run(alone(INSERT, &params[0]));
    assert_pending(&mut one);
    until_waiting(&mut holder, 1);
    let mut two = second.run(alone(INSERT, &params[1]));
    assert_pending(&mut two);
    until_waiting(&mut holder, 2);
    holder.rollback().await.unwrap();
    until_waiting_while(&mut holder, 0, &mut one);
    drop(one);
    drop(two);
    let settled = tokio::time::timeout(Duration::from_secs(3), first.settle()).await;
    reader.execute_batch("COMMIT").unwrap();
    assert!(settled.is_ok(), "a dropped call goes on waiting");
}

#[tokio::test]
async fn a_read_that_is_given_up_in_place_never_costs_its_transaction() {
    let schema = "CREATE VIRTUAL TABLE words USING fts5 (w);
                  CREATE VIRTUAL TABLE vocabulary USING fts5vocab (words, row)";
    let place = Place::with(schema).await;
    let mut db = open(&place.0.dsn()).await;
    begin(&mut db).await;
    // Short, as long as there is nothing in it; but a module may write while it reads.
    for _ in 0..10 {
        exec(&mut db, "SELECT count(*) FROM vocabulary").await;
    }
    assert_eq!(sqlite(&mut db).in_place_runs(), 0);
    let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 30000)
                INSERT INTO words SELECT 'w' || i || ' v' || i FROM n";
    exec(&mut db, many).await;
    // SQLite calls it a read, and it writes down what was kept in memory up to now.
    let known = try_exec(&mut db, "SELECT count(*) FROM vocabulary").await;
    assert_eq!(db.status(), Status::InTransaction, "{known:?}");
    assert_eq!(first::<i64>(known.unwrap().rows.unwrap()), 60_000);
}

#[tokio::test]
async fn without_a_journal_nothing_is_tried_that_would_have_to_be_undone() {
    // What does not fit into the cache is in the file before the commit.
    let options = "&journal_mode=off&cache_size=1";
    let place = Place::new();
    let mut holder = place.open(options).await;
    exec(&mut holder, "CREATE TABLE t (id INTEGER PRIMARY KEY, n)").await;
    exec(&mut holder, "CREATE INDEX by_n ON t (n)").await;
    exec(&mut holder, "CREATE TABLE gone (n)").await;
    let big = "INSERT INTO t (n) VALUES (zeroblob(?1 * 1000))";
    let gone = "INSERT INTO gone VALUES (?1)";
    let (mut first, mut second) = (place.open(options).await, place.open(options).await);
    write(&mut first, (big, 1)).await.unwrap();
    write(&mut second, (gone, 2)).await.unwrap();
    exec(&mut holder, "DROP TABLE gone").await;
    let writes = [(big, 2000), (gone, 6)];
    let answers = queued_behind(&mut holder, &mut [first, second], &writes).await;
    answers[0].as_ref().unwrap();
    answers[1].as_ref().unwrap_err();
    let sound: String = one(&mut holder, "PRAGMA integrity_check").await;
    assert_eq!(sound, "ok");
    assert_eq!(one_of(&mut holder).await, 2);
}

#[tokio::test]
async fn reads_that_are_now_short_and_now_long_always_give_the_right_answer() {
    let place = Place::with(TABLE).await;
    let mut db = open(&place.0.dsn()).await;
    let count = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT ?1)
                 SELECT i FROM n";
    let mut seed = 3_u64;
    let mut given_up = 0;
    begin(&mut db).await;
    exec(&mut db, "INSERT INTO t (n) VALUES (0)").await;
    for round in 0..1500 {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let long = (seed >> 40).is_multiple_of(40);
        let rows = if long {
            500 + i64::try_from((seed >> 33) % 3000).unwrap()
        } else {
            3
        };
        let params = [Param::Value(Value::Int(rows))];
        let before = sqlite(&mut db).in_place_runs();
        let answer = db.run(Request::new(count, &params)).await.unwrap();
        given_up += i64::from(long && sqlite(&mut db).in_place_runs() == before);
        let found = column::<i64>(answer.rows.unwrap());
        assert_eq!(found, (1..=rows).collect::<Vec<_>>(), "round {round}");
        assert_eq!(db.status(), Status::InTransaction);
    }
    db.commit().await.unwrap();
    assert_eq!(one_of(&mut db).await, 1);
    assert!(given_up > 0, "none was given up");
}

#[test]
fn short_reads_need_no_runtime() {
    let place = block_on(Place::with(TABLE));
    let mut db = block_on(place.open(""));
    block_on(async {
        for _ in 0..5000 {
            exec(&mut db, "SELECT count(*) FROM t").await;
        }
    });
    assert!(sqlite(&mut db).in_place_runs() > 4000);
}

#[tokio::test]
async fn a_write_whose_time_is_up_in_the_queue_is_never_written() {
    let place = Place::with(TABLE).await;
    let dsn = format!("{}?busy_timeout=1d", place.0.dsn());
    let db = cenote::Db::builder(&dsn)
        .max(4)
        .statement_timeout(Duration::from_millis(50))
        .open()
        .await
        .unwrap();
    let mut holder = place.open("").await;
    begin(&mut holder).await;
    let insert = "INSERT INTO t (n) VALUES (?)";
    let writes = [1, 2, 3].map(|n| db.exec(insert, (n,)));
    for write in writes {
        assert!(write.await.unwrap_err().is_timeout());
    }
    until_waiting(&mut holder, 0);
    holder.commit().await.unwrap();
    db.exec(insert, (4,)).await.unwrap();
    assert_eq!(one_of(&mut holder).await, 1);
}

#[allow(
    clippy::disallowed_methods,
    reason = "how long SQLite is waited for is real time"
)]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}
