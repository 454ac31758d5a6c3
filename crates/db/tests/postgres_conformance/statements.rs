//! Statements that live, and what they pin.

use cenote::{Error, Result};

use crate::servers::{backend, soon};
use crate::{counts, insert, numbers, shop};

const PID: &str = "SELECT pg_backend_pid()::int8";

/// D-pg-011
#[tokio::test]
async fn live_statements_of_a_task_share_one_backend() -> Result<()> {
    let db = shop(3).await;
    cenote::scope(async {
        let one = db.prepare(PID).await?;
        let two = db.prepare("SELECT pg_backend_pid()::int8 + 0").await?;
        let pids: (Vec<i64>, Vec<i64>) = (one.query_as(()).await?, two.query_as(()).await?);
        assert_eq!(pids.0, pids.1);
        let insert = db.prepare("INSERT INTO t (n) VALUES (?)").await?;
        let select = db.prepare("SELECT n FROM t").await?;
        insert.exec((7,)).await?;
        assert_eq!(select.query_as::<i64>(()).await?, [7]);
        assert_eq!(db.status().total, 1);
        Ok(())
    })
    .await
}

/// D-pg-012
#[tokio::test]
async fn dropping_one_statement_leaves_the_other_and_its_backend() -> Result<()> {
    let db = shop(3).await;
    cenote::scope(async {
        let one = db.prepare(PID).await?;
        let mine: Vec<i64> = one.query_as(()).await?;
        let two = db.prepare("INSERT INTO t (n) VALUES (?)").await?;
        drop(one);
        two.exec((1,)).await?;
        assert_eq!(backend(&db).await, mine[0]);
        Ok::<(), Error>(())
    })
    .await?;
    assert_eq!(numbers(&db).await, [1]);
    Ok(())
}

/// D-pg-013
#[tokio::test]
async fn the_connection_goes_back_with_the_last_statement() -> Result<()> {
    let db = shop(3).await;
    assert_eq!(db.status().idle, 0);
    cenote::scope(async {
        let one = db.prepare(PID).await?;
        let two = db.prepare(PID).await?;
        assert_eq!(db.status().idle, 0);
        drop(one);
        assert_eq!(db.status().idle, 0);
        drop(two);
        assert_eq!(db.status().idle, 1);
        Ok::<(), Error>(())
    })
    .await?;
    assert_eq!(db.status().idle, 1);
    Ok(())
}

/// D-pg-018a
#[tokio::test]
async fn a_prepared_insert_and_a_prepared_select_work_through_the_pool() -> Result<()> {
    let db = shop(2).await;
    let inner = db.clone();
    let task = cenote::spawn(async move {
        let insert = inner.prepare("INSERT INTO t (n) VALUES (:n)").await?;
        for n in 1..=3 {
            insert.exec(cenote::named! { n: n }).await?;
        }
        let select = inner
            .prepare("SELECT n FROM t WHERE n >= ? ORDER BY n")
            .await?;
        select.query_as::<i64>((2,)).await
    });
    assert_eq!(soon("the task ends", task).await.unwrap()?, [2, 3]);
    Ok(())
}

/// D-pg-018b
#[tokio::test]
async fn a_prepared_statement_without_rows_sets_the_session_of_its_task_only() -> Result<()> {
    let db = shop(1).await;
    let setting = "SELECT current_setting('work_mem')";
    let before: String = db.query_as_one(setting, ()).await?;
    cenote::scope(async {
        let set = db.prepare("SET work_mem = '77kB'").await?;
        set.exec(()).await?;
        assert_eq!(db.query_as_one::<String>(setting, ()).await?, "77kB");
        Ok::<(), Error>(())
    })
    .await?;
    assert_eq!(db.query_as_one::<String>(setting, ()).await?, before);
    Ok(())
}

/// D-pg-018d
#[tokio::test]
async fn two_tasks_that_prepare_at_once_both_store_their_rows() -> Result<()> {
    let db = shop(2).await;
    let tasks: Vec<_> = (1..=2)
        .map(|n| {
            let db = db.clone();
            cenote::spawn(async move {
                let insert = db.prepare("INSERT INTO t (n) VALUES (?)").await?;
                insert.exec((n,)).await.map(drop)
            })
        })
        .collect();
    for task in tasks {
        soon("the task ends", task).await.unwrap()?;
    }
    assert_eq!(numbers(&db).await, [1, 2]);
    Ok(())
}

/// D-pg-009
#[tokio::test]
async fn the_numbers_follow_a_live_statement() -> Result<()> {
    let db = shop(3).await;
    assert_eq!(counts(&db), (0, 0, 0));
    cenote::scope(async {
        let statement = db.prepare(PID).await?;
        statement.query(()).await?;
        assert_eq!(counts(&db), (1, 0, 1));
        Ok::<(), Error>(())
    })
    .await?;
    assert_eq!(counts(&db), (1, 1, 0));
    insert(&db, 1).await?;
    assert_eq!(counts(&db), (1, 1, 0));
    Ok(())
}
