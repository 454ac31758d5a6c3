//! Statements in tasks.

use cenote::{Db, Error, Result, named};

use super::{insert, numbers, shop};
use crate::servers::{dsn, soon};

/// D-my-001
#[tokio::test]
async fn a_task_connects_and_selects() -> Result<()> {
    let task = cenote::spawn(async {
        let db = Db::open(&dsn()).await?;
        db.query_as_one::<i64>("SELECT 1 + 1", ()).await
    });
    assert_eq!(soon("the task ends", task).await.unwrap()?, 2);
    Ok(())
}

/// D-my-002
#[tokio::test]
async fn prepared_insert_runs_repeatedly_and_prepared_queries_see_it() -> Result<()> {
    let db = shop(1).await;
    cenote::scope(async {
        let insert = db.prepare("INSERT INTO t (n) VALUES (:n)").await?;
        for n in [30, 10] {
            insert.exec(named! { n: n }).await?;
        }
        let first = db.prepare("SELECT n FROM t WHERE n > ? ORDER BY n").await?;
        assert_eq!(first.query_as::<i64>((15,)).await?, [30]);
        let count = db.prepare("SELECT COUNT(*) FROM t").await?;
        assert_eq!(count.query_as::<i64>(()).await?, [2]);
        Ok(())
    })
    .await
}

/// D-my-005
#[tokio::test]
async fn four_tasks_at_once_each_get_their_own_answer() -> Result<()> {
    let db = shop(4).await;
    let mut tasks = Vec::new();
    for (n, seconds) in [(1_i64, "0.1"), (2, "0.2"), (3, "0.05")] {
        let db = db.clone();
        tasks.push(cenote::spawn(async move {
            let sql = format!("SELECT {n} + SLEEP({seconds})");
            db.query_as_one::<i64>(&sql, ()).await
        }));
    }
    let inner = db.clone();
    tasks.push(cenote::spawn(async move {
        let statement = inner.prepare("SELECT ? + 0").await?;
        Ok::<_, Error>(statement.query_as::<i64>((4,)).await?[0])
    }));
    for (task, expected) in tasks.into_iter().zip(1..) {
        assert_eq!(soon("the task ends", task).await.unwrap()?, expected);
    }
    Ok(())
}

/// D-my-008
#[tokio::test]
async fn rows_are_read_by_name_by_position_as_structs_and_as_pairs() -> Result<()> {
    #[derive(serde::Deserialize, PartialEq, Debug)]
    struct Item {
        id: i64,
        n: i64,
    }
    let db = shop(1).await;
    db.exec("INSERT INTO t (id, n) VALUES (1, 10), (2, 20)", ())
        .await?;
    let sql = "SELECT id, n FROM t ORDER BY id";
    let row = db.query_one("SELECT id, n FROM t WHERE id = 2", ()).await?;
    assert_eq!((row.get::<i64>("n")?, row.get::<i64>(0)?), (20, 2));
    let items: Vec<Item> = db.query_as(sql, ()).await?;
    assert_eq!(items, [Item { id: 1, n: 10 }, Item { id: 2, n: 20 }]);
    let pairs: Vec<(i64, i64)> = db.query_as(sql, ()).await?;
    assert_eq!(pairs, [(1, 10), (2, 20)]);
    let mut stream = db.stream("SELECT n FROM t ORDER BY id", ()).await?;
    let mut column = Vec::new();
    while let Some(row) = stream.try_next().await? {
        column.push(row.get::<i64>(0)?);
    }
    assert_eq!(column, [10, 20]);
    assert_eq!(numbers(&db).await.len(), 2);
    Ok(())
}

/// D-core-014, D-core-015: the id is in the result of the insert, so nobody has to ask later.
#[tokio::test]
async fn only_inserts_return_an_id() -> Result<()> {
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
