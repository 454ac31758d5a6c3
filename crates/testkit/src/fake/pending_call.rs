//! A call in flight: from its first poll until it is answered or dropped.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use cenote::{Error, Kind, Result};

use super::server::{Action, Held, Server, State, lost};
use super::session::{Line, Traffic};
use super::store::injected_failure;
use super::{Break, DroppedCalls};

/// A request that a client can send to the server.
pub(super) trait Call: Send {
    type Out;

    /// When the contract allows the call.
    const PRECONDITION: Precondition = Precondition::Ordinary;

    /// The line of the call in the log.
    fn line(&self, number: usize) -> String;

    /// Executes the call on the server.
    fn execute(&self, state: &mut State, number: usize) -> Result<Self::Out>;
}

/// When a call may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Precondition {
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
pub(super) async fn send<C: Call>(server: &Arc<Server>, number: usize, call: C) -> Result<C::Out> {
    let mut pending = PendingCall::begin(server, number, call)?;
    poll_fn(|cx| pending.poll_ready(cx)).await;
    pending.end()
}

/// A call that was sent and is not answered. After a drop the connection must be settled.
#[derive(Debug)]
pub(super) struct PendingCall<C: Call> {
    server: Arc<Server>,
    number: usize,
    line: String,
    /// `None` after the call has ended.
    call: Option<C>,
    id: u64,
    pending_polls: usize,
    break_at: Option<Break>,
    fail_with: Option<String>,
    touches_session: bool,
    warnings: u64,
}

impl<C: Call> PendingCall<C> {
    /// Sends a call.
    ///
    /// # Panics
    ///
    /// If the contract does not allow it now.
    pub(super) fn begin(server: &Arc<Server>, number: usize, call: C) -> Result<Self> {
        let line = call.line(number);
        let violation = violation(&server.state(), C::PRECONDITION, number, &line);
        if let Some(violation) = violation {
            server.violated(violation);
        }
        let mut state = server.state();
        let mut pending = PendingCall {
            server: Arc::clone(server),
            number,
            line,
            call: None,
            id: state.next_call(),
            pending_polls: state.knobs.pending,
            break_at: None,
            fail_with: None,
            touches_session: false,
            warnings: 0,
        };
        if C::PRECONDITION != Precondition::Connecting && C::PRECONDITION != Precondition::Closing {
            match state.session(number).line {
                Line::Open => {}
                // The client checks the connection before it sends.
                Line::Killed => return Err(state.break_line(number).never_sent()),
                Line::Broken => return Err(lost(number)),
            }
        }
        let mut is_held = false;
        for action in state.take_orders(&pending.line) {
            match action {
                Action::Hold => is_held = true,
                Action::Break(when) => pending.break_at = Some(when),
                Action::Fail(with) => pending.fail_with = Some(with),
                Action::TouchSession => pending.touches_session = true,
                Action::Warn(warnings) => pending.warnings = warnings,
            }
        }
        if pending.break_at == Some(Break::NeverSent) {
            return Err(cut(&mut state, C::PRECONDITION, number).never_sent());
        }
        state.log.push(pending.line.clone());
        if let Some(session) = state.sessions.get_mut(&number) {
            session.traffic = Traffic::Running(pending.line.clone());
        }
        let mut watchers = Vec::new();
        if is_held {
            state.held.push(Held {
                call: pending.id,
                line: pending.line.clone(),
                waker: None,
            });
            watchers = std::mem::take(&mut state.watchers);
        }
        drop(state);
        watchers.into_iter().for_each(std::task::Waker::wake);
        pending.call = Some(call);
        Ok(pending)
    }

    /// Waits while the call is held, then for the configured number of pending polls.
    pub(super) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.server.state().is_held(self.id, cx.waker()) {
            return Poll::Pending;
        }
        if self.pending_polls > 0 {
            self.pending_polls -= 1;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// Executes the call on the server and returns the answer.
    pub(super) fn end(mut self) -> Result<C::Out> {
        let call = self.call.take().expect("a call ends once");
        let number = self.number;
        let server = Arc::clone(&self.server);
        let mut state = server.state();
        let mut is_cut = self.break_at == Some(Break::BeforeExecution);
        if let Some(session) = state.sessions.get_mut(&number) {
            session.traffic = Traffic::Nothing;
            is_cut |= session.line != Line::Open;
        }
        // A close ends the session even if its answer is lost.
        if is_cut && C::PRECONDITION != Precondition::Closing {
            return Err(cut(&mut state, C::PRECONDITION, number));
        }
        let answer = match self.fail_with.take() {
            Some(state) => Err(injected_failure(&state)),
            None => call.execute(&mut state, number),
        };
        if self.break_at.is_some() {
            return Err(cut(&mut state, C::PRECONDITION, number));
        }
        state.note_failure(number, answer.as_ref().err());
        if let Some(session) = state.sessions.get_mut(&number) {
            if C::PRECONDITION == Precondition::OfStream && answer.is_err() {
                session.stream = None;
            }
            session.said = session.truth();
            session.session_changed = self.touches_session;
            session.warnings = self.warnings;
        }
        answer
    }

    /// Cancels the call; the connection needs no settling.
    pub(super) fn cancel(mut self) {
        self.call = None;
        let mut state = self.server.state();
        state.held.retain(|held| held.call != self.id);
        if let Some(session) = state.sessions.get_mut(&self.number) {
            session.traffic = Traffic::Nothing;
        }
    }
}

impl<C: Call> Drop for PendingCall<C> {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else {
            return;
        };
        let number = self.number;
        let mut state = self.server.state();
        state.held.retain(|held| held.call != self.id);
        if C::PRECONDITION == Precondition::Connecting {
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
fn cut(state: &mut State, precondition: Precondition, number: usize) -> Error {
    if precondition != Precondition::Connecting {
        return state.break_line(number);
    }
    if state.sessions.remove(&number).is_some() {
        state.log.push(format!("drop {number}"));
    }
    let message = format!("connection {number} was lost while it was being opened");
    Error::new(Kind::Connect, message)
}

/// Returns how the call would break the contract, if it would.
fn violation(
    state: &State,
    precondition: Precondition,
    number: usize,
    line: &str,
) -> Option<String> {
    if precondition == Precondition::Connecting {
        return None;
    }
    let Some(session) = state.sessions.get(&number) else {
        return Some(format!("`{line}` after the connection was closed"));
    };
    match &session.traffic {
        Traffic::Running(other) => {
            return Some(format!("`{line}` while `{other}` is still running"));
        }
        Traffic::Dropped(other)
            if !matches!(precondition, Precondition::Settling | Precondition::Closing) =>
        {
            return Some(format!(
                "`{line}` before a settle, though `{other}` was dropped before it was answered"
            ));
        }
        _ => {}
    }
    if session.stream.is_some()
        && matches!(
            precondition,
            Precondition::Ordinary | Precondition::OutsideTransaction
        )
    {
        return Some(format!("`{line}` while a stream is open"));
    }
    if precondition == Precondition::OutsideTransaction && session.transaction.is_some() {
        return Some(format!("`{line}` in a transaction"));
    }
    None
}
