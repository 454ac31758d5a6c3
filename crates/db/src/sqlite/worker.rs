//! The thread of a connection, and what runs on the calling task instead.
//!
//! Everything that runs passes through [`Worker::call`] or [`Worker::send`]; or, if it is known
//! to be short, through [`Worker::here`], on the session at home.

use super::cancel::{Control, Limit};
use super::session::Session;
use crate::Result;
use crate::driver::worker;

/// This side of a connection's thread.
pub(super) type Worker = worker::Worker<Session>;

impl worker::Session for Session {
    type Control = Control;

    const THREAD: &'static str = "cenote-sqlite";

    fn tidy(&mut self) {
        Session::tidy(self);
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
    /// Runs a program inline; within a limit, if it can be repeated. Also says whether it was given up.
    /// `None` if the session is lent.
    pub(super) fn here<T>(
        &mut self,
        limit: Option<Limit>,
        program: impl FnOnce(&Session) -> T,
    ) -> Option<(T, bool)> {
        let (call, session) = self.call_here()?;
        session.control.begin_in_place(call, limit);
        let running = InPlace { session };
        let done = program(session);
        let given_up = running.end();
        session.tidy();
        Some((done, given_up))
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
        self.session.set_broken();
    }
}
