//! What an adversary tried against short runs in place and the write queue: nobody is kept waiting
//! who need not wait, and nothing that was given up has an effect.

use std::sync::mpsc::channel;
use std::time::Duration;

use cenote::Violation;
use cenote::driver::{Begin, Param, Request, Status, Value};
use cenote::sqlite::Sqlite;

use crate::support::test_database::*;
use crate::support::*;

#[tokio::test]
async fn transaction_on_a_read_only_file_waits_for_no_writer() {
    let database = TestDatabase::with(TABLE).await;
    let mut writer = database.open("").await;
    begin(&mut writer).await;
    let mut reader = open(&format!("{}?mode=ro&busy_timeout=300", database.file.dsn())).await;
    begin(&mut reader).await;
    let count: i64 = one(&mut reader, "SELECT count(*) FROM t").await;
    assert_eq!(count, 0);
}

/// A statement that writes as many rows as its parameter says.
const MANY: &str = "INSERT INTO t (n) WITH RECURSIVE n(i) AS
                    (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT +?1) SELECT -i - abs(random() / 2) FROM n";

#[tokio::test]
async fn runaway_write_can_be_cancelled_even_when_batched() {
    let database = TestDatabase::with("CREATE TABLE t (n)").await;
    let mut first = database.open("").await;
    let mut second = database.open("").await;
    write(&mut first, (INSERT, 1)).await.unwrap();
    write(&mut second, (MANY, 1)).await.unwrap();
    let mut holder = database.open("").await;
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
    // Perhaps the first takes it along.
    poll_times(&mut one, 1);
    let began = now();
    while began.elapsed() < Duration::from_millis(300) && sqlite(&mut holder).waiting_writers() > 0
    {
        std::thread::yield_now();
    }
    drop(two);
    let quick = tokio::time::timeout(Duration::from_secs(3), one).await;
    assert!(
        quick.is_ok(),
        "a dropped write of another stands in its way"
    );
    quick.unwrap().unwrap();
}

#[tokio::test]
async fn a_task_of_inline_writes_still_yields() {
    let database = TestDatabase::with("CREATE TABLE t (n)").await;
    let mut db = open(&database.file.dsn()).await;
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
async fn in_a_shared_cache_an_inline_write_waits_for_a_reader() {
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
fn in_a_shared_cache_an_inline_read_waits_for_no_other_thread() {
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
async fn batched_writer_waits_for_a_program_only_its_own_timeout() {
    let database = TestDatabase::with(TABLE).await;
    let mut watching = database.open("").await;
    let (mut before, mut behind) = (database.open("").await, database.open("").await);
    let dsn = format!("{}?busy_timeout=700", database.file.dsn());
    let alike = template(&dsn);
    let (mut first, mut second) = (connect(&alike).await, connect(&alike).await);
    write(&mut first, (INSERT, 1)).await.unwrap();
    write(&mut second, (INSERT, 2)).await.unwrap();
    let outside = rusqlite::Connection::open(database.file.path()).unwrap();
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
async fn function_in_a_stream_does_not_count_for_the_next_statement() {
    let driver = Sqlite::new().function("f", 0, false, |_| Ok(1));
    let database = TestDatabase::with(TABLE).await;
    let mut db = open_with(&driver, &format!("{}?in_place=on", database.file.dsn())).await;
    sqlite(&mut db).time_nothing();
    db.start_stream(Request::new("SELECT f()", &[]))
        .await
        .unwrap();
    db.end_stream().await.unwrap();
    for _ in 0..10 {
        exec(&mut db, "SELECT max(n) FROM t").await;
    }
    assert!(sqlite(&mut db).in_place_runs() > 0);
}

#[tokio::test]
async fn file_replaced_while_being_opened_has_its_own_write_queue() {
    let database = TestDatabase::new();
    let old = rusqlite::Connection::open(database.file.path()).unwrap();
    old.execute_batch("PRAGMA journal_mode = delete; CREATE TABLE t (n); BEGIN EXCLUSIVE")
        .unwrap();
    let next = rusqlite::Connection::open(database.file.file("next.db")).unwrap();
    next.execute_batch("CREATE TABLE t (n)").unwrap();
    drop(next);
    let dsn = format!(
        "{}?busy_timeout=1d&journal_mode=delete",
        database.file.dsn()
    );
    let templ = template(&dsn);
    let mut opening = Box::pin(try_connect(&templ));
    assert_pending(&mut opening);
    // It stands before the lock of the old file.
    let began = now();
    while began.elapsed() < Duration::from_millis(200) {
        std::thread::yield_now();
    }
    std::fs::rename(database.file.file("next.db"), database.file.path()).unwrap();
    old.execute_batch("COMMIT").unwrap();
    let mut on_old = opening.await.unwrap();
    let mut on_new = open(&dsn).await;
    begin(&mut on_old).await;
    // Another file has no other writers.
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

#[tokio::test]
async fn an_unpolled_call_does_not_block_other_writers() {
    let database = TestDatabase::with(TABLE).await;
    let (mut holder, mut other) = (database.open("").await, database.open("").await);
    let mut idle = database.open("").await;
    write(&mut idle, (INSERT, 1)).await.unwrap();
    write(&mut other, (INSERT, 2)).await.unwrap();
    begin(&mut holder).await;
    // As in a `select!` that goes on with another branch.
    let params = [Param::Value(Value::Int(3))];
    let mut unpolled = idle.run(alone(INSERT, &params));
    assert_pending(&mut unpolled);
    until_waiting(&mut holder, 1);
    holder.commit().await.unwrap();
    let writing = tokio::time::timeout(Duration::from_secs(3), write(&mut other, (INSERT, 4)));
    let written = writing
        .await
        .expect("the turn went to one who does not take it");
    written.unwrap();
    unpolled.await.unwrap();
}

#[tokio::test]
async fn turn_of_a_dropped_call_passes_on_before_the_call_is_settled() {
    let database = TestDatabase::with(TABLE).await;
    let (mut holder, mut other) = (database.open("").await, database.open("").await);
    let mut dropped = database.open("").await;
    write(&mut dropped, (INSERT, 1)).await.unwrap();
    begin(&mut holder).await;
    let params = [Param::Value(Value::Int(3))];
    let mut call = dropped.run(alone(INSERT, &params));
    assert_pending(&mut call);
    until_waiting(&mut holder, 1);
    holder.commit().await.unwrap();
    drop(call);
    let writing = tokio::time::timeout(Duration::from_secs(3), write(&mut other, (INSERT, 4)));
    let written = writing.await.expect("the turn went to one who is gone");
    written.unwrap();
}

#[tokio::test]
async fn closing_a_handle_whose_writers_wait_lets_them_write_and_ends() {
    let database = TestDatabase::with(TABLE).await;
    let dsn = format!("{}?busy_timeout=1d", database.file.dsn());
    let db = cenote::Db::builder(&dsn).max(4).open().await.unwrap();
    let mut holder = database.open("").await;
    begin(&mut holder).await;
    let mut one = Box::pin(db.exec("INSERT INTO t (n) VALUES (?)", (1,)));
    let mut two = Box::pin(db.exec("INSERT INTO t (n) VALUES (?)", (2,)));
    until_queued(&mut holder, &mut one, &mut two).await;
    db.replace_all();
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

#[test]
fn runtime_that_ends_with_waiting_writers_leaves_an_empty_queue() {
    let database = block_on(TestDatabase::with(TABLE));
    let mut holder = block_on(database.open(""));
    block_on(begin(&mut holder));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let dsn = format!("{}?busy_timeout=1d", database.file.dsn());
    runtime.block_on(async {
        let db = cenote::Db::builder(&dsn).max(8).open().await.unwrap();
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
async fn batched_write_can_be_cancelled_while_the_batch_is_blocked() {
    let database = TestDatabase::with(TABLE).await;
    let mut watching = database.open("").await;
    let (mut before, mut behind) = (database.open("").await, database.open("").await);
    let (mut first, mut second) = (database.open("").await, database.open("").await);
    write(&mut first, (INSERT, 1)).await.unwrap();
    write(&mut second, (INSERT, 2)).await.unwrap();
    let outside = rusqlite::Connection::open(database.file.path()).unwrap();
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
    until_waiting_beside(&mut watching, 1, &mut one);
    drop(two);
    let settled = tokio::time::timeout(Duration::from_secs(3), second.settle()).await;
    outside.execute_batch("COMMIT").unwrap();
    one.await.unwrap();
    assert!(settled.is_ok(), "a dropped call goes on waiting");
}

#[tokio::test]
async fn a_commit_for_others_that_waits_for_a_reader_can_be_cancelled() {
    let options = "&journal_mode=delete";
    let database = TestDatabase::new();
    let mut holder = database.open(options).await;
    exec(&mut holder, TABLE).await;
    let mut first = database.open(options).await;
    let mut second = database.open(options).await;
    write(&mut first, (INSERT, 1)).await.unwrap();
    write(&mut second, (INSERT, 2)).await.unwrap();
    let reader = rusqlite::Connection::open(database.file.path()).unwrap();
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
    until_waiting_beside(&mut holder, 0, &mut one);
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
    let database = TestDatabase::with(schema).await;
    let mut db = open(&database.file.dsn()).await;
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
async fn reads_that_alternate_short_and_long_always_answer_correctly() {
    let database = TestDatabase::with(TABLE).await;
    let mut db = open(&database.file.dsn()).await;
    let count = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT +?1)
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
    let database = block_on(TestDatabase::with(TABLE));
    let mut db = block_on(database.open("&in_place=on"));
    block_on(async {
        for _ in 0..5000 {
            exec(&mut db, "SELECT max(n) FROM t").await;
        }
    });
    assert!(sqlite(&mut db).in_place_runs() > 4000);
}

#[tokio::test]
async fn a_write_whose_time_is_up_in_the_queue_is_never_written() {
    let database = TestDatabase::with(TABLE).await;
    let dsn = format!("{}?busy_timeout=1d", database.file.dsn());
    let db = cenote::Db::builder(&dsn)
        .max(4)
        .statement_timeout(Duration::from_millis(50))
        .open()
        .await
        .unwrap();
    let mut holder = database.open("").await;
    begin(&mut holder).await;
    let insert = "INSERT INTO t (n) VALUES (?)";
    let writes = [1, 2, 3].map(|n| db.exec(insert, (n,)));
    for write in writes {
        assert!(write.await.unwrap_err().is_timeout());
    }
    until_waiting(&mut holder, 0);
    holder.commit().await.unwrap();
    exec(&mut holder, "INSERT INTO t (n) VALUES (4)").await;
    assert_eq!(one_of(&mut holder).await, 1);
}
