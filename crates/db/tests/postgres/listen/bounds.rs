//! Slow listeners, many listeners, and bounded buffers.

use cenote::listen::GapCause;
use tokio::task::JoinSet;

use super::support::*;
use crate::servers::{soon, until};

/// Sends the numbers of a range in one transaction.
async fn notify_all(db: &cenote::Db, channel: &str, numbers: std::ops::Range<i64>, pad: i64) {
    let sql = "SELECT pg_notify(?, n || ' ' || repeat('x', ?::int4)) \
               FROM generate_series(?::int8, ?::int8) AS s (n)";
    db.query(sql, (channel, pad, numbers.start, numbers.end - 1))
        .await
        .unwrap();
}

fn number(payload: &str) -> i64 {
    payload.split(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn full_buffer_is_a_gap_and_stops_nobody_else() {
    let db = open().await;
    let channel = channel();
    let mut slow = db.listen([&*channel]).buffer(3).await.unwrap();
    let mut narrow = db.listen([&*channel]).buffer_bytes(1).await.unwrap();
    let mut fast = db.listen([&*channel]).await.unwrap();
    notify_all(&db, &channel, 0..500, 1).await;
    for n in 0..500 {
        assert_eq!(number(&payload(&mut fast).await), n);
    }
    for n in 0..3 {
        assert_eq!(number(&payload(&mut slow).await), n);
    }
    assert!(matches!(gap(&mut slow).await, GapCause::Overflow));
    assert_eq!(number(&payload(&mut narrow).await), 0);
    assert!(matches!(gap(&mut narrow).await, GapCause::Overflow));
    // From the Gap on, everything is there again.
    notify(&db, &channel, 500).await;
    for listener in [&mut slow, &mut narrow, &mut fast] {
        assert_eq!(number(&payload(listener).await), 500);
        assert!(at_once(listener).is_none());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flood_overflows_one_buffer_and_keeps_pings_alive() {
    let db = cenote::Db::builder(&crate::servers::dsn())
        .healthcheck_interval(std::time::Duration::from_millis(20))
        .open()
        .await
        .unwrap();
    let channel = channel();
    let mut idle = db.listen([&*channel]).await.unwrap();
    let mut reader = db.listen([&*channel]).await.unwrap();
    let reading = cenote::spawn(async move {
        let (mut last, mut gaps) = (-1, 0);
        while last < 39_999 {
            match event(&mut reader).await {
                cenote::listen::Event::Notification { payload, .. } => {
                    let next = number(&payload);
                    assert!(next == last + 1 || gaps > 0, "{next} after {last}");
                    last = next;
                }
                _ => gaps += 1,
            }
        }
    });
    for start in (0..40_000).step_by(10_000) {
        notify_all(&db, &channel, start..start + 10_000, 200).await;
    }
    // What the reader may have lost at the end is sent again until it has come.
    until("the reader has read all", async || {
        if !reading.is_finished() {
            notify(&db, &channel, 39_999).await;
        }
        reading.is_finished()
    })
    .await;
    reading.await.unwrap();
    assert_eq!(status(&db).reconnects, 0);
    for n in 0..1024 {
        assert_eq!(number(&payload(&mut idle).await), n);
    }
    assert!(matches!(gap(&mut idle).await, GapCause::Overflow));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_listeners_come_and_go_and_miss_nothing() {
    let db = cenote::Db::builder(&crate::servers::dsn())
        .max(4)
        .open()
        .await
        .unwrap();
    let names: Vec<String> = (0..7).map(|_| channel()).collect();
    let mut tasks = JoinSet::new();
    for task in 0..40 {
        let (db, names) = (db.clone(), names.clone());
        tasks.spawn(async move {
            for round in 0..10 {
                let own = &names[(task + round) % names.len()];
                let other = &names[(task * round) % names.len()];
                let mut listener = db.listen([own, other]).await.unwrap();
                let token = format!("{task} {round}");
                notify(&db, own, &token).await;
                // Others use the channel as well: ours comes among theirs.
                while payload(&mut listener).await != token {}
            }
        });
    }
    soon("all tasks end", async {
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
    })
    .await;
    nothing_listens(&db).await;
}
