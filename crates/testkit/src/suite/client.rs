//! A connection of the driver that is tested, with what the promises do to it.

use std::borrow::Cow;
use std::future::{Future, poll_fn};
use std::ops::RangeInclusive;

use cenote::driver::{
    Batch, Begin, CommitOutcome, Connection, Outcome, Param, Request, Savepoint, Status, Value,
};
use cenote::{Error, Result};

use super::{Lack, Subject};
use crate::poll::drop_after;

/// So often is a call polled before it is dropped, at most.
const MOST_POLLS: usize = 40;

/// A connection, with what the promises do to it. What must not fail panics.
pub(super) struct Client<'s> {
    pub(super) subject: &'s Subject,
    pub(super) connection: Box<dyn Connection>,
}

/// A row of the suite's table.
pub(super) type Record = (i64, String);

/// What stands in the row with this key.
pub(super) fn record(id: i64) -> Record {
    (id, format!("the row with the number {id}"))
}

/// The parameters of the row with this key.
pub(super) fn row(id: i64) -> Vec<Param<'static>> {
    let (id, name) = record(id);
    vec![value(id), value(name)]
}

/// A value as a parameter.
pub(super) fn value(value: impl Into<Value<'static>>) -> Param<'static> {
    Param::Value(value.into())
}

impl<'s> Client<'s> {
    /// A connection to a database that has the suite's table.
    pub(super) async fn first(subject: &'s Subject) -> Self {
        let mut client = Client::another(subject).await;
        client.must(&subject.sql.create).await;
        client
    }

    /// One more connection.
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

    /// The text as the database wants it.
    pub(super) fn text<'t>(&self, sql: &'t str) -> Cow<'t, str> {
        let scanned = cenote::sql::scan(self.subject.template.dialect(), sql);
        scanned.expect("the texts of the suite are right").sql
    }

    pub(super) async fn run(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Outcome> {
        let text = self.text(sql);
        self.connection.run(Request::new(&text, params)).await
    }

    /// Runs a text that must not fail.
    pub(super) async fn must(&mut self, sql: &str) -> Outcome {
        let done = self.run(sql, &[]).await;
        done.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Runs a text that must fail.
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

    /// Adds a row, which must not fail.
    pub(super) async fn add(&mut self, id: i64) {
        let done = self.insert(id).await;
        let affected = done.expect("a row can be inserted").rows_affected;
        assert_eq!(affected, 1, "one row was inserted");
    }

    /// Adds many rows in one transaction.
    pub(super) async fn fill(&mut self, ids: RangeInclusive<i64>) {
        self.begin().await;
        self.insert_all(ids).await;
        self.commit().await;
    }

    /// Adds many rows.
    pub(super) async fn insert_all(&mut self, ids: RangeInclusive<i64>) {
        let sets: Vec<_> = ids.map(row).collect();
        let insert = self.text(&self.subject.sql.insert).into_owned();
        let done = self.connection.run_batch(&insert, &sets).await;
        done.expect("rows can be inserted");
    }

    /// All rows of the suite's table, by their keys.
    pub(super) async fn records(&mut self) -> Vec<Record> {
        let done = self.must(&self.subject.sql.select).await;
        done.rows.map_or_else(Vec::new, records)
    }

    /// The keys of all rows; what stands in them must be right.
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

    /// The next rows of a stream.
    pub(super) async fn batch(&mut self) -> Result<Option<Batch>> {
        poll_fn(|cx| self.connection.poll_batch(cx)).await
    }

    /// After a dropped call: settles, and says whether the connection goes on. If not, because
    /// this driver cannot do better, another one takes its place.
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

    /// It answers what it is asked, no more and no less.
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

/// The rows of a batch of the suite's table.
pub(super) fn records(batch: Batch) -> Vec<Record> {
    let read = |row: cenote::Row| {
        let id = row.get(0).expect("the key is a number");
        (id, row.get(1).expect("the name is a text"))
    };
    batch.into_rows().map(read).collect()
}

/// Makes a call, and drops it after 0, 1, 2 … polls: `attempt` is given how many, and says whether
/// the call was answered before that.
pub(super) async fn at_every_poll(mut attempt: impl AsyncFnMut(usize) -> bool) {
    for polls in 0..=MOST_POLLS {
        if attempt(polls).await {
            return;
        }
    }
}

/// Awaits a call for so many polls, and says whether it was answered.
pub(super) async fn is_answered<T>(polls: usize, call: impl Future<Output = Result<T>>) -> bool {
    match drop_after(polls, call).await {
        None => false,
        Some(Ok(_)) => true,
        Some(Err(error)) => panic!("a call that was not dropped failed: {error}"),
    }
}
