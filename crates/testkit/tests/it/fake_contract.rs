//! How the fake watches over the contract of drivers: what becomes of dropped calls, and what it does not
//! let pass.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cenote::driver::{Begin, ConnectSettings, Credentials, Driver, Dsn, Options, Request, Status};
use cenote_testkit::poll::{Hand, cancel_after, now, poll_once};
use cenote_testkit::{DroppedCalls, Fake};

use crate::fake_support::{connect, run};

#[test]
fn a_dropped_call_was_executed_or_not_as_the_test_says() {
    let fake = Fake::new();
    fake.poll_pending(1);
    for (dropped, rows) in [(DroppedCalls::NotExecuted, 0), (DroppedCalls::Executed, 1)] {
        let dsn = Dsn::parse("fake:").unwrap();
        let template = fake.driver().template(&dsn, &Options::new()).unwrap();
        let settings = ConnectSettings::new(0);
        let connect = template.connect(Credentials::default(), &settings);
        let mut one = Hand::new(connect).finish().unwrap();
        fake.dropped_calls(dropped);
        let insert = one.run(Request::new("INSERT INTO t VALUES (1)", &[]));
        assert!(cancel_after(1, insert).is_none());
        assert_eq!(one.status(), Status::Unknown);
        assert_eq!(fake.rows("t").len(), rows);
        Hand::new(one.settle()).finish().unwrap();
        assert_eq!(one.status(), Status::Idle);
        Hand::new(one.ping()).finish().unwrap();
    }
}

#[test]
fn a_call_that_was_never_polled_has_left_nothing_to_settle() {
    let fake = Fake::new();
    let mut one = connect(&fake);
    drop(one.run(Request::new("INSERT INTO t VALUES (1)", &[])));
    assert_eq!(one.status(), Status::Idle);
    now(one.ping()).unwrap();
    assert_eq!(fake.log(), ["connect 1", "ping 1"]);
}

#[test]
fn settling_reports_the_outcome_of_a_dropped_begin_or_commit() {
    let fake = Fake::new();
    fake.dropped_calls(DroppedCalls::Executed);
    let mut one = connect(&fake);
    fake.hold("begin");
    assert!(cancel_after(1, one.begin_with(&Begin::default(), None)).is_none());
    assert_eq!(one.status(), Status::Unknown);
    now(one.settle()).unwrap();
    assert_eq!(one.status(), Status::InTransaction);
    fake.hold("commit");
    assert!(cancel_after(1, one.commit()).is_none());
    now(one.settle()).unwrap();
    assert_eq!(one.status(), Status::Idle);
}

#[test]
fn a_stream_that_was_dropped_while_it_started_is_settled_away() {
    let fake = Fake::new();
    fake.dropped_calls(DroppedCalls::Executed);
    let mut one = connect(&fake);
    fake.hold("stream");
    let start = one.start_stream(Request::new("SELECT 1", &[]));
    assert!(cancel_after(1, start).is_none());
    now(one.settle()).unwrap();
    run(&mut one, "SELECT 1").unwrap();
}

/// What the fake says to something that the contract does not allow. The panic must be
/// remembered as well.
#[track_caller]
fn violation(fake: &Fake, action: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(action)).unwrap_err();
    let said = panic.downcast_ref::<String>().unwrap();
    let remembered = fake.take_violations();
    assert_eq!(remembered.len(), 1);
    assert!(said.ends_with(&remembered[0]), "{said}");
    remembered.into_iter().next().unwrap()
}

#[test]
fn call_before_settling_a_dropped_one_breaks_the_contract() {
    let fake = Fake::new();
    let mut one = connect(&fake);
    fake.hold("SELECT");
    assert!(cancel_after(1, one.run(Request::new("SELECT 1", &[]))).is_none());
    let said = violation(&fake, || drop(now(one.ping())));
    assert_eq!(
        said,
        "`ping 1` before a settle, though `run 1 SELECT 1` was dropped before it was answered"
    );
    now(one.settle()).unwrap();
    now(one.ping()).unwrap();
}

#[test]
fn a_settle_that_was_dropped_has_to_be_done_again() {
    let fake = Fake::new();
    let mut one = connect(&fake);
    fake.hold("ping");
    assert!(cancel_after(1, one.ping()).is_none());
    fake.hold("settle");
    assert!(cancel_after(1, one.settle()).is_none());
    violation(&fake, || drop(now(one.ping())));
    now(one.settle()).unwrap();
    now(one.ping()).unwrap();
}

#[test]
fn a_connection_may_be_closed_or_dropped_whatever_is_under_way() {
    let fake = Fake::new();
    for n in 1..=2 {
        let mut one = connect(&fake);
        run(&mut one, "BEGIN; INSERT INTO t VALUES (1)").unwrap();
        fake.hold("ping");
        assert!(cancel_after(1, one.ping()).is_none());
        match n {
            1 => now(one.close()).unwrap(),
            _ => drop(one),
        }
    }
    assert_eq!((fake.connections(), fake.rows("t")), (vec![], vec![]));
    let log = fake.log();
    assert!(log.contains(&"close 1".to_owned()) && log.contains(&"drop 2".to_owned()));
}

#[test]
fn two_calls_at_once_break_the_contract() {
    let fake = Fake::new();
    let mut one = connect(&fake);
    fake.hold("ping");
    let mut ping = one.ping();
    assert!(poll_once(ping.as_mut()).is_pending());
    // Forgotten, it is neither answered nor dropped.
    std::mem::forget(ping);
    let said = violation(&fake, || drop(now(one.settle())));
    assert_eq!(said, "`settle 1` while `ping 1` is still running");
}

#[test]
fn a_call_beside_an_open_stream_breaks_the_contract() {
    let fake = Fake::new();
    let mut one = connect(&fake);
    now(one.start_stream(Request::new("SELECT 1", &[]))).unwrap();
    let said = violation(&fake, || drop(now(one.ping())));
    assert_eq!(said, "`ping 1` while a stream is open");
}

#[test]
fn a_reset_in_a_transaction_breaks_the_contract() {
    let fake = Fake::new();
    let mut one = connect(&fake);
    run(&mut one, "BEGIN").unwrap();
    let said = violation(&fake, || drop(now(one.reset())));
    assert_eq!(said, "`reset 1` in a transaction");
}

#[test]
fn swallowed_violation_is_reported_when_the_last_handle_drops() {
    let fake = Fake::new();
    let mut one = connect(&fake);
    run(&mut one, "BEGIN").unwrap();
    let swallowed = catch_unwind(AssertUnwindSafe(|| drop(now(one.reset()))));
    assert!(swallowed.is_err());
    let twin = fake.clone();
    drop(fake);
    assert_eq!(twin.violations(), ["`reset 1` in a transaction"]);
    let panic = catch_unwind(AssertUnwindSafe(|| drop(twin))).unwrap_err();
    let said = panic.downcast_ref::<String>().unwrap();
    assert!(said.contains("`reset 1` in a transaction"), "{said}");
}
