//! Statements that stay prepared: what one task does to its session, or to a table, must not be seen through them.

use cenote::{Db, Error};

use crate::servers::own_tables;

/// One connection, with table `t` in a database of its own.
async fn one_table() -> Db {
    let db = own_tables(|builder| builder.max(1)).await;
    db.exec("CREATE TABLE t (a INT, b VARCHAR(20))", ())
        .await
        .unwrap();
    db.exec("INSERT INTO t VALUES (1, 'one')", ())
        .await
        .unwrap();
    db
}

/// Reads that depend on settings, each with a setting that changes what it gives.
const READS: &[(&str, &str)] = &[
    (
        "SELECT CAST(UNIX_TIMESTAMP('2020-01-01 00:00:00') AS CHAR) FROM t WHERE a > ?",
        "SET time_zone = '+05:00'",
    ),
    (
        "SELECT CAST(CAST('2020-01-01' AS DATETIME) + INTERVAL ? MONTH AS CHAR)",
        "SET time_zone = '+05:00'",
    ),
    (
        "SELECT MONTHNAME('2020-01-01') FROM t WHERE a > ?",
        "SET lc_time_names = 'de_DE'",
    ),
    (
        "SELECT COLLATION('a') FROM t WHERE a > ?",
        "SET collation_connection = 'utf8mb4_bin'",
    ),
    (
        "SELECT CAST('a' = 'A' AS CHAR) FROM t WHERE a > ?",
        "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
    ),
    (
        "SELECT COALESCE(CAST(CONCAT('a' || 'b') AS CHAR), '-') FROM t WHERE a > ?",
        "SET sql_mode = 'PIPES_AS_CONCAT'",
    ),
    (
        "SELECT CAST(1 / 3 AS CHAR) FROM t WHERE a > ?",
        "SET div_precision_increment = 10",
    ),
];

#[tokio::test]
async fn h0b_settings_do_not_leak_through_kept_statements() {
    let db = one_table().await;
    let read = async |sql: &str| db.query_as_one::<String>(sql, (0,)).await.unwrap();
    for (sql, set) in READS {
        // Kept before, used in the changed session.
        let usual = read(sql).await;
        let changed = cenote::scope(async {
            db.exec(set, ()).await.unwrap();
            let changed = read(sql).await;
            // A statement that is made in the changed session, and used there again.
            let fresh = read(&format!("{sql} /* fresh */")).await;
            assert_eq!(changed, fresh, "{set}: {sql}");
            assert_eq!(read(sql).await, changed, "{set}: {sql}");
            changed
        })
        .await;
        // Made in the changed session, used by another task.
        assert_eq!(read(sql).await, usual, "{set}: {sql}");
        let fresh = read(&format!("{sql} /* fresh */")).await;
        assert_eq!(fresh, usual, "{set}: {sql}");
        if *set != "SET time_zone = '+05:00'" || sql.contains("UNIX") {
            assert_ne!(changed, usual, "the setting matters: {set}: {sql}");
        }
    }
}

#[tokio::test]
async fn h0b_a_transaction_that_sets_something_leaves_no_trace() {
    let db = one_table().await;
    let (sql, set) = READS[0];
    let usual: String = db.query_as_one(sql, (0,)).await.unwrap();
    let changed = db
        .transaction(async || {
            db.exec(set, ()).await?;
            db.query_as_one::<String>(sql, (0,)).await
        })
        .await
        .unwrap();
    assert_ne!(changed, usual);
    assert_eq!(db.query_as_one::<String>(sql, (0,)).await.unwrap(), usual);
}

#[tokio::test]
async fn h0b_a_default_reaches_statements_that_were_kept() {
    let db = one_table().await;
    let (sql, _) = READS[2];
    let usual: String = db.query_as_one(sql, (0,)).await.unwrap();
    db.set_default("lc_time_names", "de_DE").await.unwrap();
    let german: String = db.query_as_one(sql, (0,)).await.unwrap();
    assert_eq!((&*usual, &*german), ("January", "Januar"));
}

#[tokio::test]
async fn h0b_a_kept_statement_reads_the_database_in_use() {
    let (db, other) = (one_table().await, one_table().await);
    let name: String = other.query_as_one("SELECT DATABASE()", ()).await.unwrap();
    other.exec("UPDATE t SET a = 2", ()).await.unwrap();
    let read = async || {
        db.query_as_one::<i64>("SELECT a FROM t WHERE a > ?", (0,))
            .await
            .unwrap()
    };
    assert_eq!(read().await, 1);
    cenote::scope(async {
        db.exec(&format!("USE {name}"), ()).await.unwrap();
        assert_eq!(read().await, 2);
    })
    .await;
    assert_eq!(read().await, 1);
}

#[tokio::test]
async fn h0b_a_temporary_table_shadows_until_it_is_dropped() {
    let db = one_table().await;
    let read = async || {
        db.query_as_one::<String>("SELECT b FROM t WHERE a > ?", (0,))
            .await
            .unwrap()
    };
    for drop in ["DROP TABLE t", "DROP TEMPORARY TABLE t", "DO 0"] {
        assert_eq!(read().await, "one");
        cenote::scope(async {
            db.exec("CREATE TEMPORARY TABLE t (b BLOB, a INT)", ())
                .await
                .unwrap();
            db.exec("INSERT INTO t VALUES ('temporary', 1)", ())
                .await
                .unwrap();
            let row = db
                .query_one("SELECT b FROM t WHERE a > ?", (0,))
                .await
                .unwrap();
            assert_eq!(row.get::<Vec<u8>>(0).unwrap(), b"temporary");
            db.exec(drop, ()).await.unwrap();
            if drop != "DO 0" {
                assert_eq!(read().await, "one", "{drop}");
            }
        })
        .await;
        assert_eq!(read().await, "one", "{drop}");
    }
}

#[tokio::test]
async fn h0b_a_table_that_changes_is_read_as_it_is() {
    let db = one_table().await;
    let read = async || {
        let row = db.query_one("SELECT * FROM t WHERE a > ?", (0,)).await?;
        let columns = row.columns().as_slice();
        let names: Vec<&str> = columns.iter().map(|column| &*column.name).collect();
        Ok::<_, Error>(names.join(","))
    };
    assert_eq!(read().await.unwrap(), "a,b");
    db.exec("ALTER TABLE t ADD COLUMN c INT FIRST", ())
        .await
        .unwrap();
    assert_eq!(read().await.unwrap(), "c,a,b");
    db.exec("ALTER TABLE t DROP COLUMN c", ()).await.unwrap();
    assert_eq!(read().await.unwrap(), "a,b");
    db.exec("DROP TABLE t", ()).await.unwrap();
    read().await.unwrap_err();
    db.exec("CREATE TABLE t (b BLOB, a DOUBLE)", ())
        .await
        .unwrap();
    db.exec("INSERT INTO t VALUES ('x', 1.5)", ())
        .await
        .unwrap();
    assert_eq!(read().await.unwrap(), "b,a");
    let row = db
        .query_one("SELECT * FROM t WHERE a > ?", (0,))
        .await
        .unwrap();
    assert_eq!(row.get::<Vec<u8>>(0).unwrap(), b"x");
    // A column that goes and comes back fails while it is gone, and no longer.
    db.exec("ALTER TABLE t DROP COLUMN a", ()).await.unwrap();
    assert_eq!(read().await.unwrap_err().code(), Some(1054));
    db.exec("ALTER TABLE t ADD COLUMN a INT DEFAULT 4", ())
        .await
        .unwrap();
    assert_eq!(read().await.unwrap(), "b,a");
}

/// MySQL has no literals that mean another moment every time; a clock is read when the statement runs.
#[tokio::test]
async fn h0b_a_kept_statement_reads_the_clock_each_time() {
    let db = one_table().await;
    let now = "SELECT CAST(NOW(6) AS CHAR) FROM t WHERE a > ?";
    let earlier: String = db.query_as_one(now, (0,)).await.unwrap();
    let later: String = db.query_as_one(now, (0,)).await.unwrap();
    assert_ne!(earlier, later);
}
