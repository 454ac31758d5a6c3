//! The requests that a client can send to the fake server.

use std::sync::Arc;

use cenote::driver::{
    Batch, Begin, Columns, CommitOutcome, Credentials, Isolation, Outcome, Prepared, Reset, Value,
};
use cenote::{Error, Kind, Result};

use super::pending_call::{Call, Precondition};
use super::rows;
use super::server::State;
use super::session::{Done, RowsLeft, Session};
use super::text::{self, Text};

/// A text with its parameters.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) sql: String,
    pub(super) params: Vec<Value<'static>>,
    pub(super) rows: bool,
}

impl Job {
    fn run(&self, state: &mut State, number: usize) -> Result<Done> {
        run(state, number, &text::read(&self.sql), &self.params)
    }
}

fn run(state: &mut State, number: usize, text: &Text, params: &[Value<'static>]) -> Result<Done> {
    let State {
        store, sessions, ..
    } = state;
    let session = sessions.get_mut(&number);
    let session = session.expect("a connection has its session until it is closed");
    session.run(store, text, params)
}

#[derive(Debug)]
pub(super) struct Connect(pub(super) Credentials);

impl Call for Connect {
    type Out = ();
    const PRECONDITION: Precondition = Precondition::Connecting;

    fn line(&self, number: usize) -> String {
        format!("connect {number}")
    }

    fn execute(&self, state: &mut State, number: usize) -> Result<()> {
        state.credentials.insert(number, self.0.clone());
        if state.knobs.refusals > 0 {
            state.knobs.refusals -= 1;
            state.log.push(format!("refuse {number}"));
            let message = format!("connection {number} was refused");
            return Err(Error::new(Kind::Connect, message));
        }
        state.sessions.insert(number, Session::new());
        Ok(())
    }
}

#[derive(Debug)]
pub(super) struct Run(pub(super) Job);

impl Call for Run {
    type Out = Outcome;

    fn line(&self, number: usize) -> String {
        format!("run {number} {}", self.0.sql)
    }

    fn execute(&self, state: &mut State, number: usize) -> Result<Outcome> {
        self.0.run(state, number)?.into_outcome(self.0.rows)
    }
}

#[derive(Debug)]
pub(super) struct RunBatch {
    pub(super) sql: String,
    pub(super) sets: Vec<Vec<Value<'static>>>,
}

impl Call for RunBatch {
    type Out = Outcome;

    fn line(&self, number: usize) -> String {
        format!("run_batch {number} {} x{}", self.sql, self.sets.len())
    }

    fn execute(&self, state: &mut State, number: usize) -> Result<Outcome> {
        // All or nothing, unless a transaction is open.
        let own = state.session(number).transaction.is_none();
        if own {
            state.session(number).begin(false)?;
        }
        let done = self.run_sets(state, number);
        if own {
            match done {
                Ok(_) => drop(Commit.execute(state, number)?),
                Err(_) => RollBack.execute(state, number)?,
            }
        }
        done
    }
}

impl RunBatch {
    fn run_sets(&self, state: &mut State, number: usize) -> Result<Outcome> {
        let text = text::read(&self.sql);
        let mut all = Outcome::default();
        for (n, params) in (0..).zip(&self.sets) {
            let one = run(state, number, &text, params).map_err(|error| error.in_set(n))?;
            all.rows_affected += one.affected;
            all.last_insert_id = one.last_insert_id;
        }
        Ok(all)
    }
}

#[derive(Debug)]
pub(super) struct Prepare(pub(super) String);

impl Call for Prepare {
    type Out = Prepared;

    fn line(&self, number: usize) -> String {
        format!("prepare {number} {}", self.0)
    }

    fn execute(&self, state: &mut State, number: usize) -> Result<Prepared> {
        let text = text::read(&self.0);
        let State {
            store, sessions, ..
        } = state;
        let session = sessions.get(&number);
        let session = session.expect("a connection has its session until it is closed");
        let columns = session.columns_of(store, &text)?;
        Ok(Prepared::new(text.params, columns))
    }
}

#[derive(Debug)]
pub(super) struct StartStream(pub(super) Job);

impl Call for StartStream {
    type Out = Arc<Columns>;

    fn line(&self, number: usize) -> String {
        format!("stream {number} {}", self.0.sql)
    }

    fn execute(&self, state: &mut State, number: usize) -> Result<Arc<Columns>> {
        let done = self.0.run(state, number)?;
        let columns = Arc::clone(&done.columns);
        state.session(number).stream = Some(RowsLeft {
            columns: done.columns,
            rows: done.rows.into(),
        });
        Ok(columns)
    }
}

#[derive(Debug)]
pub(super) struct NextBatch;

impl Call for NextBatch {
    type Out = Option<Batch>;
    const PRECONDITION: Precondition = Precondition::OfStream;

    fn line(&self, number: usize) -> String {
        format!("batch {number}")
    }

    fn execute(&self, state: &mut State, number: usize) -> Result<Option<Batch>> {
        let most = state.knobs.batch_rows;
        let session = state.session(number);
        let Some(left) = &mut session.stream else {
            return Ok(None);
        };
        if left.rows.is_empty() {
            session.stream = None;
            return Ok(None);
        }
        let rows: Vec<_> = left.rows.drain(..most.min(left.rows.len())).collect();
        rows::batch(&left.columns, &rows).map(Some)
    }
}

#[derive(Debug)]
pub(super) struct EndStream;

impl Call for EndStream {
    type Out = ();
    const PRECONDITION: Precondition = Precondition::OfStream;

    fn line(&self, number: usize) -> String {
        format!("end_stream {number}")
    }

    fn execute(&self, state: &mut State, number: usize) -> Result<()> {
        state.session(number).stream = None;
        Ok(())
    }
}

#[derive(Debug)]
pub(super) struct BeginWith {
    pub(super) begin: Begin,
    pub(super) first: Option<Job>,
}

impl Call for BeginWith {
    type Out = Outcome;

    fn line(&self, number: usize) -> String {
        let mut line = format!("begin {number}");
        if let Some(isolation) = self.begin.isolation {
            line.push_str(match isolation {
                Isolation::ReadUncommitted => " read uncommitted",
                Isolation::ReadCommitted => " read committed",
                Isolation::RepeatableRead => " repeatable read",
                Isolation::Serializable => " serializable",
                _ => " with an isolation level that the fake does not know",
            });
        }
        if self.begin.read_only {
            line.push_str(" read only");
        }
        if let Some(first) = &self.first {
            line.push_str(" with ");
            line.push_str(&first.sql);
        }
        line
    }

    fn execute(&self, state: &mut State, number: usize) -> Result<Outcome> {
        state.session(number).begin(self.begin.read_only)?;
        match &self.first {
            None => Ok(Outcome::default()),
            Some(first) => first.run(state, number)?.into_outcome(first.rows),
        }
    }
}

#[derive(Debug)]
pub(super) struct Commit;

impl Call for Commit {
    type Out = CommitOutcome;

    fn line(&self, number: usize) -> String {
        format!("commit {number}")
    }

    fn execute(&self, state: &mut State, number: usize) -> Result<CommitOutcome> {
        if state.knobs.rollbacks > 0 {
            state.knobs.rollbacks -= 1;
            state.session(number).transaction = None;
            return Ok(CommitOutcome::RolledBack);
        }
        let State {
            store, sessions, ..
        } = state;
        let session = sessions.get_mut(&number);
        let session = session.expect("a connection has its session until it is closed");
        Ok(match session.commit(store)? {
            true => CommitOutcome::Committed,
            false => CommitOutcome::RolledBack,
        })
    }
}

#[derive(Debug)]
pub(super) struct RollBack;

impl Call for RollBack {
    type Out = ();

    fn line(&self, number: usize) -> String {
        format!("rollback {number}")
    }

    fn execute(&self, state: &mut State, number: usize) -> Result<()> {
        state.session(number).transaction = None;
        Ok(())
    }
}

#[derive(Debug)]
pub(super) enum AtSavepoint {
    Set(String),
    Release(String),
    RollBack(String),
}

impl Call for AtSavepoint {
    type Out = ();

    fn line(&self, number: usize) -> String {
        match self {
            AtSavepoint::Set(name) => format!("savepoint {number} set {name}"),
            AtSavepoint::Release(name) => format!("savepoint {number} release {name}"),
            AtSavepoint::RollBack(name) => format!("savepoint {number} rollback {name}"),
        }
    }

    fn execute(&self, state: &mut State, number: usize) -> Result<()> {
        let own = state.session(number).open_transaction()?;
        match self {
            AtSavepoint::RollBack(name) => own.roll_back_to(name, false),
            _ if own.has_failed => {
                Err(super::store::refused("25P02", "the transaction has failed"))
            }
            AtSavepoint::Set(name) => {
                own.set_savepoint(name);
                Ok(())
            }
            AtSavepoint::Release(name) => own.release_savepoint(name),
        }
    }
}

#[derive(Debug)]
pub(super) struct Settle;

impl Call for Settle {
    type Out = ();
    const PRECONDITION: Precondition = Precondition::Settling;

    fn line(&self, number: usize) -> String {
        format!("settle {number}")
    }

    fn execute(&self, state: &mut State, number: usize) -> Result<()> {
        state.session(number).stream = None;
        Ok(())
    }
}

#[derive(Debug)]
pub(super) struct Ping;

impl Call for Ping {
    type Out = ();

    fn line(&self, number: usize) -> String {
        format!("ping {number}")
    }

    fn execute(&self, _state: &mut State, _number: usize) -> Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
pub(super) struct ResetSession;

impl Call for ResetSession {
    type Out = Reset;
    const PRECONDITION: Precondition = Precondition::OutsideTransaction;

    fn line(&self, number: usize) -> String {
        format!("reset {number}")
    }

    fn execute(&self, state: &mut State, _number: usize) -> Result<Reset> {
        Ok(match state.knobs.reset_replaces {
            true => Reset::Replace,
            false => Reset::Done,
        })
    }
}

#[derive(Debug)]
pub(super) struct Set {
    pub(super) name: String,
    /// As it stands in the log.
    pub(super) value: String,
}

impl Call for Set {
    type Out = ();

    fn line(&self, number: usize) -> String {
        format!("set {number} {}={}", self.name, self.value)
    }

    fn execute(&self, _state: &mut State, _number: usize) -> Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
pub(super) struct Close;

impl Call for Close {
    type Out = ();
    const PRECONDITION: Precondition = Precondition::Closing;

    fn line(&self, number: usize) -> String {
        format!("close {number}")
    }

    fn execute(&self, state: &mut State, number: usize) -> Result<()> {
        state.sessions.remove(&number);
        Ok(())
    }
}
