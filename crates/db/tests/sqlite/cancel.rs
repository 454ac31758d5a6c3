//! Futures of the SQLite driver that are dropped half-way.
//!
//! After each of them the connection is settled, and then it must be as if nothing had been left
//! over: the next statement sees neither rows nor errors nor the interrupt of the dropped one, and
//! the status is the truth.

use cenote::driver::{Begin, Connection, Param, Request, Status, Value};

use crate::support::*;

/// What a connection must be able to do after it has been settled.
async fn assert_sane(db: &mut Box<dyn Connection>, status: Status) {
    assert_eq!(db.status(), status);
    assert!(!db.is_broken());
    // Long enough for a stray interrupt to be noticed.
    let count = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 1000)
                 SELECT count(*) FROM n";
    assert_eq!(one::<i64>(db, count).await, 1000);
    assert_eq!(db.status(), status);
}

async fn count(db: &mut Box<dyn Connection>) -> i64 {
    one(db, "SELECT count(*) FROM t").await
}

#[tokio::test]
async fn an_endless_statement_is_cancelled() {
    let mut db = memory().await;
    assert!(poll_times(db.run(Request::new(ENDLESS, &[])), 1).is_none());
    assert_eq!(db.status(), Status::Unknown);
    db.settle().await.unwrap();
    assert_sane(&mut db, Status::Idle).await;
}

#[tokio::test]
async fn dropped_call_is_cancelled_at_once_and_not_only_when_settled() {
    let (driver, gate) = Gate::new();
    let file = TempDb::new();
    let mut db = open_with(&driver, &file.dsn()).await;
    let mut other = open(&format!("{}?busy_timeout=1d", file.dsn())).await;
    exec(&mut db, "CREATE TABLE t (a)").await;
    {
        let sql = "INSERT INTO t WITH RECURSIVE n(i) AS
                   (SELECT gate() UNION ALL SELECT i + 1 FROM n) SELECT i FROM n";
        let mut endless = db.run(Request::new(sql, &[]));
        assert_pending(&mut endless);
        gate.wait();
    }
    gate.open();
    // It has to wait for the other one's lock.
    exec(&mut other, "INSERT INTO t VALUES (1)").await;
    db.settle().await.unwrap();
    assert_eq!(count(&mut db).await, 1);
}

#[tokio::test]
async fn settling_nothing_is_fine() {
    let mut db = memory().await;
    db.settle().await.unwrap();
    drop(db.run(Request::new(ENDLESS, &[])));
    assert_eq!(db.status(), Status::Idle);
    db.settle().await.unwrap();
    assert_sane(&mut db, Status::Idle).await;
}

#[tokio::test]
async fn settling_can_itself_be_dropped_and_repeated() {
    let mut db = memory().await;
    for _ in 0..100 {
        assert!(poll_times(db.run(Request::new(ENDLESS, &[])), 1).is_none());
        poll_times(db.settle(), 1);
        db.settle().await.unwrap();
        assert_sane(&mut db, Status::Idle).await;
    }
}

#[tokio::test]
async fn a_call_after_a_dropped_one_settles_it_first() {
    let mut db = memory().await;
    assert!(poll_times(db.run(Request::new(ENDLESS, &[])), 1).is_none());
    assert_eq!(one::<i64>(&mut db, "SELECT 7").await, 7);
}

#[tokio::test]
async fn the_error_of_a_dropped_call_reaches_no_other_call() {
    let mut db = memory().await;
    for polls in 0..50 {
        poll_times(db.run(Request::new("SELECT * FROM nowhere", &[])), polls);
        db.settle().await.unwrap();
        assert_sane(&mut db, Status::Idle).await;
    }
}

/// The interrupt is sent at ever different moments: before the statement has begun, while it
/// runs, when it has ended.
#[tokio::test]
async fn an_interrupt_never_hits_the_next_statement() {
    let mut db = memory().await;
    exec(&mut db, "CREATE TABLE t (a)").await;
    for round in 0..3000 {
        let sql = match round % 3 {
            0 => ENDLESS,
            1 => "SELECT 1",
            _ => "INSERT INTO t VALUES (1)",
        };
        let done = poll_times(db.run(Request::new(sql, &[])), 1 + round % 40);
        drop(done);
        // A next call settles what is left, as settling does.
        match round % 2 {
            0 => db.settle().await.unwrap(),
            _ => assert_eq!(one::<i64>(&mut db, "SELECT 7").await, 7),
        }
        assert_sane(&mut db, Status::Idle).await;
    }
}

#[tokio::test]
async fn a_write_that_is_dropped_is_done_or_not_done() {
    let mut db = memory().await;
    exec(&mut db, "CREATE TABLE t (a)").await;
    let sql = "INSERT INTO t SELECT value FROM generate WHERE value < 100";
    exec(
        &mut db,
        "CREATE VIEW generate AS WITH RECURSIVE n(value) AS
         (SELECT 0 UNION ALL SELECT value + 1 FROM n LIMIT 1000) SELECT value FROM n",
    )
    .await;
    for polls in 0..300 {
        let before = count(&mut db).await;
        let done = poll_times(db.run(Request::new(sql, &[])), polls).is_some();
        db.settle().await.unwrap();
        assert_sane(&mut db, Status::Idle).await;
        let added = count(&mut db).await - before;
        assert!(added == 0 || added == 100, "{added}");
        assert!(!done || added == 100);
    }
}

#[tokio::test]
async fn interrupted_write_rolls_back_and_the_status_shows_it() {
    let (driver, gate) = Gate::new();
    let mut db = open_with(&driver, "sqlite::memory:").await;
    exec(&mut db, "CREATE TABLE t (a)").await;
    begin(&mut db).await;
    exec(&mut db, "INSERT INTO t VALUES (1)").await;
    let sql = "INSERT INTO t WITH RECURSIVE n(i) AS
               (SELECT gate() UNION ALL SELECT i + 1 FROM n) SELECT i FROM n";
    {
        let mut insert = db.run(Request::new(sql, &[]));
        assert_pending(&mut insert);
        gate.wait();
    }
    gate.open();
    db.settle().await.unwrap();
    assert_sane(&mut db, Status::Idle).await;
    assert_eq!(count(&mut db).await, 0);
}

#[tokio::test]
async fn an_interrupted_read_leaves_the_transaction_open() {
    let (driver, gate) = Gate::new();
    let mut db = open_with(&driver, "sqlite::memory:").await;
    exec(&mut db, "CREATE TABLE t (a)").await;
    begin(&mut db).await;
    exec(&mut db, "INSERT INTO t VALUES (1)").await;
    {
        let sql = "WITH RECURSIVE n(i) AS (SELECT gate() UNION ALL SELECT i + 1 FROM n)
                   SELECT count(*) FROM n";
        let mut select = db.run(Request::new(sql, &[]));
        assert_pending(&mut select);
        gate.wait();
    }
    gate.open();
    db.settle().await.unwrap();
    assert_sane(&mut db, Status::InTransaction).await;
    assert_eq!(count(&mut db).await, 1);
}

#[tokio::test]
async fn a_dropped_script_stops_between_its_statements() {
    let (driver, gate) = Gate::new();
    let mut db = open_with(&driver, "sqlite::memory:").await;
    exec(&mut db, "CREATE TABLE t (a)").await;
    {
        // The gate's statement is too short for SQLite to look at the interrupt.
        let mut running = db.run(script("SELECT gate(); INSERT INTO t VALUES (1)"));
        assert_pending(&mut running);
        gate.wait();
    }
    gate.open();
    db.settle().await.unwrap();
    assert_sane(&mut db, Status::Idle).await;
    assert_eq!(count(&mut db).await, 0);
}

#[tokio::test]
async fn a_dropped_batch_is_all_or_nothing_and_leaves_no_transaction() {
    let mut db = memory().await;
    exec(&mut db, "CREATE TABLE t (a)").await;
    let sets: Vec<_> = (0..200)
        .map(|n| vec![Param::Value(Value::Int(n))])
        .collect();
    for polls in 0..200 {
        let before = count(&mut db).await;
        let batch = db.run_batch("INSERT INTO t VALUES (?)", &sets);
        let done = poll_times(batch, polls).is_some();
        db.settle().await.unwrap();
        assert_sane(&mut db, Status::Idle).await;
        let added = count(&mut db).await - before;
        assert!(added == 0 || added == 200, "{added}");
        assert!(!done || added == 200);
    }
}

#[tokio::test]
async fn a_batch_that_is_dropped_between_two_sets_is_rolled_back() {
    let (driver, gate) = Gate::new();
    let mut db = open_with(&driver, "sqlite::memory:").await;
    exec(&mut db, "CREATE TABLE t (a)").await;
    {
        let sets = [vec![], vec![]];
        let mut batch = db.run_batch("INSERT INTO t VALUES (gate())", &sets);
        assert_pending(&mut batch);
        gate.wait();
    }
    gate.open();
    db.settle().await.unwrap();
    assert_sane(&mut db, Status::Idle).await;
    assert_eq!(count(&mut db).await, 0);
}

#[tokio::test]
async fn dropped_begin_is_done_or_not_and_the_status_shows_which() {
    let mut db = memory().await;
    exec(&mut db, "CREATE TABLE t (a)").await;
    for polls in 0..300 {
        let mut kind = Begin::default();
        kind.read_only = polls % 2 == 1;
        let done = poll_times(db.begin_with(&kind, None), polls).is_some();
        db.settle().await.unwrap();
        let status = db.status();
        assert_ne!(status, Status::Unknown);
        assert!(!done || status == Status::InTransaction);
        assert_sane(&mut db, status).await;
        db.rollback().await.unwrap();
        // A read-only one has left nothing behind.
        exec(&mut db, "INSERT INTO t VALUES (1)").await;
    }
}

#[tokio::test]
async fn dropped_commit_is_done_or_not_and_the_status_shows_which() {
    let mut db = memory().await;
    exec(&mut db, "CREATE TABLE t (a)").await;
    for polls in 0..300 {
        let before = count(&mut db).await;
        begin(&mut db).await;
        exec(&mut db, "INSERT INTO t VALUES (1)").await;
        let done = poll_times(db.commit(), polls).is_some();
        db.settle().await.unwrap();
        let status = db.status();
        assert_ne!(status, Status::Unknown);
        assert!(!done || status == Status::Idle);
        assert_sane(&mut db, status).await;
        db.rollback().await.unwrap();
        let kept = count(&mut db).await - before;
        assert_eq!(kept == 1, status == Status::Idle);
    }
}

#[tokio::test]
async fn dropped_rollback_is_done_or_not_and_the_status_shows_which() {
    let mut db = memory().await;
    exec(&mut db, "CREATE TABLE t (a)").await;
    for polls in 0..300 {
        begin(&mut db).await;
        exec(&mut db, "INSERT INTO t VALUES (1)").await;
        let done = poll_times(db.rollback(), polls).is_some();
        db.settle().await.unwrap();
        let status = db.status();
        assert_ne!(status, Status::Unknown);
        assert!(!done || status == Status::Idle);
        assert_sane(&mut db, status).await;
        db.rollback().await.unwrap();
        assert_eq!(count(&mut db).await, 0);
    }
}

#[tokio::test]
async fn a_dropped_prepare_savepoint_ping_or_set_leaves_nothing() {
    use cenote::driver::Savepoint;
    let mut db = memory().await;
    begin(&mut db).await;
    for polls in 0..50 {
        poll_times(db.prepare("SELECT 1, ?"), polls);
        db.settle().await.unwrap();
        poll_times(db.savepoint(Savepoint::Set("s")), polls);
        db.settle().await.unwrap();
        poll_times(db.ping(), polls);
        db.settle().await.unwrap();
        poll_times(db.set("cache_size", &Value::Int(100)), polls);
        db.settle().await.unwrap();
        poll_times(db.reset(), polls);
        db.settle().await.unwrap();
        assert_sane(&mut db, Status::InTransaction).await;
    }
}

#[tokio::test]
async fn waiting_for_a_lock_is_cancelled_at_once() {
    let file = TempDb::new();
    let dsn = format!("{}?busy_timeout=1d", file.dsn());
    let mut holder = open(&dsn).await;
    let mut waiting = open(&dsn).await;
    exec(&mut holder, "CREATE TABLE t (a)").await;
    begin(&mut holder).await;
    for _ in 0..20 {
        assert!(poll_times(waiting.begin_with(&Begin::default(), None), 1).is_none());
        waiting.settle().await.unwrap();
        assert_sane(&mut waiting, Status::Idle).await;
    }
    let shared = template(&format!("{}&busy_timeout=1d", shared_memory()));
    let mut holder = connect(&shared).await;
    let mut waiting = connect(&shared).await;
    exec(&mut holder, "CREATE TABLE t (a)").await;
    begin(&mut holder).await;
    exec(&mut holder, "INSERT INTO t VALUES (1)").await;
    assert!(poll_times(waiting.run(Request::new("SELECT * FROM t", &[])), 1).is_none());
    waiting.settle().await.unwrap();
    assert_sane(&mut waiting, Status::Idle).await;
}

#[tokio::test]
async fn a_dropped_connect_leaves_nothing_open() {
    let file = TempDb::new();
    let template = template(&file.dsn());
    for polls in 0..100 {
        poll_times(try_connect(&template), polls);
    }
    let mut db = connect(&template).await;
    // No other connection holds a lock: otherwise this would fail.
    exec(&mut db, "PRAGMA busy_timeout = 10000").await;
    exec(&mut db, "PRAGMA locking_mode = exclusive").await;
    exec(&mut db, "CREATE TABLE t (a)").await;
}

#[tokio::test]
async fn a_connect_that_waits_for_a_lock_can_be_dropped() {
    let file = TempDb::new();
    let mut holder = open(&format!(
        "{}?journal_mode=delete&locking_mode=exclusive",
        file.dsn()
    ))
    .await;
    exec(&mut holder, "CREATE TABLE t (a)").await;
    let template = template(&format!("{}?busy_timeout=1d", file.dsn()));
    assert!(poll_times(try_connect(&template), 1).is_none());
    drop(holder);
    connect(&template).await;
}

#[tokio::test]
async fn a_connection_dropped_in_the_middle_of_a_call_ends_its_thread() {
    for polls in 0..30 {
        let mut db = memory().await;
        let thread = sqlite(&mut db).take_thread().unwrap();
        poll_times(db.run(Request::new(ENDLESS, &[])), polls);
        drop(db);
        thread.join().unwrap();
    }
}

#[tokio::test]
async fn closing_in_the_middle_of_a_call_cancels_it() {
    let mut db = memory().await;
    let thread = sqlite(&mut db).take_thread().unwrap();
    assert!(poll_times(db.run(Request::new(ENDLESS, &[])), 1).is_none());
    db.close().await.unwrap();
    thread.join().unwrap();
}

#[tokio::test]
async fn a_dropped_close_closes_all_the_same() {
    let file = TempDb::new();
    for polls in 0..30 {
        let mut db = file.open().await;
        begin(&mut db).await;
        let thread = sqlite(&mut db).take_thread().unwrap();
        poll_times(db.close(), polls);
        thread.join().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_can_be_dropped_on_a_runtime_with_several_threads() {
    let file = TempDb::new();
    let template = template(&file.dsn());
    let mut db = connect(&template).await;
    exec(&mut db, "CREATE TABLE t (a)").await;
    let mut tasks = Vec::new();
    for task in 0..4 {
        let mut db = connect(&template).await;
        #[expect(clippy::disallowed_methods, reason = "there is no pool in this test")]
        tasks.push(tokio::spawn(async move {
            for round in 0..150 {
                let sql = if round % 3 == 0 {
                    ENDLESS
                } else {
                    "INSERT INTO t VALUES (1)"
                };
                poll_times(db.run(Request::new(sql, &[])), (round * 7 + task) % 50);
                db.settle().await.unwrap();
                assert_sane(&mut db, Status::Idle).await;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}
