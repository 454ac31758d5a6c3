//! Runs statements.
//!
//! A statement without parameters is sent as text, which takes one round trip. A statement with parameters is prepared, cached,
//! and answered in binary.

use std::borrow::Cow;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;

use mysql_async::prelude::{Protocol, Queryable};
use mysql_async::{Params, QueryResult, TextProtocol};

use super::connection::MysqlConnection;
use super::decimal;
use super::error;
use super::param;
use super::stale::is_stale;
use super::statement::Statement;
use super::types::Layout;
use super::wire::{catch, caught};
use crate::driver::{Batch, BatchBuilder, Begin, Outcome, Param, Prepared, Request, Status};
use crate::sql::{Class, Keyword, class};
use crate::{Error, Result};

/// What has arrived so far of an answer.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    rows: Option<BatchBuilder>,
    /// The number of rows of the last result, also of unwanted ones.
    count: u64,
    /// The layout of the rows.
    layout: Option<Arc<Layout>>,
    /// A row could not be stored. The rest was read nevertheless.
    wrong: Option<Error>,
}

/// Whether a statement is cached already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    Known,
    New,
}

/// The circumstances of an exchange, for its end.
#[derive(Clone, Copy)]
struct Was {
    /// The statement was cached, so it can be stale.
    kept: bool,
    /// No transaction was open.
    idle: bool,
    /// The statement may change the session.
    touches_session: bool,
    /// The statement writes.
    writes: bool,
}

/// How an answer is read.
pub(super) struct Reading<'l> {
    /// The caller wants the rows.
    rows: bool,
    /// The text has several statements: the last result counts.
    script: bool,
    /// The layout of the last run's rows.
    known: Option<&'l Arc<Layout>>,
    is_utc: bool,
}

impl MysqlConnection {
    /// Runs a statement or a script.
    ///
    /// # Cancel safety
    ///
    /// If dropped, settling closes the connection.
    pub(super) async fn execute(&mut self, request: Request<'_>) -> Result<Outcome> {
        self.check_reading().await?;
        let is_watched = self.set_marker(request.sql).await?;
        let done = self.execute_unwatched(request).await;
        if is_watched {
            self.check_marker().await?;
        }
        done
    }

    async fn execute_unwatched(&mut self, request: Request<'_>) -> Result<Outcome> {
        match decimal::is_among(request.params) {
            true => Box::pin(self.execute_with_casts(request)).await,
            false => self.execute_as_it_is(request).await,
        }
    }

    /// Runs a statement with decimal parameters.
    async fn execute_with_casts(&mut self, request: Request<'_>) -> Result<Outcome> {
        let sql = decimal::with_casts(self.facts.dialect, request.sql, request.params);
        let request = Request {
            sql: &sql,
            ..request
        };
        self.execute_as_it_is(request).await
    }

    async fn execute_as_it_is(&mut self, request: Request<'_>) -> Result<Outcome> {
        match self.kept(&request) {
            Some(statement) => self.exchange(request, statement, Keep::Known).await,
            None => Box::pin(self.execute_new(request)).await,
        }
    }

    /// Returns the cached statement, if the request can use it.
    pub(super) fn kept(&mut self, request: &Request<'_>) -> Option<Statement> {
        match request.cache && !request.script {
            true => self.cache.get(request.sql).cloned(),
            false => None,
        }
    }

    /// Runs a statement that is not cached yet.
    async fn execute_new(&mut self, request: Request<'_>) -> Result<Outcome> {
        match request.params.is_empty() && !request.prepared {
            true => self.execute_text(&request).await,
            false => self.execute_once(request).await,
        }
    }

    async fn execute_text(&mut self, request: &Request<'_>) -> Result<Outcome> {
        self.ask_text(request, &mut Gathered::default()).await
    }

    pub(super) async fn ask_text(
        &mut self,
        request: &Request<'_>,
        results: &mut impl Results,
    ) -> Result<Outcome> {
        self.check_size(request.sql.len(), 0)?;
        let reading = Reading::of(request, None, self.is_utc);
        self.begin_call().await?;
        let asked = self.wire()?.query_iter(request.sql);
        let answer = gather(asked, reading, results).await;
        let ended = self.end_script_call(answer).await;
        let class = class(self.facts.dialect, request.sql);
        let outcome = ended.and_then(|()| self.outcome(writes(&class), results.last()));
        if class.touches_session {
            self.note_touch(request.sql).await?;
        }
        let outcome = outcome?;
        if outcome.warnings > 0 {
            self.note_warnings(outcome.warnings).await?;
        }
        Ok(outcome)
    }

    /// Prepares a statement and runs it; caches it if that is worth it.
    pub(super) async fn execute_once(&mut self, request: Request<'_>) -> Result<Outcome> {
        let keeps = request.cache && self.cache.is_on();
        // Checks the parameters before it prepares the statement.
        param::to_raw(request.params, self.is_utc)?;
        self.check_size(request.sql.len(), 0)?;
        let statement = self.make_statement(request.sql, keeps).await?;
        let (new, handle) = (Keep::New, statement.clone());
        let outcome = self.exchange(request, statement, new).await;
        if !keeps && !self.is_broken {
            self.close_statement(handle).await?;
        }
        outcome
    }

    /// Runs a prepared statement.
    ///
    /// Every call of a cached statement allocates this future. So rare parts are boxed, and it borrows as little as possible,
    /// because the compiler reserves room for borrows.
    ///
    /// # Cancel safety
    ///
    /// If dropped, settling closes the connection.
    #[allow(
        clippy::manual_async_fn,
        reason = "an async fn has room for its arguments twice"
    )]
    pub(super) fn exchange(
        &mut self,
        request: Request<'_>,
        statement: Statement,
        keep: Keep,
    ) -> impl Future<Output = Result<Outcome>> + Send {
        async move {
            let was = Was {
                kept: keep == Keep::Known,
                idle: self.status == Status::Idle,
                touches_session: statement.touches_session,
                writes: statement.writes,
            };
            let params = self.fit(&request, &statement)?;
            self.begin_without_ping()?;
            if self.needs_ping {
                Box::pin(self.ping_first()).await?;
            }
            let reading = Reading::of(&request, Some(&statement.layout), self.is_utc);
            let mut gathered = Gathered::default();
            let asked = self.wire()?.exec_iter(statement.handle, params);
            match gather(asked, reading, &mut gathered).await {
                Ok(()) if !was.touches_session && self.end_ok_call() => {}
                answer => {
                    return Box::pin(self.end_exchange(request, answer, gathered, was)).await;
                }
            }
            if let Some(now) = &gathered.layout
                && !Arc::ptr_eq(now, &statement.layout)
                && let Some(kept) = self.cache.get(request.sql)
            {
                kept.layout = Arc::clone(now);
            }
            let outcome = self.outcome(was.writes, &mut gathered)?;
            if outcome.warnings > 0 {
                Box::pin(self.note_warnings(outcome.warnings)).await?;
            }
            Ok(outcome)
        }
    }

    /// Returns the parameters of a statement, if their number and size are right.
    #[inline]
    pub(super) fn fit(&self, request: &Request<'_>, statement: &Statement) -> Result<Params> {
        let params = param::to_raw(request.params, self.is_utc)?;
        let wanted = usize::from(statement.handle.num_params());
        if wanted != params.len() {
            // The client library would close the connection.
            return Err(error::wrong_count(wanted, params.len()));
        }
        self.check_size(0, param::size_of(&params))?;
        Ok(match params.is_empty() {
            true => Params::Empty,
            false => Params::Positional(params),
        })
    }

    /// Ends an exchange that failed, or whose statement may change the session.
    #[cold]
    async fn end_exchange(
        &mut self,
        request: Request<'_>,
        answer: mysql_async::Result<()>,
        mut gathered: Gathered,
        was: Was,
    ) -> Result<Outcome> {
        let ended = self.end_script_call(answer).await;
        match ended {
            // A procedure can report the same error for a statement of its own, after half its work.
            Err(wrong) if was.kept && !was.touches_session && is_stale(&wrong) => {
                return Box::pin(self.execute_stale(request, was.idle, wrong)).await;
            }
            ended => {
                let outcome = ended.and_then(|()| self.outcome(was.writes, &mut gathered));
                if was.touches_session && !self.is_broken {
                    self.note_touch(request.sql).await?;
                }
                let outcome = outcome?;
                if outcome.warnings > 0 {
                    self.note_warnings(outcome.warnings).await?;
                }
                Ok(outcome)
            }
        }
    }

    /// Ends a call of a text with several results.
    pub(super) async fn end_script_call(&mut self, answer: mysql_async::Result<()>) -> Result<()> {
        let wire = self.wire()?;
        if answer.is_err() || wire.last_ok_packet().is_some() {
            return self.end_call(answer).await;
        }
        // The client library returns the error of a later statement when the next result is requested.
        let mut rest = QueryResult::<'_, '_, TextProtocol>::new(&mut **wire);
        let answer = caught(Box::pin(rest.next())).await.map(drop);
        self.end_call(answer).await
    }

    /// Runs a statement with each parameter set, one after the other; without an open transaction, in one of its own.
    ///
    /// An INSERT of many rows would be faster, but is not provably the same: a trigger, which only its owner may be
    /// able to see, can tell the two apart by LAST_INSERT_ID(), and without strict mode the server
    /// accepts a NULL in a statement of many rows that it refuses in one of a single row.
    pub(super) async fn execute_batch(
        &mut self,
        sql: &str,
        sets: &[Vec<Param<'_>>],
        wants_rows: bool,
    ) -> Result<(Outcome, Vec<Batch>)> {
        // A single statement is all or nothing by itself.
        let own = sets.len() > 1 && self.status == Status::Idle;
        if own {
            self.begin_transaction(&Begin::default(), None).await?;
        }
        let done = self.execute_sets(sql, sets, wants_rows).await;
        match &done {
            Ok((total, _)) if own => {
                let warnings = total.warnings;
                self.commit_transaction().await?;
                self.warnings = warnings;
            }
            Err(_) if own && !self.is_broken => self.roll_back_transaction().await?,
            _ => {}
        }
        done
    }

    async fn execute_sets(
        &mut self,
        sql: &str,
        sets: &[Vec<Param<'_>>],
        wants_rows: bool,
    ) -> Result<(Outcome, Vec<Batch>)> {
        let (mut total, mut rows) = (Outcome::default(), Vec::new());
        for (n, params) in sets.iter().enumerate() {
            let mut request = Request::new(sql, params);
            request.rows = wants_rows;
            let done = self.execute(request).await;
            let done = done.map_err(|error| error.in_set(n as u64))?;
            rows.extend(done.rows);
            total.rows_affected += done.rows_affected;
            total.last_insert_id = done.last_insert_id.or(total.last_insert_id);
            total.warnings += done.warnings;
        }
        self.warnings = total.warnings;
        Ok((total, rows))
    }

    pub(super) async fn prepare_only(&mut self, sql: &str) -> Result<Prepared> {
        self.check_reading().await?;
        let keeps = self.cache.is_on();
        let statement = match self.cache.get(sql).cloned() {
            Some(statement) => statement,
            None => {
                self.check_size(sql.len(), 0)?;
                self.make_statement(sql, keeps).await?
            }
        };
        let params = usize::from(statement.handle.num_params());
        let columns = Arc::clone(&statement.layout.columns);
        if !keeps {
            self.close_statement(statement).await?;
        }
        Ok(Prepared::new(params, columns))
    }

    /// Prepares a statement on the server.
    pub(super) async fn make_statement(&mut self, sql: &str, keeps: bool) -> Result<Statement> {
        let is_utc = self.is_utc;
        if keeps && let Some(oldest) = self.cache.make_room() {
            self.close_statement(oldest).await?;
        }
        let status = self.status;
        self.begin_call().await?;
        // The client library searches for `:name` itself, sometimes also inside of quotes. After an empty
        // comment it does not search.
        let text = match sql.contains(':') {
            true => Cow::Owned(format!("/**/{sql}")),
            false => Cow::Borrowed(sql),
        };
        let answer = caught(self.wire()?.prep(text)).await;
        let handle = match answer {
            Ok(handle) => handle,
            Err(wrong) => return self.end_call(Err(wrong)).await,
        };
        // The client library misreads the statement's number as the server's flags.
        self.status = status;
        self.in_flight = false;
        self.prepared += 1;
        let class = class(self.facts.dialect, sql);
        let statement = Statement {
            layout: Layout::new(handle.columns(), is_utc),
            handle,
            touches_session: class.touches_session,
            writes: writes(&class),
        };
        if keeps {
            self.cache.insert(sql, statement.clone());
        }
        Ok(statement)
    }

    /// Closes a statement on the server, which does not answer that.
    pub(super) async fn close_statement(&mut self, statement: Statement) -> Result<()> {
        self.begin_call().await?;
        match caught(self.wire()?.close(statement.handle)).await {
            Ok(()) => {
                self.in_flight = false;
                Ok(())
            }
            Err(wrong) => self.end_call(Err(wrong)).await,
        }
    }

    /// Refuses a statement that is larger than the server's limit: the server would close the connection.
    pub(super) fn check_size(&self, text: usize, params: u64) -> Result<()> {
        // The protocol adds a few bytes.
        let text = u64::try_from(text).unwrap_or(u64::MAX).saturating_add(16);
        let size = text.max(params.saturating_add(16));
        let limit = self.facts.max_packet;
        match size > limit {
            true => Err(error::too_large(size, limit)),
            false => Ok(()),
        }
    }

    #[inline]
    pub(super) fn outcome(&mut self, writes: bool, gathered: &mut Gathered) -> Result<Outcome> {
        if let Some(wrong) = gathered.wrong.take() {
            return Err(wrong);
        }
        let wire = self.wire()?;
        let id = wire.last_insert_id().filter(|id| *id != 0);
        let rows: Option<Batch> = gathered.rows.as_mut().map(BatchBuilder::take);
        let affected = match wire.affected_rows() {
            // With RETURNING the number of rows is the number of changed ones.
            0 if writes => gathered.count,
            affected => affected,
        };
        Ok(Outcome {
            rows,
            rows_affected: affected,
            last_insert_id: id.and_then(|id| i64::try_from(id).ok()),
            warnings: u64::from(wire.get_warnings()),
        })
    }

    pub(super) async fn note_warnings(&mut self, count: u64) -> Result<()> {
        self.warnings = count;
        match tracing::enabled!(tracing::Level::WARN) {
            true => self.log_warnings().await,
            false => Ok(()),
        }
    }

    /// Logs the warnings of the last statement.
    #[cold]
    async fn log_warnings(&mut self) -> Result<()> {
        let count = self.warnings;
        self.begin_call().await?;
        let asked = caught(self.wire()?.query("SHOW WARNINGS LIMIT 10")).await;
        let told: Vec<(String, u16, String)> = self.end_call(asked).await?;
        self.warnings = count;
        for (level, code, message) in told {
            match &*level {
                "Note" => tracing::debug!(code, "MySQL: {message}"),
                _ => tracing::warn!(code, "MySQL: {message}"),
            }
        }
        Ok(())
    }
}

/// Whether the verb of this class writes.
fn writes(class: &Class) -> bool {
    let verb = class.verb;
    matches!(
        verb,
        Some(Keyword::Insert | Keyword::Delete | Keyword::Update | Keyword::Replace)
    )
}

impl<'l> Reading<'l> {
    pub(super) fn of(request: &Request<'_>, known: Option<&'l Arc<Layout>>, is_utc: bool) -> Self {
        Reading {
            rows: request.rows,
            script: request.script,
            known,
            is_utc,
        }
    }
}

/// Sends a request and reads its answer to the end.
pub(super) async fn gather<'c, 't: 'c, P: Protocol + 'c>(
    asked: impl Future<Output = mysql_async::Result<QueryResult<'c, 't, P>>> + Send,
    reading: Reading<'_>,
    results: &mut impl Results,
) -> mysql_async::Result<()> {
    let mut asked = pin!(asked);
    let mut result = poll_fn(|cx| catch(|| asked.as_mut().poll(cx))).await?;
    let mut is_open = false;
    loop {
        if !is_open {
            let Some(described) = result.columns() else {
                return Ok(());
            };
            let has_rows = !described.is_empty();
            results.last().open(described, &reading);
            if !has_rows {
                results.end_without_rows(&result);
            }
            is_open = true;
        }
        // One call for all rows, so that the future stays small.
        let mut next = pin!(result.next());
        match poll_fn(|cx| catch(|| next.as_mut().poll(cx))).await? {
            Some(row) => results.last().take(&row, &reading),
            None => {
                is_open = false;
                results.end_rows();
            }
        }
    }
}

/// Where the results of an answer go. A trait, so that the future of a call that wants only the last result has no room
/// for the others.
pub(super) trait Results: Send {
    /// The result that is being read, or the last one.
    fn last(&mut self) -> &mut Gathered;

    /// A result without rows has been read.
    fn end_without_rows<P: Protocol>(&mut self, _result: &QueryResult<'_, '_, P>) {}

    /// The last row of a result has been read.
    fn end_rows(&mut self) {}
}

impl Results for Gathered {
    #[inline]
    fn last(&mut self) -> &mut Gathered {
        self
    }
}

impl Gathered {
    /// Takes the rows that have been read.
    pub(super) fn take_rows(&mut self) -> Option<Batch> {
        self.rows.take().map(BatchBuilder::finish)
    }

    /// Begins the next result.
    #[inline]
    fn open(&mut self, described: Arc<[mysql_async::Column]>, reading: &Reading<'_>) {
        if described.is_empty() {
            // A CALL ends with one result without rows; a script may have any number of them.
            if reading.script {
                self.rows = None;
            }
            return;
        }
        let layout = match reading.known {
            Some(known) => known.now(described, reading.is_utc),
            None => Layout::new(described, reading.is_utc),
        };
        self.count = 0;
        self.rows = None;
        if reading.rows {
            let rows = BatchBuilder::new(Arc::clone(&layout.columns));
            self.rows.insert(rows).make_room(1, FIRST_BYTES);
        }
        self.layout = Some(layout);
    }

    fn take(&mut self, row: &mysql_async::Row, reading: &Reading<'_>) {
        self.count += 1;
        if reading.rows
            && self.wrong.is_none()
            && let (Some(rows), Some(layout)) = (&mut self.rows, &self.layout)
        {
            self.wrong = layout.push(rows, row).err();
        }
    }
}

/// The initial capacity for the values of a row.
const FIRST_BYTES: usize = 64;
