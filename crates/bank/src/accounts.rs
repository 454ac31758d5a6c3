//! The bank: plain functions over a [`Db`], in SQL that every database understands.
//!
//! None of them knows anything of transactions or connections. Whoever calls them decides:
//! inside `db.transaction(…)`, or after `db.begin()`, they run in that transaction without
//! being told.

use std::fmt;

use cenote::{Db, Error, Isolation, Result, TransactionOptions};

use crate::ledger;

/// What every account begins with.
pub(crate) const STARTING_CENTS: i64 = 100_000;

/// Why the bank says no, though the database would not.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// There is less on the account than was asked for.
    NotEnough,
    /// The client thought better of it.
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

/// One order: so much from this account to that one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    /// Under which it is written down, if it is.
    pub(crate) number: Option<i64>,
    pub(crate) from: i64,
    pub(crate) to: i64,
    pub(crate) cents: i64,
}

/// Moves money: two statements, or three, which only a transaction around them makes one.
pub(crate) async fn transfer(db: &Db, order: Order) -> Result<()> {
    // The lower account first, so that two orders that cross do not wait for each other.
    if order.from < order.to {
        withdraw(db, order.from, order.cents).await?;
        deposit(db, order.to, order.cents).await?;
    } else {
        deposit(db, order.to, order.cents).await?;
        withdraw(db, order.from, order.cents).await?;
    }
    write_down(db, order).await
}

/// The second half of a transfer whose money has been withdrawn.
pub(crate) async fn complete(db: &Db, order: Order) -> Result<()> {
    deposit(db, order.to, order.cents).await?;
    write_down(db, order).await
}

async fn write_down(db: &Db, order: Order) -> Result<()> {
    match order.number {
        Some(number) => ledger::write(db, number, order).await,
        None => Ok(()),
    }
}

/// Takes money from an account that has enough.
pub(crate) async fn withdraw(db: &Db, account: i64, cents: i64) -> Result<()> {
    let sql = "UPDATE cenote_bank_account SET balance = balance - ?, moves = moves + 1 \
               WHERE id = ? AND balance >= ?";
    let done = db.exec(sql, (cents, account, cents)).await?;
    match done.rows_affected {
        0 => Err(Error::other(Refusal::NotEnough)),
        _ => Ok(()),
    }
}

/// Puts money on an account.
pub(crate) async fn deposit(db: &Db, account: i64, cents: i64) -> Result<()> {
    let sql = "UPDATE cenote_bank_account SET balance = balance + ?, moves = moves + 1 \
               WHERE id = ?";
    db.exec(sql, (cents, account)).await?;
    Ok(())
}

/// What is on an account.
pub(crate) async fn balance(db: &Db, account: i64) -> Result<i64> {
    let sql = "SELECT balance FROM cenote_bank_account WHERE id = ?";
    db.query_as_one(sql, (account,)).await
}

/// The books of the bank at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Books {
    pub(crate) accounts: usize,
    /// What is on all accounts together, in cents.
    pub(crate) sum: i64,
    /// What is on the poorest account.
    pub(crate) lowest: i64,
    /// Withdrawals and deposits that were committed. A transfer is two of them.
    pub(crate) moves: i64,
}

/// Reads the books, all accounts as of the same moment.
pub(crate) async fn audit(db: &Db) -> Result<Books> {
    // Added up here: databases do not agree on the type of a SUM.
    let sql = "SELECT balance, moves FROM cenote_bank_account";
    let snapshot = TransactionOptions::new()
        .isolation(Isolation::RepeatableRead)
        .read_only();
    let accounts: Vec<(i64, i64)> = db
        .transaction_with(snapshot, async || db.query_as(sql, ()).await)
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

/// Locks every account and lets go again. It cannot be done while any other transaction
/// has touched one and is still open.
pub(crate) async fn lock_all(db: &Db) -> Result<()> {
    db.transaction(async || {
        let sql = "UPDATE cenote_bank_account SET moves = moves";
        db.exec(sql, ()).await?;
        Ok(())
    })
    .await
}
