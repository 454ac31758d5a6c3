//! Copies that are dropped at every poll.

use cenote::{Db, Result};
use cenote_testkit::poll::drop_after;

use super::{CSV_IN, count, db_with, megabyte, read_all};
use crate::servers::{assert_whole, quiet, session_id, soon};

/// Drops what `make` returns after 0, 1, 2 … polls until it is ready. Afterwards all of it is stored or nothing, and the
/// connection is whole.
async fn drop_at_every_poll<T>(
    db: &Db,
    stored: i64,
    make: impl AsyncFn(&Db) -> Result<T>,
) -> usize {
    let mut polls = 0;
    loop {
        let ended = soon("a dropped copy", drop_after(polls, make(db))).await;
        let is_done = ended.is_some();
        quiet(db).await;
        let found = soon("the next call", count(db)).await;
        match ended {
            Some(done) => {
                done.unwrap();
                assert_eq!(found, stored, "after {polls} polls");
            }
            None => assert!(found == 0 || found == stored, "{found} after {polls} polls"),
        }
        db.exec("TRUNCATE t", ()).await.unwrap();
        if is_done {
            return polls;
        }
        // Each poll near the start, fewer of the many in the middle.
        polls += 1 + polls / 12;
    }
}

/// Half a row is written when the iterator panics: it must not reach the server.
#[tokio::test]
async fn panicking_rows_store_nothing_and_keep_the_connection() {
    let db = db_with(|builder| builder.max(1)).await;
    let session = session_id(&db).await;
    for at in [0, 1, 39_999] {
        let rows = (0..40_000_i64).map(move |id| {
            assert_ne!(id, at, "on purpose");
            (id, "a text that takes some room in the buffers")
        });
        let own = db.clone();
        let copied = cenote::spawn(async move {
            let columns = ["id", "name"];
            own.copy_in_rows("t", &columns, rows).await
        });
        assert!(copied.await.unwrap_err().is_panic());
        quiet(&db).await;
        assert_eq!(soon("the next call", count(&db)).await, 0);
        assert_eq!(session_id(&db).await, session, "the session stays");
    }
    assert_whole(&db).await;
}

#[tokio::test]
async fn rows_dropped_at_every_poll_leave_all_or_nothing() {
    let db = db_with(|builder| builder.max(1)).await;
    let polls = drop_at_every_poll(&db, 40_000, async |db| {
        let rows = (0..40_000_i64).map(|id| (id, "a text that takes some room in the buffers"));
        db.copy_in_rows("t", &["id", "name"], rows).await
    })
    .await;
    assert!(polls > 3, "{polls}");
    assert_whole(&db).await;
}

#[tokio::test]
async fn copy_in_dropped_at_every_poll_leaves_all_or_nothing() {
    let db = db_with(|builder| builder.max(1)).await;
    let (data, rows) = megabyte(0);
    let rows = i64::try_from(rows).unwrap();
    drop_at_every_poll(&db, rows, async |db| {
        let mut copy = db.copy_in(CSV_IN).await?;
        for piece in data.as_bytes().chunks(50_000) {
            copy.send(piece.to_vec()).await?;
        }
        copy.finish().await
    })
    .await;
    assert_whole(&db).await;
}

#[tokio::test]
async fn copies_in_a_transaction_dropped_at_every_poll() {
    let db = db_with(|builder| builder.max(1)).await;
    drop_at_every_poll(&db, 20_001, async |db| {
        db.transaction(async || {
            db.exec("INSERT INTO t VALUES (-1, 'a')", ()).await?;
            let rows = (0..20_000_i64).map(|id| (id, "a text that takes some room"));
            db.copy_in_rows("t", &["id", "name"], rows).await?;
            let out = db.copy_out("COPY t TO STDOUT").await?;
            assert_eq!(read_all(out).await?.lines().count(), 20_001);
            Ok(())
        })
        .await
    })
    .await;
    assert_whole(&db).await;
}

#[tokio::test]
async fn copy_out_dropped_at_every_poll_keeps_its_session() {
    let db = db_with(|builder| builder.max(1)).await;
    let session = session_id(&db).await;
    let sql = "COPY (SELECT n, repeat('x', 200) FROM generate_series(1, 20000) n) TO STDOUT";
    let mut polls = 0;
    loop {
        let read = async { read_all(db.copy_out(sql).await?).await };
        let ended = soon("a dropped copy", drop_after(polls, read)).await;
        assert_eq!(soon("the next call", session_id(&db)).await, session);
        if let Some(read) = ended {
            assert_eq!(read.unwrap().lines().count(), 20_000);
            break;
        }
        polls += 1 + polls / 12;
    }
}

/// Two tasks in turn: nothing of a dropped copy reaches the next call.
#[tokio::test]
async fn calls_after_dropped_copies_get_their_own_answers() {
    let db = db_with(|builder| builder.max(1)).await;
    for n in 0..60_usize {
        let copied = async {
            let mut copy = db.copy_in(CSV_IN).await?;
            copy.send(megabyte(n).0).await?;
            copy.finish().await
        };
        drop(drop_after(n % 7, copied).await);
        let id = i64::try_from(n).unwrap();
        let answer: i64 = soon(
            "the next call",
            db.query_scalar_one("SELECT ?::int8", (id,)),
        )
        .await
        .unwrap();
        assert_eq!(answer, id);
        db.exec("TRUNCATE t", ()).await.unwrap();
    }
}
