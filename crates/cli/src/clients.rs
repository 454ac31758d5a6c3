//! The clients of the bank: most behave, and the others do what programs do to databases.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use cenote::{Db, Error, Kind, Result, Transaction, TransactionOptions};
use fastrand::Rng;
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::bank::{self, Order, Refusal};
use crate::impatience::give_up_after;
use crate::panics::PlannedPanic;
use crate::tally::{Attempt, Tally};

/// The longest pause between two visits.
const THINKS: Duration = Duration::from_millis(20);
/// The longest time after which a visit is aborted.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long a client stays away after a failure that nobody planned.
const RECOVERS: Duration = Duration::from_millis(100);
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
}

const THOUSAND: u32 = 1_000;
const HABITS: [(Habit, u32); 11] = [
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

/// What all clients share.
#[derive(Debug)]
pub(crate) struct Town {
    pub(crate) db: Db,
    pub(crate) tally: Arc<Tally>,
    /// How many accounts there are.
    pub(crate) accounts: usize,
    /// Nobody begins another visit.
    pub(crate) closing: AtomicBool,
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
        let plan = Plan::new(&mut rng, town.accounts);
        let abort_after = (plan.habit == Habit::IsAborted).then(|| PATIENCE.mul_f64(rng.f64()));
        let attempt = Attempt::new(&town.tally);
        let mut visit = Visit(cenote::spawn(visit(town.db.clone(), plan, attempt)));
        // A visit that was aborted or has panicked was counted where it ended.
        let visited = visit.end(abort_after).await;
        if visited.is_ok_and(|visited| !visited.as_planned) {
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
    fn new(rng: &mut Rng, accounts: usize) -> Self {
        Plan {
            habit: pick_habit(rng),
            orders: std::array::from_fn(|_| pick_order(rng, accounts)),
            polls: rng.u32(1..=POLLS),
            statements: rng.u32(0..=2),
        }
    }
}

fn pick_habit(rng: &mut Rng) -> Habit {
    let mut lot = rng.u32(..THOUSAND);
    for (habit, weight) in HABITS {
        match lot.checked_sub(weight) {
            Some(rest) => lot = rest,
            None => return habit,
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
        from,
        to: (from - 1 + distance) % last + 1,
        cents: rng.i64(1..=MOST_CENTS),
    }
}

async fn visit(db: Db, plan: Plan, attempt: Attempt) -> Visited {
    let mut carried_off = None;
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
    }
}

/// As most programs would do it.
async fn closure(db: &Db, order: Order, attempt: &Attempt) -> Result<()> {
    db.transaction(async || {
        attempt.begun();
        bank::transfer(db, order).await?;
        attempt.moved();
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
    attempt.moved();
    attempt.committing();
    transaction.commit().await
}

/// With transactions inside it, one of which fails, and costs nothing but itself.
async fn savepoints(db: &Db, orders: [Order; 3], attempt: &Attempt) -> Result<()> {
    let options = TransactionOptions::new().retries(3);
    db.retry_transaction(options, async || {
        attempt.begun();
        bank::transfer(db, orders[0]).await?;
        attempt.moved();
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
        attempt.moved();
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
    attempt.moved();
    let savepoint = transaction.savepoint().await?;
    match bank::transfer(db, orders[1]).await {
        Err(error) if error.kind() != Kind::Other => return Err(error),
        _ => savepoint.rollback().await?,
    }
    attempt.undid_savepoint();
    let savepoint = transaction.savepoint().await?;
    bank::transfer(db, orders[2]).await?;
    savepoint.commit().await?;
    attempt.moved();
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
        if let Some(result) = give_up_after(1, bank::deposit(db, order.to, order.cents)).await {
            result?;
            attempt.moved();
        }
        attempt.committing();
        Ok(())
    })
    .await
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
        let mut rng = Rng::with_seed(2);
        let mut picked = [0_u32; HABITS.len()];
        let total: u32 = HABITS.iter().map(|(_, weight)| weight).sum();
        assert_eq!(total, THOUSAND);
        for _ in 0..100_000 {
            let habit = pick_habit(&mut rng);
            let at = HABITS.iter().position(|(of, _)| *of == habit).unwrap();
            picked[at] += 1;
        }
        for ((habit, weight), count) in HABITS.iter().zip(picked) {
            let expected = weight * 100;
            let range = expected * 8 / 10..=expected * 12 / 10;
            assert!(range.contains(&count), "{habit:?}: {count}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_plans() {
        let plans = |seed| {
            let mut rng = Rng::with_seed(seed);
            let plans: Vec<_> = (0..20).map(|_| Plan::new(&mut rng, 100)).collect();
            format!("{plans:?}")
        };
        assert_eq!(plans(7), plans(7));
        assert_ne!(plans(7), plans(8));
    }
}
