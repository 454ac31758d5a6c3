//! A fake database for tests, and its remote control.
//!
//! ```text
//! Fake (remote control) ──┐
//! FakeDriver ── template ─┼─> Server: log, orders, sessions, store
//! FakeConnection ─ calls ─┘      PendingCall: a call between its first poll and its answer
//! ```
//!
//! 1. The first poll of a call writes its line to the log; it is executed when it is answered, or
//!    when it is dropped if [`DroppedCalls::Executed`] says so.
//! 2. All state is the server's, under one lock; nothing is woken, dropped or awaited under it.
//! 3. A call that the contract does not allow panics, and is remembered.

mod calls;
mod connection;
mod pending_call;
mod rows;
mod server;
mod session;
mod store;
mod text;

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::thread;

use cenote::driver::{Credentials, Value};
use cenote::{Builder, Db};

pub use self::connection::{FakeConnection, FakeDriver};
use self::server::{Action, Order, Server};
use self::session::{Line, Session};

/// A fake database for tests. A test can read the calls that reached it and control its answers.
/// Clones share one database.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> cenote::Result<()> {
/// use cenote_testkit::Fake;
///
/// let fake = Fake::new();
/// let db = fake.builder().open().await?;
/// db.transaction(async || db.exec("INSERT INTO t VALUES (?)", (7,)).await).await?;
/// assert_eq!(fake.rows("t"), [[7.into()]]);
/// assert_eq!(
///     fake.take_log(),
///     ["connect 1", "begin 1", "run 1 INSERT INTO t VALUES (?)", "commit 1"]
/// );
///
/// fake.break_on("commit");
/// let lost = db.transaction(async || db.exec("INSERT INTO t VALUES (8)", ()).await).await;
/// assert_eq!(lost.unwrap_err().kind(), cenote::Kind::OutcomeUnknown);
/// # Ok(()) }
/// ```
///
/// # The log
///
/// Every connection has a number, from 1 on. A line is written when a call is first polled:
///
/// | line | |
/// |---|---|
/// | `connect 1`, `refuse 1` | a connect, and that it was refused |
/// | `run 1 SQL`, `run_batch 1 SQL x3`, `prepare 1 SQL` | |
/// | `stream 1 SQL`, `batch 1`, `end_stream 1` | a stream, each time that rows are asked for, its early end |
/// | `begin 1`, `begin 1 serializable read only with SQL` | |
/// | `commit 1`, `rollback 1` | |
/// | `savepoint 1 set a`, `savepoint 1 release a`, `savepoint 1 rollback a` | |
/// | `settle 1`, `ping 1`, `reset 1`, `set 1 name=value` | |
/// | `close 1`, `drop 1` | the end of a connection: in order, or because it was dropped |
///
/// # Texts
///
/// The fake understands enough SQL to make transactions observable. Keywords are
/// case-insensitive:
///
/// | text | what it does |
/// |---|---|
/// | `INSERT INTO t VALUES (?, 7), ('x', NULL)` | adds rows; a table need not be created |
/// | `SELECT * FROM t`, `SELECT a, b FROM t`, `SELECT COUNT(*) FROM t` | committed rows and the connection's own, in the order of their insertion whatever `ORDER BY` says |
/// | `SELECT ?, 7 AS n` | one row with these values |
/// | `DELETE FROM t` | deletes all rows |
/// | `CREATE TABLE t (id INT PRIMARY KEY, a TEXT NOT NULL)` | names the columns, and from then on keys must be unique and values not NULL; no part of a transaction |
/// | `DROP TABLE t` | |
/// | `BEGIN …`, `COMMIT`, `ROLLBACK`, `SAVEPOINT a`, `ROLLBACK TO a`, `RELEASE a` | what a server would do |
/// | `FAIL 40001` | an error of the database with that SQLSTATE |
/// | anything else | nothing: it succeeds, has no rows, and is in the log |
///
/// The columns of a table without a CREATE TABLE are `c1`, `c2` …; named in a SELECT, the first name is
/// the first value of the row, and so on. Of two transactions that insert the same key, the second to
/// commit fails with 40001.
///
/// # Steering
///
/// A method with a pattern applies once: to the next call whose log line contains the pattern.
///
/// # The contract
///
/// A call that the contract of [`cenote::driver`] does not allow panics: one after a dropped call that
/// was not settled, one while another runs or while a stream is open, one after the close, a reset in a
/// transaction. Because such a panic may be swallowed on its way, dropping the last `Fake` panics,
/// too, if there was one. [`take_violations`](Fake::take_violations) forgets them.
#[derive(Clone)]
pub struct Fake {
    remote: Arc<Remote>,
}

/// Shared by all clones of a `Fake`; its drop is that of the last clone.
struct Remote {
    server: Arc<Server>,
}

impl Drop for Remote {
    fn drop(&mut self) {
        let violations = std::mem::take(&mut self.server.state().violations);
        if !violations.is_empty() && !thread::panicking() {
            panic!("the contract with the driver was broken: {violations:?}");
        }
    }
}

/// When a connection breaks under a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// Before the server has executed the call.
    BeforeExecution,
    /// After the server has executed the call; the answer is lost.
    AfterExecution,
    /// Before the call was sent, as [`Error::never_sent`](cenote::Error::never_sent) reports. The log has no line.
    NeverSent,
}

/// Whether the server executes calls whose futures are dropped before the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DroppedCalls {
    /// The server executes them.
    Executed,
    /// The server does not execute them.
    NotExecuted,
}

impl Fake {
    /// Creates an empty database.
    pub fn new() -> Self {
        Fake {
            remote: Arc::new(Remote {
                server: Arc::default(),
            }),
        }
    }

    fn server(&self) -> &Arc<Server> {
        &self.remote.server
    }

    /// Returns the driver of this database. Its DSNs begin with `fake:`.
    pub fn driver(&self) -> FakeDriver {
        FakeDriver::new(Arc::clone(self.server()))
    }

    /// Returns a builder of a [`Db`] for this database.
    pub fn builder(&self) -> Builder {
        Db::builder_with(self.driver(), "fake:")
    }

    /// Returns the log: a line for each call that reached the server.
    pub fn log(&self) -> Vec<String> {
        self.server().state().log.clone()
    }

    /// Returns the log and clears it.
    pub fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut self.server().state().log)
    }

    /// Returns the committed rows of a table.
    pub fn rows(&self, table: &str) -> Vec<Vec<Value<'static>>> {
        self.server().state().store.committed(table).to_vec()
    }

    /// Returns the numbers of the open connections, broken ones included.
    pub fn connections(&self) -> Vec<usize> {
        self.server().state().sessions.keys().copied().collect()
    }

    /// Returns the numbers of the connections with an open transaction on the server.
    pub fn open_transactions(&self) -> Vec<usize> {
        let state = self.server().state();
        let open = state
            .sessions
            .iter()
            .filter(|(_, session)| session.transaction.is_some());
        open.map(|(number, _)| *number).collect()
    }

    /// Returns the credentials with which a connection was requested.
    pub fn credentials(&self, connection: usize) -> Option<Credentials> {
        let state = self.server().state();
        state.credentials.get(&connection).cloned()
    }

    /// Returns the contract violations so far.
    pub fn violations(&self) -> Vec<String> {
        self.server().state().violations.clone()
    }

    /// Returns the contract violations so far and clears them.
    pub fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut self.server().state().violations)
    }

    fn order(&self, pattern: &str, action: Action) {
        let pattern = pattern.to_owned();
        self.server().state().orders.push(Order { pattern, action });
    }

    /// Holds the next matching call, of any kind, until [`release`](Fake::release).
    pub fn hold(&self, pattern: &str) {
        self.order(pattern, Action::Hold);
    }

    /// Returns the log lines of the held calls.
    pub fn held(&self) -> Vec<String> {
        let state = self.server().state();
        state.held.iter().map(|held| held.line.clone()).collect()
    }

    /// Waits until a call is held, and returns the log line of the first.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing changes.
    pub async fn until_held(&self) -> String {
        poll_fn(|cx| {
            let mut state = self.server().state();
            if let Some(held) = state.held.first() {
                return Poll::Ready(held.line.clone());
            }
            state.watchers.push(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Releases all held calls and returns their number. Later matching calls are still held.
    pub fn release(&self) -> usize {
        let held = std::mem::take(&mut self.server().state().held);
        let released = held.len();
        held.into_iter()
            .filter_map(|held| held.waker)
            .for_each(Waker::wake);
        released
    }

    /// Breaks the connection during the next matching call, before the server executes it.
    pub fn break_on(&self, pattern: &str) {
        self.break_as(pattern, Break::BeforeExecution);
    }

    /// Breaks the connection during the next matching call.
    pub fn break_as(&self, pattern: &str, when: Break) {
        self.order(pattern, Action::Break(when));
    }

    /// Answers the next matching call with a database error and does not execute it. The call may
    /// be of any kind: a begin, a commit, a ping.
    pub fn fail_on(&self, pattern: &str, sql_state: &str) {
        self.order(pattern, Action::Fail(sql_state.to_owned()));
    }

    /// Reports a changed session with the answer of the next matching call.
    pub fn touch_session_on(&self, pattern: &str) {
        self.order(pattern, Action::TouchSession);
    }

    /// Reports warnings with the answer of the next matching call.
    pub fn warn_on(&self, pattern: &str, warnings: u64) {
        self.order(pattern, Action::Warn(warnings));
    }

    /// Rolls back at the next commit, and reports that.
    pub fn commit_answers_rollback(&self) {
        self.server().state().knobs.rollbacks += 1;
    }

    /// Sets whether connections send BEGIN with the first statement. Default: no.
    pub fn lazy_begin(&self, lazily: bool) {
        self.server().state().knobs.lazy_begin = lazily;
    }

    /// Sets whether an error fails the transaction, which can then only roll back, as on PostgreSQL.
    /// Default: no.
    pub fn errors_fail_transactions(&self, they_do: bool) {
        self.server().state().knobs.errors_fail_transactions = they_do;
    }

    /// Ends a connection's transaction on the server, and reports it to the connection.
    ///
    /// # Panics
    ///
    /// If there is no such connection, or it has no transaction.
    #[track_caller]
    pub fn end_transaction_behind(&self, connection: usize) {
        let had_one = self.change(connection, |session| {
            session.said = cenote::driver::Status::Idle;
            session.transaction.take().is_some()
        });
        assert!(had_one, "connection {connection} has no transaction");
    }

    /// Closes a connection on the server, which rolls back its transaction. The client notices at
    /// its next call or check.
    ///
    /// # Panics
    ///
    /// If there is no such connection.
    #[track_caller]
    pub fn kill(&self, connection: usize) {
        self.change(connection, |session| {
            if session.line == Line::Open {
                session.hang_up(Line::Killed);
            }
        });
    }

    #[track_caller]
    fn change<T>(&self, connection: usize, change: impl FnOnce(&mut Session) -> T) -> T {
        let mut state = self.server().state();
        let changed = state.sessions.get_mut(&connection).map(change);
        drop(state);
        changed.unwrap_or_else(|| panic!("there is no connection {connection}"))
    }

    /// Refuses the next connects.
    pub fn refuse_connect(&self, connects: usize) {
        self.server().state().knobs.refusals = connects;
    }

    /// Sets whether a reset fails and demands a new connection. Default: no.
    pub fn reset_replaces(&self, replaces: bool) {
        self.server().state().knobs.reset_replaces = replaces;
    }

    /// Sets how often every call is pending, and wakes itself, before it is answered. Default: 0.
    pub fn poll_pending(&self, times: usize) {
        self.server().state().knobs.pending = times;
    }

    /// Sets whether the server executes calls whose futures are dropped. Default: [`DroppedCalls::NotExecuted`].
    pub fn dropped_calls(&self, are: DroppedCalls) {
        self.server().state().knobs.dropped = are;
    }

    /// Sets the most rows in a batch of a stream. Default: 2.
    ///
    /// # Panics
    ///
    /// With 0: such a stream would never end.
    #[track_caller]
    pub fn batch_rows(&self, rows: usize) {
        assert!(rows > 0, "a batch has at least one row");
        self.server().state().knobs.batch_rows = rows;
    }
}

impl Default for Fake {
    fn default() -> Self {
        Fake::new()
    }
}

impl fmt::Debug for Fake {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Fake").field(self.server()).finish()
    }
}
