//! Connections that are killed, and queries that are dropped.

use cenote::{Db, Error, Kind, Result};

use super::{counts, insert, numbers, shop};
use crate::servers::{assert_whole, dsn, is_gone, is_running, kill, quiet, session_id, soon};

/// D-my-009, D-my-015
#[tokio::test]
async fn task_cancelled_in_a_query_ends_at_once_with_its_connection() -> Result<()> {
    let admin = Db::open(&dsn()).await?;
    let db = shop(2).await;
    let victim = session_id(&db).await;
    let inner = db.clone();
    let task = cenote::spawn(async move { inner.query("SELECT SLEEP(600)", ()).await });
    is_running(&admin, victim, "SELECT SLEEP(600)").await;
    task.abort();
    let ended = soon("the wait is over", task).await.unwrap_err();
    assert!(ended.is_cancelled());
    quiet(&db).await;
    assert_eq!(counts(&db), (0, 0, 0), "the cancelled connection is gone");
    is_gone(&admin, victim).await;
    insert(&db, 1).await?;
    assert_whole(&db).await;
    Ok(())
}

/// D-my-021a, D-my-021b
#[tokio::test]
async fn a_transaction_whose_connection_was_killed_fails_closed() -> Result<()> {
    let admin = Db::open(&dsn()).await?;
    let db = shop(2).await;
    cenote::scope(async {
        let tx = db.begin().await?;
        insert(&db, 1).await?;
        kill(&admin, session_id(&db).await).await;
        let first = insert(&db, 2).await.unwrap_err();
        assert!(first.is_connection_lost(), "{first:?}");
        for _ in 0..2 {
            let next = insert(&db, 3).await.unwrap_err();
            assert_eq!(next.kind(), Kind::TransactionLost, "{next:?}");
        }
        let ended = tx.commit().await.unwrap_err();
        assert!(ended.is_connection_lost(), "{ended:?}");
        // It is over now: the task goes on, and knows it.
        insert(&db, 4).await?;
        Ok::<(), Error>(())
    })
    .await?;
    assert_eq!(numbers(&db).await, [4], "nothing ran outside of it");
    assert_whole(&db).await;
    Ok(())
}
