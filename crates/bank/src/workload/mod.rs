//! A shift of the bank: the doors open, the clients come, the auditor looks in, the doors
//! close.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cenote::Db;
use cenote::pool::Status;
use tokio::sync::{RwLock, RwLockWriteGuard};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, timeout};

use crate::args::Options;
use crate::bank::{self, STARTING_CENTS};
use crate::chaos::Trial;
use crate::check::{Audits, Evidence, PoolState};
use crate::clients::{self, Town};
use crate::tally::{Counts, Outcome, Tally};
use crate::waits::WaitTimes;

/// How long clients have to finish a visit when the doors close; those who are still there
/// then are aborted.
const LAST_ORDERS: Duration = Duration::from_secs(10);
/// How long the pool has to clean up after the last of them.
const CLEAN_UP: Duration = Duration::from_secs(10);
/// How long locking every account may take.
const LOCKING: Duration = Duration::from_secs(10);
/// The shortest time between two audits, and the longest part of the time that they take.
const AUDIT_EVERY: Duration = Duration::from_millis(250);
const AUDIT_SHARE: u32 = 10;

/// A shift under way.
#[derive(Debug)]
pub(crate) struct Shift {
    desk: Arc<Desk>,
    clients: JoinSet<()>,
    auditor: JoinSet<()>,
}

/// Where the numbers of a shift come together.
#[derive(Debug)]
pub(crate) struct Desk {
    town: Arc<Town>,
    /// The auditor's own handle: what it sees is what has been committed.
    office: Db,
    audits: Mutex<Audits>,
    started: Instant,
    /// What was on all accounts together at the beginning.
    before: i64,
    /// How many connections the clients may have.
    max: usize,
    /// What goes wrong at the moment.
    trouble: Mutex<&'static str>,
}

/// The shift at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) elapsed: Duration,
    pub(crate) status: Status,
    pub(crate) counts: Counts,
    pub(crate) waits: WaitTimes,
    pub(crate) audits: Audits,
    pub(crate) before: i64,
    /// What goes wrong at the moment, if anything does.
    pub(crate) trouble: &'static str,
}

/// A shift that is over.
#[derive(Debug)]
pub(crate) struct Closed {
    /// For how long the clients were at work, the last one included.
    pub(crate) worked: Duration,
    pub(crate) waits: WaitTimes,
    /// The last thing that went wrong though nobody had planned it.
    pub(crate) complaint: Option<String>,
    pub(crate) evidence: Evidence,
}

impl Shift {
    /// Opens the doors to so many clients. Needs Tokio, and the tables.
    pub(crate) fn open(db: Db, office: Db, options: &Options, trial: Option<Trial>) -> Self {
        let Options {
            accounts,
            tasks,
            seed,
            max,
            ..
        } = *options;
        let desk = Arc::new(Desk {
            town: Arc::new(Town {
                db,
                tally: Arc::new(Tally::default()),
                accounts,
                closing: AtomicBool::new(false),
                gate: RwLock::default(),
                trial,
            }),
            office,
            audits: Mutex::default(),
            started: Instant::now(),
            before: i64::try_from(accounts).unwrap_or(i64::MAX) * STARTING_CENTS,
            max,
            trouble: Mutex::default(),
        });
        let mut auditor = JoinSet::new();
        auditor.spawn(audit_again_and_again(Arc::clone(&desk)));
        Shift {
            clients: clients::send_out(&desk.town, tasks, seed),
            auditor,
            desk,
        }
    }

    pub(crate) fn desk(&self) -> Arc<Desk> {
        Arc::clone(&self.desk)
    }

    /// Closes the doors: lets the clients finish, waits until the pool is at rest, and
    /// collects the evidence.
    ///
    /// # Errors
    ///
    /// The books cannot be read.
    pub(crate) async fn close(mut self) -> cenote::Result<Closed> {
        let town = &self.desk.town;
        town.closing.store(true, Relaxed);
        if timeout(LAST_ORDERS, all_ended(&mut self.clients))
            .await
            .is_err()
        {
            self.clients.shutdown().await;
        }
        let worked = self.desk.started.elapsed();
        self.auditor.shutdown().await;
        let pool = self.desk.pool_at_rest().await;
        let still_locked = self.desk.still_locked().await;
        let books = bank::audit(&self.desk.office).await?;
        Ok(Closed {
            worked,
            waits: town.tally.waits(),
            complaint: town.tally.complaint(),
            evidence: Evidence {
                before: self.desk.before,
                accounts: town.accounts,
                books,
                counts: town.tally.counts(),
                audits: self.desk.audits().clone(),
                still_locked,
                pool,
            },
        })
    }
}

impl Desk {
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            elapsed: self.started.elapsed(),
            status: self.town.db.status(),
            counts: self.town.tally.counts(),
            waits: self.town.tally.waits(),
            audits: self.audits().clone(),
            before: self.before,
            trouble: *self.trouble(),
        }
    }

    pub(crate) fn db(&self) -> &Db {
        &self.town.db
    }

    pub(crate) fn office(&self) -> &Db {
        &self.office
    }

    pub(crate) fn trial(&self) -> Option<&Trial> {
        self.town.trial.as_ref()
    }

    pub(crate) fn before(&self) -> i64 {
        self.before
    }

    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// How many visits have ended with a commit.
    pub(crate) fn committed(&self) -> u64 {
        self.town.tally.counts().of(Outcome::Committed)
    }

    /// How long those took.
    pub(crate) fn served(&self) -> WaitTimes {
        self.town.tally.served()
    }

    /// Waits until all visits have ended. No other begins while this is held.
    ///
    /// # Cancel safety
    ///
    /// Dropped, visits begin again.
    pub(crate) async fn all_outside(&self) -> RwLockWriteGuard<'_, ()> {
        self.town.gate.write().await
    }

    /// Tells those who watch what goes wrong at the moment.
    pub(crate) fn tell(&self, trouble: &'static str) {
        *self.trouble() = trouble;
    }

    fn trouble(&self) -> MutexGuard<'_, &'static str> {
        // Nothing that can panic runs under this lock.
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn audits(&self) -> MutexGuard<'_, Audits> {
        // Nothing that can panic runs under this lock.
        self.audits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pool as it is when nothing is being cleaned up any more, or when that has
    /// taken too long.
    pub(crate) async fn pool_at_rest(&self) -> PoolState {
        let db = &self.town.db;
        let look = || {
            let counters = db.pool().map(|pool| pool.counters());
            PoolState::new(&db.status(), &counters.unwrap_or_default())
        };
        let mut again = interval(Duration::from_millis(5));
        let rest = async {
            while !look().is_at_rest() {
                again.tick().await;
            }
        };
        // If it does not come to rest, the numbers say so.
        let _ = timeout(CLEAN_UP, rest).await;
        look()
    }

    async fn still_locked(&self) -> Option<String> {
        match timeout(LOCKING, bank::lock_all(&self.office)).await {
            Ok(locked) => locked.err().map(|error| error.to_string()),
            Err(_) => Some(format!("no answer after {LOCKING:?}")),
        }
    }
}

async fn all_ended(tasks: &mut JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended
            && let Ok(panic) = error.try_into_panic()
        {
            // A client never panics, only its visits do.
            std::panic::resume_unwind(panic);
        }
    }
}

/// Reads the books while the clients are at work.
async fn audit_again_and_again(desk: Arc<Desk>) {
    let mut tick = interval(AUDIT_EVERY);
    loop {
        tick.tick().await;
        let asked = Instant::now();
        // One that fails says nothing about the money; the one at the end has to succeed.
        if let Ok(books) = bank::audit(&desk.office).await {
            let mut audits = desk.audits();
            audits.done += 1;
            if books.sum != desk.before {
                audits.wrong.get_or_insert(books.sum);
            }
        }
        tick.reset_after((asked.elapsed() * AUDIT_SHARE).max(AUDIT_EVERY));
    }
}
