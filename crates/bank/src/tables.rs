//! The tables: created before a run, dropped after it, and never in place of foreign ones.

use cenote::{Db, Error, Kind, Result, Violation};

use crate::accounts::STARTING_CENTS;

const ACCOUNTS: &str = "cenote_bank_account";
const LEDGER: &str = "cenote_bank_ledger";
/// Says that the tables are ours, and whether a run uses them.
const MARK: &str = "cenote_bank_run";

/// The possible contents of the table [`MARK`].
const RUNNING: &str = "running";
const DONE: &str = "done";

/// What a database holds before a run.
enum Found {
    Nothing,
    /// Kept by a run that has ended.
    Kept,
    /// Used by a run that has not ended, or was killed.
    Running,
    /// Not created by this crate.
    Foreign,
}

/// Creates the tables and the accounts.
///
/// # Errors
///
/// Those of the database; [`Kind::Other`] if there are tables of these names that only `force`
/// may drop.
///
/// # Cancel safety
///
/// Dropped, tables may stay behind; [`drop_all`] removes them.
pub async fn create(db: &Db, accounts: usize, force: bool) -> Result<()> {
    match find(db).await? {
        Found::Nothing => {}
        Found::Kept => drop_all(db).await?,
        Found::Running | Found::Foreign if force => drop_all(db).await?,
        Found::Running => {
            return Err(refused(
                "another run of cenote is at work on the tables in this database, or was killed \
                 there; --force drops them and runs",
            ));
        }
        Found::Foreign => {
            return Err(refused(&format!(
                "this database has a table {ACCOUNTS}, {LEDGER} or {MARK} that cenote did not make; --force \
                 drops it and runs"
            )));
        }
    }
    db.exec(
        "CREATE TABLE cenote_bank_run (state VARCHAR(16) NOT NULL)",
        (),
    )
    .await?;
    db.exec("INSERT INTO cenote_bank_run (state) VALUES (?)", (RUNNING,))
        .await?;
    db.exec(
        "CREATE TABLE cenote_bank_account (id BIGINT NOT NULL PRIMARY KEY, \
         balance BIGINT NOT NULL, moves BIGINT NOT NULL)",
        (),
    )
    .await?;
    let sql = "INSERT INTO cenote_bank_account (id, balance, moves) VALUES (?, ?, 0)";
    let rows = (1_i64..).take(accounts).map(|id| (id, STARTING_CENTS));
    db.exec_many(sql, rows).await?;
    Ok(())
}

/// Creates the ledger of transfers.
pub(crate) async fn create_ledger(db: &Db) -> Result<()> {
    db.exec(
        "CREATE TABLE cenote_bank_ledger (number BIGINT NOT NULL PRIMARY KEY, \
         payer BIGINT NOT NULL, payee BIGINT NOT NULL, cents BIGINT NOT NULL)",
        (),
    )
    .await?;
    Ok(())
}

fn refused(why: &str) -> Error {
    Error::new(Kind::Other, why)
}

async fn find(db: &Db) -> Result<Found> {
    let has_accounts = is_there(db, "SELECT 1 FROM cenote_bank_account WHERE 1 = 0").await?;
    let has_ledger = is_there(db, "SELECT 1 FROM cenote_bank_ledger WHERE 1 = 0").await?;
    let has_mark = is_there(db, "SELECT 1 FROM cenote_bank_run WHERE 1 = 0").await?;
    if !has_mark {
        return Ok(match has_accounts || has_ledger {
            true => Found::Foreign,
            false => Found::Nothing,
        });
    }
    let sql = "SELECT state FROM cenote_bank_run";
    let marks: Option<Vec<String>> = if_there(db.query_as(sql, ()).await)?;
    let marks = marks.unwrap_or_default();
    Ok(
        match marks.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            [DONE] => Found::Kept,
            [RUNNING] => Found::Running,
            _ => Found::Foreign,
        },
    )
}

async fn is_there(db: &Db, sql: &str) -> Result<bool> {
    Ok(if_there(db.query(sql, ()).await)?.is_some())
}

/// Returns `None` if the table does not exist.
fn if_there<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.violation() == Some(Violation::Undefined) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Marks tables that stay as those of a run that has ended.
pub(crate) async fn keep(db: &Db) -> Result<()> {
    db.exec("UPDATE cenote_bank_run SET state = ?", (DONE,))
        .await?;
    Ok(())
}

/// Drops the tables.
///
/// # Errors
///
/// Those of the database.
///
/// # Cancel safety
///
/// Dropped, tables may stay behind; it can be called again.
pub async fn drop_all(db: &Db) -> Result<()> {
    // The mark goes last: while it exists, the others are known to be ours.
    for sql in [
        "DROP TABLE cenote_bank_ledger",
        "DROP TABLE cenote_bank_account",
        "DROP TABLE cenote_bank_run",
    ] {
        if_there(db.exec(sql, ()).await)?;
    }
    Ok(())
}
