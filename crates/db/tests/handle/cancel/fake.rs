//! Every operation on a fake database: with calls that take effect when they are dropped and calls that
//! do not, eager and lazy, in all surroundings.

use std::future::Future;
use std::task::Poll;
use std::time::Duration;

use cenote::driver::Value;
use cenote::{Db, Error, Kind, Result};
use cenote_testkit::poll::{Hand, drop_after};
use cenote_testkit::{DroppedCalls, Fake, ManualRuntime};

use super::operations::{OPERATIONS, Operation, Stage, wrong_rows};

/// What the driver is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manners {
    pub(crate) dropped: DroppedCalls,
    pub(crate) lazy: bool,
}

pub(crate) const ALL_MANNERS: [Manners; 4] = [
    Manners {
        dropped: DroppedCalls::NotExecuted,
        lazy: false,
    },
    Manners {
        dropped: DroppedCalls::Executed,
        lazy: false,
    },
    Manners {
        dropped: DroppedCalls::NotExecuted,
        lazy: true,
    },
    Manners {
        dropped: DroppedCalls::Executed,
        lazy: true,
    },
];

pub(crate) struct World {
    pub(crate) db: Db,
    pub(crate) fake: Fake,
    pub(crate) runtime: ManualRuntime,
}

impl World {
    /// A handle with at most `max` connections, and calls that are pending twice.
    pub(crate) fn new(manners: Manners, max: usize) -> Self {
        let (fake, runtime) = (Fake::new(), ManualRuntime::new());
        let builder = fake.builder().max(max).runtime(runtime.clone());
        let db = runtime.finish(builder.open()).expect("it opens");
        let fill = "INSERT INTO many VALUES (1), (2), (3), (4), (5)";
        runtime
            .finish(db.exec(fill, ()))
            .expect("a table is filled");
        fake.take_log();
        fake.poll_pending(2);
        fake.dropped_calls(manners.dropped);
        fake.lazy_begin(manners.lazy);
        World { db, fake, runtime }
    }

    /// Polls a future to its end. When no task can run, the clock advances.
    pub(crate) fn run<F: Future>(&self, future: F) -> F::Output {
        let mut hand = Hand::new(future);
        for _ in 0..10_000 {
            if let Poll::Ready(output) = hand.poll() {
                return output;
            }
            self.runtime.run();
            if !hand.is_woken() {
                self.runtime.advance(Duration::from_secs(1));
            }
        }
        panic!("it never ends");
    }

    pub(crate) fn rows(&self, table: &str) -> Vec<i64> {
        let rows = self.fake.rows(table).into_iter();
        rows.map(|row| match row.as_slice() {
            [Value::Int(n)] => *n,
            other => panic!("an unexpected row: {other:?}"),
        })
        .collect()
    }

    /// Returns what is wrong after everything has ended.
    pub(crate) fn wrong(&self) -> Option<String> {
        self.runtime.run();
        let violations = self.fake.take_violations();
        if !violations.is_empty() {
            return Some(format!("against the contract: {violations:?}"));
        }
        let status = self.db.status();
        if status.active + status.creating + status.waiting > 0 || status.total != status.idle {
            return Some(format!("the pool is not whole: {status:?}"));
        }
        let open = self.fake.open_transactions();
        (!open.is_empty()).then(|| format!("open transactions: {open:?}"))
    }

    fn next_call_works(&self) -> Option<String> {
        let done = self.run(self.db.exec("INSERT INTO next VALUES (1)", ()));
        let rows = self.rows("next");
        let works = done.is_ok() && rows.last() == Some(&1);
        (!works).then(|| format!("the next call: {done:?}, {rows:?}"))
    }
}

/// Drops an operation after 0, 1, 2 … polls, until it completes before the drop.
/// `drop_it` gives whether it was, and what it thinks is wrong.
fn sweep(what: &str, mut drop_it: impl FnMut(usize, &World) -> (bool, Option<String>), max: usize) {
    let mut wrong = Vec::new();
    for manners in ALL_MANNERS {
        for polls in 0.. {
            assert!(polls < 1000, "{what} is never done");
            let world = World::new(manners, max);
            let (is_done, said) = drop_it(polls, &world);
            let said = said.or_else(|| world.wrong());
            let said = said.or_else(|| world.next_call_works());
            if let Some(said) = said.or_else(|| world.wrong()) {
                let log = world.fake.log();
                wrong.push(format!(
                    "{what}, {manners:?}, {polls} polls: {said}\n{log:#?}"
                ));
            }
            if is_done {
                break;
            }
        }
    }
    let count = wrong.len();
    assert!(wrong.is_empty(), "{count} cases, the first: {}", wrong[0]);
}

/// A commit that was not sent has committed nothing.
fn committed_unsent(
    operation: &Operation,
    world: &World,
    done: Option<&Result<()>>,
) -> Option<String> {
    let is_transaction = operation.gives.len() > 1 && operation.is_atomic;
    let log = world.fake.log();
    let sent = log
        .iter()
        .any(|line| line.to_lowercase().contains("commit"));
    let found = world.rows("t");
    let wrong = is_transaction && done.is_none() && !sent && !found.is_empty();
    wrong.then(|| format!("committed without a commit: {found:?}"))
}

fn judge(
    operation: &Operation,
    world: &World,
    stage: &Stage<'_>,
    done: Option<&Result<()>>,
) -> Option<String> {
    let wrong = wrong_rows(operation, stage, done, &world.rows("t"));
    wrong.or_else(|| committed_unsent(operation, world, done))
}

/// Drops the future of one or several calls; the coroutine continues.
#[test]
fn a_coroutine_continues_after_any_dropped_call() {
    for operation in OPERATIONS {
        let drop_it = |polls, world: &World| {
            let stage = Stage::new(&world.db);
            let (done, after) = world.run(cenote::scope(async {
                let done = drop_after(polls, (operation.run)(&stage)).await;
                if stage.db.in_transaction() {
                    // The text of a statement began the transaction, so no guard has ended it.
                    drop(stage.db.exec("ROLLBACK", ()).await);
                }
                let after = stage.db.exec("INSERT INTO next VALUES (0)", ()).await;
                (done, after.map(|_| stage.db.in_transaction()))
            }));
            world.runtime.run();
            let wrong = judge(operation, world, &stage, done.as_ref());
            let lost = !matches!(after, Ok(false)) || world.rows("next") != [0];
            let lost = lost.then(|| format!("the call after it: {after:?}"));
            (done.is_some(), wrong.or(lost))
        };
        sweep(operation.name, drop_it, 2);
    }
}

/// The same while something else keeps the connection.
#[test]
fn coroutine_with_a_pinned_connection_survives_any_dropped_call() {
    for operation in OPERATIONS {
        let drop_it = |polls, world: &World| {
            let stage = Stage::new(&world.db);
            let (done, after) = world
                .run(cenote::scope(async {
                    let _pin = stage.db.pin().await?;
                    let done = drop_after(polls, (operation.run)(&stage)).await;
                    if stage.db.in_transaction() {
                        drop(stage.db.exec("ROLLBACK", ()).await);
                    }
                    let after = stage.db.exec("INSERT INTO next VALUES (0)", ()).await;
                    Ok::<_, Error>((done, after.map(|_| stage.db.in_transaction())))
                }))
                .expect("a connection is pinned");
            world.runtime.run();
            let wrong = judge(operation, world, &stage, done.as_ref());
            let lost = !matches!(after, Ok(false)) || world.rows("next") != [0];
            let lost = lost.then(|| format!("the call after it: {after:?}"));
            (done.is_some(), wrong.or(lost))
        };
        sweep(operation.name, drop_it, 2);
    }
}

/// A coroutine is dropped, whatever it is doing.
#[test]
fn a_dropped_coroutine_leaves_nothing_behind() {
    for operation in OPERATIONS {
        let drop_it = |polls, world: &World| {
            let stage = Stage::new(&world.db);
            let scope = cenote::scope((operation.run)(&stage));
            let done = world.run(drop_after(polls, scope));
            world.runtime.run();
            (
                done.is_some(),
                judge(operation, world, &stage, done.as_ref()),
            )
        };
        sweep(operation.name, drop_it, 2);
    }
}

/// Without a coroutine, no later call cleans up.
#[test]
fn outside_of_coroutines_any_drop_leaves_nothing_behind() {
    for operation in OPERATIONS.iter().filter(|operation| operation.is_free) {
        let drop_it = |polls, world: &World| {
            let stage = Stage::new(&world.db);
            let done = world.run(drop_after(polls, (operation.run)(&stage)));
            world.runtime.run();
            (
                done.is_some(),
                judge(operation, world, &stage, done.as_ref()),
            )
        };
        sweep(operation.name, drop_it, 1);
    }
}

/// Inside a transaction: the dropped call has doomed it, or has left no trace in it.
#[test]
fn transaction_goes_on_or_is_doomed_after_any_dropped_call() {
    for operation in OPERATIONS.iter().filter(|operation| operation.nests) {
        let drop_it = |polls, world: &World| {
            let stage = Stage::new(&world.db);
            let db = stage.db;
            let mut done = None;
            let outer = world.run(db.transaction(async || {
                db.exec("INSERT INTO around VALUES (1)", ()).await?;
                done = drop_after(polls, (operation.run)(&stage)).await;
                db.exec("INSERT INTO around VALUES (2)", ()).await
            }));
            world.runtime.run();
            let (found, around) = (world.rows("t"), world.rows("around"));
            let right = match (&outer, &done) {
                (Ok(_), Some(Ok(()))) => found == operation.gives && around == [1, 2],
                (Ok(_), None) => found.is_empty() && around == [1, 2],
                (Err(error), None) => {
                    error.kind() == Kind::Doomed && found.is_empty() && around.is_empty()
                }
                (_, Some(_)) => false,
            };
            let wrong = || format!("outer: {outer:?}, done: {done:?}, {found:?}, {around:?}");
            (done.is_some(), (!right).then(wrong))
        };
        sweep(operation.name, drop_it, 1);
    }
}

/// The last of several drops finds what the earlier ones have left to be undone.
#[test]
fn two_drops_after_each_other_do_no_more_harm_than_one() {
    let operations = [
        "transaction",
        "nested transactions",
        "savepoint that is released",
    ];
    for operation in OPERATIONS
        .iter()
        .filter(|operation| operations.contains(&operation.name))
    {
        for second in 0..8 {
            let drop_it = |polls, world: &World| {
                let stage = Stage::new(&world.db);
                let (done, after) = world.run(cenote::scope(async {
                    let done = drop_after(polls, (operation.run)(&stage)).await;
                    let next = stage.db.exec("INSERT INTO second VALUES (1)", ());
                    drop(drop_after(second, next).await);
                    let after = stage.db.exec("INSERT INTO next VALUES (0)", ()).await;
                    (done, after.map(|_| stage.db.in_transaction()))
                }));
                world.runtime.run();
                let wrong = judge(operation, world, &stage, done.as_ref());
                let lost = !matches!(after, Ok(false)) || world.rows("next") != [0];
                let lost = lost.then(|| format!("the call after it: {after:?}"));
                (done.is_some(), wrong.or(lost))
            };
            sweep(operation.name, drop_it, 2);
        }
    }
}

/// The same in a transaction that continues: it is intact or doomed.
#[test]
fn two_drops_in_a_transaction_cost_at_most_the_transaction() {
    let operations = [
        "transaction",
        "nested transactions",
        "stream in a transaction",
    ];
    for operation in OPERATIONS
        .iter()
        .filter(|operation| operations.contains(&operation.name))
    {
        for second in 0..10 {
            let drop_it = |polls, world: &World| {
                let stage = Stage::new(&world.db);
                let db = stage.db;
                let mut done = None;
                let outer = world.run(db.transaction(async || {
                    db.exec("INSERT INTO around VALUES (1)", ()).await?;
                    done = drop_after(polls, (operation.run)(&stage)).await;
                    let next = db.exec("INSERT INTO around VALUES (2)", ());
                    let next = drop_after(second, next).await;
                    db.exec("INSERT INTO around VALUES (3)", ()).await?;
                    Ok(next.is_some())
                }));
                world.runtime.run();
                let (found, around) = (world.rows("t"), world.rows("around"));
                let gives = match &done {
                    Some(Ok(())) => operation.gives,
                    _ => &[],
                };
                let right = match &outer {
                    Ok(true) => found == gives && around == [1, 2, 3],
                    Ok(false) => found == gives && around == [1, 3],
                    Err(error) => {
                        error.kind() == Kind::Doomed && found.is_empty() && around.is_empty()
                    }
                };
                let is_one = world.fake.connections().len() == 1;
                let wrong = || format!("outer: {outer:?}, done: {done:?}, {found:?}, {around:?}");
                (done.is_some(), (!right || !is_one).then(wrong))
            };
            sweep(operation.name, drop_it, 1);
        }
    }
}
