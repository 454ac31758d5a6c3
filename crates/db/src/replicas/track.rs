//! Takes the position of every write of a coroutine.

use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::position::LogPosition;
use super::primary::Primary;
use crate::call::op::{Commits, Op};
use crate::coroutine::{Frame, call_context};
use crate::driver::{BoxFuture, Status};
use crate::pooled::connection::PooledConnection;
use crate::pooled::shared::{DbId, TimeLimit};
use crate::{Error, Kind, Result};

/// How long a call that is answered waits for the position behind it.
const POSITION_PATIENCE: Duration = Duration::from_millis(500);

/// What the connections to the primary share.
#[derive(Debug)]
pub(crate) struct Tracker {
    db: DbId,
    primary: Mutex<Primary>,
    /// The least time between two samples of the primary's position.
    spacing: Duration,
}

impl Tracker {
    pub(crate) fn new(db: DbId, max_lag: Option<Duration>) -> Arc<Self> {
        // So fine that lag is known to a tenth of its limit, and so coarse that the samples last for longer than the limit.
        let spacing = max_lag.map_or(Duration::from_secs(1), |most| most / 10);
        Arc::new(Tracker {
            db,
            primary: Mutex::default(),
            spacing: spacing.max(Duration::from_millis(10)),
        })
    }

    pub(crate) fn db(&self) -> DbId {
        self.db
    }

    pub(super) fn primary(&self) -> MutexGuard<'_, Primary> {
        // Nothing that can panic runs under this lock.
        self.primary.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, position: LogPosition, now: Instant) {
        self.primary().note(position, now, self.spacing);
    }
}

/// A write of a coroutine. Dropped before its end is known, its position is unknown.
struct Write {
    db: DbId,
    /// The coroutine, and those that wait for it, each with what [`Own::begin`](super::Own::begin) has returned.
    noted: SmallVec<[(Arc<Frame>, u64); 1]>,
}

impl Write {
    /// Begins a write of these coroutines.
    fn begin<'f>(db: DbId, frames: impl Iterator<Item = &'f Arc<Frame>>) -> Self {
        let noted = frames
            .flat_map(Frame::with_surrounding)
            .map(|frame| {
                let begun = frame.with_own(db, |own| own.begin());
                (frame, begun)
            })
            .collect();
        Write { db, noted }
    }

    /// Nothing was committed.
    fn cancel(mut self) {
        self.noted.clear();
    }

    fn reach(mut self, position: LogPosition, covers_earlier: bool) {
        for (frame, begun) in self.noted.drain(..) {
            frame.with_own(self.db, |own| own.reach(begun, position, covers_earlier));
        }
    }
}

/// A stream that writes, from its start to its end, which a drop is, too: it commits at its end.
#[derive(Debug)]
pub(crate) struct OpenWrite {
    db: DbId,
    frames: SmallVec<[Arc<Frame>; 1]>,
}

impl OpenWrite {
    fn new(mut write: Write) -> Self {
        let db = write.db;
        let frames = write.noted.drain(..).map(|(frame, _)| frame).collect();
        let open = OpenWrite { db, frames };
        for frame in &open.frames {
            frame.with_own(db, |own| own.open());
        }
        open
    }
}

impl Drop for OpenWrite {
    fn drop(&mut self) {
        for frame in &self.frames {
            frame.with_own(self.db, |own| own.close());
        }
    }
}

impl Drop for Write {
    fn drop(&mut self) {
        for (frame, _) in self.noted.drain(..) {
            frame.with_own(self.db, |own| own.lose());
        }
    }
}

impl PooledConnection {
    /// Sends a request to the primary, and notes the position at its end for the coroutine if the request may commit something.
    ///
    /// The limit is that of the request. The position may be late: then it is unknown.
    ///
    /// # Cancel safety
    ///
    /// As [`send`](PooledConnection::send). If the request may commit, the position is unknown.
    #[cold]
    pub(crate) fn send_tracked<'c, O: Op>(
        &'c mut self,
        op: &'c O,
        tracker: Arc<Tracker>,
        site: &'static Location<'static>,
        limit: Option<TimeLimit>,
    ) -> BoxFuture<'c, Result<O::Out>> {
        Box::pin(async move {
            let runtime = Arc::clone(self.runtime());
            let commits = op.commits(self.dialect());
            let context = call_context();
            // A guard may be committed by another coroutine than the one that has written.
            let frames = context.frame().into_iter().chain(op.writer());
            let write = match commits {
                Commits::Nothing => None,
                Commits::Remains if self.driver().rolls_back_all() => None,
                _ => Some(Write::begin(tracker.db, frames)),
            };
            let Some(write) = write.filter(|write| !write.noted.is_empty()) else {
                return self.send_plain_within(op, site, &runtime, limit).await;
            };
            let is_idle = self.status() == Status::Idle;
            let is_expected =
                commits == Commits::Transaction || (commits == Commits::Statement && is_idle);
            if is_expected {
                self.driver().expect_position();
            }
            // A cancel from here on drops `write`.
            let answer = self.send_plain_within(op, site, &runtime, limit).await;
            if O::STREAMS && answer.is_ok() && self.status() == Status::Idle {
                self.set_open_write(OpenWrite::new(write));
                return answer;
            }
            let written = self.what_was_written(commits, is_idle, answer.as_ref().err());
            let asks = matches!(written, Written::Perhaps);
            let mut position = None;
            if asks || (is_expected && !self.is_broken() && !self.has_call()) {
                position = self.end_position(asks, POSITION_PATIENCE).await;
            }
            match (written, position) {
                (Written::Nothing, _) => write.cancel(),
                (Written::Perhaps, Some(position)) => {
                    tracker.note(position, self.now());
                    write.reach(position, self.driver().covers_earlier());
                }
                // Dropped.
                (Written::Perhaps | Written::Unknown, _) => {}
            }
            answer
        })
    }

    /// Returns what a request has written that began outside of a transaction or inside of one.
    fn what_was_written(
        &mut self,
        commits: Commits,
        began_idle: bool,
        error: Option<&Error>,
    ) -> Written {
        if self.is_broken() {
            return match error {
                Some(error) if error.was_never_sent() => Written::Nothing,
                _ => Written::Unknown,
            };
        }
        if error.is_some_and(|error| error.kind() == Kind::OutcomeUnknown) {
            return Written::Unknown;
        }
        // Behind its commit, a procedure or the server's settings may have begun another transaction.
        let has_committed = began_idle || commits == Commits::Transaction && error.is_none();
        match self.status() {
            Status::Idle => Written::Perhaps,
            Status::InTransaction | Status::Failed
                if commits != Commits::Anything && !has_committed =>
            {
                Written::Nothing
            }
            // A text may have begun another transaction behind one, too; a stream has not ended.
            _ => Written::Unknown,
        }
    }
}

/// What has become of a request that may commit.
enum Written {
    Nothing,
    /// Perhaps something, and not after this call.
    Perhaps,
    Unknown,
}
