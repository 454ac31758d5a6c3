//! The thread of a connection, and inline runs on the calling task.
//!
//! Every program goes to the thread by [`Worker::call`] or [`Worker::send`], or runs inline by [`Worker::here`]
//! if it is known to be short.

use super::cancel::{Control, RunLimit};
use super::session::Session;
use crate::Result;
use crate::driver::worker;

/// The handle of a connection's thread.
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
    /// Runs a program inline: within a limit, if it can be repeated. Also returns whether the run was given up.
    /// `None` if the session is with the thread.
    pub(super) fn here<T>(
        &mut self,
        limit: Option<RunLimit>,
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

/// A program that runs inline. If a panic drops it before its end, the session's state is unknown, and the session
/// is marked as broken.
struct InPlace<'s> {
    session: &'s Session,
}

impl InPlace<'_> {
    /// Ends the run. Returns whether it was given up.
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
