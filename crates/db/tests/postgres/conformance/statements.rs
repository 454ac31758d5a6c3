//! Prepared statements.

use cenote::{Error, Result};

use super::{numbers, shop};
use crate::servers::soon;

/// D-pg-018a
#[tokio::test]
async fn prepared_insert_and_prepared_select_work_through_the_pool() -> Result<()> {
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
async fn prepared_session_change_affects_only_its_task() -> Result<()> {
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
