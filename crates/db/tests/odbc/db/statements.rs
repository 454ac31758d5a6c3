//! Statements, scripts, streams and values.

use cenote::{Db, Kind};

use super::{postgres, sources, sqlite};
use crate::sources::{mariadb_dsn, postgres_dsn};

#[tokio::test]
async fn text_of_any_language_is_the_same_in_sql_and_in_parameters() {
    for source in sources(|builder| builder.max(1)).await {
        let db = &source.db;
        db.exec("CREATE TABLE \"tä\" (n INTEGER, \"größe\" TEXT)", ())
            .await
            .unwrap();
        db.exec("INSERT INTO \"tä\" VALUES (1, 'grün 🦀 ﷽')", ())
            .await
            .unwrap();
        db.exec("INSERT INTO \"tä\" VALUES (2, ?)", ("grün 🦀 ﷽",))
            .await
            .unwrap();
        let same = "SELECT count(*) FROM \"tä\" WHERE \"größe\" = :text";
        let same: i64 = db
            .query_as_one(same, cenote::named! { text: "grün 🦀 ﷽" })
            .await
            .unwrap();
        assert_eq!(same, 2);
        let row = db.query("SELECT * FROM \"tä\"", ()).await.unwrap();
        assert_eq!(row[0].get::<&str>("größe").unwrap(), "grün 🦀 ﷽");
    }
}

#[tokio::test]
async fn values_around_the_size_of_a_part_arrive_whole() {
    for source in sources(|builder| builder.max(1)).await {
        let db = &source.db;
        let bytes = if source.is_sqlite { "BLOB" } else { "BYTEA" };
        db.exec(&format!("CREATE TABLE t (a TEXT, b {bytes})"), ())
            .await
            .unwrap();
        for length in [0, 1, 4094, 4095, 4096, 4097, 8191, 8192, 8193, 300_000] {
            // Two bytes a letter: parts may end inside of one.
            let text = "ä".repeat(length);
            let blob: Vec<u8> = (0..=255).cycle().take(length).collect();
            db.exec(
                "INSERT INTO t VALUES (?, ?)",
                (text.as_str(), blob.as_slice()),
            )
            .await
            .unwrap();
            let row = db.query_one("SELECT a, b FROM t", ()).await.unwrap();
            assert!(row.get::<&str>(0).unwrap() == text, "{length} letters");
            assert!(row.get::<&[u8]>(1).unwrap() == blob, "{length} bytes");
            db.exec("DELETE FROM t", ()).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_script_gives_what_its_last_statement_gives() {
    for source in sources(|builder| builder.max(1)).await {
        let db = &source.db;
        let script =
            "CREATE TABLE t (a TEXT); INSERT INTO t VALUES ('a;b'), ('c'); -- done; or not\n
                      SELECT 'nobody', 'wants', 'this'; SELECT count(*) AS n FROM t;";
        let rows = cenote::scope(async { db.query(script, ()).await.unwrap() }).await;
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].get::<i64>("n").unwrap(), 2);
        let changed = cenote::scope(async {
            let script = "SELECT 1; DELETE FROM t WHERE a = 'c'";
            db.exec(script, ()).await.unwrap().rows_affected
        })
        .await;
        assert_eq!(changed, 1);
    }
}

#[tokio::test]
async fn trigger_with_semicolons_is_one_statement_in_a_named_dialect() {
    let source = sqlite(|builder| builder.max(1).option("dialect", "sqlite")).await;
    let db = source.db;
    db.exec("CREATE TABLE t (n INTEGER)", ()).await.unwrap();
    db.exec(
        "CREATE TRIGGER twice AFTER INSERT ON t WHEN new.n < 10 \
         BEGIN INSERT INTO t VALUES (new.n + 10); INSERT INTO t VALUES (new.n + 20); END",
        (),
    )
    .await
    .unwrap();
    db.exec("INSERT INTO t VALUES (?)", (1,)).await.unwrap();
    let rows: Vec<i64> = db.query_as("SELECT n FROM t ORDER BY n", ()).await.unwrap();
    assert_eq!(rows, [1, 11, 21]);
}

#[tokio::test]
async fn dollar_quoted_function_is_one_statement_in_a_named_dialect() {
    let source = postgres(|builder| builder.max(1).option("dialect", "postgres")).await;
    let db = source.db;
    db.exec(
        "CREATE FUNCTION seven() RETURNS int LANGUAGE plpgsql AS $$ \
         BEGIN PERFORM 1; RETURN 7; END $$",
        (),
    )
    .await
    .unwrap();
    let seven: i64 = db.query_as_one("SELECT seven()", ()).await.unwrap();
    assert_eq!(seven, 7);
}

#[tokio::test]
async fn many_sets_are_all_or_nothing() {
    for source in sources(|builder| builder.max(1)).await {
        let db = &source.db;
        db.exec("CREATE TABLE t (n INTEGER PRIMARY KEY)", ())
            .await
            .unwrap();
        let done = db.exec_many("INSERT INTO t VALUES (?)", (1..=100_i64).map(|n| (n,)));
        assert_eq!(done.await.unwrap().rows_affected, 100);
        let twice = [101_i64, 102, 1, 103].map(|n| (n,));
        let error = db.exec_many("INSERT INTO t VALUES (?)", twice).await;
        assert!(error.unwrap_err().is_unique_violation());
        let count: i64 = db.query_as_one("SELECT count(*) FROM t", ()).await.unwrap();
        assert_eq!(count, 100);
    }
}

#[tokio::test]
async fn a_long_stream_waits_for_its_reader_and_can_be_left() {
    let fetching = format!("{};UseDeclareFetch=1;Fetch=100", postgres_dsn());
    let fetching = Db::builder(&fetching).max(1).open().await.unwrap();
    let sql = "SELECT n, repeat('x', 100) FROM generate_series(1, 200000) AS s(n)";
    for take in [1, 1000] {
        let mut stream = fetching.stream(sql, ()).await.unwrap();
        for n in 1..=take {
            let row = stream.try_next().await.unwrap().expect("there are more");
            assert_eq!(row.get::<i64>(0).unwrap(), n);
        }
        drop(stream);
        let seven: i64 = fetching.query_as_one("SELECT 7", ()).await.unwrap();
        assert_eq!(seven, 7);
    }
}

#[tokio::test]
async fn kept_statement_is_prepared_again_when_its_table_has_changed() {
    let source = postgres(|builder| builder.max(1)).await;
    let db = source.db;
    db.exec("CREATE TABLE t (a INTEGER)", ()).await.unwrap();
    db.exec("INSERT INTO t VALUES (1)", ()).await.unwrap();
    for _ in 0..10 {
        assert_eq!(db.query_one("SELECT * FROM t", ()).await.unwrap().len(), 1);
    }
    db.exec("ALTER TABLE t ADD COLUMN b INTEGER", ())
        .await
        .unwrap();
    assert_eq!(db.query_one("SELECT * FROM t", ()).await.unwrap().len(), 2);
}

/// Its error reads like that of a statement whose table has changed, and comes when it has committed already.
#[tokio::test]
async fn a_procedure_that_fails_like_a_stale_statement_is_called_once() {
    let source = postgres(|builder| builder.max(1).option("dialect", "postgres")).await;
    let db = source.db;
    db.exec("CREATE TABLE paid (n INTEGER)", ()).await.unwrap();
    db.exec(
        "CREATE PROCEDURE pay(n INTEGER) LANGUAGE plpgsql AS $$ BEGIN \
         INSERT INTO paid VALUES (n); COMMIT; \
         RAISE EXCEPTION 'not in this country' USING ERRCODE = '0A000'; END $$",
        (),
    )
    .await
    .unwrap();
    let failed = cenote::scope(async {
        let call = db.prepare("CALL pay(?)").await.unwrap();
        let executed = call.exec((7,)).await.unwrap_err();
        let streamed = call.stream((8,)).await.unwrap_err();
        [executed, streamed]
    })
    .await;
    for error in failed {
        assert_eq!(error.sql_state(), Some("0A000"), "{error}");
    }
    let paid: Vec<i64> = db.query_as("SELECT n FROM paid", ()).await.unwrap();
    assert_eq!(paid, [7, 8]);
}

#[tokio::test]
async fn syntax_error_has_sqlstate_code_and_the_databases_message() {
    for source in sources(|builder| builder.max(1)).await {
        let error = source.db.exec("SELEC 7", ()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Database, "{error:?}");
        assert_eq!(error.violation(), Some(cenote::Violation::Syntax));
        assert!(error.sql_state().is_some() && error.code().is_some());
        assert!(error.message().contains("SELEC"), "{error}");
    }
}

#[tokio::test]
async fn h0e_compound_statements_of_mariadb_give_their_rows() {
    // With and without scripts, with the dialect named and not.
    let whole = mariadb_dsn();
    let without_scripts = whole.replace(";OPTION=67108864", "");
    for (dsn, dialect) in [
        (&whole, "mysql"),
        (&whole, "ansi"),
        (&without_scripts, "mysql"),
        (&without_scripts, "ansi"),
    ] {
        let builder = Db::builder(dsn).max(1).option("dialect", dialect);
        let db = builder.open().await.unwrap();
        for sql in [
            "BEGIN NOT ATOMIC SELECT 3; END",
            "IF 1 THEN SELECT 3; END IF; -- why",
            "FOR i IN 3..3 DO SELECT i; END FOR",
            "WHILE @done IS NULL DO SELECT 3; SET @done = ';'; END WHILE;",
        ] {
            let rows: Vec<i64> = db.query_as(sql, ()).await.unwrap();
            assert_eq!(rows, [3], "{dialect}: {sql}");
            if dialect == "mysql" {
                let mut rows = db.stream(sql, ()).await.unwrap();
                let first = rows.try_next().await.unwrap().unwrap();
                assert_eq!(first.get::<i64>(0).unwrap(), 3, "{sql}");
            }
        }
    }
}
