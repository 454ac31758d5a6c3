//! What an acquire brings to the lock, and what it finds there.

use std::panic::Location;
use std::task::Waker;
use std::time::Instant;

use crate::core::claims::ClaimKey;
use crate::core::waiters::{Newcomer, WaiterKey};
use crate::error::Unavailable;
use crate::user_code::Contained;

/// An acquire that takes the lock.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) caller: &'static Location<'static>,
    pub(crate) began: Option<Instant>,
    pub(crate) deadline: Option<Instant>,
    /// The slot that this thread used last.
    pub(crate) hint: Option<usize>,
    pub(crate) mode: AcquireMode,
    /// The acquire hook refused the resource that the acquire was served with before.
    pub(crate) refused: bool,
    /// Its number in the order of arrival, if it was in the queue before.
    pub(crate) serial: Option<u32>,
}

impl Arrival {
    pub(super) fn newcomer(&self) -> Newcomer {
        Newcomer {
            caller: self.caller,
            began: self.began,
            deadline: self.deadline,
            serial: self.serial,
            waker: None,
            counted: false,
            probe: None,
        }
    }
}

/// The waker of an acquire that is polled. To clone a waker runs the executor's code, so a clone
/// is made before the lock is taken.
#[derive(Debug)]
pub(crate) struct PolledWaker<'a> {
    pub(super) theirs: &'a Waker,
    owned: Option<Contained<Waker>>,
}

impl<'a> PolledWaker<'a> {
    /// Wraps a waker, with a clone to store if `cloned`.
    pub(crate) fn new(theirs: &'a Waker, cloned: bool) -> Self {
        let owned = cloned.then(|| Contained::new(theirs.clone()));
        PolledWaker { theirs, owned }
    }

    pub(super) fn take(&mut self) -> Option<Waker> {
        self.owned.take().map(Contained::into_inner)
    }
}

/// Where an acquire may get its resource from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AcquireMode {
    /// An idle resource only.
    Idle,
    /// An idle resource, or a creation of its own.
    Create,
    /// Also the queue.
    Queue,
}

/// What an acquire finds under the lock. After all but the first three it has no entry any more.
#[derive(Debug)]
pub(crate) enum Progress<F> {
    Waiting(WaiterKey),
    /// It waits, and has to poll again with a clone of its waker.
    WakerNeeded(WaiterKey),
    /// A slot to create in: the caller starts a creation and polls again.
    Create(WaiterKey, ClaimKey),
    /// A leased slot, and its number in the order of arrival if it had queued.
    Taken {
        slot: usize,
        fresh: bool,
        serial: Option<u32>,
    },
    /// The queue is full: the number of waiters and the limit.
    QueueFull {
        waiting: usize,
        limit: usize,
    },
    /// Nothing is available, and the acquire does not queue.
    Exhausted,
    Failed(Box<F>),
    Closed,
    Unavailable(Unavailable),
    /// The deadline passed; `creating` if a creation of its own was under way.
    TimedOut {
        creating: bool,
    },
}
