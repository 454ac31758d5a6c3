//! The SQLite driver keeps every promise that the suite asks of a driver: with a database in a file,
//! and with one that connections share in memory.

use cenote::sqlite::Sqlite;
use cenote_testkit::suite::{Lack, Subject, check_table};

/// The table in the documentation.
const TABLE: &str = include_str!("../../docs/drivers.md");

const ENDLESS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
                       SELECT max(i) FROM n";

/// SQLite has no numbers above `i64::MAX`, and would make a number with rounding errors of a decimal
/// if the column's type did not say that it is text.
fn subject(dsn: &str) -> Subject {
    let subject = Subject::new(Sqlite::new(), dsn).expect("the DSN is right");
    subject
        .sql(|sql| {
            sql.endless = Some(ENDLESS.into());
            sql.numbered = Some([
                "CREATE TABLE numbered (id INTEGER PRIMARY KEY, name TEXT)".into(),
                "INSERT INTO numbered (name) VALUES ('a')".into(),
            ]);
            sql.types.uint = None;
            sql.types.decimal = Some("TEXT".into());
            sql.types.timestamp = Some("TEXT".into());
        })
        .unreachable("sqlite:/no/such/folder/at/all.db")
        .expect("the DSN is right")
}

mod in_a_file {
    use super::*;

    async fn make() -> Subject {
        let folder = tempfile::tempdir().expect("there is room for a database");
        let path = folder.path().join("suite.db");
        subject(&format!("sqlite:{}", path.display())).keep(folder)
    }

    cenote_testkit::driver_suite!(make);

    #[tokio::test]
    async fn the_table_of_drivers_is_right() {
        check_table(&make().await, TABLE, "SQLite").await;
    }
}

mod in_memory {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// In a shared cache readers wait for the writer, and no transaction sees an older state.
    async fn make() -> Subject {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        // Relaxed: it only has to be unique.
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let dsn = format!("sqlite:file:suite-{n}?mode=memory&cache=shared");
        subject(&dsn).lacks(Lack::Isolation)
    }

    cenote_testkit::driver_suite!(make);
}
