//! Reads in the pool's queue, which join a lane as soon as one has room.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use super::{Domain, Join, Lanes, Member, Read, Waiting};
use crate::pooled::handle::Handle;

/// A read in the pool's queue.
struct Queued<'l> {
    lanes: &'l Lanes,
    ticket: u64,
    domain: Domain,
    /// It waits to be woken. If it does not any more, it was woken.
    is_registered: bool,
}

impl Lanes {
    /// Waits in the pool's queue, and leaves it when a lane has room. With the answer of the queue, returns whether the read may
    /// still share.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it has neither a place in the queue nor in a lane, and passes the room that it was woken for on.
    pub(crate) async fn join_or<A>(
        &self,
        handle: &Handle,
        read: &Read<'_>,
        acquiring: impl Future<Output = A> + Send,
    ) -> Result<Member, (A, bool)> {
        let mut queued = Some(self.queue());
        // Dropped first: a waiter of the pool that is not counted here would close a lane.
        let mut acquiring = pin!(acquiring);
        poll_fn(|cx| {
            if let Poll::Ready(acquired) = acquiring.as_mut().poll(cx) {
                return Poll::Ready(Err((acquired, queued.is_some())));
            }
            match queued.as_mut().map(|it| it.join(handle, read, cx)) {
                Some(Join::Member(member)) => return Poll::Ready(Ok(member)),
                // From now on it waits for a connection of its own.
                Some(Join::Refused) => queued = None,
                Some(Join::Full) | None => {}
            }
            self.release_empty();
            Poll::Pending
        })
        .await
    }

    /// Counts a read that waits in the pool's queue.
    fn queue(&self) -> Queued<'_> {
        let domain = self.runtime.domain();
        let mut all = self.all();
        self.queued.fetch_add(1, Ordering::SeqCst);
        all.next += 1;
        match all.queued.iter_mut().find(|(of, _)| *of == domain) {
            Some((_, count)) => *count += 1,
            None => all.queued.push((domain, 1)),
        }
        Queued {
            lanes: self,
            ticket: all.next,
            domain,
            is_registered: false,
        }
    }
}

impl Queued<'_> {
    /// Joins a lane if it is this read's turn, and otherwise has it woken when it is.
    fn join(&mut self, handle: &Handle, read: &Read<'_>, cx: &Context<'_>) -> Join {
        let mut waker = Some(cx.waker().clone());
        loop {
            let mut all = self.lanes.all();
            let position = all.position(self.ticket);
            let was_woken = self.is_registered && position.is_err();
            let has_room = all.with_room(self.domain).is_some();
            if has_room && (was_woken || !all.is_waiting(self.domain)) {
                drop(all);
                match self.lanes.join_in_turn(handle, read) {
                    Join::Full => continue,
                    joined => return joined,
                }
            }
            self.is_registered = true;
            let Some(waker) = waker.take() else {
                return Join::Full;
            };
            let old = match position {
                Ok(at) => Some(std::mem::replace(&mut all.waiting[at].waker, waker)),
                // It keeps its place among those that wait.
                Err(at) => {
                    let (ticket, domain) = (self.ticket, self.domain);
                    all.waiting.insert(
                        at,
                        Waiting {
                            ticket,
                            domain,
                            waker,
                        },
                    );
                    None
                }
            };
            drop(all);
            drop(old);
            return Join::Full;
        }
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        let mut all = self.lanes.all();
        self.lanes.queued.fetch_sub(1, Ordering::SeqCst);
        if let Some(at) = all.queued.iter().position(|(of, _)| *of == self.domain) {
            all.queued[at].1 -= 1;
            if all.queued[at].1 == 0 {
                all.queued.swap_remove(at);
            }
        }
        let gone = all
            .position(self.ticket)
            .ok()
            .and_then(|at| all.waiting.remove(at));
        drop(all);
        // It was woken, and the room may be the next one's.
        if self.is_registered && gone.is_none() {
            self.lanes.wake_waiting(self.domain, 1);
        }
    }
}
