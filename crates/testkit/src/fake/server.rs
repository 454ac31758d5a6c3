//! The fake server: its connections, its log and the test's orders.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use cenote::driver::Credentials;
use cenote::{Error, Kind};

use super::session::{Line, Session};
use super::store::Store;
use super::{Break, DroppedCalls};

/// The state that all connections and the remote control share.
#[derive(Default)]
pub(super) struct Server {
    state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) store: Store,
    pub(super) log: Vec<String>,
    pub(super) sessions: BTreeMap<usize, Session>,
    /// The credentials of each connect, refused ones included.
    pub(super) credentials: BTreeMap<usize, Credentials>,
    pub(super) orders: Vec<Order>,
    pub(super) held: Vec<Held>,
    /// The wakers of tests that wait for a held call.
    pub(super) watchers: Vec<Waker>,
    pub(super) knobs: Knobs,
    pub(super) violations: Vec<String>,
    connections: usize,
    calls: u64,
}

/// The settings that apply until they are changed.
#[derive(Clone, Debug)]
pub(super) struct Knobs {
    pub(super) lazy_begin: bool,
    pub(super) reset_replaces: bool,
    pub(super) errors_fail_transactions: bool,
    /// The number of pending polls of each call.
    pub(super) pending: usize,
    pub(super) batch_rows: usize,
    pub(super) dropped: DroppedCalls,
    /// How many connects to refuse.
    pub(super) refusals: usize,
    /// How many commits to answer with a rollback.
    pub(super) rollbacks: usize,
}

impl Default for Knobs {
    fn default() -> Self {
        Knobs {
            lazy_begin: false,
            reset_replaces: false,
            errors_fail_transactions: false,
            pending: 0,
            batch_rows: 2,
            dropped: DroppedCalls::NotExecuted,
            refusals: 0,
            rollbacks: 0,
        }
    }
}

/// An order of the test for the next call whose log line contains the pattern.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) pattern: String,
    pub(super) action: Action,
}

#[derive(Clone, Debug)]
pub(super) enum Action {
    Hold,
    Break(Break),
    Fail(String),
    TouchSession,
    Warn(u64),
}

/// A call that is being held.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) call: u64,
    pub(super) line: String,
    /// None until it has been polled.
    pub(super) waker: Option<Waker>,
}

impl Server {
    /// # Panics
    ///
    /// Never: a poisoned lock is used as it is, since the test has already failed.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Panics because the test broke the contract, and records the violation in case a caller
    /// catches the panic.
    pub(super) fn violated(&self, message: String) -> ! {
        self.state().violations.push(message.clone());
        panic!("the contract with the driver was broken: {message}");
    }
}

impl State {
    /// Returns the number of a new connection.
    pub(super) fn next_connection(&mut self) -> usize {
        self.connections += 1;
        self.connections
    }

    /// Returns a unique id for a call.
    pub(super) fn next_call(&mut self) -> u64 {
        self.calls += 1;
        self.calls
    }

    /// Takes the orders that match this log line: the first of each kind.
    pub(super) fn take_orders(&mut self, line: &str) -> Vec<Action> {
        let mut taken: Vec<Action> = Vec::new();
        self.orders.retain(|order| {
            let kind = std::mem::discriminant(&order.action);
            let is_new = taken
                .iter()
                .all(|action| std::mem::discriminant(action) != kind);
            let is_meant = is_new && line.contains(&order.pattern);
            if is_meant {
                taken.push(order.action.clone());
            }
            !is_meant
        });
        taken
    }

    /// Returns a connection that must exist.
    pub(super) fn session(&mut self, number: usize) -> &mut Session {
        let session = self.sessions.get_mut(&number);
        session.expect("a connection has its session until it is closed")
    }

    /// The client notices that the connection is closed.
    pub(super) fn break_line(&mut self, number: usize) -> Error {
        if let Some(session) = self.sessions.get_mut(&number) {
            session.hang_up(Line::Broken);
        }
        lost(number)
    }

    /// Fails the transaction after a database error, if the fake is set to do so.
    pub(super) fn note_failure(&mut self, number: usize, error: Option<&Error>) {
        let has_failed = error.is_some_and(|error| error.kind() == Kind::Database);
        if self.knobs.errors_fail_transactions
            && let Some(session) = self.sessions.get_mut(&number)
            && let Some(own) = &mut session.transaction
        {
            own.has_failed |= has_failed;
        }
    }

    /// Whether the call is still held; stores the waker for its release.
    pub(super) fn is_held(&mut self, call: u64, waker: &Waker) -> bool {
        let held = self.held.iter_mut().find(|held| held.call == call);
        held.map(|held| held.waker = Some(waker.clone())).is_some()
    }
}

pub(super) fn lost(number: usize) -> Error {
    let message = format!("connection {number} was lost");
    Error::new(Kind::ConnectionLost, message)
}

impl fmt::Debug for Server {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        out.debug_struct("Server")
            .field("connections", &state.sessions.keys())
            .field("log", &state.log)
            .finish_non_exhaustive()
    }
}
