//! Promises about futures that are dropped at any await: after a settle the connection is usable,
//! its status is known, and later calls see nothing of the dropped call but its effect.

use cenote::driver::{Begin, Request, Savepoint, Status};

use super::client::{Client, at_every_poll, is_answered, row};
use super::status::failing;
use super::{Lack, Subject};
use crate::poll::{Hand, drop_after, yield_now};

/// Keys that differ with the number of polls.
fn key(polls: usize) -> i64 {
    i64::try_from(polls).expect("nobody polls so often") + 1
}

/// A dropped statement has run entirely or not at all, and the connection stays usable.
pub async fn a_dropped_run_leaves_nothing_but_its_effect(subject: &Subject) {
    let mut client = Client::first(subject).await;
    let insert = client.text(&subject.sql.insert).into_owned();
    let mut sure = Vec::new();
    at_every_poll(async |polls| {
        let params = row(key(polls));
        let run = client.connection.run(Request::new(&insert, &params));
        let answered = is_answered(polls, run).await;
        if !answered {
            client.settle().await;
        }
        assert_eq!(client.status(), Status::Idle, "no transaction was begun");
        client.is_usable().await;
        let ids = client.ids().await;
        let is_there = ids.contains(&key(polls));
        assert!(is_there || !answered, "what was answered was done");
        sure.extend(is_there.then_some(key(polls)));
        assert_eq!(ids, sure, "nothing else has changed");
        answered
    })
    .await;
}

/// No later call sees the rows of a dropped query.
pub async fn a_dropped_query_leaves_no_rows(subject: &Subject) {
    let mut client = Client::first(subject).await;
    client.fill(1..=50).await;
    at_every_poll(async |polls| {
        let run = client
            .connection
            .run(Request::new(&subject.sql.select, &[]));
        let answered = is_answered(polls, run).await;
        if !answered {
            client.settle().await;
        }
        assert_eq!(client.status(), Status::Idle);
        client.is_usable().await;
        answered
    })
    .await;
}

/// A transaction in which a statement was dropped can be rolled back completely.
pub async fn a_dropped_run_in_a_transaction_can_be_rolled_back(subject: &Subject) {
    let mut client = Client::first(subject).await;
    let insert = client.text(&subject.sql.insert).into_owned();
    at_every_poll(async |polls| {
        client.begin().await;
        client.add(1).await;
        let params = row(2);
        let run = client.connection.run(Request::new(&insert, &params));
        let answered = is_answered(polls, run).await;
        if !answered {
            client.settle().await;
        }
        client.roll_back().await;
        client.is_usable().await;
        assert_eq!(client.ids().await, [0; 0]);
        answered
    })
    .await;
}

/// The next call does not return the error of a dropped call.
pub async fn the_error_of_a_dropped_call_is_discarded(subject: &Subject) {
    let Some(wrong) = failing(subject) else {
        return;
    };
    let mut client = Client::another(subject).await;
    at_every_poll(async |polls| {
        let run = client.connection.run(Request::new(wrong, &[]));
        let answer = drop_after(polls, run).await;
        let answered = match answer {
            Some(answer) => {
                answer.expect_err("it fails");
                true
            }
            None => {
                client.settle().await;
                false
            }
        };
        assert_eq!(client.status(), Status::Idle);
        client.is_usable().await;
        answered
    })
    .await;
}

/// After a dropped begin the status says whether a transaction is open.
pub async fn a_dropped_begin_leaves_the_status_known(subject: &Subject) {
    let mut client = Client::first(subject).await;
    let begin = Begin::default();
    at_every_poll(async |polls| {
        let answered = is_answered(polls, client.connection.begin_with(&begin, None)).await;
        if !answered {
            client.settle().await;
        }
        let is_open = match client.status() {
            Status::InTransaction => true,
            Status::Idle => false,
            other => panic!("after a dropped begin the status is {other:?}"),
        };
        assert!(is_open || !answered, "what was answered was done");
        // The status is the truth: what is done now is undone if there is one.
        client.add(1).await;
        client.roll_back().await;
        assert_eq!(client.ids().await.is_empty(), is_open);
        client.must(&subject.sql.delete).await;
        answered
    })
    .await;
}

/// After a dropped commit the transaction is committed, rolled back or still open. The status says whether it
/// has ended, and all connections see the same rows.
pub async fn a_dropped_commit_has_come_to_something(subject: &Subject) {
    let mut client = Client::first(subject).await;
    let mut other = Client::another(subject).await;
    let mut sure = Vec::new();
    at_every_poll(async |polls| {
        client.begin().await;
        client.add(key(polls)).await;
        let answered = is_answered(polls, client.connection.commit()).await;
        if !answered {
            client.settle().await;
        }
        let is_over = client.status() == Status::Idle;
        assert!(is_over || !answered, "what was answered was done");
        if !is_over {
            client.roll_back().await;
        }
        client.is_usable().await;
        let ids = client.ids().await;
        let is_there = ids.contains(&key(polls));
        assert!(is_there || !answered, "what was answered was done");
        assert!(!is_there || is_over, "what was open has been rolled back");
        sure.extend(is_there.then_some(key(polls)));
        assert_eq!(ids, sure);
        assert_eq!(other.ids().await, sure, "everybody sees the same");
        answered
    })
    .await;
}

/// After a dropped rollback the status says whether the transaction is still open.
pub async fn a_dropped_rollback_leaves_the_status_known(subject: &Subject) {
    let mut client = Client::first(subject).await;
    at_every_poll(async |polls| {
        client.begin().await;
        client.add(1).await;
        let answered = is_answered(polls, client.connection.rollback()).await;
        if !answered {
            client.settle().await;
        }
        if client.status() != Status::Idle {
            assert!(!answered, "what was answered was done");
            client.roll_back().await;
        }
        client.is_usable().await;
        assert_eq!(client.ids().await, [0; 0]);
        answered
    })
    .await;
}

/// After a dropped savepoint the transaction stays usable, or has ended.
pub async fn a_dropped_savepoint_leaves_the_transaction_usable(subject: &Subject) {
    if !subject.can(Lack::Savepoints) {
        return;
    }
    let mut client = Client::first(subject).await;
    at_every_poll(async |polls| {
        client.begin().await;
        client.add(1).await;
        let set = client.connection.savepoint(Savepoint::Set("cenote_a"));
        let answered = is_answered(polls, set).await;
        let goes_on = answered || client.settle().await;
        if goes_on {
            assert_eq!(client.status(), Status::InTransaction);
            assert_eq!(client.ids().await, [1]);
        }
        client.roll_back().await;
        assert_eq!(client.ids().await, [0; 0]);
        answered
    })
    .await;
}

/// Of a dropped batch all sets have taken effect, or none, after a rollback if the batch has left its own transaction.
pub async fn a_dropped_batch_leaves_nothing_but_its_effect(subject: &Subject) {
    let mut client = Client::first(subject).await;
    let insert = client.text(&subject.sql.insert).into_owned();
    let sets: Vec<_> = (1..=20).map(row).collect();
    let all: Vec<i64> = (1..=20).collect();
    at_every_poll(async |polls| {
        let batch = client.connection.run_batch(&insert, &sets);
        let answered = is_answered(polls, batch).await;
        if !answered {
            client.settle().await;
            if client.status() != Status::Idle {
                client.roll_back().await;
            }
        }
        assert_eq!(client.status(), Status::Idle);
        client.is_usable().await;
        let ids = client.ids().await;
        assert!(ids == all || ids.is_empty(), "all sets, or none: {ids:?}");
        assert!(ids == all || !answered, "what was answered was done");
        client.must(&subject.sql.delete).await;
        answered
    })
    .await;
}

/// A statement whose preparing was dropped can be prepared and run.
pub async fn a_dropped_prepare_leaves_a_usable_connection(subject: &Subject) {
    let mut client = Client::first(subject).await;
    let insert = client.text(&subject.sql.insert).into_owned();
    at_every_poll(async |polls| {
        let answered = is_answered(polls, client.connection.prepare(&insert)).await;
        if !answered {
            client.settle().await;
        }
        assert_eq!(client.status(), Status::Idle);
        client.is_usable().await;
        client.add(key(polls)).await;
        answered
    })
    .await;
}

/// No later call sees the rows of a stream whose start was dropped.
pub async fn a_dropped_stream_start_leaves_no_rows(subject: &Subject) {
    let mut client = Client::first(subject).await;
    client.fill(1..=50).await;
    at_every_poll(async |polls| {
        let request = Request::new(&subject.sql.select, &[]);
        let answered = is_answered(polls, client.connection.start_stream(request)).await;
        if answered {
            let ended = client.connection.end_stream().await;
            ended.expect("a stream can be ended");
        } else {
            client.settle().await;
        }
        assert_eq!(client.status(), Status::Idle);
        client.is_usable().await;
        answered
    })
    .await;
}

/// A stream whose early end was dropped has ended after a settle.
pub async fn a_dropped_end_of_a_stream_leaves_no_rows(subject: &Subject) {
    let mut client = Client::first(subject).await;
    client.fill(1..=50).await;
    at_every_poll(async |polls| {
        let request = Request::new(&subject.sql.select, &[]);
        let started = client.connection.start_stream(request).await;
        started.expect("a stream can be started");
        let answered = is_answered(polls, client.connection.end_stream()).await;
        if !answered {
            client.settle().await;
        }
        assert_eq!(client.status(), Status::Idle);
        client.is_usable().await;
        answered
    })
    .await;
}

/// The next settle completes a dropped one.
pub async fn a_dropped_settle_can_be_done_again(subject: &Subject) {
    let mut client = Client::first(subject).await;
    client.fill(1..=50).await;
    at_every_poll(async |polls| {
        let run = client
            .connection
            .run(Request::new(&subject.sql.select, &[]));
        let _ = drop_after(1, run).await;
        let settled = drop_after(polls, client.connection.settle()).await;
        client.settle().await;
        assert_eq!(client.status(), Status::Idle);
        client.is_usable().await;
        settled.is_some()
    })
    .await;
}

/// A dropped ping leaves nothing behind.
pub async fn a_dropped_ping_leaves_a_usable_connection(subject: &Subject) {
    let mut client = Client::another(subject).await;
    at_every_poll(async |polls| {
        let answered = is_answered(polls, client.connection.ping()).await;
        if !answered {
            client.settle().await;
        }
        client.is_usable().await;
        answered
    })
    .await;
}

/// After a dropped connect, others can connect and write.
pub async fn a_dropped_connect_is_no_hindrance(subject: &Subject) {
    let mut client = Client::first(subject).await;
    at_every_poll(async |polls| {
        let answered = is_answered(polls, subject.open(0)).await;
        client.add(key(polls)).await;
        Client::another(subject).await.is_usable().await;
        answered
    })
    .await;
}

/// A connection whose close was dropped is closed all the same: the server frees its transaction and its locks.
pub async fn a_dropped_close_closes_all_the_same(subject: &Subject) {
    let mut client = Client::first(subject).await;
    at_every_poll(async |polls| {
        let mut leaver = Client::another(subject).await;
        leaver.begin().await;
        leaver.add(key(polls)).await;
        let answered = is_answered(polls, leaver.connection.close()).await;
        client.add(key(polls)).await;
        answered
    })
    .await;
}

/// A connection dropped during a call is closed: the server frees its transaction and its locks.
pub async fn dropping_a_connection_in_the_middle_of_a_call_rolls_back(subject: &Subject) {
    let mut client = Client::first(subject).await;
    let insert = client.text(&subject.sql.insert).into_owned();
    at_every_poll(async |polls| {
        let mut leaver = Client::another(subject).await;
        leaver.begin().await;
        leaver.add(1).await;
        let params = row(2);
        let run = leaver.connection.run(Request::new(&insert, &params));
        let answered = is_answered(polls, run).await;
        drop(leaver);
        client.add(1).await;
        client.add(2).await;
        client.must(&subject.sql.delete).await;
        answered
    })
    .await;
}

/// Settling a connection on which nothing was dropped changes nothing.
pub async fn settling_nothing_is_fine(subject: &Subject) {
    let mut client = Client::first(subject).await;
    let settled = client.connection.settle().await;
    settled.expect("there is nothing to settle");
    assert_eq!(client.status(), Status::Idle);
    client.begin().await;
    client.add(1).await;
    let settled = client.connection.settle().await;
    settled.expect("there is nothing to settle");
    assert_eq!(client.status(), Status::InTransaction);
    client.commit().await;
    assert_eq!(client.ids().await, [1]);
}

/// Settling does not wait for a statement that never ends: it is cancelled.
pub async fn settling_cancels_what_still_runs(subject: &Subject) {
    let Some(endless) = &subject.sql.endless else {
        return;
    };
    let mut client = Client::another(subject).await;
    for polls in 1..=3 {
        begin_endless(&mut client, endless, polls).await;
        client.settle().await;
        assert_eq!(client.status(), Status::Idle);
        client.is_usable().await;
    }
}

/// Closing does not wait for a statement that never ends: it is cancelled.
pub async fn closing_cancels_what_still_runs(subject: &Subject) {
    let Some(endless) = &subject.sql.endless else {
        return;
    };
    for polls in 1..=3 {
        let mut client = Client::another(subject).await;
        begin_endless(&mut client, endless, polls).await;
        client.close().await;
    }
}

pub(super) async fn begin_endless(client: &mut Client<'_>, endless: &str, polls: usize) {
    let run = client.connection.run(Request::new(endless, &[]));
    // Nothing wakes it, so it is polled without being asked.
    let mut run = Hand::new(run);
    for _ in 0..polls {
        assert!(run.poll().is_pending(), "it has no end");
        yield_now().await;
    }
}
