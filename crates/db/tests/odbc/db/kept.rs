//! Statements that stay prepared: what one task does to its session, or to a table, must not be seen through them.

use cenote::Db;

use super::{mariadb, postgres};
use crate::sources::{mariadb_dsn, own_database, own_schema, postgres_dsn};

/// PostgreSQL, its dialect named or not.
async fn postgres_as(dialect: &str) -> Db {
    let source = postgres(|builder| builder.max(1).option("dialect", dialect)).await;
    source.db
}

/// The literal is resolved when the statement is prepared.
const MOMENT: &str = "SELECT CAST(EXTRACT(EPOCH FROM TIMESTAMPTZ '2020-01-01 00:00:00') AS BIGINT) + CAST(? AS BIGINT)";

async fn moment(db: &Db) -> i64 {
    db.query_as_one(MOMENT, (0,)).await.unwrap()
}

const ZONE: &str = "SET TimeZone TO 'Asia/Tokyo'";
const LOCAL_ZONE: &str = "SET LOCAL TimeZone TO 'Asia/Tokyo'";
const LOCAL_ZONE_BY_FUNCTION: &str = "SELECT set_config('TimeZone', 'Asia/Tokyo', true)";

#[tokio::test]
async fn h0b_odbc_settings_of_a_session_stay_in_it() {
    for dialect in ["postgres", "ansi"] {
        let db = postgres_as(dialect).await;
        let usual = moment(&db).await;
        let changed = cenote::scope(async {
            db.exec(ZONE, ()).await.unwrap();
            moment(&db).await
        })
        .await;
        assert_ne!(changed, usual, "{dialect}: kept before it was set");
        assert_eq!(moment(&db).await, usual, "{dialect}");
    }
}

#[tokio::test]
async fn h0b_odbc_settings_of_a_transaction_end_with_it() {
    for dialect in ["postgres", "ansi"] {
        for set in [LOCAL_ZONE, LOCAL_ZONE_BY_FUNCTION, ZONE] {
            for is_kept_before in [false, true] {
                let db = postgres_as(dialect).await;
                if is_kept_before {
                    moment(&db).await;
                }
                let changed = db
                    .transaction(async || {
                        db.query(set, ()).await?;
                        Ok::<_, cenote::Error>(moment(&db).await)
                    })
                    .await
                    .unwrap();
                let usual = moment(&db).await;
                assert_ne!(changed, usual, "{dialect}: {set}");
                let fresh: i64 = db
                    .query_as_one(&format!("{MOMENT} + 0"), (0,))
                    .await
                    .unwrap();
                assert_eq!(usual, fresh, "{dialect}: {set}");
            }
        }
    }
}

#[tokio::test]
async fn h0b_odbc_a_savepoint_takes_a_setting_back() {
    let db = postgres_as("postgres").await;
    let usual = moment(&db).await;
    db.transaction(async || {
        let undone = db
            .transaction(async || {
                db.exec(LOCAL_ZONE, ()).await?;
                assert_ne!(moment(&db).await, usual);
                db.exec("SELECT 1 / 0", ()).await
            })
            .await;
        undone.unwrap_err();
        assert_eq!(moment(&db).await, usual);
        Ok::<_, cenote::Error>(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn h0b_odbc_a_volatile_literal_is_read_each_time() {
    let db = postgres_as("postgres").await;
    for sql in [
        "SELECT CAST(TIMESTAMPTZ 'now' AS TEXT) WHERE 1 > CAST(? AS INTEGER)",
        "SELECT CAST(TIMESTAMPTZ ' NOW ' AS TEXT) WHERE 1 > CAST(? AS INTEGER)",
        "SELECT CAST(TIMESTAMPTZ E'\\156ow' AS TEXT) WHERE 1 > CAST(? AS INTEGER)",
        "SELECT CAST(TIMESTAMPTZ U&'\\006eow' AS TEXT) WHERE 1 > CAST(? AS INTEGER)",
        "SELECT CAST(TIMESTAMPTZ $$now$$ AS TEXT) WHERE 1 > CAST(? AS INTEGER)",
    ] {
        let earlier: String = db.query_as_one(sql, (0,)).await.unwrap();
        let later: String = db.query_as_one(sql, (0,)).await.unwrap();
        assert_ne!(earlier, later, "{sql}");
    }
}

#[tokio::test]
async fn h0b_odbc_a_temporary_table_shadows_while_it_is_there() {
    for dialect in ["postgres", "ansi"] {
        let db = postgres_as(dialect).await;
        db.exec("CREATE TABLE t (a TEXT)", ()).await.unwrap();
        db.exec("INSERT INTO t VALUES ('permanent')", ())
            .await
            .unwrap();
        let read = async || {
            let sql = "SELECT a FROM t WHERE 1 > CAST(? AS INTEGER)";
            db.query_as_one::<String>(sql, (0,)).await.unwrap()
        };
        assert_eq!(read().await, "permanent");
        cenote::scope(async {
            db.exec("CREATE TEMPORARY TABLE t (a TEXT)", ())
                .await
                .unwrap();
            db.exec("INSERT INTO t VALUES ('temporary')", ())
                .await
                .unwrap();
            assert_eq!(read().await, "temporary", "{dialect}");
            db.exec("DROP TABLE t", ()).await.unwrap();
            assert_eq!(read().await, "permanent", "{dialect}");
        })
        .await;
        assert_eq!(read().await, "permanent", "{dialect}");
    }
}

#[tokio::test]
async fn h0b_odbc_a_recreated_type_is_found() {
    let dsn = own_schema(&postgres_dsn()).await;
    let open = async || {
        Db::builder(&dsn)
            .max(1)
            .option("dialect", "postgres")
            .open()
            .await
            .unwrap()
    };
    let (db, other) = (open().await, open().await);
    let read = "SELECT CAST(CAST('a' AS kind) AS TEXT) WHERE 1 > CAST(? AS INTEGER)";
    // By the same session, and by another.
    for by in [&db, &other] {
        by.exec("DROP TYPE IF EXISTS kind", ()).await.unwrap();
        by.exec("CREATE TYPE kind AS ENUM ('a')", ()).await.unwrap();
        let first = db.query_as_one::<String>(read, (0,)).await;
        if std::ptr::eq(by, &db) {
            first.unwrap();
        }
        // A statement that failed as stale is not used again.
        assert_eq!(db.query_as_one::<String>(read, (0,)).await.unwrap(), "a");
    }
}

#[tokio::test]
async fn h0b_odbc_mariadb_reads_the_database_in_use() {
    for dialect in ["mysql", "ansi"] {
        let db = mariadb(|builder| builder.max(1).option("dialect", dialect)).await;
        let other = Db::builder(&own_database(&mariadb_dsn()).await)
            .open()
            .await
            .unwrap();
        for (db, value) in [(&db, 1), (&other, 2)] {
            db.exec("CREATE TABLE t (a INT)", ()).await.unwrap();
            db.exec("INSERT INTO t VALUES (?)", (value,)).await.unwrap();
        }
        let name: String = other.query_as_one("SELECT DATABASE()", ()).await.unwrap();
        let read = async || {
            db.query_as_one::<i64>("SELECT a FROM t WHERE a > ?", (0,))
                .await
                .unwrap()
        };
        assert_eq!(read().await, 1);
        cenote::scope(async {
            db.exec(&format!("USE {name}"), ()).await.unwrap();
            assert_eq!(read().await, 2, "{dialect}");
        })
        .await;
        assert_eq!(read().await, 1, "{dialect}");
    }
}

#[tokio::test]
async fn h0b_odbc_mariadb_settings_stay_in_their_session() {
    let db = mariadb(|builder| builder.max(1).option("dialect", "mysql")).await;
    for (sql, set) in [
        (
            "SELECT MONTHNAME('2020-01-01') FROM DUAL WHERE 1 > ?",
            "SET lc_time_names = 'de_DE'",
        ),
        (
            "SELECT COLLATION('a') FROM DUAL WHERE 1 > ?",
            "SET collation_connection = 'utf8mb4_bin'",
        ),
        (
            "SELECT CAST('a' || 'b' AS CHAR) FROM DUAL WHERE 1 > ?",
            "SET sql_mode = 'PIPES_AS_CONCAT'",
        ),
    ] {
        let read = async || db.query_as_one::<String>(sql, (0,)).await.unwrap();
        let usual = read().await;
        let changed = cenote::scope(async {
            db.exec(set, ()).await.unwrap();
            read().await
        })
        .await;
        assert_ne!(changed, usual, "{set}");
        assert_eq!(read().await, usual, "{set}");
    }
}

/// psqlODBC commits when a prepared statement is freed outside of a transaction of its own.
#[tokio::test]
async fn h0b_odbc_a_freed_statement_does_not_commit_a_raw_begin() {
    let source = postgres(|builder| builder.max(1).statement_cache(2)).await;
    let db = source.db;
    db.exec("CREATE TABLE t (n INTEGER)", ()).await.unwrap();
    for sql in ["SELECT n FROM t", "SELECT n + 1 FROM t"] {
        db.query(sql, ()).await.unwrap();
    }
    cenote::scope(async {
        db.exec("BEGIN", ()).await.unwrap();
        db.exec("INSERT INTO t VALUES (?)", (1,)).await.unwrap();
        db.exec("SET TimeZone TO 'Asia/Tokyo'", ()).await.unwrap();
        // More than are kept, one that is not kept at all, and one that cannot be run.
        for n in 0..5 {
            let sql = format!("SELECT {n} WHERE 1 > CAST(? AS INTEGER)");
            db.query(&sql, (0,)).await.unwrap();
        }
        let volatile = "SELECT TIMESTAMPTZ 'now' WHERE 1 > CAST(? AS INTEGER)";
        db.query(volatile, (0,)).await.unwrap();
        db.exec("ROLLBACK", ()).await.unwrap();
    })
    .await;
    let rows: i64 = db.query_as_one("SELECT COUNT(*) FROM t", ()).await.unwrap();
    assert_eq!(rows, 0);
}
