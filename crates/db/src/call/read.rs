//! Reads the rows of an outcome into what the caller asked for.

use crate::driver::{Batch, Outcome};
use crate::types::row::Row;
use crate::{DeserializeOwned, Error, Kind, Result, from_row};

/// Reads all rows.
pub(crate) fn all<T: DeserializeOwned>(outcome: Outcome) -> Result<Vec<T>> {
    let rows = outcome.rows.map(Batch::into_rows);
    let rows = rows.into_iter().flatten();
    rows.map(|row| from_row(&row)).collect()
}

/// Reads the only row.
pub(crate) fn one<T: DeserializeOwned>(outcome: Outcome) -> Result<T> {
    only_row(outcome).and_then(|row| from_row(&row))
}

/// Reads the row, if there is one.
pub(crate) fn opt<T: DeserializeOwned>(outcome: Outcome) -> Result<Option<T>> {
    let row = at_most_one(outcome)?;
    row.as_ref().map(from_row).transpose()
}

#[inline]
pub(crate) fn only_row(outcome: Outcome) -> Result<Row> {
    at_most_one(outcome)?.ok_or_else(|| {
        let message = "the query returned no row where one was expected";
        Error::new(Kind::NoRows, message)
    })
}

#[inline]
pub(crate) fn at_most_one(outcome: Outcome) -> Result<Option<Row>> {
    let Some(rows) = outcome.rows else {
        return Ok(None);
    };
    if rows.len() > 1 {
        let message = format!(
            "the query returned {} rows where at most one was expected",
            rows.len()
        );
        return Err(Error::new(Kind::TooManyRows, message));
    }
    Ok(rows.into_first())
}
