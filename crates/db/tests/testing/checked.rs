//! Registered statements are checked on a real schema.

use cenote::checked_sql::{Registered, Report, check_these, registered};
use cenote::{Db, Kind, sql};

use crate::EmptyDatabase;
use crate::on_every_database;

on_every_database! {
    right_statements_pass,
    wrong_names_and_syntax_are_listed_with_file_and_line,
    wrong_numbers_of_parameters_and_columns_are_listed,
    what_cannot_be_prepared_alone_is_left_out,
    check_changes_nothing_and_leaves_nothing,
    sandbox_can_be_checked,
    lost_connection_is_an_error_and_no_report,
}

async fn with_schema(database: &EmptyDatabase) -> Db {
    let db = database.open().await;
    let sql = "CREATE TABLE customer (id BIGINT PRIMARY KEY, name VARCHAR(40) NOT NULL, age INT)";
    db.exec(sql, ()).await.unwrap();
    db
}

/// The statements of a module of this file.
fn of(module: &str) -> Vec<&'static Registered> {
    let path = format!("{}::{module}", module_path!());
    let all = registered().into_iter();
    let found: Vec<_> = all.filter(|of| of.module == path).collect();
    assert!(!found.is_empty(), "{path}");
    found
}

async fn checked(db: &Db, module: &str) -> Report {
    check_these(db, of(module)).await.unwrap()
}

mod right {
    use cenote::sql;

    pub(super) const INSERT: &str = sql!(
        "INSERT INTO customer (id, name, age) VALUES (?, ?, ?)",
        (i64, &str, Option<i32>),
    );

    pub(super) fn names() -> [&'static str; 4] {
        [
            sql!("SELECT id, name FROM customer"),
            sql!("SELECT name, age FROM customer WHERE id = ?", (i64) -> (String, Option<i32>)),
            sql!(
                "DELETE FROM customer WHERE id = :id OR name = :name",
                (i64, &str)
            ),
            sql!(concat!("SELECT ", "1")),
        ]
    }
}

async fn right_statements_pass(database: EmptyDatabase) {
    let db = with_schema(&database).await;
    let report = checked(&db, "right").await;
    assert!(report.is_ok(), "{report}");
    assert_eq!((report.checked, report.unchecked.len()), (5, 0));
    // The macro gives the text, and the text runs.
    assert_eq!(right::names()[3], "SELECT 1");
    db.exec(right::INSERT, (1, "Ada", 36)).await.unwrap();
}

mod wrong {
    use cenote::sql;

    pub(super) const LINE: u32 = line!() + 3;
    pub(super) const ALL: [&str; 3] = [
        // One after the other.
        sql!("SELECT nmae FROM customer WHERE id = ?"),
        sql!("SELECT name FROM custmer"),
        sql!("SELEC name FROM customer"),
    ];
}

async fn wrong_names_and_syntax_are_listed_with_file_and_line(database: EmptyDatabase) {
    let db = with_schema(&database).await;
    let report = checked(&db, "wrong").await;
    assert!(!report.is_ok());
    assert_eq!((report.checked, report.wrong.len()), (3, 3));
    let text = report.to_string();
    for (n, (word, sql)) in ["nmae", "custmer", ""]
        .into_iter()
        .zip(wrong::ALL)
        .enumerate()
    {
        let line = wrong::LINE + u32::try_from(n).unwrap();
        let begin = format!("crates/db/tests/testing/checked.rs:{line}: ");
        let found = text.lines().find(|line| line.starts_with(&begin));
        assert!(found.is_some_and(|line| line.contains(word)), "{text}");
        assert!(text.contains(sql), "{text}");
    }
    if db.driver_name() == "pgsql" {
        assert!(text.contains("[42703] at character 8"), "{text}");
    }
}

mod counts {
    use cenote::sql;

    pub(super) const ALL: [&str; 3] = [
        sql!("SELECT name FROM customer WHERE id = ?", (i64, i64)),
        sql!("SELECT name FROM customer", () -> (String, i32)),
        sql!("SELECT name FROM customer WHERE id = ? AND name = ?", ()),
    ];
}

async fn wrong_numbers_of_parameters_and_columns_are_listed(database: EmptyDatabase) {
    let db = with_schema(&database).await;
    let report = checked(&db, "counts").await;
    assert_eq!(report.wrong.len(), counts::ALL.len());
    let text = report.to_string();
    for problem in [
        "it has 1 parameter, declared are 2",
        "it has 1 column, declared are 2",
        "it has 2 parameters, declared are 0",
    ] {
        assert!(text.contains(problem), "{text}");
    }
}

mod alone {
    use cenote::sql;

    pub(super) const SCRIPT: &str = sql!("DELETE FROM customer; DROP TABLE customer");
    pub(super) const PRAGMA: &str = sql!("PRAGMA foreign_keys = 0");
}

#[cfg(feature = "postgres")]
mod copies {
    use cenote::sql;

    pub(super) const IN: &str = sql!("COPY customer FROM STDIN");
    pub(super) const OUT: &str = sql!("COPY customer TO STDOUT");
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn copy_of_the_client_is_left_out() {
    let database = EmptyDatabase::postgres().await;
    let db = with_schema(&database).await;
    let report = checked(&db, "copies").await;
    assert!(report.is_ok(), "{report}");
    let unchecked: Vec<_> = report.unchecked.iter().map(|of| of.sql).collect();
    assert_eq!(unchecked, [copies::IN, copies::OUT]);
}

async fn what_cannot_be_prepared_alone_is_left_out(database: EmptyDatabase) {
    let db = with_schema(&database).await;
    let report = checked(&db, "alone").await;
    assert_eq!((report.checked, report.unchecked.len()), (0, 2));
    assert_eq!(report.unchecked[0].sql, alone::SCRIPT);
    assert_eq!(report.unchecked[1].sql, alone::PRAGMA);
    db.query("SELECT * FROM customer", ()).await.unwrap();
}

mod effects {
    use cenote::sql;

    pub(super) const ALL: [&str; 3] = [
        sql!("INSERT INTO customer VALUES (1, 'Ada', 36)"),
        sql!("DELETE FROM customer"),
        sql!("CREATE TABLE other (n INT)"),
    ];
}

async fn check_changes_nothing_and_leaves_nothing(database: EmptyDatabase) {
    let db = with_schema(&database).await;
    let before = db.counters().created;
    let report = checked(&db, "effects").await;
    assert!(report.is_ok(), "{report}");
    assert_eq!(report.checked, effects::ALL.len());
    let rows = db.query("SELECT * FROM customer", ()).await.unwrap();
    assert!(rows.is_empty());
    assert!(db.query("SELECT * FROM other", ()).await.is_err());
    // The connection with the prepared statements is closed: a new one serves.
    assert_eq!(db.counters().created, before + 1);
}

async fn sandbox_can_be_checked(database: EmptyDatabase) {
    with_schema(&database).await;
    let sandbox = database.builder().sandbox().await.unwrap();
    let db = sandbox.db();
    db.exec(right::INSERT, (1, "Ada", 36)).await.unwrap();
    assert!(checked(db, "right").await.is_ok());
    assert_eq!(checked(db, "wrong").await.wrong.len(), 3);
    // The check has not ended the sandbox's transaction.
    let ids: Vec<i64> = db
        .query_scalar("SELECT id FROM customer", ())
        .await
        .unwrap();
    assert_eq!(ids, [1]);
    sandbox.finish().await.unwrap();
}

async fn lost_connection_is_an_error_and_no_report(database: EmptyDatabase) {
    let db = with_schema(&database).await;
    db.close().await.unwrap();
    let error = check_these(&db, of("right")).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Closed);
    let site = error.call_site().unwrap();
    assert!(site.file().ends_with("checked.rs"), "{site}");
}

mod types {
    use cenote::{Value, sql};

    pub(super) const RIGHT: [&str; 3] = [
        sql!("SELECT id FROM customer WHERE age = $1", (i32) -> (Value<'_>)),
        sql!("SELECT 'a'::mood, true WHERE 'a'::mood = $1", (&str) -> (String, bool)),
        sql!("SELECT now() WHERE $1 < now()", (cenote::DateTime) -> (cenote::DateTime)),
    ];
}

mod wrong_types {
    use cenote::sql;

    pub(super) const ALL: [&str; 2] = [
        sql!("SELECT id, name FROM customer WHERE age = $1", (i64) -> (i32, i64)),
        sql!("SELECT age FROM customer WHERE name = $1", (bool) -> (Option<String>)),
    ];
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn postgres_compares_types() {
    let db = with_schema(&EmptyDatabase::postgres().await).await;
    db.exec("CREATE TYPE mood AS ENUM ('a', 'b')", ())
        .await
        .unwrap();
    let report = checked(&db, "types").await;
    assert!(report.is_ok(), "{report}");
    assert_eq!(report.checked, types::RIGHT.len());
    let report = checked(&db, "wrong_types").await;
    assert_eq!(report.wrong.len(), wrong_types::ALL.len());
    let text = report.to_string();
    for problem in [
        "parameter 1 is int4, declared as i64",
        "column id is int8, declared as i32",
        "column name is varchar, declared as i64",
        "parameter 1 is text, declared as bool",
        "column age is int4, declared as String",
    ] {
        assert!(text.contains(problem), "{problem}: {text}");
    }
}

#[test]
fn registered_statements_are_sorted_and_complete() {
    let all = registered();
    let here = sql!("SELECT 'here'");
    assert!(
        all.iter()
            .any(|of| of.sql == here && of.file.ends_with("checked.rs"))
    );
    assert!(all.is_sorted_by_key(|of| (of.file, of.line)));
}
