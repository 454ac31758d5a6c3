//! Collects the server's answer to a call, message by message.

use std::sync::Arc;

use postgres_types::Oid;

use super::super::error;
use super::super::known_type::KnownType;
use super::super::session::Misread;
use super::super::types::{Layout, push_row};
use super::message::{self, Report, Tag};
use crate::driver::{Batch, BatchBuilder, Outcome};
use crate::{Error, Result};

/// What has arrived so far of an answer.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// The answer is discarded: its call was dropped.
    is_waste: bool,
    /// The caller wants the rows.
    wants_rows: bool,
    /// Affected rows are the sum over all commands, not the last command's.
    adds_up: bool,
    /// Every column is text, whatever the layout says.
    pub(crate) all_text: bool,
    /// The layout of the rows.
    pub(crate) layout: Option<Arc<Layout>>,
    rows: Option<BatchBuilder>,
    affected: u64,
    /// The results that are complete, if all of them are wanted and not only the last.
    each: Option<Vec<Finished>>,
    /// A RowDescription or NoData has arrived.
    pub(crate) described: bool,
    /// The parameter types, if the server described them.
    pub(crate) params: Option<Vec<Oid>>,
    /// The number of statements that the server has parsed.
    pub(crate) parsed: u32,
    /// How often the server has bound the statement, and may have run it.
    pub(crate) bound: u32,
    /// The portal has more rows than were requested.
    pub(crate) suspended: bool,
    /// What the caller does with a COPY.
    copy: CopyMode,
    /// The COPY has begun.
    pub(crate) has_copy_begun: bool,
    /// The data of a COPY TO STDOUT that nobody has taken yet.
    data: Vec<u8>,
    /// A command is complete.
    pub(crate) complete: bool,
    /// The number of commands that are complete, without skipped ones.
    pub(crate) completed: u64,
    /// The last command was COMMIT.
    pub(crate) committed: bool,
    /// One of the commands was ROLLBACK: the result of COMMIT in a failed transaction.
    pub(crate) rolled_back: bool,
    /// The number of leading commands whose tags do not count: a BEGIN of the layer.
    skip: u32,
    /// The server's first error.
    pub(crate) report: Option<Box<Report>>,
    /// An error of the client; the server's error takes precedence.
    pub(crate) wrong: Option<Error>,
}

/// What the caller of a statement does with a COPY from or to the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CopyMode {
    /// Refuses it.
    #[default]
    Refuse,
    /// Sends data.
    In,
    /// Takes data.
    Out,
}

/// A complete result of a script.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) layout: Arc<Layout>,
    pub(crate) outcome: Outcome,
}

/// The remedy if a pooler has lost prepared statements.
const LOST_STATEMENTS: &str = "if a pooler such as PgBouncer gives each transaction another \
                               session, set the statement cache to 0 (statement_cache)";

/// What the caller does after a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Reads on.
    Read,
    /// Tells the server that the COPY gets no data.
    FailCopy,
    /// Closes the connection: the server violates the protocol.
    Garbage(&'static str),
}

impl Answer {
    /// Expects a row description, and all values as text.
    pub(crate) fn new(wants_rows: bool) -> Self {
        Answer {
            wants_rows,
            all_text: true,
            ..Answer::default()
        }
    }

    /// For every result of a script.
    pub(crate) fn of_each() -> Self {
        Answer {
            each: Some(Vec::new()),
            ..Answer::new(true)
        }
    }

    /// For a COPY.
    pub(crate) fn of_copy(mode: CopyMode) -> Self {
        Answer {
            copy: mode,
            ..Answer::new(false)
        }
    }

    /// Discards everything.
    pub(crate) fn waste() -> Self {
        Answer {
            is_waste: true,
            ..Answer::default()
        }
    }

    /// Expects rows of this layout, in its formats.
    pub(crate) fn of(layout: &Arc<Layout>, wants_rows: bool) -> Self {
        Answer {
            wants_rows,
            layout: Some(Arc::clone(layout)),
            ..Answer::default()
        }
    }

    /// Sums the affected rows of all commands.
    pub(crate) fn adding_up(mut self) -> Self {
        self.adds_up = true;
        self
    }

    /// Skips the tags of this many leading commands.
    pub(crate) fn after(mut self, skip: u32) -> Self {
        self.skip = skip;
        self
    }

    /// Processes a message other than a row, a command tag, and those that may arrive at any time.
    pub(crate) fn take(
        &mut self,
        tag: u8,
        body: &[u8],
        known: impl Fn(Oid) -> Option<Arc<KnownType>>,
    ) -> Next {
        match tag {
            // A leading BEGIN is bound, too.
            b'2' => self.bound += u32::from(self.skip == 0),
            b'1' => self.parsed += 1,
            b'T' => {
                let Some(fields) = message::fields(body) else {
                    return Next::Garbage("a malformed row description");
                };
                self.describe(Layout::new(&fields, known));
            }
            b'n' => self.describe(Layout::empty()),
            b't' => match message::parameter_types(body) {
                Some(types) => self.params = Some(types),
                None => return Next::Garbage("a malformed parameter description"),
            },
            b's' => self.suspended = true,
            // An empty query.
            b'I' => self.complete = true,
            b'd' if self.copy == CopyMode::Out => {
                if !self.has_copy_begun {
                    return Next::Garbage("data before its COPY has begun");
                }
                self.data.extend_from_slice(body);
            }
            b'3' | b'd' | b'c' => {}
            b'E' => match Report::read(body) {
                Some(report) => {
                    self.report.get_or_insert_with(|| Box::new(report));
                }
                None => return Next::Garbage("a malformed error message"),
            },
            b'H' if self.copy == CopyMode::Out && !self.has_copy_begun => {
                self.has_copy_begun = true;
            }
            b'G' if self.copy == CopyMode::In && !self.has_copy_begun => {
                self.has_copy_begun = true;
            }
            b'H' => {
                self.wrong.get_or_insert_with(error::no_copy);
            }
            b'G' => {
                self.wrong.get_or_insert_with(error::no_copy);
                return Next::FailCopy;
            }
            _ => return Next::Garbage("a message with an unknown tag"),
        }
        Next::Read
    }

    /// Keeps the values of the described columns as the server writes them.
    pub(crate) fn keep_text(&mut self) {
        if let Some(layout) = &self.layout {
            self.layout = Some(layout.to_text());
        }
    }

    fn describe(&mut self, layout: Arc<Layout>) {
        self.described = true;
        self.rows = None;
        self.layout = Some(layout);
        self.complete = false;
    }

    /// Processes a DataRow.
    pub(crate) fn row(&mut self, body: &[u8]) -> Next {
        if self.is_waste {
            return Next::Read;
        }
        let Some(layout) = &self.layout else {
            return Next::Garbage("a row without a description");
        };
        if !self.wants_rows || self.wrong.is_some() {
            return Next::Read;
        }
        let rows = match &mut self.rows {
            Some(rows) => rows,
            none => {
                let rows = none.insert(BatchBuilder::new(Arc::clone(&layout.columns)));
                rows.make_room(1, body.len());
                rows
            }
        };
        match push_row(rows, layout, self.all_text, body) {
            Some(Ok(())) => {}
            Some(Err(wrong)) => {
                // The remaining rows are discarded.
                self.wrong.get_or_insert(wrong);
                self.rows = None;
            }
            None => return Next::Garbage("a row that does not match its description"),
        }
        Next::Read
    }

    /// Processes a CommandComplete.
    pub(crate) fn command_complete(&mut self, tag: Tag<'_>) {
        if let Some(skip) = self.skip.checked_sub(1) {
            self.skip = skip;
            return;
        }
        if self.complete && !self.adds_up {
            // The result of a script is that of its last statement, and this one has no rows.
            self.rows = None;
            self.layout = None;
        }
        self.complete = true;
        self.completed += 1;
        self.committed = tag.is("COMMIT");
        self.rolled_back |= tag.is("ROLLBACK");
        let affected = tag.affected();
        self.affected = match self.adds_up {
            true => self.affected.saturating_add(affected),
            false => affected,
        };
        if self.each.is_some() {
            self.finish_result();
        }
    }

    #[cold]
    fn finish_result(&mut self) {
        let layout = self.layout.take().unwrap_or_else(Layout::empty);
        let rows = self.rows.take();
        let rows = rows.unwrap_or_else(|| BatchBuilder::new(Arc::clone(&layout.columns)));
        let outcome = Outcome {
            rows: Some(rows.finish()),
            rows_affected: std::mem::take(&mut self.affected),
            ..Outcome::default()
        };
        self.each
            .get_or_insert_default()
            .push(Finished { layout, outcome });
    }

    /// Returns every result of a script.
    pub(crate) fn finished(&mut self) -> Result<Vec<Finished>> {
        match self.error() {
            Some(error) => Err(error),
            None => Ok(self.each.take().unwrap_or_default()),
        }
    }

    /// Returns the number of bytes of a COPY TO STDOUT that nobody has taken yet.
    pub(crate) fn copied(&self) -> usize {
        self.data.len()
    }

    /// Takes the data of a COPY TO STDOUT: whole messages, as the server sent them.
    pub(crate) fn take_copied(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.data)
    }

    /// Returns the number of rows that the commands changed.
    pub(crate) fn affected(&self) -> u64 {
        self.affected
    }

    /// Returns the number of collected rows, and their bytes.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        self.rows
            .as_ref()
            .map_or((0, 0), |rows| (rows.rows(), rows.bytes()))
    }

    /// Takes the collected rows.
    pub(crate) fn take_rows(&mut self) -> Option<Batch> {
        self.rows.take().map(BatchBuilder::finish)
    }

    /// Adds what the server cannot know to its error: that the number of parameters is wrong, or that a named
    /// statement was lost by a pooler.
    pub(crate) fn explain(&mut self, given: usize, name: &str) {
        let Some(report) = &mut self.report else {
            return;
        };
        match &*report.state {
            "08P01" => {
                let wanted = self.params.as_ref().map(Vec::len);
                if let Some(wanted) = wanted.filter(|wanted| *wanted != given) {
                    self.wrong = Some(error::wrong_count(wanted, given));
                    self.report = None;
                }
            }
            // A bound statement existed: then the error is about another one.
            "26000" | "42P05" if !name.is_empty() && self.bound == 0 => {
                report
                    .hint
                    .get_or_insert_with(|| LOST_STATEMENTS.to_owned());
            }
            _ => {}
        }
    }

    /// Fails an answer that ends in a session in which texts are misread: its rows and the later parameter sets of a batch
    /// may have been misread.
    #[cold]
    pub(crate) fn distrust(&mut self, misread: Misread) {
        let finished = self.each.iter().flatten().map(|finished| &finished.layout);
        let has_columns = self
            .layout
            .iter()
            .chain(finished)
            .any(|layout| !layout.columns.is_empty());
        if has_columns || self.adds_up {
            self.wrong
                .get_or_insert_with(|| error::misread_answer(misread));
        }
    }

    /// Returns the error, if there is one; the server's takes precedence.
    pub(crate) fn error(&mut self) -> Option<Error> {
        let report = self.report.take().map(|report| error::from_report(*report));
        report.or_else(|| self.wrong.take())
    }

    /// Returns the layout of the rows, if it contains unknown types.
    pub(crate) fn unknown_types(&self) -> Option<Arc<Layout>> {
        let layout = self.layout.as_ref().filter(|_| self.wants_rows)?;
        (!layout.unknown.is_empty()).then(|| Arc::clone(layout))
    }

    /// Whether there is no error.
    pub(crate) fn is_fine(&self) -> bool {
        self.report.is_none() && self.wrong.is_none()
    }

    /// Returns the outcome of the call.
    pub(crate) fn outcome(&mut self, warnings: u64) -> Result<Outcome> {
        if let Some(error) = self.error() {
            return Err(error);
        }
        let rows = match &mut self.rows {
            _ if !self.wants_rows => None,
            Some(rows) => Some(rows.take()),
            None => {
                let layout = self.layout.take().unwrap_or_else(Layout::empty);
                Some(BatchBuilder::new(Arc::clone(&layout.columns)).finish())
            }
        };
        Ok(Outcome {
            rows,
            rows_affected: self.affected,
            last_insert_id: None,
            warnings,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn hostile_messages_are_processed_or_refused(
            messages in prop::collection::vec(
                (prop::sample::select(b"12DCTtnsIEHGdc3Z?".to_vec()), prop::collection::vec(any::<u8>(), 0..60)),
                0..40,
            ),
            wants_rows in any::<bool>(),
        ) {
            let mut answer = Answer::new(wants_rows).after(1);
            for (tag, body) in &messages {
                match tag {
                    b'D' => drop(answer.row(body)),
                    b'C' => Tag::read(body).into_iter().for_each(|tag| answer.command_complete(tag)),
                    tag => drop(answer.take(*tag, body, |_| None)),
                }
            }
            answer.explain(3, "name");
            let _ = answer.outcome(0);
        }
    }

    #[test]
    fn row_before_its_description_is_a_violation() {
        let mut answer = Answer::new(true);
        assert!(matches!(answer.row(&[0, 0]), Next::Garbage(_)));
    }
}
