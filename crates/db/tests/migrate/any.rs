//! What every database promises.

use cenote::Kind;
use cenote::migrate::State;

use crate::support::{TestDatabase, files, forty, has_table, history, numbers, pending, soon};

/// Writes each promise as a test on each database.
macro_rules! on_every_database {
    ($($promise:ident,)*) => {
        mod on_sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                super::$promise(crate::support::TestDatabase::sqlite()).await;
            })*
        }

        #[cfg(feature = "postgres")]
        mod on_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                super::$promise(crate::support::TestDatabase::postgres().await).await;
            })*
        }

        #[cfg(feature = "mysql")]
        mod on_mysql {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                super::$promise(crate::support::TestDatabase::mysql().await).await;
            })*
        }

        #[cfg(all(feature = "odbc", feature = "postgres"))]
        mod by_odbc {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                super::$promise(crate::support::TestDatabase::odbc().await).await;
            })*
        }
    };
}

on_every_database! {
    ten_instances_apply_each_migration_once,
    a_second_run_finds_nothing_to_do,
    status_and_dry_run_change_nothing,
    a_failure_names_file_statement_and_line,
    a_history_of_refinery_is_continued,
    a_changed_file_stops_everything,
    what_was_applied_before_a_failure_is_told,
}

async fn ten_instances_apply_each_migration_once(database: TestDatabase) {
    let mut instances = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let db = database.open().await;
        instances.spawn(async move {
            let report = db.migrate(&forty()).await;
            db.close().await.unwrap();
            report
        });
    }
    let all = soon("ten instances migrate", instances.join_all()).await;
    let applied: usize = all
        .into_iter()
        .map(|report| report.unwrap().applied.len())
        .sum();
    assert_eq!(applied, 40);
    let db = database.open().await;
    let forty: Vec<i64> = (1..=40).collect();
    assert_eq!(numbers(&db, "SELECT n FROM log ORDER BY n").await, forty);
    assert_eq!(history(&db).await, forty);
}

async fn a_second_run_finds_nothing_to_do(database: TestDatabase) {
    let db = database.open().await;
    let first = db.migrate(&forty()).await.unwrap();
    let names: Vec<&str> = first.applied.iter().map(|it| it.file.as_str()).collect();
    assert_eq!(names[..2], ["V1__number_1.sql", "V2__number_2.sql"]);
    assert_eq!(names.len(), 40);
    let second = db.migrate(&forty()).await.unwrap();
    assert!(second.applied.is_empty());
}

async fn status_and_dry_run_change_nothing(database: TestDatabase) {
    let db = database.open().await;
    let migrations = files(&[
        ("V1__a.sql", "CREATE TABLE a (n INTEGER)"),
        ("V2__b.sql", "CREATE TABLE b (n INTEGER)"),
    ]);
    assert_eq!(pending(&db, &migrations).await, ["V1__a.sql", "V2__b.sql"]);
    assert!(!has_table(&db, "refinery_schema_history").await);
    db.migrate(&files(&[("V1__a.sql", "CREATE TABLE a (n INTEGER)")]))
        .await
        .unwrap();
    let status = migrations.status(&db).await.unwrap();
    let State::Applied { on } = &status.entries[0].state else {
        panic!("{status:?}");
    };
    assert!(on.starts_with("20") && on.ends_with('Z'), "{on}");
    let pending = status.pending().unwrap();
    assert_eq!(pending.len(), 1);
    assert_eq!(pending[0].file, "V2__b.sql");
    assert!(!has_table(&db, "b").await);
}

async fn a_failure_names_file_statement_and_line(database: TestDatabase) {
    let db = database.open().await;
    let wrong = files(&[
        ("V1__fine.sql", "CREATE TABLE fine (n INTEGER)"),
        (
            "V2__wrong.sql",
            "CREATE TABLE half (n INTEGER);\n\n-- why\nINSERT INTO nowhere VALUES (1);\nSELECT 1;",
        ),
    ]);
    let (error, line) = (db.migrate(&wrong).await.unwrap_err(), line!());
    assert_eq!(error.kind(), Kind::Migration, "{error}");
    let message = error.message();
    let named = message.starts_with("V2__wrong.sql failed at statement 2 of 3, line ");
    assert!(named, "{message}");
    assert!(message.contains("nowhere"), "the reason: {message}");
    assert_eq!(error.sql(), Some("-- why\nINSERT INTO nowhere VALUES (1)"));
    let site = error.call_site().unwrap();
    assert_eq!((site.file(), site.line()), (file!(), line));
    assert_eq!(history(&db).await, [1]);
    assert!(has_table(&db, "fine").await);
    if db.driver_name() == "mysql" {
        assert!(
            message.contains("statement 1 has taken effect"),
            "{message}"
        );
        assert!(has_table(&db, "half").await);
    } else {
        assert!(message.ends_with("it was rolled back"), "{message}");
        assert!(!has_table(&db, "half").await);
    }
    let right = files(&[
        ("V1__fine.sql", "CREATE TABLE fine (n INTEGER)"),
        ("V2__right.sql", "CREATE TABLE whole (n INTEGER)"),
    ]);
    let report = db.migrate(&right).await.unwrap();
    assert_eq!(report.applied.len(), 1, "the lock is free");
}

async fn a_history_of_refinery_is_continued(database: TestDatabase) {
    let db = database.open().await;
    // As refinery 0.9 creates and fills it.
    let create = "CREATE TABLE IF NOT EXISTS refinery_schema_history( version INTEGER PRIMARY KEY, \
                  name VARCHAR(255), applied_on VARCHAR(255), checksum VARCHAR(255));";
    db.exec(create, ()).await.unwrap();
    let insert = "INSERT INTO refinery_schema_history (version, name, applied_on, checksum) VALUES \
                  (1, 'initial', '2024-05-04T09:02:41.123456789Z', '9435430460266820252')";
    db.exec(insert, ()).await.unwrap();
    let initial = "CREATE TABLE persons (id int, name varchar(255), city varchar(255));\n";
    let migrations = files(&[
        ("V1__initial.sql", initial),
        ("V2__more.sql", "CREATE TABLE more (n INTEGER)"),
    ]);
    assert_eq!(pending(&db, &migrations).await, ["V2__more.sql"]);
    let report = db.migrate(&migrations).await.unwrap();
    assert_eq!(report.applied.len(), 1);
    assert!(!has_table(&db, "persons").await, "it was not applied again");
    assert_eq!(history(&db).await, [1, 2]);
}

async fn a_changed_file_stops_everything(database: TestDatabase) {
    let db = database.open().await;
    db.migrate(&files(&[("V1__a.sql", "CREATE TABLE a (n INTEGER)")]))
        .await
        .unwrap();
    let changed = files(&[
        ("V1__a.sql", "CREATE TABLE a (n INTEGER, m INTEGER)"),
        ("V2__b.sql", "CREATE TABLE b (n INTEGER)"),
    ]);
    let error = db.migrate(&changed).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Migration, "{error}");
    assert!(error.message().contains("V1__a.sql was changed"), "{error}");
    assert!(!has_table(&db, "b").await);
    // What the message tells to do works.
    let (_, update) = error.message().split_once("with UPDATE").unwrap();
    db.exec(&format!("UPDATE{update}"), ()).await.unwrap();
    db.migrate(&changed).await.unwrap();
    assert!(has_table(&db, "b").await);
}

async fn what_was_applied_before_a_failure_is_told(place: TestDatabase) {
    let db = place.open().await;
    let migrations = files(&[
        ("V1__a.sql", "CREATE TABLE a (n INTEGER)"),
        ("V2__b.sql", "CREATE TABLE b (n INTEGER)"),
        ("V3__wrong.sql", "INSERT INTO nowhere VALUES (1)"),
    ]);
    let mut applied = Vec::new();
    let done = db.migrate_each(&migrations, |one| applied.push(one.file));
    let error = done.await.unwrap_err();
    assert!(error.message().starts_with("V3__wrong.sql"), "{error}");
    assert_eq!(applied, ["V1__a.sql", "V2__b.sql"]);
}
