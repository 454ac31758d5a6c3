//! Transactions of tasks.

use cenote::Result;

use super::{insert, numbers, shop};
use crate::servers::soon;

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
