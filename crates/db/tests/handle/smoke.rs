//! The handle as its users meet it.
#![allow(
    clippy::disallowed_methods,
    reason = "tests spawn tasks as programs do"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cenote::{Db, Kind, Result};

async fn shop() -> (Db, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    let db = Db::builder(&format!("sqlite:{}", path.display()))
        .max(3)
        .open()
        .await
        .unwrap();
    db.exec("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER)", ())
        .await
        .unwrap();
    (db, folder)
}

async fn count(db: &Db) -> i64 {
    db.query_as_one("SELECT count(*) FROM t", ()).await.unwrap()
}

#[tokio::test]
async fn a_transaction_commits_on_ok_and_rolls_back_on_err() -> Result<()> {
    let (db, _folder) = shop().await;
    db.transaction(async || {
        db.exec("INSERT INTO t (n) VALUES (?)", (1,)).await?;
        assert!(db.in_transaction());
        Ok(())
    })
    .await?;
    assert_eq!(count(&db).await, 1);
    let failed: Result<()> = db
        .transaction(async || {
            db.exec("INSERT INTO t (n) VALUES (?)", (2,)).await?;
            Err(cenote::Error::other("no"))
        })
        .await;
    assert_eq!(failed.unwrap_err().kind(), Kind::Other);
    assert_eq!(count(&db).await, 1);
    assert_eq!(db.status().active, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_closure_can_be_spawned() {
    let (db, _folder) = shop().await;
    let ran = Arc::new(AtomicUsize::new(0));
    let task = tokio::task::spawn({
        let (db, ran) = (db.clone(), Arc::clone(&ran));
        async move {
            let ran = &ran;
            let db = &db;
            db.transaction(async move || {
                db.exec("INSERT INTO t (n) VALUES (:n)", cenote::named! { n: 7 })
                    .await?;
                ran.fetch_add(1, Ordering::Relaxed);
                Ok(())
            })
            .await
        }
    });
    task.await.unwrap().unwrap();
    assert_eq!(count(&db).await, 1);
}

#[tokio::test]
async fn what_a_scope_leaves_open_is_rolled_back() -> Result<()> {
    let (db, _folder) = shop().await;
    cenote::scope(async {
        let tx = db.begin().await?;
        db.exec("INSERT INTO t (n) VALUES (1)", ()).await?;
        tx.exec("INSERT INTO t (n) VALUES (2)", ()).await?;
        assert_eq!(db.status().active, 1);
        drop(tx);
        Ok::<_, cenote::Error>(())
    })
    .await?;
    assert_eq!(count(&db).await, 0);
    cenote::scope(async {
        db.exec("BEGIN", ()).await?;
        db.exec("INSERT INTO t (n) VALUES (1)", ()).await?;
        assert!(db.in_transaction());
        Ok::<_, cenote::Error>(())
    })
    .await?;
    assert_eq!(count(&db).await, 0);
    Ok(())
}

#[tokio::test]
async fn savepoints_nest_and_roll_back_alone() -> Result<()> {
    let (db, _folder) = shop().await;
    db.transaction(async || {
        db.exec("INSERT INTO t (n) VALUES (1)", ()).await?;
        let inner: Result<()> = db
            .transaction(async || {
                db.exec("INSERT INTO t (n) VALUES (2)", ()).await?;
                Err(cenote::Error::other("inner"))
            })
            .await;
        assert!(inner.is_err());
        db.transaction(async || {
            db.exec("INSERT INTO t (n) VALUES (3)", ()).await?;
            Ok(())
        })
        .await
    })
    .await?;
    let ns: Vec<i64> = db.query_as("SELECT n FROM t ORDER BY n", ()).await?;
    assert_eq!(ns, [1, 3]);
    Ok(())
}

#[tokio::test]
async fn transaction_left_open_outside_coroutines_is_an_error() {
    let (db, _folder) = shop().await;
    let error = db.exec("BEGIN", ()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::LeftTransaction);
    assert_eq!(db.status().active, 0);
    let error = db.begin().await.unwrap_err();
    assert_eq!(error.kind(), Kind::NoCoroutine);
    let error = db.exec("CREATE TEMP TABLE x (n)", ()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::LeftSession);
}

#[tokio::test]
async fn a_self_deadlock_is_an_error_at_once() {
    let (db, _folder) = shop().await;
    let path = db.config().dsn.expose().to_owned();
    let db = Db::builder(&path).max(1).open().await.unwrap();
    let error = db
        .transaction(async || db.outside().exec("SELECT 1", ()).await)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Kind::SelfDeadlock, "{error}");
    assert_eq!(error.call_sites().len(), 2);
}

#[tokio::test]
async fn a_statement_keeps_its_connection_and_gives_it_back() -> Result<()> {
    let (db, _folder) = shop().await;
    cenote::scope(async {
        let first = db.prepare("INSERT INTO t (n) VALUES (?)").await?;
        let second = db.prepare("SELECT n FROM t").await?;
        assert_eq!(db.status().active, 1);
        assert_eq!(first.exec((4,)).await?.last_insert_id, Some(1));
        drop(first);
        assert_eq!(db.status().active, 1);
        let rows = second.query(()).await?;
        assert_eq!(rows[0].get::<i64>("n")?, 4);
        drop(second);
        assert_eq!(db.status().active, 0);
        assert_eq!(db.status().idle, 1);
        Ok::<_, cenote::Error>(())
    })
    .await
}

#[tokio::test]
async fn a_stream_in_a_transaction_holds_its_connection() -> Result<()> {
    let (db, _folder) = shop().await;
    for n in 0..10 {
        db.exec("INSERT INTO t (n) VALUES (?)", (n,)).await?;
    }
    db.transaction(async || {
        let mut rows = db.stream("SELECT n FROM t ORDER BY n", ()).await?;
        assert_eq!(rows.try_next().await?.unwrap().get::<i64>(0)?, 0);
        let error = db.exec("DELETE FROM t", ()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Busy);
        drop(rows);
        db.exec("DELETE FROM t WHERE n = 3", ()).await?;
        Ok(())
    })
    .await?;
    assert_eq!(count(&db).await, 9);
    Ok(())
}

#[tokio::test]
async fn a_call_takes_little_of_its_task() {
    let (db, _folder) = shop().await;
    let sizes = [
        size_of_val(&db.exec("DELETE FROM t", ())),
        size_of_val(&db.query("SELECT n FROM t", ())),
        size_of_val(&db.query_one("SELECT n FROM t", ())),
        size_of_val(&db.query_opt("SELECT n FROM t", ())),
    ];
    assert!(sizes.iter().all(|size| *size <= 576), "{sizes:?}");
}
