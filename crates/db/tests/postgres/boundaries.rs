//! Nothing runs outside of its transaction, and no changed session is exchanged for another in silence.

use std::future::Future;
use std::time::Duration;

use cenote::{Db, Error, Kind, Result, TransactionOptions};

use crate::servers::{dsn, is_running, kill, session_id, until};

async fn open(max: usize) -> (Db, Db) {
    let dsn = crate::servers::client::own_schema(&dsn()).await;
    let db = Db::builder(&dsn).max(max).open().await.unwrap();
    db.exec("CREATE TABLE t (n int)", ()).await.unwrap();
    (db, Db::open(&crate::servers::dsn()).await.unwrap())
}

async fn count(db: &Db) -> i64 {
    db.query_as_one("SELECT count(*) FROM t", ()).await.unwrap()
}

async fn user(db: &Db) -> Result<String> {
    db.query_as_one("SELECT current_user::text", ()).await
}

const INSERT: &str = "INSERT INTO t VALUES (1)";

/// A session with SET ROLE is lost while it rests; a transaction silently runs as the login role.
#[tokio::test]
async fn closure_after_a_lost_role_is_refused() {
    for lazily in [false, true] {
        let (db, admin) = open(2).await;
        cenote::scope(async {
            db.exec("SET ROLE trusted", ()).await.unwrap();
            assert_eq!(user(&db).await.unwrap(), "trusted");
            let pid = session_id(&db).await;
            kill(&admin, pid).await;
            let mut options = TransactionOptions::new();
            if lazily {
                options = options.begin_lazily();
            }
            let seen = options.on(&db).run(async || user(&db).await).await;
            assert!(
                seen.is_err(),
                "lazily {lazily}: ran as {seen:?}, no error told that the session is gone"
            );
        })
        .await;
    }
}

/// The same with begin().
#[tokio::test]
async fn begin_after_a_lost_role_is_refused() {
    let (db, admin) = open(2).await;
    cenote::scope(async {
        db.exec("SET ROLE trusted", ()).await.unwrap();
        let pid = session_id(&db).await;
        kill(&admin, pid).await;
        if let Ok(tx) = db.begin().await {
            let seen = user(&db).await;
            tx.commit().await.unwrap();
            panic!("ran as {seen:?}");
        }
    })
    .await;
}

/// One branch meets the loss, the other one, which waits for its turn, runs on in a new session.
#[tokio::test]
async fn waiting_branch_hears_of_the_lost_session() {
    let (db, admin) = open(2).await;
    cenote::scope(async {
        db.exec("SET ROLE trusted", ()).await.unwrap();
        let pid = session_id(&db).await;
        let (slept, seen, ()) = tokio::join!(db.exec("SELECT pg_sleep(5)", ()), user(&db), async {
            is_running(&admin, pid, "SELECT pg_sleep").await;
            kill(&admin, pid).await;
        });
        assert!(slept.is_err());
        assert!(seen.is_err(), "ran as {seen:?}");
    })
    .await;
}

/// A transaction moves before its first statement, which changes the session: nobody resets that.
#[tokio::test]
async fn session_changed_after_a_reconnect_is_reset() {
    let mut wrong = Vec::new();
    for (sql, look, fine) in [
        (
            "SET work_mem = '1MB'",
            "SELECT current_setting('work_mem') <> '1MB'",
            true,
        ),
        (
            "SET search_path = pg_catalog",
            "SELECT current_setting('search_path') <> 'pg_catalog'",
            true,
        ),
        (
            "CREATE TEMP TABLE secrets AS SELECT 1",
            "SELECT to_regclass('pg_temp.secrets') IS NULL",
            true,
        ),
        (
            "SELECT pg_advisory_lock(4711)",
            "SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711",
            true,
        ),
    ] {
        for moves in [false, true] {
            let (db, admin) = open(1).await;
            cenote::scope(async {
                let pid = session_id(&db).await;
                let tx = db.begin().await.unwrap();
                if moves {
                    kill(&admin, pid).await;
                }
                db.exec(sql, ()).await.unwrap();
                tx.commit().await.unwrap();
            })
            .await;
            let is: bool = db.query_as_one(look, ()).await.unwrap();
            if is != fine {
                wrong.push((sql, moves));
            }
        }
    }
    assert!(wrong.is_empty(), "seen by the next task: {wrong:#?}");
}

/// A prepared statement in a lazy transaction.
#[tokio::test]
async fn statement_runs_inside_a_lazy_transaction() {
    for lazily in [false, true] {
        let (db, _admin) = open(2).await;
        cenote::scope(async {
            let insert = db.prepare(INSERT).await.unwrap();
            let mut options = TransactionOptions::new();
            if lazily {
                options = options.begin_lazily();
            }
            let done: Result<()> = options
                .on(&db)
                .run(async || {
                    insert.exec(()).await?;
                    Err(Error::new(Kind::Other, "no"))
                })
                .await;
            assert_eq!(done.unwrap_err().kind(), Kind::Other);
        })
        .await;
        assert_eq!(
            count(&db).await,
            0,
            "lazily {lazily}: committed though the closure failed"
        );
    }
}

/// A transaction that idled too long takes the session with it.
#[tokio::test]
async fn expired_transaction_reports_the_lost_session() {
    let (db, _admin) = open(2).await;
    cenote::scope(async {
        db.exec("SET ROLE trusted", ()).await.unwrap();
        let options = TransactionOptions::new().idle_in_transaction(Duration::from_millis(50));
        let done = options
            .on(&db)
            .run(async || {
                user(&db).await?;
                until("it has expired", async || db.status().active == 0).await;
                Ok(())
            })
            .await;
        assert_eq!(done.unwrap_err().kind(), Kind::TransactionTimeout);
        let seen = user(&db).await;
        assert!(
            seen.as_ref().map_or(true, |it| it == "trusted"),
            "ran as {seen:?}"
        );
    })
    .await;
}

/// The same with a lazy transaction.
#[tokio::test]
async fn lazy_transaction_after_a_lost_role_is_refused() {
    let (db, admin) = open(2).await;
    cenote::scope(async {
        db.exec("SET ROLE trusted", ()).await.unwrap();
        let pid = session_id(&db).await;
        kill(&admin, pid).await;
        let options = TransactionOptions::new().begin_lazily();
        let seen = options.on(&db).run(async || user(&db).await).await;
        assert!(seen.is_err(), "ran as {seen:?}");
    })
    .await;
}

/// A prepared statement's place, a stream, a pin.
#[tokio::test]
async fn every_call_after_a_lost_role_is_refused() {
    let mut moved = Vec::new();
    for what in ["prepare", "stream", "pin", "query", "many", "ping"] {
        let (db, admin) = open(2).await;
        cenote::scope(async {
            db.exec("SET ROLE trusted", ()).await.unwrap();
            let pid = session_id(&db).await;
            kill(&admin, pid).await;
            let first = match what {
                "prepare" => db.prepare("SELECT 1").await.map(drop),
                "stream" => db.stream("SELECT 1", ()).await.map(drop),
                "pin" => match db.pin().await {
                    Ok(_pin) => user(&db).await.map(drop),
                    Err(e) => Err(e),
                },
                "many" => db.exec_many("SELECT ?::int", [(1,)]).await.map(drop),
                "ping" => db.ping().await,
                _ => db.query("SELECT 1", ()).await.map(drop),
            };
            if first.is_ok() {
                moved.push(what);
            }
        })
        .await;
    }
    assert!(moved.is_empty(), "{moved:?}");
}

/// The guard of the transaction around, used in a lazy closure.
#[tokio::test]
async fn guard_runs_inside_a_lazy_savepoint() {
    for lazily in [false, true] {
        let (db, _admin) = open(2).await;
        cenote::scope(async {
            let tx = db.begin().await.unwrap();
            let mut options = TransactionOptions::new();
            if lazily {
                options = options.begin_lazily();
            }
            let done: Result<()> = options
                .on(&db)
                .run(async || {
                    tx.exec(INSERT, ()).await?;
                    Err(Error::new(Kind::Other, "no"))
                })
                .await;
            assert!(done.is_err());
            tx.commit().await.unwrap();
        })
        .await;
        assert_eq!(
            count(&db).await,
            0,
            "lazily {lazily}: kept though the closure failed"
        );
    }
}

/// A stream in a closure whose transaction somebody else has ended.
#[tokio::test]
async fn stream_does_not_outlive_its_transaction() {
    let (db, _admin) = open(3).await;
    cenote::scope(async {
        let tx = db.begin().await.unwrap();
        db.exec(INSERT, ()).await.unwrap();
        let (go, gone) = tokio::sync::oneshot::channel::<()>();
        let (inside, is_inside) = tokio::sync::oneshot::channel::<()>();
        let (done, ()) = tokio::join!(
            db.transaction(async || {
                inside.send(()).unwrap();
                gone.await.unwrap();
                let executed = db.exec(INSERT, ()).await;
                assert!(executed.is_err());
                let mut rows = db
                    .stream("INSERT INTO t VALUES (2) RETURNING n", ())
                    .await?;
                while rows.try_next().await?.is_some() {}
                Ok(())
            }),
            async {
                is_inside.await.unwrap();
                drop(tx);
                go.send(()).unwrap();
            }
        );
        assert_eq!(done.unwrap_err().kind(), Kind::TransactionEnded);
    })
    .await;
    assert_eq!(
        count(&db).await,
        0,
        "the stream's row was committed on its own"
    );
}

/// A script that ends the transaction and then fails, first or second.
#[tokio::test]
async fn failed_script_that_ended_its_transaction_is_noticed() {
    for first in [false, true] {
        let (db, _admin) = open(2).await;
        let done = db
            .transaction(async || {
                if !first {
                    db.exec("SELECT 1", ()).await?;
                }
                let script = "INSERT INTO t VALUES (1); ROLLBACK; SELECT 1/0";
                db.exec(script, ()).await.unwrap_err();
                let more = db.exec("INSERT INTO t VALUES (2)", ()).await;
                assert_eq!(more.unwrap_err().kind(), Kind::TransactionLost);
                Ok(())
            })
            .await;
        assert!(
            done.is_err(),
            "first {first}: committed, {} rows",
            count(&db).await
        );
    }
}

/// A call settles what a dropped stream left; meanwhile its transaction is dropped.
#[tokio::test]
async fn call_that_settles_another_stays_in_its_transaction() {
    let (db, _admin) = open(2).await;
    cenote::scope(async {
        let tx = db.begin().await.unwrap();
        db.exec("INSERT INTO t VALUES (1)", ()).await.unwrap();
        let mut rows = db
            .stream("SELECT generate_series(1, 1000)", ())
            .await
            .unwrap();
        rows.try_next().await.unwrap();
        drop(rows);
        let call = db.exec("INSERT INTO t VALUES (2)", ());
        tokio::pin!(call);
        let once =
            std::future::poll_fn(|cx| std::task::Poll::Ready(call.as_mut().poll(cx).is_ready()))
                .await;
        assert!(!once, "it settles");
        drop(tx);
        assert_eq!(call.await.unwrap_err().kind(), Kind::TransactionEnded);
    })
    .await;
    assert_eq!(
        count(&db).await,
        0,
        "it was made in the transaction, and was committed on its own"
    );
}

/// The same with a savepoint: what was made in it runs in the transaction around it.
#[tokio::test]
async fn call_that_settles_another_stays_in_its_savepoint() {
    let (db, _admin) = open(2).await;
    cenote::scope(async {
        let mut tx = db.begin().await.unwrap();
        tx.exec("INSERT INTO t VALUES (1)", ()).await.unwrap();
        let savepoint = tx.savepoint().await.unwrap();
        let mut rows = db
            .stream("SELECT generate_series(1, 1000)", ())
            .await
            .unwrap();
        rows.try_next().await.unwrap();
        drop(rows);
        let call = db.exec("INSERT INTO t VALUES (2)", ());
        tokio::pin!(call);
        let once =
            std::future::poll_fn(|cx| std::task::Poll::Ready(call.as_mut().poll(cx).is_ready()))
                .await;
        assert!(!once, "it settles");
        drop(savepoint);
        assert_eq!(call.await.unwrap_err().kind(), Kind::TransactionEnded);
        tx.commit().await.unwrap();
    })
    .await;
    assert_eq!(
        count(&db).await,
        1,
        "it was made in the savepoint, which was rolled back"
    );
}

/// A reconnect that is dropped while the lost connection is closed.
#[tokio::test]
async fn dropped_reconnect_leaves_the_transaction_unbegun() {
    use cenote_testkit::{Break, Fake};
    let fake = Fake::new();
    fake.lazy_begin(true);
    let db = fake.builder().max(1).open().await.unwrap();
    cenote::scope(async {
        let tx = db.begin().await.unwrap();
        fake.break_as("INSERT", Break::NeverSent);
        fake.hold("close");
        let limit = Duration::from_millis(50);
        let _ = tokio::time::timeout(limit, db.exec("INSERT INTO t VALUES (1)", ())).await;
        fake.release();
        let _ = db.exec("INSERT INTO t VALUES (2)", ()).await;
        drop(tx);
    })
    .await;
    assert!(fake.rows("t").is_empty(), "{:?}", fake.rows("t"));
}

/// A call that is dropped in the middle of anything, on a connection that has kept statements.
#[tokio::test]
async fn kept_statements_survive_calls_dropped_at_every_poll() {
    let (db, _admin) = open(1).await;
    for round in 0..40 {
        for (n, sql) in [
            "SELECT 11::int8",
            "SELECT 12::int8",
            "INSERT INTO t VALUES (13) RETURNING n::int8",
        ]
        .iter()
        .enumerate()
        {
            let mut call = Box::pin(db.query_as_one::<i64>(sql, ()));
            for _ in 0..(round % 5) {
                let ready =
                    std::future::poll_fn(|cx| std::task::Poll::Ready(call.as_mut().poll(cx))).await;
                if ready.is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            drop(call);
            let value: i64 = db
                .query_as_one(
                    ["SELECT 11::int8", "SELECT 12::int8", "SELECT 13::int8"][n],
                    (),
                )
                .await
                .unwrap();
            assert_eq!(value, 11 + i64::try_from(n).unwrap());
        }
    }
}

/// A lazy closure in a transaction whose guard is dropped before its first statement.
#[tokio::test]
async fn lazy_closure_ends_with_the_transaction_around_it() {
    for lazily in [false, true] {
        let (db, _admin) = open(3).await;
        let mut options = TransactionOptions::new();
        if lazily {
            options = options.begin_lazily();
        }
        cenote::scope(async {
            let tx = db.begin().await.unwrap();
            db.exec(INSERT, ()).await.unwrap();
            let (go, gone) = tokio::sync::oneshot::channel::<()>();
            let (inside, is_inside) = tokio::sync::oneshot::channel::<()>();
            let (done, ()) = tokio::join!(
                options.on(&db).run(async || {
                    inside.send(()).unwrap();
                    gone.await.unwrap();
                    db.exec("INSERT INTO t VALUES (2)", ()).await?;
                    Ok(())
                }),
                async {
                    is_inside.await.unwrap();
                    drop(tx);
                    go.send(()).unwrap();
                }
            );
            assert_eq!(done.unwrap_err().kind(), Kind::TransactionEnded);
        })
        .await;
        assert_eq!(
            count(&db).await,
            0,
            "lazily {lazily}: committed without the transaction around it"
        );
    }
}

/// An expired transaction whose closure fails for a reason of its own.
#[tokio::test]
async fn lost_session_is_reported_even_if_the_closure_failed() {
    let (db, _admin) = open(2).await;
    cenote::scope(async {
        db.exec("SET ROLE trusted", ()).await.unwrap();
        let options = TransactionOptions::new().idle_in_transaction(Duration::from_millis(50));
        let done: Result<()> = options
            .on(&db)
            .run(async || {
                user(&db).await?;
                until("it has expired", async || db.status().active == 0).await;
                Err(Error::new(Kind::Other, "a reason of its own"))
            })
            .await;
        assert_eq!(done.unwrap_err().kind(), Kind::Other);
        let seen = user(&db).await;
        assert!(
            seen.as_ref().map_or(true, |it| it == "trusted"),
            "ran as {seen:?}"
        );
    })
    .await;
}

/// The clean-up after a dropped call finds the session lost: the next call gets an error.
#[tokio::test]
async fn failed_clean_up_is_reported_to_the_next_call() {
    let (db, admin) = open(2).await;
    cenote::scope(async {
        db.exec("SET ROLE trusted", ()).await.unwrap();
        let pid = session_id(&db).await;
        let mut call = Box::pin(db.exec("SELECT pg_sleep(5)", ()));
        tokio::select! {
            _ = &mut call => panic!("it takes longer"),
            () = is_running(&admin, pid, "SELECT pg_sleep") => {}
        }
        // Nobody polls the call meanwhile.
        kill(&admin, pid).await;
        drop(call);
        let seen = user(&db).await;
        assert!(seen.is_err(), "ran as {seen:?}");
        assert_eq!(user(&db).await.unwrap(), "cenote");
    })
    .await;
}
