//! Transactions of tasks.

use cenote::{Error, Result};
use tokio::sync::Barrier;

use super::{insert, numbers, shop};
use crate::servers::soon;

/// D-pg-018c
#[tokio::test]
async fn a_statement_prepared_before_a_transaction_runs_in_it() -> Result<()> {
    let db = shop(2).await;
    cenote::scope(async {
        let statement = db.prepare("INSERT INTO t (n) VALUES (?)").await?;
        let tx = db.begin().await?;
        statement.exec((5,)).await?;
        assert_eq!(
            numbers(&db.outside()).await,
            [0_i64; 0],
            "not before the commit"
        );
        tx.commit().await
    })
    .await?;
    assert_eq!(numbers(&db).await, [5]);
    Ok(())
}

/// D-pg-014
#[tokio::test]
async fn two_tasks_at_once_each_stay_on_their_own_connection() -> Result<()> {
    let db = shop(3).await;
    let both = std::sync::Arc::new(Barrier::new(2));
    let tasks: Vec<_> = (1..=2)
        .map(|n| {
            let (db, both) = (db.clone(), both.clone());
            cenote::spawn(async move {
                let pid = "SELECT pg_backend_pid()::int8";
                let first = db.prepare(pid).await?;
                let mine: Vec<i64> = first.query_as(()).await?;
                both.wait().await;
                let second = db.prepare("SELECT pg_backend_pid()::int8 + 0").await?;
                drop(first);
                let still: Vec<i64> = second.query_as(()).await?;
                assert_eq!(mine, still);
                insert(&db, n).await?;
                both.wait().await;
                Ok::<_, Error>(mine[0])
            })
        })
        .collect();
    let mut pids = Vec::new();
    for task in tasks {
        pids.push(soon("the task ends", task).await.unwrap()?);
    }
    assert_ne!(pids[0], pids[1]);
    assert_eq!(numbers(&db).await, [1, 2]);
    Ok(())
}
