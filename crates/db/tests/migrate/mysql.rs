//! What only MySQL and MariaDB have: routines, and definitions that commit at once.

use cenote::{Db, Kind};

use crate::support::{TestDatabase, files, has_table, history, numbers, soon, unique, until};

/// The number of the connection that runs a statement that begins so.
async fn running(admin: &Db, statement: &str) -> i64 {
    let sql =
        format!("SELECT ID FROM information_schema.PROCESSLIST WHERE INFO LIKE '{statement}%'");
    let mut id = 0;
    until("the statement runs", async || {
        id = numbers(admin, &sql).await.first().copied().unwrap_or(0);
        id != 0
    })
    .await;
    id
}

#[tokio::test]
async fn routines_and_triggers_stay_whole() {
    let database = TestDatabase::mysql().await;
    let db = database.open().await;
    let sql = "
        CREATE TABLE a (n INT); CREATE TABLE b (n INT);
        CREATE TRIGGER copy AFTER INSERT ON a FOR EACH ROW BEGIN
            INSERT INTO b VALUES (NEW.n); INSERT INTO b VALUES (NEW.n + 1);
        END;
        CREATE PROCEDURE fill(count INT)
        BEGIN
            DECLARE i INT DEFAULT 0;
            WHILE i < count DO
                IF i > 100 THEN SET i = 100; END IF;
                INSERT INTO a VALUES (i); SET i = i + 1;
            END WHILE;
        END;
        CALL fill(2);
    ";
    db.migrate(&files(&[("V1__a.sql", sql)])).await.unwrap();
    let numbers = numbers(&db, "SELECT n FROM b ORDER BY n").await;
    assert_eq!(numbers, [0, 1, 1, 2]);
}

#[tokio::test]
async fn a_migration_of_rows_alone_is_rolled_back() {
    let database = TestDatabase::mysql().await;
    let db = database.open().await;
    db.migrate(&files(&[("V1__a.sql", "CREATE TABLE a (n INT)")]))
        .await
        .unwrap();
    let rows = "INSERT INTO a VALUES (1);\nUPDATE a SET n = 2;\ninsert into nowhere values (1)";
    let migrations = files(&[
        ("V1__a.sql", "CREATE TABLE a (n INT)"),
        ("V2__rows.sql", rows),
    ]);
    let error = db.migrate(&migrations).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Migration);
    assert!(error.message().ends_with("it was rolled back"), "{error}");
    assert_eq!(numbers(&db, "SELECT COUNT(*) FROM a").await, [0]);
    assert_eq!(history(&db).await, [1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_in_the_middle_the_lock_is_free_again() {
    let database = TestDatabase::mysql().await;
    let (db, admin) = (database.open().await, database.open().await);
    let sql = |pause: &str| format!("CREATE TABLE IF NOT EXISTS half (n INT);\n{pause}");
    let slow = sql("SELECT SLEEP(600) AS dropped_migration");
    let slow = files(&[("V1__a.sql", &slow)]);
    let run = cenote::spawn({
        let db = db.clone();
        async move { db.migrate(&slow).await }
    });
    running(&admin, "SELECT SLEEP(600) AS dropped_migration").await;
    run.abort();
    assert!(run.await.unwrap_err().is_cancelled());
    let repeated = files(&[("V1__a.sql", &sql("SELECT 1"))]);
    let report = soon("the lock is free", admin.migrate(&repeated)).await;
    assert_eq!(report.unwrap().applied.len(), 1);
    assert!(has_table(&db, "half").await, "definitions commit at once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_in_the_middle_it_can_be_repeated() {
    let database = TestDatabase::mysql().await;
    let (db, admin) = (database.open().await, database.open().await);
    let sql = |pause: &str| format!("CREATE TABLE IF NOT EXISTS half (n INT);\n{pause}");
    let slow = sql("SELECT SLEEP(600) AS killed_migration");
    let slow = files(&[("V1__a.sql", &slow)]);
    let run = cenote::spawn({
        let db = db.clone();
        async move { db.migrate(&slow).await }
    });
    let id = running(&admin, "SELECT SLEEP(600) AS killed_migration").await;
    admin.exec(&format!("KILL {id}"), ()).await.unwrap();
    let error = soon("the run fails", run).await.unwrap().unwrap_err();
    assert!(error.is_connection_lost(), "{error:?}");
    assert!(
        error.message().contains("statement 1 has taken effect"),
        "{error}"
    );
    assert_eq!(history(&db).await, [0_i64; 0]);
    let repeated = files(&[("V1__a.sql", &sql("SELECT 1"))]);
    let report = soon("it is applied", admin.migrate(&repeated)).await;
    assert_eq!(report.unwrap().applied.len(), 1);
}

#[tokio::test]
async fn file_that_uses_another_database_is_recorded() {
    let place = TestDatabase::mysql().await;
    let db = place.open().await;
    let other = unique("other");
    db.exec(&format!("CREATE DATABASE {other}"), ())
        .await
        .unwrap();
    let text = format!("CREATE TABLE here (n INT); USE {other}; CREATE TABLE there (n INT)");
    let migrations = files(&[
        ("V1__use.sql", &text),
        ("V2__next.sql", "CREATE TABLE next (n INT)"),
    ]);
    let report = soon("the lock is released", db.migrate(&migrations))
        .await
        .unwrap();
    assert_eq!(report.applied.len(), 2);
    assert_eq!(history(&db).await, [1, 2]);
    assert!(has_table(&db, "next").await);
    assert!(has_table(&db, &format!("{other}.there")).await);
    assert!(!has_table(&db, &format!("{other}.refinery_schema_history")).await);
}
