//! The suite finds what is wrong with a driver: each of these breaks one promise, and is caught at it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use cenote::driver::{
    Batch, Begin, BoxFuture, Columns, CommitOutcome, ConnectSettings, Connection, Credentials,
    Dialect, Driver, Dsn, Options, Outcome, Param, Prepared, Request, Reset, Savepoint, Status,
    Template, Value,
};
use cenote::{Error, Kind, Result};
use cenote_testkit::poll::block_on;
use cenote_testkit::suite::{self, Subject};
use cenote_testkit::{DroppedCalls, Fake, FakeDriver};

/// What is wrong with a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    StatusIsAlwaysIdle,
    StatusKnowsOnlyItsOwnBegins,
    StatusIsLostWithAnError,
    BeginForgetsTheFirstStatement,
    BeginForgetsReadOnly,
    CommitRollsBack,
    CommitOfFailedTransactionIsFine,
    RollbackCommits,
    RollbackNeedsTransaction,
    SavepointsAreIgnored,
    ReleasedInsteadOfRolledBack,
    RowsOfDroppedQueryComeNext,
    ErrorOfDroppedQueryComesNext,
    SettleLosesTheStatus,
    SettleRollsBack,
    SettleBreaks,
    ErrorsHaveNoViolation,
    ParametersAreMadeToFit,
    TextsAreTrimmed,
    NullIsEmpty,
    TextsAreCutAt64KiB,
    NothingIsAffected,
    RowsComeUnasked,
    EmptyResultHasNoRows,
    BatchGoesOnAfterError,
    BatchCountsTheLastSetOnly,
    PrepareRuns,
    ScriptGoesOnAfterError,
    StreamLosesItsLastRows,
    StreamIsOneBatch,
    EndOfStreamRollsBack,
    EndOfStreamIsForgotten,
    ResetForgetsRows,
    PingCommits,
    ProbeBreaks,
    CloseCommits,
    OptionsAreDropped,
    AddressHasPassword,
}

#[derive(Clone, Debug)]
struct FaultyDriver {
    inner: FakeDriver,
    fault: Fault,
}

impl Driver for FaultyDriver {
    fn name(&self) -> &'static str {
        "faulty"
    }

    fn template(&self, dsn: &Dsn, options: &Options) -> Result<Arc<dyn Template>> {
        let none = Options::new();
        let options = match self.fault {
            Fault::OptionsAreDropped => &none,
            _ => options,
        };
        Ok(Arc::new(FaultyTemplate {
            inner: self.inner.template(dsn, options)?,
            credentials: dsn.credentials(),
            fault: self.fault,
        }))
    }
}

#[derive(Debug)]
struct FaultyTemplate {
    inner: Arc<dyn Template>,
    credentials: Credentials,
    fault: Fault,
}

impl Template for FaultyTemplate {
    fn dialect(&self) -> &'static Dialect {
        self.inner.dialect()
    }

    fn address(&self) -> String {
        match (&self.credentials.password, self.fault) {
            (Some(it), Fault::AddressHasPassword) => format!("ada:{}@here", it.expose()),
            _ => self.inner.address(),
        }
    }

    fn connect<'t>(
        &'t self,
        credentials: Credentials,
        settings: &'t ConnectSettings,
    ) -> BoxFuture<'t, Result<Box<dyn Connection>>> {
        Box::pin(async move {
            let connection: Box<dyn Connection> = Box::new(Faulty {
                inner: Some(self.inner.connect(credentials, settings).await?),
                fault: self.fault,
                in_transaction: false,
                status_is_lost: false,
                is_broken: false,
                last_query: None,
            });
            Ok(connection)
        })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A connection of the fake with something wrong.
#[derive(Debug)]
struct Faulty {
    /// None when it is closed.
    inner: Option<Box<dyn Connection>>,
    fault: Fault,
    /// By the calls that were made.
    in_transaction: bool,
    status_is_lost: bool,
    is_broken: bool,
    /// One that was begun and not answered.
    last_query: Option<String>,
}

impl Faulty {
    fn inner(&mut self) -> &mut dyn Connection {
        self.inner.as_deref_mut().expect("it is open")
    }

    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    async fn silently(&mut self, sql: &str) {
        let _ = self.inner().run(Request::new(sql, &[])).await;
    }
}

/// Parameters as a driver would make them fit that does not look closely.
fn spoilt(fault: Fault, sql: &str, params: &[Param<'_>]) -> Vec<Param<'static>> {
    let mut spoilt: Vec<_> = params
        .iter()
        .map(|param| match param {
            Param::Value(value) => value.clone().into_owned(),
            Param::Native(native) => panic!("the suite sends no {}", native.type_name),
        })
        .map(|value| match (fault, value) {
            (Fault::TextsAreTrimmed, Value::Text(text)) => Value::from(text.trim().to_owned()),
            (Fault::TextsAreCutAt64KiB, Value::Text(mut text)) => {
                text.to_mut().truncate(1 << 16);
                Value::Text(text)
            }
            (Fault::NullIsEmpty, Value::Null) => Value::from(""),
            (_, value) => value,
        })
        .map(Param::Value)
        .collect();
    if fault == Fault::ParametersAreMadeToFit {
        spoilt.resize(sql.matches('?').count(), Param::Value(Value::Int(0)));
    }
    spoilt
}

fn with_params<'a>(mut request: Request<'a>, params: &'a [Param<'a>]) -> Request<'a> {
    request.params = params;
    request
}

fn dull(error: Error) -> Error {
    Error::new(Kind::Database, error.message())
}

impl Connection for Faulty {
    fn run<'c>(&'c mut self, request: Request<'c>) -> BoxFuture<'c, Result<Outcome>> {
        Box::pin(async move {
            let params = spoilt(self.fault, request.sql, request.params);
            let left_over = self.last_query.replace(request.sql.to_owned());
            let mut request = with_params(request, &params);
            let stale = left_over.as_deref().filter(|sql| match self.fault {
                Fault::RowsOfDroppedQueryComeNext => sql.starts_with("SELECT"),
                Fault::ErrorOfDroppedQueryComesNext => sql.starts_with("FAIL"),
                _ => false,
            });
            if let Some(stale) = stale {
                request.sql = stale;
                request.params = &[];
            }
            if self.is(Fault::RowsComeUnasked) {
                request.rows = true;
            }
            if self.is(Fault::ScriptGoesOnAfterError) && request.script {
                for statement in request.sql.split(';') {
                    self.silently(statement).await;
                }
            }
            let mut done = self.inner().run(request).await;
            self.last_query = None;
            self.status_is_lost = done.is_err() && self.is(Fault::StatusIsLostWithAnError);
            if let Ok(done) = &mut done {
                if self.is(Fault::NothingIsAffected) {
                    done.rows_affected = 0;
                }
                if self.is(Fault::EmptyResultHasNoRows)
                    && done.rows.as_ref().is_some_and(Batch::is_empty)
                {
                    done.rows = None;
                }
            }
            match self.fault {
                Fault::ErrorsHaveNoViolation => done.map_err(dull),
                _ => done,
            }
        })
    }

    fn run_batch<'c>(
        &'c mut self,
        sql: &'c str,
        sets: &'c [Vec<Param<'c>>],
    ) -> BoxFuture<'c, Result<Outcome>> {
        Box::pin(async move {
            if self.is(Fault::BatchGoesOnAfterError) {
                let mut answer = Ok(Outcome::default());
                for set in sets {
                    let done = self.inner().run(Request::new(sql, set)).await;
                    answer = answer.and(done);
                }
                return answer;
            }
            let done = self.inner().run_batch(sql, sets).await;
            done.map(|mut done| {
                if self.is(Fault::BatchCountsTheLastSetOnly) {
                    done.rows_affected = done.rows_affected.min(1);
                }
                done
            })
        })
    }

    fn prepare<'c>(&'c mut self, sql: &'c str) -> BoxFuture<'c, Result<Prepared>> {
        Box::pin(async move {
            let prepared = self.inner().prepare(sql).await;
            if self.is(Fault::PrepareRuns) {
                let row = [Value::Int(1), Value::from("1")].map(Param::Value);
                let _ = self.inner().run(Request::new(sql, &row)).await;
            }
            prepared
        })
    }

    fn start_stream<'c>(&'c mut self, request: Request<'c>) -> BoxFuture<'c, Result<Arc<Columns>>> {
        self.inner().start_stream(request)
    }

    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Batch>>> {
        let polled = self.inner().poll_batch(cx);
        let lost = self.is(Fault::StreamLosesItsLastRows);
        match polled {
            Poll::Ready(Ok(Some(batch))) if lost && batch.len() == 1 => self.inner().poll_batch(cx),
            polled => polled,
        }
    }

    fn end_stream(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            if self.is(Fault::EndOfStreamIsForgotten) {
                return Ok(());
            }
            self.inner().end_stream().await?;
            if self.is(Fault::EndOfStreamRollsBack) {
                self.inner().rollback().await?;
            }
            Ok(())
        })
    }

    fn begin_with<'c>(
        &'c mut self,
        begin: &'c Begin,
        first: Option<Request<'c>>,
    ) -> BoxFuture<'c, Result<Outcome>> {
        Box::pin(async move {
            let mut begin = *begin;
            begin.read_only &= !self.is(Fault::BeginForgetsReadOnly);
            let first = first.filter(|_| !self.is(Fault::BeginForgetsTheFirstStatement));
            let begun = self.inner().begin_with(&begin, first).await;
            self.in_transaction = true;
            begun
        })
    }

    fn commit(&mut self) -> BoxFuture<'_, Result<CommitOutcome>> {
        Box::pin(async move {
            self.in_transaction = false;
            if self.is(Fault::CommitRollsBack) {
                self.inner().rollback().await?;
                return Ok(CommitOutcome::Committed);
            }
            let outcome = self.inner().commit().await?;
            Ok(match self.fault {
                Fault::CommitOfFailedTransactionIsFine => CommitOutcome::Committed,
                _ => outcome,
            })
        })
    }

    fn rollback(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.in_transaction = false;
            match self.fault {
                Fault::RollbackCommits => {
                    let _ = self.inner().commit().await;
                    Ok(())
                }
                Fault::RollbackNeedsTransaction => {
                    let rollback = Request::new("ROLLBACK", &[]);
                    self.inner().run(rollback).await.map(drop)
                }
                _ => self.inner().rollback().await,
            }
        })
    }

    fn savepoint<'c>(&'c mut self, step: Savepoint<'c>) -> BoxFuture<'c, Result<()>> {
        let step = match (self.fault, step) {
            (Fault::SavepointsAreIgnored, _) => return Box::pin(async { Ok(()) }),
            (Fault::ReleasedInsteadOfRolledBack, Savepoint::RollBack(name)) => {
                Savepoint::Release(name)
            }
            (_, step) => step,
        };
        self.inner().savepoint(step)
    }

    fn status(&self) -> Status {
        let inner = self.inner.as_deref().expect("it is open");
        match self.fault {
            Fault::StatusIsAlwaysIdle => Status::Idle,
            Fault::StatusKnowsOnlyItsOwnBegins if self.in_transaction => Status::InTransaction,
            Fault::StatusKnowsOnlyItsOwnBegins => Status::Idle,
            _ if self.status_is_lost => Status::Unknown,
            _ => inner.status(),
        }
    }

    fn is_broken(&self) -> bool {
        self.is_broken
    }

    fn probe(&mut self, _rested: Duration) {
        self.is_broken = self.is(Fault::ProbeBreaks);
    }

    fn settle(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.inner().settle().await?;
            self.status_is_lost = self.is(Fault::SettleLosesTheStatus);
            if self.is(Fault::SettleRollsBack) {
                self.inner().rollback().await?;
            }
            if self.is(Fault::SettleBreaks) {
                self.is_broken = true;
                return Err(Error::new(Kind::ConnectionLost, "it was dropped"));
            }
            Ok(())
        })
    }

    fn ping(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            if self.is(Fault::PingCommits) {
                let _ = self.inner().commit().await;
            }
            self.inner().ping().await
        })
    }

    fn reset(&mut self) -> BoxFuture<'_, Result<Reset>> {
        Box::pin(async move {
            if self.is(Fault::ResetForgetsRows) {
                self.silently("DELETE FROM cenote_suite").await;
            }
            self.inner().reset().await
        })
    }

    fn close(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            if self.is(Fault::CloseCommits) {
                let _ = self.inner().commit().await;
            }
            let inner = self.inner.take();
            inner.expect("it is open").close().await
        })
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

fn subject(fault: Fault) -> Subject {
    let fake = Fake::new();
    fake.poll_pending(1);
    fake.dropped_calls(DroppedCalls::Executed);
    fake.errors_fail_transactions(fault == Fault::CommitOfFailedTransactionIsFine);
    match fault {
        Fault::StreamIsOneBatch => fake.batch_rows(usize::MAX),
        // So that the last batch has but one of the suite's 2000 rows.
        Fault::StreamLosesItsLastRows => fake.batch_rows(1999),
        _ => {}
    }
    let inner = fake.driver();
    Subject::new(
        FaultyDriver { inner, fault },
        "faulty:user=ada;password=secret",
    )
    .expect("the DSN is right")
    .sql(|sql| {
        sql.syntax_error = Some("FAIL 42601".into());
        sql.undefined_table = Some("FAIL 42P01".into());
        sql.add_column = None;
        sql.temporary_table = None;
    })
}

/// The promise is kept by a driver with nothing wrong, and broken by one with that fault.
macro_rules! caught {
    ($($name:ident: $fault:ident breaks $promise:ident;)*) => {$(
        #[test]
        fn $name() {
            let sound = subject(Fault::None);
            block_on(suite::in_time(suite::$promise(&sound)));
            let faulty = subject(Fault::$fault);
            let promise = || block_on(suite::in_time(suite::$promise(&faulty)));
            let caught = catch_unwind(AssertUnwindSafe(promise));
            assert!(caught.is_err(), "{:?} was not caught", Fault::$fault);
        }
    )*};
}

caught! {
    a_status_that_never_changes_is_caught:
        StatusIsAlwaysIdle breaks the_status_follows_begin_commit_and_rollback;
    a_status_that_is_reckoned_and_not_told_is_caught:
        StatusKnowsOnlyItsOwnBegins breaks transaction_control_in_a_text_is_seen;
    a_status_that_an_error_takes_away_is_caught:
        StatusIsLostWithAnError breaks a_failed_statement_leaves_the_status_known;
    a_status_that_is_lost_with_the_first_statement_is_caught:
        StatusIsAlwaysIdle breaks a_begin_whose_first_statement_fails_leaves_the_status_known;
    a_first_statement_that_is_not_run_is_caught:
        BeginForgetsTheFirstStatement breaks a_transaction_begins_with_its_first_statement;
    a_read_only_transaction_that_writes_is_caught:
        BeginForgetsReadOnly breaks a_read_only_transaction_writes_nothing;
    a_commit_that_keeps_nothing_is_caught: CommitRollsBack breaks a_commit_keeps;
    a_commit_that_does_not_say_that_it_rolled_back_is_caught:
        CommitOfFailedTransactionIsFine breaks a_failed_statement_leaves_the_status_known;
    a_rollback_that_undoes_nothing_is_caught: RollbackCommits breaks a_rollback_undoes;
    a_rollback_that_fails_without_a_transaction_is_caught:
        RollbackNeedsTransaction breaks a_rollback_without_a_transaction_is_fine;
    savepoints_that_do_nothing_are_caught: SavepointsAreIgnored breaks savepoints_nest;
    a_savepoint_that_is_released_and_not_gone_back_to_is_caught:
        ReleasedInsteadOfRolledBack breaks a_savepoint_that_was_rolled_back_can_be_set_again;
    a_failed_transaction_that_is_not_healed_is_caught:
        SavepointsAreIgnored breaks going_back_to_a_savepoint_heals_a_failed_transaction;
    a_close_that_commits_is_caught: CloseCommits breaks closing_a_connection_rolls_back;
    rows_of_a_dropped_query_are_caught:
        RowsOfDroppedQueryComeNext breaks a_dropped_query_leaves_no_rows;
    an_error_of_a_dropped_query_is_caught:
        ErrorOfDroppedQueryComesNext breaks the_error_of_a_dropped_call_is_discarded;
    a_settle_that_does_not_learn_the_status_is_caught:
        SettleLosesTheStatus breaks a_dropped_begin_leaves_the_status_known;
    a_settle_that_costs_the_connection_is_caught:
        SettleBreaks breaks a_dropped_run_leaves_nothing_but_its_effect;
    a_settle_that_undoes_is_caught: SettleRollsBack breaks settling_nothing_is_fine;
    a_settle_that_undoes_the_transaction_of_a_savepoint_is_caught:
        SettleRollsBack breaks a_dropped_savepoint_leaves_the_transaction_usable;
    a_stream_that_goes_on_after_its_end_is_caught:
        EndOfStreamIsForgotten breaks a_stream_that_is_ended_early_leaves_no_rows;
    a_key_error_without_its_violation_is_caught:
        ErrorsHaveNoViolation breaks a_broken_key_is_a_unique_violation;
    a_null_error_without_its_violation_is_caught:
        ErrorsHaveNoViolation breaks a_missing_value_is_a_not_null_violation;
    a_syntax_error_without_its_violation_is_caught:
        ErrorsHaveNoViolation breaks a_syntax_error_is_reported;
    an_undefined_table_without_its_violation_is_caught:
        ErrorsHaveNoViolation breaks an_undefined_table_is_reported;
    parameters_that_are_made_to_fit_are_caught:
        ParametersAreMadeToFit breaks the_wrong_number_of_parameters_is_refused;
    a_text_that_is_trimmed_is_caught: TextsAreTrimmed breaks every_value_comes_back_as_it_was_sent;
    a_null_that_becomes_an_empty_text_is_caught:
        NullIsEmpty breaks null_comes_back_from_a_column_of_every_type;
    a_text_that_is_cut_is_caught:
        TextsAreCutAt64KiB breaks a_large_text_and_large_bytes_come_back_whole;
    rows_that_are_not_counted_are_caught: NothingIsAffected breaks affected_rows_are_counted;
    rows_that_come_unasked_are_caught:
        RowsComeUnasked breaks rows_that_are_not_wanted_are_not_given;
    an_empty_result_without_columns_is_caught:
        EmptyResultHasNoRows breaks an_empty_result_has_its_columns;
    a_batch_that_goes_on_is_caught: BatchGoesOnAfterError breaks a_batch_stops_at_the_first_error;
    a_batch_that_counts_wrong_is_caught:
        BatchCountsTheLastSetOnly breaks a_batch_adds_up_its_affected_rows;
    a_prepare_that_runs_is_caught: PrepareRuns breaks prepare_returns_parameters_and_columns;
    a_script_that_goes_on_is_caught:
        ScriptGoesOnAfterError breaks a_script_stops_at_the_first_error;
    a_stream_that_loses_rows_is_caught:
        StreamLosesItsLastRows breaks a_stream_gives_all_rows_in_order_and_in_batches;
    a_stream_that_keeps_everything_ready_is_caught:
        StreamIsOneBatch breaks a_stream_gives_all_rows_in_order_and_in_batches;
    a_stream_whose_end_hurts_its_transaction_is_caught:
        EndOfStreamRollsBack breaks a_stream_that_is_ended_early_does_not_hurt_its_transaction;
    a_reset_that_forgets_rows_is_caught:
        ResetForgetsRows breaks a_reset_gives_a_new_session_or_asks_for_a_new_connection;
    a_ping_that_commits_is_caught: PingCommits breaks a_ping_is_answered;
    a_probe_that_breaks_is_caught:
        ProbeBreaks breaks a_probe_of_a_healthy_connection_changes_nothing;
    an_option_that_is_dropped_is_caught:
        OptionsAreDropped breaks an_unknown_option_is_an_error_that_names_it;
    a_password_in_the_address_is_caught: AddressHasPassword breaks the_address_holds_no_password;
}
