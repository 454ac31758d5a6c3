//! Transactions of tasks.

use cenote::{Error, Result};

use crate::servers::{quiet, soon};
use crate::{insert, numbers, shop};

/// D-core-005a, D-core-005b
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

/// D-core-006
#[tokio::test]
async fn a_task_that_ends_in_a_transaction_leaves_everything_as_it_was() -> Result<()> {
    let db = shop(2).await;
    insert(&db, 1).await?;
    let inner = db.clone();
    let task = cenote::spawn(async move {
        let tx = inner.begin().await?;
        inner.exec("UPDATE t SET n = 99", ()).await?;
        std::mem::forget(tx);
        Ok::<(), Error>(())
    });
    soon("the task ends", task).await.unwrap()?;
    assert_eq!(numbers(&db).await, [1]);
    quiet(&db).await;
    // No lock of it is left: this would wait, and not for long.
    let take = "SET STATEMENT innodb_lock_wait_timeout = 0 FOR UPDATE t SET n = n + 1";
    db.exec(take, ()).await?;
    Ok(())
}

/// D-my-004
#[tokio::test]
async fn a_task_commits_rolls_back_and_sees_what_it_should() -> Result<()> {
    let db = shop(1).await;
    cenote::scope(async {
        let tx = db.begin().await?;
        insert(&db, 1).await?;
        insert(&db, 2).await?;
        assert_eq!(numbers(&db).await.len(), 2);
        tx.commit().await?;
        assert_eq!(numbers(&db).await.len(), 2);
        let tx = db.begin().await?;
        insert(&db, 3).await?;
        tx.rollback().await?;
        assert_eq!(numbers(&db).await.len(), 2);
        Ok(())
    })
    .await
}

/// D-my-012
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_transfers_at_once_both_commit_and_no_money_is_lost() -> Result<()> {
    let db = shop(2).await;
    db.exec(
        "CREATE TABLE account (id INT PRIMARY KEY, balance DECIMAL(10, 2))",
        (),
    )
    .await?;
    db.exec("INSERT INTO account VALUES (1, 100), (2, 200)", ())
        .await?;
    let transfer = |amount: &'static str| {
        let db = db.clone();
        cenote::spawn(async move {
            db.transaction(async || {
                for (id, sign) in [(1, "-"), (2, "+")] {
                    let sql = format!("UPDATE account SET balance = balance {sign} ? WHERE id = ?");
                    db.exec(&sql, (amount, id)).await?;
                }
                Ok(())
            })
            .await
        })
    };
    for task in [transfer("10"), transfer("15")] {
        soon("the task ends", task).await.unwrap()?;
    }
    let sql = "SELECT CAST(balance AS CHAR) FROM account ORDER BY id";
    let balances: Vec<String> = db.query_as(sql, ()).await?;
    assert_eq!(balances, ["75.00", "225.00"]);
    Ok(())
}
