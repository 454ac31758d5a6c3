//! Runs a read on a replica, if one has replayed enough.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant};

use cenote_pool::{AcquireError, AcquireOptions, within};

use super::op::ReadAt;
use super::position::LogPosition;
use super::{Needed, Reason, Replica, Replicas};
use crate::binding::Lease;
use crate::call::op::{Op, Run};
use crate::call::{Call, Target, Text};
use crate::driver::{Outcome, Request};
use crate::pooled::handle::Handle;
use crate::sql::{CachedScan, Class, Statements};
use crate::{Error, Kind, Result};

/// The pauses between two questions to a replica that has not replayed enough.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(8);

impl Replicas {
    /// Leaves a read to the primary.
    fn leave<T>(&self, reason: Reason) -> Option<T> {
        self.left.add(reason);
        None
    }

    /// Returns the position that a read of this call needs of a replica: the beginning if its coroutine has written nothing. Or why
    /// only the primary can answer: what is needed is unknown, in another history than that of the primary, or ahead of it.
    fn wanted(&self, needed: Needed) -> Result<LogPosition, Reason> {
        let Some(newest) = self.tracker.primary().newest() else {
            return Err(Reason::NoReplica);
        };
        match needed {
            Needed::Primary => Err(Reason::UnknownPosition),
            Needed::Nothing => Ok(newest.history.beginning()),
            Needed::Position(own) => {
                let is_of_primary = own.history == newest.history;
                if is_of_primary && own.lsn > newest.lsn {
                    // A token of another program, perhaps: the primary says next time whether it is that far.
                    self.wake.notify_one();
                }
                match is_of_primary && own.lsn <= newest.lsn {
                    true => Ok(own),
                    false => Err(Reason::UnknownPosition),
                }
            }
        }
    }
}

impl Call<'_> {
    fn handle_with_replicas(&self) -> Option<(&Arc<Handle>, &Arc<Replicas>)> {
        let (Target::Ambient(handle) | Target::Outside(handle)) = &self.target else {
            return None;
        };
        let replicas = handle.replicas.as_ref()?;
        (!replicas.is_closed()).then_some((handle, replicas))
    }

    /// Returns the replicas, and what a read of this call needs of one; `None` if the call belongs to the primary.
    pub(super) fn replicas(&self) -> Option<(&Arc<Replicas>, LogPosition)> {
        let (handle, replicas) = self.handle_with_replicas()?;
        replicas.begin();
        // What is pinned is on the primary: a transaction, a changed session.
        if self.lookup().is_some() || self.lazy_around().is_some() {
            return None;
        }
        self.check_in_transaction().ok()?;
        let frame = self.context.frame();
        let own = frame.map(|frame| frame.own(handle.shared.id));
        match replicas.wanted(own.unwrap_or_default().needed()) {
            Ok(wanted) => Some((replicas, wanted)),
            Err(reason) => replicas.leave(reason),
        }
    }

    /// Runs a read on a replica. `None` if the primary has to answer it.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the replica's pool settles the connection.
    pub(crate) async fn read_on_replica(
        &self,
        text: &Text<'_>,
        rows: bool,
    ) -> Option<Result<Outcome>> {
        let class = text.class();
        if !class.pure_read || class.statements != Statements::One {
            return None;
        }
        let (replicas, wanted) = self.replicas()?;
        let read = (text.request(self, rows), &*text.scan);
        let mut search = Search::new(self, replicas, wanted);
        loop {
            let (replica, mut lease) = match search.next().await {
                Ok(found) => found,
                Err(reason) => return replicas.leave(reason),
            };
            match search.ask(replica, &mut lease, Some(read)).await {
                Asked::Read(Ok(outcome)) => {
                    replica.reads.fetch_add(1, Ordering::Relaxed);
                    return Some(Ok(outcome));
                }
                // The primary's answer counts: what a replica lacks, does not allow or does too slowly is not the program's fault.
                Asked::Read(Err(error)) => {
                    tracing::debug!(%error, "a read failed on a replica and runs on the primary");
                    return replicas.leave(Reason::Failed);
                }
                Asked::Behind => {}
                Asked::Failed => return replicas.leave(Reason::Failed),
            }
        }
    }

    /// Takes a connection to a replica that has replayed enough, for a stream or a transaction. `None` if the primary has to
    /// serve it.
    ///
    /// # Cancel safety
    ///
    /// Dropped, no connection is taken.
    pub(crate) async fn lease_of_replica(&self, class: &Class) -> Option<(Arc<Handle>, Lease)> {
        if !class.pure_read {
            return None;
        }
        let (replicas, wanted) = self.replicas()?;
        let mut search = Search::new(self, replicas, wanted);
        loop {
            let (replica, mut lease) = match search.next().await {
                Ok(found) => found,
                Err(reason) => return replicas.leave(reason),
            };
            match search.ask(replica, &mut lease, None).await {
                Asked::Read(_) => {
                    replica.reads.fetch_add(1, Ordering::Relaxed);
                    return Some((Arc::clone(&replica.handle), lease));
                }
                Asked::Behind => {}
                Asked::Failed => return replicas.leave(Reason::Failed),
            }
        }
    }
}

/// What has come of a request to a replica.
enum Asked {
    /// It has replayed enough, and this has come of the read. An empty outcome without one.
    Read(Result<Outcome>),
    /// It has not replayed enough yet.
    Behind,
    /// It cannot be used.
    Failed,
}

/// The search for a replica that has replayed enough, until the time for it is over.
struct Search<'s> {
    call: &'s Call<'s>,
    replicas: &'s Replicas,
    wanted: LogPosition,
    until: Option<Instant>,
    /// `None` before the first question.
    pause: Option<Duration>,
}

impl<'s> Search<'s> {
    fn new(call: &'s Call<'s>, replicas: &'s Replicas, wanted: LogPosition) -> Self {
        let until = call.shared().runtime.now().checked_add(replicas.wait);
        Search {
            call,
            replicas,
            wanted,
            until,
            pause: None,
        }
    }

    /// Returns a connection to the next replica to ask, after a pause if one was asked before, or why there is none: the time is over,
    /// or no replica is usable.
    ///
    /// # Cancel safety
    ///
    /// Dropped, no connection is taken.
    async fn next(&mut self) -> Result<(&'s Replica, Lease), Reason> {
        let runtime = &self.call.shared().runtime;
        if let Some(pause) = self.pause {
            let now = runtime.now();
            let then = now.checked_add(pause).ok_or(Reason::Behind)?;
            if self.until.is_some_and(|until| then > until) {
                return Err(Reason::Behind);
            }
            runtime.sleep(then).await;
        }
        let replicas: &'s Replicas = self.replicas;
        let replica = replicas.choose(self.wanted.lsn).ok_or(Reason::NoReplica)?;
        let left = self
            .until
            .map(|until| until.saturating_duration_since(runtime.now()));
        let options = AcquireOptions::new().call_site(self.call.site);
        let acquiring = replica.handle.pool.acquire_with(options);
        match within(runtime, left, acquiring).await {
            Some(Ok(mut lease)) => {
                replica.handle.check_idle_if_due(&mut lease);
                if !lease.is_numbered() {
                    let number = cenote_pool::Lease::id(&lease);
                    lease.set_number(number);
                }
                Ok((replica, cenote_pool::Lease::into_owned(lease)))
            }
            // All are in use, or opening one takes long: that says nothing about the replica.
            None | Some(Err(AcquireError::Timeout(_) | AcquireError::QueueFull { .. })) => {
                Err(Reason::Busy)
            }
            Some(Err(error)) => {
                tracing::debug!(%error, "a replica has no connection for a read");
                replica.fail();
                Err(Reason::Failed)
            }
        }
    }

    /// Asks a replica whether it has replayed enough, and runs the read behind that if the replica is known to have. Otherwise the
    /// read follows alone: a long one that ran in vain would hold up the answer, and the limit for the wait with it.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the connection has an unanswered call, which the pool settles.
    async fn ask(
        &mut self,
        replica: &'s Replica,
        lease: &mut Lease,
        read: Option<(Request<'_>, &CachedScan)>,
    ) -> Asked {
        let is_far = replica.replayed.load(Ordering::Relaxed) >= self.wanted.lsn;
        let with_read = read.filter(|_| is_far);
        let verify = lease.replays != Some(self.wanted.history);
        let op = ReadAt {
            wanted: Some(self.wanted),
            verify,
            read: with_read,
        };
        let (answer, done) = match self.send(replica, lease, &op).await {
            Ok(answered) => answered,
            Err(Some(late)) if late.kind() == Kind::StatementTimeout => {
                return Asked::Read(Err(late));
            }
            Err(error) => {
                tracing::debug!(?error, "a replica does not answer before a read");
                replica.fail();
                return Asked::Failed;
            }
        };
        replica.note_replayed(&answer);
        if verify || answer.history.is_some() {
            lease.replays = answer.history;
        }
        if !answer.is_standby || lease.replays != Some(self.wanted.history) {
            // It was promoted, or follows another primary.
            tracing::debug!(?answer, wanted = ?self.wanted, "a replica is none of this primary");
            replica.fail();
            return Asked::Failed;
        }
        if !answer.has_reached {
            self.pause = Some(match self.pause {
                None => FIRST_PAUSE,
                Some(pause) => (pause * 2).min(LONGEST_PAUSE),
            });
            return Asked::Behind;
        }
        match (read, done) {
            (None, _) => Asked::Read(Ok(Outcome::default())),
            (Some(_), Some(done)) => Asked::Read(done),
            // What it has replayed stays replayed.
            (Some((request, scan)), None) => {
                let run = Run(request, Some(scan));
                match self.send(replica, lease, &run).await {
                    Ok(outcome) => Asked::Read(Ok(outcome)),
                    Err(Some(error)) => Asked::Read(Err(error)),
                    Err(None) => Asked::Failed,
                }
            }
        }
    }

    /// Sends a request. `Err(None)` if the replica hangs: then the request is given up.
    ///
    /// # Cancel safety
    ///
    /// As [`ask`](Search::ask).
    async fn send<O: Op>(
        &self,
        replica: &Replica,
        lease: &mut Lease,
        op: &O,
    ) -> Result<O::Out, Option<Error>> {
        let runtime = &self.call.shared().runtime;
        let mut gone = pin!(replica.gone.notified());
        let limit = self.call.time_limit();
        let mut sending = pin!(lease.send_within(op, self.call.site, runtime, limit));
        poll_fn(|cx| {
            if let Poll::Ready(answer) = sending.as_mut().poll(cx) {
                return Poll::Ready(answer.map_err(Some));
            }
            gone.as_mut().poll(cx).map(|()| Err(None))
        })
        .await
    }
}
