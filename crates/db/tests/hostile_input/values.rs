//! Hostile values on real databases: each is given back as it was, or refused by an error that
//! says what it is; and the pool is whole afterwards.

use cenote::{Db, Error, Kind, Value};
use tempfile::TempDir;

use crate::names::required_variable;

/// A database that the tests run on, with a table `hostile (n, word, data)`.
struct Database {
    name: &'static str,
    db: Db,
    /// What can be asked for its words, as bytes.
    bytes_of_word: &'static str,
    _folder: Option<TempDir>,
}

async fn open(dsn: &str) -> Db {
    Db::builder(dsn).max(2).open().await.unwrap()
}

async fn databases(table: &str) -> Vec<Database> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hostile.db");
    let databases = vec![
        Database {
            name: "SQLite",
            db: open(&format!("sqlite:{}", file.display())).await,
            bytes_of_word: "CAST(word AS BLOB)",
            _folder: Some(folder),
        },
        Database {
            name: "PostgreSQL",
            db: open(&required_variable("CENOTE_TEST_POSTGRES")).await,
            bytes_of_word: "convert_to(word, 'UTF8')",
            _folder: None,
        },
        Database {
            name: "MariaDB",
            db: open(&required_variable("CENOTE_TEST_MARIADB")).await,
            bytes_of_word: "CAST(word AS BINARY)",
            _folder: None,
        },
    ];
    for Database { name, db, .. } in &databases {
        let bytes = match *name {
            "PostgreSQL" => "bytea",
            "MariaDB" => "longblob",
            _ => "blob",
        };
        let text = if *name == "MariaDB" {
            "longtext"
        } else {
            "text"
        };
        db.exec(&format!("DROP TABLE IF EXISTS {table}"), ())
            .await
            .unwrap();
        let create = format!("CREATE TABLE {table} (n bigint, word {text}, data {bytes})");
        db.exec(&create, ()).await.unwrap();
    }
    databases
}

/// Nothing is lost: every connection is back, and the next statement runs.
async fn is_whole(database: &Database, table: &str) {
    let Database { name, db, .. } = database;
    let rows: i64 = db
        .query_as_one(&format!("SELECT COUNT(*) FROM {table}"), ())
        .await
        .unwrap();
    assert!(rows >= 0);
    let status = db.status();
    assert_eq!((status.active, status.waiting), (0, 0), "{name}: {status}");
    assert_eq!(status.total, status.idle, "{name}: {status}");
}

/// An error of the statement, and not of the connection.
fn is_refused(error: &Error, name: &str) {
    let kinds = [Kind::Database, Kind::Parameters, Kind::Type];
    assert!(kinds.contains(&error.kind()), "{name}: {error:?}");
    assert!(!error.message().is_empty(), "{name}");
    assert!(
        error.message().len() < 2_000,
        "{name}: an error as long as the value"
    );
}

/// Text in which no two parts are the same, with characters of one to four bytes.
fn long_text(bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 16);
    let mut n = 0_u64;
    while text.len() < bytes {
        text.push_str(&n.to_string());
        text.push_str("é字🦀");
        n += 1;
    }
    text
}

#[tokio::test]
async fn values_of_tens_of_megabytes_come_back_as_they_went() {
    let table = "hostile_large";
    for database in databases(table).await {
        let Database { name, db, .. } = &database;
        let limit: usize = match *name {
            "MariaDB" => db
                .query_as_one("SELECT @@max_allowed_packet", ())
                .await
                .unwrap(),
            _ => usize::MAX,
        };
        if *name == "PostgreSQL" {
            // To compress them would be most of the work, and none of the test's.
            let plain = format!(
                "ALTER TABLE {table} ALTER word SET STORAGE EXTERNAL, ALTER data SET STORAGE EXTERNAL"
            );
            db.exec(&plain, ()).await.unwrap();
        }
        let mut kept = 0;
        for megabytes in [12, 32] {
            let word = long_text(megabytes << 20);
            let data = word.as_bytes().to_vec();
            let insert = format!("INSERT INTO {table} VALUES (?, ?, NULL)");
            let written = db.exec(&insert, (megabytes, &word)).await;
            if word.len() > limit {
                let error = written.unwrap_err();
                is_refused(&error, name);
                assert!(error.message().contains("max_allowed_packet"), "{error}");
                is_whole(&database, table).await;
                continue;
            }
            written.unwrap();
            kept += 1;
            let insert = format!("UPDATE {table} SET data = ? WHERE n = ?");
            db.exec(&insert, (&data, megabytes)).await.unwrap();
            // Twice: as a new statement and as one that is known.
            for _ in 0..2 {
                let select = format!("SELECT word, data FROM {table} WHERE n = ?");
                let row = db.query_one(&select, (megabytes,)).await.unwrap();
                assert!(
                    row.get::<&str>(0).unwrap() == word,
                    "{name}: {megabytes} MB of text"
                );
                assert!(
                    row.get::<&[u8]>(1).unwrap() == data,
                    "{name}: {megabytes} MB of bytes"
                );
            }
        }
        assert!(kept >= 1, "{name} has kept none");
        is_whole(&database, table).await;
    }
}

#[tokio::test]
async fn ten_thousand_parameters_arrive_in_order_and_too_many_fail() {
    let table = "hostile_many";
    for database in databases(table).await {
        let Database { name, db, .. } = &database;
        let insert = |rows: usize| {
            let places = vec!["(?, ?)"; rows].join(", ");
            format!("INSERT INTO {table} (n, word) VALUES {places}")
        };
        let values = |rows: usize| -> Vec<Value<'static>> {
            (0..rows)
                .flat_map(|n| {
                    let n = i64::try_from(n).unwrap();
                    [Value::Int(n), Value::Text(format!("word {n}").into())]
                })
                .collect()
        };
        for _ in 0..2 {
            db.exec(&format!("DELETE FROM {table}"), ()).await.unwrap();
            let done = db.exec(&insert(5_000), values(5_000)).await.unwrap();
            assert_eq!(done.rows_affected, 5_000, "{name}");
            let rows = db
                .query(&format!("SELECT n, word FROM {table} ORDER BY n"), ())
                .await
                .unwrap();
            for (n, row) in rows.iter().enumerate() {
                assert_eq!(row.get::<usize>(0).unwrap(), n, "{name}");
                assert_eq!(row.get::<&str>(1).unwrap(), format!("word {n}"), "{name}");
            }
        }
        let error = db.exec(&insert(40_000), values(40_000)).await.unwrap_err();
        is_refused(&error, name);
        is_whole(&database, table).await;
        for given in [0, 1, 9_999] {
            let error = db
                .exec(&insert(5_000), &values(5_000)[..given])
                .await
                .unwrap_err();
            assert_eq!(error.kind(), Kind::Parameters, "{name}: {given}");
        }
        let count: i64 = db
            .query_as_one(&format!("SELECT COUNT(*) FROM {table}"), ())
            .await
            .unwrap();
        assert_eq!(count, 5_000, "{name}");
        is_whole(&database, table).await;
    }
}

#[tokio::test]
async fn bytes_that_are_not_utf8_are_an_error_as_text() {
    let table = "hostile_utf8";
    let bad: [&[u8]; 6] = [
        b"\xff",
        b"a\xc3",
        b"\xc0\x80",
        b"\xed\xa0\x80",
        b"\xf8\x88\x80\x80\x80",
        b"\xfe\xffz",
    ];
    for database in databases(table).await {
        let Database { name, db, .. } = &database;
        for (n, bytes) in bad.iter().enumerate() {
            let n = i64::try_from(n).unwrap();
            // As bytes it is what it is.
            let insert = format!("INSERT INTO {table} (n, data) VALUES (?, ?)");
            db.exec(&insert, (n, *bytes)).await.unwrap();
            let select = format!("SELECT data FROM {table} WHERE n = ?");
            let row = db.query_one(&select, (n,)).await.unwrap();
            assert_eq!(row.get::<&[u8]>(0).unwrap(), *bytes, "{name}");
            assert_eq!(
                row.get::<String>(0).unwrap_err().kind(),
                Kind::Type,
                "{name}"
            );
            // As text the database refuses it, or it comes back as it was, and we do.
            let word = match *name {
                "PostgreSQL" => "convert_from(data, 'UTF8')",
                "SQLite" => "CAST(data AS TEXT)",
                _ => "data",
            };
            let update = format!("UPDATE {table} SET word = {word} WHERE n = ?");
            match db.exec(&update, (n,)).await {
                Err(error) => {
                    is_refused(&error, name);
                    assert!(error.sql_state().is_some(), "{name}: {error:?}");
                }
                Ok(_) => {
                    assert_ne!(*name, "PostgreSQL", "it takes no such text");
                    let select = format!("SELECT word FROM {table} WHERE n = ?");
                    let row = db.query_one(&select, (n,)).await.unwrap();
                    let error = row.get::<&str>(0).unwrap_err();
                    assert_eq!(error.kind(), Kind::Type, "{name}");
                    let error = db.query_as_one::<String>(&select, (n,)).await.unwrap_err();
                    assert_eq!(error.kind(), Kind::Type, "{name}");
                }
            }
        }
        is_whole(&database, table).await;
    }
}

#[tokio::test]
async fn a_nul_in_a_text_is_kept_or_refused_and_never_cuts_it_off() {
    let table = "hostile_nul";
    let words = [
        "\0",
        "a\0",
        "\0b",
        "a\0b",
        "one\0'; DROP TABLE hostile_nul; --",
    ];
    for database in databases(table).await {
        let Database {
            name,
            db,
            bytes_of_word,
            ..
        } = &database;
        for (n, word) in words.iter().enumerate() {
            let n = i64::try_from(n).unwrap();
            let insert = format!("INSERT INTO {table} (n, word) VALUES (?, ?)");
            match db.exec(&insert, (n, *word)).await {
                Err(error) => {
                    assert_eq!(*name, "PostgreSQL", "the others have NULs: {error}");
                    is_refused(&error, name);
                }
                Ok(_) => {
                    let select = format!("SELECT word, {bytes_of_word} FROM {table} WHERE n = ?");
                    let row = db.query_one(&select, (n,)).await.unwrap();
                    assert_eq!(row.get::<&str>(0).unwrap(), *word, "{name}");
                    assert_eq!(row.get::<&[u8]>(1).unwrap(), word.as_bytes(), "{name}");
                }
            }
        }
        is_whole(&database, table).await;
    }
}

#[tokio::test]
async fn a_nul_in_the_sql_itself_is_an_error_and_nothing_of_it_runs() {
    let table = "hostile_sql";
    for database in databases(table).await {
        let Database { name, db, .. } = &database;
        for sql in [
            format!("INSERT INTO {table} (n) VALUES (1)\0"),
            format!("INSERT INTO {table} (n) VALUES (1)\0 garbage"),
            format!("INSERT INTO {table} (n) VALUES (1); \0 garbage"),
            format!("\0INSERT INTO {table} (n) VALUES (1)"),
        ] {
            let error = db.exec(&sql, ()).await.unwrap_err();
            is_refused(&error, name);
            let error = db.query(&sql, ()).await.unwrap_err();
            is_refused(&error, name);
        }
        let count: i64 = db
            .query_as_one(&format!("SELECT COUNT(*) FROM {table}"), ())
            .await
            .unwrap();
        assert_eq!(count, 0, "{name}");
        is_whole(&database, table).await;
    }
}

#[tokio::test]
async fn sql_of_any_depth_and_length_is_run_or_refused() {
    let table = "hostile_depth";
    for database in databases(table).await {
        let Database { name, db, .. } = &database;
        let deep = format!("SELECT {}1{}", "(".repeat(50_000), ")".repeat(50_000));
        if let Err(error) = db.query(&deep, ()).await {
            is_refused(&error, name);
        }
        let open = format!("SELECT {}", "((SELECT ".repeat(20_000));
        is_refused(&db.query(&open, ()).await.unwrap_err(), name);
        let long = format!("SELECT LENGTH('{}') AS length", "x".repeat(10 << 20));
        let length: i64 = db.query_as_one(&long, ()).await.unwrap();
        assert_eq!(length, 10 << 20, "{name}");
        is_whole(&database, table).await;
    }
}

/// Credentials and names go into messages in which a NUL ends a text: what follows would be read as the
/// next field.
#[tokio::test]
async fn nul_in_credentials_or_options_is_an_error_before_sending() {
    for dsn in [
        required_variable("CENOTE_TEST_POSTGRES"),
        required_variable("CENOTE_TEST_MARIADB"),
    ] {
        for what in ["user", "password", "dbname"] {
            let builder = Db::builder(&dsn).max(1);
            let builder = match what {
                "user" => builder.user("cenote\0database\0postgres"),
                "password" => builder.password("cenote-secret\0"),
                _ => builder.option("dbname", "cenote\0x"),
            };
            let error = match builder.open().await {
                Err(error) => error,
                Ok(db) => db.ping().await.expect_err(what),
            };
            let kinds = [Kind::Config, Kind::Connect, Kind::Parameters];
            assert!(kinds.contains(&error.kind()), "{what}: {error:?}");
            assert!(error.message().contains("NUL"), "{what}: {error:?}");
            assert!(!format!("{error:?}").contains("cenote-secret"), "{error:?}");
        }
    }
}
