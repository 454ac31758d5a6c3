//! The thread of a connection, and what runs on the calling task instead.
//!
//! Everything that runs passes through [`Worker::call`] or [`Worker::send`]; or, if it is known
//! to be short, through [`Worker::here`], on the session at home.

use std::time::Instant;

use super::control::Control;
use super::session::Session;
use super::watchdog::Watchdog;
use crate::{Result, worker};

/// This side of a connection's thread.
pub(super) type Worker = worker::Worker<Session>;

impl worker::Session for Session {
    type Control = Control;

    const THREAD: &'static str = "cenote-sqlite";

    fn tidy(&mut self) {
        Session::tidy(self);
        self.heed_schema();
    }

    fn close(self) -> Result<()> {
        Session::close(self)
    }
}

impl worker::Control for Control {
    fn begin(&self, call: u64) -> bool {
        Control::begin(self, call)
    }

    fn end(&self) {
        Control::end(self);
    }

    fn cancel(&self, call: u64) {
        Control::cancel(self, call);
    }
}

impl Worker {
    /// Runs a program right here; until then, if it can be repeated. Also says whether it was given
    /// up. `None` if the session is not here or nothing may run in place.
    pub(super) fn here<T>(
        &mut self,
        until: Option<Instant>,
        program: impl FnOnce(&Session) -> T,
    ) -> Option<(T, bool)> {
        let watchdog = self.watchdog()?;
        let (call, session) = self.call_here()?;
        session.control.begin_in_place(call, until);
        // Now, when there is something to see: before, it might fall asleep again.
        watchdog.attend();
        let running = InPlace { session };
        let done = program(session);
        let given_up = running.end();
        session.tidy();
        Some((done, given_up))
    }

    /// Who looks after what runs in place. None if nothing may, or the session is not here.
    pub(super) fn watchdog(&self) -> Option<&'static Watchdog> {
        self.session()?.watchdog
    }
}

/// A program that runs in place. Dropped before its end, by a panic, nobody can tell what state the
/// session is in.
struct InPlace<'s> {
    session: &'s Session,
}

impl InPlace<'_> {
    /// Whether it was given up.
    fn end(self) -> bool {
        let given_up = self.session.control.end_in_place();
        std::mem::forget(self);
        given_up
    }
}

impl Drop for InPlace<'_> {
    fn drop(&mut self) {
        self.session.control.end_in_place();
        self.session.broken.set(true);
    }
}
