//! What applications test with: sandboxes, databases for one test, and SQL that is checked.

#![cfg(all(feature = "migrate", feature = "sqlite"))]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[cfg(feature = "check")]
mod checked;
mod dropped;
mod limits;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
mod sandbox;
#[path = "../migrate/support.rs"]
#[allow(dead_code, reason = "shared with the tests of migrations")]
mod support;

/// Writes each promise as a test on each database.
macro_rules! on_every_database {
    ($($promise:ident,)*) => {
        mod on_sqlite {
            $(#[tokio::test]
            async fn $promise() {
                let database = crate::EmptyDatabase::sqlite();
                crate::support::soon(stringify!($promise), super::$promise(database)).await;
            })*
        }

        #[cfg(feature = "postgres")]
        mod on_postgres {
            $(#[tokio::test]
            async fn $promise() {
                let database = crate::EmptyDatabase::postgres().await;
                crate::support::soon(stringify!($promise), super::$promise(database)).await;
            })*
        }

        #[cfg(feature = "mysql")]
        mod on_mysql {
            $(#[tokio::test]
            async fn $promise() {
                let database = crate::EmptyDatabase::mysql().await;
                crate::support::soon(stringify!($promise), super::$promise(database)).await;
            })*
        }
    };
}
use on_every_database;
use support::TestDatabase as EmptyDatabase;

/// A table with one row that the sandboxes do not change.
async fn with_table(database: &EmptyDatabase) -> cenote::Db {
    let db = database.open().await;
    db.exec("CREATE TABLE item (name VARCHAR(40) PRIMARY KEY)", ())
        .await
        .unwrap();
    db.exec("INSERT INTO item VALUES ('first')", ())
        .await
        .unwrap();
    db
}

async fn names(db: &cenote::Db) -> Vec<String> {
    db.query_scalar("SELECT name FROM item ORDER BY name", ())
        .await
        .unwrap()
}

async fn add(db: &cenote::Db, name: &str) -> cenote::Result<()> {
    db.exec("INSERT INTO item VALUES (?)", (name,)).await?;
    Ok(())
}
