//! Where ODBC does not tell: transactions that a text begins, errors in a transaction, sessions.

use cenote::{Db, Error, Isolation, Kind, Result, TransactionOptions};

use super::{mariadb, postgres, quiet, sources};
use crate::sources::{own_schema, postgres_dsn};

#[tokio::test]
async fn begin_in_sql_outside_of_coroutines_is_an_error_and_undone() {
    for source in sources(|builder| builder.max(1)).await {
        let db = &source.db;
        db.exec("CREATE TABLE t (n INTEGER)", ()).await.unwrap();
        let error = db.exec("BEGIN", ()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::LeftTransaction, "{error:?}");
        quiet(db).await;
        db.exec("INSERT INTO t VALUES (1)", ()).await.unwrap();
        db.replace_all();
        let rows: Vec<i64> = db.query_as("SELECT n FROM t", ()).await.unwrap();
        assert_eq!(rows, [1], "it was committed by itself");
    }
}

/// Without the database's dialect, its quotes hide what is between them.
#[tokio::test]
async fn a_begin_that_cannot_be_seen_in_a_text_leaves_nothing_behind() {
    let source = postgres(|builder| builder.max(1)).await;
    let db = source.db;
    let hidden = "SELECT $$'$$; BEGIN; SELECT $$'$$";
    db.exec(hidden, ()).await.unwrap();
    quiet(&db).await;
    let now = "SELECT CAST(now() AS TEXT)";
    let earlier: String = db.query_as_one(now, ()).await.unwrap();
    let later: String = db.query_as_one(now, ()).await.unwrap();
    assert_ne!(earlier, later, "the clock of a transaction stands still");
}

/// For MariaDB, `\'` ends no string.
#[tokio::test]
async fn a_set_that_cannot_be_seen_in_a_text_leaves_nothing_behind() {
    let db = mariadb(|builder| builder.max(1)).await;
    let hidden = r"SELECT '\''; SET @leak = 1; SELECT '\''";
    db.exec(hidden, ()).await.unwrap();
    let left: Option<i64> = db.query_as_one("SELECT @leak", ()).await.unwrap();
    assert_eq!(left, None);
    let lost = db
        .transaction(async || {
            let hidden = r"CREATE TABLE u (n INT) COMMENT '\''; SET @leak = 1; SELECT '\''";
            db.exec(hidden, ()).await
        })
        .await;
    lost.unwrap_err();
    let left: Option<i64> = db.query_as_one("SELECT @leak", ()).await.unwrap();
    assert_eq!(left, None);
}

#[tokio::test]
async fn call_that_commits_and_fails_loses_its_transaction() {
    let db = mariadb(|builder| builder.max(1).option("dialect", "mysql")).await;
    db.exec("CREATE TABLE t (n INTEGER)", ()).await.unwrap();
    let sql = "CREATE PROCEDURE sly () BEGIN COMMIT; SIGNAL SQLSTATE '45000'; END";
    db.exec(sql, ()).await.unwrap();
    for streamed in [false, true] {
        let lost = db
            .transaction(async || {
                db.exec("INSERT INTO t VALUES (1)", ()).await?;
                let failed = match streamed {
                    true => db.stream("CALL sly()", ()).await.map(drop),
                    false => db.exec("CALL sly()", ()).await.map(drop),
                };
                assert_eq!(failed.unwrap_err().sql_state(), Some("45000"));
                db.exec("INSERT INTO t VALUES (2)", ()).await
            })
            .await;
        assert_eq!(lost.unwrap_err().kind(), Kind::TransactionLost);
    }
    let rows: Vec<i64> = db.query_as("SELECT n FROM t", ()).await.unwrap();
    assert_eq!(rows, [1, 1], "it has committed these");
}

#[tokio::test]
async fn commit_invisible_in_the_sql_fails_the_transaction_around_it() {
    for (db, hidden) in [
        (
            postgres(|builder| builder.max(2)).await.db,
            "SELECT $$'$$; COMMIT; SELECT $$'$$",
        ),
        (
            mariadb(|builder| builder.max(2)).await,
            r"SELECT '\''; COMMIT; SELECT '\''",
        ),
    ] {
        db.exec("CREATE TABLE t (n INTEGER)", ()).await.unwrap();
        let ended = db
            .transaction(async || {
                db.exec("INSERT INTO t VALUES (1)", ()).await?;
                let _ = db.exec(hidden, ()).await;
                let next = db.exec("INSERT INTO t VALUES (2)", ()).await;
                assert_eq!(next.unwrap_err().sql_state(), Some("25P02"));
                Ok(())
            })
            .await;
        ended.unwrap_err();
        quiet(&db).await;
        let rows: Vec<i64> = db.query_as("SELECT n FROM t", ()).await.unwrap();
        assert!(!rows.contains(&2), "{rows:?}");
    }
}

#[tokio::test]
async fn create_that_commits_ends_the_transaction_around_it() {
    let db = mariadb(|builder| builder.max(1)).await;
    db.exec("CREATE TABLE t (n INTEGER)", ()).await.unwrap();
    for create in [
        r"SELECT '\''; CREATE TABLE hidden (n INTEGER); SELECT '\''",
        "CREATE TABLE u (n INTEGER)",
        "CREATE TABLE v (n INTEGER); INSERT INTO t VALUES (3)",
    ] {
        let ended = db
            .transaction(async || {
                db.exec("INSERT INTO t VALUES (1)", ()).await?;
                let _ = db.exec(create, ()).await;
                let after = db.exec("INSERT INTO t VALUES (2)", ()).await;
                assert_eq!(after.unwrap_err().kind(), Kind::TransactionLost);
                Ok(())
            })
            .await;
        assert_eq!(ended.unwrap_err().kind(), Kind::TransactionLost);
    }
    let rows: Vec<i64> = db.query_as("SELECT n FROM t", ()).await.unwrap();
    assert_eq!(rows, [1, 1, 1], "the CREATEs have committed these");
}

#[tokio::test]
async fn savepoint_in_sql_leaves_a_transaction_open() {
    let db = mariadb(|builder| builder.max(1)).await;
    db.exec("CREATE TABLE t (n INTEGER)", ()).await.unwrap();
    db.transaction(async || {
        db.exec("INSERT INTO t VALUES (1)", ()).await?;
        db.exec("SAVEPOINT mine", ()).await?;
        db.exec("INSERT INTO t VALUES (2)", ()).await?;
        db.exec("ROLLBACK TO SAVEPOINT mine", ()).await.map(drop)
    })
    .await
    .unwrap();
    let rows: Vec<i64> = db.query_as("SELECT n FROM t", ()).await.unwrap();
    assert_eq!(rows, [1]);
}

#[tokio::test]
async fn a_begin_in_a_text_belongs_to_its_coroutine_and_ends_with_it() {
    for source in sources(|builder| builder.max(2)).await {
        let db = &source.db;
        db.exec("CREATE TABLE t (n INTEGER)", ()).await.unwrap();
        cenote::scope(async {
            db.exec("BEGIN", ()).await.unwrap();
            db.exec("INSERT INTO t VALUES (1)", ()).await.unwrap();
            let own: i64 = db.query_as_one("SELECT count(*) FROM t", ()).await.unwrap();
            assert_eq!(own, 1, "it runs where the transaction is");
        })
        .await;
        quiet(db).await;
        let rows: Vec<i64> = db.query_as("SELECT n FROM t", ()).await.unwrap();
        assert_eq!(rows, [0; 0], "it was rolled back");

        cenote::scope(async {
            db.exec("BEGIN", ()).await.unwrap();
            db.exec("INSERT INTO t VALUES (2)", ()).await.unwrap();
            db.exec("COMMIT", ()).await.unwrap();
        })
        .await;
        quiet(db).await;
        let rows: Vec<i64> = db.query_as("SELECT n FROM t", ()).await.unwrap();
        assert_eq!(rows, [2]);
    }
}

#[tokio::test]
async fn commit_in_sql_ends_the_transaction_around_it() {
    for source in sources(|builder| builder.max(2)).await {
        let db = &source.db;
        db.exec("CREATE TABLE t (n INTEGER)", ()).await.unwrap();
        let ended = db
            .transaction(async || {
                db.exec("INSERT INTO t VALUES (1)", ()).await?;
                let _ = db.exec("COMMIT", ()).await;
                let after = db.exec("INSERT INTO t VALUES (2)", ()).await;
                assert_eq!(after.unwrap_err().kind(), Kind::TransactionLost);
                Ok(())
            })
            .await;
        ended.unwrap_err();
        quiet(db).await;
        let rows: Vec<i64> = db.query_as("SELECT n FROM t", ()).await.unwrap();
        assert!(!rows.contains(&2), "{rows:?}");
    }
}

/// A few lines that fail in the middle, by a broken key.
async fn broken(db: &Db) -> Result<()> {
    db.exec("INSERT INTO t VALUES (1)", ()).await?;
    let again = db.exec("INSERT INTO t VALUES (1)", ()).await.unwrap_err();
    assert!(again.is_unique_violation(), "{again:?}");
    Ok(())
}

#[tokio::test]
async fn after_an_error_a_transaction_can_only_be_rolled_back() {
    for source in sources(|builder| builder.max(1)).await {
        let db = &source.db;
        db.exec("CREATE TABLE t (n INTEGER PRIMARY KEY)", ())
            .await
            .unwrap();
        let done = db
            .transaction(async || {
                broken(db).await?;
                let next = db.exec("INSERT INTO t VALUES (2)", ()).await.unwrap_err();
                assert_eq!(next.sql_state(), Some("25P02"), "{next:?}");
                Ok(())
            })
            .await;
        assert_eq!(done.unwrap_err().kind(), Kind::RolledBack);
        let rows: Vec<i64> = db.query_as("SELECT n FROM t", ()).await.unwrap();
        assert_eq!(rows, [0; 0]);
    }
}

#[tokio::test]
async fn after_an_error_a_savepoint_saves_the_rest() {
    for source in sources(|builder| builder.max(1)).await {
        let db = &source.db;
        db.exec("CREATE TABLE t (n INTEGER PRIMARY KEY)", ())
            .await
            .unwrap();
        db.transaction(async || {
            db.exec("INSERT INTO t VALUES (7)", ()).await?;
            let inner = db
                .transaction(async || {
                    broken(db).await?;
                    Err::<(), _>(Error::other("given up"))
                })
                .await;
            assert_eq!(inner.unwrap_err().kind(), Kind::Other);
            db.exec("INSERT INTO t VALUES (8)", ()).await?;
            Ok(())
        })
        .await
        .unwrap();
        let rows: Vec<i64> = db.query_as("SELECT n FROM t ORDER BY n", ()).await.unwrap();
        assert_eq!(rows, [7, 8]);
    }
}

/// psqlODBC has an option to roll the whole transaction back at an error and continue in a new one.
#[tokio::test]
async fn driver_that_rolls_back_alone_commits_no_half_transaction() {
    let dsn = format!("{};Protocol=7.4-1", postgres_dsn());
    let dsn = own_schema(&dsn).await;
    let db = Db::builder(&dsn).max(1).open().await.unwrap();
    db.exec("CREATE TABLE t (n INTEGER PRIMARY KEY)", ())
        .await
        .unwrap();
    let done = db
        .transaction(async || {
            db.exec("INSERT INTO t VALUES (1)", ()).await?;
            db.exec("SELECT 1 / 0", ()).await.unwrap_err();
            db.exec("INSERT INTO t VALUES (2)", ()).await.unwrap_err();
            Ok(())
        })
        .await;
    assert_eq!(done.unwrap_err().kind(), Kind::RolledBack);
    let rows: Vec<i64> = db.query_as("SELECT n FROM t", ()).await.unwrap();
    assert_eq!(rows, [0; 0]);
}

#[tokio::test]
async fn a_changed_session_reaches_no_other_task() {
    let source = postgres(|builder| builder.max(1)).await;
    let db = source.db;
    let zone = "SELECT current_setting('application_name')";
    let before: String = db.query_as_one(zone, ()).await.unwrap();
    cenote::scope(async {
        db.exec("SET application_name = 'touched'", ())
            .await
            .unwrap();
        let now: String = db.query_as_one(zone, ()).await.unwrap();
        assert_eq!(now, "touched");
    })
    .await;
    let after: String = db.query_as_one(zone, ()).await.unwrap();
    assert_eq!(after, before);
}

#[tokio::test]
async fn an_isolation_level_is_for_one_transaction_and_given_at_least() {
    let source = postgres(|builder| builder.max(1)).await;
    let db = source.db;
    let level = "SELECT current_setting('transaction_isolation')";
    let options = TransactionOptions::new().isolation(Isolation::Serializable);
    let inside: String = options
        .on(&db)
        .run(async || db.query_as_one(level, ()).await)
        .await
        .unwrap();
    assert_eq!(inside, "serializable");
    let after: String = db
        .transaction(async || db.query_as_one(level, ()).await)
        .await
        .unwrap();
    assert_eq!(after, "read committed");
    assert_eq!(
        db.pool().unwrap().counters().created,
        1,
        "it is still clean"
    );
}

#[tokio::test]
async fn a_read_only_transaction_refuses_what_may_write() {
    for source in sources(|builder| builder.max(1)).await {
        let db = &source.db;
        db.exec("CREATE TABLE t (n INTEGER)", ()).await.unwrap();
        let options = TransactionOptions::new().read_only();
        let refused = options
            .on(db)
            .run(async || {
                let none: i64 = db.query_as_one("SELECT count(*) FROM t", ()).await?;
                assert_eq!(none, 0);
                db.exec("INSERT INTO t VALUES (1)", ()).await.map(drop)
            })
            .await;
        assert_eq!(refused.unwrap_err().sql_state(), Some("25006"));
        db.exec("INSERT INTO t VALUES (2)", ()).await.unwrap();
    }
}
