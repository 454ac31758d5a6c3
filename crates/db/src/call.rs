//! One call: where it was made, where it has to run, and its way there and back.

use std::panic::Location;
use std::sync::Arc;

use cenote_pool::AcquireError;

use crate::binding::{Bound, Position};
use crate::coroutine::{Frame, Seen};
use crate::driver::{Batch, Outcome, Param, Request};
use crate::handle::Handle;
use crate::op::RunBatch;
use crate::params::Params;
use crate::place::{self, Place};
use crate::row::Row;
use crate::shared::Shared;
use crate::sql::{self, Class, Plan, Statements};
use crate::{Error, Kind, Result};

/// What came of a statement that was executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Executed {
    /// How many rows it inserted, changed or deleted.
    pub rows_affected: u64,
    /// The id that the database chose for the row it inserted last; `None` where databases have
    /// no such thing (PostgreSQL: use `RETURNING`), and for anything but an insert.
    pub last_insert_id: Option<i64>,
    /// How many warnings the database has about it.
    pub warnings: u64,
}

/// Parameters as they were given; a value that cannot be one is an error of the call.
pub(crate) type Given<'a> = Result<Params<'a>>;

/// Where a call has to run.
#[derive(Clone)]
pub(crate) enum Target<'a> {
    /// Wherever the coroutine has a connection bound; else on one of its own.
    Ambient(&'a Arc<Handle>),
    /// On one of its own, whatever is bound.
    Outside(&'a Arc<Handle>),
    /// On this connection.
    Bound(&'a Arc<Bound>, Position),
}

/// A call that was made.
#[derive(Clone)]
pub(crate) struct Call<'a> {
    pub(crate) target: Target<'a>,
    /// Where it was made: in which frame, and on which line.
    pub(crate) seen: Seen,
    pub(crate) site: &'static Location<'static>,
}

/// SQL that is ready to be sent.
pub(crate) struct Text<'a> {
    plan: Arc<Plan>,
    params: Vec<Param<'a>>,
}

impl<'a> Text<'a> {
    pub(crate) fn class(&self) -> &Class {
        &self.plan.class
    }

    pub(crate) fn request(&self) -> Request<'_> {
        let mut request = Request::new(self.plan.sql(), &self.params);
        request.script = self.plan.class.statements == Statements::Several;
        request.cache = !request.script;
        request
    }
}

impl<'a> Call<'a> {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        match &self.target {
            Target::Ambient(handle) | Target::Outside(handle) => &handle.shared,
            Target::Bound(bound, _) => bound.shared(),
        }
    }

    /// The frame whose binding it uses.
    pub(crate) fn frame(&self) -> Option<&Arc<Frame>> {
        match &self.target {
            Target::Ambient(_) => self.seen.frame(),
            Target::Outside(_) | Target::Bound(..) => None,
        }
    }

    /// Reads the SQL and fits the parameters to it. Nothing has been sent yet.
    pub(crate) fn text<'t>(&self, sql: &'t str, params: Given<'t>) -> Result<Text<'t>> {
        self.check_here()?;
        let plan = sql::plan(self.shared().dialect, sql)?;
        let params = params?.bind(&plan.placeholders())?;
        if plan.class.statements == Statements::Several && !params.is_empty() {
            let message = "a script of several statements cannot have parameters: run them one \
                           by one";
            return Err(Error::new(Kind::Parameters, message).at(self.site));
        }
        self.refuse_session_only(&plan.class)?;
        Ok(Text { plan, params })
    }

    /// A call runs where it was made, or not at all: it must not slip out of a
    /// transaction, nor into one.
    pub(crate) fn check_here(&self) -> Result<()> {
        if matches!(self.target, Target::Bound(..)) || self.seen.is_here() {
            return Ok(());
        }
        let message = "this call was made in one coroutine or transaction and awaited in another, \
                       or outside: make the call where it is awaited, as in \
                       scope(async { db.exec(..).await })";
        Err(Error::new(Kind::Escaped, message).at(self.site))
    }

    fn refuse_session_only(&self, class: &Class) -> Result<()> {
        let nobody_keeps_it = match &self.target {
            Target::Ambient(_) => self.seen.frame().is_none(),
            Target::Outside(_) => true,
            Target::Bound(..) => false,
        };
        if !nobody_keeps_it || !class.only_session {
            return Ok(());
        }
        let message = "this statement only changes the session, which outside of a coroutine \
                       ends with the statement: run it in cenote::scope(..) or cenote::spawn(..), \
                       take a connection with db.connection(), or give every connection the \
                       setting with db.set_default(..) or on_connect(..)";
        Err(Error::new(Kind::LeftSession, message).at(self.site))
    }

    /// Takes the connection that it has to run on.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing has happened.
    pub(crate) async fn place(&self) -> Result<Place> {
        match &self.target {
            Target::Bound(bound, position) => {
                Ok(Place::Turn(bound.turn(position, self.site).await?))
            }
            Target::Outside(handle) => self.place_alone(handle, None).await,
            Target::Ambient(handle) => {
                let Some(frame) = self.seen.frame() else {
                    return self.place_alone(handle, None).await;
                };
                while let Some(bound) = frame.lookup(handle.shared.id) {
                    if handle.pool.is_closed() && !bound.in_transaction_from(frame) {
                        return Err(place::from_pool(AcquireError::Closed));
                    }
                    let position = Position::Frame(Some(Arc::clone(frame)));
                    match bound.turn(&position, self.site).await {
                        Ok(turn) => return Ok(Place::Turn(turn)),
                        // It went back to the pool between the two: look again.
                        Err(_) if !self.is_bound(frame, &bound) => {}
                        Err(error) => return Err(error),
                    }
                }
                self.place_alone(handle, Some(Arc::clone(frame))).await
            }
        }
    }

    fn is_bound(&self, frame: &Arc<Frame>, bound: &Arc<Bound>) -> bool {
        let now = frame.lookup(self.shared().id);
        now.is_some_and(|now| Arc::ptr_eq(&now, bound))
    }

    pub(crate) async fn place_alone(
        &self,
        handle: &Handle,
        keeper: Option<Arc<Frame>>,
    ) -> Result<Place> {
        let lease = place::acquire(handle, self.seen.frame(), self.site).await?;
        Ok(Place::alone(&handle.shared, lease, keeper))
    }

    /// Runs a statement.
    ///
    /// # Cancel safety
    ///
    /// Dropped while it runs, it is cancelled; whether it took effect is unknown.
    pub(crate) async fn run(&self, sql: &str, params: Given<'_>, rows: bool) -> Result<Outcome> {
        let done = self.run_text(sql, params, rows).await;
        self.note(&done);
        done
    }

    async fn run_text(&self, sql: &str, params: Given<'_>, rows: bool) -> Result<Outcome> {
        let text = self.text(sql, params)?;
        if let Target::Ambient(handle) = &self.target
            && let Some(ended) = self.end_lost(handle, text.class())
        {
            return ended;
        }
        let mut request = text.request();
        request.rows = rows;
        let mut place = self.place().await?;
        let mut done = place.run(request, self.site).await;
        if let (Place::Alone(_), Err(error)) = (&place, &done)
            && error.was_never_sent()
        {
            // The connection had died in the pool, and the server has seen nothing: once
            // more, on another.
            drop(place);
            place = self.place().await?;
            done = place.run(request, self.site).await;
        }
        place.finish(text.class(), self.site, done).await
    }

    /// A lost transaction that a statement's text began is ended by such a text, too.
    fn end_lost(&self, handle: &Handle, class: &Class) -> Option<Result<Outcome>> {
        let verb = class.transaction?;
        let bound = self.seen.frame()?.lookup(handle.shared.id)?;
        let lost = bound.end_lost_raw(verb)?;
        Some(match verb {
            sql::TransactionVerb::Rollback => Ok(Outcome::default()),
            _ => Err(lost),
        })
    }

    /// Runs a statement with many sets of parameters.
    pub(crate) async fn run_many(
        &self,
        sql: &str,
        sets: Result<Vec<Params<'_>>>,
    ) -> Result<Outcome> {
        let done = self.run_many_texts(sql, sets).await;
        self.note(&done);
        done
    }

    async fn run_many_texts(&self, sql: &str, sets: Result<Vec<Params<'_>>>) -> Result<Outcome> {
        self.check_here()?;
        let plan = sql::plan(self.shared().dialect, sql)?;
        if plan.class.statements == Statements::Several {
            let message = "exec_many takes one statement, not a script of several";
            return Err(Error::new(Kind::Parameters, message).at(self.site));
        }
        self.refuse_session_only(&plan.class)?;
        let placeholders = plan.placeholders();
        let sets: Vec<Vec<Param<'_>>> = sets?
            .into_iter()
            .map(|params| params.bind(&placeholders))
            .collect::<Result<_>>()?;
        let mut place = self.place().await?;
        place.begin_now(self.site).await?;
        let batch = RunBatch {
            sql: plan.sql(),
            sets: &sets,
        };
        let done = place.fly(&batch, self.site).await;
        place.finish(&plan.class, self.site, done).await
    }

    /// Remembers the outcome for [`Db::last_error`](crate::Db::last_error).
    pub(crate) fn note<T>(&self, done: &Result<T>) {
        if let Some(frame) = self.seen.frame() {
            frame.note_error(self.shared().id, done.as_ref().err());
        }
    }

    pub(crate) async fn exec(self, sql: &str, params: Given<'_>) -> Result<Executed> {
        let outcome = self.run(sql, params, false).await?;
        Ok(Executed {
            rows_affected: outcome.affected,
            last_insert_id: outcome.last_insert_id,
            warnings: outcome.warnings,
        })
    }

    pub(crate) async fn exec_many(
        self,
        sql: &str,
        sets: Result<Vec<Params<'_>>>,
    ) -> Result<Executed> {
        let outcome = self.run_many(sql, sets).await?;
        Ok(Executed {
            rows_affected: outcome.affected,
            last_insert_id: outcome.last_insert_id,
            warnings: outcome.warnings,
        })
    }

    pub(crate) async fn query(self, sql: &str, params: Given<'_>) -> Result<Vec<Row>> {
        let outcome = self.run(sql, params, true).await?;
        Ok(outcome
            .rows
            .into_iter()
            .flat_map(Batch::into_rows)
            .collect())
    }

    pub(crate) async fn query_opt(self, sql: &str, params: Given<'_>) -> Result<Option<Row>> {
        let site = self.site;
        let mut rows = self.query(sql, params).await?;
        if rows.len() > 1 {
            let message = format!(
                "at most one row was asked for, and there are {}",
                rows.len()
            );
            return Err(Error::new(Kind::TooManyRows, message).at(site));
        }
        Ok(rows.pop())
    }

    pub(crate) async fn query_one(self, sql: &str, params: Given<'_>) -> Result<Row> {
        let site = self.site;
        self.query_opt(sql, params).await?.ok_or_else(|| {
            let message = "one row was asked for, and there is none";
            Error::new(Kind::NoRows, message).at(site)
        })
    }
}
