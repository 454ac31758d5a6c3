//! What a refused statement tells, and whom.

use std::sync::Arc;

use cenote::{Db, Error, Kind, Result, Violation};
use tokio::sync::Barrier;

use super::{insert, shop};
use crate::servers::{free_port, session_id, soon};

/// D-core-016, D-core-017a, D-core-017b, D-core-029a, D-core-029c
#[tokio::test]
async fn an_error_has_sqlstate_native_code_and_message() {
    let db = shop(3).await;
    cenote::scope(async {
        let error = db.exec("DELETE FROM missing", ()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Database);
        assert_eq!(
            (error.sql_state(), error.code()),
            (Some("42S02"), Some(1146))
        );
        assert_eq!(error.violation(), Some(Violation::Undefined));
        assert!(error.message().contains("missing"), "{error}");
        assert!(error.to_string().contains("1146"), "{error}");
        assert_eq!(db.status().active, 0);
        // Though nothing is bound any more.
        assert_eq!(db.last_sql_state(), "42S02");
        assert_eq!(db.last_error().unwrap().code(), Some(1146));
        let error = db.query("SELECT * FROM missing", ()).await.unwrap_err();
        assert_eq!(error.code(), Some(1146));
    })
    .await;
    assert_eq!(db.status().active, 0);
}

/// D-core-019a, D-core-019b, D-my-014a, D-my-014b
#[tokio::test]
async fn an_error_is_seen_by_its_own_task_and_by_no_other() {
    let db = shop(1).await;
    let inner = db.clone();
    let fails = cenote::spawn(async move {
        inner.exec("DELETE FROM missing", ()).await.unwrap_err();
        assert_eq!(inner.last_sql_state(), "42S02");
        session_id(&inner.outside()).await
    });
    let id = soon("the task ends", fails).await.unwrap();
    let inner = db.clone();
    let other = cenote::spawn(async move {
        assert_eq!(inner.last_sql_state(), "00000");
        assert!(inner.last_error().is_none());
        let same = session_id(&inner).await;
        assert_eq!(inner.last_sql_state(), "00000");
        same
    });
    assert_eq!(soon("the task ends", other).await.unwrap(), id);
}

/// D-core-020
#[tokio::test]
async fn the_error_state_on_a_fresh_connection_is_00000() -> Result<()> {
    let db = shop(5).await;
    let all = Arc::new(Barrier::new(5));
    let tasks: Vec<_> = (0..5)
        .map(|_| {
            let (db, all) = (db.clone(), Arc::clone(&all));
            cenote::spawn(async move {
                let _pin = db.pin().await?;
                all.wait().await;
                db.query("SELECT 1", ()).await?;
                Ok::<_, Error>((db.last_sql_state(), db.last_error().is_none()))
            })
        })
        .collect();
    for task in tasks {
        let told = soon("the task ends", task).await.unwrap()?;
        assert_eq!(told, ("00000".to_owned(), true));
    }
    assert_eq!(db.status().total, 5);
    Ok(())
}

/// D-core-021a, D-core-021b
#[tokio::test]
async fn failed_calls_keep_no_connection() -> Result<()> {
    let db = shop(3).await;
    cenote::scope(async {
        for _ in 0..6 {
            db.query("SELECT * FROM missing", ()).await.unwrap_err();
            db.prepare("SELECT * FROM missing").await.unwrap_err();
            assert_eq!(db.status().active, 0);
        }
        assert_eq!(db.status().total, 1);
        insert(&db, 1).await.map(drop)
    })
    .await
}

/// D-my-007a, D-my-007b, D-my-007c, D-my-007d
#[tokio::test]
async fn errors_of_all_kinds_reach_their_tasks_and_disturb_no_other() {
    let db = shop(4).await;
    let spawn = |sql: &'static str| {
        let db = db.clone();
        cenote::spawn(async move { db.query(sql, ()).await.unwrap_err() })
    };
    let (wrong, missing) = (spawn("SELEC 1"), spawn("SELECT * FROM missing"));
    let inner = db.clone();
    let twice = cenote::spawn(async move {
        let insert = inner
            .prepare("INSERT INTO t (id, n) VALUES (?, 1)")
            .await
            .unwrap();
        insert.exec((5,)).await.unwrap();
        insert.exec((5,)).await.unwrap_err()
    });
    let nowhere = cenote::spawn(async move {
        let dsn = format!("mysql:host=127.0.0.1;port={};user=a", free_port());
        let db = Db::open(&dsn).await.unwrap();
        db.ping().await.unwrap_err()
    });
    let wrong = soon("the task ends", wrong).await.unwrap();
    assert_eq!(
        (wrong.code(), wrong.violation()),
        (Some(1064), Some(Violation::Syntax))
    );
    let missing = soon("the task ends", missing).await.unwrap();
    assert_eq!(missing.code(), Some(1146));
    let twice = soon("the task ends", twice).await.unwrap();
    assert!(twice.is_unique_violation());
    assert_eq!(twice.sql_state(), Some("23000"));
    let nowhere = soon("the task ends", nowhere).await.unwrap();
    assert_eq!(nowhere.kind(), Kind::Connect);
}
