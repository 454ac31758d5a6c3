//! Sources that cannot be connected to, and one that can by its name alone.

use std::path::Path;
use std::process::Command;

use cenote::{Db, Kind};

use crate::servers::{free_port, refused, soon};
use crate::sources::{library, postgres_at, postgres_dsn};

#[tokio::test]
async fn a_wrong_password_is_reported_and_not_shown() {
    let dsn = postgres_dsn().replace("PWD=cenote-secret", "PWD=hunter2");
    let error = refused(&dsn).await;
    assert_eq!(error.kind(), Kind::Connect, "{error:?}");
    assert!(
        error
            .message()
            .contains("password authentication failed for user"),
        "{error}"
    );
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[tokio::test]
async fn a_password_may_hold_whatever_it_likes() {
    let password = "ö d'd;\"=\\%@:/#";
    let dsn = postgres_at(crate::servers::port());
    let db = Db::builder(&dsn).user("odd").password(password);
    let db = db.max(1).open().await.unwrap();
    let user: String = db.query_as_one("SELECT current_user", ()).await.unwrap();
    assert_eq!(user, "odd");
    assert!(!format!("{db:?}").contains(password));
}

#[tokio::test]
async fn missing_data_source_is_an_error_that_says_where_to_look() {
    let error = refused("odbc:no_such_source").await;
    assert_eq!(error.kind(), Kind::Connect, "{error:?}");
    assert_eq!(error.sql_state(), Some("IM002"), "{error:?}");
    assert!(error.message().contains("no_such_source"), "{error}");
    assert!(error.message().contains("odbcinst -q -s"), "{error}");
}

#[tokio::test]
async fn missing_driver_is_an_error_naming_it_and_what_to_install() {
    let error = refused("odbc:Driver=/no/such/library.so;Server=x").await;
    assert_eq!(error.kind(), Kind::Connect, "{error:?}");
    assert!(error.message().contains("/no/such/library.so"), "{error}");
    assert!(error.message().contains("odbc-postgresql"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_not_there_refuses() {
    let error = refused(&format!("{};UID=x", postgres_at(free_port()))).await;
    assert_eq!(error.kind(), Kind::Connect, "{error:?}");
    assert!(error.message().contains("refused"), "{error}");
}

#[tokio::test]
async fn an_unopenable_file_is_reported() {
    let dsn = crate::sources::sqlite_dsn(Path::new("/no/such/folder/at/all.db"));
    let db = Db::builder(&dsn).max(1).open().await.unwrap();
    // SQLite's ODBC driver opens it when it is needed.
    let error = soon("it fails", db.exec("CREATE TABLE t (a)", ())).await;
    let error = error.unwrap_err();
    assert!(
        matches!(error.kind(), Kind::Connect | Kind::Database),
        "{error:?}"
    );
}

const CHILD: &str = "CENOTE_TEST_ODBC_SOURCE";

/// unixODBC reads where its files are from the environment, which cannot be changed in a program
/// with threads: so the test runs itself once more, with another environment.
#[tokio::test]
async fn a_data_source_is_found_by_its_name() {
    if let Ok(source) = std::env::var(CHILD) {
        let db = Db::builder(&format!("odbc:{source}")).max(1).open();
        let db = db.await.unwrap();
        let seven: i64 = db.query_as_one("SELECT 7", ()).await.unwrap();
        assert_eq!(seven, 7);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let ini = folder.path().join("odbc.ini");
    let text = format!(
        "[shop]\nDriver = {}\nDatabase = {}\n",
        library("libsqlite3odbc.so").display(),
        folder.path().join("shop.db").display()
    );
    std::fs::write(&ini, text).unwrap();
    let itself = std::env::current_exe().unwrap();
    let done = Command::new(itself)
        .args([
            "--exact",
            "faults::unreachable::a_data_source_is_found_by_its_name",
        ])
        .env("ODBCINI", &ini)
        .env(CHILD, "shop")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{said}");
    assert!(said.contains("1 passed"), "it ran: {said}");
}
