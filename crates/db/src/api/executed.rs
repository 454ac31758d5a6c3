//! What came of a statement that was executed.

use crate::driver::Outcome;

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

impl Executed {
    /// Without the rows, if there are any.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "what it has of rows goes with it"
    )]
    pub(crate) fn of(outcome: Outcome) -> Self {
        Executed {
            rows_affected: outcome.affected,
            last_insert_id: outcome.last_insert_id,
            warnings: outcome.warnings,
        }
    }
}
