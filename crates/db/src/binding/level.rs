//! The levels of a transaction: the transaction itself, and its savepoints.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::limits::Watch;
use crate::api::transaction::run_callback;
use crate::binding::contention::Holding;
use crate::coroutine::Frame;
use crate::driver::Begin;
use crate::pooled::shared::Shared;
use crate::sql::{Class, TransactionVerb};
use crate::{Error, Kind};

/// An open transaction or savepoint.
pub(crate) struct Level {
    /// The level's number, which is never reused.
    pub(crate) serial: u64,
    /// The frame that opened the level; `None` on an explicit connection.
    pub(crate) frame: Option<Arc<Frame>>,
    /// The savepoint's name; `None` for the transaction itself.
    pub(crate) savepoint: Option<String>,
    /// Where the level was begun.
    pub(crate) site: &'static Location<'static>,
    /// The level whose guard is borrowed by this level's guard: a call by that guard shows that this one is gone.
    pub(crate) borrows: Option<u64>,
    /// How the level begins, and whether BEGIN was sent.
    pub(crate) begin: Begin,
    pub(crate) begun: bool,
    /// The text of a statement began the level, and only such a text ends it.
    pub(crate) raw: bool,
    /// The call after which the level can only be rolled back.
    pub(crate) doomed_by: Option<Doom>,
    /// The error with which the server aborted the transaction.
    pub(crate) aborted_by: Option<Error>,
    /// The call that has sent the level's end and has no answer yet.
    pub(crate) ending: Option<&'static Location<'static>>,
    /// The connection that the level holds, for the detection of self-deadlocks.
    pub(crate) holding: Option<Holding>,
    /// The watch over the level's limits, which ends with the level.
    pub(crate) watch: Option<Watch>,
    /// When the level began, if its age is limited.
    pub(crate) since: Option<Instant>,
    /// How long the level may idle.
    pub(crate) idle_limit: Option<Duration>,
    /// When the level was last used, if its idle time is limited.
    pub(crate) idle_since: Option<Instant>,
    pub(crate) after_commit: Vec<AfterCommit>,
    /// A call in the level has written.
    pub(crate) wrote: bool,
    /// The last call in the level has failed.
    pub(crate) failed: bool,
}

/// What became of a call in a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastCall {
    Read,
    Wrote,
    Failed,
}

impl LastCall {
    pub(crate) fn of(class: &Class, succeeded: bool) -> Self {
        match (succeeded, class.reads_only) {
            (false, _) => LastCall::Failed,
            (true, true) => LastCall::Read,
            (true, false) => LastCall::Wrote,
        }
    }
}

/// Why a level can only be rolled back.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Doom {
    /// The call at this line was dropped half-way.
    Dropped(&'static Location<'static>),
    /// The `exec_many` at this line failed, perhaps after some of its sets.
    HalfDone(&'static Location<'static>),
}

impl Doom {
    /// Returns the error of every later call.
    pub(super) fn error(self) -> Error {
        let (message, role, site) = match self {
            Doom::Dropped(site) => (
                "a call of this transaction was dropped before the server answered it, so it may or may not \
                 have taken effect: roll the transaction back",
                "dropped at",
                site,
            ),
            Doom::HalfDone(site) => (
                "exec_many failed in this transaction, and some of its sets may have taken effect: \
                 the transaction can only be rolled back; to go on after such an error, put \
                 exec_many into a nested transaction",
                "failed at",
                site,
            ),
        };
        Error::new(Kind::Doomed, message).at(role, site)
    }
}

pub(crate) type AfterCommit = Box<dyn FnOnce() + Send>;

impl Level {
    pub(crate) fn new(frame: Option<Arc<Frame>>, site: &'static Location<'static>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Level {
            // Relaxed: the number only has to be unique.
            serial: NEXT.fetch_add(1, Ordering::Relaxed),
            frame,
            savepoint: None,
            site,
            borrows: None,
            begin: Begin::default(),
            begun: false,
            raw: false,
            doomed_by: None,
            aborted_by: None,
            ending: None,
            holding: None,
            watch: None,
            since: None,
            idle_limit: None,
            idle_since: None,
            after_commit: Vec::new(),
            wrote: false,
            failed: false,
        }
    }
}

impl Level {
    pub(super) fn note(&mut self, last: LastCall) {
        self.failed = last == LastCall::Failed;
        self.wrote |= last == LastCall::Wrote;
    }

    /// Returns whether all is well with the level: its commit would probably succeed.
    pub(super) fn could_commit(&self) -> bool {
        let is_open = self.begun && self.ending.is_none();
        is_open && !self.failed && self.doomed_by.is_none() && self.aborted_by.is_none()
    }

    /// Returns a level that the text of a statement began.
    pub(crate) fn raw(
        shared: &Arc<Shared>,
        frame: Option<Arc<Frame>>,
        site: &'static Location<'static>,
    ) -> Self {
        let mut level = Level::new(frame, site);
        level.begun = true;
        level.raw = true;
        level.limit(shared, None);
        level
    }

    /// Notes that the level holds a connection, for the code in its frame only.
    pub(crate) fn hold(&mut self, shared: &Arc<Shared>) {
        if let Some(frame) = &self.frame {
            self.holding = Some(shared.contention.hold(frame, self.site));
        }
    }

    /// Applies the handle's limits to a level that has begun, and this idle limit if it is shorter.
    pub(crate) fn limit(&mut self, shared: &Arc<Shared>, idle: Option<Duration>) {
        if shared.max_transaction_age.is_some() {
            self.since = Some(shared.runtime.now());
        }
        let limits = [idle, shared.idle_in_transaction];
        self.idle_limit = limits.into_iter().flatten().min();
    }
}

impl fmt::Debug for Level {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Level")
            .field("serial", &self.serial)
            .field("savepoint", &self.savepoint)
            .field("site", &self.site)
            .field("raw", &self.raw)
            .finish_non_exhaustive()
    }
}

/// What the text of a statement did to its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransactionEffect {
    /// The text committed.
    Committed,
    /// The text rolled back.
    RolledBack,
    /// The text began a transaction, or did several of these.
    Other,
}

impl TransactionEffect {
    /// Returns what a text of this class did, given whether it succeeded.
    pub(crate) fn of(class: &Class, succeeded: bool) -> Option<Self> {
        match class.transaction {
            Some(
                TransactionVerb::Savepoint | TransactionVerb::Release | TransactionVerb::RollbackTo,
            ) => None,
            Some(_) if !succeeded => None,
            Some(TransactionVerb::Commit) => Some(TransactionEffect::Committed),
            Some(TransactionVerb::Rollback) => Some(TransactionEffect::RolledBack),
            Some(TransactionVerb::Begin) => Some(TransactionEffect::Other),
            // A script that failed may have run its COMMIT.
            None if class.contains_transaction_control => Some(TransactionEffect::Other),
            None => None,
        }
    }
}

impl Level {
    /// Ends a level that texts have begun and ended. Its callbacks run if the text committed.
    pub(crate) fn end_raw(self, effect: Option<TransactionEffect>) {
        if effect == Some(TransactionEffect::Committed) {
            self.after_commit.into_iter().for_each(run_callback);
        }
    }
}

/// A rollback that has to run before the next call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Undo {
    /// The depth of the level in the stack. The levels above are undone with it.
    pub(crate) depth: usize,
    /// The savepoint to roll back to; `None` is the whole transaction.
    pub(crate) savepoint: Option<String>,
    /// The call that sent the rollback and was dropped before the answer.
    pub(crate) sent: Option<&'static Location<'static>>,
}
