//! Runs statements and prepares them.
//!
//! | statement | messages | round trips |
//! |---|---|---|
//! | new | Parse, Describe, Bind (parameters and rows as text), Execute, Sync | 1 |
//! | cached | Bind (binary, for types that have it), Execute, Sync | 1 |
//! | new, with native parameters | Parse, Describe, Sync; Bind, Execute, Sync | 2 |
//! | the same, not cached | Parse, Describe, Sync; Parse, Bind, Execute, Sync | 2 |
//! | a script | Query | 1 |
//!
//! A BEGIN comes first in the same batch, by the same protocol: as a separate query it could fail while the statement
//! runs and commits.

use std::future::poll_fn;
use std::sync::Arc;

use postgres_types::{Oid, Type};

use super::connect::DIALECT;
use super::connection::{InFlight, PostgresConnection};
use super::error;
use super::kept::Change;
use super::param::{bind, has_unclear_array, need_types};
use super::protocol::answer::Answer;
use super::protocol::frontend::{
    bind_head, close_statement, describe_statement, execute, parse, parse_unnamed,
};
use super::statement::{ALL_TEXT, Statement, is_planned};
use super::transaction::check_committed;
use super::types::Layout;
use crate::Result;
use crate::driver::{Outcome, Prepared, Request, Status};
use crate::sql::{self, Class, Resolved};

/// How a statement is run.
pub(super) enum StatementRef {
    /// As a prepared statement.
    Known(Arc<Statement>),
    /// With a Parse under this name; empty for a statement that is not cached.
    New(String),
}

impl StatementRef {
    /// Returns the answer to expect.
    pub(super) fn answer(&self, begin: Option<&str>, request: &Request<'_>) -> Answer {
        let answer = match self {
            StatementRef::Known(statement) => Answer::of(&statement.layout, request.rows),
            StatementRef::New(_) => Answer::new(request.rows),
        };
        answer.after(u32::from(begin.is_some()))
    }

    pub(super) fn name(&self) -> &str {
        match self {
            StatementRef::Known(statement) => &statement.name,
            StatementRef::New(name) => name,
        }
    }
}

impl PostgresConnection {
    /// Runs a statement or a script, after a BEGIN if there is one.
    pub(super) async fn execute(
        &mut self,
        begin: Option<&str>,
        request: Request<'_>,
    ) -> Result<Outcome> {
        self.begin_call(InFlight::Statement)?;
        let before = self.status;
        let was_idle = before == Status::Idle;
        // The fast path of nearly all calls.
        if let Some(statement) = self.known(&request) {
            let by = StatementRef::Known(statement);
            let queued = self.send(begin, &request, &by);
            self.finish_call(queued)?;
            let mut answer = by.answer(begin, &request);
            let is_asked = self.position.is_asked();
            let done = match is_asked {
                false => poll_fn(|cx| self.poll_receive(cx, &mut answer)).await,
                // Boxed, so that the future of the fast path stays small.
                true => Box::pin(self.receive_before_position(&mut answer)).await,
            };
            self.finish_call(done)?;
            check_committed(&mut answer, before, request.sql);
            if answer.is_fine() {
                return answer.outcome(self.warnings_so_far());
            }
            answer.explain(request.params.len(), by.name());
            if !self.forget_if_stale(&answer, &by, was_idle) {
                return answer.outcome(self.warnings_so_far());
            }
            self.in_flight = InFlight::Statement;
            if is_asked {
                Box::pin(self.ask_position_again()).await;
            }
        }
        // Boxed, so that the future of the fast path stays small.
        let done = Box::pin(self.execute_in_call(begin, &request, before)).await;
        self.finish_call(done)
    }

    /// Returns the cached statement, if the request can use it.
    fn known(&mut self, request: &Request<'_>) -> Option<Arc<Statement>> {
        let is_plain = request.cache && !request.script && !need_types(request.params);
        let known = is_plain.then(|| self.cache.get(request.sql)).flatten()?;
        known.layout.unknown.is_empty().then_some(known)
    }

    /// Ends the call if its answer is complete, or if nothing of it was sent.
    pub(super) fn finish_call<T>(&mut self, done: Result<T>) -> Result<T> {
        if self.wire.is_at_rest() || self.wire.is_broken() {
            self.end_call();
        }
        done
    }

    async fn execute_in_call(
        &mut self,
        begin: Option<&str>,
        request: &Request<'_>,
        before: Status,
    ) -> Result<Outcome> {
        let was_idle = before == Status::Idle;
        if request.script {
            let answer = Answer::new(request.rows);
            let answer = self.run_script(request, before, answer).await?;
            return self.outcome(answer, request.sql).await;
        }
        self.roll_back_leftover(was_idle).await?;
        let is_wanted = self.position.is_wanted();
        let (mut answer, by) = self.execute_once(begin, request).await?;
        if self.forget_if_stale(&answer, &by, was_idle) {
            if is_wanted {
                self.ask_position_again().await;
            }
            self.roll_back_leftover(was_idle).await?;
            (answer, _) = self.execute_once(begin, request).await?;
        }
        check_committed(&mut answer, before, request.sql);
        self.outcome(answer, request.sql).await
    }

    /// Returns the outcome of a statement, after it has looked unknown column types up.
    pub(super) async fn outcome(&mut self, mut answer: Answer, sql: &str) -> Result<Outcome> {
        let unknown = answer.unknown_types().filter(|_| answer.is_fine());
        let mut outcome = answer.outcome(self.warnings_so_far())?;
        if unknown.is_some() && self.position.is_due() {
            self.receive_position().await;
        }
        if let Some(layout) = unknown
            && self.look_up_types_of(&layout, &mut outcome).await?
            && let Some(statement) = self.cache.get(sql)
        {
            self.with_types(&statement);
        }
        Ok(outcome)
    }

    /// Looks up the unknown types of a result's columns and reads its rows by them. `false` if a type could not be
    /// looked up: then its values stay text.
    pub(super) async fn look_up_types_of(
        &mut self,
        layout: &Layout,
        outcome: &mut Outcome,
    ) -> Result<bool> {
        match self.look_up_columns(layout).await {
            Ok(layout) => {
                if let Some(rows) = &outcome.rows {
                    outcome.rows = Some(layout.translate(rows)?);
                }
                Ok(true)
            }
            // The look-up has failed the transaction, and later errors would not name the reason.
            Err(error) if self.status == Status::Failed => Err(error),
            // The statement itself has run.
            Err(error) => {
                tracing::debug!(%error, "cannot look a type up; its values stay text");
                Ok(false)
            }
        }
    }

    /// Rolls back a transaction that began with the statement that will be run again: there is nothing else in it.
    pub(super) async fn roll_back_leftover(&mut self, was_idle: bool) -> Result<()> {
        if was_idle && self.status != Status::Idle {
            self.simple("ROLLBACK", Answer::new(false)).await?;
        }
        Ok(())
    }

    /// Runs a statement and returns the server's answer.
    ///
    /// # Errors
    ///
    /// The statement could not be sent, or the connection is lost.
    async fn execute_once(
        &mut self,
        begin: Option<&str>,
        request: &Request<'_>,
    ) -> Result<(Answer, StatementRef)> {
        let mut begin = begin;
        let by = match self.typed_statement_ref(&mut begin, request).await? {
            Ok(by) => by,
            Err(refused) => return Ok((refused, way_of_nothing())),
        };
        self.send(begin, request, &by)?;
        let mut answer = by.answer(begin, request);
        self.note_preparing(&by);
        match self.position.is_asked() {
            false => self.receive(&mut answer).await?,
            true => self.receive_before_position(&mut answer).await?,
        }
        self.keep(&by, request.sql, &answer);
        answer.explain(request.params.len(), by.name());
        Ok((answer, by))
    }

    /// Appends a statement with its Sync to the outbox, or nothing if a parameter cannot be sent.
    fn send(
        &mut self,
        begin: Option<&str>,
        request: &Request<'_>,
        by: &StatementRef,
    ) -> Result<()> {
        let mark = self.wire.mark();
        if let Err(wrong) = self.queue(begin, request, by, 0) {
            self.wire.undo(mark);
            return Err(wrong);
        }
        self.cache.unwanted.clear();
        self.wire.sync();
        if self.position.is_wanted() {
            self.queue_position();
        }
        Ok(())
    }

    /// Returns how to run a statement, prepared first if its parameters need the types. If the server refuses that, the
    /// answer contains the error. Takes the BEGIN if it was sent.
    pub(super) async fn typed_statement_ref(
        &mut self,
        begin: &mut Option<&str>,
        request: &Request<'_>,
    ) -> Result<Result<StatementRef, Answer>> {
        let by = self.statement_ref(request.sql, request.cache)?;
        let is_new = matches!(by, StatementRef::New(_));
        let needs_types =
            need_types(request.params) || is_new && has_unclear_array(request.sql, request.params);
        if !needs_types {
            return Ok(Ok(by));
        }
        let mut statement = match by {
            StatementRef::Known(statement) => statement,
            by => match self.prepare_with(begin.take(), request.sql, by).await? {
                Ok(statement) => statement,
                Err(refused) => return Ok(Err(refused)),
            },
        };
        if self.lacks_types(&statement, request.params) {
            self.look_up_types(&statement).await?;
            statement = self.with_types(&statement);
        }
        Ok(Ok(StatementRef::Known(statement)))
    }

    /// Returns how to run a statement.
    ///
    /// # Errors
    ///
    /// The statement is a COPY, which would make the server ask for data in the middle of a batch.
    pub(super) fn statement_ref(&mut self, sql: &str, cache: bool) -> Result<StatementRef> {
        let cache = cache && self.cache.is_on();
        if cache && let Some(statement) = self.cache.get(sql) {
            return Ok(StatementRef::Known(statement));
        }
        let class = sql::class(&DIALECT, sql);
        if class.resolved.copies.is_some() {
            return Err(error::no_copy());
        }
        if !cache {
            return Ok(StatementRef::New(String::new()));
        }
        self.expect_text(&class);
        if class.resolved != Resolved::NOTHING || !is_planned(class.verb) {
            return Ok(StatementRef::New(String::new()));
        }
        Ok(StatementRef::New(
            self.cache.make_room(sql).unwrap_or_default(),
        ))
    }

    /// Notes what a text may change in the session without a command tag that shows it.
    pub(super) fn expect_text(&mut self, class: &Class) {
        if class.resolved.defines {
            self.cache.define();
        }
        if class.resolved.sets {
            self.cache.change(Change::Transaction);
        }
    }

    /// Notes the name under which a statement is prepared: if the future is dropped, the server may or may not have it.
    pub(super) fn note_preparing(&mut self, by: &StatementRef) {
        self.cache.end_preparing();
        if let StatementRef::New(name) = by
            && !name.is_empty()
        {
            self.cache.begin_preparing(name);
        }
    }

    /// Appends a statement, up to its Execute, to the outbox. At most `limit` rows; 0 means all.
    pub(super) fn queue(
        &mut self,
        begin: Option<&str>,
        request: &Request<'_>,
        by: &StatementRef,
        limit: i32,
    ) -> Result<()> {
        self.queue_preparation(begin, request.sql, by)?;
        let out = self.wire.outbox();
        match by {
            StatementRef::Known(statement) => bind(
                out,
                &statement.bind_head,
                Some(&statement.params),
                request.params,
                &statement.result_formats,
            )?,
            StatementRef::New(name) => bind(out, &bind_head(name), None, request.params, ALL_TEXT)?,
        }
        execute(out, limit);
        let asked = self.wire.ask();
        asked.bind();
        asked.execute();
        Ok(())
    }

    /// Appends what precedes a Bind: Close of evicted statements, a BEGIN, a Parse.
    pub(super) fn queue_preparation(
        &mut self,
        begin: Option<&str>,
        sql: &str,
        by: &StatementRef,
    ) -> Result<()> {
        for name in &self.cache.unwanted {
            close_statement(self.wire.outbox(), name)?;
            self.wire.ask().closes += 1;
        }
        if let Some(begin) = begin {
            let out = self.wire.outbox();
            parse(out, "", begin)?;
            bind(out, &bind_head(""), None, &[], ALL_TEXT)?;
            execute(out, 0);
            let asked = self.wire.ask();
            asked.parses += 1;
            asked.bind();
            asked.execute();
        }
        match by {
            StatementRef::New(name) => {
                let out = self.wire.outbox();
                parse(out, name, sql)?;
                describe_statement(out, name)?;
                let asked = self.wire.ask();
                asked.parses += 1;
                asked.describe();
            }
            // It was prepared only for its types. By now the unnamed statement may be another one: of a
            // look-up, or of another client behind a pooler.
            StatementRef::Known(statement) if statement.name.is_empty() => {
                parse_unnamed(self.wire.outbox(), sql, &statement.params)?;
                self.wire.ask().parses += 1;
            }
            StatementRef::Known(_) => {}
        }
        Ok(())
    }

    /// Caches a statement that was just prepared. Returns false if its name cannot be used.
    pub(super) fn keep(&mut self, by: &StatementRef, sql: &str, answer: &Answer) -> bool {
        self.cache.end_preparing();
        self.keep_one(by, sql, answer)
    }

    /// As [`keep`](Self::keep), for one of several statements that are being prepared.
    pub(super) fn keep_one(&mut self, by: &StatementRef, sql: &str, answer: &Answer) -> bool {
        let StatementRef::New(name) = by else {
            return true;
        };
        if name.is_empty() {
            return false;
        }
        match self.statement(name, sql, answer) {
            Some(statement) => self.cache.insert(Arc::new(statement)),
            // The server may have it: it is closed.
            None => {
                self.cache.unwanted.push(name.clone());
                false
            }
        }
    }

    /// Returns the statement that the answer describes.
    fn statement(&self, name: &str, sql: &str, answer: &Answer) -> Option<Statement> {
        let params = answer.params.as_ref().filter(|_| answer.described)?;
        let params = params.iter().map(|oid| self.type_of(*oid)).collect();
        let layout = answer.layout.clone().unwrap_or_else(Layout::empty);
        Some(Statement::new(name.to_owned(), sql, params, layout))
    }

    /// Returns the type with this OID; an unnamed one if it is unknown.
    pub(super) fn type_of(&self, oid: Oid) -> Type {
        let looked_up = || Some(self.types.get(oid)?.kind.clone());
        let known = Type::from_oid(oid).or_else(looked_up);
        known.unwrap_or_else(|| {
            let kind = postgres_types::Kind::Simple;
            Type::new(String::new(), oid, kind, String::new())
        })
    }

    /// Prepares a statement, after a BEGIN if there is one. If the server refuses, the answer contains the error.
    pub(super) async fn prepare_with(
        &mut self,
        begin: Option<&str>,
        sql: &str,
        by: StatementRef,
    ) -> Result<Result<Arc<Statement>, Answer>> {
        let mark = self.wire.mark();
        if let Err(wrong) = self.queue_preparation(begin, sql, &by) {
            self.wire.undo(mark);
            return Err(wrong);
        }
        self.cache.unwanted.clear();
        self.wire.sync();
        self.note_preparing(&by);
        let skip = u32::from(begin.is_some());
        let mut answer = Answer::new(false).after(skip);
        self.receive(&mut answer).await?;
        let is_kept = self.keep(&by, sql, &answer);
        if answer.report.is_some() {
            answer.explain(usize::MAX, by.name());
            return Ok(Err(answer));
        }
        let name = if is_kept { by.name() } else { "" };
        match self.statement(name, sql, &answer) {
            Some(statement) => Ok(Ok(Arc::new(statement))),
            None => Err(self.wire.garbage("a statement without a description")),
        }
    }

    /// Prepares a statement, and caches it if the cache is enabled.
    pub(super) async fn prepare_only(&mut self, sql: &str) -> Result<Prepared> {
        self.check_reading()?;
        self.begin_call(InFlight::Brief)?;
        let done = match self.statement_ref(sql, true) {
            Ok(StatementRef::Known(statement)) => Ok(Ok(statement)),
            Ok(by) => self.prepare_with(None, sql, by).await,
            Err(refused) => Err(refused),
        };
        match self.finish_call(done)? {
            Ok(statement) => {
                let columns = Arc::clone(&statement.layout.columns);
                let mut prepared = Prepared::new(statement.params.len(), columns);
                let types = statement.params.iter().map(|of| of.name().to_owned());
                prepared.param_types = Some(types.collect());
                Ok(prepared)
            }
            Err(mut refused) => Err(refused.error().unwrap_or_else(error::broken)),
        }
    }
}

pub(super) fn way_of_nothing() -> StatementRef {
    StatementRef::New(String::new())
}
