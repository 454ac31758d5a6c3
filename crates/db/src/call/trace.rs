//! Spans of `tracing`, with the names of OpenTelemetry's semantic conventions: each statement, transaction and acquire.
//!
//! All spans have the target `cenote::span` and the level DEBUG. If nobody listens at that level, a call costs one
//! comparison with the level of the program's subscriber. If somebody does, a statement takes the general way
//! ([`Call::run_traced`](super::Call::run_traced)), where an acquire is a future of its own.
//!
//! A span is entered only while its future is polled or dropped; that of a transaction closure only while it is polled. A future that is dropped before its end closes its
//! span with the outcome `dropped`.

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tracing::field::{Empty, debug};
use tracing::instrument::Instrumented;
use tracing::level_filters::LevelFilter;
use tracing::{Instrument, Span};

use crate::driver::{Outcome, Template};
use crate::pooled::shared::Shared;
use crate::sql::{masked, summary};
use crate::{Error, Result};

/// The target of all spans.
macro_rules! target {
    () => {
        "cenote::span"
    };
}

/// Returns whether somebody may listen to spans.
#[inline]
pub(crate) fn is_on() -> bool {
    LevelFilter::current() >= LevelFilter::DEBUG
}

/// What all spans of a handle say.
#[derive(Debug)]
pub(crate) struct Origin {
    /// The database in the words of OpenTelemetry: `db.system.name`.
    pub(crate) system: &'static str,
    /// Host and port, if the handle has one server.
    server: Option<(String, Option<u16>)>,
    /// Whether spans show the masked text of statements.
    shows_text: bool,
}

impl Origin {
    pub(crate) fn new(driver: &'static str, template: &dyn Template, shows_text: bool) -> Self {
        Origin {
            system: system_name(driver),
            server: template.server(),
            shows_text,
        }
    }

    pub(crate) fn server(&self) -> Option<(&str, Option<u16>)> {
        let (address, port) = self.server.as_ref()?;
        Some((address, *port))
    }
}

/// Returns OpenTelemetry's name for the database of a driver.
fn system_name(driver: &'static str) -> &'static str {
    match driver {
        "postgres" | "pgsql" => "postgresql",
        "odbc" => "other_sql",
        other => other,
    }
}

/// Makes a span with the fields that all spans have, and the fields that are recorded later.
macro_rules! span {
    ($name:literal, $shared:expr, $site:expr, $($later:tt)*) => {{
        let (origin, site): (&Origin, &Location<'_>) = (&$shared.origin, $site);
        let server = origin.server();
        tracing::debug_span!(
            target: target!(),
            $name,
            otel.name = Empty,
            otel.kind = "client",
            otel.status_code = Empty,
            db.system.name = origin.system,
            server.address = server.map(|(address, _)| address),
            server.port = server.and_then(|(_, port)| port),
            code.file.path = site.file(),
            code.line.number = site.line(),
            error.type = Empty,
            db.response.status_code = Empty,
            cenote.outcome = Empty,
            $($later)*
        )
    }};
}

/// Returns the span of a statement; none if nobody listens.
pub(crate) fn statement_span(shared: &Shared, site: &'static Location<'static>, sql: &str) -> Span {
    if !is_on() {
        return Span::none();
    }
    let span = span!(
        "statement",
        shared,
        site,
        db.operation.name = Empty,
        db.query.summary = Empty,
        db.query.text = Empty,
        db.response.returned_rows = Empty,
        cenote.affected_rows = Empty,
    );
    if !span.is_disabled() {
        let summary = summary(shared.dialect, sql);
        if let Some(operation) = summary.operation {
            span.record("db.operation.name", operation);
        }
        match summary.text.is_empty() {
            true => span.record("otel.name", shared.origin.system),
            false => {
                span.record("otel.name", &*summary.text);
                span.record("db.query.summary", &*summary.text)
            }
        };
        if shared.origin.shows_text {
            span.record("db.query.text", &*masked(shared.dialect, sql));
        }
    }
    span
}

/// Puts the acquire of a connection into a span.
pub(crate) fn acquire<T, F: Future<Output = Result<T>>>(
    shared: &Shared,
    site: &'static Location<'static>,
    acquiring: F,
) -> Traced<F> {
    let span = match is_on() {
        true => span!("acquire", shared, site,),
        false => Span::none(),
    };
    span.record("otel.name", "acquire");
    Traced::new(span, acquiring, record_result)
}

/// Returns the span of a transaction; none if nobody listens.
pub(crate) fn transaction_span(shared: &Shared, site: &'static Location<'static>) -> Span {
    let span = match is_on() {
        true => span!("transaction", shared, site,),
        false => Span::none(),
    };
    span.record("otel.name", "transaction");
    span
}

/// Records how a call ended.
pub(crate) fn record_result<T>(span: &Span, done: &Result<T>) {
    match done {
        Ok(_) => {
            span.record("cenote.outcome", "ok");
        }
        Err(error) => record_error(span, error),
    }
}

/// Records the rows of a statement, and how it ended.
pub(crate) fn record_outcome(span: &Span, done: &Result<Outcome>) {
    if let Ok(outcome) = done {
        match &outcome.rows {
            Some(rows) => span.record("db.response.returned_rows", rows.len() as u64),
            None => span.record("cenote.affected_rows", outcome.rows_affected),
        };
    }
    record_result(span, done);
}

/// Records how a batch ended: as its first error, if there is one.
pub(crate) fn record_results<T>(span: &Span, done: &Result<Vec<Result<T>>>) {
    let mut results = done.iter().flatten();
    match results.find_map(|result| result.as_ref().err()) {
        Some(error) => record_error(span, error),
        None => record_result(span, done),
    }
}

#[cold]
pub(crate) fn record_error(span: &Span, error: &Error) {
    span.record("cenote.outcome", "failed");
    span.record("otel.status_code", "ERROR");
    span.record("error.type", debug(error.kind()));
    match (error.sql_state(), error.code()) {
        (Some(state), _) => span.record("db.response.status_code", state),
        (None, Some(code)) => span.record("db.response.status_code", code.to_string().as_str()),
        (None, None) => span,
    };
}

pin_project! {
    /// A future in a span. Dropped before its end, it records that.
    pub(crate) struct Traced<F: Future> {
        #[pin]
        inner: Instrumented<F>,
        record: fn(&Span, &F::Output),
        is_done: bool,
    }

    impl<F: Future> PinnedDrop for Traced<F> {
        fn drop(this: Pin<&mut Self>) {
            if !this.is_done {
                this.inner.span().record("cenote.outcome", "dropped");
            }
        }
    }
}

impl<F: Future> Traced<F> {
    pub(crate) fn new(span: Span, inner: F, record: fn(&Span, &F::Output)) -> Self {
        Traced {
            inner: inner.instrument(span),
            record,
            is_done: false,
        }
    }
}

impl<F: Future> Future for Traced<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        let done = ready!(this.inner.as_mut().poll(cx));
        *this.is_done = true;
        if !this.inner.span().is_none() {
            (this.record)(this.inner.span(), &done);
        }
        Poll::Ready(done)
    }
}

/// The span of something that outlives the future which began it: a stream, or a transaction guard. Dropped, it records
/// the outcome and closes the span.
#[derive(Debug)]
pub(crate) struct OpenSpan(Option<Box<Ending>>);

#[derive(Debug)]
struct Ending {
    span: Span,
    outcome: &'static str,
    rows: Option<u64>,
    is_recorded: bool,
}

impl OpenSpan {
    pub(crate) fn new(span: &Span) -> Self {
        OpenSpan((!span.is_none()).then(|| {
            Box::new(Ending {
                span: span.clone(),
                outcome: "dropped",
                rows: None,
                is_recorded: false,
            })
        }))
    }

    /// Returns no span.
    pub(crate) fn none() -> Self {
        OpenSpan(None)
    }

    /// Drops the span without an outcome, because the future that began it has recorded one.
    pub(crate) fn forget(self) {
        if let Some(mut ending) = self.0 {
            ending.is_recorded = true;
        }
    }

    /// Counts a row that was read.
    #[inline]
    pub(crate) fn count_row(&mut self) {
        if let Some(ending) = &mut self.0 {
            ending.rows = Some(ending.rows.unwrap_or(0) + 1);
        }
    }

    /// Closes the span.
    pub(crate) fn end(&mut self, done: Result<&'static str, &Error>) {
        if let Some(mut ending) = self.0.take() {
            match done {
                Ok(outcome) => ending.outcome = outcome,
                Err(error) => {
                    record_error(&ending.span, error);
                    ending.is_recorded = true;
                }
            }
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if !self.is_recorded {
            self.span.record("cenote.outcome", self.outcome);
        }
        if let Some(rows) = self.rows {
            self.span.record("db.response.returned_rows", rows);
        }
    }
}
