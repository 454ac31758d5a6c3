//! Group commit: a session that has the permit to write runs the waiting writes of others in one transaction.
//!
//! A batch gives the same results as some order of single writes, or it is rolled back and each write runs
//! alone. A write may be in a batch if ([`Session::may_batch`], [`StatementTiming::can_batch`])
//!
//! - the call is not pinned: nothing that the caller does next depends on this connection;
//! - all sessions of its [kind](SessionKind) would do the same: no settings, temporary tables or functions of their own;
//! - its statement takes the write lock, and has run alone and quickly before.
//!
//! While a batch runs, the session's own call cannot be cancelled. Each statement has a time limit instead.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use super::cancel::RunLimit;
use super::error;
use super::session::Session;
use super::statement::OwnedRequest;
use super::timing::{self, SOON, StatementTiming, Stopwatch};
use super::transaction::BEGIN_WRITING;
use super::write_queue::{SessionKind, WritePermit};
use crate::driver::{Outcome, Request};
use crate::{Error, Result};

/// The most writes in one batch.
const MOST: usize = 64;

/// The most writes in one batch if a commit does not wait for the disk: other tasks prepare their next writes
/// while a small batch runs.
const MOST_WITHOUT_DISK: usize = 3;

/// A commit that is no slower does not wait for the disk.
const WITHOUT_DISK: Duration = Duration::from_micros(100);

/// The session looks this often for more writes before it passes the permit on.
const IDLE_LOOKS: u32 = 8;

/// The session writes for others for at most this long before it passes the permit on.
const SERVING: Duration = Duration::from_millis(8);

/// How a batch ended.
enum BatchOutcome {
    Committed(Vec<Result<Outcome>>),
    /// The disk failed, so the contents of the file are unknown. All writes of the batch get this error.
    Unknown(Error),
    /// Nothing has happened: each write has to run alone.
    RolledBack,
}

/// What a session knows of writing for others.
pub(super) struct GroupCommit {
    kind: SessionKind,
    /// Whether no constraint is deferred, and the version of the schema for which that was read.
    checks_at_once: Cell<Option<(i64, bool)>>,
    /// The last batch's commit waited for the disk.
    waits_for_disk: Cell<bool>,
}

impl GroupCommit {
    pub(super) fn new(kind: SessionKind) -> Self {
        GroupCommit {
            kind,
            checks_at_once: Cell::new(None),
            waits_for_disk: Cell::new(true),
        }
    }

    pub(super) fn kind(&self) -> SessionKind {
        self.kind
    }
}

impl Session {
    /// Returns whether any session of this kind may run the request, in a batch.
    pub(super) fn may_batch(&self, request: &Request<'_>) -> bool {
        request.unpinned
            && request.cache
            && !request.script
            && !self.has_functions()
            && self.is_alike()
            && !self.in_transaction()
            && self
                .timing
                .of(request.sql)
                .is_some_and(StatementTiming::can_batch)
    }

    /// Runs a request with the permit, and for a while the requests of waiters.
    pub(super) fn run_with_permit(
        &self,
        permit: WritePermit,
        request: &Arc<OwnedRequest>,
    ) -> Result<Outcome> {
        self.writing.set_permit(permit);
        let watch = Stopwatch::start(true);
        let batched = match self.can_write_for_others() {
            true => self.run_batch_of_writes(Some(request)),
            false => None,
        };
        let own = batched.unwrap_or_else(|| self.run(request));
        let mut idle = 0;
        while watch.took() < SERVING && idle < IDLE_LOOKS {
            if !self.can_write_for_others() {
                // The callers that were just served may come back with more.
                idle += 1;
                std::thread::yield_now();
                continue;
            }
            idle = 0;
            if self.run_batch_of_writes(None).is_some() {
                break;
            }
        }
        own
    }

    /// Returns whether the oldest waiter is one to write for.
    fn can_write_for_others(&self) -> bool {
        let can_batch = |permit: &WritePermit| permit.can_batch(self.group_commit.kind);
        self.writing.with_permit(can_batch) == Some(true)
            && self.is_alike()
            && !self.in_transaction()
    }

    /// Runs a batch: the waiters' requests, after the session's own if there is one. Returns the answer of the
    /// own request, or the error that ended the batch; `None` if nothing has happened.
    fn run_batch_of_writes(&self, own: Option<&Arc<OwnedRequest>>) -> Option<Result<Outcome>> {
        match self.often(BEGIN_WRITING) {
            Ok(()) => {}
            // The session has waited for another process as long as it may.
            Err(error) if error::is_busy(&error) => return Some(Err(error)),
            Err(_) => return None,
        }
        let most = match self.group_commit.waits_for_disk.get() {
            true => MOST,
            false => MOST_WITHOUT_DISK,
        };
        // Only now: until BEGIN has succeeded, waiters can leave.
        let take_batch = |permit: &WritePermit| permit.take_batch(self.group_commit.kind, most);
        let Some(mut others) = self.writing.with_permit(take_batch) else {
            self.undo();
            return None;
        };
        let own_first = own.map(Arc::as_ref).into_iter();
        let requests: Vec<&OwnedRequest> = own_first.chain(others.requests()).collect();
        self.control.suspend();
        let outcome = self.write_all(&requests);
        self.control.set_limit(None);
        if !matches!(outcome, BatchOutcome::Committed(_)) {
            self.undo();
        }
        self.control.resume();
        match outcome {
            BatchOutcome::Committed(done) => {
                let mut done = done.into_iter();
                let own = own.and_then(|_| done.next());
                done.for_each(|done| others.answer_next(done));
                own
            }
            BatchOutcome::Unknown(error) => {
                for _ in 0..others.requests().count() {
                    others.answer_next(Err(error.clone()));
                }
                Some(Err(error))
            }
            // Dropped, the batch puts its waiters back.
            BatchOutcome::RolledBack => None,
        }
    }

    fn write_all(&self, requests: &[&OwnedRequest]) -> BatchOutcome {
        if !self.checks_at_once() {
            return BatchOutcome::RolledBack;
        }
        let mut done = Vec::with_capacity(requests.len());
        for request in requests {
            let limit = RunLimit::until(timing::now() + SOON);
            self.control.set_limit(Some(limit));
            let one = self.run(request);
            // A statement that violates a constraint has undone itself. After any other error the state is
            // uncertain; and `ON CONFLICT ROLLBACK` ends the whole transaction.
            let is_settled = one.as_ref().err().is_none_or(error::is_constraint);
            if !is_settled || !self.in_transaction() {
                return BatchOutcome::RolledBack;
            }
            done.push(one);
        }
        // The disk may take any time.
        self.control.set_limit(None);
        let watch = Stopwatch::start(true);
        let committed = self.often("COMMIT");
        let waits_for_disk = watch.took() > WITHOUT_DISK;
        self.group_commit.waits_for_disk.set(waits_for_disk);
        match committed {
            Ok(()) => BatchOutcome::Committed(done),
            Err(error) if error::is_of_the_disk(&error) => BatchOutcome::Unknown(error),
            Err(_) => BatchOutcome::RolledBack,
        }
    }

    /// Rolls the transaction back.
    pub(super) fn undo(&self) {
        if self.in_transaction() && self.often("ROLLBACK").is_err() {
            self.set_broken();
        }
    }

    /// Returns whether SQLite checks every statement when it ends. A deferred foreign key could be
    /// satisfied by another caller's statement in the same batch.
    fn checks_at_once(&self) -> bool {
        let Some(version) = self.schema_version() else {
            return false;
        };
        if let Some((of, checks_at_once)) = self.group_commit.checks_at_once.get()
            && of == version
        {
            return checks_at_once;
        }
        let deferred = "SELECT 1 FROM sqlite_schema WHERE instr(lower(sql), 'deferred') LIMIT 1";
        let prepared = self.db.prepare(deferred);
        let found = prepared.and_then(|mut search| search.exists([]));
        let checks_at_once = found.is_ok_and(|found| !found);
        let known = Some((version, checks_at_once));
        self.group_commit.checks_at_once.set(known);
        checks_at_once
    }
}
