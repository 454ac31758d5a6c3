//! What only PostgreSQL has: concurrent indexes, operators with question marks, dropped and killed runs.

use cenote::{Db, Kind};

use crate::support::{Place, files, has_table, history, numbers, soon, until};

/// The process of the session that runs a statement that begins so.
async fn running(admin: &Db, statement: &str) -> i64 {
    let sql =
        "SELECT pid::int8 FROM pg_stat_activity WHERE state = 'active' AND query LIKE ? || '%'";
    let mut pid = 0;
    until("the statement runs", async || {
        let found: Vec<(i64,)> = admin.query_as(sql, (statement,)).await.unwrap();
        pid = found.first().map_or(0, |(pid,)| *pid);
        pid != 0
    })
    .await;
    pid
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_instances_build_a_concurrent_index_once() {
    let place = Place::postgres().await;
    let migrations = files(&[
        ("V1__table.sql", "CREATE TABLE a (n int)"),
        (
            "V2__index.sql",
            "-- cenote: no-transaction\nCREATE INDEX CONCURRENTLY a_n ON a (n)",
        ),
        ("V3__rest.sql", "CREATE TABLE b (n int)"),
    ]);
    let mut instances = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let (db, migrations) = (place.open().await, migrations.clone());
        instances.spawn(async move { db.migrate(&migrations).await });
    }
    let all = soon("the index is built", instances.join_all()).await;
    let applied: usize = all.into_iter().map(|it| it.unwrap().applied.len()).sum();
    assert_eq!(applied, 3);
    let db = place.open().await;
    let valid = "SELECT indisvalid::int::int8 FROM pg_index WHERE indexrelid = 'a_n'::regclass";
    assert_eq!(numbers(&db, valid).await, [1]);
}

#[tokio::test]
async fn a_concurrent_index_in_a_transaction_is_an_error() {
    let place = Place::postgres().await;
    let db = place.open().await;
    let sql = "CREATE TABLE a (n int);\nCREATE INDEX CONCURRENTLY a_n ON a (n)";
    let error = db.migrate(&files(&[("V1__a.sql", sql)])).await.unwrap_err();
    assert_eq!(error.sql_state(), Some("25001"), "{error}");
    assert!(
        error.message().contains("statement 2 of 2, line 2"),
        "{error}"
    );
    assert!(!has_table(&db, "a").await);
}

#[tokio::test]
async fn the_text_reaches_the_server_as_it_is_written() {
    let place = Place::postgres().await;
    let db = place.open().await;
    let sql = r#"
        CREATE TABLE doc (body jsonb);
        CREATE INDEX doc_key ON doc ((1)) WHERE body ? 'key' AND body ?| ARRAY['a', 'b'];
        CREATE FUNCTION twice(int) RETURNS int LANGUAGE plpgsql AS $$
            BEGIN RETURN $1 * 2; -- a ? in a comment; and a semicolon
            END $$;
        CREATE FUNCTION thrice(a int) RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT a * 3; END;
        DO $$ BEGIN PERFORM 1; END $$;
        INSERT INTO doc VALUES ('{"key": 1}'), ('{"other": "?"}');
        DELETE FROM doc WHERE body ? 'key';
    "#;
    db.migrate(&files(&[("V1__a.sql", sql)])).await.unwrap();
    assert_eq!(numbers(&db, "SELECT count(*) FROM doc").await, [1]);
    let sum = "SELECT (twice(2) + thrice(2))::int8";
    assert_eq!(numbers(&db, sum).await, [10]);
}

#[tokio::test]
async fn the_line_of_an_error_is_that_of_its_position() {
    let place = Place::postgres().await;
    let db = place.open().await;
    let sql = "SELECT 1;\n\nSELECT '{}'::jsonb ? 'a',\n  'ö',\n  wrong\nFROM pg_class;";
    let error = db.migrate(&files(&[("V1__a.sql", sql)])).await.unwrap_err();
    assert!(
        error.message().contains("statement 2 of 2, line 5"),
        "{error}"
    );
    assert_eq!(error.sql_state(), Some("42703"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_in_the_middle_nothing_is_half_applied() {
    let place = Place::postgres().await;
    let (db, admin) = (place.open().await, place.open().await);
    let slow = files(&[
        ("V1__a.sql", "CREATE TABLE a (n int)"),
        (
            "V2__slow.sql",
            "CREATE TABLE half (n int); SELECT pg_sleep(600) AS dropped_migration",
        ),
    ]);
    let run = cenote::spawn({
        let db = db.clone();
        async move { db.migrate(&slow).await }
    });
    running(&admin, "SELECT pg_sleep(600) AS dropped_migration").await;
    run.abort();
    assert!(run.await.unwrap_err().is_cancelled());
    let fixed = files(&[
        ("V1__a.sql", "CREATE TABLE a (n int)"),
        ("V2__fixed.sql", "CREATE TABLE whole (n int)"),
    ]);
    let report = soon("the lock is free", admin.migrate(&fixed))
        .await
        .unwrap();
    assert_eq!(report.applied.len(), 1);
    assert!(!has_table(&db, "half").await);
    assert_eq!(history(&db).await, [1, 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_in_the_middle_nothing_is_half_applied() {
    let place = Place::postgres().await;
    let (db, admin) = (place.open().await, place.open().await);
    let slow = files(&[
        ("V1__a.sql", "CREATE TABLE a (n int)"),
        (
            "V2__slow.sql",
            "CREATE TABLE half (n int); SELECT pg_sleep(600) AS killed_migration",
        ),
    ]);
    let run = cenote::spawn({
        let db = db.clone();
        async move { db.migrate(&slow).await }
    });
    let pid = running(&admin, "SELECT pg_sleep(600) AS killed_migration").await;
    admin
        .exec("SELECT pg_terminate_backend(?::int4)", (pid,))
        .await
        .unwrap();
    let error = soon("the run fails", run).await.unwrap().unwrap_err();
    assert!(error.is_connection_lost(), "{error:?}");
    assert!(error.message().contains("V2__slow.sql"), "{error}");
    assert!(!has_table(&db, "half").await);
    assert_eq!(history(&db).await, [1]);
}

/// A connection that dies between two migrations takes the lock with it: the run must not go on
/// without it on another connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_never_goes_on_without_its_lock() {
    let place = Place::postgres().await;
    let db = place.open().await;
    let migrations = files(&[
        (
            "V1__dies.sql",
            "-- cenote: no-transaction\nSELECT pg_terminate_backend(pg_backend_pid())",
        ),
        ("V2__later.sql", "CREATE TABLE later (n int)"),
    ]);
    let error = db.migrate(&migrations).await.unwrap_err();
    assert_eq!(error.kind(), Kind::ConnectionLost, "{error:?}");
    assert!(!has_table(&db, "later").await);
    assert_eq!(history(&db).await, [0_i64; 0]);
}

/// A dump begins with an empty search path.
#[tokio::test]
async fn what_a_migration_sets_ends_with_it() {
    let place = Place::postgres().await;
    let db = place.open().await;
    let migrations = files(&[
        (
            "V1__dump.sql",
            "CREATE TABLE a (n int); SELECT pg_catalog.set_config('search_path', '', false)",
        ),
        ("V2__next.sql", "CREATE TABLE b (n int)"),
    ]);
    let report = db.migrate(&migrations).await.unwrap();
    assert_eq!(report.applied.len(), 2);
    assert!(has_table(&db, "b").await);
    assert_eq!(history(&db).await, [1, 2]);
}
