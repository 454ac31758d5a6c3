//! What is kept prepared on the server.

use cenote::{Db, Error, Result};

use super::{insert, shop_with};
use crate::servers::soon;

/// How many statements this connection keeps on the server whose text has this in it.
async fn kept(db: &Db, text: &str) -> Result<i64> {
    let sql = "SELECT count(*) FROM pg_prepared_statements \
               WHERE position(? in statement) > 0 AND position('pg_prepared' in statement) = 0";
    db.query_as_one(sql, (text,)).await
}

async fn three_times(db: &Db) -> Result<()> {
    for n in 1..=3_i64 {
        let twice = db.prepare("SELECT ?::int8 * 2").await?;
        assert_eq!(twice.query_as::<i64>((n,)).await?, [n * 2]);
    }
    Ok(())
}

/// D-pg-050
#[tokio::test]
async fn a_statement_that_comes_again_is_prepared_once() -> Result<()> {
    let db = shop_with(|builder| builder.max(1).statement_cache(16)).await;
    cenote::scope(async {
        for n in 1..=5_i64 {
            let twice = db.prepare("SELECT ?::int8 * 2").await?;
            assert_eq!(twice.query_as::<i64>((n,)).await?, [n * 2]);
        }
        Ok::<(), Error>(())
    })
    .await?;
    assert_eq!(kept(&db, "::int8 * 2").await?, 1);
    Ok(())
}

/// D-pg-052, D-pg-053
#[tokio::test]
async fn what_is_not_kept_leaves_nothing_on_the_server() -> Result<()> {
    let db = shop_with(|builder| builder.max(1).statement_cache(0)).await;
    cenote::scope(three_times(&db)).await?;
    assert_eq!(kept(&db, "").await?, 0);
    Ok(())
}

/// D-pg-054
#[tokio::test]
async fn kept_statements_belong_to_the_connection_and_outlive_tasks() -> Result<()> {
    let db = shop_with(|builder| builder.max(1).statement_cache(16)).await;
    let mut sum = 0;
    for n in 1..=8_i64 {
        let db = db.clone();
        let task = cenote::spawn(async move {
            let statement = db.prepare("SELECT ?::int8 + 0").await?;
            statement.query_as::<i64>((n,)).await
        });
        sum += soon("the task ends", task).await.unwrap()?[0];
    }
    assert_eq!(sum, 36);
    assert_eq!(kept(&db, "::int8 + 0").await?, 1);
    Ok(())
}

/// D-pg-055a
#[tokio::test]
async fn a_stale_plan_is_prepared_again_without_an_error() -> Result<()> {
    let db = shop_with(|builder| builder.max(1)).await;
    insert(&db, 1).await?;
    let all = "SELECT * FROM t";
    for _ in 0..3 {
        assert_eq!(db.query_one(all, ()).await?.get::<i64>("n")?, 1);
    }
    db.exec("ALTER TABLE t ALTER n TYPE text USING 'text ' || n", ())
        .await?;
    for _ in 0..2 {
        assert_eq!(db.query_one(all, ()).await?.get::<String>("n")?, "text 1");
    }
    db.exec("ALTER TABLE t DROP n, ADD b bool DEFAULT true", ())
        .await?;
    assert!(db.query_one(all, ()).await?.get::<bool>("b")?);
    // As the first statement of a transaction, too.
    db.exec("ALTER TABLE t ADD c int4 DEFAULT 7", ()).await?;
    let found = db
        .transaction(async || db.query_one(all, ()).await?.get::<i32>("c"))
        .await?;
    assert_eq!(found, 7);
    Ok(())
}
