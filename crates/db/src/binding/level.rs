//! The levels of a transaction: the transaction itself, and its savepoints.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::limits::Watch;
use crate::Error;
use crate::api::transaction::run_callback;
use crate::binding::contention::Holding;
use crate::coroutine::Frame;
use crate::driver::Begin;
use crate::pooled::shared::Shared;
use crate::sql::{Class, TransactionVerb};

/// An open transaction or savepoint.
pub(crate) struct Level {
    /// Its number; never given out again.
    pub(crate) serial: u64,
    /// The frame it is open in; none for an explicit connection.
    pub(crate) frame: Option<Arc<Frame>>,
    /// The savepoint's name; none for the transaction itself.
    pub(crate) savepoint: Option<String>,
    /// Where it was begun.
    pub(crate) site: &'static Location<'static>,
    /// The level whose guard its own guard borrows: while that is used, nobody has its own.
    pub(crate) borrows: Option<u64>,
    /// How it begins, and whether that has been sent.
    pub(crate) begin: Begin,
    pub(crate) begun: bool,
    /// Begun by the text of a statement, so only such a text ends it.
    pub(crate) raw: bool,
    /// A call in it that was dropped half-way.
    pub(crate) doomed_by: Option<&'static Location<'static>>,
    /// The error with which the server has aborted it.
    pub(crate) aborted_by: Option<Error>,
    /// Its end has been sent, from there, and not been answered.
    pub(crate) ending: Option<&'static Location<'static>>,
    /// Tells of the place in the pool that it holds.
    pub(crate) holding: Option<Holding>,
    /// Ends the watch over its limits with it.
    pub(crate) watch: Option<Watch>,
    /// When it began, if its age is limited.
    pub(crate) since: Option<Instant>,
    /// How long it may idle.
    pub(crate) idle_limit: Option<Duration>,
    /// When it was last used, if idling is limited.
    pub(crate) idle_since: Option<Instant>,
    pub(crate) after_commit: Vec<AfterCommit>,
}

pub(crate) type AfterCommit = Box<dyn FnOnce() + Send>;

impl Level {
    pub(crate) fn new(frame: Option<Arc<Frame>>, site: &'static Location<'static>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Level {
            // Relaxed: it only has to be unique.
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
        }
    }
}

impl Level {
    /// One that the text of a statement began.
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

    /// From now on it holds a place in the pool, for the code in its frame and nobody else.
    pub(crate) fn hold(&mut self, shared: &Arc<Shared>) {
        if let Some(frame) = &self.frame {
            self.holding = Some(shared.contention.hold(frame, self.site));
        }
    }

    /// It has begun: the limits of the handle hold, and this one for idling if it is shorter.
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

/// What the text of a statement did to the transaction it was run in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// It committed.
    Committed,
    /// It rolled back.
    RolledBack,
    /// It began a transaction, or did several of these.
    Other,
}

impl Control {
    /// What a text of this class did, if it succeeded or not.
    pub(crate) fn of(class: &Class, succeeded: bool) -> Option<Self> {
        match class.transaction {
            Some(
                TransactionVerb::Savepoint | TransactionVerb::Release | TransactionVerb::RollbackTo,
            ) => None,
            Some(_) if !succeeded => None,
            Some(TransactionVerb::Commit) => Some(Control::Committed),
            Some(TransactionVerb::Rollback) => Some(Control::RolledBack),
            Some(TransactionVerb::Begin) => Some(Control::Other),
            // A script that failed may have got as far as its COMMIT.
            None if class.contains_transaction_control => Some(Control::Other),
            None => None,
        }
    }
}

impl Level {
    /// It was begun by a text, and a text has ended it: its callbacks run if that was a commit.
    pub(crate) fn end_raw(self, control: Option<Control>) {
        if control == Some(Control::Committed) {
            self.after_commit.into_iter().for_each(run_callback);
        }
    }
}

/// What is to be undone before the next call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Undo {
    /// At which depth of the stack it was. Whatever was above it is undone with it.
    pub(crate) depth: usize,
    /// Back to this savepoint; the whole transaction if none.
    pub(crate) savepoint: Option<String>,
    /// It was sent by the call that was made there, and nobody saw the answer.
    pub(crate) sent: Option<&'static Location<'static>>,
}
