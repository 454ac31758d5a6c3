//! What the fake database promises to tests, seen through the contract of drivers.

use std::future::poll_fn;
use std::time::Duration;

use cenote::driver::{
    Begin, CommitOutcome, ConnectSettings, Connection, Credentials, Driver, Dsn, Isolation,
    Options, Param, Request, Reset, Savepoint, Status, Value,
};
use cenote::{Kind, Violation};
use cenote_testkit::poll::{Hand, cancel_after, now};
use cenote_testkit::{Break, DroppedCalls, Fake, FakeConnection};

use crate::fake_support::{connect, run, try_connect};

fn values(on: &mut Box<dyn Connection>, sql: &str) -> Vec<i64> {
    let rows = run(on, sql).unwrap().rows.unwrap();
    rows.into_rows().map(|row| row.get(0).unwrap()).collect()
}

fn ints(given: &[i64]) -> Vec<Param<'static>> {
    given.iter().map(|n| Param::Value(Value::Int(*n))).collect()
}

#[test]
fn the_log_lists_everything_that_reached_the_server() {
    let fake = Fake::new();
    let mut one = connect(&fake);
    let mut serializable = Begin::default();
    serializable.isolation = Some(Isolation::Serializable);
    serializable.read_only = true;
    now(one.begin_with(&serializable, Some(Request::new("SELECT 1", &[])))).unwrap();
    now(one.savepoint(Savepoint::Set("a"))).unwrap();
    now(one.savepoint(Savepoint::Release("a"))).unwrap();
    now(one.rollback()).unwrap();
    now(one.prepare("SELECT ?")).unwrap();
    now(one.run_batch("INSERT INTO t VALUES (?)", &[ints(&[1]), ints(&[2])])).unwrap();
    now(one.start_stream(Request::new("SELECT * FROM t", &[]))).unwrap();
    now(poll_fn(|cx| one.poll_batch(cx))).unwrap();
    now(one.end_stream()).unwrap();
    now(one.set("zone", &Value::from("UTC"))).unwrap();
    now(one.settle()).unwrap();
    now(one.ping()).unwrap();
    now(one.reset()).unwrap();
    now(one.close()).unwrap();
    drop(connect(&fake));
    assert_eq!(
        fake.take_log(),
        [
            "connect 1",
            "begin 1 serializable read only with SELECT 1",
            "savepoint 1 set a",
            "savepoint 1 release a",
            "rollback 1",
            "prepare 1 SELECT ?",
            "run_batch 1 INSERT INTO t VALUES (?) x2",
            "stream 1 SELECT * FROM t",
            "batch 1",
            "end_stream 1",
            "set 1 zone=UTC",
            "settle 1",
            "ping 1",
            "reset 1",
            "close 1",
            "connect 2",
            "drop 2",
        ]
    );
    assert_eq!(fake.log(), [""; 0]);
}

#[test]
fn a_connection_sees_its_own_rows_and_those_that_are_committed() {
    let fake = Fake::new();
    let (mut one, mut two) = (connect(&fake), connect(&fake));
    run(&mut one, "INSERT INTO t VALUES (1)").unwrap();
    now(one.begin_with(&Begin::default(), None)).unwrap();
    run(&mut one, "INSERT INTO t VALUES (2)").unwrap();
    assert_eq!(values(&mut one, "SELECT * FROM t"), [1, 2]);
    assert_eq!(values(&mut two, "SELECT * FROM t"), [1]);
    assert_eq!(fake.open_transactions(), [1]);
    assert_eq!(now(one.commit()).unwrap(), CommitOutcome::Committed);
    assert_eq!(values(&mut two, "SELECT COUNT(*) FROM t"), [2]);
    assert_eq!(fake.rows("t"), [[Value::Int(1)], [Value::Int(2)]]);
}

#[test]
fn transaction_control_in_sql_changes_the_status_as_on_a_server() {
    let fake = Fake::new();
    let mut one = connect(&fake);
    for (sql, status) in [
        ("BEGIN", Status::InTransaction),
        (
            "INSERT INTO t VALUES (1); SAVEPOINT a",
            Status::InTransaction,
        ),
        ("INSERT INTO t VALUES (2)", Status::InTransaction),
        ("ROLLBACK TO a", Status::InTransaction),
        ("RELEASE a; COMMIT", Status::Idle),
        ("START TRANSACTION; DELETE FROM t; ROLLBACK", Status::Idle),
    ] {
        run(&mut one, sql).unwrap();
        assert_eq!(one.status(), status, "{sql}");
    }
    assert_eq!(values(&mut one, "SELECT * FROM t"), [1]);
}

#[test]
fn a_failure_can_be_ordered_for_a_text() {
    let fake = Fake::new();
    let mut one = connect(&fake);
    let error = run(&mut one, "FAIL 40001").unwrap_err();
    assert_eq!(error.kind(), Kind::Database);
    assert_eq!(error.sql_state(), Some("40001"));
    assert_eq!(error.violation(), Some(Violation::Serialization));
    assert_eq!(one.status(), Status::Idle);
}

#[test]
fn an_error_fails_the_transaction_only_where_configured() {
    let fake = Fake::new();
    let mut one = connect(&fake);
    run(&mut one, "BEGIN").unwrap();
    run(&mut one, "FAIL").unwrap_err();
    assert_eq!(one.status(), Status::InTransaction);
    fake.errors_fail_transactions(true);
    now(one.savepoint(Savepoint::Set("a"))).unwrap();
    run(&mut one, "FAIL").unwrap_err();
    assert_eq!(one.status(), Status::Failed);
    let refused = run(&mut one, "SELECT 1").unwrap_err();
    assert_eq!(refused.sql_state(), Some("25P02"));
    now(one.savepoint(Savepoint::RollBack("a"))).unwrap();
    assert_eq!(one.status(), Status::InTransaction);
    run(&mut one, "FAIL").unwrap_err();
    assert_eq!(now(one.commit()).unwrap(), CommitOutcome::RolledBack);
    assert_eq!(one.status(), Status::Idle);
}

#[test]
fn a_tables_unique_and_not_null_columns_are_enforced() {
    let fake = Fake::new();
    let mut one = connect(&fake);
    run(
        &mut one,
        "CREATE TABLE t (id INT PRIMARY KEY, name TEXT NOT NULL)",
    )
    .unwrap();
    let done = run(&mut one, "INSERT INTO t VALUES (1, 'a'), (2, 'b')").unwrap();
    assert_eq!((done.rows_affected, done.last_insert_id), (2, Some(2)));
    let twice = run(&mut one, "INSERT INTO t VALUES (3, 'c'), (1, 'd')").unwrap_err();
    assert!(twice.is_unique_violation());
    assert_eq!(twice.constraint(), Some("t.id"));
    let null = run(&mut one, "INSERT INTO t VALUES (3, NULL)").unwrap_err();
    assert!(null.is_not_null_violation());
    // Neither of the rows is there.
    let rows = run(&mut one, "SELECT name, id FROM t")
        .unwrap()
        .rows
        .unwrap();
    let rows: Vec<(String, i64)> = rows
        .into_rows()
        .map(|row| (row.get("name").unwrap(), row.get("id").unwrap()))
        .collect();
    assert_eq!(rows, [("a".to_owned(), 1), ("b".to_owned(), 2)]);
    let unknown = run(&mut one, "SELECT size FROM t").unwrap_err();
    assert_eq!(unknown.violation(), Some(Violation::Undefined));
}

#[test]
fn calls_of_every_kind_can_be_held_and_are_seen_to_be() {
    let fake = Fake::new();
    fake.hold("connect");
    let dsn = Dsn::parse("fake:").unwrap();
    let template = fake.driver().template(&dsn, &Options::new()).unwrap();
    let settings = ConnectSettings::new(0);
    let mut connecting = Hand::new(template.connect(Credentials::default(), &settings));
    connecting.waits();
    assert_eq!(fake.held(), ["connect 1"]);
    assert_eq!(fake.connections(), [0; 0]);
    assert_eq!(fake.release(), 1);
    assert!(connecting.is_woken());
    let mut one = connecting.done().unwrap();

    /// Holds a call, sees it wait, and lets it go.
    macro_rules! held {
        ($line:literal, $call:expr) => {{
            fake.hold($line);
            let mut hand = Hand::new($call);
            hand.waits();
            hand.waits();
            assert_eq!(fake.held(), [$line]);
            assert_eq!(now(fake.until_held()), $line);
            assert_eq!(fake.release(), 1);
            assert!(hand.is_woken(), $line);
            hand.done().unwrap()
        }};
    }
    held!("run 1 SELECT 1", one.run(Request::new("SELECT 1", &[])));
    let begin = Begin::default();
    held!("begin 1", one.begin_with(&begin, None));
    held!("savepoint 1 set a", one.savepoint(Savepoint::Set("a")));
    held!("commit 1", one.commit());
    held!("rollback 1", one.rollback());
    held!("prepare 1 SELECT 1", one.prepare("SELECT 1"));
    let sets = [Vec::new()];
    held!(
        "run_batch 1 DELETE FROM t x1",
        one.run_batch("DELETE FROM t", &sets)
    );
    held!(
        "stream 1 SELECT 1",
        one.start_stream(Request::new("SELECT 1", &[]))
    );
    held!("batch 1", poll_fn(|cx| one.poll_batch(cx)));
    held!("end_stream 1", one.end_stream());
    held!("set 1 a=1", one.set("a", &Value::Int(1)));
    held!("settle 1", one.settle());
    held!("ping 1", one.ping());
    held!("reset 1", one.reset());
    held!("close 1", one.close());
}

#[test]
fn held_call_is_caught_once_and_only_if_its_line_matches() {
    let fake = Fake::new();
    let mut one = connect(&fake);
    fake.hold("INSERT");
    run(&mut one, "SELECT 1").unwrap();
    let mut hand = Hand::new(one.run(Request::new("INSERT INTO t VALUES (1)", &[])));
    hand.waits();
    assert_eq!(fake.rows("t"), [[]; 0]);
    fake.release();
    hand.done().unwrap();
    drop(hand);
    run(&mut one, "INSERT INTO t VALUES (2)").unwrap();
    assert_eq!(fake.rows("t").len(), 2);
}

#[test]
fn waiting_for_a_held_call_ends_when_it_is_held() {
    let fake = Fake::new();
    let mut one = connect(&fake);
    fake.hold("ping");
    let watching = fake.clone();
    let mut watcher = Hand::new(watching.until_held());
    watcher.waits();
    let mut ping = Hand::new(one.ping());
    ping.waits();
    assert!(watcher.is_woken());
    assert_eq!(watcher.done(), "ping 1");
    drop(ping);
    assert_eq!(fake.held(), [""; 0]);
}

#[test]
fn a_connection_breaks_before_or_after_the_server_has_done_it() {
    let fake = Fake::new();
    for (when, kept) in [(Break::BeforeExecution, 0), (Break::AfterExecution, 1)] {
        let mut one = connect(&fake);
        fake.break_as("INSERT", when);
        let error = run(&mut one, "INSERT INTO t VALUES (1)").unwrap_err();
        assert_eq!(error.kind(), Kind::ConnectionLost);
        assert!(one.is_broken());
        assert_eq!(one.status(), Status::Unknown);
        assert_eq!(fake.rows("t").len(), kept);
        // For ever.
        assert!(run(&mut one, "SELECT 1").unwrap_err().is_connection_lost());
        now(one.close()).unwrap();
    }
    assert_eq!(fake.connections(), [0; 0]);
}

#[test]
fn a_call_that_was_never_sent_is_not_in_the_log() {
    let fake = Fake::new();
    let mut one = connect(&fake);
    fake.break_as("SELECT", Break::NeverSent);
    let error = run(&mut one, "SELECT 1").unwrap_err();
    assert_eq!(error.kind(), Kind::ConnectionLost);
    assert!(one.is_broken());
    assert_eq!(fake.take_log(), ["connect 1"]);
}

#[test]
fn what_was_open_on_a_broken_connection_is_rolled_back() {
    let fake = Fake::new();
    let mut one = connect(&fake);
    run(&mut one, "BEGIN; INSERT INTO t VALUES (1)").unwrap();
    fake.break_on("ping");
    now(one.ping()).unwrap_err();
    assert_eq!((fake.open_transactions(), fake.rows("t")), (vec![], vec![]));
}

#[test]
fn killed_connection_is_noticed_when_checked_or_used() {
    let fake = Fake::new();
    let (mut one, mut two) = (connect(&fake), connect(&fake));
    run(&mut one, "BEGIN").unwrap();
    fake.kill(1);
    fake.kill(2);
    assert_eq!(one.status(), Status::InTransaction);
    assert!(!one.is_broken());
    assert_eq!(fake.open_transactions(), [0; 0]);
    one.probe(Duration::ZERO);
    assert!(one.is_broken());
    assert!(now(two.ping()).unwrap_err().is_connection_lost());
    assert!(two.is_broken());
}

#[test]
fn a_connection_that_is_killed_under_a_call_has_not_executed_it() {
    let fake = Fake::new();
    let mut one = connect(&fake);
    fake.hold("INSERT");
    let mut hand = Hand::new(one.run(Request::new("INSERT INTO t VALUES (1)", &[])));
    hand.waits();
    fake.kill(1);
    fake.release();
    assert!(hand.done().unwrap_err().is_connection_lost());
    drop(hand);
    assert!(one.is_broken());
    assert_eq!(fake.rows("t"), [[]; 0]);
}

#[test]
fn connects_are_refused_as_often_as_configured_and_then_lost() {
    let fake = Fake::new();
    fake.refuse_connect(2);
    for _ in 0..2 {
        assert_eq!(try_connect(&fake).unwrap_err().kind(), Kind::Connect);
    }
    connect(&fake);
    for when in [
        Break::BeforeExecution,
        Break::AfterExecution,
        Break::NeverSent,
    ] {
        fake.break_as("connect", when);
        assert_eq!(try_connect(&fake).unwrap_err().kind(), Kind::Connect);
    }
    assert_eq!(fake.connections(), [0; 0]);
    assert_eq!(
        fake.log()[..4],
        ["connect 1", "refuse 1", "connect 2", "refuse 2"]
    );
}

#[test]
fn a_connect_that_is_dropped_leaves_nothing_open() {
    let fake = Fake::new();
    fake.dropped_calls(DroppedCalls::Executed);
    fake.poll_pending(2);
    let dsn = Dsn::parse("fake:").unwrap();
    let template = fake.driver().template(&dsn, &Options::new()).unwrap();
    let settings = ConnectSettings::new(0);
    for polls in 0..3 {
        let connect = template.connect(Credentials::default(), &settings);
        assert!(cancel_after(polls, connect).is_none());
        assert_eq!(fake.connections(), [0; 0]);
    }
    let connect = template.connect(Credentials::default(), &settings);
    assert!(cancel_after(3, connect).is_some());
}

#[test]
fn the_credentials_of_every_connect_are_known() {
    let fake = Fake::new();
    connect(&fake);
    assert_eq!(fake.credentials(1), Some(Credentials::new("ada", "secret")));
    assert_eq!(fake.credentials(2), None);
}

#[test]
fn a_commit_can_be_answered_with_a_rollback() {
    let fake = Fake::new();
    let mut one = connect(&fake);
    run(&mut one, "BEGIN; INSERT INTO t VALUES (1)").unwrap();
    fake.commit_answers_rollback();
    assert_eq!(now(one.commit()).unwrap(), CommitOutcome::RolledBack);
    assert_eq!((one.status(), fake.rows("t")), (Status::Idle, vec![]));
}

#[test]
fn the_server_can_end_a_transaction_behind_the_clients_back() {
    let fake = Fake::new();
    let mut one = connect(&fake);
    run(&mut one, "BEGIN; INSERT INTO t VALUES (1)").unwrap();
    fake.end_transaction_behind(1);
    assert_eq!(one.status(), Status::Idle);
    assert_eq!(fake.rows("t"), [[]; 0]);
}

#[test]
fn any_call_can_be_answered_with_an_error_instead_of_being_done() {
    let fake = Fake::new();
    let mut one = connect(&fake);
    run(&mut one, "BEGIN").unwrap();
    fake.fail_on("commit", "23503");
    let error = now(one.commit()).unwrap_err();
    assert!(error.is_foreign_key_violation());
    assert_eq!(one.status(), Status::InTransaction);
    fake.fail_on("rollback", "57014");
    now(one.rollback()).unwrap_err();
    now(one.rollback()).unwrap();
    assert_eq!(one.status(), Status::Idle);
}

#[test]
fn session_changes_and_warnings_come_with_their_call() {
    let fake = Fake::new();
    let mut one = connect(&fake);
    fake.touch_session_on("SELECT 1");
    fake.warn_on("SELECT 1", 3);
    run(&mut one, "SELECT 1").unwrap();
    assert_eq!((one.session_changed(), one.warnings()), (true, 3));
    run(&mut one, "SELECT 1").unwrap();
    assert_eq!((one.session_changed(), one.warnings()), (false, 0));
}

#[test]
fn a_reset_and_a_begin_are_what_the_test_says() {
    let fake = Fake::new();
    let mut one = connect(&fake);
    assert_eq!(now(one.reset()).unwrap(), Reset::Done);
    fake.reset_replaces(true);
    assert_eq!(now(one.reset()).unwrap(), Reset::Replace);
    assert!(!one.begins_lazily());
    fake.lazy_begin(true);
    assert!(one.begins_lazily());
}

#[test]
fn every_call_is_pending_as_often_as_was_said_and_wakes_itself() {
    let fake = Fake::new();
    let mut one = connect(&fake);
    fake.poll_pending(3);
    let mut hand = Hand::new(one.ping());
    for wakes in 1..=3 {
        hand.waits();
        assert_eq!(hand.wakes(), wakes);
    }
    hand.done().unwrap();
    drop(hand);
    let mut start = Hand::new(one.start_stream(Request::new("SELECT 1", &[])));
    start.finish().unwrap();
    drop(start);
    let mut batch = Hand::new(poll_fn(|cx| one.poll_batch(cx)));
    assert!(batch.finish().unwrap().is_some());
    assert_eq!(batch.wakes(), 3);
}

#[test]
fn stream_yields_batches_and_can_be_ended_while_it_waits() {
    let fake = Fake::new();
    let mut one = connect(&fake);
    run(&mut one, "INSERT INTO t VALUES (1), (2), (3), (4), (5)").unwrap();
    fake.batch_rows(3);
    let columns = now(one.start_stream(Request::new("SELECT n FROM t", &[]))).unwrap();
    assert_eq!(columns.as_slice()[0].name, "n");
    let mut sizes = Vec::new();
    while let Some(batch) = now(poll_fn(|cx| one.poll_batch(cx))).unwrap() {
        sizes.push(batch.len());
    }
    assert_eq!(sizes, [3, 2]);

    now(one.start_stream(Request::new("SELECT n FROM t", &[]))).unwrap();
    fake.hold("batch");
    Hand::new(poll_fn(|cx| one.poll_batch(cx))).waits();
    assert_eq!(fake.held(), ["batch 1"]);
    now(one.end_stream()).unwrap();
    assert_eq!(fake.held(), [""; 0]);
    run(&mut one, "SELECT 1").unwrap();
}

#[test]
fn a_stream_is_over_after_an_error() {
    let fake = Fake::new();
    let mut one = connect(&fake);
    now(one.start_stream(Request::new("SELECT 1", &[]))).unwrap();
    fake.fail_on("batch", "57014");
    now(poll_fn(|cx| one.poll_batch(cx))).unwrap_err();
    run(&mut one, "SELECT 1").unwrap();
}

#[test]
fn the_wrong_number_of_parameters_is_refused() {
    let fake = Fake::new();
    let mut one = connect(&fake);
    for given in [&ints(&[])[..], &ints(&[1, 2])] {
        let error = now(one.run(Request::new("INSERT INTO t VALUES (?)", given))).unwrap_err();
        assert_eq!(error.kind(), Kind::Parameters);
    }
    assert_eq!(fake.rows("t"), [[]; 0]);
}

#[test]
fn an_option_that_it_does_not_know_is_an_error_that_names_it() {
    let fake = Fake::new();
    let dsn = Dsn::parse("fake:speed=9").unwrap();
    let error = fake.driver().template(&dsn, &Options::new()).unwrap_err();
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.message().contains("speed"), "{error}");
}

#[test]
fn a_connection_returns_its_number() {
    let fake = Fake::new();
    connect(&fake);
    let mut two = connect(&fake);
    let own = two.as_any().downcast_mut::<FakeConnection>().unwrap();
    assert_eq!(own.number(), 2);
}
