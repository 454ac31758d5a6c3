//! Branches of one coroutine that do all sorts of things at once, each with a waker of its own and
//! polled only when it was woken, some dropped half-way; against a model of what must be committed
//! and what must not.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use cenote::{Db, Error, Kind, Result};
use cenote_testkit::poll::{Hand, drop_after, poll_once};

use super::fake::{ALL_MANNERS, Manners, World};

const SEEDS: u64 = 300;
const INSERT: &str = "INSERT INTO t VALUES (?)";

/// What is known of the rows.
#[derive(Default)]
struct Model {
    must: RefCell<Vec<i64>>,
    must_not: RefCell<Vec<i64>>,
    /// Of each of these all, or none.
    together: RefCell<Vec<Vec<i64>>>,
    surprises: RefCell<Vec<String>>,
}

impl Model {
    /// Notes an error that nothing here can cause.
    fn note(&self, error: &Error) {
        let expected = matches!(
            error.kind(),
            Kind::Other | Kind::Doomed | Kind::Busy | Kind::TransactionEnded
        );
        if !expected {
            self.surprises.borrow_mut().push(format!("{error:?}"));
        }
    }

    /// What is wrong.
    fn wrong(self, found: &[i64]) -> Vec<String> {
        let mut wrong = self.surprises.into_inner();
        let is_there = |n: &i64| found.contains(n);
        for n in self.must.into_inner() {
            if found.iter().filter(|found| **found == n).count() != 1 {
                wrong.push(format!("{n} is not there once"));
            }
        }
        for n in self.must_not.into_inner().iter().filter(|n| is_there(n)) {
            wrong.push(format!("{n} is there"));
        }
        for rows in self.together.into_inner() {
            if rows.iter().any(is_there) && !rows.iter().all(is_there) {
                wrong.push(format!("some of {rows:?} are there"));
            }
        }
        wrong
    }
}

/// One run: what is random about it, and what it does.
struct Play<'w> {
    db: &'w Db,
    dice: Cell<u64>,
    rows: Cell<i64>,
    drops: bool,
    model: Model,
}

/// A closure's end: whether it was committed into what is around it, and its rows.
type Ended = Option<(bool, Vec<i64>)>;

impl Play<'_> {
    /// A random number below this.
    fn below(&self, end: u64) -> u64 {
        let mut dice = self.dice.get();
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        self.dice.set(dice);
        (dice >> 11) % end
    }

    fn small(&self, end: u64) -> usize {
        usize::try_from(self.below(end)).expect("it is small")
    }

    fn row(&self) -> i64 {
        self.rows.set(self.rows.get() + 1);
        self.rows.get()
    }

    /// Awaits something, or drops it after a few polls.
    async fn maybe_drop<F: Future>(&self, one_in: u64, most: u64, what: F) -> Option<F::Output> {
        match self.drops && self.below(one_in) == 0 {
            true => drop_after(self.small(most), what).await,
            false => Some(what.await),
        }
    }

    async fn plain(&self) {
        let row = self.row();
        let exec = self.db.exec(INSERT, (row,));
        match self.maybe_drop(5, 6, exec).await {
            Some(Ok(_)) => self.model.must.borrow_mut().push(row),
            Some(Err(error)) => {
                self.model.note(&error);
                self.model.must_not.borrow_mut().push(row);
            }
            None => {}
        }
    }

    /// One thing that a closure does; adds the rows that are to be there if it is committed.
    async fn step(&self, depth: u32, rows: &RefCell<Vec<i64>>) -> Result<()> {
        match self.below(4) {
            0 if depth < 3 => {
                if let Some((true, inner)) = self.closure(depth + 1).await {
                    rows.borrow_mut().extend(inner);
                }
            }
            1 => {
                let row = self.row();
                let statement = self.db.prepare(INSERT).await?;
                statement.exec((row,)).await?;
                rows.borrow_mut().push(row);
            }
            2 => {
                let mut stream = self.db.stream("SELECT * FROM many", ()).await?;
                if self.below(2) == 0 {
                    stream.try_next().await?;
                }
            }
            _ => {
                let row = self.row();
                self.db.exec(INSERT, (row,)).await?;
                rows.borrow_mut().push(row);
            }
        }
        Ok(())
    }

    fn closure(&self, depth: u32) -> Pin<Box<dyn Future<Output = Ended> + '_>> {
        Box::pin(async move {
            let rows = RefCell::default();
            let fails = self.below(3) == 0;
            let body = self.db.transaction(async || {
                for _ in 0..=self.below(3) {
                    self.step(depth, &rows).await?;
                }
                match fails {
                    true => Err(Error::other("no")),
                    false => Ok(()),
                }
            });
            let done = self.maybe_drop(3, 40, body).await;
            let rows = rows.into_inner();
            match done {
                Some(Ok(())) => return Some((true, rows)),
                Some(Err(error)) => self.model.note(&error),
                // Only its commit can have been under way.
                None if depth == 0 => {
                    self.model.together.borrow_mut().push(rows);
                    return None;
                }
                None => {}
            }
            self.model.must_not.borrow_mut().extend(&rows);
            Some((false, rows))
        })
    }

    async fn branch(&self) {
        for _ in 0..=self.below(4) {
            match self.below(5) {
                0 | 1 => self.plain().await,
                2 => {
                    if let Err(error) = self.db.exec("SET a = 1", ()).await {
                        self.model.note(&error);
                    }
                }
                _ => {
                    if let Some((true, rows)) = self.closure(0).await {
                        self.model.must.borrow_mut().extend(rows);
                    }
                }
            }
        }
    }
}

/// A branch, `None` when it has ended, and whether it was ever polled.
type Branch<F> = (Option<Hand<F>>, bool);

fn is_due<F: Future>((hand, is_started): &Branch<F>) -> bool {
    hand.as_ref()
        .is_some_and(|hand| hand.is_woken() || !is_started)
}

/// Polls the branches that were woken, in random order; `true` when all have ended.
fn poll_due<F: Future>(play: &Play<'_>, branches: &mut [Branch<F>]) -> bool {
    let first = play.small(97);
    for at in 0..branches.len() {
        let at = (at + first) % branches.len();
        if is_due(&branches[at]) {
            let (hand, is_started) = &mut branches[at];
            *is_started = true;
            if hand.as_mut().is_some_and(|hand| hand.poll().is_ready()) {
                *hand = None;
            }
        }
    }
    branches.iter().all(|(hand, _)| hand.is_none())
}

/// Plays to the end, in one coroutine.
fn act(play: &Play<'_>, world: &World) {
    let is_pinned = play.below(3) == 0;
    let count = 1 + play.small(3);
    let branches = (0..count).map(|_| (Some(Hand::new(play.branch())), false));
    let branches = RefCell::new(branches.collect::<Vec<_>>());
    let mut scope = pin!(cenote::scope(async {
        let _pin = match is_pinned {
            true => Some(play.db.pin().await),
            false => None,
        };
        let all = poll_fn(|_| match poll_due(play, &mut branches.borrow_mut()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        });
        all.await;
    }));
    let mut turns = 0;
    while poll_once(scope.as_mut()).is_pending() {
        world.runtime.run();
        // A wake-up that was lost shows as a timeout.
        if !branches.borrow().iter().any(is_due) {
            world.runtime.advance(Duration::from_secs(1));
        }
        turns += 1;
        assert!(turns < 100_000, "it never ends");
    }
}

/// Runs once, and returns what was wrong.
fn play(seed: u64, manners: Manners, drops: bool) -> Vec<String> {
    let world = World::new(manners, 6);
    let play = Play {
        db: &world.db,
        dice: Cell::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
        rows: Cell::new(0),
        drops,
        model: Model::default(),
    };
    act(&play, &world);
    let pool = world.wrong();
    let mut wrong = play.model.wrong(&world.rows("t"));
    wrong.extend(pool);
    wrong
}

fn play_all(drops: bool) {
    for seed in 1..=SEEDS {
        for manners in ALL_MANNERS {
            let wrong = play(seed, manners, drops);
            assert!(wrong.is_empty(), "seed {seed}, {manners:?}: {wrong:#?}");
        }
    }
}

#[test]
fn branches_of_a_coroutine_never_get_in_each_others_way() {
    play_all(false);
}

#[test]
fn branches_that_drop_calls_half_way_never_disturb_each_other() {
    play_all(true);
}
