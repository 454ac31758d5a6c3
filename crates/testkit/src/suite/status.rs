//! Promises about the transaction status.

use cenote::Kind;
use cenote::driver::{Begin, CommitOutcome, Request, Status};

use super::client::{Client, row};
use super::{Lack, Subject};

/// A new connection has no transaction and answers a query.
pub async fn a_new_connection_is_idle_and_whole(subject: &Subject) {
    let mut client = Client::another(subject).await;
    assert_eq!(client.status(), Status::Idle);
    client.is_usable().await;
    assert_eq!(client.status(), Status::Idle);
}

/// The status is what the server last reported: in a transaction from its begin to its end.
pub async fn the_status_follows_begin_commit_and_rollback(subject: &Subject) {
    let mut client = Client::first(subject).await;
    client.begin().await;
    client.add(1).await;
    assert_eq!(client.status(), Status::InTransaction);
    client.commit().await;
    client.begin().await;
    client.roll_back().await;
    client.add(2).await;
    assert_eq!(client.status(), Status::Idle);
}

/// A BEGIN, COMMIT or ROLLBACK that is the text of a statement changes the status as well. A driver
/// that cannot see this reports an unknown status and a changed session.
pub async fn transaction_control_in_a_text_is_seen(subject: &Subject) {
    let Some([begin, commit, rollback]) = &subject.sql.control else {
        return;
    };
    let mut client = Client::first(subject).await;
    client.must(begin).await;
    if !subject.can(Lack::Control) {
        assert_eq!(client.status(), Status::Unknown, "after {begin}");
        assert!(client.connection.session_changed(), "after {begin}");
        client.must(rollback).await;
        assert_eq!(client.status(), Status::Unknown, "after {rollback}");
        return;
    }
    assert_eq!(client.status(), Status::InTransaction, "after {begin}");
    client.add(1).await;
    client.must(commit).await;
    assert_eq!(client.status(), Status::Idle, "after {commit}");
    client.must(begin).await;
    client.add(2).await;
    client.must(rollback).await;
    assert_eq!(client.status(), Status::Idle, "after {rollback}");
    assert_eq!(client.ids().await, [1]);
}

/// A BEGIN can be sent with the first statement, and returns the outcome of that statement.
pub async fn a_transaction_begins_with_its_first_statement(subject: &Subject) {
    let mut client = Client::first(subject).await;
    let insert = client.text(&subject.sql.insert).into_owned();
    let params = row(1);
    let first = Some(Request::new(&insert, &params));
    let done = client.connection.begin_with(&Begin::default(), first).await;
    let done = done.expect("a transaction can be begun with a statement");
    assert_eq!(done.rows_affected, 1, "the outcome is the statement's");
    assert_eq!(client.status(), Status::InTransaction);
    client.roll_back().await;
    assert_eq!(client.ids().await, [0; 0]);
}

/// If the first statement fails the transaction has begun, and the status says so.
pub async fn a_begin_whose_first_statement_fails_leaves_the_status_known(subject: &Subject) {
    let Some(wrong) = failing(subject) else {
        return;
    };
    let mut client = Client::first(subject).await;
    let first = Some(Request::new(wrong, &[]));
    let done = client.connection.begin_with(&Begin::default(), first).await;
    let error = done.expect_err("the first statement fails");
    assert_eq!(error.kind(), Kind::Database, "{error}");
    let status = client.status();
    assert!(
        matches!(status, Status::InTransaction | Status::Failed),
        "the transaction has begun, and the status is {status:?}"
    );
    client.roll_back().await;
    client.is_usable().await;
}

/// After an error the status is known: the transaction is still open, or it has failed. A failed one can only be
/// rolled back, and a commit of it reports the rollback.
pub async fn a_failed_statement_leaves_the_status_known(subject: &Subject) {
    let Some(wrong) = failing(subject) else {
        return;
    };
    let mut client = Client::first(subject).await;
    client.begin().await;
    client.add(1).await;
    client.must_not(wrong).await;
    match client.status() {
        Status::InTransaction => {
            client.add(2).await;
            client.commit().await;
            assert_eq!(client.ids().await, [1, 2]);
        }
        Status::Failed => {
            client.must_not(&subject.sql.seven).await;
            let outcome = client.connection.commit().await;
            let outcome = outcome.expect("a failed transaction can be ended");
            assert_eq!(outcome, CommitOutcome::RolledBack);
            assert_eq!(client.status(), Status::Idle);
            assert_eq!(client.ids().await, [0; 0]);
        }
        other => panic!("after an error in a transaction the status is {other:?}"),
    }
    client.must_not(wrong).await;
    assert_eq!(client.status(), Status::Idle);
    client.is_usable().await;
}

/// A text that fails.
pub(super) fn failing(subject: &Subject) -> Option<&str> {
    let sql = &subject.sql;
    let failing = sql.undefined_table.as_ref().or(sql.syntax_error.as_ref());
    failing.map(String::as_str)
}
