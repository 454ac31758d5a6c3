//! Short SQLite statements run inline in the calling task; all others run on the connection's thread.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use cenote::driver::{Begin, Connection, Param, Request, Status, Value};
use cenote::sqlite::Sqlite;
use cenote::{Kind, Violation};

use crate::support::*;

/// The number of runs on the thread before a statement runs inline.
const PROOF: usize = 2;

/// A database whose statements may run inline, whatever the environment says.
struct TestDatabase(TempDb);

impl TestDatabase {
    fn new() -> Self {
        TestDatabase(TempDb::new())
    }

    fn dsn(&self, options: &str) -> String {
        format!("{}?in_place=on{options}", self.0.dsn())
    }

    /// How busy the machine is makes no difference to it.
    async fn open(&self) -> Box<dyn Connection> {
        let mut db = self.open_timed().await;
        sqlite(&mut db).time_nothing();
        db
    }

    async fn open_timed(&self) -> Box<dyn Connection> {
        let mut db = open(&self.dsn("")).await;
        let table = "CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, n INTEGER UNIQUE)";
        exec(&mut db, table).await;
        db
    }
}

fn in_place(db: &mut Box<dyn Connection>) -> u64 {
    sqlite(db).in_place_runs()
}

/// Runs a statement until its next run is in place, unless something keeps it from that.
async fn warm(db: &mut Box<dyn Connection>, sql: &str, params: &[Param<'_>]) {
    // A run may be late because the machine is busy: then it takes a few more.
    for _ in 0..600 {
        let before = in_place(db);
        db.run(Request::new(sql, params)).await.unwrap();
        if in_place(db) > before {
            return;
        }
    }
    panic!("it was never run in place: {sql}");
}

async fn run_often(db: &mut Box<dyn Connection>, sql: &str) {
    for _ in 0..20 {
        exec(db, sql).await;
    }
}

#[tokio::test]
async fn first_reads_run_on_the_thread_and_later_ones_inline() {
    let database = TestDatabase::new();
    let mut db = database.open().await;
    let sql = "SELECT count(*) FROM t WHERE n = 1";
    for _ in 0..PROOF {
        exec(&mut db, sql).await;
        assert_eq!(in_place(&mut db), 0);
    }
    warm(&mut db, sql, &[]).await;
    // It never leaves the task: it is ready at the first poll.
    let request = Request::new(sql, &[]);
    assert!(poll_times(db.run(request), 1).is_some_and(|done| done.is_ok()));
}

#[tokio::test]
async fn nothing_is_run_in_place_when_that_is_switched_off() {
    let database = TempDb::new();
    let mut db = open(&format!("{}?in_place=off", database.dsn())).await;
    run_often(&mut db, "SELECT 1").await;
    assert_eq!(in_place(&mut db), 0);
}

#[tokio::test]
async fn without_a_statement_cache_nothing_is_run_in_place() {
    let database = TestDatabase::new();
    let template = template(&database.dsn(""));
    let settings = cenote::driver::ConnectSettings::new(0);
    let connect = template.connect(cenote::Credentials::default(), &settings);
    let mut db = connect.await.unwrap();
    run_often(&mut db, "SELECT 1").await;
    assert_eq!(in_place(&mut db), 0);
}

#[tokio::test]
async fn a_write_by_itself_is_never_in_place() {
    let database = TestDatabase::new();
    let mut db = database.open().await;
    let sql = "UPDATE t SET n = n + 1 WHERE id = 1";
    begin(&mut db).await;
    warm(&mut db, sql, &[]).await;
    db.commit().await.unwrap();
    let before = in_place(&mut db);
    run_often(&mut db, sql).await;
    assert_eq!(in_place(&mut db), before);
}

#[tokio::test]
async fn write_under_the_lock_runs_inline_and_its_commit_does_not() {
    let database = TestDatabase::new();
    let mut db = database.open().await;
    let insert = "INSERT INTO t (n) VALUES (NULL)";
    begin(&mut db).await;
    warm(&mut db, insert, &[]).await;
    set_savepoint(&mut db, "one").await;
    let before = in_place(&mut db);
    let outcome = exec(&mut db, insert).await;
    assert_eq!(in_place(&mut db), before + 1);
    assert_eq!(outcome.rows_affected, 1);
    let inserted = one::<i64>(&mut db, "SELECT max(id) FROM t").await;
    assert_eq!(outcome.last_insert_id, Some(inserted));
    let before = in_place(&mut db);
    let commit = db.commit();
    assert!(poll_times(commit, 1).is_none());
    db.settle().await.unwrap();
    assert_eq!(in_place(&mut db), before);
}

#[tokio::test]
async fn a_write_is_in_place_only_once_its_transaction_holds_the_lock() {
    let database = TestDatabase::new();
    let mut db = database.open().await;
    let insert = "INSERT INTO t (n) VALUES (NULL)";
    begin(&mut db).await;
    warm(&mut db, insert, &[]).await;
    db.commit().await.unwrap();
    exec(&mut db, "BEGIN").await;
    let before = in_place(&mut db);
    exec(&mut db, insert).await;
    assert_eq!(in_place(&mut db), before);
    exec(&mut db, insert).await;
    assert_eq!(in_place(&mut db), before + 1);
    exec(&mut db, "COMMIT").await;
}

#[tokio::test]
async fn transaction_control_and_pragmas_are_never_in_place() {
    let database = TestDatabase::new();
    let mut db = database.open().await;
    for _ in 0..20 {
        exec(&mut db, "BEGIN").await;
        exec(&mut db, "SAVEPOINT a").await;
        exec(&mut db, "RELEASE a").await;
        exec(&mut db, "COMMIT").await;
    }
    run_often(&mut db, "PRAGMA user_version").await;
    assert_eq!(in_place(&mut db), 0);
}

#[tokio::test]
async fn a_connection_whose_session_was_changed_runs_nothing_in_place() {
    let database = TestDatabase::new();
    for change in ["PRAGMA busy_timeout = 5000", "ATTACH ':memory:' AS other"] {
        let mut db = database.open().await;
        warm(&mut db, "SELECT 1", &[]).await;
        exec(&mut db, change).await;
        let before = in_place(&mut db);
        run_often(&mut db, "SELECT 1").await;
        assert_eq!(in_place(&mut db), before, "{change}");
    }
}

/// A driver with `noted(x)`, which notes the thread it is called on and returns `x`, and with the
/// collation `noting`.
/// A driver with a function that hides one of SQLite's own.
fn noting() -> (Sqlite, Arc<Mutex<Vec<ThreadId>>>) {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let (called, compared) = (Arc::clone(&calls), Arc::clone(&calls));
    let driver = Sqlite::new()
        .function("sign", 1, false, move |args| {
            called.lock().unwrap().push(std::thread::current().id());
            args.get::<i64>(0)
        })
        .collation("noting", move |a, b| {
            compared.lock().unwrap().push(std::thread::current().id());
            a.cmp(b)
        });
    (driver, calls)
}

#[tokio::test]
async fn what_calls_a_function_of_the_application_stays_on_the_thread() {
    let (driver, calls) = noting();
    let database = TestDatabase::new();
    let mut db = open_with(&driver, &database.dsn("")).await;
    sqlite(&mut db).time_nothing();
    run_often(&mut db, "SELECT sign(1)").await;
    assert_eq!(in_place(&mut db), 0);
    assert_eq!(calls.lock().unwrap().len(), 20);
}

#[tokio::test]
async fn function_first_called_inline_is_called_on_the_thread() {
    let (driver, calls) = noting();
    let database = TestDatabase::new();
    let mut db = open_with(&driver, &database.dsn("")).await;
    sqlite(&mut db).time_nothing();
    let sql = "SELECT CASE WHEN ?1 THEN sign(?1) END";
    warm(&mut db, sql, &params([Value::Int(0)])).await;
    let seven = params([Value::Int(7)]);
    let outcome = db.run(Request::new(sql, &seven)).await.unwrap();
    assert_eq!(first::<i64>(outcome.rows.unwrap()), 7);
    // Once, and not here.
    let calls = std::mem::take(&mut *calls.lock().unwrap());
    assert_eq!(calls.len(), 1);
    assert_ne!(calls[0], std::thread::current().id());
    let before = in_place(&mut db);
    for _ in 0..20 {
        let zero = params([Value::Int(0)]);
        db.run(Request::new(sql, &zero)).await.unwrap();
    }
    assert_eq!(in_place(&mut db), before);
}

#[tokio::test]
async fn collation_first_used_inline_is_used_on_the_thread() {
    let (driver, calls) = noting();
    let database = TestDatabase::new();
    let mut db = open_with(&driver, &database.dsn("")).await;
    sqlite(&mut db).time_nothing();
    exec(&mut db, "CREATE TABLE w (word TEXT)").await;
    let sql = "SELECT word FROM w WHERE word < 'd' COLLATE noting";
    warm(&mut db, sql, &[]).await;
    exec_script(&mut db, "INSERT INTO w VALUES ('c'), ('b')").await;
    let outcome = exec(&mut db, sql).await;
    assert_eq!(column::<String>(outcome.rows.unwrap()), ["c", "b"]);
    let calls = calls.lock().unwrap();
    assert!(!calls.is_empty());
    assert!(!calls.contains(&std::thread::current().id()));
}

#[tokio::test]
async fn where_there_are_functions_writes_stay_on_the_thread() {
    let (driver, _calls) = noting();
    let database = TestDatabase::new();
    let mut db = open_with(&driver, &database.dsn("")).await;
    sqlite(&mut db).time_nothing();
    exec(&mut db, "CREATE TABLE t (n)").await;
    begin(&mut db).await;
    run_often(&mut db, "INSERT INTO t VALUES (1)").await;
    assert_eq!(in_place(&mut db), 0);
}

const COUNTING: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT +?1)
                        SELECT count(*) FROM n";

#[tokio::test]
async fn read_that_turns_out_long_finishes_on_the_thread() {
    let database = TestDatabase::new();
    let mut db = database.open_timed().await;
    warm(&mut db, COUNTING, &params([Value::Int(10)])).await;
    let before = in_place(&mut db);
    let many = params([Value::Int(2_000_000)]);
    let outcome = db.run(Request::new(COUNTING, &many)).await.unwrap();
    assert_eq!(first::<i64>(outcome.rows.unwrap()), 2_000_000);
    assert_eq!(in_place(&mut db), before);
    // It has to prove itself again.
    let few = params([Value::Int(10)]);
    for _ in 0..PROOF {
        db.run(Request::new(COUNTING, &few)).await.unwrap();
        assert_eq!(in_place(&mut db), before);
    }
    warm(&mut db, COUNTING, &few).await;
}

#[tokio::test]
async fn long_read_in_a_transaction_leaves_the_transaction_unchanged() {
    let database = TestDatabase::new();
    let mut db = database.open_timed().await;
    begin(&mut db).await;
    exec(&mut db, "INSERT INTO t (n) VALUES (1)").await;
    warm(&mut db, COUNTING, &params([Value::Int(10)])).await;
    let many = params([Value::Int(2_000_000)]);
    db.run(Request::new(COUNTING, &many)).await.unwrap();
    assert_eq!(db.status(), Status::InTransaction);
    db.commit().await.unwrap();
    assert_eq!(one::<i64>(&mut db, "SELECT count(*) FROM t").await, 1);
}

#[tokio::test]
async fn a_read_that_has_to_wait_for_a_lock_waits_on_the_thread() {
    let database = TestDatabase::new();
    let dsn = database.dsn("&journal_mode=delete&busy_timeout=1h");
    let mut writer = open(&dsn).await;
    let mut reader = open(&dsn).await;
    sqlite(&mut reader).time_nothing();
    exec(&mut writer, "CREATE TABLE t (n)").await;
    let sql = "SELECT max(n) FROM t";
    warm(&mut reader, sql, &[]).await;
    exec(&mut writer, "BEGIN EXCLUSIVE").await;
    exec(&mut writer, "INSERT INTO t VALUES (1)").await;
    let before = in_place(&mut reader);
    let mut reading = reader.run(Request::new(sql, &[]));
    assert_pending(&mut reading);
    exec(&mut writer, "COMMIT").await;
    let outcome = reading.await.unwrap();
    assert_eq!(first::<i64>(outcome.rows.unwrap()), 1);
    assert_eq!(in_place(&mut reader), before);
}

#[tokio::test]
async fn errors_in_place_are_those_of_the_thread() {
    let database = TestDatabase::new();
    let mut db = database.open().await;
    let insert = "INSERT INTO t (n) VALUES (?1)";
    begin(&mut db).await;
    let null = params([Value::Null]);
    warm(&mut db, insert, &null).await;
    let one_param = params([Value::Int(1)]);
    db.run(Request::new(insert, &one_param)).await.unwrap();
    let before = in_place(&mut db);
    let twice = db.run(Request::new(insert, &one_param)).await.unwrap_err();
    assert_eq!(in_place(&mut db), before + 1);
    assert_eq!(twice.violation(), Some(Violation::Unique));
    assert_eq!(db.status(), Status::InTransaction);
    let none = db.run(Request::new(insert, &[])).await.unwrap_err();
    assert_eq!(none.kind(), Kind::Parameters);
    let nan = params([Value::Float(f64::NAN)]);
    let nan = db.run(Request::new(insert, &nan)).await.unwrap_err();
    assert_eq!(nan.kind(), Kind::Type);
    db.run(Request::new(insert, &null)).await.unwrap();
    db.commit().await.unwrap();
}

#[tokio::test]
async fn rule_that_rolls_back_does_so_inline_and_the_status_shows_it() {
    let database = TestDatabase::new();
    let mut db = database.open().await;
    let mut other = database.open().await;
    let insert = "INSERT OR ROLLBACK INTO t (n) VALUES (?1)";
    begin(&mut db).await;
    warm(&mut db, insert, &params([Value::Null])).await;
    let five = params([Value::Int(5)]);
    db.run(Request::new(insert, &five)).await.unwrap();
    let before = in_place(&mut db);
    assert!(db.run(Request::new(insert, &five)).await.is_err());
    assert_eq!(in_place(&mut db), before + 1);
    assert_eq!(db.status(), Status::Idle);
    // The next one may write at once.
    exec(&mut other, "INSERT INTO t (n) VALUES (6)").await;
    assert_eq!(one::<i64>(&mut db, "SELECT count(*) FROM t").await, 1);
}

#[tokio::test]
async fn a_changed_schema_is_seen_in_place() {
    let database = TestDatabase::new();
    let mut db = database.open().await;
    let mut other = database.open().await;
    exec(&mut db, "INSERT INTO t (n) VALUES (1)").await;
    warm(&mut db, "SELECT * FROM t", &[]).await;
    exec(&mut other, "ALTER TABLE t ADD COLUMN more DEFAULT 'new'").await;
    let outcome = exec(&mut db, "SELECT * FROM t").await;
    let row = outcome.rows.unwrap().into_rows().next().unwrap();
    assert_eq!(row.get::<String>("more").unwrap(), "new");
}

#[tokio::test]
async fn values_are_the_same_in_place_and_on_the_thread() {
    let database = TestDatabase::new();
    let mut here = open(&database.dsn("")).await;
    sqlite(&mut here).time_nothing();
    let mut there = open(&format!("{}?in_place=off", database.0.dsn())).await;
    let sql = "SELECT ?1, ?2, ?3, ?4, ?5, ?6";
    let date = cenote::Date::new(2024, 2, 29).unwrap();
    let values = params([
        Value::Int(-3),
        Value::Float(1.5),
        Value::Text("h\u{e9}".into()),
        Value::Bytes(vec![0, 255].into()),
        Value::Date(date),
        Value::Null,
    ]);
    warm(&mut here, sql, &values).await;
    let mut seen = Vec::new();
    for db in [&mut here, &mut there] {
        let outcome = db.run(Request::new(sql, &values)).await.unwrap();
        let row = outcome.rows.unwrap().into_rows().next().unwrap();
        let cells = (0..6).map(|n| format!("{:?}", row.get::<Value<'_>>(n)));
        seen.push(cells.collect::<Vec<_>>());
    }
    assert_eq!(seen[0], seen[1]);
}

#[tokio::test(flavor = "current_thread")]
async fn ten_thousand_reads_in_a_row_let_other_tasks_run() {
    let database = TestDatabase::new();
    let mut db = database.open().await;
    warm(&mut db, "SELECT 1", &[]).await;
    let turns = Rc::new(Cell::new(0));
    let others = Rc::clone(&turns);
    let local = tokio::task::LocalSet::new();
    let reading = local.run_until(async move {
        tokio::task::spawn_local(async move {
            loop {
                others.set(others.get() + 1);
                tokio::task::yield_now().await;
            }
        });
        for _ in 0..10_000 {
            exec(&mut db, "SELECT 1").await;
        }
        in_place(&mut db)
    });
    let in_place = reading.await;
    assert!(in_place > 9_000, "{in_place} in place");
    // A task's budget is 128 calls.
    assert!(turns.get() >= 70, "{} turns", turns.get());
}

#[tokio::test]
async fn dropped_read_leaves_nothing_behind_inline_or_on_the_thread() {
    let database = TestDatabase::new();
    let mut db = database.open().await;
    for polls in 0..3 {
        poll_times(db.run(Request::new("SELECT n FROM t", &[])), polls);
        db.settle().await.unwrap();
        assert_eq!(db.status(), Status::Idle);
    }
    // A dropped run proves nothing.
    warm(&mut db, "SELECT n FROM t", &[]).await;
    let before = in_place(&mut db);
    for _ in 0..50 {
        for polls in 0..3 {
            poll_times(db.run(Request::new("SELECT n FROM t", &[])), polls);
            db.settle().await.unwrap();
            assert_eq!(db.status(), Status::Idle);
            assert!(!db.is_broken());
        }
    }
    assert!(in_place(&mut db) > before);
}

#[tokio::test]
async fn read_only_transaction_reads_inline_and_still_cannot_write() {
    let database = TestDatabase::new();
    let mut db = database.open().await;
    let insert = "INSERT INTO t (n) VALUES (NULL)";
    begin(&mut db).await;
    warm(&mut db, insert, &[]).await;
    db.commit().await.unwrap();
    let mut read_only = Begin::default();
    read_only.read_only = true;
    db.begin_with(&read_only, None).await.unwrap();
    warm(&mut db, "SELECT max(n) FROM t", &[]).await;
    let refused = try_exec(&mut db, insert).await.unwrap_err();
    assert_eq!(refused.violation(), Some(Violation::Permission));
    db.commit().await.unwrap();
    exec(&mut db, insert).await;
}

#[tokio::test]
async fn a_write_is_in_place_only_if_it_cannot_go_through_many_rows() {
    let database = TestDatabase::new();
    let mut db = database.open().await;
    exec_script(
        &mut db,
        "CREATE TABLE u (id INTEGER PRIMARY KEY, n INTEGER);
         CREATE TABLE log (n INTEGER);
         CREATE TABLE parent (id INTEGER PRIMARY KEY);
         CREATE TABLE child (parent INTEGER NOT NULL REFERENCES parent);
         CREATE TABLE node (id INTEGER PRIMARY KEY, parent INTEGER REFERENCES node);
         CREATE TRIGGER noted AFTER UPDATE ON u BEGIN INSERT INTO log VALUES (new.n); END;
         INSERT INTO t (id, n) VALUES (1, 1); INSERT INTO u VALUES (1, 1)",
    )
    .await;
    begin(&mut db).await;
    let short = [
        "INSERT INTO t (n) VALUES (NULL)",
        "INSERT INTO t (n) VALUES (NULL) RETURNING id",
        "INSERT INTO parent DEFAULT VALUES RETURNING id",
        "INSERT INTO child VALUES (1)",
        "UPDATE t SET n = n + 1 WHERE id = 1 RETURNING n",
        "UPDATE t SET n = n + 1 WHERE n = -1",
    ];
    for sql in short {
        let before = in_place(&mut db);
        run_often(&mut db, sql).await;
        assert!(in_place(&mut db) > before, "not in place: {sql}");
    }
    let long = [
        "UPDATE t SET n = NULL",
        "DELETE FROM log",
        "DELETE FROM log WHERE n > 5",
        // The row may fill any number of pages.
        "DELETE FROM t WHERE id = -1",
        "DELETE FROM parent WHERE id = -1",
        // It may have left another row without its parent, and looks for those then.
        "INSERT INTO node (parent) VALUES (NULL) RETURNING id",
        "INSERT INTO log SELECT 1",
        "INSERT INTO log SELECT id FROM t WHERE id < 0",
        "UPDATE u SET n = n + 1 WHERE id = 1",
        "UPDATE t SET n = (SELECT count(*) FROM log) - 1000 WHERE id = 1",
        "UPDATE t SET n = NULL WHERE id IN (WITH x(i) AS
             (SELECT 1 UNION ALL SELECT i + 1 FROM x LIMIT 3) SELECT i FROM x)",
    ];
    for sql in long {
        let before = in_place(&mut db);
        run_often(&mut db, sql).await;
        assert_eq!(in_place(&mut db), before, "in place: {sql}");
    }
}

#[tokio::test]
async fn write_whose_plan_changed_with_the_schema_is_measured_again() {
    let database = TestDatabase::new();
    let mut db = database.open().await;
    let mut other = database.open().await;
    exec(&mut db, "CREATE TABLE log (n INTEGER)").await;
    let update = "UPDATE t SET n = n + 1 WHERE id = 1";
    let trigger = |sort: &str, name: &str| {
        format!(
            "CREATE {sort} TRIGGER {name} AFTER UPDATE ON t
             BEGIN INSERT INTO log VALUES (new.n); END"
        )
    };
    // By itself, in the same transaction.
    begin(&mut db).await;
    warm(&mut db, update, &[]).await;
    exec(&mut db, &trigger("", "own")).await;
    let before = in_place(&mut db);
    run_often(&mut db, update).await;
    assert_eq!(in_place(&mut db), before);
    exec(&mut db, "DROP TRIGGER own").await;
    warm(&mut db, update, &[]).await;
    db.commit().await.unwrap();
    // By another connection, between two transactions.
    exec(&mut other, &trigger("", "others")).await;
    begin(&mut db).await;
    let before = in_place(&mut db);
    run_often(&mut db, update).await;
    assert_eq!(in_place(&mut db), before);
    exec(&mut db, "DROP TRIGGER others").await;
    warm(&mut db, update, &[]).await;
    // For this session only.
    exec(&mut db, &trigger("TEMP", "passing")).await;
    let before = in_place(&mut db);
    run_often(&mut db, update).await;
    assert_eq!(in_place(&mut db), before);
    db.commit().await.unwrap();
}
