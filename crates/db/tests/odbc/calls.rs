//! Call options and results by ODBC: SQLite's driver, PostgreSQL's and MariaDB's.

use std::time::Duration;

use cenote::{CallOptions, Db, Executor, Kind, Result};
use tempfile::TempDir;

use crate::sources::{mariadb_dsn, own_database, own_schema, postgres_dsn, sqlite_dsn};

const TAGGED: CallOptions = CallOptions::new().tag("check?out: 'x'");

/// A handle with one connection for each driver, and the folder of SQLite's file.
async fn all() -> ([Db; 3], TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let dsns = [
        sqlite_dsn(&folder.path().join("calls.db")),
        own_schema(&postgres_dsn()).await,
        own_database(&mariadb_dsn()).await,
    ];
    let open = async |dsn: &str| {
        let db = Db::builder(dsn).max(1).open().await.unwrap();
        db.exec("CREATE TABLE t (n BIGINT)", ()).await.unwrap();
        db
    };
    let dbs = [
        open(&dsns[0]).await,
        open(&dsns[1]).await,
        open(&dsns[2]).await,
    ];
    (dbs, folder)
}

#[tokio::test]
async fn options_change_no_result() -> Result<()> {
    let (dbs, _folder) = all().await;
    for db in &dbs {
        let minute = Duration::from_secs(60);
        for executor in [
            Executor::from(db),
            db.with(TAGGED),
            db.with(TAGGED.no_cache().timeout(minute)),
        ] {
            for _ in 0..2 {
                executor.exec("INSERT INTO t VALUES (?)", (7,)).await?;
                let out = executor
                    .run("SELECT n FROM t WHERE n = :n", cenote::named! { n: 7 })
                    .await?;
                assert_eq!(out.columns()[0].name, "n");
                assert_eq!(out.into_rows()[0].get::<i64>(0)?, 7);
            }
        }
        let count: i64 = db
            .with(TAGGED)
            .query_as_one("SELECT count(*) FROM t", ())
            .await?;
        assert_eq!(count, 6);
        let none = db
            .with(TAGGED)
            .run("SELECT n FROM t WHERE n = ?", (8,))
            .await?;
        assert_eq!((none.columns().len(), none.into_rows().len()), (1, 0));
    }
    Ok(())
}

#[tokio::test]
async fn run_all_returns_each_result_of_a_script() -> Result<()> {
    let (dbs, _folder) = all().await;
    for db in &dbs {
        let script =
            "INSERT INTO t VALUES (1); INSERT INTO t VALUES (2); SELECT n FROM t ORDER BY n;
                      SELECT n FROM t WHERE n = 7";
        let all = db.run_all(script, ()).await?;
        let columns: Vec<_> = all.iter().map(|outcome| outcome.columns().len()).collect();
        assert_eq!(columns, [0, 0, 1, 1]);
        assert_eq!(all[0].rows_affected, 1);
        let rows = all.into_iter().nth(2).unwrap().into_rows();
        assert_eq!(rows[1].get::<i64>("n")?, 2);
        let one = db.run_all("SELECT n FROM t WHERE n = ?", (2,)).await?;
        assert_eq!(one.into_iter().next().unwrap().into_rows().len(), 1);
        let failed = db
            .run_all("SELECT n FROM t; SELECT n FROM nowhere", ())
            .await;
        assert_eq!(failed.unwrap_err().kind(), Kind::Database);
    }
    Ok(())
}

#[tokio::test]
async fn run_all_returns_each_result_set_of_a_procedure() -> Result<()> {
    let (dbs, _folder) = all().await;
    let [_, _, mariadb] = &dbs;
    let create = "CREATE PROCEDURE two(a BIGINT) BEGIN SELECT a AS a; SELECT a + 1 AS b; END";
    mariadb.exec(create, ()).await?;
    let all = mariadb.run_all("CALL two(?)", (7,)).await?;
    let mut rows = all.into_iter().map(cenote::Outcome::into_rows);
    assert_eq!(rows.next().unwrap()[0].get::<i64>("a")?, 7);
    assert_eq!(rows.next().unwrap()[0].get::<i64>("b")?, 8);
    Ok(())
}

#[tokio::test]
async fn deferrable_is_refused() {
    let (dbs, _folder) = all().await;
    for db in &dbs {
        let refused = db
            .transaction_options()
            .deferrable()
            .run(async || Ok(()))
            .await;
        assert_eq!(refused.unwrap_err().kind(), Kind::Unsupported);
    }
}
