//! The ODBC driver keeps every promise that the suite asks of a driver: with SQLite's ODBC driver,
//! PostgreSQL's and MariaDB's.

use cenote::odbc::Odbc;
use cenote_testkit::suite::{Lack, Subject, check_table};

use crate::sources::{mariadb_dsn, own_database, own_schema, postgres_dsn, sqlite_dsn};

/// The table in the documentation.
const TABLE: &str = include_str!("../../docs/drivers.md");

mod sqlite {
    use super::*;

    const ENDLESS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
                           SELECT max(i) FROM n";

    /// As with SQLite itself, what it has no type for is text. Its ODBC driver makes text of numbers, and
    /// finds out what is wrong with a statement when it runs it.
    async fn make() -> Subject {
        let folder = tempfile::tempdir().expect("there is room for a database");
        let dsn = sqlite_dsn(&folder.path().join("suite.db"));
        let subject = Subject::new(Odbc::new(), &dsn).expect("the DSN is right");
        subject
            .keep(folder)
            .sql(|sql| {
                sql.endless = Some(ENDLESS.into());
                sql.numbered = Some([
                    "CREATE TABLE numbered (id INTEGER PRIMARY KEY, name TEXT)".into(),
                    "INSERT INTO numbered (name) VALUES ('a')".into(),
                ]);
                sql.types.uint = None;
                sql.types.decimal = Some("TEXT".into());
                sql.types.time = Some("TEXT".into());
                sql.types.date_time = Some("TEXT".into());
                sql.types.timestamp = Some("TEXT".into());
            })
            .lacks(Lack::Control)
            .lacks(Lack::Digits)
            .lacks(Lack::EarlyErrors)
            .unreachable("odbc:Driver=/no/such/driver.so")
            .expect("the DSN is right")
    }

    cenote_testkit::driver_suite!(make);

    #[tokio::test]
    async fn the_table_of_drivers_is_right() {
        check_table(&make().await, TABLE, "ODBC: SQLite").await;
    }
}

mod postgres {
    use super::*;

    const ENDLESS: &str = "SELECT pg_catalog.pg_sleep(3600)";

    async fn make() -> Subject {
        let dsn = own_schema(&postgres_dsn()).await;
        let subject = Subject::new(Odbc::new(), &dsn).expect("the DSN is right");
        subject
            .sql(|sql| {
                sql.endless = Some(ENDLESS.into());
                sql.types.bytes = Some("BYTEA".into());
                sql.types.uuid = Some("UUID".into());
                sql.types.json = Some("JSON".into());
            })
            .lacks(Lack::Control)
            .unreachable("odbc:DSN=no_such_data_source")
            .expect("the DSN is right")
    }

    cenote_testkit::driver_suite!(make);

    #[tokio::test]
    async fn the_table_of_drivers_is_right() {
        check_table(&make().await, TABLE, "ODBC: PostgreSQL").await;
    }
}

mod mariadb {
    use super::*;

    /// Its driver prepares nothing before it runs it. A moment with its zone is text for it.
    async fn make() -> Subject {
        let dsn = own_database(&mariadb_dsn()).await;
        let subject = Subject::new(Odbc::new(), &dsn).expect("the DSN is right");
        subject
            .sql(|sql| {
                sql.endless = Some("SELECT SLEEP(3600)".into());
                sql.numbered = Some([
                    "CREATE TABLE numbered (id INT AUTO_INCREMENT PRIMARY KEY, name TEXT)".into(),
                    "INSERT INTO numbered (name) VALUES ('a')".into(),
                ]);
                sql.types.uint = Some("BIGINT UNSIGNED".into());
                sql.types.text = Some("MEDIUMTEXT".into());
                sql.types.bytes = Some("MEDIUMBLOB".into());
                sql.types.date_time = Some("DATETIME(6)".into());
                sql.types.timestamp = Some("TEXT".into());
                sql.types.uuid = Some("UUID".into());
                sql.types.json = Some("JSON".into());
            })
            .lacks(Lack::Control)
            .lacks(Lack::EarlyErrors)
            .unreachable("odbc:DSN=no_such_data_source")
            .expect("the DSN is right")
    }

    cenote_testkit::driver_suite!(make);

    #[tokio::test]
    async fn the_table_of_drivers_is_right() {
        check_table(&make().await, TABLE, "ODBC: MariaDB").await;
    }
}
