//! Closing and draining a pool, and waiting for that.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::core::{Core, PoolState};
use crate::error::{CloseError, DestroyError};
use crate::lease::destroy::Destroying;
use crate::manager::Manager;
use crate::observe::events::DestroyReason;
use crate::pool::Pool;
use crate::runtime::within;
use crate::user_code::{Contained, drop_contained};

impl<M: Manager> Pool<M> {
    /// Returns whether the pool is closed.
    pub fn is_closed(&self) -> bool {
        self.core.state().closed
    }

    /// Waits until the pool is closed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn closed(&self) {
        self.wait_until(|state| state.closed).await;
    }

    async fn wait_until(&self, done: impl Fn(&PoolState<M>) -> bool) {
        let mut close_waiter = CloseWaiter {
            core: &self.core,
            id: None,
        };
        // A cancel here removes the waker.
        poll_fn(|cx| close_waiter.poll(&done, cx)).await;
    }

    /// Closes the pool: waiters fail with [`AcquireError::Closed`](crate::AcquireError::Closed), and the
    /// idle resources are destroyed, oldest first. Leases stay valid; their resources are destroyed when
    /// they are released. Closing again does nothing.
    ///
    /// # Cancel safety
    ///
    /// The first poll closes the pool. Dropping the future after that leaves the remaining destructors to
    /// the runtime.
    ///
    /// # Errors
    ///
    /// Returns the errors of all destructors that failed. All resources are destroyed anyway.
    pub async fn close(&self) -> Result<(), CloseError<M::Error>> {
        let mut errors = Errors::default();
        self.core.close().destroy(&mut errors).await;
        if errors.0.is_empty() {
            return Ok(());
        }
        Err(CloseError {
            errors: errors.take(),
            left: Vec::new(),
            still_in_use: 0,
        })
    }

    /// Closes the pool like [`close`](Pool::close), and waits at most this long until all resources are
    /// destroyed, those that are leased included. It does not wait for a resource that
    /// [`replace_all`](Pool::replace_all) is creating.
    ///
    /// # Cancel safety
    ///
    /// As [`close`](Pool::close).
    ///
    /// # Errors
    ///
    /// Returns the errors of the destructors of idle resources, and the holders that are left after the
    /// time limit. The events and the log report the errors of destructors of leased resources.
    pub async fn close_and_drain(&self, limit: Duration) -> Result<(), CloseError<M::Error>> {
        let closing = self.core.close();
        let mut errors = Errors::default();
        let drain = async {
            closing.destroy(&mut errors).await;
            self.wait_until(|state| state.total() == 0).await;
        };
        let drained = within(&**self.core.runtime, Some(limit), drain).await;
        if drained.is_some() && errors.0.is_empty() {
            return Ok(());
        }
        Err(CloseError {
            errors: errors.take(),
            left: self.holders(),
            still_in_use: self.status().total,
        })
    }
}

impl<M: Manager> Core<M> {
    /// Closes the pool, and returns what has to be destroyed.
    pub(crate) fn close(self: &Arc<Self>) -> Closing<M> {
        let retiring = self.locked(|locked| {
            locked.close();
            std::mem::take(&mut locked.deferred.rare().retiring)
        });
        let destroying = retiring
            .into_iter()
            .map(|(index, reason)| Destroying::new(self, index, reason))
            .collect();
        self.discard_spare(DestroyReason::Closed, |_| true);
        Closing {
            core: Arc::clone(self),
            destroying,
            running: Vec::new(),
        }
    }
}

/// A task that waits for the pool to be closed or drained.
struct CloseWaiter<'a, M: Manager> {
    core: &'a Core<M>,
    id: Option<u64>,
}

impl<M: Manager> CloseWaiter<'_, M> {
    fn poll(&mut self, done: impl Fn(&PoolState<M>) -> bool, cx: &mut Context<'_>) -> Poll<()> {
        // Cloned before the lock, and the old one dropped after it: both run the executor's code.
        let mut waker = Contained::new(Some(cx.waker().clone()));
        let mut state = self.core.state();
        if done(&state) {
            return Poll::Ready(());
        }
        let id = *self.id.get_or_insert_with(|| {
            state.next_close_waiter += 1;
            state.next_close_waiter
        });
        let mut close_waiters = state.close_waiters.iter_mut();
        match close_waiters.find(|(other, _)| *other == id) {
            Some((_, old)) => {
                if let Some(new) = &mut *waker {
                    std::mem::swap(old, new);
                }
            }
            None => state
                .close_waiters
                .extend(waker.take().map(|waker| (id, waker))),
        }
        drop(state);
        Poll::Pending
    }
}

impl<M: Manager> Drop for CloseWaiter<'_, M> {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let mut state = self.core.state();
        let at = state
            .close_waiters
            .iter()
            .position(|(other, _)| *other == id);
        let waker = at.map(|at| state.close_waiters.swap_remove(at));
        drop(state);
        drop_contained(waker);
    }
}

/// The resources that a closed pool has to destroy, oldest first. Dropping it leaves the rest to the
/// runtime.
pub(crate) struct Closing<M: Manager> {
    core: Arc<Core<M>>,
    destroying: VecDeque<Destroying<M>>,
    /// Destructors under way.
    running: Vec<DestroyFuture<M>>,
}

/// The errors of destructors. If nobody receives them, each is dropped on its own: a second panic in the
/// drop of a list would abort the process.
struct Errors<M: Manager>(Vec<DestroyError<M::Error>>);

impl<M: Manager> Errors<M> {
    fn take(&mut self) -> Vec<DestroyError<M::Error>> {
        std::mem::take(&mut self.0)
    }
}

impl<M: Manager> Default for Errors<M> {
    fn default() -> Self {
        Errors(Vec::new())
    }
}

impl<M: Manager> Drop for Errors<M> {
    fn drop(&mut self) {
        self.take().into_iter().for_each(drop_contained);
    }
}

type DestroyFuture<M> =
    Pin<Box<dyn Future<Output = Result<(), DestroyError<<M as Manager>::Error>>> + Send>>;

impl<M: Manager> Closing<M> {
    /// Runs all destructors side by side, begun in order, so that the cleanup timeout passes once.
    async fn destroy(mut self, errors: &mut Errors<M>) {
        // A cancel here drops `self`, which leaves the rest to the runtime.
        poll_fn(|cx| self.poll(errors, cx)).await;
    }

    fn poll(&mut self, errors: &mut Errors<M>, cx: &mut Context<'_>) -> Poll<()> {
        let begun = self.destroying.drain(..);
        self.running
            .extend(begun.map(|next| Box::pin(next.destroy()) as _));
        self.running.retain_mut(|end| match end.as_mut().poll(cx) {
            Poll::Ready(result) => {
                errors.0.extend(result.err());
                false
            }
            Poll::Pending => true,
        });
        match self.running.is_empty() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

impl<M: Manager> Drop for Closing<M> {
    fn drop(&mut self) {
        for end in self.running.drain(..) {
            self.core.spawn(Box::pin(async move {
                // The guard inside reports the error.
                drop_contained(end.await);
            }));
        }
        for destroying in self.destroying.drain(..) {
            destroying.destroy_in_background();
        }
    }
}
