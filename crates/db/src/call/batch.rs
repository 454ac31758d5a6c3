//! Runs several statements of one task, each with its own result, in one round trip where the driver can.

use super::many::size;
use super::op::{Op, RunPipeline};
use super::trace::{self, Traced};
use super::{Call, Given, Hold, Text};
use crate::driver::Outcome;
use crate::sql::{Class, Keyword, Resolved, Statements};
use crate::{Error, Kind, Result};

/// A batch has at most this many statements …
pub(crate) const MOST_STATEMENTS: usize = 1024;

/// … and this many bytes of texts and parameters.
pub(crate) const MOST_BYTES: usize = 16 * 1024 * 1024;

/// A statement of a batch, as the program gave it.
pub(crate) struct Statement<'a> {
    pub(crate) sql: &'a str,
    pub(crate) params: Given<'a>,
    pub(crate) wants_rows: bool,
}

impl<'a> Call<'a> {
    /// Runs the statements and returns the result of each.
    ///
    /// # Errors
    ///
    /// Nothing has run, or the connection was lost before the first answer.
    pub(crate) async fn run_statements(
        &self,
        statements: Vec<Statement<'a>>,
    ) -> Result<Vec<Result<Outcome>>> {
        // Before the texts are copied.
        let texts = statements.iter().map(|statement| statement.sql.len());
        if let Err(large) = check_count(statements.len()).and_then(|()| check_bytes(texts.sum())) {
            self.note(Some(&large));
            return Err(large);
        }
        let all = joined(&statements);
        let span = trace::statement_span(self.shared(), self.site, &all);
        let run = self.run_in_pipeline(statements, &all);
        let done = Box::pin(Traced::new(span, run, trace::record_results)).await;
        match &done {
            Ok(results) => self.note(results.iter().find_map(|it| it.as_ref().err())),
            Err(error) => self.note(Some(error)),
        }
        done
    }

    async fn run_in_pipeline(
        &self,
        statements: Vec<Statement<'a>>,
        all: &str,
    ) -> Result<Vec<Result<Outcome>>> {
        let mut texts = Vec::with_capacity(statements.len());
        let mut bytes = 0;
        for statement in statements {
            let (sql, wants_rows) = (statement.sql, statement.wants_rows);
            let text = self.text(sql, statement.params);
            let text = text.and_then(|text| refuse_control(text.class()).map(|()| text));
            let text = text.map_err(|wrong| self.named(Some(sql), wrong))?;
            bytes += sql.len() + text.params.iter().map(size).sum::<usize>();
            texts.push((text, wants_rows));
        }
        check_bytes(bytes)?;
        let Some(class) = class_of_all(&texts) else {
            return Ok(Vec::new());
        };
        let requests = texts
            .iter()
            .map(|(text, wants_rows)| text.request(self, *wants_rows));
        let mut op = RunPipeline {
            requests: requests.collect(),
            stops_at_error: false,
            sql: all,
        };
        let mut results = self.send_statements(&class, &mut op).await?;
        // The results end with the error that stopped the batch.
        let stopped = results.last().and_then(|it| it.as_ref().err()).cloned();
        let in_transaction = op.stops_at_error;
        results.resize_with(texts.len(), || {
            Err(not_run(stopped.clone(), in_transaction))
        });
        for (result, (text, _)) in results.iter_mut().zip(&texts) {
            if let Err(error) = result {
                text.scan.relocate(error);
                self.explain(Some(text.sql()), error);
            }
        }
        Ok(results)
    }

    /// Sends the statements to the connection that they have to run on.
    ///
    /// # Cancel safety
    ///
    /// As [`send`](Call::send).
    async fn send_statements(
        &self,
        class: &Class,
        op: &mut RunPipeline<'_>,
    ) -> Result<Vec<Result<Outcome>>> {
        let mut route = self
            .route(class)
            .await
            .map_err(|error| self.named(None, error))?;
        // A call that may be repeated is in no transaction, here or there.
        op.stops_at_error = route.is_in_transaction();
        let answer = route.send(op, class, self).await;
        let (mut route, answer) = self
            .repeat_if_lost(Hold::Call, class, op, route, answer)
            .await?;
        let results = answer.iter().flatten();
        let mut errors = results.filter_map(|result| result.as_ref().err());
        let succeeded = answer.is_ok() && errors.clone().next().is_none();
        let connection = route.connection();
        if connection.is_broken()
            && let Some(lost) = errors.find(|error| error.is_connection_lost())
        {
            connection.note_error();
            let took = connection.in_use_for();
            // Some were answered, so nothing is repeated: this reports the loss to the pool.
            self.may_repeat(class, lost, took);
        }
        let answer = answer.map_err(|error| self.named(Some(op.sql()), error));
        route
            .finish_as(succeeded, class, self.shared(), self.site, answer)
            .await
    }
}

/// Returns the class of all statements together; `None` if there are none.
fn class_of_all(texts: &[(Text<'_>, bool)]) -> Option<Class> {
    let (first, _) = texts.first()?;
    let mut all = *first.class();
    for (text, _) in &texts[1..] {
        let class = text.class();
        all.touches_session |= class.touches_session;
        all.survives_reset |= class.survives_reset;
        all.reads_only &= class.reads_only;
        all.pure_read &= class.pure_read;
        all.verb = None;
        all.insert = None;
        all.upserts |= class.upserts;
        all.resolved = Resolved::NOTHING;
    }
    Some(all)
}

/// Returns the texts of all statements, for logs and spans.
fn joined(statements: &[Statement<'_>]) -> String {
    let texts: Vec<&str> = statements.iter().map(|statement| statement.sql).collect();
    texts.join("; ")
}

fn refuse_control(class: &Class) -> Result<()> {
    let message = match class {
        _ if class.statements == Statements::Several => {
            "a statement of a batch is a script: add its statements one by one"
        }
        _ if class.contains_transaction_control
            || class.transaction.is_some()
            || prepares_transaction(class) =>
        {
            "a batch takes no transaction control: run the batch in db.transaction(..)"
        }
        _ if class.only_session => {
            "a batch takes no statement that only changes the session: run it by itself, with exec"
        }
        _ => return Ok(()),
    };
    Err(Error::new(Kind::Unsupported, message))
}

/// Whether the text is PREPARE TRANSACTION, which ends the transaction. Other texts with PREPARE only change the session.
fn prepares_transaction(class: &Class) -> bool {
    class.verb == Some(Keyword::Prepare) && !class.only_session
}

fn check_count(count: usize) -> Result<()> {
    if count <= MOST_STATEMENTS {
        return Ok(());
    }
    let message = format!(
        "the batch has {count} statements, and at most {MOST_STATEMENTS} are allowed: run several batches, or \
         exec_many for one statement with many sets of parameters"
    );
    Err(Error::new(Kind::Parameters, message))
}

fn check_bytes(bytes: usize) -> Result<()> {
    if bytes <= MOST_BYTES {
        return Ok(());
    }
    let message = format!(
        "the statements of the batch and their parameters have {bytes} bytes, and at most {MOST_BYTES} are allowed: \
         run several batches"
    );
    Err(Error::new(Kind::Parameters, message))
}

/// Returns the error of a statement behind the one that stopped the batch.
fn not_run(stopped: Option<Error>, in_transaction: bool) -> Error {
    let why = match (&stopped, in_transaction) {
        (Some(lost), _) if lost.is_connection_lost() => "the connection was lost before",
        (Some(_), _) => "one before it in the batch failed",
        (None, true) => "one before it in the batch ended the transaction",
        (None, false) => "one before it in the batch began a transaction",
    };
    let error = Error::new(
        Kind::NotRun,
        format!("the statement did not run, because {why}"),
    );
    match stopped {
        Some(cause) => error.because(cause),
        None => error,
    }
}
