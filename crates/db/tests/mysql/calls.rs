//! Call options, results and transaction options on a MariaDB server.

use std::time::Duration;

use cenote::{CallOptions, Db, Executor, Kind, Result};

use crate::servers::own_tables;

const TAGGED: CallOptions = CallOptions::new().tag("checkout");

async fn one_connection() -> Db {
    own_tables(|builder| builder.max(1)).await
}

/// How many statements the server keeps prepared for this session.
async fn prepared(db: &Db) -> i64 {
    let sql = "SELECT CAST(variable_value AS SIGNED) FROM information_schema.session_status
               WHERE variable_name = 'COM_STMT_PREPARE'";
    db.query_as_one(sql, ()).await.unwrap()
}

#[tokio::test]
async fn tag_is_in_the_statement_that_the_server_shows() -> Result<()> {
    let db = one_connection().await;
    let shown = "SELECT info FROM information_schema.processlist WHERE id = connection_id()";
    let sly = CallOptions::new().tag("!50000 */ x :y ?");
    for (options, wanted) in [
        (TAGGED, "/* checkout */ SELECT info"),
        (sly, "/* %2150000 %2A/ x %3Ay %3F */ SELECT info"),
        (CallOptions::new(), "SELECT info"),
    ] {
        let bare: String = db.with(options).query_as_one(shown, ()).await?;
        assert!(bare.starts_with(wanted), "{bare}");
        let with_params = format!("{shown} AND ? = 1");
        let bound: String = db.with(options).query_as_one(&with_params, (1,)).await?;
        assert!(bound.starts_with(wanted), "{bound}");
    }
    Ok(())
}

#[tokio::test]
async fn statement_without_cache_is_prepared_each_time() -> Result<()> {
    let db = one_connection().await;
    let sql = "SELECT ? + 1";
    db.query(sql, (1,)).await?;
    let before = prepared(&db).await;
    db.query(sql, (1,)).await?;
    assert_eq!(prepared(&db).await, before, "it is kept");
    for n in 1..=2 {
        db.with(CallOptions::new().no_cache())
            .query(sql, (1,))
            .await?;
        assert_eq!(prepared(&db).await, before + n);
    }
    for _ in 0..2 {
        db.with(TAGGED).query(sql, (1,)).await?;
        assert_eq!(prepared(&db).await, before + 3, "a tag is part of the key");
    }
    Ok(())
}

#[tokio::test]
async fn timeout_of_a_call_cancels_it() -> Result<()> {
    let db = own_tables(|builder| builder.max(2)).await;
    let soon = CallOptions::new().timeout(Duration::from_millis(50));
    let late = db.with(soon).query("SELECT SLEEP(600)", ()).await;
    assert_eq!(late.unwrap_err().kind(), Kind::StatementTimeout);
    assert_eq!(db.query_as_one::<i64>("SELECT 1", ()).await?, 1);
    Ok(())
}

#[tokio::test]
async fn run_returns_columns_rows_changes_and_the_last_id() -> Result<()> {
    let db = one_connection().await;
    db.exec(
        "CREATE TABLE note (id BIGINT AUTO_INCREMENT PRIMARY KEY, text TEXT)",
        (),
    )
    .await?;
    let added = db.run("INSERT INTO note (text) VALUES (?)", ("a",)).await?;
    assert_eq!((added.rows_affected, added.last_insert_id), (1, Some(1)));
    for sql in [
        "SELECT id, text FROM note WHERE id = 7",
        "SELECT id, text FROM note WHERE id = ?",
    ] {
        let params = &[7][..sql.matches('?').count()];
        let none = db.run(sql, params).await?;
        assert_eq!(none.columns()[1].name, "text");
        assert!(none.into_rows().is_empty());
    }
    Ok(())
}

#[tokio::test]
async fn run_all_returns_each_result_of_a_script() -> Result<()> {
    let db = one_connection().await;
    db.exec("CREATE TABLE t (n BIGINT AUTO_INCREMENT PRIMARY KEY)", ())
        .await?;
    let script = "INSERT INTO t VALUES (NULL), (NULL); SELECT n FROM t ORDER BY n;
                  SELECT n FROM t WHERE n > 2; DELETE FROM t WHERE n = 1";
    let all = db.run_all(script, ()).await?;
    let affected: Vec<_> = all.iter().map(|outcome| outcome.rows_affected).collect();
    assert_eq!((affected[0], affected[3], affected.len()), (2, 1, 4));
    assert_eq!(all[0].last_insert_id, Some(1));
    let columns: Vec<_> = all.iter().map(|outcome| outcome.columns().len()).collect();
    assert_eq!(columns, [0, 1, 1, 0]);
    let rows: Vec<_> = all
        .into_iter()
        .map(|outcome| outcome.into_rows().len())
        .collect();
    assert_eq!(rows, [0, 2, 0, 0]);

    let failed = db.run_all("SELECT 1; SELECT * FROM nowhere", ()).await;
    assert_eq!(failed.unwrap_err().kind(), Kind::Database);
    let one = db
        .run_all("INSERT INTO t VALUES (NULL) RETURNING n", ())
        .await?;
    assert_eq!((one.len(), one[0].rows_affected), (1, 1));
    Ok(())
}

#[tokio::test]
async fn run_all_returns_each_result_set_of_a_procedure() -> Result<()> {
    let db = one_connection().await;
    db.exec(
        "CREATE PROCEDURE two(a BIGINT, b DECIMAL(20, 2)) BEGIN
             SELECT a AS a; SELECT b AS b, a AS c; END",
        (),
    )
    .await?;
    let decimal = cenote::Value::Decimal("0.10".into());
    for executor in [Executor::from(&db), db.with(TAGGED)] {
        let bare = executor.run_all("CALL two(7, 0.10)", ()).await?;
        let bound = executor
            .run_all("CALL two(?, ?)", (7, decimal.clone()))
            .await?;
        for all in [bare, bound] {
            // The procedure itself ends with a result without columns.
            let columns: Vec<_> = all.iter().map(|outcome| outcome.columns().len()).collect();
            assert_eq!(columns, [1, 2, 0]);
            let mut rows = all.into_iter().map(cenote::Outcome::into_rows);
            assert_eq!(rows.next().unwrap()[0].get::<i64>("a")?, 7);
            assert_eq!(rows.next().unwrap()[0].get::<String>("b")?, "0.10");
        }
    }
    let wrong = db.run_all("CALL two(?, ?)", (7,)).await;
    assert_eq!(wrong.unwrap_err().kind(), Kind::Parameters);
    assert_eq!(db.query_as_one::<i64>("SELECT 1", ()).await?, 1);
    Ok(())
}

#[tokio::test]
async fn deferrable_is_refused_before_anything_begins() -> Result<()> {
    let db = one_connection().await;
    let refused = db
        .transaction_options()
        .deferrable()
        .run(async || Ok(()))
        .await;
    assert_eq!(refused.unwrap_err().kind(), Kind::Unsupported);
    db.transaction(async || db.exec("SELECT 1", ()).await)
        .await?;
    Ok(())
}

#[tokio::test]
async fn batch_runs_nothing_behind_an_implicit_commit() {
    let db = one_connection().await;
    db.exec("CREATE TABLE t (id INT PRIMARY KEY) ENGINE=InnoDB", ())
        .await
        .unwrap();
    let done = db.transaction(async || {
        let mut batch = db.batch();
        batch.exec("INSERT INTO t VALUES (11)", ());
        batch.exec("CREATE TABLE u (id INT)", ());
        let behind = batch.exec("INSERT INTO t VALUES (12)", ());
        let mut results = batch.run().await?;
        let error = results.take(behind).unwrap_err();
        assert_eq!(error.kind(), Kind::NotRun);
        assert!(error.message().contains("ended the transaction"), "{error}");
        results.check()
    });
    assert_eq!(done.await.unwrap_err().kind(), Kind::TransactionLost);
    let ids: Vec<i32> = db.query_scalar("SELECT id FROM t", ()).await.unwrap();
    assert_eq!(ids, [11]);
}

#[tokio::test]
async fn prepared_call_is_prepared_and_takes_no_script() -> Result<()> {
    let db = one_connection().await;
    let before = prepared(&db).await;
    let call = db.with(CallOptions::new().prepared());
    call.query("SELECT 1", ()).await?;
    assert_eq!(prepared(&db).await, before + 1);
    db.query("SELECT 2", ()).await?;
    assert_eq!(prepared(&db).await, before + 1);
    let error = call.exec("SELECT 1; SELECT 2", ()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Parameters);
    Ok(())
}
