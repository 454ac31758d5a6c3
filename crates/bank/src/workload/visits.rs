//! The visits of clients: most use the database correctly, the others make the mistakes of real programs.

use std::sync::Arc;

use cenote::{Db, Error, Kind, Result, Statement, Transaction, TransactionOptions};
use cenote_testkit::poll::drop_after;

use super::clients::{Habit, Plan, Shared};
use super::tally::Attempt;
use crate::accounts::{self, Order, Refusal};

/// The payload of a planned panic.
#[derive(Debug)]
struct PlannedPanic;

/// Silences the panics that clients plan, in this process; others are reported as before.
pub fn silence_planned_panics() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.payload().is::<PlannedPanic>() {
            report(info);
        }
    }));
}

/// The result of a visit that ended by itself.
pub(super) struct Visited {
    /// No failure but planned ones.
    pub(super) as_planned: bool,
    /// A transaction that should have stayed inside.
    _carried_off: Option<Transaction<'static>>,
    /// A statement that its client closes late.
    pub(super) statement: Option<Statement>,
}

/// Runs a visit and counts it.
pub(super) async fn run(shared: Arc<Shared>, plan: Plan, attempt: Attempt) -> Visited {
    let db = shared.db.clone();
    let mut carried_off = None;
    let mut statement = None;
    let Plan { orders, polls, .. } = plan;
    let [order, ..] = orders;
    let result = match plan.habit {
        Habit::Closure | Habit::IsAborted => closure(&db, order, &attempt).await,
        Habit::Guard => guard(&db, order, &attempt).await,
        Habit::Savepoints => savepoints(&db, orders, &attempt).await,
        Habit::SavepointGuards => savepoint_guards(&db, orders, &attempt).await,
        Habit::ChangesMind => changes_mind(&db, order, &attempt).await,
        Habit::Panics => panics(&db, order, plan.statements, &attempt).await,
        Habit::DropsTransaction => drops_transaction(&db, order, &attempt).await,
        Habit::CarriesOffTransaction => carries_off_transaction(&db, order, &attempt)
            .await
            .map(|transaction| carried_off = Some(transaction)),
        Habit::CutsOffStatement => cuts_off_statement(&db, order, &attempt).await,
        Habit::LooksAround => looks_around(&shared, order, &attempt).await,
        Habit::MarksSession => marks_session(&shared, order, &attempt).await,
        Habit::ClosesLate => closes_late(&db, order, &attempt)
            .await
            .map(|late| statement = Some(late)),
        Habit::ChurnsStatements => churns_statements(&db, order, &attempt).await,
        Habit::IsCutOff => match drop_after(polls, closure(&db, order, &attempt)).await {
            Some(result) => result,
            None => {
                attempt.dropped();
                // The dropped transaction is over: this runs outside of it.
                accounts::balance(&db, order.from).await.map(drop)
            }
        },
    };
    attempt.ended(&result);
    let planned = |error: Error| matches!(error.kind(), Kind::Other | Kind::Doomed);
    Visited {
        as_planned: result.err().is_none_or(planned),
        _carried_off: carried_off,
        statement,
    }
}

/// Transfers in a closure, as most programs do.
async fn closure(db: &Db, order: Order, attempt: &Attempt) -> Result<()> {
    db.transaction(async || {
        attempt.begun();
        accounts::transfer(db, order).await?;
        attempt.moved(order);
        attempt.committing();
        Ok(())
    })
    .await
}

/// Transfers with a guard, whose transaction is ambient while it lives.
async fn guard(db: &Db, order: Order, attempt: &Attempt) -> Result<()> {
    let transaction = db.begin().await?;
    attempt.begun();
    accounts::transfer(db, order).await?;
    attempt.moved(order);
    attempt.committing();
    transaction.commit().await
}

/// Transfers with nested transactions; one fails, and only its savepoint rolls back.
async fn savepoints(db: &Db, orders: [Order; 3], attempt: &Attempt) -> Result<()> {
    let options = TransactionOptions::new().retries(3);
    options
        .on(db)
        .retry(async || {
            attempt.begun();
            accounts::transfer(db, orders[0]).await?;
            attempt.moved(orders[0]);
            let undone: Result<()> = db
                .transaction(async || {
                    accounts::transfer(db, orders[1]).await?;
                    Err(Error::other(Refusal::ChangedMind))
                })
                .await;
            match undone {
                Err(error) if error.kind() == Kind::Other => attempt.undid_savepoint(),
                otherwise => return otherwise,
            }
            db.transaction(async || accounts::transfer(db, orders[2]).await)
                .await?;
            attempt.moved(orders[2]);
            attempt.committing();
            Ok(())
        })
        .await
}

/// Like [`savepoints`], with guards.
async fn savepoint_guards(db: &Db, orders: [Order; 3], attempt: &Attempt) -> Result<()> {
    let mut transaction = db.begin().await?;
    attempt.begun();
    accounts::transfer(db, orders[0]).await?;
    attempt.moved(orders[0]);
    let savepoint = transaction.savepoint().await?;
    match accounts::transfer(db, orders[1]).await {
        Err(error) if error.kind() != Kind::Other => return Err(error),
        _ => savepoint.rollback().await?,
    }
    attempt.undid_savepoint();
    let savepoint = transaction.savepoint().await?;
    accounts::transfer(db, orders[2]).await?;
    savepoint.commit().await?;
    attempt.moved(orders[2]);
    attempt.committing();
    transaction.commit().await
}

/// Refuses after the transfer.
async fn changes_mind(db: &Db, order: Order, attempt: &Attempt) -> Result<()> {
    db.transaction(async || {
        attempt.begun();
        accounts::transfer(db, order).await?;
        Err(Error::other(Refusal::ChangedMind))
    })
    .await
}

/// Panics after none, one or both halves of a transfer.
async fn panics(db: &Db, order: Order, statements: u32, attempt: &Attempt) -> Result<()> {
    db.transaction(async || {
        attempt.begun();
        if statements > 0 {
            accounts::withdraw(db, order.from, order.cents).await?;
        }
        if statements > 1 {
            accounts::deposit(db, order.to, order.cents).await?;
        }
        std::panic::panic_any(PlannedPanic)
    })
    .await
}

/// Drops its transaction half-way, and then reads without one.
async fn drops_transaction(db: &Db, order: Order, attempt: &Attempt) -> Result<()> {
    let transaction = db.begin().await?;
    attempt.begun();
    accounts::withdraw(db, order.from, order.cents).await?;
    drop(transaction);
    attempt.forgot();
    accounts::balance(db, order.from).await.map(drop)
}

/// Moves its transaction out of the coroutine, whose end rolls it back.
async fn carries_off_transaction(
    db: &Db,
    order: Order,
    attempt: &Attempt,
) -> Result<Transaction<'static>> {
    let transaction = db.begin().await?;
    attempt.begun();
    accounts::withdraw(db, order.from, order.cents).await?;
    attempt.forgot();
    Ok(transaction)
}

/// Drops a statement in flight and commits. If that succeeded, half a transfer would be
/// committed.
async fn cuts_off_statement(db: &Db, order: Order, attempt: &Attempt) -> Result<()> {
    db.transaction(async || {
        attempt.begun();
        accounts::withdraw(db, order.from, order.cents).await?;
        if let Some(result) = drop_after(1, accounts::complete(db, order)).await {
            result?;
            attempt.moved(order);
        }
        attempt.committing();
        Ok(())
    })
    .await
}

/// Looks, in its transaction, for the marks of others in the session.
async fn looks_around(shared: &Shared, order: Order, attempt: &Attempt) -> Result<()> {
    let db = &shared.db;
    db.transaction(async || {
        attempt.begun();
        if let Some(tracking) = &shared.tracking {
            tracking.sessions.look(db).await?;
        }
        accounts::transfer(db, order).await?;
        attempt.moved(order);
        attempt.committing();
        Ok(())
    })
    .await
}

/// Marks its session. The mark stays until the visit ends, and no later client sees it.
async fn marks_session(shared: &Shared, order: Order, attempt: &Attempt) -> Result<()> {
    let (Some(tracking), Some(number)) = (&shared.tracking, order.number) else {
        return closure(&shared.db, order, attempt).await;
    };
    tracking.sessions.look(&shared.db).await?;
    tracking.sessions.mark(&shared.db, number).await?;
    closure(&shared.db, order, attempt).await?;
    attempt.ended(&Ok(()));
    tracking.sessions.expect_own(&shared.db, number).await
}

/// Returns an open statement, which pins the connection until it is closed.
async fn closes_late(db: &Db, order: Order, attempt: &Attempt) -> Result<Statement> {
    let sql = "SELECT balance FROM cenote_bank_account WHERE id = ?";
    let statement = db.prepare(sql).await?;
    statement.query_one((order.from,)).await?;
    closure(db, order, attempt).await?;
    Ok(statement)
}

/// Runs more texts than a connection keeps prepared statements.
async fn churns_statements(db: &Db, order: Order, attempt: &Attempt) -> Result<()> {
    for text in 0..4 {
        let plus = (order.cents + text) % 200;
        let sql = format!("SELECT balance + {plus} FROM cenote_bank_account WHERE id = ?");
        db.query_one(&sql, (order.from,)).await?;
    }
    closure(db, order, attempt).await
}
