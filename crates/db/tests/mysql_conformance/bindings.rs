//! What pins a connection to a task, and when it goes back.

use cenote::{Error, Result};

use crate::servers::thread;
use crate::{counts, insert, numbers, shop};

const ID: &str = "SELECT CONNECTION_ID()";

/// D-core-007a, D-core-007b, D-core-007c
#[tokio::test]
async fn the_numbers_follow_a_live_statement() -> Result<()> {
    let db = shop(3).await;
    assert_eq!(counts(&db), (0, 0, 0));
    cenote::scope(async {
        let statement = db.prepare(ID).await?;
        statement.query(()).await?;
        assert_eq!(counts(&db), (1, 0, 1));
        Ok::<(), Error>(())
    })
    .await?;
    assert_eq!(counts(&db), (1, 1, 0));
    Ok(())
}

/// D-core-009a, D-core-009b
#[tokio::test]
async fn live_statements_of_a_task_share_one_connection() -> Result<()> {
    let db = shop(3).await;
    cenote::scope(async {
        let one = db.prepare(ID).await?;
        let two = db.prepare("SELECT CONNECTION_ID() + 0").await?;
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

/// D-core-010a, D-core-010b
#[tokio::test]
async fn dropping_one_statement_leaves_the_other_and_its_connection() -> Result<()> {
    let db = shop(3).await;
    cenote::scope(async {
        let one = db.prepare(ID).await?;
        let mine: Vec<i64> = one.query_as(()).await?;
        let two = db.prepare("INSERT INTO t (n) VALUES (?)").await?;
        drop(one);
        two.exec((1,)).await?;
        assert_eq!(thread(&db).await, mine[0]);
        Ok::<(), Error>(())
    })
    .await?;
    assert_eq!(numbers(&db).await, [1]);
    Ok(())
}

/// D-core-011a, D-core-011b
#[tokio::test]
async fn the_connection_goes_back_with_the_last_statement() -> Result<()> {
    let db = shop(3).await;
    cenote::scope(async {
        let one = db.prepare(ID).await?;
        let two = db.prepare(ID).await?;
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

/// D-core-013a, D-core-013b
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

/// D-core-014, D-core-015: the id is in the result of the insert, so nobody has to ask later.
#[tokio::test]
async fn every_insert_tells_its_id_and_nothing_else_does() -> Result<()> {
    let db = shop(3).await;
    cenote::scope(async {
        let statement = db.prepare("INSERT INTO t (n) VALUES (?)").await?;
        let one = statement.exec((1,)).await?.last_insert_id.unwrap();
        let other = statement.exec((2,)).await?.last_insert_id.unwrap();
        assert!(other > one);
        Ok::<(), Error>(())
    })
    .await?;
    assert!(insert(&db, 3).await?.last_insert_id.is_some());
    let update = db.exec("UPDATE t SET n = 9 WHERE n = 3", ()).await?;
    assert_eq!((update.rows_affected, update.last_insert_id), (1, None));
    let nothing = db.exec("SELECT 1", ()).await?;
    assert_eq!(nothing.last_insert_id, None);
    Ok(())
}
