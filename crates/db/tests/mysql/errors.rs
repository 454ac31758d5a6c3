//! What errors of MariaDB say, and what the log says of its statements.

use std::time::Duration;

use cenote::{Db, Violation};
use tracing::Level;

use crate::log::Log;
use crate::servers::{client, dsn};

async fn open() -> Db {
    let dsn = client::own_database(&dsn()).await;
    let builder = Db::builder(&dsn).slow_statements(Duration::from_nanos(1));
    let db = builder.max(2).open().await.unwrap();
    let script = "CREATE TABLE person (id BIGINT PRIMARY KEY, email VARCHAR(99) NOT NULL UNIQUE,
                      age INT, CONSTRAINT adult CHECK (age >= 18));
                  CREATE TABLE pet (person BIGINT, CONSTRAINT owner FOREIGN KEY (person)
                      REFERENCES person (id));
                  INSERT INTO person VALUES (1, 'ada@example.com', 36)";
    db.exec(script, ()).await.unwrap();
    db
}

#[tokio::test]
async fn a_violation_names_table_column_and_constraint() {
    let db = open().await;
    let sql = "INSERT INTO person (id, email) VALUES (2, ?)";
    let error = db.exec(sql, ("ada@example.com",)).await.unwrap_err();
    let line = line!() - 1;
    assert_eq!(error.violation(), Some(Violation::Unique));
    assert_eq!(error.constraint(), Some("email"));
    assert_eq!(error.message(), "Duplicate entry *** for key 'email'");
    let detail = error.detail().expect("the value");
    assert!(detail.contains("ada@example.com"), "{detail}");
    assert_eq!(error.sql(), Some(sql));
    assert_eq!(error.call_site().unwrap().line(), line);
    for shown in [error.to_string(), format!("{error:?}")] {
        assert!(!shown.contains("ada@"), "{shown}");
        assert!(shown.contains("VALUES (***, ?)"), "{shown}");
    }

    let refused = async |sql: &str| db.exec(sql, ()).await.unwrap_err();
    let error = refused("INSERT INTO person VALUES (3, NULL, 20)").await;
    assert!(error.is_not_null_violation());
    assert_eq!(error.column(), Some("email"), "{error}");
    let error = refused("INSERT INTO pet VALUES (9)").await;
    assert!(error.is_foreign_key_violation());
    assert_eq!(
        (error.table(), error.constraint()),
        (Some("pet"), Some("owner"))
    );
    let error = refused("INSERT INTO person VALUES (3, 'x', 7)").await;
    assert!(error.is_check_violation());
    assert_eq!(
        (error.table(), error.constraint()),
        (Some("person"), Some("adult"))
    );
    let error = refused("SELECT nope FROM person").await;
    assert_eq!(error.column(), Some("nope"), "{error}");
    let error = refused("SELECT 1 FROM nowhere").await;
    assert_eq!(error.table(), Some("nowhere"), "{error}");
    assert!(error.schema().is_some());
}

#[tokio::test]
async fn no_value_is_in_the_text_of_an_error() {
    let db = open().await;
    let cases = [
        "SELECT 1 'a' FROM FROM 'ada@example.com'",
        "INSERT INTO person (id, email) VALUES ('ada@example.com', 'x')",
        "SELECT \"ada@example.com",
    ];
    for sql in cases {
        let error = db.exec(sql, ()).await.unwrap_err();
        for shown in [error.to_string(), format!("{error:?}")] {
            assert!(!shown.contains("ada"), "{shown}");
        }
        assert!(error.detail().unwrap().contains("ada"), "{error}");
    }
}

#[tokio::test]
async fn a_slow_statement_of_mariadb_is_logged() {
    let db = open().await;
    let log = Log::new();
    let line = line!() + 1;
    db.query("SELECT id, 'secret' FROM person", ())
        .await
        .unwrap();
    let lines = log.take(Level::WARN, "cenote::statement");
    let [slow] = &lines[..] else {
        panic!("{lines:?}");
    };
    assert!(
        slow.contains("slow statement: SELECT id, *** FROM person"),
        "{slow}"
    );
    assert!(slow.contains("rows=1"), "{slow}");
    assert!(slow.contains(&format!("errors.rs:{line}:")), "{slow}");
}

#[tokio::test]
async fn value_that_does_not_fit_is_a_violation_of_data() {
    let db = open().await;
    db.exec(
        "CREATE TABLE short (code VARCHAR(3), n SMALLINT, at DATE)",
        (),
    )
    .await
    .unwrap();
    for sql in [
        "INSERT INTO short (code) VALUES ('long')",
        "INSERT INTO short (n) VALUES (70000)",
        "INSERT INTO short (n) VALUES ('ada')",
        "INSERT INTO short (at) VALUES ('2024-02-30')",
    ] {
        let error = db.exec(sql, ()).await.unwrap_err();
        assert_eq!(error.violation(), Some(Violation::Data), "{sql}: {error}");
    }
}
