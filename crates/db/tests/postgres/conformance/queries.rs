//! Statements in tasks.

use cenote::{Db, Error, Result, named};

use super::{insert, numbers, shop};
use crate::servers::{dsn, session_id, soon, unique, until};

/// D-pg-002a, D-pg-s001
#[tokio::test]
async fn a_task_inserts_selects_in_order_and_asks_by_name() -> Result<()> {
    let db = shop(3).await;
    let inner = db.clone();
    let task = cenote::spawn(async move {
        let sql = "INSERT INTO t (n) VALUES (?), (?), (?)";
        assert_eq!(inner.exec(sql, (30, 10, 20)).await?.rows_affected, 3);
        assert_eq!(numbers(&inner).await, [10, 20, 30]);
        let above = inner
            .prepare("SELECT n FROM t WHERE n > :least ORDER BY n")
            .await?;
        let found: Vec<i64> = above.query_as(named! { least: 15 }).await?;
        Ok::<_, Error>(found)
    });
    assert_eq!(soon("the task ends", task).await.unwrap()?, [20, 30]);
    assert_eq!(numbers(&db).await.len(), 3);
    Ok(())
}

/// D-pg-002b, D-pg-s002
#[tokio::test]
async fn tasks_with_handles_of_their_own_each_get_their_own_answer() {
    let tasks: Vec<_> = (1..=3_i64)
        .map(|n| {
            cenote::spawn(async move {
                let db = Db::builder(&dsn()).unpooled().open().await?;
                let sql = "SELECT ?::int8 * 100 + 0 * (SELECT 1 FROM pg_sleep(0.02))::int8";
                db.query_as_one::<i64>(sql, (n,)).await
            })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(soon("the task ends", task).await.unwrap().unwrap());
    }
    assert_eq!(answers, [100, 200, 300]);
}

/// D-pg-004a, D-pg-004b
#[tokio::test]
async fn a_stream_gives_all_rows_in_order_and_its_connection_goes_on() -> Result<()> {
    let db = shop(1).await;
    let rows = (1..=10_i64).map(|n| (n,));
    db.exec_many("INSERT INTO t (n) VALUES (?)", rows).await?;
    let connection = db.connection().await?;
    let mut stream = connection.stream("SELECT n FROM t ORDER BY id", ()).await?;
    let mut seen = Vec::new();
    while let Some(row) = stream.try_next().await? {
        seen.push(row.get::<i64>("n")?);
    }
    assert_eq!(seen, (1..=10).collect::<Vec<_>>());
    drop(stream);
    let count: i64 = connection
        .query_as_one("SELECT count(*) FROM t", ())
        .await?;
    assert_eq!(count, 10);
    let all = connection.query("SELECT n FROM t ORDER BY n", ()).await?;
    assert_eq!(all.len(), 10);
    Ok(())
}

/// D-pg-s003
#[tokio::test]
async fn concurrent_statements_take_parameters_by_name_and_position() -> Result<()> {
    let db = shop(2).await;
    for n in 1..=4 {
        insert(&db, n).await?;
    }
    cenote::scope(async {
        let by_name = db
            .prepare("SELECT n FROM t WHERE n BETWEEN :a AND :b ORDER BY n")
            .await?;
        let by_position = db
            .prepare("SELECT n FROM t WHERE n = ? OR n = ? ORDER BY n")
            .await?;
        for _ in 0..2 {
            let found: Vec<i64> = by_name.query_as(named! { b: 3, a: 2 }).await?;
            assert_eq!(found, [2, 3]);
            let found: Vec<i64> = by_position.query_as((4, 1)).await?;
            assert_eq!(found, [1, 4]);
        }
        Ok(())
    })
    .await
}

/// D-pg-s005
#[tokio::test]
async fn exec_returns_affected_rows_and_returning_the_new_ids() -> Result<()> {
    let db = shop(2).await;
    let one = insert(&db, 1).await?;
    assert_eq!((one.rows_affected, one.last_insert_id), (1, None));
    let two = db.exec("INSERT INTO t (n) VALUES (2), (3)", ()).await?;
    assert_eq!((two.rows_affected, two.last_insert_id), (2, None));
    let sql = "INSERT INTO t (n) VALUES (?) RETURNING id";
    let first: i64 = db.query_as_one(sql, (4,)).await?;
    let next: i64 = db.query_as_one(sql, (5,)).await?;
    assert!(next > first && first > 3);
    assert_eq!(numbers(&db).await.len(), 5);
    Ok(())
}

/// D-pg-s006
#[tokio::test]
async fn three_slow_queries_run_at_the_same_time() {
    let db = shop(3).await;
    let admin = Db::open(&dsn()).await.unwrap();
    let mark = unique("slow");
    let tasks: Vec<_> = (0..3)
        .map(|_| {
            let (db, mark) = (db.clone(), mark.clone());
            cenote::spawn(async move {
                let sql = format!("SELECT pg_sleep(600) AS {mark}");
                db.query(&sql, ()).await.map(drop)
            })
        })
        .collect();
    until("all three run at once", async || {
        let sql = "SELECT count(*) FROM pg_stat_activity \
                   WHERE state = 'active' AND pid <> pg_backend_pid() AND query LIKE ?";
        let like = format!("%{mark}%");
        let running: i64 = admin.query_as_one(sql, (&*like,)).await.unwrap();
        running == 3
    })
    .await;
    for task in &tasks {
        task.abort();
    }
    crate::servers::quiet(&db).await;
    assert!(session_id(&db).await > 0);
}
