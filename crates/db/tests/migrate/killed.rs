//! A process is killed while it migrates: each migration is applied and recorded, or neither.
//!
//! The test starts itself once more. In that process the same test migrates until it is killed.
#![cfg(unix)]

use std::process::{Command, Stdio};

use cenote::Db;

use crate::support::{TestDatabase, forty, has_table, history, numbers, until};

/// Names the database in the process that is killed.
const DSN: &str = "CENOTE_TEST_MIGRATE_DSN";

#[tokio::test]
async fn a_killed_process_leaves_no_half_migration() {
    if let Ok(dsn) = std::env::var(DSN) {
        let db = Db::open(&dsn).await.unwrap();
        db.migrate(&forty()).await.unwrap();
        // It waits to be killed.
        return std::future::pending().await;
    }
    for after in [1, 7, 25] {
        let database = TestDatabase::sqlite();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "killed::a_killed_process_leaves_no_half_migration",
            ])
            .env(DSN, database.dsn())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let db = database.open().await;
        until("some migrations are applied", async || {
            has_table(&db, "refinery_schema_history").await && history(&db).await.len() >= after
        })
        .await;
        child.kill().unwrap();
        child.wait().unwrap();
        let applied = history(&db).await;
        let tables = "SELECT count(*) FROM sqlite_schema WHERE name GLOB 't[0-9]*'";
        let tables = numbers(&db, tables).await[0];
        assert_eq!(tables, i64::try_from(applied.len()).unwrap());
        assert_eq!(numbers(&db, "SELECT n FROM log ORDER BY n").await, applied);
        let rest = db.migrate(&forty()).await.unwrap();
        assert_eq!(rest.applied.len() + applied.len(), 40);
    }
}
