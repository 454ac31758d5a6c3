//! Transactions of tasks.

use cenote::{Error, Result};

use crate::servers::{lock_all, quiet, soon};

use super::{insert, numbers, shop};

/// D-core-005a, D-core-005b; D-pg-007, D-pg-s004
#[tokio::test]
async fn of_two_transactions_only_the_committed_one_stays() -> Result<()> {
    let db = shop(3).await;
    let task = |n: i64, commits: bool| {
        let db = db.clone();
        cenote::spawn(async move {
            assert!(!db.in_transaction());
            let tx = db.begin().await?;
            insert(&db, n).await?;
            assert!(db.in_transaction());
            match commits {
                true => tx.commit().await?,
                false => tx.rollback().await?,
            }
            assert!(!db.in_transaction());
            Ok::<(), Error>(())
        })
    };
    for task in [task(1, true), task(2, false)] {
        soon("the task ends", task).await.unwrap()?;
    }
    assert_eq!(numbers(&db).await, [1]);
    Ok(())
}

/// D-core-006; D-pg-008, D-pg-025
#[tokio::test]
async fn task_that_ends_in_a_transaction_leaves_everything_unchanged() -> Result<()> {
    let db = shop(2).await;
    insert(&db, 1).await?;
    let inner = db.clone();
    let task = cenote::spawn(async move {
        let tx = inner.begin().await?;
        inner.exec("UPDATE t SET n = 99", ()).await?;
        insert(&inner, 2).await?;
        std::mem::forget(tx);
        Ok::<(), Error>(())
    });
    soon("the task ends", task).await.unwrap()?;
    assert_eq!(numbers(&db).await, [1]);
    quiet(&db).await;
    lock_all(&db).await.expect("no lock of it is left");
    Ok(())
}
