//! What is kept prepared on the server.

use cenote::{Db, Error, Result};

use super::shop_with;
use crate::servers::soon;

/// How many statements of this session the server has prepared, or closed. Not by SHOW, which counts as
/// touching the session: then nothing is kept any more.
async fn counted(db: &Db, name: &str) -> Result<u64> {
    let sql = format!(
        "SELECT CAST(VARIABLE_VALUE AS UNSIGNED) FROM information_schema.SESSION_STATUS \
         WHERE VARIABLE_NAME = '{name}'"
    );
    db.query_as_one(&sql, ()).await
}

async fn prepared(db: &Db) -> Result<u64> {
    counted(db, "COM_STMT_PREPARE").await
}

async fn twice(db: &Db, n: i64) -> Result<()> {
    let twice = db.prepare("SELECT ? * 2").await?;
    assert_eq!(twice.query_as::<i64>((n,)).await?, [n * 2]);
    Ok(())
}

/// D-my-050
#[tokio::test]
async fn a_statement_that_comes_again_is_prepared_once() -> Result<()> {
    let db = shop_with(|builder| builder.max(1).statement_cache(16)).await;
    for n in 1..=5 {
        cenote::scope(twice(&db, n)).await?;
    }
    assert_eq!(prepared(&db).await?, 1);
    Ok(())
}

/// D-my-051: exactly the one that had to go is prepared again.
#[tokio::test]
async fn full_statement_cache_evicts_the_least_recently_used() -> Result<()> {
    let db = shop_with(|builder| builder.max(1).statement_cache(2)).await;
    let run = async |n: i64| {
        let sql = format!("SELECT ? + {n}");
        db.query_as_one::<i64>(&sql, (1,)).await
    };
    cenote::scope(async {
        for n in [1, 2, 3] {
            run(n).await?;
        }
        assert_eq!(prepared(&db).await?, 3);
        for n in [2, 3] {
            run(n).await?;
        }
        assert_eq!(prepared(&db).await?, 3);
        run(1).await?;
        assert_eq!(prepared(&db).await?, 4);
        Ok(())
    })
    .await
}

/// D-my-052
#[tokio::test]
async fn what_is_not_kept_is_prepared_each_time_and_leaves_nothing() -> Result<()> {
    let db = shop_with(|builder| builder.max(1).statement_cache(0)).await;
    cenote::scope(async {
        for n in 1..=4_i64 {
            let got: i64 = db.query_as_one("SELECT ? * 2", (n,)).await?;
            assert_eq!(got, n * 2);
        }
        assert_eq!(prepared(&db).await?, 4);
        assert_eq!(counted(&db, "COM_STMT_CLOSE").await?, 4);
        Ok(())
    })
    .await
}

/// D-my-053
#[tokio::test]
async fn a_statement_without_parameters_is_prepared_nowhere() -> Result<()> {
    let db = shop_with(|builder| builder.max(1).statement_cache(16)).await;
    for _ in 0..4 {
        assert_eq!(db.query_as_one::<i64>("SELECT 6 * 7", ()).await?, 42);
    }
    assert_eq!(prepared(&db).await?, 0);
    Ok(())
}

/// Of the contract of the cache: 64 tasks with one statement on 8 connections need 8 of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_connection_prepares_a_statement_once_for_all_tasks() -> Result<()> {
    let db = shop_with(|builder| builder.max(8)).await;
    let tasks: Vec<_> = (0..64_i64)
        .map(|n| {
            let db = db.clone();
            cenote::spawn(async move {
                for round in 0..100 {
                    let got: i64 = db.query_as_one("SELECT ? + ?", (n, round)).await?;
                    assert_eq!(got, n + round);
                }
                Ok::<(), Error>(())
            })
        })
        .collect();
    for task in tasks {
        soon("the task ends", task).await.unwrap()?;
    }
    let mut held = Vec::new();
    for _ in 0..db.status().total {
        held.push(db.connection().await?);
    }
    assert!(held.len() <= 8);
    for connection in &held {
        let row = connection
            .query_one("SHOW SESSION STATUS LIKE 'Com_stmt_prepare'", ())
            .await?;
        assert_eq!(row.get::<String>(1)?, "1");
    }
    Ok(())
}
