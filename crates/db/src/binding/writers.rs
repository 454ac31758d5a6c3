//! Limits the connections that writers may take, for databases with one writer at a time.
//!
//! A call that waits to write would keep its connection from readers. So some connections are reserved for readers, and
//! further writers queue here, in the order of arrival, before they take a connection.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::call::route;
use crate::error::rounded;
use crate::pooled::handle::Handle;
use crate::{Error, Kind, Result};

#[derive(Debug)]
pub(crate) struct Writers {
    places: Arc<Semaphore>,
    most: usize,
    waiting: AtomicUsize,
    /// How many have waited so far.
    waited: AtomicU64,
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
            waiting: AtomicUsize::new(0),
            waited: AtomicU64::new(0),
        })
    }

    /// Returns how many calls wait.
    pub(crate) fn waiting(&self) -> usize {
        // Relaxed: a figure to look at.
        self.waiting.load(Ordering::Relaxed)
    }

    /// Returns how many calls have waited so far.
    pub(crate) fn waited(&self) -> u64 {
        // Relaxed: a figure to look at.
        self.waited.load(Ordering::Relaxed)
    }

    /// Waits for the right to write, at most as long as for a connection.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the call leaves the queue, or the right goes to the next waiter.
    pub(crate) async fn enter(&self, handle: &Handle) -> Result<Writer> {
        match Arc::clone(&self.places).try_acquire_owned() {
            Ok(writer) => Ok(writer),
            // This future is part of many calls' futures: the rare branch is boxed.
            Err(_) => Box::pin(self.wait(handle)).await,
        }
    }

    async fn wait(&self, handle: &Handle) -> Result<Writer> {
        let _counted = Counted::new(&self.waiting);
        // Relaxed: a figure to look at.
        self.waited.fetch_add(1, Ordering::Relaxed);
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
struct Counted<'c>(&'c AtomicUsize);

impl<'c> Counted<'c> {
    fn new(count: &'c AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Counted(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
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
