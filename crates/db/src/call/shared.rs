//! A read that may share a connection with reads of other tasks: see [`lane`](crate::lane).

use std::sync::Arc;
use std::time::Duration;

use cenote_pool::{AcquireOptions, within};
use tracing::level_filters::LevelFilter;

use super::op::{CanShare, Op, Run};
use super::route::{self, Route};
use super::{Call, Hold, Text, trace};
use crate::binding::Lease;
use crate::driver::{BoxFuture, Outcome, SharedAnswer};
use crate::lane::{Join, Lanes, Member, Read, Sharing};
use crate::pooled::handle::Handle;
use crate::pooled::manager::ConnectionManager;
use crate::sql::{Class, Statements};
use crate::{Error, Kind, Result};

type Acquired<'p> = std::result::Result<
    cenote_pool::Lease<'p, ConnectionManager>,
    cenote_pool::AcquireError<Error>,
>;

/// Where a read runs.
enum Place {
    /// Together with others.
    Shared(Member),
    /// On this connection, alone.
    Alone(Lease),
}

impl Call<'_> {
    /// Returns the lanes of the handle, if a text of this class may run in one.
    #[inline]
    pub(super) fn lanes<'h>(&self, handle: &'h Handle, class: &Class) -> Option<&'h Arc<Lanes>> {
        let lanes = handle.lanes.as_ref()?;
        let is_read = class.pure_read && class.statements == Statements::One;
        // It may have to run again elsewhere.
        (is_read && self.may_move() && self.keeps_statements()).then_some(lanes)
    }

    /// Runs a read in a lane if none is idle, and otherwise alone.
    ///
    /// # Cancel safety
    ///
    /// As [`run`](Call::run).
    pub(super) fn run_shared<'f>(
        &'f self,
        handle: &'f Handle,
        lanes: &'f Arc<Lanes>,
        text: &'f Text<'_>,
        rows: bool,
    ) -> BoxFuture<'f, Result<Outcome>> {
        Box::pin(async move {
            let mut request = text.request(self, rows);
            request.unpinned = true;
            let read = Read {
                request,
                text: lanes.text(text.scan.sql()),
                site: self.site,
            };
            let place = match lanes.is_short(read.text) {
                true => self.place(handle, lanes, &read).await?,
                false => Place::Alone(self.acquire_alone(handle).await?),
            };
            match place {
                Place::Alone(lease) => self.run_alone(lanes, lease, text, rows).await,
                Place::Shared(member) => self.run_in_lane(handle, member, text, rows).await,
            }
        })
    }

    async fn acquire_alone(&self, handle: &Handle) -> Result<Lease> {
        let inside = self.context.frame();
        route::acquire(handle, inside, route::Purpose::Other, self.site).await
    }

    /// Returns where a read runs: on an idle connection, in a lane, or on the connection that the pool's queue gives it.
    async fn place(&self, handle: &Handle, lanes: &Arc<Lanes>, read: &Read<'_>) -> Result<Place> {
        let options = AcquireOptions::new().call_site(self.site);
        let idle = match lanes.are_enough() {
            true => None,
            false => handle.pool.try_acquire_idle_with(options),
        };
        if let Some(lease) = idle {
            let lease = prepared(handle, cenote_pool::Lease::into_owned(lease));
            return match lanes.are_loaded() {
                true => self.share(handle, lanes, lease, read).await,
                false => Ok(Place::Alone(lease)),
            };
        }
        match lanes.join(handle, read) {
            Join::Member(member) => return Ok(Place::Shared(member)),
            Join::Refused => return Ok(Place::Alone(self.acquire_alone(handle).await?)),
            Join::Full => {}
        }
        let acquiring = handle.pool.acquire_with(options);
        let queued = self.place_from_queue(handle, lanes, read, acquiring);
        trace::acquire(&handle.shared, self.site, queued).await
    }

    /// Waits in the pool's queue, and leaves it when a lane has room.
    async fn place_from_queue<'p>(
        &self,
        handle: &'p Handle,
        lanes: &Arc<Lanes>,
        read: &Read<'_>,
        acquiring: impl Future<Output = Acquired<'p>> + Send,
    ) -> Result<Place> {
        let (acquired, may_share) = match lanes.join_or(handle, read, acquiring).await {
            Ok(member) => return Ok(Place::Shared(member)),
            Err(acquired) => acquired,
        };
        let lease = acquired.map_err(|error| route::from_pool(error, Some(&handle.pool)))?;
        let lease = prepared(handle, cenote_pool::Lease::into_owned(lease));
        match may_share && lanes.has_queue() {
            true => self.share(handle, lanes, lease, read).await,
            false => Ok(Place::Alone(lease)),
        }
    }

    /// Opens a lane with this connection, if it can be shared.
    async fn share(
        &self,
        handle: &Handle,
        lanes: &Arc<Lanes>,
        mut lease: Lease,
        read: &Read<'_>,
    ) -> Result<Place> {
        if lanes.is_question_due() {
            let (runtime, limit) = (&*handle.shared.runtime, self.time_limit());
            let began = runtime.now();
            let asked = lease.send_within(&CanShare, read.site, runtime, limit);
            match asked.await {
                Ok(can_share) => {
                    let took = runtime.now().saturating_duration_since(began);
                    lanes.set_sharing(can_share, took);
                }
                // The time of the call is over.
                Err(late) if late.kind() == Kind::StatementTimeout => return Err(late),
                // The read itself meets the error.
                Err(_) => return Ok(Place::Alone(lease)),
            }
        }
        // The round trip may be shorter than was known, and the text longer.
        let is_short = lanes.is_short(read.text);
        if !is_short || lanes.sharing() != Sharing::Possible || !lease.is_clean() {
            return Ok(Place::Alone(lease));
        }
        Ok(match lanes.open(lease, read) {
            Ok(member) => Place::Shared(member),
            Err(lease) => Place::Alone(lease),
        })
    }

    /// Runs a read with a connection for itself.
    async fn run_alone(
        &self,
        lanes: &Lanes,
        lease: Lease,
        text: &Text<'_>,
        rows: bool,
    ) -> Result<Outcome> {
        let mut op = Run(text.request(self, rows), Some(&text.scan));
        op.set_unpinned(true);
        let mut route = Route::unpinned(lease, self.owner().cloned());
        let measured = lanes.measure(lanes.text(text.scan.sql()));
        let answer = route.send(&op, text.class(), self).await;
        measured.end(&answer);
        let sent = self.repeat_if_lost(Hold::Call, text.class(), &mut op, route, answer);
        let (route, answer) = sent.await?;
        route
            .finish(text.class(), self.shared(), self.site, answer)
            .await
    }

    /// Waits for the answer in a lane. A read that leaves the lane runs again.
    async fn run_in_lane(
        &self,
        handle: &Handle,
        member: Member,
        text: &Text<'_>,
        rows: bool,
    ) -> Result<Outcome> {
        let answer = self.answer_in_lane(handle, member, text);
        match within(&*handle.shared.runtime, self.limit(), answer).await {
            None => return Err(self.exceeded()),
            Some(SharedAnswer::Again) => {}
            Some(SharedAnswer::Answered(answer)) => {
                if let Err(error) = &answer {
                    // A loss is reported, and not repeated: the read may be what has broken the connection.
                    self.may_repeat(text.class(), error, Duration::MAX);
                }
                return answer;
            }
        }
        let mut op = Run(text.request(self, rows), Some(&text.scan));
        let (route, answer) = self.send_once(Hold::Call, text.class(), &mut op).await?;
        route
            .finish(text.class(), self.shared(), self.site, answer)
            .await
    }

    /// Waits for the answer in a lane; the statement log and the histograms show it as any other.
    async fn answer_in_lane(
        &self,
        handle: &Handle,
        member: Member,
        text: &Text<'_>,
    ) -> SharedAnswer {
        let (log, sql) = (&handle.pool.manager().log, text.sql());
        let measuring = log.measure(sql, self.site, member.timings_shard());
        let mut is_again = false;
        let answer = async {
            match member.await {
                SharedAnswer::Answered(answer) => answer,
                SharedAnswer::Again => {
                    is_again = true;
                    Err(moved())
                }
            }
        };
        let answer = match LevelFilter::current() >= log.watches_from() {
            false => answer.await,
            true => {
                log.watch_answer::<Run<'_>>(sql, self.site, Box::pin(answer))
                    .await
            }
        };
        if is_again {
            measuring.discard();
            return SharedAnswer::Again;
        }
        measuring.end::<Run<'_>>(&answer);
        SharedAnswer::Answered(answer)
    }

    fn limit(&self) -> Option<Duration> {
        self.time_limit().map(|limit| limit.time)
    }

    #[cold]
    fn exceeded(&self) -> Error {
        let limit = self.time_limit();
        limit.map_or_else(moved, |limit| limit.exceeded())
    }
}

/// The error in the log of a read that has to run again.
#[cold]
fn moved() -> Error {
    let message = "the read waited too long on a shared connection, and runs again";
    Error::new(Kind::Timeout, message)
}

/// Prepares a connection for its use.
fn prepared(handle: &Handle, mut lease: Lease) -> Lease {
    handle.check_idle_if_due(&mut lease);
    if !lease.is_numbered() {
        let number = Lease::id(&lease);
        lease.set_number(number);
    }
    lease
}
