//! Running statements: once, in batches, prepared.
//!
//! | statement | messages | round trips |
//! |---|---|---|
//! | new | Parse, Describe, Bind (parameters and rows as text), Execute, Sync | 1 |
//! | kept | Bind (binary, where that is known), Execute, Sync | 1 |
//! | new, with native parameters | Parse, Describe, Sync; Bind, Execute, Sync | 2 |
//! | the same, not kept | Parse, Describe, Sync; Parse, Bind, Execute, Sync | 2 |
//! | a script | Query | 1 |
//!
//! A BEGIN goes before, in the same batch, by the same protocol: as a query of its own it could
//! fail while what follows is carried out, and committed.

use std::future::poll_fn;
use std::sync::Arc;

use postgres_types::{Oid, Type};

use super::connect::DIALECT;
use super::connection::{Flight, PostgresConnection};
use super::error;
use super::kept::Change;
use super::param::{bind, need_types};
use super::protocol::answer::Answer;
use super::protocol::frontend::{
    bind_head, close_statement, describe_statement, execute, parse, parse_unnamed, undo_batch,
};
use super::statement::{ALL_TEXT, Statement, is_planned};
use super::transaction::check_committed;
use super::types::Layout;
use crate::driver::{Outcome, Param, Prepared, Request, Status};
use crate::sql::{self, Class, Resolved};
use crate::{Error, Kind, Result};

/// A batch is sent when it has so many bytes, while the rest is still being written.
const CHUNK: usize = 64 * 1024;

/// How a statement is run.
pub(super) enum Way {
    /// The server knows it.
    Known(Arc<Statement>),
    /// It is prepared on the way, under this name; empty for one that is not kept.
    New(String),
}

impl Way {
    /// What is to be gathered from the server.
    fn answer(&self, begin: Option<&str>, request: &Request<'_>) -> Answer {
        let answer = match self {
            Way::Known(statement) => Answer::of(&statement.layout, request.rows),
            Way::New(_) => Answer::new(request.rows),
        };
        answer.after(u32::from(begin.is_some()))
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Way::Known(statement) => &statement.name,
            Way::New(name) => name,
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
        self.begin_call(Flight::Statement)?;
        let before = self.status;
        let was_idle = before == Status::Idle;
        // The way of nearly all calls, without a detour.
        if let Some(statement) = self.known(&request) {
            let way = Way::Known(statement);
            let queued = self.send(begin, &request, &way);
            self.finish_call(queued)?;
            let mut answer = way.answer(begin, &request);
            let done = poll_fn(|cx| self.poll_receive(cx, &mut answer)).await;
            self.finish_call(done)?;
            check_committed(&mut answer, before, request.sql);
            if answer.is_fine() {
                return answer.outcome(self.warnings_so_far());
            }
            answer.explain(request.params.len(), way.name());
            if !self.forget_if_stale(&answer, &way, was_idle) {
                return answer.outcome(self.warnings_so_far());
            }
            self.flight = Flight::Statement;
        }
        // In a box of its own, so that the future of the short way stays small.
        let done = Box::pin(self.execute_in_call(begin, &request, before)).await;
        self.finish_call(done)
    }

    /// A statement that is kept, if it can be run as it is.
    fn known(&mut self, request: &Request<'_>) -> Option<Arc<Statement>> {
        let is_plain = request.cache && !request.script && !need_types(request.params);
        let known = is_plain.then(|| self.cache.get(request.sql)).flatten()?;
        known.layout.unknown.is_empty().then_some(known)
    }

    /// The call is over if its answer has come, or if nothing of it was sent.
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
        let (mut answer, way) = self.execute_once(begin, request).await?;
        if self.forget_if_stale(&answer, &way, was_idle) {
            self.roll_back_leftover(was_idle).await?;
            (answer, _) = self.execute_once(begin, request).await?;
        }
        check_committed(&mut answer, before, request.sql);
        self.outcome(answer, request.sql).await
    }

    /// What came of a statement; types of its columns that are not known are looked up.
    async fn outcome(&mut self, mut answer: Answer, sql: &str) -> Result<Outcome> {
        let unknown = answer.unknown_types().filter(|_| answer.is_fine());
        let mut outcome = answer.outcome(self.warnings_so_far())?;
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
            // The look-up has failed the transaction: later errors would not say why.
            Err(error) if self.status == Status::Failed => Err(error),
            // The statement has run.
            Err(error) => {
                tracing::debug!(%error, "a type could not be looked up");
                Ok(false)
            }
        }
    }

    /// Ends a transaction that began with a statement which is to be tried once more: there is
    /// nothing else in it.
    async fn roll_back_leftover(&mut self, was_idle: bool) -> Result<()> {
        if was_idle && self.status != Status::Idle {
            self.simple("ROLLBACK", Answer::new(false)).await?;
        }
        Ok(())
    }

    /// Runs a statement, and gives what the server said to it.
    ///
    /// # Errors
    ///
    /// It could not be sent, or the connection is gone.
    async fn execute_once(
        &mut self,
        begin: Option<&str>,
        request: &Request<'_>,
    ) -> Result<(Answer, Way)> {
        let mut begin = begin;
        let way = match self.typed_way(&mut begin, request).await? {
            Ok(way) => way,
            Err(refused) => return Ok((refused, way_of_nothing())),
        };
        self.send(begin, request, &way)?;
        let mut answer = way.answer(begin, request);
        self.note_preparing(&way);
        self.receive(&mut answer).await?;
        self.keep(&way, request.sql, &answer);
        answer.explain(request.params.len(), way.name());
        Ok((answer, way))
    }

    /// Puts a statement into the outbox, up to its Sync; or nothing, if a parameter cannot be
    /// sent.
    fn send(&mut self, begin: Option<&str>, request: &Request<'_>, way: &Way) -> Result<()> {
        let mark = self.wire.mark();
        if let Err(wrong) = self.queue(begin, request, way, 0) {
            self.wire.undo(mark);
            return Err(wrong);
        }
        self.cache.unwanted.clear();
        self.wire.sync();
        Ok(())
    }

    /// How a statement is to be run, with its types known if its parameters need that. What the
    /// server refused is in the answer. A BEGIN that was sent on the way is taken.
    pub(super) async fn typed_way(
        &mut self,
        begin: &mut Option<&str>,
        request: &Request<'_>,
    ) -> Result<Result<Way, Answer>> {
        let way = self.way(request.sql, request.cache)?;
        if !need_types(request.params) {
            return Ok(Ok(way));
        }
        let mut statement = match way {
            Way::Known(statement) => statement,
            way => match self.prepare_with(begin.take(), request.sql, way).await? {
                Ok(statement) => statement,
                Err(refused) => return Ok(Err(refused)),
            },
        };
        if self.lacks_types(&statement, request.params) {
            self.look_up_types(&statement).await?;
            statement = self.with_types(&statement);
        }
        Ok(Ok(Way::Known(statement)))
    }

    /// How a statement is to be run.
    ///
    /// # Errors
    ///
    /// It must not be: it would make the server ask for data in the middle of a batch.
    pub(super) fn way(&mut self, sql: &str, cache: bool) -> Result<Way> {
        let cache = cache && self.cache.is_on();
        if cache && let Some(statement) = self.cache.get(sql) {
            return Ok(Way::Known(statement));
        }
        let class = sql::class(&DIALECT, sql);
        if class.resolved.copies {
            return Err(error::no_copy());
        }
        if !cache {
            return Ok(Way::New(String::new()));
        }
        self.expect_text(&class);
        if class.resolved != Resolved::NOTHING || !is_planned(class.verb) {
            return Ok(Way::New(String::new()));
        }
        Ok(Way::New(self.cache.make_room(sql).unwrap_or_default()))
    }

    /// Prepares for what a text may do to the session that no tag tells.
    pub(super) fn expect_text(&mut self, class: &Class) {
        if class.resolved.defines {
            self.cache.define();
        }
        if class.resolved.sets {
            self.cache.change(Change::Transaction);
        }
    }

    /// Should the future be dropped, nobody will know whether the server has it.
    pub(super) fn note_preparing(&mut self, way: &Way) {
        match way {
            Way::New(name) if !name.is_empty() => self.cache.begin_preparing(name),
            _ => self.cache.end_preparing(),
        }
    }

    /// Puts a statement into the outbox, up to its Execute. `limit` rows at most; 0 is all.
    pub(super) fn queue(
        &mut self,
        begin: Option<&str>,
        request: &Request<'_>,
        way: &Way,
        limit: i32,
    ) -> Result<()> {
        self.queue_preparation(begin, request.sql, way)?;
        let out = self.wire.outbox();
        match way {
            Way::Known(statement) => bind(
                out,
                &statement.bind_head,
                Some(&statement.params),
                request.params,
                &statement.result_formats,
            )?,
            Way::New(name) => bind(out, &bind_head(name), None, request.params, ALL_TEXT)?,
        }
        execute(out, limit);
        let asked = self.wire.ask();
        asked.bind();
        asked.execute();
        Ok(())
    }

    /// Puts into the outbox what goes before a Bind: statements to forget, a BEGIN, a Parse.
    fn queue_preparation(&mut self, begin: Option<&str>, sql: &str, way: &Way) -> Result<()> {
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
        match way {
            Way::New(name) => {
                let out = self.wire.outbox();
                parse(out, name, sql)?;
                describe_statement(out, name)?;
                let asked = self.wire.ask();
                asked.parses += 1;
                asked.describe();
            }
            // It was prepared to learn its types. By now the unnamed statement may be another one:
            // of a look-up, or, through a pooler, of somebody else.
            Way::Known(statement) if statement.name.is_empty() => {
                parse_unnamed(self.wire.outbox(), sql, &statement.params)?;
                self.wire.ask().parses += 1;
            }
            Way::Known(_) => {}
        }
        Ok(())
    }

    /// Keeps a statement that has just been prepared, if it is to be kept and was. `false` if it has
    /// no name that can be used.
    pub(super) fn keep(&mut self, way: &Way, sql: &str, answer: &Answer) -> bool {
        self.cache.end_preparing();
        let Way::New(name) = way else {
            return true;
        };
        if name.is_empty() {
            return false;
        }
        match self.statement(name, sql, answer) {
            Some(statement) => self.cache.insert(Arc::new(statement)),
            // Whether it is there or not: it is not wanted.
            None => {
                self.cache.unwanted.push(name.clone());
                false
            }
        }
    }

    /// The statement that the answer describes.
    fn statement(&self, name: &str, sql: &str, answer: &Answer) -> Option<Statement> {
        let params = answer.params.as_ref().filter(|_| answer.described)?;
        let params = params.iter().map(|oid| self.type_of(*oid)).collect();
        let layout = answer.layout.clone().unwrap_or_else(Layout::empty);
        Some(Statement::new(name.to_owned(), sql, params, layout))
    }

    /// Returns the type of this number; one without a name if it is not known.
    pub(super) fn type_of(&self, oid: Oid) -> Type {
        let looked_up = || Some(self.types.get(oid)?.kind.clone());
        let known = Type::from_oid(oid).or_else(looked_up);
        known.unwrap_or_else(|| {
            let kind = postgres_types::Kind::Simple;
            Type::new(String::new(), oid, kind, String::new())
        })
    }

    /// Prepares a statement, after a BEGIN if there is one, and waits for the answer. What the
    /// server refused is in the answer.
    pub(super) async fn prepare_with(
        &mut self,
        begin: Option<&str>,
        sql: &str,
        way: Way,
    ) -> Result<Result<Arc<Statement>, Answer>> {
        let mark = self.wire.mark();
        if let Err(wrong) = self.queue_preparation(begin, sql, &way) {
            self.wire.undo(mark);
            return Err(wrong);
        }
        self.cache.unwanted.clear();
        self.wire.sync();
        self.note_preparing(&way);
        let skip = u32::from(begin.is_some());
        let mut answer = Answer::new(false).after(skip);
        self.receive(&mut answer).await?;
        let is_kept = self.keep(&way, sql, &answer);
        if answer.report.is_some() {
            answer.explain(usize::MAX, way.name());
            return Ok(Err(answer));
        }
        let name = if is_kept { way.name() } else { "" };
        match self.statement(name, sql, &answer) {
            Some(statement) => Ok(Ok(Arc::new(statement))),
            None => Err(self.wire.garbage("it did not describe a statement")),
        }
    }

    /// Prepares a statement, and keeps it where there is a place for it.
    pub(super) async fn prepare_only(&mut self, sql: &str) -> Result<Prepared> {
        self.check_reading()?;
        self.begin_call(Flight::Brief)?;
        let done = match self.way(sql, true) {
            Ok(Way::Known(statement)) => Ok(Ok(statement)),
            Ok(way) => self.prepare_with(None, sql, way).await,
            Err(refused) => Err(refused),
        };
        match self.finish_call(done)? {
            Ok(statement) => {
                let columns = Arc::clone(&statement.layout.columns);
                Ok(Prepared::new(statement.params.len(), columns))
            }
            Err(mut refused) => Err(refused.error().unwrap_or_else(error::broken)),
        }
    }

    /// Runs a statement with many sets of parameters, in one batch with one Sync: outside a
    /// transaction all of it is done, or nothing.
    pub(super) async fn execute_batch(
        &mut self,
        sql: &str,
        sets: &[Vec<Param<'_>>],
    ) -> Result<Outcome> {
        if sets.is_empty() {
            return Ok(Outcome::default());
        }
        self.begin_call(Flight::Statement)?;
        let done = self.batch_in_call(sql, sets).await;
        self.finish_call(done)
    }

    async fn batch_in_call(&mut self, sql: &str, sets: &[Vec<Param<'_>>]) -> Result<Outcome> {
        let was_idle = self.status == Status::Idle;
        let params = sets[0].len();
        if let Some(n) = sets.iter().position(|set| set.len() != params) {
            let message = format!("{} parameters, where set 1 has {params}", sets[n].len());
            let wrong = Error::new(Kind::Parameters, message);
            return Err(in_set(wrong, n, sets.len()));
        }
        let (mut answer, way) = self.batch_once(sql, sets).await?;
        if self.forget_if_stale(&answer, &way, was_idle) {
            (answer, _) = self.batch_once(sql, sets).await?;
        }
        answer.outcome(self.warnings_so_far())
    }

    async fn batch_once(&mut self, sql: &str, sets: &[Vec<Param<'_>>]) -> Result<(Answer, Way)> {
        let native = sets.iter().find(|set| need_types(set));
        let params = native.map_or(&[][..], Vec::as_slice);
        let way = match self
            .typed_way(&mut None, &Request::new(sql, params))
            .await?
        {
            Ok(way) => way,
            Err(refused) => return Ok((refused, way_of_nothing())),
        };
        let mut answer = match &way {
            Way::Known(statement) => Answer::of(&statement.layout, false),
            Way::New(_) => Answer::new(false),
        }
        .adding_up();
        let mark = self.wire.mark();
        if let Err(wrong) = self.queue_preparation(None, sql, &way) {
            self.wire.undo(mark);
            return Err(wrong);
        }
        self.note_preparing(&way);
        let new_head = bind_head(way.name());
        let mut was_flushed = false;
        let mut refused = None;
        for (n, set) in sets.iter().enumerate() {
            let out = self.wire.outbox();
            let bound = match &way {
                Way::Known(of) => bind(
                    out,
                    &of.bind_head,
                    Some(&of.params),
                    set,
                    &of.result_formats,
                ),
                Way::New(_) => bind(out, &new_head, None, set, ALL_TEXT),
            };
            if let Err(wrong) = bound {
                let wrong = in_set(wrong, n, sets.len());
                if !was_flushed {
                    self.wire.undo(mark);
                    self.cache.end_preparing();
                    return Err(wrong);
                }
                // What went before it has been sent: the server undoes it by an error of its own.
                undo_batch(self.wire.outbox())?;
                self.wire.ask().parses += 1;
                refused = Some(wrong);
                break;
            }
            execute(self.wire.outbox(), 0);
            let asked = self.wire.ask();
            asked.bind();
            asked.execute();
            if self.wire.unsent() >= CHUNK {
                was_flushed = true;
                self.send_part(&mut answer).await?;
                if answer.report.is_some() {
                    break;
                }
            }
        }
        self.cache.unwanted.clear();
        self.wire.sync();
        self.receive(&mut answer).await?;
        self.keep(&way, sql, &answer);
        answer.explain(sets[0].len(), way.name());
        if refused.is_some() && answer.report.as_ref().is_none_or(|it| it.is_syntax_error()) {
            answer.report = None;
            answer.wrong = refused;
        }
        Ok((answer, way))
    }

    /// Sends what has been written of a batch, and reads what the server says to it meanwhile.
    ///
    /// A cancel leaves a batch without its Sync; settling has the server undo it.
    async fn send_part(&mut self, answer: &mut Answer) -> Result<()> {
        let sent = poll_fn(|cx| self.wire.poll_flush(cx)).await;
        sent.map_err(|lost| self.why_lost(lost, answer))?;
        while let Some(frame) = self.wire.frame()? {
            self.take(frame, answer)?;
        }
        Ok(())
    }
}

fn way_of_nothing() -> Way {
    Way::New(String::new())
}

fn in_set(wrong: Error, n: usize, of: usize) -> Error {
    let message = format!("set {} of {of}: {}", n + 1, wrong.message());
    let kind = wrong.kind();
    wrong.wrapped(kind, message)
}
