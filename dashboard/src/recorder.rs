//! Looks at a handle ten times a second, and keeps what it sees.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cenote::pool::{Status, Subscription};
use cenote::{ConnectionHolder, Db, PinReason, QueuedCall, StatementWatch};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::diagnosis::{GroupStatement, HolderGroup, LONG, Picture, QueueGroup};
use crate::event_log::EventLog;
use crate::history::{History, Sample, Totals};
use crate::servers::Servers;
use crate::text::line;

/// The time between two samples.
pub(crate) const INTERVAL: Duration = Duration::from_millis(100);

/// How many of the oldest calls in the queue a sample looks at.
const MOST_QUEUED: usize = 256;

/// What a page knows about a handle. It lives as long as the page.
pub(crate) struct Recorder {
    pub(crate) db: Db,
    pub(crate) shows_statements: bool,
    began: Instant,
    pub(crate) events: Arc<Mutex<EventLog>>,
    recorded: Mutex<Recorded>,
    /// The number of seconds that have ended.
    seconds: watch::Sender<u64>,
    _statements: StatementWatch,
    _events: Option<Subscription>,
}

struct Recorded {
    history: History,
    last: Instant,
    now: Seen,
}

/// The last sample.
#[derive(Clone)]
pub(crate) struct Seen {
    pub(crate) status: Status,
    pub(crate) holders: Vec<ConnectionHolder>,
    pub(crate) queued: Vec<QueuedCall>,
    pub(crate) servers: Servers,
}

impl Recorder {
    pub(crate) fn new(db: &Db, shows_statements: bool) -> Arc<Self> {
        let events: Arc<Mutex<EventLog>> = Arc::default();
        let log = Arc::clone(&events);
        let subscription = db
            .pool()
            .map(|pool| pool.on_rare_event(move |event| lock(&log).add(event)));
        let now = tokio::time::Instant::now().into_std();
        Arc::new(Recorder {
            shows_statements,
            began: now,
            events,
            recorded: Mutex::new(Recorded {
                history: History::new(totals(db)),
                last: now,
                now: see(db),
            }),
            seconds: watch::Sender::new(0),
            _statements: db.watch_statements(),
            _events: subscription,
            db: db.clone(),
        })
    }

    /// Samples until the recorder is gone.
    pub(crate) async fn run(recorder: Weak<Self>) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            match recorder.upgrade() {
                // Tokio's clock, so that a test can stop it.
                Some(recorder) => recorder.sample(tokio::time::Instant::now().into_std()),
                None => return,
            }
        }
    }

    /// Takes a sample.
    pub(crate) fn sample(&self, now: Instant) {
        let seen = see(&self.db);
        let mut recorded = self.recorded();
        let weight = now.saturating_duration_since(recorded.last);
        recorded.last = now;
        let is_over = recorded.history.add(&Sample {
            status: &seen.status,
            holders: &seen.holders,
            queued: &seen.queued,
            weight,
        });
        if is_over {
            let at = SystemTime::now().duration_since(UNIX_EPOCH);
            let at = at.unwrap_or_default().as_secs();
            recorded
                .history
                .end_second(at, &seen.status, totals(&self.db));
        }
        let changes = recorded.now.servers.changes(&seen.servers);
        recorded.now = seen;
        let seconds = recorded.history.next();
        drop(recorded);
        if !changes.is_empty() {
            let mut events = lock(&self.events);
            changes
                .into_iter()
                .for_each(|change| events.add_change(change));
        }
        if is_over {
            self.seconds.send_replace(seconds);
        }
    }

    /// Returns for how long it has sampled.
    pub(crate) fn uptime(&self) -> Duration {
        let now = tokio::time::Instant::now().into_std();
        now.saturating_duration_since(self.began)
    }

    /// Returns a receiver of the number of seconds that have ended.
    pub(crate) fn seconds(&self) -> watch::Receiver<u64> {
        self.seconds.subscribe()
    }

    /// Gives the history and the last sample to a function that only formats them.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&History, &Seen) -> T) -> T {
        let recorded = self.recorded();
        look(&recorded.history, &recorded.now)
    }

    /// Returns the state of the handle, in groups.
    pub(crate) fn picture(&self, seen: &Seen) -> Picture {
        let status = &seen.status;
        let pool = self.db.pool();
        let failed = pool.and_then(|pool| pool.last_creation_error());
        Picture {
            max: status.max,
            active: status.active,
            creating: status.creating,
            waiting: status.waiting,
            breaker: status.breaker,
            closed: status.closed,
            holders: group_holders(&seen.holders),
            queue: group_queue(seen),
            connect_error: failed.map(|failed| failed.to_string()),
            no_host: seen.servers.no_host(),
            no_replica: seen.servers.no_replica(),
        }
    }

    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        lock(&self.recorded)
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is shown is no worse after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn see(db: &Db) -> Seen {
    let status = db.status();
    let queued = match status.waiting {
        0 => Vec::new(),
        _ => db.queued(MOST_QUEUED),
    };
    Seen {
        status,
        holders: db.holders(),
        queued,
        servers: Servers::see(db),
    }
}

fn totals(db: &Db) -> Totals {
    Totals {
        counters: db.counters(),
        timings: db.timings(),
    }
}

/// Returns the holders by line and pin, those with the oldest first.
fn group_holders(holders: &[ConnectionHolder]) -> Vec<HolderGroup> {
    let mut groups: Vec<HolderGroup> = Vec::new();
    let mut known = HashMap::new();
    // Holders come longest first, so that the first of a group is its oldest.
    for holder in holders {
        let statement = holder.statement.as_ref();
        let is_shared = holder.shared_by > 0;
        let runs = is_shared || statement.is_some_and(|it| it.running);
        let is_stuck = holder.held_for >= LONG && !runs;
        let line = line(holder.caller);
        let begins = statement.is_some_and(|it| it.running && &*it.summary == "BEGIN");
        let pin = match holder.pin {
            // A transaction pins its connection as soon as it has begun.
            Some(PinReason::Explicit) if begins => Some(PinReason::Transaction),
            pin => pin,
        };
        match known.entry((line.clone(), pin, is_shared)) {
            Entry::Occupied(known) => {
                let group: &mut HolderGroup = &mut groups[*known.get()];
                group.count += 1;
                group.shared_by += holder.shared_by;
                group.stuck += usize::from(is_stuck);
            }
            Entry::Vacant(new) => {
                new.insert(groups.len());
                groups.push(HolderGroup {
                    line,
                    pin,
                    count: 1,
                    shared_by: holder.shared_by,
                    oldest: holder.held_for,
                    stuck: usize::from(is_stuck),
                    statement: statement.map(|it| GroupStatement {
                        summary: it.summary.to_string(),
                        text: it.text.to_string(),
                        running: it.running,
                        age: it.age,
                    }),
                });
            }
        }
    }
    groups
}

/// Returns the queue by line and reason, those with the oldest first. Calls that the sample did not look at belong to the
/// last group.
fn group_queue(seen: &Seen) -> Vec<QueueGroup> {
    let mut groups: Vec<QueueGroup> = Vec::new();
    for call in &seen.queued {
        let line = line(call.caller);
        let known = groups
            .iter_mut()
            .find(|group| group.line == line && group.reason == call.reason);
        match known {
            Some(group) => group.count += 1,
            None => groups.push(QueueGroup {
                line,
                reason: call.reason,
                count: 1,
                oldest: call.waited,
            }),
        }
    }
    if let Some(last) = groups.last_mut() {
        last.count += seen.status.waiting.saturating_sub(seen.queued.len());
    }
    groups
}
