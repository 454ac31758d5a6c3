//! A thread that stops statements which run away in place, and tells tasks that wait in a lane when
//! their time is up.
//!
//! SQLite asks every thousand steps of its virtual machine whether a statement has to stop; but one
//! step can take long, and then nobody asks. So somebody looks from outside, every few
//! milliseconds, and interrupts what has taken its time. While nothing runs in place and nobody waits,
//! for a second or so, it sleeps.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::Thread;
use std::time::Duration;

use super::control::Control;
use super::lane::Lane;

/// Between two looks.
const TICK: Duration = Duration::from_millis(4);

/// After so many looks without a run in place it goes to sleep.
const DROWSY: u32 = 250;

/// One for the whole process: it is idle nearly always.
#[derive(Debug)]
pub(super) struct Watchdog {
    state: AtomicU8,
    watched: Mutex<Watched>,
    thread: Thread,
}

#[derive(Debug, Default)]
struct Watched {
    connections: Vec<Weak<Control>>,
    lanes: Vec<Weak<Lane>>,
}

/// It sleeps until somebody wakes it.
const ASLEEP: u8 = 0;
/// Nothing has run in place since the last look.
const QUIET: u8 = 1;
/// Something has.
const ACTIVE: u8 = 2;

impl Watchdog {
    /// The one of this process; `None` if no thread could be started for it.
    fn get() -> Option<&'static Watchdog> {
        static WATCHDOG: OnceLock<Option<Watchdog>> = OnceLock::new();
        let start = || {
            let thread = std::thread::Builder::new().name("cenote-watchdog".into());
            // It finds the watchdog once that is there: whoever makes it waits for no thread.
            let thread = thread.spawn(|| {
                loop {
                    match WATCHDOG.get() {
                        Some(Some(watchdog)) => watchdog.watch(),
                        _ => std::thread::park(),
                    }
                }
            });
            let thread = thread.ok()?.thread().clone();
            Some(Watchdog {
                state: AtomicU8::new(ASLEEP),
                watched: Mutex::default(),
                thread,
            })
        };
        WATCHDOG.get_or_init(start).as_ref()
    }

    /// Watches a connection from now on, for as long as it is there. `None` if that cannot be
    /// done: then nothing may run in place on it.
    pub(super) fn over(control: &Arc<Control>) -> Option<&'static Watchdog> {
        let watchdog = Watchdog::get()?;
        let connections = &mut watchdog.watched().connections;
        connections.retain(|control| control.strong_count() > 0);
        connections.push(Arc::downgrade(control));
        Some(watchdog)
    }

    /// Watches a lane from now on, for as long as it is there.
    pub(super) fn over_lane(lane: &Arc<Lane>) {
        // Without one nobody joins a lane.
        if let Some(watchdog) = Watchdog::get() {
            let lanes = &mut watchdog.watched().lanes;
            lanes.retain(|lane| lane.strong_count() > 0);
            lanes.push(Arc::downgrade(lane));
        }
    }

    /// Somebody waits in a lane from now on.
    pub(super) fn attend_to_lanes() {
        if let Some(watchdog) = Watchdog::get() {
            watchdog.attend();
        }
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something runs in place, or waits in a lane, from now on.
    pub(super) fn attend(&self) {
        // Relaxed: the swap decides. If this reads an old `ACTIVE`, the dog is awake for
        // `DROWSY` more looks, and a run that takes so long is seen by them.
        if self.state.load(Ordering::Relaxed) == ACTIVE {
            return;
        }
        // Pairs with the exchanges in `watch`: either they see this, or this sees that it sleeps.
        if self.state.swap(ACTIVE, Ordering::AcqRel) == ASLEEP {
            self.thread.unpark();
        }
    }

    fn watch(&self) -> ! {
        let mut quiet = 0;
        let goes = |from, to| {
            let (done, failed) = (Ordering::AcqRel, Ordering::Acquire);
            let gone = self.state.compare_exchange(from, to, done, failed);
            gone.is_ok()
        };
        loop {
            if goes(ACTIVE, QUIET) {
                quiet = 0;
            } else if quiet < DROWSY {
                quiet += 1;
            } else if goes(QUIET, ASLEEP) {
                quiet = 0;
            }
            // It may wake up for nothing: then it looks once more.
            while self.state.load(Ordering::Acquire) == ASLEEP {
                std::thread::park();
            }
            if self.look() {
                quiet = 0;
            }
            std::thread::park_timeout(TICK);
        }
    }

    /// Whether there is somebody who waits.
    fn look(&self) -> bool {
        let watched = self.watched();
        for control in watched.connections.iter().filter_map(Weak::upgrade) {
            control.watch();
        }
        let lanes: Vec<_> = watched.lanes.iter().filter_map(Weak::upgrade).collect();
        drop(watched);
        // Not under the lock: it wakes tasks.
        let waiting = lanes.iter().filter(|lane| lane.watch()).count();
        waiting > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::pace;

    /// Runs "in place" until it is stopped.
    fn run_away(control: &Arc<Control>, db: &rusqlite::Connection) -> rusqlite::Result<i64> {
        let watchdog = Watchdog::over(control).unwrap();
        // The progress handler is not set: only the watchdog can stop it.
        control.begin_in_place(7, Some(pace::now()));
        watchdog.attend();
        let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
                       SELECT count(*) FROM n";
        db.query_row(endless, [], |row| row.get(0))
    }

    fn control(db: &rusqlite::Connection) -> Arc<Control> {
        let control = Arc::new(Control::new(Duration::ZERO));
        control.interrupt_with(db.get_interrupt_handle());
        control
    }

    #[test]
    fn a_read_that_runs_away_is_stopped_from_outside() {
        let db = rusqlite::Connection::open_in_memory().unwrap();
        let control = control(&db);
        assert!(run_away(&control, &db).is_err());
        assert!(control.end_in_place());
    }

    #[test]
    fn what_cannot_be_repeated_is_never_stopped() {
        let db = rusqlite::Connection::open_in_memory().unwrap();
        let control = control(&db);
        control.begin_in_place(1, None);
        control.watch();
        assert!(!db.is_interrupted());
        assert!(!control.end_in_place());
    }

    #[test]
    fn what_has_time_left_is_not_stopped_and_nothing_is_when_it_is_over() {
        let db = rusqlite::Connection::open_in_memory().unwrap();
        let control = control(&db);
        control.begin_in_place(1, Some(pace::now() + Duration::from_secs(3600)));
        control.watch();
        assert!(!control.end_in_place());
        control.begin_in_place(2, Some(pace::now()));
        assert!(!control.end_in_place());
        control.watch();
        control.begin(3);
        control.watch();
        assert!(!control.must_stop());
        assert!(!db.is_interrupted());
    }

    #[test]
    fn a_connection_that_is_gone_is_watched_no_more() {
        let first = Arc::new(Control::new(Duration::ZERO));
        let watchdog = Watchdog::over(&first).unwrap();
        let gone = Arc::downgrade(&first);
        drop(first);
        let _second = Watchdog::over(&Arc::new(Control::new(Duration::ZERO))).unwrap();
        let watched = watchdog.watched();
        let mut watched = watched.connections.iter();
        assert!(!watched.any(|control| control.ptr_eq(&gone)));
    }
}
