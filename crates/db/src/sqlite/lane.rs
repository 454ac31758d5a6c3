//! The writer lane: who writes to a database, one after the other, in the order in which they came.
//!
//! ```text
//! session ──enter──> | waiting | waiting | ──> Pass: one writes ──drop──> the next
//!                    '── joined: written for them by the one whose turn it is
//! ```
//!
//! SQLite lets one connection write at a time; the others try again and again until their
//! time is up, and who comes first is chance. Here they queue before they ask SQLite. There
//! is one lane for a database in the whole process, whichever handle it was opened by. Other
//! processes do not queue: for them there is the busy timeout.
//!
//! A write that nothing else depends on may be *joined*: whoever's turn it is takes those that wait
//! right behind it into its own transaction, and all of them are committed at once. What a disk
//! takes for one commit, it then takes for all of them.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use super::control::{Control, News};
use super::session::Order;
use crate::Result;
use crate::driver::Outcome;

/// Which database it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// A file, by its device and number, whatever it is called.
    #[cfg(unix)]
    File(u64, u64),
    /// A file, or a database in memory, by its name.
    Name(String),
}

impl Key {
    /// Of a file that is there; by its path where that is all there is.
    pub(super) fn of_file(path: &str) -> Self {
        #[cfg(unix)]
        if let Ok(file) = std::fs::metadata(path) {
            use std::os::unix::fs::MetadataExt;
            return Key::File(file.dev(), file.ino());
        }
        Key::Name(path.to_owned())
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Lane {
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// Somebody has the pass.
    is_taken: bool,
    waiting: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    control: Arc<Control>,
    /// What it wants to write, if others may do that for it.
    order: Option<Arc<Order>>,
}

/// What the lane says to one that waits.
#[derive(Debug)]
pub(super) enum Word {
    /// It is its turn.
    Go,
    /// It has been done.
    Done(Box<Result<Outcome>>),
    /// It could not be done together with others: it waits for its turn.
    Alone,
}

/// What entering the lane comes to.
#[derive(Debug)]
pub(super) enum Turn {
    /// Its turn has come.
    In(Pass),
    /// Somebody else has done it.
    Done(Result<Outcome>),
    /// Not in time.
    TimedOut,
    /// The call was cancelled.
    Cancelled,
}

impl Lane {
    /// The lane of this database.
    pub(super) fn of(key: Key) -> Arc<Self> {
        static LANES: OnceLock<Mutex<HashMap<Key, Weak<Lane>>>> = OnceLock::new();
        let lanes = LANES.get_or_init(Mutex::default);
        let mut lanes = lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = lanes.get(&key).and_then(Weak::upgrade) {
            return lane;
        }
        lanes.retain(|_, lane| lane.strong_count() > 0);
        let lane = Arc::new(Lane::default());
        lanes.insert(key, Arc::downgrade(&lane));
        lane
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Nothing that can panic runs under this lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many wait for their turn.
    pub(super) fn waiting(&self) -> usize {
        self.queue().waiting.len()
    }

    /// The pass, if nobody has it and nobody waits.
    pub(super) fn try_enter(self: &Arc<Self>) -> Option<Pass> {
        let mut queue = self.queue();
        if queue.is_taken {
            return None;
        }
        queue.is_taken = true;
        drop(queue);
        Some(Pass {
            lane: Arc::clone(self),
        })
    }

    /// Waits for its turn, for as long as for a lock. Blocks the connection's thread.
    pub(super) fn enter(
        self: &Arc<Self>,
        control: &Arc<Control>,
        order: Option<&Arc<Order>>,
    ) -> Turn {
        let mut queue = self.queue();
        if !queue.is_taken {
            queue.is_taken = true;
            drop(queue);
            return self.turn();
        }
        queue.waiting.push_back(Waiter {
            control: Arc::clone(control),
            order: order.map(Arc::clone),
        });
        drop(queue);
        let mut patiently = false;
        loop {
            let gives_up = match control.wait_for_word(patiently) {
                News::Word(Word::Go) => return self.turn(),
                News::Word(Word::Done(done)) => return Turn::Done(*done),
                News::Word(Word::Alone) => {
                    patiently = false;
                    continue;
                }
                News::TimedOut => Turn::TimedOut,
                News::Cancelled => Turn::Cancelled,
            };
            if self.leave(control) {
                return gives_up;
            }
            // Somebody has it in hand just now. The word comes soon, and has to be waited for.
            patiently = true;
        }
    }

    fn turn(self: &Arc<Self>) -> Turn {
        Turn::In(Pass {
            lane: Arc::clone(self),
        })
    }

    /// Leaves the queue. `false` if it is not in it.
    fn leave(&self, control: &Arc<Control>) -> bool {
        let mut queue = self.queue();
        let mut waiting = queue.waiting.iter();
        let found = waiting.position(|waiter| Arc::ptr_eq(&waiter.control, control));
        let gone = found.and_then(|at| queue.waiting.remove(at));
        drop(queue);
        gone.is_some()
    }
}

/// The right to write. Dropped, it is the next one's turn.
#[derive(Debug)]
pub(super) struct Pass {
    lane: Arc<Lane>,
}

impl Pass {
    /// Takes those who wait right behind and can be joined, up to so many.
    pub(super) fn companions(&self, most: usize) -> Vec<Companion> {
        let mut queue = self.lane.queue();
        let joinable = queue.waiting.iter().take_while(|w| w.order.is_some());
        let count = joinable.take(most).count();
        let taken: Vec<Waiter> = queue.waiting.drain(..count).collect();
        drop(queue);
        let companion = |waiter: Waiter| {
            Some(Companion {
                order: waiter.order?,
                control: Some(waiter.control),
                lane: Arc::clone(&self.lane),
            })
        };
        taken.into_iter().filter_map(companion).collect()
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut queue = self.lane.queue();
        let next = queue.waiting.pop_front();
        queue.is_taken = next.is_some();
        drop(queue);
        if let Some(next) = next {
            next.control.tell(Word::Go);
        }
    }
}

/// A write that is done by another's session. Dropped without an answer it waits for its own
/// turn again, in front of all others.
#[derive(Debug)]
pub(super) struct Companion {
    order: Arc<Order>,
    /// None once it has been answered.
    control: Option<Arc<Control>>,
    lane: Arc<Lane>,
}

impl Companion {
    pub(super) fn order(&self) -> &Order {
        &self.order
    }

    /// It has been done.
    pub(super) fn answer(mut self, done: Result<Outcome>) {
        if let Some(control) = self.control.take() {
            control.tell(Word::Done(Box::new(done)));
        }
    }

    /// It could not be done together with others. To be called in the opposite order of that
    /// in which they came.
    fn put_back(&mut self) {
        let Some(control) = self.control.take() else {
            return;
        };
        self.lane.queue().waiting.push_front(Waiter {
            control: Arc::clone(&control),
            order: None,
        });
        control.tell(Word::Alone);
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        self.put_back();
    }
}

/// Puts companions back in front of all others, in the order in which they came.
pub(super) fn put_back(companions: Vec<Companion>) {
    companions.into_iter().rev().for_each(drop);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn lane() -> Arc<Lane> {
        Arc::new(Lane::default())
    }

    fn control(call: u64) -> Arc<Control> {
        let control = Arc::new(Control::new(Duration::from_secs(3600)));
        control.begin(call);
        control
    }

    fn pass(turn: Turn) -> Pass {
        match turn {
            Turn::In(pass) => pass,
            other => panic!("not in the lane: {other:?}"),
        }
    }

    fn order(sql: &str) -> Arc<Order> {
        Arc::new(Order {
            sql: sql.to_owned(),
            params: Vec::new(),
            script: false,
            cache: true,
            rows: false,
            joins: true,
        })
    }

    /// Waits until so many are queued.
    fn until_queued(lane: &Lane, count: usize) {
        while lane.waiting() != count {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_file_has_one_lane_whatever_it_is_called() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("one.db");
        std::fs::write(&file, "").unwrap();
        let other_name = folder.path().join(".").join("one.db");
        let one = Lane::of(Key::of_file(file.to_str().unwrap()));
        let same = Lane::of(Key::of_file(other_name.to_str().unwrap()));
        assert!(Arc::ptr_eq(&one, &same));
        let other = Lane::of(Key::Name("another".to_owned()));
        assert!(!Arc::ptr_eq(&one, &other));
    }

    #[test]
    fn turns_come_in_the_order_in_which_they_were_asked_for() {
        let lane = lane();
        let first = pass(lane.enter(&control(1), None));
        let served = Mutex::new(Vec::new());
        std::thread::scope(|threads| {
            for n in 0..8 {
                let (lane, served) = (&lane, &served);
                threads.spawn(move || {
                    let turn = pass(lane.enter(&control(1), None));
                    served.lock().unwrap().push(n);
                    drop(turn);
                });
                until_queued(lane, n + 1);
            }
            drop(first);
        });
        assert_eq!(*served.lock().unwrap(), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert!(lane.try_enter().is_some());
    }

    #[test]
    fn nobody_barges_in_before_one_that_waits() {
        let lane = lane();
        let first = pass(lane.enter(&control(1), None));
        std::thread::scope(|threads| {
            let waiting = threads.spawn(|| pass(lane.enter(&control(1), None)));
            until_queued(&lane, 1);
            drop(first);
            assert!(lane.try_enter().is_none());
            drop(waiting.join().unwrap());
        });
        assert!(lane.try_enter().is_some());
    }

    #[test]
    fn a_cancelled_call_leaves_the_queue() {
        let lane = lane();
        let first = pass(lane.enter(&control(1), None));
        let cancelled = control(5);
        std::thread::scope(|threads| {
            let waiting = threads.spawn(|| lane.enter(&cancelled, None));
            until_queued(&lane, 1);
            cancelled.cancel(5);
            assert!(matches!(waiting.join().unwrap(), Turn::Cancelled));
        });
        assert_eq!(lane.waiting(), 0);
        drop(first);
        assert!(lane.try_enter().is_some());
    }

    #[test]
    fn waiting_ends_with_the_busy_timeout() {
        let lane = lane();
        let _first = pass(lane.enter(&control(1), None));
        let hasty = Arc::new(Control::new(Duration::ZERO));
        hasty.begin(1);
        assert!(matches!(lane.enter(&hasty, None), Turn::TimedOut));
        assert_eq!(lane.waiting(), 0);
    }

    #[test]
    fn what_can_be_joined_is_taken_up_to_the_first_that_cannot() {
        let lane = lane();
        let first = pass(lane.enter(&control(1), None));
        let (one, two) = (order("one"), order("two"));
        std::thread::scope(|threads| {
            let lane = &lane;
            let mut waiting = Vec::new();
            for order in [Some(&one), Some(&two), None, Some(&one)] {
                waiting.push(threads.spawn(move || lane.enter(&control(1), order)));
                until_queued(lane, waiting.len());
            }
            let companions = first.companions(10);
            let sql: Vec<_> = companions.iter().map(|c| c.order().sql.clone()).collect();
            assert_eq!(sql, ["one", "two"]);
            for companion in companions {
                companion.answer(Ok(Outcome::default()));
            }
            drop(first);
            let mut turns = waiting.into_iter().map(|waiting| waiting.join().unwrap());
            assert!(matches!(turns.next(), Some(Turn::Done(Ok(_)))));
            assert!(matches!(turns.next(), Some(Turn::Done(Ok(_)))));
            drop(pass(turns.next().unwrap()));
            drop(pass(turns.next().unwrap()));
        });
    }

    #[test]
    fn companions_that_are_put_back_go_first_and_alone() {
        let lane = lane();
        let first = pass(lane.enter(&control(1), None));
        let write = order("write");
        let served = Mutex::new(Vec::new());
        std::thread::scope(|threads| {
            for n in 0..3 {
                let (lane, served, write) = (&lane, &served, &write);
                threads.spawn(move || {
                    let turn = pass(lane.enter(&control(1), Some(write)));
                    served.lock().unwrap().push(n);
                    assert_eq!(turn.companions(1).len(), usize::from(n == 1));
                });
                until_queued(lane, n + 1);
            }
            let companions = first.companions(2);
            assert_eq!(companions.len(), 2);
            put_back(companions);
            drop(first);
        });
        assert_eq!(*served.lock().unwrap(), [0, 1, 2]);
    }

    #[test]
    fn one_that_is_cancelled_while_it_is_in_hand_leaves_as_soon_as_it_is_put_back() {
        let lane = lane();
        let first = pass(lane.enter(&control(1), None));
        let cancelled = control(5);
        let write = order("write");
        std::thread::scope(|threads| {
            let waiting = threads.spawn(|| lane.enter(&cancelled, Some(&write)));
            until_queued(&lane, 1);
            let companions = first.companions(1);
            cancelled.cancel(5);
            put_back(companions);
            assert!(matches!(waiting.join().unwrap(), Turn::Cancelled));
        });
        drop(first);
        assert!(lane.try_enter().is_some());
    }
}
