//! What only PostgreSQL has: concurrent indexes, operators with question marks, dropped and killed runs.

use cenote::{Db, Kind};

use crate::support::{TestDatabase, files, has_table, history, numbers, soon, unique, until};

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
    let database = TestDatabase::postgres().await;
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
        let (db, migrations) = (database.open().await, migrations.clone());
        instances.spawn(async move { db.migrate(&migrations).await });
    }
    let all = soon("the index is built", instances.join_all()).await;
    let applied: usize = all.into_iter().map(|it| it.unwrap().applied.len()).sum();
    assert_eq!(applied, 3);
    let db = database.open().await;
    let valid = "SELECT indisvalid::int::int8 FROM pg_index WHERE indexrelid = 'a_n'::regclass";
    assert_eq!(numbers(&db, valid).await, [1]);
}

#[tokio::test]
async fn a_concurrent_index_in_a_transaction_is_an_error() {
    let database = TestDatabase::postgres().await;
    let db = database.open().await;
    let sql = "CREATE TABLE a (n int);\nCREATE INDEX CONCURRENTLY a_n ON a (n)";
    let error = db.migrate(&files(&[("V1__a.sql", sql)])).await.unwrap_err();
    assert_eq!(error.sql_state(), Some("25001"), "{error}");
    assert!(
        error.message().contains("statement 2 of 2, line 2"),
        "{error}"
    );
    let remedy = "file of its own with `-- cenote: no-transaction` at the top";
    assert!(error.message().contains(remedy), "{error}");
    assert!(!has_table(&db, "a").await);
}

#[tokio::test]
async fn the_text_reaches_the_server_as_it_is_written() {
    let database = TestDatabase::postgres().await;
    let db = database.open().await;
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
    let database = TestDatabase::postgres().await;
    let db = database.open().await;
    let sql = "SELECT 1;\n\nSELECT '{}'::jsonb ? 'a',\n  'ö',\n  wrong\nFROM pg_class;";
    let error = db.migrate(&files(&[("V1__a.sql", sql)])).await.unwrap_err();
    assert!(
        error.message().contains("statement 2 of 2, line 5"),
        "{error}"
    );
    assert_eq!(error.sql_state(), Some("42703"));
    // The position counts in the statement that the error shows.
    let statement = "SELECT '{}'::jsonb ? 'a',\n  'ö',\n  wrong\nFROM pg_class";
    assert_eq!(error.sql(), Some(statement));
    let before = &statement[..statement.find("wrong").unwrap()];
    assert_eq!(error.position(), Some(before.chars().count() + 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_in_the_middle_nothing_is_half_applied() {
    let database = TestDatabase::postgres().await;
    let (db, admin) = (database.open().await, database.open().await);
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
    let database = TestDatabase::postgres().await;
    let (db, admin) = (database.open().await, database.open().await);
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
    let database = TestDatabase::postgres().await;
    let db = database.open().await;
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
    let database = TestDatabase::postgres().await;
    let db = database.open().await;
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

#[tokio::test]
async fn file_without_transaction_may_change_the_search_path() {
    let place = TestDatabase::postgres().await;
    let db = place.open().await;
    let other = format!("{}_other", unique("migrate"));
    let script =
        format!("CREATE SCHEMA {other}; CREATE TABLE {other}.refinery_schema_history (n int)");
    db.exec(&script, ()).await.unwrap();
    for (version, path) in [(1, "''".to_owned()), (2, other)] {
        let name = format!("V{version}__path.sql");
        let text = format!("-- cenote: no-transaction\nSET search_path TO {path}");
        let one = files(&[(&name, &text)]).ignore_missing();
        let report = db.migrate(&one).await.unwrap();
        assert_eq!(report.applied.len(), 1);
        assert!(db.migrate(&one).await.unwrap().applied.is_empty());
    }
    assert_eq!(history(&db).await, [1, 2]);
}

/// PgBouncer in transaction mode may answer each statement from another session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_lock_stays_behind_a_pooler() {
    let pooler = std::env::var("CENOTE_TEST_POSTGRES_PGBOUNCER").unwrap();
    let table = unique("history");
    let (name, later) = (format!("V1__{table}.sql"), format!("V2__{table}.sql"));
    let create = format!("CREATE TABLE {table}_t (n int)");
    let without = format!("-- cenote: no-transaction\nCREATE TABLE {table}_u (n int)");
    let migrations = files(&[(&name, &create), (&later, &without)]);
    let migrations = migrations.table(&table).unwrap();
    let mut instances = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let db = Db::builder(&pooler)
            .statement_cache(0)
            .max(2)
            .open()
            .await
            .unwrap();
        let migrations = migrations.clone();
        instances.spawn(async move {
            let mut applied = 0;
            let error = db
                .migrate_each(&migrations, |_| applied += 1)
                .await
                .unwrap_err();
            (applied, error)
        });
    }
    let all = soon("all instances end", instances.join_all()).await;
    assert_eq!(all.iter().map(|(applied, _)| applied).sum::<i32>(), 1);
    for (_, error) in all {
        assert_eq!(error.kind(), Kind::Migration, "{error}");
        assert!(error.message().contains("pooler"), "{error}");
    }
    let direct = Db::open(&std::env::var("CENOTE_TEST_POSTGRES").unwrap())
        .await
        .unwrap();
    // Would wait for a lock that was left behind.
    let report = soon("the lock is free", direct.migrate(&migrations)).await;
    assert_eq!(report.unwrap().applied.len(), 1, "without a pooler it runs");
}
