//! What SQLite buffers for a statement that runs inline, and what the driver knows of its tables.

use cenote::driver::{Connection, Value};

use crate::support::test_database::TestDatabase;
use crate::support::*;

const IN_PLACE: &str = "&in_place=on";

async fn database() -> TestDatabase {
    TestDatabase::with("CREATE TABLE t (n INTEGER)").await
}

/// Runs an insert that tells its number until it is run in place, in a transaction.
async fn tell_in_place(db: &mut Box<dyn Connection>) {
    begin(db).await;
    let before = sqlite(db).in_place_runs();
    for _ in 0..4 {
        one::<i64>(db, "INSERT INTO t VALUES (1) RETURNING n").await;
    }
    assert!(sqlite(db).in_place_runs() > before);
}

#[tokio::test]
async fn inline_temporary_storage_follows_the_configured_choice() {
    let database = database().await;
    for (option, told) in [("", 0), ("&temp_store=file", 1)] {
        let mut db = database.open(&format!("{IN_PLACE}{option}")).await;
        tell_in_place(&mut db).await;
        assert_eq!(one::<i64>(&mut db, "PRAGMA temp_store").await, told);
        db.commit().await.unwrap();
    }
    let mut db = database.open(IN_PLACE).await;
    let memory = Value::Int(2);
    db.set("temp_store", &memory).await.unwrap();
    tell_in_place(&mut db).await;
    assert_eq!(one::<i64>(&mut db, "PRAGMA temp_store").await, 2);
    db.commit().await.unwrap();
}

#[tokio::test]
async fn temporary_tables_outlive_what_is_set_aside() {
    let database = database().await;
    let mut db = database.open(IN_PLACE).await;
    tell_in_place(&mut db).await;
    db.commit().await.unwrap();
    exec(&mut db, "CREATE TEMP TABLE own AS SELECT 7 AS n").await;
    let before = sqlite(&mut db).in_place_runs();
    for _ in 0..4 {
        exec(&mut db, "SELECT DISTINCT n FROM t").await;
    }
    assert!(sqlite(&mut db).in_place_runs() > before);
    assert_eq!(one::<i64>(&mut db, "SELECT n FROM own").await, 7);
    begin(&mut db).await;
    for _ in 0..4 {
        one::<i64>(&mut db, "INSERT INTO t VALUES (1) RETURNING n").await;
    }
    db.commit().await.unwrap();
    assert_eq!(one::<i64>(&mut db, "SELECT n FROM own").await, 7);
}

#[tokio::test]
async fn table_without_row_ids_reports_none_of_another_table() {
    let database = database().await;
    let mut db = database.open(IN_PLACE).await;
    let other = rusqlite::Connection::open(database.file.path()).unwrap();
    other
        .execute_batch(
            "CREATE TABLE a (id INTEGER PRIMARY KEY); CREATE TABLE b (k INTEGER PRIMARY KEY)",
        )
        .unwrap();
    let both = async |db: &mut Box<dyn Connection>| {
        begin(db).await;
        let a = exec(db, "INSERT INTO a DEFAULT VALUES")
            .await
            .last_insert_id;
        let sql = format!("INSERT INTO b VALUES ({})", a.unwrap());
        let b = exec(db, &sql).await.last_insert_id;
        db.commit().await.unwrap();
        (a, b)
    };
    assert_eq!(both(&mut db).await, (Some(1), Some(1)));
    assert_eq!(both(&mut db).await, (Some(2), Some(2)));
    other
        .execute_batch("DROP TABLE b; CREATE TABLE b (k INTEGER PRIMARY KEY) WITHOUT ROWID")
        .unwrap();
    assert_eq!(both(&mut db).await, (Some(3), None));
    assert_eq!(both(&mut db).await, (Some(4), None));
}

#[tokio::test]
async fn a_setting_that_is_refused_leaves_what_is_set_aside_as_it_was() {
    let database = database().await;
    let mut db = database.open(IN_PLACE).await;
    tell_in_place(&mut db).await;
    db.commit().await.unwrap();
    let nonsense = Value::Bytes(b"x".as_slice().into());
    assert!(db.set("temp_store", &nonsense).await.is_err());
    assert_eq!(one::<i64>(&mut db, "PRAGMA temp_store").await, 0);
}

#[tokio::test]
async fn a_temporary_table_is_not_taken_for_the_one_that_it_hides() {
    let database = database().await;
    let mut db = database.open(IN_PLACE).await;
    exec(&mut db, "CREATE TABLE a (id INTEGER PRIMARY KEY)").await;
    exec(&mut db, "CREATE TABLE b (k INTEGER PRIMARY KEY)").await;
    let one_of = async |db: &mut Box<dyn Connection>, sql: &str| exec(db, sql).await.last_insert_id;
    assert_eq!(one_of(&mut db, "INSERT INTO a VALUES (1)").await, Some(1));
    assert_eq!(one_of(&mut db, "INSERT INTO b VALUES (1)").await, Some(1));
    exec(
        &mut db,
        "CREATE TEMP TABLE b (k INTEGER PRIMARY KEY) WITHOUT ROWID",
    )
    .await;
    assert_eq!(one_of(&mut db, "INSERT INTO b VALUES (1)").await, None);
    exec(&mut db, "DROP TABLE temp.b").await;
    assert_eq!(one_of(&mut db, "INSERT INTO a VALUES (2)").await, Some(2));
    assert_eq!(one_of(&mut db, "INSERT INTO b VALUES (2)").await, Some(2));
}

#[tokio::test]
async fn rolled_back_table_is_not_taken_for_the_next_of_its_name() {
    let database = database().await;
    let mut db = database.open(IN_PLACE).await;
    exec(&mut db, "CREATE TABLE a (id INTEGER PRIMARY KEY)").await;
    begin(&mut db).await;
    let without = "CREATE TABLE b (k INTEGER PRIMARY KEY) WITHOUT ROWID";
    exec(&mut db, without).await;
    exec(&mut db, "INSERT INTO a VALUES (1)").await;
    let none = exec(&mut db, "INSERT INTO b VALUES (1)").await;
    assert_eq!(none.last_insert_id, None);
    db.rollback().await.unwrap();
    // The schema has the same number now as it had then.
    exec(&mut db, "CREATE TABLE b (k INTEGER PRIMARY KEY)").await;
    exec(&mut db, "INSERT INTO a VALUES (1)").await;
    let same = exec(&mut db, "INSERT INTO b VALUES (1)").await;
    assert_eq!(same.last_insert_id, Some(1));
}
