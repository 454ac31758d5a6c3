//! COPY in transactions, savepoints, coroutines and outside of them.

use std::time::Duration;

use cenote::{Kind, Result};
use cenote_testkit::poll::Hand;

use super::{CSV_IN, count, db, db_with, read_all};
use crate::servers::{assert_whole, session_id, soon};

const OUT: &str = "COPY (SELECT id FROM t ORDER BY id) TO STDOUT";
const MANY: &str = "COPY (SELECT n, repeat('x', 100) FROM generate_series(1, 200000) n) TO STDOUT";

#[tokio::test]
async fn copies_are_part_of_the_transaction_around_them() {
    let db = db_with(|builder| builder.max(1)).await;
    for commits in [false, true] {
        let done: Result<()> = db
            .transaction(async || {
                db.exec("INSERT INTO t VALUES (1, 'a')", ()).await?;
                assert_eq!(db.copy_in_rows("t", &["id"], [2, 3]).await?, 2);
                let mut copy = db.copy_in(CSV_IN).await?;
                copy.send("4,x\n5,y\n").await?;
                assert_eq!(copy.finish().await?, 2);
                assert_eq!(read_all(db.copy_out(OUT).await?).await?, "1\n2\n3\n4\n5\n");
                match commits {
                    true => Ok(()),
                    false => Err(cenote::Error::other("rolled back")),
                }
            })
            .await;
        assert_eq!(done.is_ok(), commits);
        assert_eq!(count(&db).await, if commits { 5 } else { 0 });
    }
    assert_whole(&db).await;
}

#[tokio::test]
async fn copies_can_be_the_first_call_of_a_transaction() {
    let db = db().await;
    db.transaction(async || db.copy_in_rows("t", &["id"], [1]).await)
        .await
        .unwrap();
    db.transaction(async || {
        let mut copy = db.copy_in(CSV_IN).await?;
        copy.send("2,x\n").await?;
        copy.finish().await
    })
    .await
    .unwrap();
    let read = db
        .transaction(async || read_all(db.copy_out(OUT).await?).await)
        .await;
    assert_eq!(read.unwrap(), "1\n2\n");
    let mut connection = db.connection().await.unwrap();
    assert_eq!(connection.copy_in_rows("t", &["id"], [3]).await.unwrap(), 1);
    let tx = connection.begin().await.unwrap();
    assert_eq!(tx.copy_in_rows("t", &["id"], [4]).await.unwrap(), 1);
    tx.rollback().await.unwrap();
    let tx = connection.begin().await.unwrap();
    let mut copy = tx.copy_in(CSV_IN).await.unwrap();
    copy.send("5,x\n").await.unwrap();
    assert_eq!(copy.finish().await.unwrap(), 1);
    tx.commit().await.unwrap();
    assert_eq!(count(&db).await, 4);
}

#[tokio::test]
async fn another_call_beside_an_open_copy_is_busy() {
    let db = db().await;
    db.transaction(async || {
        let copy = db.copy_in(CSV_IN).await?;
        for error in [
            db.query("SELECT 1", ()).await.unwrap_err(),
            db.copy_in(CSV_IN).await.unwrap_err(),
            db.copy_in_rows("t", &["id"], [1]).await.unwrap_err(),
            db.copy_out(OUT).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), Kind::Busy, "{error}");
        }
        assert_eq!(copy.finish().await?, 0);
        let mut out = db.copy_out(MANY).await?;
        out.try_next().await?;
        let error = db.query("SELECT 1", ()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Busy, "{error}");
        assert!(out.try_next().await?.is_some(), "it goes on");
        Ok(())
    })
    .await
    .unwrap();
    assert_whole(&db).await;
}

#[tokio::test]
async fn outside_a_transaction_a_copy_has_its_own_connection() {
    let db = db().await;
    cenote::scope(async {
        let mut copy = db.copy_in(CSV_IN).await.unwrap();
        // The coroutine goes on meanwhile.
        assert_eq!(count(&db).await, 0);
        copy.send("1,a\n").await.unwrap();
        assert_eq!(copy.finish().await.unwrap(), 1);
        let mut out = db.copy_out(OUT).await.unwrap();
        assert_eq!(count(&db).await, 1);
        assert_eq!(out.try_next().await.unwrap().unwrap(), "1\n");
        drop(out);
        assert!(db.peek().is_none(), "nothing is pinned");
    })
    .await;
    // Beside a transaction, outside of it.
    db.transaction(async || {
        db.exec("INSERT INTO t VALUES (7, 'rolled back')", ())
            .await?;
        let outside = db.outside();
        assert_eq!(outside.copy_in_rows("t", &["id"], [2]).await?, 1);
        assert_eq!(read_all(outside.copy_out(OUT).await?).await?, "1\n2\n");
        Err::<(), _>(cenote::Error::other("rolled back"))
    })
    .await
    .unwrap_err();
    assert_eq!(count(&db).await, 2);
    assert_whole(&db).await;
}

#[tokio::test]
async fn dropped_copy_in_leaves_nothing_outside_a_transaction() {
    let db = db_with(|builder| builder.max(1)).await;
    let session = session_id(&db).await;
    for sends in 0..4 {
        let mut copy = db.copy_in(CSV_IN).await.unwrap();
        for id in 0..sends {
            copy.send(format!("{id},x\n")).await.unwrap();
        }
        drop(copy);
        assert_eq!(count(&db).await, 0);
        assert_eq!(session_id(&db).await, session, "the session goes on");
    }
}

#[tokio::test]
async fn dropped_copy_in_dooms_its_transaction() {
    let db = db().await;
    let done = db
        .transaction(async || {
            db.exec("INSERT INTO t VALUES (1, 'a')", ()).await?;
            let mut copy = db.copy_in(CSV_IN).await?;
            copy.send("2,b\n").await?;
            drop(copy);
            let error = db
                .exec("INSERT INTO t VALUES (3, 'c')", ())
                .await
                .unwrap_err();
            assert_eq!(error.kind(), Kind::Doomed, "{error}");
            assert!(error.to_string().contains("dropped at"), "{error}");
            Ok(())
        })
        .await;
    assert_eq!(done.unwrap_err().kind(), Kind::Doomed);
    assert_eq!(count(&db).await, 0);
    assert_whole(&db).await;
}

#[tokio::test]
async fn savepoint_recovers_from_a_dropped_or_failed_copy() {
    let db = db().await;
    db.transaction(async || {
        db.exec("INSERT INTO t VALUES (1, 'a')", ()).await?;
        for drops in [true, false] {
            let inner: Result<()> = db
                .transaction(async || {
                    let mut copy = db.copy_in(CSV_IN).await?;
                    copy.send("2,b\nx,c\n").await?;
                    match drops {
                        true => drop(copy),
                        false => drop(copy.finish().await?),
                    }
                    Ok(())
                })
                .await;
            let error = inner.unwrap_err();
            match drops {
                true => assert_eq!(error.kind(), Kind::Doomed, "{error}"),
                false => assert_eq!(error.sql_state(), Some("22P02"), "{error}"),
            }
        }
        let rows = [Some(5), None].map(|id| (id,));
        let inner = db.transaction(async || db.copy_in_rows("t", &["id"], rows).await);
        assert!(inner.await.unwrap_err().is_not_null_violation());
        assert_eq!(db.copy_in_rows("t", &["id"], [9]).await?, 1);
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(count(&db).await, 2);
    assert_whole(&db).await;
}

#[tokio::test]
async fn failed_copy_aborts_its_transaction_and_is_named_later() {
    let db = db().await;
    // An error of the server, and a value that was never sent.
    for (rows, state) in [(["1", "x"], None), (["1", "1"], Some("23505"))] {
        let done = db
            .transaction(async || {
                let rows = rows.map(|id| match id.parse::<i64>() {
                    Ok(id) => cenote::Value::Int(id),
                    Err(_) => cenote::Value::Text(id.into()),
                });
                let failed = db.copy_in_rows("t", &["id"], rows).await.unwrap_err();
                assert_eq!(failed.sql_state(), state, "{failed}");
                let later = db.query("SELECT 1", ()).await.unwrap_err();
                assert_eq!(later.sql_state(), Some("25P02"), "{later}");
                assert!(later.message().contains(failed.message()), "{later}");
                Ok(())
            })
            .await;
        assert!(done.is_err());
        assert_eq!(count(&db).await, 0);
    }
    assert_whole(&db).await;
}

#[tokio::test]
async fn dropped_copy_out_does_not_abort_its_transaction() {
    let db = db_with(|builder| builder.max(1)).await;
    for pieces in 0..3 {
        db.transaction(async || {
            db.exec("INSERT INTO t VALUES (?, 'a')", (pieces,)).await?;
            let mut out = db.copy_out(MANY).await?;
            for _ in 0..pieces {
                out.try_next().await?;
            }
            drop(out);
            db.exec("UPDATE t SET name = 'b' WHERE id = ?", (pieces,))
                .await
        })
        .await
        .unwrap();
    }
    assert_eq!(count(&db).await, 3);
}

#[tokio::test]
async fn rest_of_a_copy_out_that_takes_too_long_costs_the_transaction() {
    let limit = Duration::from_millis(50);
    let db = db_with(|builder| builder.max(1).cleanup_timeout(limit)).await;
    let done = db
        .transaction(async || {
            db.exec("INSERT INTO t VALUES (1, 'a')", ()).await?;
            let sql = "COPY (SELECT repeat('x', 100000) FROM generate_series(1, 3) n, \
                       LATERAL pg_sleep((n - 1) * 1800)) TO STDOUT";
            let out = db.copy_out(sql).await?;
            drop(out);
            db.exec("UPDATE t SET name = 'b'", ()).await
        })
        .await;
    assert!(done.unwrap_err().is_connection_lost());
    assert_eq!(count(&db).await, 0);
    assert_whole(&db).await;
}

#[tokio::test]
async fn rows_wait_for_their_turn_as_other_calls_do() {
    let db = db().await;
    db.transaction(async || {
        db.exec("INSERT INTO t VALUES (1, 'a')", ()).await?;
        let rows = (10..50_000_i64).map(|id| (id, "x"));
        let mut copied = Hand::new(db.copy_in_rows("t", &["id", "name"], rows));
        assert!(copied.poll().is_pending());
        let mut other = Hand::new(db.exec("INSERT INTO t VALUES (2, 'b')", ()));
        assert!(other.poll().is_pending(), "it waits, and does not fail");
        drop(other);
        drop(copied);
        Ok(())
    })
    .await
    .unwrap_err();
    let both = db
        .transaction(async || {
            let rows = (10..50_000_i64).map(|id| (id, "x"));
            let copied = db.copy_in_rows("t", &["id", "name"], rows);
            let other = db.exec("INSERT INTO t VALUES (2, 'b')", ());
            let both = tokio::join!(copied, other);
            both.1?;
            both.0
        })
        .await;
    assert_eq!(both.unwrap(), 49_990);
    assert_whole(&db).await;
}

#[tokio::test]
async fn an_old_transaction_ends_its_copy() {
    let db = db_with(|builder| {
        builder
            .max(2)
            .max_transaction_age(Duration::from_millis(300))
    })
    .await;
    let done = soon(
        "the end",
        db.transaction(async || {
            let mut copy = db.copy_in(CSV_IN).await?;
            for id in 0..i64::MAX {
                copy.send(format!("{id},a\n")).await?;
                tokio::task::yield_now().await;
            }
            Ok(())
        }),
    )
    .await;
    let error = done.unwrap_err();
    assert_eq!(error.kind(), Kind::TransactionTimeout, "{error:?}");
    assert_eq!(count(&db).await, 0);
    assert_whole(&db).await;
}

/// A COPY can fire triggers, which can change the session: a reported change is undone.
#[tokio::test]
async fn session_that_a_trigger_changes_is_reset() {
    let db = db_with(|builder| builder.max(1)).await;
    db.run_all(
        "CREATE FUNCTION zone() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN PERFORM set_config(''TimeZone'', ''Asia/Tokyo'', false); RETURN NEW; END'; \
         CREATE TRIGGER zone BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION zone()",
        (),
    )
    .await
    .unwrap();
    let zone = async || {
        db.query_scalar_one::<String>("SHOW TimeZone", ())
            .await
            .unwrap()
    };
    let before = zone().await;
    assert_ne!(before, "Asia/Tokyo");
    let mut copy = db.copy_in(CSV_IN).await.unwrap();
    copy.send("1,a\n").await.unwrap();
    copy.finish().await.unwrap();
    assert_eq!(zone().await, before);
    db.copy_in_rows("t", &["id"], [2]).await.unwrap();
    assert_eq!(zone().await, before);
}
