//! What a call gathers from the server's answer, message by message.
//!
//! No I/O here: an [`Answer`] is given one message after the other, whatever stands in it.

use std::sync::Arc;

use postgres_types::Oid;

use super::super::error;
use super::super::known_type::KnownType;
use super::super::session::Misread;
use super::super::types::{Layout, push_row};
use super::message::{self, Report, Tag};
use crate::driver::{Batch, BatchBuilder, Outcome};
use crate::{Error, Result};

/// What a call has gathered so far.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// Nobody wants to know.
    is_waste: bool,
    /// Rows are wanted.
    wants_rows: bool,
    /// Affected rows are added up over all commands; else the last one's count.
    adds_up: bool,
    /// Every column comes as text, whatever the layout says.
    pub(crate) all_text: bool,
    /// What the rows look like that come now.
    pub(crate) layout: Option<Arc<Layout>>,
    rows: Option<BatchBuilder>,
    affected: u64,
    /// The results that are complete, if all of them are wanted and not only the last.
    each: Option<Vec<Finished>>,
    /// A RowDescription was read, or that there is none.
    pub(crate) described: bool,
    /// The types of the parameters, if they were told.
    pub(crate) params: Option<Vec<Oid>>,
    /// The server has parsed so many statements.
    pub(crate) parsed: u32,
    /// The server has bound it so many times, and may have run it as often.
    pub(crate) bound: u32,
    /// There are more rows than were asked for.
    pub(crate) suspended: bool,
    /// A command is complete.
    pub(crate) complete: bool,
    /// The last command was COMMIT.
    pub(crate) committed: bool,
    /// One of the commands was ROLLBACK: what a COMMIT comes to after an error.
    pub(crate) rolled_back: bool,
    /// Commands whose tags tell nothing: a BEGIN that goes before.
    skip: u32,
    /// What the server refused first.
    pub(crate) report: Option<Box<Report>>,
    /// What was wrong on our side; less than what the server says.
    pub(crate) wrong: Option<Error>,
}

/// A complete result of a script.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) layout: Arc<Layout>,
    pub(crate) outcome: Outcome,
}

/// What to do if prepared statements are not where they were left.
const LOST_STATEMENTS: &str = "if a pooler such as PgBouncer gives each transaction another \
                               session, set the statement cache to 0 (statement_cache)";

/// What is to be done about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// To read on.
    Read,
    /// To tell the server that no data will come.
    FailCopy,
    /// The server says what it cannot mean.
    Garbage(&'static str),
}

impl Answer {
    /// For rows that are told by their description; all of it as text.
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

    /// For what nobody wants to know any more.
    pub(crate) fn waste() -> Self {
        Answer {
            is_waste: true,
            ..Answer::default()
        }
    }

    /// For rows of this layout, in the form that it asks for.
    pub(crate) fn of(layout: &Arc<Layout>, wants_rows: bool) -> Self {
        Answer {
            wants_rows,
            layout: Some(Arc::clone(layout)),
            ..Answer::default()
        }
    }

    /// With the affected rows of all commands added up.
    pub(crate) fn adding_up(mut self) -> Self {
        self.adds_up = true;
        self
    }

    /// With so many commands before it that nobody asked for.
    pub(crate) fn after(mut self, skip: u32) -> Self {
        self.skip = skip;
        self
    }

    /// Takes a message that is no row, no end of a command, and none of those that may come at
    /// any time.
    pub(crate) fn take(
        &mut self,
        tag: u8,
        body: &[u8],
        known: impl Fn(Oid) -> Option<Arc<KnownType>>,
    ) -> Next {
        match tag {
            // A BEGIN that goes before is bound as well.
            b'2' => self.bound += u32::from(self.skip == 0),
            b'1' => self.parsed += 1,
            b'T' => {
                let Some(fields) = message::fields(body) else {
                    return Next::Garbage("a row description cannot be read");
                };
                self.describe(Layout::new(&fields, known));
            }
            b'n' => self.describe(Layout::empty()),
            b't' => match message::parameter_types(body) {
                Some(types) => self.params = Some(types),
                None => return Next::Garbage("a parameter description cannot be read"),
            },
            b's' => self.suspended = true,
            // An empty query.
            b'I' => self.complete = true,
            b'3' | b'd' | b'c' => {}
            b'E' => match Report::read(body) {
                Some(report) => {
                    self.report.get_or_insert_with(|| Box::new(report));
                }
                None => return Next::Garbage("an error cannot be read"),
            },
            b'H' => {
                self.wrong.get_or_insert_with(error::no_copy);
            }
            b'G' => {
                self.wrong.get_or_insert_with(error::no_copy);
                return Next::FailCopy;
            }
            _ => return Next::Garbage("a message has a tag that nobody knows"),
        }
        Next::Read
    }

    fn describe(&mut self, layout: Arc<Layout>) {
        self.described = true;
        self.rows = None;
        self.layout = Some(layout);
        self.complete = false;
    }

    /// Takes a DataRow.
    pub(crate) fn row(&mut self, body: &[u8]) -> Next {
        if self.is_waste {
            return Next::Read;
        }
        let Some(layout) = &self.layout else {
            return Next::Garbage("a row came without a description");
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
                // The rest is thrown away.
                self.wrong.get_or_insert(wrong);
                self.rows = None;
            }
            None => return Next::Garbage("a row is not what was announced"),
        }
        Next::Read
    }

    /// Takes a CommandComplete.
    pub(crate) fn command_complete(&mut self, tag: Tag<'_>) {
        if let Some(skip) = self.skip.checked_sub(1) {
            self.skip = skip;
            return;
        }
        if self.complete && !self.adds_up {
            // Of a script the last statement counts, and this one has no rows.
            self.rows = None;
            self.layout = None;
        }
        self.complete = true;
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

    /// How many rows wait to be taken, and how many bytes they have.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        self.rows
            .as_ref()
            .map_or((0, 0), |rows| (rows.rows(), rows.bytes()))
    }

    /// Takes the rows that have come so far.
    pub(crate) fn take_rows(&mut self) -> Option<Batch> {
        self.rows.take().map(BatchBuilder::finish)
    }

    /// Says what the server could not know: that there were too many or too few parameters, or
    /// that a statement that we gave a name to got lost on the way.
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
            // Once it was bound, it was there: then the error is about another statement.
            "26000" | "42P05" if !name.is_empty() && self.bound == 0 => {
                report
                    .hint
                    .get_or_insert_with(|| LOST_STATEMENTS.to_owned());
            }
            _ => {}
        }
    }

    /// The answer ends in a session in which values are misread: rows of this answer may have been, and so may the
    /// values of later sets of a batch.
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

    /// What went wrong, if something did: the server's word first.
    pub(crate) fn error(&mut self) -> Option<Error> {
        let report = self.report.take().map(|report| error::from_report(*report));
        report.or_else(|| self.wrong.take())
    }

    /// The layout of the rows, if there are types in it that are not known.
    pub(crate) fn unknown_types(&self) -> Option<Arc<Layout>> {
        let layout = self.layout.as_ref().filter(|_| self.wants_rows)?;
        (!layout.unknown.is_empty()).then(|| Arc::clone(layout))
    }

    /// Nothing went wrong.
    pub(crate) fn is_fine(&self) -> bool {
        self.report.is_none() && self.wrong.is_none()
    }

    /// What came of it.
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
        fn hostile_messages_in_any_order_are_taken_or_called_garbage(
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
    fn a_row_before_its_description_is_garbage() {
        let mut answer = Answer::new(true);
        assert!(matches!(answer.row(&[0, 0]), Next::Garbage(_)));
    }
}
