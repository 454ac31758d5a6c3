//! The clients of the bank: most behave, and the others do what programs do to databases.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use cenote::{Db, Error, Kind, Result, Statement, Transaction, TransactionOptions};
use fastrand::Rng;
use tokio::sync::RwLock;
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::bank::{self, Order, Refusal};
use crate::chaos::Trial;
use crate::impatience::give_up_after;
use crate::panics::PlannedPanic;
use crate::tally::{Attempt, Tally};

/// The longest pause between two visits.
const THINKS: Duration = Duration::from_millis(20);
/// The longest time after which a visit is aborted.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long a client stays away after a failure that nobody planned.
const RECOVERS: Duration = Duration::from_millis(100);
/// The longest time for which a statement outlives its coroutine.
const LATE: Duration = Duration::from_millis(20);
/// So many polls take a visit to its end, if it need not queue.
const POLLS: u32 = 12;
/// The most that is moved at once, in cents.
const MOST_CENTS: i64 = 5_000;

/// What a visit is going to do, and how often in a thousand visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Habit {
    Closure,
    Guard,
    Savepoints,
    SavepointGuards,
    ChangesMind,
    Panics,
    DropsTransaction,
    CarriesOffTransaction,
    IsAborted,
    IsCutOff,
    CutsOffStatement,
    // From here on only under chaos.
    LooksAround,
    MarksSession,
    ClosesLate,
    ChurnsStatements,
}

impl Habit {
    /// Those of a plan's orders that it means to make.
    fn orders(self, orders: &mut [Order; 3]) -> &mut [Order] {
        match self {
            Habit::Savepoints | Habit::SavepointGuards => orders,
            _ => &mut orders[..1],
        }
    }
}

const THOUSAND: u32 = 1_000;
type Habits = &'static [(Habit, u32)];

const HABITS: Habits = &[
    (Habit::Closure, 560),
    (Habit::Guard, 150),
    (Habit::Savepoints, 50),
    (Habit::SavepointGuards, 40),
    (Habit::ChangesMind, 50),
    (Habit::Panics, 30),
    (Habit::DropsTransaction, 25),
    (Habit::CarriesOffTransaction, 25),
    (Habit::IsAborted, 30),
    (Habit::IsCutOff, 25),
    (Habit::CutsOffStatement, 15),
];

const CHAOTIC_HABITS: Habits = &[
    (Habit::Closure, 300),
    (Habit::Guard, 100),
    (Habit::Savepoints, 40),
    (Habit::SavepointGuards, 30),
    (Habit::ChangesMind, 30),
    (Habit::Panics, 40),
    (Habit::DropsTransaction, 20),
    (Habit::CarriesOffTransaction, 20),
    (Habit::IsAborted, 50),
    (Habit::IsCutOff, 40),
    (Habit::CutsOffStatement, 20),
    (Habit::LooksAround, 150),
    (Habit::MarksSession, 60),
    (Habit::ClosesLate, 40),
    (Habit::ChurnsStatements, 60),
];

/// What all clients share.
#[derive(Debug)]
pub(crate) struct Town {
    pub(crate) db: Db,
    pub(crate) tally: Arc<Tally>,
    /// How many accounts there are.
    pub(crate) accounts: usize,
    /// Nobody begins another visit.
    pub(crate) closing: AtomicBool,
    /// Every visit holds it a little open; whoever has it alone has a quiet moment.
    pub(crate) gate: RwLock<()>,
    /// What is looked at closely, under chaos.
    pub(crate) trial: Option<Trial>,
}

impl Town {
    fn habits(&self) -> Habits {
        match self.trial {
            None => HABITS,
            Some(_) => CHAOTIC_HABITS,
        }
    }

    fn attempt(&self, orders: &mut [Order]) -> Attempt {
        match &self.trial {
            None => Attempt::new(&self.tally),
            Some(trial) => Attempt::remembered(&self.tally, &trial.ledger, orders),
        }
    }
}

/// Sends out so many clients. What each of them plans follows from the seed; in which
/// order they get there does not.
pub(crate) fn send_out(town: &Arc<Town>, clients: usize, seed: u64) -> JoinSet<()> {
    let mut rng = Rng::with_seed(seed);
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        tasks.spawn(live(Arc::clone(town), rng.fork()));
    }
    tasks
}

/// A client: one visit after the other, each a coroutine of its own.
async fn live(town: Arc<Town>, mut rng: Rng) {
    while !town.closing.load(Relaxed) {
        pause(THINKS.mul_f64(rng.f64())).await;
        let inside = town.gate.read().await;
        let mut plan = Plan::new(&mut rng, town.accounts, town.habits());
        let abort_after = (plan.habit == Habit::IsAborted).then(|| PATIENCE.mul_f64(rng.f64()));
        let attempt = town.attempt(plan.habit.orders(&mut plan.orders));
        let mut visit = Visit(cenote::spawn(visit(Arc::clone(&town), plan, attempt)));
        // A visit that was aborted or has panicked was counted where it ended.
        let Ok(visited) = visit.end(abort_after).await else {
            continue;
        };
        if visited.statement.is_some() {
            pause(LATE.mul_f64(rng.f64())).await;
        }
        let as_planned = visited.as_planned;
        drop(visited);
        drop(inside);
        if !as_planned {
            pause(RECOVERS).await;
        }
    }
}

/// A visit, which does not outlive its client.
struct Visit(JoinHandle<Visited>);

impl Visit {
    /// Waits for its end, and hastens it when the time is over.
    async fn end(&mut self, abort_after: Option<Duration>) -> Result<Visited, JoinError> {
        if let Some(patience) = abort_after {
            match timeout(patience, &mut self.0).await {
                Ok(ended) => return ended,
                Err(_) => self.0.abort(),
            }
        }
        (&mut self.0).await
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What comes of a visit that has ended by itself.
struct Visited {
    /// There was no failure but those that were planned.
    as_planned: bool,
    /// What should have stayed inside.
    _carried_off: Option<Transaction<'static>>,
    /// What is closed late.
    statement: Option<Statement>,
}

/// What one visit is about.
#[derive(Clone, Copy, Debug)]
struct Plan {
    habit: Habit,
    orders: [Order; 3],
    /// For those who are cut off.
    polls: u32,
    /// For those who panic: how many statements they run before it.
    statements: u32,
}

impl Plan {
    fn new(rng: &mut Rng, accounts: usize, habits: Habits) -> Self {
        Plan {
            habit: pick_habit(rng, habits),
            orders: std::array::from_fn(|_| pick_order(rng, accounts)),
            polls: rng.u32(1..=POLLS),
            statements: rng.u32(0..=2),
        }
    }
}

fn pick_habit(rng: &mut Rng, habits: Habits) -> Habit {
    let mut lot = rng.u32(..THOUSAND);
    for (habit, weight) in habits {
        match lot.checked_sub(*weight) {
            Some(rest) => lot = rest,
            None => return *habit,
        }
    }
    Habit::Closure
}

/// Two different accounts and an amount.
fn pick_order(rng: &mut Rng, accounts: usize) -> Order {
    let last = i64::try_from(accounts).unwrap_or(i64::MAX);
    let from = rng.i64(1..=last);
    let distance = rng.i64(1..last);
    Order {
        number: None,
        from,
        to: (from - 1 + distance) % last + 1,
        cents: rng.i64(1..=MOST_CENTS),
    }
}

async fn visit(town: Arc<Town>, plan: Plan, attempt: Attempt) -> Visited {
    let db = town.db.clone();
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
        Habit::LooksAround => looks_around(&town, order, &attempt).await,
        Habit::MarksSession => marks_session(&town, order, &attempt).await,
        Habit::ClosesLate => closes_late(&db, order, &attempt)
            .await
            .map(|late| statement = Some(late)),
        Habit::ChurnsStatements => churns_statements(&db, order, &attempt).await,
        Habit::IsCutOff => match give_up_after(polls, closure(&db, order, &attempt)).await {
            Some(result) => result,
            None => {
                attempt.dropped();
                // What was dropped is behind us: this runs outside of it, and well.
                bank::balance(&db, order.from).await.map(drop)
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

/// As most programs would do it.
async fn closure(db: &Db, order: Order, attempt: &Attempt) -> Result<()> {
    db.transaction(async || {
        attempt.begun();
        bank::transfer(db, order).await?;
        attempt.moved(order);
        attempt.committing();
        Ok(())
    })
    .await
}

/// With a guard, which is ambient while it lives.
async fn guard(db: &Db, order: Order, attempt: &Attempt) -> Result<()> {
    let transaction = db.begin().await?;
    attempt.begun();
    bank::transfer(db, order).await?;
    attempt.moved(order);
    attempt.committing();
    transaction.commit().await
}

/// With transactions inside it, one of which fails, and costs nothing but itself.
async fn savepoints(db: &Db, orders: [Order; 3], attempt: &Attempt) -> Result<()> {
    let options = TransactionOptions::new().retries(3);
    db.retry_transaction(options, async || {
        attempt.begun();
        bank::transfer(db, orders[0]).await?;
        attempt.moved(orders[0]);
        let undone: Result<()> = db
            .transaction(async || {
                bank::transfer(db, orders[1]).await?;
                Err(Error::other(Refusal::ChangedMind))
            })
            .await;
        match undone {
            Err(error) if error.kind() == Kind::Other => attempt.undid_savepoint(),
            otherwise => return otherwise,
        }
        db.transaction(async || bank::transfer(db, orders[2]).await)
            .await?;
        attempt.moved(orders[2]);
        attempt.committing();
        Ok(())
    })
    .await
}

/// The same with guards.
async fn savepoint_guards(db: &Db, orders: [Order; 3], attempt: &Attempt) -> Result<()> {
    let mut transaction = db.begin().await?;
    attempt.begun();
    bank::transfer(db, orders[0]).await?;
    attempt.moved(orders[0]);
    let savepoint = transaction.savepoint().await?;
    match bank::transfer(db, orders[1]).await {
        Err(error) if error.kind() != Kind::Other => return Err(error),
        _ => savepoint.rollback().await?,
    }
    attempt.undid_savepoint();
    let savepoint = transaction.savepoint().await?;
    bank::transfer(db, orders[2]).await?;
    savepoint.commit().await?;
    attempt.moved(orders[2]);
    attempt.committing();
    transaction.commit().await
}

/// Says no when all has been done.
async fn changes_mind(db: &Db, order: Order, attempt: &Attempt) -> Result<()> {
    db.transaction(async || {
        attempt.begun();
        bank::transfer(db, order).await?;
        Err(Error::other(Refusal::ChangedMind))
    })
    .await
}

/// Panics after none, one or both halves of a transfer.
async fn panics(db: &Db, order: Order, statements: u32, attempt: &Attempt) -> Result<()> {
    db.transaction(async || {
        attempt.begun();
        if statements > 0 {
            bank::withdraw(db, order.from, order.cents).await?;
        }
        if statements > 1 {
            bank::deposit(db, order.to, order.cents).await?;
        }
        std::panic::panic_any(PlannedPanic)
    })
    .await
}

/// Drops its transaction half-way, and goes on to something else.
async fn drops_transaction(db: &Db, order: Order, attempt: &Attempt) -> Result<()> {
    let transaction = db.begin().await?;
    attempt.begun();
    bank::withdraw(db, order.from, order.cents).await?;
    drop(transaction);
    attempt.forgot();
    bank::balance(db, order.from).await.map(drop)
}

/// Carries its transaction out of the coroutine, which rolls it back at its end all the
/// same.
async fn carries_off_transaction(
    db: &Db,
    order: Order,
    attempt: &Attempt,
) -> Result<Transaction<'static>> {
    let transaction = db.begin().await?;
    attempt.begun();
    bank::withdraw(db, order.from, order.cents).await?;
    attempt.forgot();
    Ok(transaction)
}

/// Drops a statement that is on its way, takes no notice and commits. If that were let
/// through, half a transfer would be committed.
async fn cuts_off_statement(db: &Db, order: Order, attempt: &Attempt) -> Result<()> {
    db.transaction(async || {
        attempt.begun();
        bank::withdraw(db, order.from, order.cents).await?;
        if let Some(result) = give_up_after(1, bank::complete(db, order)).await {
            result?;
            attempt.moved(order);
        }
        attempt.committing();
        Ok(())
    })
    .await
}

/// Looks, inside its transaction, for what others may have left in the session.
async fn looks_around(town: &Town, order: Order, attempt: &Attempt) -> Result<()> {
    let db = &town.db;
    db.transaction(async || {
        attempt.begun();
        if let Some(trial) = &town.trial {
            trial.sessions.look(db).await?;
        }
        bank::transfer(db, order).await?;
        attempt.moved(order);
        attempt.committing();
        Ok(())
    })
    .await
}

/// Changes the session, which stays with it until it ends, and with nobody after it.
async fn marks_session(town: &Town, order: Order, attempt: &Attempt) -> Result<()> {
    let (Some(trial), Some(number)) = (&town.trial, order.number) else {
        return closure(&town.db, order, attempt).await;
    };
    trial.sessions.look(&town.db).await?;
    trial.sessions.mark(&town.db, number).await?;
    let result = closure(&town.db, order, attempt).await;
    attempt.ended(&result);
    result?;
    trial.sessions.expect_own(&town.db, number).await
}

/// Leaves with a statement in its pocket, whose connection waits for it.
async fn closes_late(db: &Db, order: Order, attempt: &Attempt) -> Result<Statement> {
    let sql = "SELECT balance FROM cenote_bank_account WHERE id = ?";
    let statement = db.prepare(sql).await?;
    statement.query_one((order.from,)).await?;
    closure(db, order, attempt).await?;
    Ok(statement)
}

/// Runs more texts than a connection keeps statements for.
async fn churns_statements(db: &Db, order: Order, attempt: &Attempt) -> Result<()> {
    for text in 0..4 {
        let plus = (order.cents + text) % 200;
        let sql = format!("SELECT balance + {plus} FROM cenote_bank_account WHERE id = ?");
        db.query_one(&sql, (order.from,)).await?;
    }
    closure(db, order, attempt).await
}

#[allow(
    clippy::disallowed_methods,
    reason = "people take their time between visits"
)]
async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_is_between_two_different_accounts_that_exist() {
        let mut rng = Rng::with_seed(1);
        for accounts in [2, 3, 100] {
            let last = i64::try_from(accounts).unwrap();
            for _ in 0..1_000 {
                let order = pick_order(&mut rng, accounts);
                assert_ne!(order.from, order.to);
                assert!((1..=last).contains(&order.from), "{order:?}");
                assert!((1..=last).contains(&order.to), "{order:?}");
                assert!(order.cents > 0, "{order:?}");
            }
        }
    }

    #[test]
    fn every_habit_is_picked_about_as_often_as_it_says() {
        for habits in [HABITS, CHAOTIC_HABITS] {
            let mut rng = Rng::with_seed(2);
            let mut picked = vec![0_u32; habits.len()];
            let total: u32 = habits.iter().map(|(_, weight)| weight).sum();
            assert_eq!(total, THOUSAND);
            for _ in 0..100_000 {
                let habit = pick_habit(&mut rng, habits);
                let at = habits.iter().position(|(of, _)| *of == habit).unwrap();
                picked[at] += 1;
            }
            for ((habit, weight), count) in habits.iter().zip(picked) {
                let expected = weight * 100;
                let range = expected * 8 / 10..=expected * 12 / 10;
                assert!(range.contains(&count), "{habit:?}: {count}");
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_plans() {
        let plans = |seed| {
            let mut rng = Rng::with_seed(seed);
            let plans: Vec<_> = (0..20).map(|_| Plan::new(&mut rng, 100, HABITS)).collect();
            format!("{plans:?}")
        };
        assert_eq!(plans(7), plans(7));
        assert_ne!(plans(7), plans(8));
    }
}
