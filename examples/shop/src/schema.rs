//! The database: how it is opened, and its migrations.

use std::time::Duration;

use cenote::Db;
use cenote::migrate::{Migrations, embed};

/// A statement that takes this long is logged as slow.
const SLOW: Duration = Duration::from_millis(200);
/// A statement that takes this long is cancelled.
const LONGEST: Duration = Duration::from_secs(8);

/// Opens the database that the DSN names, SQLite or PostgreSQL, and applies the migrations that are pending.
///
/// # Errors
///
/// The database cannot be reached, or a migration failed.
pub async fn open(dsn: &str) -> cenote::Result<Db> {
    let db = Db::builder(dsn)
        .slow_statements(SLOW)
        .statement_timeout(LONGEST)
        .open()
        .await?;
    set_up(&db).await?;
    Ok(db)
}

/// Applies the migrations that are pending. Any number of instances may do so at the same time.
///
/// # Errors
///
/// A migration failed.
pub async fn set_up(db: &Db) -> cenote::Result<()> {
    // The log names each migration that is applied.
    db.migrate(&migrations(db)).await.map(drop)
}

/// The tables are the same; their types and what begins empty are not.
fn migrations(db: &Db) -> Migrations {
    match db.driver_name() {
        "pgsql" => embed!("migrations/postgres"),
        _ => embed!("migrations/sqlite"),
    }
}
