//! A connection of the driver under test, with the operations that the checks use.

use std::borrow::Cow;
use std::future::{Future, poll_fn};
use std::ops::RangeInclusive;

use cenote::driver::{
    Batch, Begin, CommitOutcome, Connection, Outcome, Param, Request, Savepoint, Status, Value,
};
use cenote::{Error, Result};

use super::{Lack, Subject};
use crate::poll::drop_after;

/// The most polls of a call before it is dropped.
const MOST_POLLS: usize = 40;

/// A connection, with the operations that the checks use. They panic on an unexpected error.
pub(super) struct Client<'s> {
    pub(super) subject: &'s Subject,
    pub(super) connection: Box<dyn Connection>,
}

/// A row of the suite's table.
pub(super) type Record = (i64, String);

/// Returns the text of the row with this key.
pub(super) fn record(id: i64) -> Record {
    (id, format!("the row with the number {id}"))
}

/// Returns the parameters of the row with this key.
pub(super) fn row(id: i64) -> Vec<Param<'static>> {
    let (id, name) = record(id);
    vec![value(id), value(name)]
}

/// Converts a value to a parameter.
pub(super) fn value(value: impl Into<Value<'static>>) -> Param<'static> {
    Param::Value(value.into())
}

impl<'s> Client<'s> {
    /// Connects, and creates the suite's table.
    pub(super) async fn first(subject: &'s Subject) -> Self {
        let mut client = Client::another(subject).await;
        client.must(&subject.sql.create).await;
        client
    }

    /// Opens another connection.
    pub(super) async fn another(subject: &'s Subject) -> Self {
        Client::with_cache(subject, 16).await
    }

    pub(super) async fn with_cache(subject: &'s Subject, statement_cache: usize) -> Self {
        let connection = subject.open(statement_cache).await;
        Client {
            subject,
            connection: connection.expect("a connection can be opened"),
        }
    }

    /// Returns the statement in the database's dialect.
    pub(super) fn text<'t>(&self, sql: &'t str) -> Cow<'t, str> {
        let scanned = cenote::sql::scan(self.subject.template.dialect(), sql);
        scanned.expect("the texts of the suite are right").sql
    }

    pub(super) async fn run(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Outcome> {
        let text = self.text(sql);
        self.connection.run(Request::new(&text, params)).await
    }

    /// Runs a statement that must succeed.
    pub(super) async fn must(&mut self, sql: &str) -> Outcome {
        let done = self.run(sql, &[]).await;
        done.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Runs a statement that must fail, and returns its error.
    pub(super) async fn must_not(&mut self, sql: &str) -> Error {
        match self.run(sql, &[]).await {
            Ok(done) => panic!("{sql}: should have failed, and gave {done:?}"),
            Err(error) => error,
        }
    }

    /// Runs several statements in one text.
    pub(super) async fn script(&mut self, statements: &[&str]) -> Result<Outcome> {
        let text = statements.join("; ");
        let mut request = Request::new(&text, &[]);
        request.script = true;
        request.cache = false;
        self.connection.run(request).await
    }

    pub(super) async fn insert(&mut self, id: i64) -> Result<Outcome> {
        let insert = &self.subject.sql.insert;
        self.run(insert, &row(id)).await
    }

    /// Inserts a row; panics on an error.
    pub(super) async fn add(&mut self, id: i64) {
        let done = self.insert(id).await;
        let affected = done.expect("a row can be inserted").rows_affected;
        assert_eq!(affected, 1, "one row was inserted");
    }

    /// Inserts many rows in one transaction.
    pub(super) async fn fill(&mut self, ids: RangeInclusive<i64>) {
        self.begin().await;
        self.insert_all(ids).await;
        self.commit().await;
    }

    /// Inserts many rows.
    pub(super) async fn insert_all(&mut self, ids: RangeInclusive<i64>) {
        let sets: Vec<_> = ids.map(row).collect();
        let insert = self.text(&self.subject.sql.insert).into_owned();
        let done = self.connection.run_batch(&insert, &sets).await;
        done.expect("rows can be inserted");
    }

    /// Returns all rows of the suite's table, ordered by key.
    pub(super) async fn records(&mut self) -> Vec<Record> {
        let done = self.must(&self.subject.sql.select).await;
        done.rows.map_or_else(Vec::new, records)
    }

    /// Returns the keys of all rows, after checking their texts.
    pub(super) async fn ids(&mut self) -> Vec<i64> {
        let records = self.records().await;
        let check = |(id, name)| {
            assert_eq!((id, name), record(id), "a row holds what was put into it");
            id
        };
        records.into_iter().map(check).collect()
    }

    pub(super) fn status(&self) -> Status {
        self.connection.status()
    }

    pub(super) async fn begin(&mut self) {
        let begun = self.connection.begin_with(&Begin::default(), None).await;
        begun.expect("a transaction can be begun");
        assert_eq!(self.status(), Status::InTransaction, "after a begin");
    }

    pub(super) async fn commit(&mut self) {
        let outcome = self.connection.commit().await;
        let outcome = outcome.expect("a transaction can be committed");
        assert_eq!(outcome, CommitOutcome::Committed);
        assert_eq!(self.status(), Status::Idle, "after a commit");
    }

    pub(super) async fn roll_back(&mut self) {
        let done = self.connection.rollback().await;
        done.expect("a transaction can be rolled back");
        assert_eq!(self.status(), Status::Idle, "after a rollback");
    }

    pub(super) async fn savepoint(&mut self, step: Savepoint<'_>) {
        let done = self.connection.savepoint(step).await;
        done.unwrap_or_else(|error| panic!("{step:?}: {error}"));
    }

    /// Returns the next rows of a stream.
    pub(super) async fn batch(&mut self) -> Result<Option<Batch>> {
        poll_fn(|cx| self.connection.poll_batch(cx)).await
    }

    /// Settles after a dropped call, and returns whether the connection is still usable. If the
    /// driver lacks this, a new connection replaces the broken one.
    pub(super) async fn settle(&mut self) -> bool {
        let settled = self.connection.settle().await;
        let Err(error) = settled else {
            assert!(!self.connection.is_broken(), "it was settled");
            assert_ne!(self.status(), Status::Unknown, "after settling");
            return true;
        };
        let may_fail = !self.subject.can(Lack::Settling);
        assert!(may_fail, "settling failed: {error}");
        assert!(self.connection.is_broken(), "it could not be settled");
        let fresh = Client::another(self.subject).await;
        let gone = std::mem::replace(self, fresh);
        gone.close().await;
        false
    }

    /// Checks that the connection answers a query with exactly its own result.
    pub(super) async fn is_usable(&mut self) {
        assert!(!self.connection.is_broken(), "the connection is whole");
        assert_ne!(self.status(), Status::Unknown);
        let done = self.must(&self.subject.sql.seven).await;
        let rows = done.rows.expect("it has rows");
        let rows: Vec<i64> = rows
            .into_rows()
            .map(|row| row.get(0).expect("it is a number"))
            .collect();
        assert_eq!(rows, [7], "its own rows, and nobody else's");
    }

    pub(super) async fn close(self) {
        let closed = self.connection.close().await;
        closed.expect("a connection can be closed");
    }
}

/// Decodes the rows of a batch of the suite's table.
pub(super) fn records(batch: Batch) -> Vec<Record> {
    let read = |row: cenote::Row| {
        let id = row.get(0).expect("the key is a number");
        (id, row.get(1).expect("the name is a text"))
    };
    batch.into_rows().map(read).collect()
}

/// Repeats a call and drops it after 0, 1, 2 … polls. `attempt` takes the number of polls and
/// returns whether the call completed.
pub(super) async fn at_every_poll(mut attempt: impl AsyncFnMut(usize) -> bool) {
    for polls in 0..=MOST_POLLS {
        if attempt(polls).await {
            return;
        }
    }
}

/// Polls a call up to the given number of times, and returns whether it completed.
pub(super) async fn is_answered<T>(polls: usize, call: impl Future<Output = Result<T>>) -> bool {
    match drop_after(polls, call).await {
        None => false,
        Some(Ok(_)) => true,
        Some(Err(error)) => panic!("a call that was not dropped failed: {error}"),
    }
}
