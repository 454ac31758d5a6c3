//! Writers of one process queue for SQLite's lock in the order of arrival; writes that nothing depends on are
//! committed together.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Waker};

use cenote::driver::{Begin, Connection, Outcome, Param, Request, Status, Template, Value};
use cenote::{Db, Kind, Result, Violation};

use crate::support::*;

/// A database whose writers never time out.
struct TestDatabase(TempDb, OnceLock<Arc<dyn Template>>);

impl TestDatabase {
    async fn with(schema: &str) -> Self {
        let database = TestDatabase(TempDb::new(), OnceLock::new());
        exec_script(&mut database.open().await, schema).await;
        database
    }

    fn dsn(&self) -> String {
        format!("{}?busy_timeout=1d", self.0.dsn())
    }

    /// Opens a connection; all belong to one handle.
    async fn open(&self) -> Box<dyn Connection> {
        let mut db = connect(self.1.get_or_init(|| template(&self.dsn()))).await;
        sqlite(&mut db).time_nothing();
        db
    }
}

const TABLE: &str = "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER UNIQUE)";
const INSERT: &str = "INSERT INTO t (n) VALUES (?1)";

/// A request that nothing else on its connection depends on.
fn alone<'a>(sql: &'a str, params: &'a [Param<'a>]) -> Request<'a> {
    let mut request = Request::new(sql, params);
    request.unpinned = true;
    request
}

async fn count(db: &mut Box<dyn Connection>) -> i64 {
    one(db, "SELECT count(*) FROM t").await
}

/// How many rows this very connection has changed since it was opened.
async fn own_changes(db: &mut Box<dyn Connection>) -> i64 {
    one(db, "SELECT total_changes()").await
}

/// Waits until this number of writers is queued. `seen_by` is a connection that is not.
fn until_waiting(seen_by: &mut Box<dyn Connection>, writers: usize) {
    while sqlite(seen_by).waiting_writers() != writers {
        std::thread::yield_now();
    }
}

type Call<'c> = Pin<Box<dyn Future<Output = Result<Outcome>> + Send + 'c>>;

/// One who writes while several others wait behind it, each with its own statement.
struct Queue {
    database: TestDatabase,
    holder: Box<dyn Connection>,
    waiting: Vec<Box<dyn Connection>>,
}

impl Queue {
    /// All of those who wait have run their statement before, by itself.
    async fn of(schema: &str, warm: &[(&str, Value<'static>)]) -> Self {
        let database = TestDatabase::with(schema).await;
        let mut holder = database.open().await;
        let mut waiting = Vec::new();
        for (sql, value) in warm {
            let mut db = database.open().await;
            let params = [Param::Value(value.clone())];
            db.run(alone(sql, &params)).await.unwrap();
            waiting.push(db);
        }
        begin(&mut holder).await;
        Queue {
            database,
            holder,
            waiting,
        }
    }

    /// Lets all of them queue with a statement each, then lets go; what each was answered.
    async fn served(&mut self, calls: &[(&str, Value<'static>)]) -> Vec<Result<Outcome>> {
        let params: Vec<_> = calls
            .iter()
            .map(|(_, v)| [Param::Value(v.clone())])
            .collect();
        let mut running: Vec<Call<'_>> = Vec::new();
        for (n, db) in self.waiting.iter_mut().enumerate() {
            let mut call = db.run(alone(calls[n].0, &params[n]));
            assert_pending(&mut call);
            running.push(call);
            until_waiting(&mut self.holder, n + 1);
        }
        self.holder.commit().await.unwrap();
        let mut answers = Vec::new();
        for call in running {
            answers.push(call.await);
        }
        answers
    }
}

fn inserts(numbers: &[i64]) -> Vec<(&'static str, Value<'static>)> {
    let insert = |n: &i64| (INSERT, Value::Int(*n));
    numbers.iter().map(insert).collect()
}

#[tokio::test]
async fn writes_that_nothing_depends_on_are_committed_together() {
    let mut queue = Queue::of(TABLE, &inserts(&[1, 2, 3, 4])).await;
    let mut before = Vec::new();
    // The first writer after the transaction writes for all behind it.
    for db in &mut queue.waiting {
        before.push(own_changes(db).await);
    }
    let answers = queue.served(&inserts(&[11, 12, 13, 14])).await;
    for answer in &answers {
        assert_eq!(answer.as_ref().unwrap().rows_affected, 1);
    }
    let mut after = Vec::new();
    for db in &mut queue.waiting {
        after.push(own_changes(db).await);
    }
    let own: Vec<i64> = after.iter().zip(&before).map(|(a, b)| a - b).collect();
    assert_eq!(own, [4, 0, 0, 0]);
    assert_eq!(count(&mut queue.holder).await, 8);
}

#[tokio::test]
async fn every_writer_gets_the_answer_to_its_own_write() {
    let returning = "INSERT INTO t (n) VALUES (?1) RETURNING n * 2";
    let warm = [
        (INSERT, Value::Int(1)),
        (returning, Value::Int(2)),
        ("UPDATE t SET n = n + 100 WHERE n <= ?1", Value::Int(0)),
    ];
    let mut queue = Queue::of(TABLE, &warm).await;
    let calls = [
        (INSERT, Value::Int(3)),
        (returning, Value::Int(4)),
        (warm[2].0, Value::Int(10)),
    ];
    let mut answers = queue.served(&calls).await.into_iter().map(Result::unwrap);
    assert_eq!(answers.next().unwrap().last_insert_id, Some(3));
    let returned = answers.next().unwrap();
    assert_eq!(returned.last_insert_id, Some(4));
    assert_eq!(first::<i64>(returned.rows.unwrap()), 8);
    // It comes last, and sees the others' rows.
    assert_eq!(answers.next().unwrap().rows_affected, 4);
}

#[tokio::test]
async fn a_constraint_error_goes_to_the_write_that_caused_it() {
    let mut queue = Queue::of(TABLE, &inserts(&[1, 2, 3])).await;
    let answers = queue.served(&inserts(&[11, 11, 12])).await;
    assert!(answers[0].is_ok());
    let error = answers[1].as_ref().unwrap_err();
    assert_eq!(error.violation(), Some(Violation::Unique));
    assert!(answers[2].is_ok());
    assert_eq!(count(&mut queue.holder).await, 5);
}

#[tokio::test]
async fn a_rule_that_undoes_everything_undoes_only_its_own_write() {
    let rollback = "INSERT OR ROLLBACK INTO t (n) VALUES (?1)";
    let mut warm = inserts(&[1, 2, 3]);
    warm[1].0 = rollback;
    let mut queue = Queue::of(TABLE, &warm).await;
    let mut calls = inserts(&[11, 1, 12]);
    calls[1].0 = rollback;
    let answers = queue.served(&calls).await;
    assert!(answers[0].is_ok());
    assert!(answers[1].as_ref().unwrap_err().is_unique_violation());
    assert!(answers[2].is_ok());
    assert_eq!(count(&mut queue.holder).await, 5);
    for db in &mut queue.waiting {
        assert_eq!(db.status(), Status::Idle);
    }
}

#[tokio::test]
async fn deferred_foreign_key_is_checked_for_each_write() {
    let schema = "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER UNIQUE);
                  CREATE TABLE child (
                      of INTEGER REFERENCES t (n) DEFERRABLE INITIALLY DEFERRED);
                  INSERT INTO t (n) VALUES (1)";
    let child = "INSERT INTO child VALUES (?1)";
    let warm = [(child, Value::Int(1)), (INSERT, Value::Int(2))];
    let mut queue = Queue::of(schema, &warm).await;
    // Together, the second would put the first right.
    let answers = queue
        .served(&[(child, Value::Int(7)), (INSERT, Value::Int(7))])
        .await;
    let error = answers[0].as_ref().unwrap_err();
    assert_eq!(error.violation(), Some(Violation::ForeignKey));
    assert!(answers[1].is_ok());
}

#[tokio::test]
async fn statement_that_cannot_run_any_more_spoils_no_other_write() {
    let schema = "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER UNIQUE);
                  CREATE TABLE gone (n)";
    let gone = "INSERT INTO gone VALUES (?1)";
    let mut warm = inserts(&[1, 2, 3]);
    warm[1].0 = gone;
    let mut queue = Queue::of(schema, &warm).await;
    let mut calls = inserts(&[11, 12, 13]);
    calls[1].0 = gone;
    exec(&mut queue.holder, "DROP TABLE gone").await;
    let answers = queue.served(&calls).await;
    assert!(answers[0].is_ok());
    let error = answers[1].as_ref().unwrap_err();
    assert_eq!(error.violation(), Some(Violation::Undefined));
    assert!(answers[2].is_ok());
    assert_eq!(count(&mut queue.holder).await, 4);
}

#[tokio::test]
async fn what_the_connection_goes_on_with_is_never_written_by_another() {
    let mut queue = Queue::of(TABLE, &inserts(&[1, 2])).await;
    let Queue {
        holder, waiting, ..
    } = &mut queue;
    let params = [Param::Value(Value::Int(9))];
    let [first, second] = waiting.as_mut_slice() else {
        panic!("there are two");
    };
    let before = own_changes(second).await;
    {
        let mut one = first.run(Request::new(INSERT, &params));
        assert_pending(&mut one);
        until_waiting(holder, 1);
        let other = [Param::Value(Value::Int(10))];
        // Not alone: the last insert id may be asked for on this very connection.
        let mut two = second.run(Request::new(INSERT, &other));
        assert_pending(&mut two);
        until_waiting(holder, 2);
        holder.commit().await.unwrap();
        one.await.unwrap();
        two.await.unwrap();
    }
    assert_eq!(own_changes(second).await, before + 1);
    assert_eq!(one::<i64>(second, "SELECT last_insert_rowid()").await, 4);
}

#[tokio::test]
async fn call_dropped_in_the_queue_writes_and_blocks_nothing() {
    let mut queue = Queue::of(TABLE, &inserts(&[1, 2, 3])).await;
    let Queue {
        holder,
        waiting,
        database,
    } = &mut queue;
    let values = [7, 8, 9].map(|n| [Param::Value(Value::Int(n))]);
    let mut running: Vec<Call<'_>> = Vec::new();
    for (n, db) in waiting.iter_mut().enumerate() {
        let mut call = db.run(alone(INSERT, &values[n]));
        assert_pending(&mut call);
        running.push(call);
        until_waiting(holder, n + 1);
    }
    drop(running.remove(1));
    until_waiting(holder, 2);
    holder.commit().await.unwrap();
    for call in running {
        call.await.unwrap();
    }
    waiting[1].settle().await.unwrap();
    let mut other = database.open().await;
    let written = exec(&mut other, "SELECT n FROM t ORDER BY n").await;
    assert_eq!(column::<i64>(written.rows.unwrap()), [1, 2, 3, 7, 9]);
}

#[tokio::test]
async fn a_writer_that_is_dropped_lets_the_next_one_write() {
    let database = TestDatabase::with(TABLE).await;
    let mut first = database.open().await;
    let mut second = database.open().await;
    begin(&mut first).await;
    exec(&mut first, "INSERT INTO t (n) VALUES (1)").await;
    let one = [Param::Value(Value::Int(2))];
    let mut waiting = second.run(Request::new(INSERT, &one));
    assert_pending(&mut waiting);
    drop(first);
    waiting.await.unwrap();
    assert_eq!(count(&mut second).await, 1);
}

#[tokio::test]
async fn a_writer_blocked_by_its_own_program_gets_that_reason() {
    let database = TestDatabase::with(TABLE).await;
    let mut holder = database.open().await;
    let mut hasty = open(&format!("{}?busy_timeout=5", database.0.dsn())).await;
    begin(&mut holder).await;
    let error = try_exec(&mut hasty, "INSERT INTO t (n) VALUES (1)")
        .await
        .unwrap_err();
    assert_eq!(error.violation(), Some(Violation::Locked));
    assert!(error.is_retryable(), "{error}");
    assert!(
        error.message().contains("this program has been writing"),
        "{error}"
    );
    holder.commit().await.unwrap();
    exec(&mut hasty, "INSERT INTO t (n) VALUES (1)").await;
}

#[tokio::test]
async fn a_transaction_that_has_read_does_not_wait_for_the_writer() {
    let database = TestDatabase::with(TABLE).await;
    let mut writer = database.open().await;
    let mut reader = database.open().await;
    exec(&mut reader, "BEGIN").await;
    assert_eq!(count(&mut reader).await, 0);
    // What it has read is old, then: that can only be tried again.
    exec(&mut writer, "INSERT INTO t (n) VALUES (1)").await;
    let insert = "INSERT INTO t (n) VALUES (2)";
    let error = try_exec(&mut reader, insert).await.unwrap_err();
    assert_eq!(error.violation(), Some(Violation::Serialization));
    assert!(error.is_retryable());
    reader.rollback().await.unwrap();
    // And while another writes, the same.
    exec(&mut reader, "BEGIN").await;
    assert_eq!(count(&mut reader).await, 1);
    begin(&mut writer).await;
    let error = try_exec(&mut reader, insert).await.unwrap_err();
    assert_eq!(error.violation(), Some(Violation::Locked));
    reader.rollback().await.unwrap();
    writer.commit().await.unwrap();
}

#[tokio::test]
async fn the_first_write_of_a_deferred_transaction_waits() {
    let database = TestDatabase::with(TABLE).await;
    let mut writer = database.open().await;
    let mut deferred = database.open().await;
    let mut watching = database.open().await;
    begin(&mut writer).await;
    exec(&mut writer, "INSERT INTO t (n) VALUES (1)").await;
    exec(&mut deferred, "BEGIN").await;
    // The driver has not seen this text before: it reads its plan, which must not count as a read of the user.
    let mut waiting = deferred.run(Request::new("INSERT INTO t (n) VALUES (2)", &[]));
    while sqlite(&mut watching).waiting_writers() != 1 {
        assert_pending(&mut waiting);
        std::thread::yield_now();
    }
    writer.commit().await.unwrap();
    waiting.await.unwrap();
    deferred.commit().await.unwrap();
    assert_eq!(count(&mut watching).await, 2);
}

#[tokio::test]
async fn readers_and_temporary_tables_do_not_queue() {
    let database = TestDatabase::with(TABLE).await;
    let mut writer = database.open().await;
    begin(&mut writer).await;
    exec(&mut writer, "INSERT INTO t (n) VALUES (1)").await;
    let mut other = database.open().await;
    assert_eq!(count(&mut other).await, 0);
    exec(&mut other, "CREATE TEMP TABLE own (n)").await;
    exec(&mut other, "INSERT INTO own SELECT 1").await;
    exec_script(&mut other, "UPDATE own SET n = 2; DELETE FROM own").await;
    let mut read_only = Begin::default();
    read_only.read_only = true;
    other.begin_with(&read_only, None).await.unwrap();
    assert_eq!(count(&mut other).await, 0);
    other.commit().await.unwrap();
    writer.commit().await.unwrap();
    assert_eq!(count(&mut other).await, 1);
}

#[tokio::test]
async fn two_handles_on_one_file_share_its_write_queue() {
    let database = TestDatabase::with(TABLE).await;
    let mut one = database.open().await;
    begin(&mut one).await;
    let db = Db::open(&database.dsn()).await.unwrap();
    let mut writing = Box::pin(db.exec("INSERT INTO t (n) VALUES (1)", ()));
    assert!(
        writing
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    );
    while sqlite(&mut one).waiting_writers() == 0 {
        tokio::task::yield_now().await;
        let mut cx = Context::from_waker(Waker::noop());
        assert!(writing.as_mut().poll(&mut cx).is_pending());
    }
    one.commit().await.unwrap();
    writing.await.unwrap();
    db.close().await.unwrap();
}

/// 200 tasks at once, with single writes, transactions, batches and scripts.
async fn crowd(dsn: &str) {
    let db = Db::open(dsn).await.unwrap();
    db.exec(
        "CREATE TABLE account (id INTEGER PRIMARY KEY, n INTEGER)",
        (),
    )
    .await
    .unwrap();
    db.exec("INSERT INTO account VALUES (1, 0), (2, 0)", ())
        .await
        .unwrap();
    let mut tasks = Vec::new();
    for task in 0..200 {
        let db = db.clone();
        tasks.push(cenote::spawn(async move {
            let add = "UPDATE account SET n = n + 1 WHERE id = ?";
            for _ in 0..5 {
                db.exec(add, (1,)).await?;
            }
            db.transaction(async || {
                db.exec(add, (1,)).await?;
                db.exec(add, (2,)).await
            })
            .await?;
            match task % 3 {
                0 => db.exec_many(add, [(1,), (2,)]).await?,
                1 => {
                    let script = "UPDATE account SET n = n + 1 WHERE id = 1;
                                  UPDATE account SET n = n + 1 WHERE id = 2";
                    db.exec(script, ()).await?
                }
                _ => db.exec("INSERT INTO account (n) VALUES (2)", ()).await?,
            };
            Ok::<(), cenote::Error>(())
        }));
    }
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let sum: i64 = db
        .query_one("SELECT sum(n) FROM account", ())
        .await
        .unwrap()
        .get(0)
        .unwrap();
    assert_eq!(sum, 200 * (5 + 2 + 2));
    // What a script has touched is replaced when it comes back.
    let is_whole = || {
        let status = db.pool().unwrap().status();
        status.total == status.idle
    };
    while !is_whole() {
        tokio::task::yield_now().await;
    }
    db.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_tasks_writing_to_one_file_never_find_it_locked() {
    let database = TempDb::new();
    crowd(&format!("{}?synchronous=normal", database.dsn())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_rollback_journal_they_never_do_either() {
    let database = TempDb::new();
    crowd(&format!(
        "{}?journal_mode=delete&synchronous=off",
        database.dsn()
    ))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_shared_database_in_memory_they_never_do_either() {
    crowd(&shared_memory()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_when_nothing_runs_in_place() {
    let database = TempDb::new();
    crowd(&format!(
        "{}?synchronous=normal&in_place=off",
        database.dsn()
    ))
    .await;
}

#[tokio::test]
async fn a_handles_call_that_waits_too_long_reports_the_wait() {
    let database = TestDatabase::with(TABLE).await;
    let db = Db::open(&format!("{}?busy_timeout=5", database.0.dsn()))
        .await
        .unwrap();
    let mut holder = database.open().await;
    begin(&mut holder).await;
    let error = db.transaction(async || Ok(())).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Database);
    assert!(error.message().contains("database is locked"), "{error}");
    holder.rollback().await.unwrap();
    db.transaction(async || Ok(())).await.unwrap();
}
