//! Limits the connections that writers may take, for databases with one writer at a time.
//!
//! A call that waits to write would keep its connection from readers. So some connections are reserved for readers, and
//! further writers queue here, in the order of arrival, before they take a connection.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::Location;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use cenote_pool::{QueuedAcquire, WaitReason};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::call::route;
use crate::error::rounded;
use crate::pooled::handle::Handle;
use crate::{Error, Kind, Result};

#[derive(Debug)]
pub(crate) struct Writers {
    places: Arc<Semaphore>,
    most: usize,
    queue: Mutex<Queue>,
}

/// The calls that wait, for figures only: the semaphore decides who is next.
#[derive(Debug, Default)]
struct Queue {
    /// How many have waited so far: the number of the next.
    waited: u64,
    /// Line and beginning of each wait, by the coarse clock.
    waiting: BTreeMap<u64, (&'static Location<'static>, u64)>,
}

/// A call that waits for a connection: see [`Db::queued`](crate::Db::queued).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct QueuedCall {
    /// The line of the call.
    pub caller: &'static Location<'static>,
    /// How long it has waited.
    pub waited: Duration,
    /// What it waits for.
    pub reason: QueueReason,
}

/// What a call waits for before it gets a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum QueueReason {
    /// All connections are in use.
    Full,
    /// A connection is being opened.
    Connecting,
    /// The last attempt to connect failed, and the pool pauses before the next.
    BackingOff,
    /// The database has one writer at a time, and as many connections as may write are in use.
    Writers,
}

impl fmt::Display for QueueReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            QueueReason::Full => "all in use",
            QueueReason::Connecting => "connecting",
            QueueReason::BackingOff => "pause after a failed connect",
            QueueReason::Writers => "writer queue",
        })
    }
}

impl From<QueuedAcquire> for QueuedCall {
    fn from(queued: QueuedAcquire) -> Self {
        QueuedCall {
            caller: queued.caller,
            waited: queued.waited,
            reason: match queued.reason {
                WaitReason::Creating => QueueReason::Connecting,
                WaitReason::BackingOff => QueueReason::BackingOff,
                _ => QueueReason::Full,
            },
        }
    }
}

/// The right to take a connection to write. It stays with the connection until the connection goes back to the pool.
pub(crate) type Writer = OwnedSemaphorePermit;

impl Writers {
    /// For a pool of this many connections: a quarter of them, and at least one, is reserved for readers. `None` if the
    /// pool has only one.
    pub(crate) fn among(connections: usize) -> Option<Self> {
        let reserved = (connections / 4).max(1);
        let most = connections.saturating_sub(reserved);
        (most > 0).then(|| Writers {
            places: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))),
            most,
            queue: Mutex::default(),
        })
    }

    /// Returns how many calls wait.
    pub(crate) fn waiting(&self) -> usize {
        self.queue().waiting.len()
    }

    /// Returns how many calls have waited so far.
    pub(crate) fn waited(&self) -> u64 {
        self.queue().waited
    }

    /// Returns the calls that wait, `most` at most, oldest first. `now` is the time by the coarse clock.
    pub(crate) fn queued(&self, most: usize, now: u64) -> Vec<QueuedCall> {
        let queue = self.queue();
        let oldest = queue.waiting.values().take(most);
        oldest
            .map(|&(caller, since)| QueuedCall {
                caller,
                waited: Duration::from_nanos(now.saturating_sub(since)),
                reason: QueueReason::Writers,
            })
            .collect()
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Nothing that can panic runs under this lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the right to write, at most as long as for a connection.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the call leaves the queue, or the right goes to the next waiter.
    pub(crate) async fn enter(
        &self,
        handle: &Handle,
        site: &'static Location<'static>,
    ) -> Result<Writer> {
        match Arc::clone(&self.places).try_acquire_owned() {
            Ok(writer) => Ok(writer),
            // This future is part of many calls' futures: the rare branch is boxed.
            Err(_) => Box::pin(self.wait(handle, site)).await,
        }
    }

    async fn wait(&self, handle: &Handle, site: &'static Location<'static>) -> Result<Writer> {
        let _counted = Counted::new(self, site, handle.shared.runtime.coarse_now());
        let mut entering = pin!(Arc::clone(&self.places).acquire_owned());
        let mut closed = pin!(handle.pool.closed());
        let entered = poll_fn(|cx| {
            if let Poll::Ready(Ok(writer)) = entering.as_mut().poll(cx) {
                return Poll::Ready(Ok(writer));
            }
            let closed = closed.as_mut().poll(cx);
            closed.map(|_| Err(route::closed()))
        });
        let shared = &handle.shared;
        let limit = shared.acquire_timeout;
        let entered = cenote_pool::within(&shared.runtime, limit, entered).await;
        entered.unwrap_or_else(|| {
            let message = format!(
                "timed out after {} waiting for a connection to write with (the database has one writer \
                 at a time, {} connections may write or wait to write, {} tasks wait); see Error::holders",
                rounded(limit.unwrap_or_default()),
                self.most,
                self.waiting()
            );
            Err(Error::new(Kind::Timeout, message).with_holders(handle.pool.holders()))
        })
    }
}

/// Counts a waiter while it exists.
struct Counted<'c> {
    writers: &'c Writers,
    number: u64,
}

impl<'c> Counted<'c> {
    fn new(writers: &'c Writers, site: &'static Location<'static>, now: u64) -> Self {
        let mut queue = writers.queue();
        let number = queue.waited;
        queue.waited += 1;
        queue.waiting.insert(number, (site, now));
        Counted { writers, number }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.writers.queue().waiting.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn most(connections: usize) -> Option<usize> {
        Writers::among(connections).map(|writers| writers.most)
    }

    #[test]
    fn quarter_of_the_connections_is_for_readers_and_at_least_one() {
        assert_eq!(most(1), None);
        assert_eq!(most(2), Some(1));
        assert_eq!(most(4), Some(3));
        assert_eq!(most(10), Some(8));
        assert_eq!(most(100), Some(75));
    }
}
