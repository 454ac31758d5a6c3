//! A call in flight: from its first poll until it is answered or dropped.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use cenote::{Error, Kind, Result};

use super::server::{Deed, Held, Server, State, lost};
use super::session::{Line, Traffic};
use super::store::told_to_fail;
use super::{Break, DroppedCalls};

/// A request that a client can send to the server.
pub(super) trait Call: Send {
    type Out;

    /// When the contract allows the call.
    const MANNERS: Manners = Manners::Ordinary;

    /// The line of the call in the log.
    fn line(&self, number: usize) -> String;

    /// Executes the call on the server.
    fn execute(&self, state: &mut State, number: usize) -> Result<Self::Out>;
}

/// When a call may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manners {
    /// When all earlier calls are answered, settled or read to their end.
    Ordinary,
    /// As `Ordinary`, and only outside of a transaction.
    OutsideTransaction,
    /// While a stream has unread rows.
    OfStream,
    /// After a call was dropped.
    Settling,
    /// Before the connection exists.
    Connecting,
    /// Always.
    Closing,
}

/// Sends a call and waits for its answer.
pub(super) async fn fly<C: Call>(server: &Arc<Server>, number: usize, call: C) -> Result<C::Out> {
    let mut flight = Flight::depart(server, number, call)?;
    poll_fn(|cx| flight.poll_ready(cx)).await;
    flight.land()
}

/// A call that was sent and is not answered. After a drop the connection must be settled.
#[derive(Debug)]
pub(super) struct Flight<C: Call> {
    server: Arc<Server>,
    number: usize,
    line: String,
    /// `None` after the call has ended.
    call: Option<C>,
    id: u64,
    pending: usize,
    break_at: Option<Break>,
    fail_with: Option<String>,
    touches_session: bool,
    warnings: u64,
}

impl<C: Call> Flight<C> {
    /// Sends a call.
    ///
    /// # Panics
    ///
    /// If the contract does not allow it now.
    pub(super) fn depart(server: &Arc<Server>, number: usize, call: C) -> Result<Self> {
        let line = call.line(number);
        let violation = violation(&server.state(), C::MANNERS, number, &line);
        if let Some(violation) = violation {
            server.violated(violation);
        }
        let mut state = server.state();
        let mut flight = Flight {
            server: Arc::clone(server),
            number,
            line,
            call: None,
            id: state.next_call(),
            pending: state.knobs.pending,
            break_at: None,
            fail_with: None,
            touches_session: false,
            warnings: 0,
        };
        if C::MANNERS != Manners::Connecting && C::MANNERS != Manners::Closing {
            match state.session(number).line {
                Line::Open => {}
                // The client checks the connection before it sends.
                Line::Killed => return Err(state.break_line(number).never_sent()),
                Line::Broken => return Err(lost(number)),
            }
        }
        let mut is_held = false;
        for deed in state.take_orders(&flight.line) {
            match deed {
                Deed::Hold => is_held = true,
                Deed::Break(when) => flight.break_at = Some(when),
                Deed::Fail(with) => flight.fail_with = Some(with),
                Deed::TouchSession => flight.touches_session = true,
                Deed::Warn(warnings) => flight.warnings = warnings,
            }
        }
        if flight.break_at == Some(Break::NeverSent) {
            return Err(cut(&mut state, C::MANNERS, number).never_sent());
        }
        state.log.push(flight.line.clone());
        if let Some(session) = state.sessions.get_mut(&number) {
            session.traffic = Traffic::Running(flight.line.clone());
        }
        let mut watchers = Vec::new();
        if is_held {
            state.held.push(Held {
                call: flight.id,
                line: flight.line.clone(),
                waker: None,
            });
            watchers = std::mem::take(&mut state.watchers);
        }
        drop(state);
        watchers.into_iter().for_each(std::task::Waker::wake);
        flight.call = Some(call);
        Ok(flight)
    }

    /// Waits while the call is held, then for the configured number of pending polls.
    pub(super) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.server.state().is_held(self.id, cx.waker()) {
            return Poll::Pending;
        }
        if self.pending > 0 {
            self.pending -= 1;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// Executes the call on the server and returns the answer.
    pub(super) fn land(mut self) -> Result<C::Out> {
        let call = self.call.take().expect("a call lands once");
        let number = self.number;
        let server = Arc::clone(&self.server);
        let mut state = server.state();
        let mut is_cut = self.break_at == Some(Break::BeforeExecution);
        if let Some(session) = state.sessions.get_mut(&number) {
            session.traffic = Traffic::Nothing;
            is_cut |= session.line != Line::Open;
        }
        // A close ends the session even if its answer is lost.
        if is_cut && C::MANNERS != Manners::Closing {
            return Err(cut(&mut state, C::MANNERS, number));
        }
        let answer = match self.fail_with.take() {
            Some(state) => Err(told_to_fail(&state)),
            None => call.execute(&mut state, number),
        };
        if self.break_at.is_some() {
            return Err(cut(&mut state, C::MANNERS, number));
        }
        state.note_failure(number, answer.as_ref().err());
        if let Some(session) = state.sessions.get_mut(&number) {
            if C::MANNERS == Manners::OfStream && answer.is_err() {
                session.stream = None;
            }
            session.said = session.truth();
            session.session_changed = self.touches_session;
            session.warnings = self.warnings;
        }
        answer
    }

    /// Cancels the call; the connection needs no settling.
    pub(super) fn call_off(mut self) {
        self.call = None;
        let mut state = self.server.state();
        state.held.retain(|held| held.call != self.id);
        if let Some(session) = state.sessions.get_mut(&self.number) {
            session.traffic = Traffic::Nothing;
        }
    }
}

impl<C: Call> Drop for Flight<C> {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else {
            return;
        };
        let number = self.number;
        let mut state = self.server.state();
        state.held.retain(|held| held.call != self.id);
        if C::MANNERS == Manners::Connecting {
            // Nothing was opened.
            state.log.push(format!("drop {number}"));
            return;
        }
        let is_open = state.session(number).line == Line::Open;
        if is_open && state.knobs.dropped == DroppedCalls::Executed {
            // The client never learns the result.
            let answer = call.execute(&mut state, number);
            state.note_failure(number, answer.as_ref().err());
        }
        if let Some(session) = state.sessions.get_mut(&number) {
            session.traffic = Traffic::Dropped(std::mem::take(&mut self.line));
        }
    }
}

/// Breaks the connection during a call.
fn cut(state: &mut State, manners: Manners, number: usize) -> Error {
    if manners != Manners::Connecting {
        return state.break_line(number);
    }
    if state.sessions.remove(&number).is_some() {
        state.log.push(format!("drop {number}"));
    }
    let message = format!("connection {number} was lost while it was being opened");
    Error::new(Kind::Connect, message)
}

/// Returns how the call would break the contract, if it would.
fn violation(state: &State, manners: Manners, number: usize, line: &str) -> Option<String> {
    if manners == Manners::Connecting {
        return None;
    }
    let Some(session) = state.sessions.get(&number) else {
        return Some(format!("`{line}` after the connection was closed"));
    };
    match &session.traffic {
        Traffic::Running(other) => {
            return Some(format!("`{line}` while `{other}` is still running"));
        }
        Traffic::Dropped(other) if !matches!(manners, Manners::Settling | Manners::Closing) => {
            return Some(format!(
                "`{line}` before a settle, though `{other}` was dropped before it was answered"
            ));
        }
        _ => {}
    }
    if session.stream.is_some()
        && matches!(manners, Manners::Ordinary | Manners::OutsideTransaction)
    {
        return Some(format!("`{line}` while a stream is open"));
    }
    if manners == Manners::OutsideTransaction && session.transaction.is_some() {
        return Some(format!("`{line}` in a transaction"));
    }
    None
}
