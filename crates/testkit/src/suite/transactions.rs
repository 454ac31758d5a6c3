//! Promises about commit, rollback, isolation and savepoints.

use cenote::driver::{Begin, CommitOutcome, Isolation, Savepoint, Status};

use super::client::Client;
use super::status::failing;
use super::{Lack, Subject};

/// Committed rows are visible, to other connections too.
pub async fn a_commit_keeps(subject: &Subject) {
    let mut client = Client::first(subject).await;
    client.begin().await;
    client.add(1).await;
    client.commit().await;
    assert_eq!(client.ids().await, [1]);
    let mut other = Client::another(subject).await;
    assert_eq!(other.ids().await, [1]);
}

/// Rolled-back rows are gone.
pub async fn a_rollback_undoes(subject: &Subject) {
    let mut client = Client::first(subject).await;
    client.add(1).await;
    client.begin().await;
    client.add(2).await;
    client.must(&subject.sql.delete).await;
    client.roll_back().await;
    assert_eq!(client.ids().await, [1]);
    let mut other = Client::another(subject).await;
    assert_eq!(other.ids().await, [1]);
}

/// A rollback without a transaction does nothing.
pub async fn a_rollback_without_a_transaction_is_fine(subject: &Subject) {
    let mut client = Client::first(subject).await;
    client.add(1).await;
    client.roll_back().await;
    client.roll_back().await;
    assert_eq!(client.ids().await, [1]);
}

/// Other connections do not see uncommitted rows.
pub async fn uncommitted_rows_reach_no_other_connection(subject: &Subject) {
    if !subject.can(Lack::Isolation) {
        return;
    }
    let mut client = Client::first(subject).await;
    let mut other = Client::another(subject).await;
    client.begin().await;
    client.add(1).await;
    assert_eq!(client.ids().await, [1]);
    assert_eq!(other.ids().await, [0; 0]);
    client.commit().await;
    assert_eq!(other.ids().await, [1]);
}

/// Savepoints nest: rolling back to one undoes exactly what came after it.
pub async fn savepoints_nest(subject: &Subject) {
    if !subject.can(Lack::Savepoints) {
        return;
    }
    let mut client = Client::first(subject).await;
    client.begin().await;
    client.add(1).await;
    client.savepoint(Savepoint::Set("cenote_a")).await;
    client.add(2).await;
    client.savepoint(Savepoint::Set("cenote_b")).await;
    client.add(3).await;
    client.savepoint(Savepoint::RollBack("cenote_b")).await;
    assert_eq!(client.ids().await, [1, 2]);
    client.savepoint(Savepoint::Set("cenote_c")).await;
    client.add(4).await;
    client.savepoint(Savepoint::Release("cenote_c")).await;
    assert_eq!(client.ids().await, [1, 2, 4]);
    client.savepoint(Savepoint::RollBack("cenote_a")).await;
    assert_eq!(client.status(), Status::InTransaction);
    client.commit().await;
    assert_eq!(client.ids().await, [1]);
}

/// A savepoint that was rolled back is gone, and its name is free.
pub async fn a_savepoint_that_was_rolled_back_can_be_set_again(subject: &Subject) {
    if !subject.can(Lack::Savepoints) {
        return;
    }
    let mut client = Client::first(subject).await;
    client.begin().await;
    for id in 1..=2 {
        client.savepoint(Savepoint::Set("cenote_a")).await;
        client.add(id).await;
        client.savepoint(Savepoint::RollBack("cenote_a")).await;
    }
    client.savepoint(Savepoint::Set("cenote_a")).await;
    client.add(3).await;
    client.savepoint(Savepoint::Release("cenote_a")).await;
    client.commit().await;
    assert_eq!(client.ids().await, [3]);
}

/// Where an error fails the transaction, rolling back to an earlier savepoint makes it usable again.
pub async fn going_back_to_a_savepoint_heals_a_failed_transaction(subject: &Subject) {
    let Some(wrong) = failing(subject).filter(|_| subject.can(Lack::Savepoints)) else {
        return;
    };
    let mut client = Client::first(subject).await;
    client.begin().await;
    client.add(1).await;
    client.savepoint(Savepoint::Set("cenote_a")).await;
    client.add(2).await;
    client.must_not(wrong).await;
    client.savepoint(Savepoint::RollBack("cenote_a")).await;
    assert_eq!(client.status(), Status::InTransaction);
    client.add(3).await;
    client.commit().await;
    assert_eq!(client.ids().await, [1, 3]);
}

/// A transaction of every isolation level works, or its begin is refused and leaves nothing open.
pub async fn every_isolation_level_is_given_or_refused(subject: &Subject) {
    let mut client = Client::first(subject).await;
    let levels = [
        Isolation::ReadUncommitted,
        Isolation::ReadCommitted,
        Isolation::RepeatableRead,
        Isolation::Serializable,
    ];
    let mut expected = Vec::new();
    for (id, level) in (1..).zip(levels) {
        let mut begin = Begin::default();
        begin.isolation = Some(level);
        match client.connection.begin_with(&begin, None).await {
            Ok(_) => {
                assert_eq!(client.status(), Status::InTransaction, "{level:?}");
                client.add(id).await;
                client.commit().await;
                expected.push(id);
            }
            Err(error) => assert_eq!(client.status(), Status::Idle, "{level:?}: {error}"),
        }
        // It was for that transaction only.
        client.is_usable().await;
    }
    assert_eq!(client.ids().await, expected);
}

/// A read-only transaction reads, and refuses to write; the next one may write again.
pub async fn a_read_only_transaction_writes_nothing(subject: &Subject) {
    let mut client = Client::first(subject).await;
    client.add(1).await;
    let mut begin = Begin::default();
    begin.read_only = true;
    let begun = client.connection.begin_with(&begin, None).await;
    begun.expect("a read-only transaction can be begun");
    assert_eq!(client.ids().await, [1]);
    if subject.can(Lack::ReadOnly) {
        let refused = client.insert(2).await;
        refused.expect_err("nothing can be written in it");
        client.roll_back().await;
    } else {
        let outcome = client.connection.commit().await;
        assert_eq!(outcome.ok(), Some(CommitOutcome::Committed));
    }
    client.add(3).await;
    assert_eq!(client.ids().await, [1, 3]);
}

/// Closing a connection rolls its transaction back.
pub async fn closing_a_connection_rolls_back(subject: &Subject) {
    let mut client = Client::first(subject).await;
    let mut leaver = Client::another(subject).await;
    leaver.begin().await;
    leaver.add(1).await;
    leaver.close().await;
    client.add(1).await;
    assert_eq!(client.ids().await, [1]);
}

/// Dropping a connection rolls its transaction back and frees its locks.
pub async fn dropping_a_connection_rolls_back(subject: &Subject) {
    let mut client = Client::first(subject).await;
    let mut leaver = Client::another(subject).await;
    leaver.begin().await;
    leaver.add(1).await;
    drop(leaver);
    client.add(1).await;
    assert_eq!(client.ids().await, [1]);
}
