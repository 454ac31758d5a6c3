//! What an acquire brings to the lock, and what it finds there.

use std::panic::Location;
use std::task::Waker;
use std::time::Instant;

use crate::core::claims::ClaimKey;
use crate::core::waiters::{Newcomer, WaiterKey};
use crate::user_code::Contained;

/// An acquire that comes by the lock.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) caller: &'static Location<'static>,
    pub(crate) deadline: Option<Instant>,
    /// The slot this thread used last.
    pub(crate) hint: Option<usize>,
    pub(crate) patience: Patience,
    /// It was served before, and the acquire hook refused what it got.
    pub(crate) refused: bool,
    /// Its number in the order of arrival, if it was in the queue before.
    pub(crate) serial: Option<u32>,
}

impl Arrival {
    pub(super) fn newcomer(&self) -> Newcomer {
        Newcomer {
            deadline: self.deadline,
            serial: self.serial,
            waker: None,
            counted: false,
            probe: None,
        }
    }
}

/// The waker of an acquire that looks. Cloning one is its executor's code, so the
/// clone, where one is needed, is made before the lock is taken.
#[derive(Debug)]
pub(crate) struct Offered<'a> {
    pub(super) theirs: &'a Waker,
    owned: Option<Contained<Waker>>,
}

impl<'a> Offered<'a> {
    /// With a clone of its own, if it will be left.
    pub(crate) fn new(theirs: &'a Waker, cloned: bool) -> Self {
        let owned = cloned.then(|| Contained::new(theirs.clone()));
        Offered { theirs, owned }
    }

    pub(super) fn take(&mut self) -> Option<Waker> {
        self.owned.take().map(Contained::into_inner)
    }
}

/// How far an acquire goes for a resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Patience {
    /// Only what is idle.
    Idle,
    /// What is idle, or a creation of its own.
    Create,
    /// Queues.
    Queue,
}

/// What an acquire finds when it looks. Except for the first three, its entry is
/// gone with that.
#[derive(Debug)]
pub(crate) enum Looked<F> {
    Waiting(WaiterKey),
    /// It waits, and should look again with a waker of its own to leave.
    WakerNeeded(WaiterKey),
    /// A place to create in: the caller starts a creation and looks again.
    Create(WaiterKey, ClaimKey),
    /// A leased slot, and its number in the order of arrival if it had queued.
    Taken {
        slot: usize,
        fresh: bool,
        serial: Option<u32>,
    },
    /// As many wait as may: the number and the limit.
    QueueFull {
        waiting: usize,
        limit: usize,
    },
    /// There is nothing, and it would not wait.
    Exhausted,
    Failed(Box<F>),
    Closed,
    Unavailable,
    /// Out of time, and whether a creation of its own was under way.
    TimedOut {
        creating: bool,
    },
}
