//! Statements that live, and what they pin.

use cenote::{Error, Result};

use crate::servers::{SESSION_ID, session_id};

use super::{counts, insert, numbers, shop};

/// D-core-007a, D-core-007b, D-core-007c; D-pg-009
#[tokio::test]
async fn the_numbers_follow_a_live_statement() -> Result<()> {
    let db = shop(3).await;
    assert_eq!(counts(&db), (0, 0, 0));
    cenote::scope(async {
        let statement = db.prepare(SESSION_ID).await?;
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

/// D-core-009a, D-core-009b; D-pg-011
#[tokio::test]
async fn live_statements_of_a_task_share_one_connection() -> Result<()> {
    let db = shop(3).await;
    cenote::scope(async {
        let one = db.prepare(SESSION_ID).await?;
        let two = db.prepare(&format!("{SESSION_ID} + 0")).await?;
        let ids: (Vec<i64>, Vec<i64>) = (one.query_as(()).await?, two.query_as(()).await?);
        assert_eq!(ids.0, ids.1);
        let insert = db.prepare("INSERT INTO t (n) VALUES (?)").await?;
        let select = db.prepare("SELECT n FROM t").await?;
        insert.exec((7,)).await?;
        assert_eq!(select.query_as::<i64>(()).await?, [7]);
        assert_eq!(db.status().total, 1);
        Ok(())
    })
    .await
}

/// D-core-010a, D-core-010b; D-pg-012
#[tokio::test]
async fn dropping_one_statement_leaves_the_other_and_its_connection() -> Result<()> {
    let db = shop(3).await;
    cenote::scope(async {
        let one = db.prepare(SESSION_ID).await?;
        let mine: Vec<i64> = one.query_as(()).await?;
        let two = db.prepare("INSERT INTO t (n) VALUES (?)").await?;
        drop(one);
        two.exec((1,)).await?;
        assert_eq!(session_id(&db).await, mine[0]);
        Ok::<(), Error>(())
    })
    .await?;
    assert_eq!(numbers(&db).await, [1]);
    Ok(())
}

/// D-core-011a, D-core-011b; D-pg-013
#[tokio::test]
async fn the_connection_goes_back_with_the_last_statement() -> Result<()> {
    let db = shop(3).await;
    cenote::scope(async {
        let one = db.prepare(SESSION_ID).await?;
        let two = db.prepare(SESSION_ID).await?;
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

/// D-core-013a, D-core-013b; D-pg-015
#[tokio::test]
async fn a_transaction_keeps_its_connection_when_its_statements_go() -> Result<()> {
    let db = shop(3).await;
    cenote::scope(async {
        let tx = db.begin().await?;
        let one = db.prepare("INSERT INTO t (n) VALUES (?)").await?;
        let two = db.prepare("INSERT INTO t (n) VALUES (? + 1)").await?;
        one.exec((1,)).await?;
        two.exec((1,)).await?;
        drop((one, two));
        assert_eq!(db.status().idle, 0);
        insert(&db, 3).await?;
        tx.commit().await?;
        assert_eq!(db.status().idle, 1);
        Ok::<(), Error>(())
    })
    .await?;
    assert_eq!(numbers(&db).await, [1, 2, 3]);
    Ok(())
}
