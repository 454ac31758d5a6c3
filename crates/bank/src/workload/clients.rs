//! The clients: each makes one visit after the other, by plans that follow from the seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use cenote::{Db, Result};
use fastrand::Rng;
use tokio::sync::RwLock;
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio::time::timeout;

use super::tally::{Attempt, Tally};
use super::visits::{self, Visited};
use crate::accounts::Order;
use crate::faults::Tracking;

/// The longest pause between two visits.
const THINKING: Duration = Duration::from_millis(20);
/// The longest time after which a visit is aborted.
const PATIENCE: Duration = Duration::from_millis(200);
/// The pause after an unplanned failure.
const RECOVERY: Duration = Duration::from_millis(100);
/// The longest time for which a statement outlives its coroutine.
const LATE: Duration = Duration::from_millis(20);
/// A visit that need not wait ends within this many polls.
const POLLS: usize = 12;
/// The largest amount of a transfer, in cents.
const MOST_CENTS: i64 = 5_000;

/// What a visit does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Habit {
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
    // The rest only with faults.
    LooksAround,
    MarksSession,
    ClosesLate,
    ChurnsStatements,
}

impl Habit {
    /// Returns the orders of a plan that a client with this habit carries out.
    fn orders(self, orders: &mut [Order; 3]) -> &mut [Order] {
        match self {
            Habit::Savepoints | Habit::SavepointGuards => orders,
            _ => &mut orders[..1],
        }
    }
}

/// The sum of the weights.
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

const CHAOS_HABITS: Habits = &[
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
pub(super) struct Shared {
    pub(super) db: Db,
    pub(super) tally: Arc<Tally>,
    /// The number of accounts.
    pub(super) accounts: usize,
    /// No client begins another visit.
    pub(super) stopping: AtomicBool,
    /// Every visit holds a read guard; a write guard makes a quiet moment.
    pub(super) gate: RwLock<()>,
    /// The ledger and the marks, for runs with faults.
    pub(super) tracking: Option<Tracking>,
}

impl Shared {
    fn habits(&self) -> Habits {
        match self.tracking {
            None => HABITS,
            Some(_) => CHAOS_HABITS,
        }
    }

    fn attempt(&self, orders: &mut [Order]) -> Attempt {
        match &self.tracking {
            None => Attempt::new(&self.tally),
            Some(tracking) => Attempt::tracked(&self.tally, &tracking.ledger, orders),
        }
    }
}

/// Starts the clients. The seed determines what each of them plans, but not how they interleave.
pub(super) fn start(shared: &Arc<Shared>, clients: usize, seed: u64) -> JoinSet<()> {
    let mut rng = Rng::with_seed(seed);
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        tasks.spawn(run(Arc::clone(shared), rng.fork()));
    }
    tasks
}

/// Runs a client: one visit after the other, each a coroutine of its own.
async fn run(shared: Arc<Shared>, mut rng: Rng) {
    while !shared.stopping.load(Relaxed) {
        pause(THINKING.mul_f64(rng.f64())).await;
        let inside = shared.gate.read().await;
        let mut plan = Plan::new(&mut rng, shared.accounts, shared.habits());
        let abort_after = (plan.habit == Habit::IsAborted).then(|| PATIENCE.mul_f64(rng.f64()));
        let attempt = shared.attempt(plan.habit.orders(&mut plan.orders));
        let mut visit = Visit(cenote::spawn(visits::run(
            Arc::clone(&shared),
            plan,
            attempt,
        )));
        // A visit that was aborted or panicked has been counted.
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
            pause(RECOVERY).await;
        }
    }
}

/// A visit, aborted when its client is dropped.
struct Visit(JoinHandle<Visited>);

impl Visit {
    /// Waits for its end, and aborts it when the time is over.
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

/// The plan of one visit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) habit: Habit,
    pub(super) orders: [Order; 3],
    /// The number of polls after which a cut-off visit is dropped.
    pub(super) polls: usize,
    /// How many statements a visit runs before its panic.
    pub(super) statements: u32,
}

impl Plan {
    fn new(rng: &mut Rng, accounts: usize, habits: Habits) -> Self {
        Plan {
            habit: pick_habit(rng, habits),
            orders: std::array::from_fn(|_| pick_order(rng, accounts)),
            polls: rng.usize(1..=POLLS),
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

/// Picks two different accounts and an amount.
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

#[allow(clippy::disallowed_methods, reason = "clients pause between visits")]
async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_names_two_different_accounts_that_exist() {
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
    fn habits_are_picked_about_as_often_as_they_weigh() {
        for habits in [HABITS, CHAOS_HABITS] {
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
