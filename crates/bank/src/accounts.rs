//! Accounts: plain functions over a [`Db`], in SQL that every database understands.
//!
//! None of them mentions a transaction or a connection. Called inside `db.transaction(…)`, or
//! after `db.begin()`, they run in that transaction.

use std::fmt;

use cenote::{Db, Error, Isolation, Result, TransactionOptions};

use crate::ledger;

/// The opening balance of every account.
pub const STARTING_CENTS: i64 = 100_000;

/// Why a transfer is refused, though the database would accept it.
#[derive(Debug)]
pub enum Refusal {
    /// The balance is too low.
    NotEnough,
    /// The client changed its mind.
    ChangedMind,
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Refusal::NotEnough => "there is not enough on the account",
            Refusal::ChangedMind => "the client changed their mind",
        })
    }
}

impl std::error::Error for Refusal {}

/// An order to transfer money.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// Its number in the ledger, if there is one.
    pub number: Option<i64>,
    /// The account that pays.
    pub from: i64,
    /// The account that is paid.
    pub to: i64,
    /// The amount.
    pub cents: i64,
}

/// Transfers money by two or three statements, which only a transaction makes one.
///
/// # Errors
///
/// [`Refusal::NotEnough`], and those of the database.
pub async fn transfer(db: &Db, order: Order) -> Result<()> {
    // The lower account first, so that opposite transfers do not deadlock.
    if order.from < order.to {
        withdraw(db, order.from, order.cents).await?;
        deposit(db, order.to, order.cents).await?;
    } else {
        deposit(db, order.to, order.cents).await?;
        withdraw(db, order.from, order.cents).await?;
    }
    write_down(db, order).await
}

/// Completes a transfer whose money has been withdrawn.
///
/// # Errors
///
/// Those of the database.
pub async fn complete(db: &Db, order: Order) -> Result<()> {
    deposit(db, order.to, order.cents).await?;
    write_down(db, order).await
}

async fn write_down(db: &Db, order: Order) -> Result<()> {
    match order.number {
        Some(number) => ledger::write(db, number, order).await,
        None => Ok(()),
    }
}

/// Withdraws money from an account.
///
/// # Errors
///
/// [`Refusal::NotEnough`], and those of the database.
pub async fn withdraw(db: &Db, account: i64, cents: i64) -> Result<()> {
    let sql = "UPDATE cenote_bank_account SET balance = balance - ?, moves = moves + 1 \
               WHERE id = ? AND balance >= ?";
    let done = db.exec(sql, (cents, account, cents)).await?;
    match done.rows_affected {
        0 => Err(Error::other(Refusal::NotEnough)),
        _ => Ok(()),
    }
}

/// Deposits money on an account.
///
/// # Errors
///
/// Those of the database.
pub async fn deposit(db: &Db, account: i64, cents: i64) -> Result<()> {
    let sql = "UPDATE cenote_bank_account SET balance = balance + ?, moves = moves + 1 \
               WHERE id = ?";
    db.exec(sql, (cents, account)).await?;
    Ok(())
}

/// Returns the balance of an account.
///
/// # Errors
///
/// Those of the database.
pub async fn balance(db: &Db, account: i64) -> Result<i64> {
    let sql = "SELECT balance FROM cenote_bank_account WHERE id = ?";
    db.query_as_one(sql, (account,)).await
}

/// Totals over all accounts at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Books {
    /// The number of accounts.
    pub accounts: usize,
    /// The sum of all balances, in cents.
    pub sum: i64,
    /// The lowest balance.
    pub lowest: i64,
    /// Committed withdrawals and deposits; a transfer is two of them.
    pub moves: i64,
}

/// Reads the totals in one snapshot.
///
/// # Errors
///
/// Those of the database.
pub async fn audit(db: &Db) -> Result<Books> {
    // Added up here: databases do not agree on the type of a SUM.
    let sql = "SELECT balance, moves FROM cenote_bank_account";
    let snapshot = TransactionOptions::new()
        .isolation(Isolation::RepeatableRead)
        .read_only();
    let accounts: Vec<(i64, i64)> = snapshot
        .on(db)
        .run(async || db.query_as(sql, ()).await)
        .await?;
    Ok(Books {
        accounts: accounts.len(),
        sum: accounts.iter().map(|(balance, _)| balance).sum(),
        lowest: accounts
            .iter()
            .map(|(balance, _)| *balance)
            .min()
            .unwrap_or(0),
        moves: accounts.iter().map(|(_, moves)| moves).sum(),
    })
}

/// Locks every account and unlocks it again. Waits while another open transaction has
/// changed one.
///
/// # Errors
///
/// Those of the database.
pub async fn lock_all(db: &Db) -> Result<()> {
    db.transaction(async || {
        let sql = "UPDATE cenote_bank_account SET moves = moves";
        db.exec(sql, ()).await?;
        Ok(())
    })
    .await
}
