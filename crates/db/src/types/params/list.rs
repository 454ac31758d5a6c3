//! Lists for `IN (?)`.

use std::sync::Arc;

use crate::driver::{Native, Param};
use crate::types::value::Value;

/// Returns a parameter that becomes as many placeholders as it has values, for `IN (?)` on every database.
///
/// ```no_run
/// # async fn example(db: cenote::Db) -> cenote::Result<()> {
/// use cenote::list;
///
/// let ids = [3, 5, 8];
/// db.query("SELECT name FROM account WHERE id IN (?)", (list(&ids),)).await?;
/// # Ok(()) }
/// ```
///
/// The last value of a list of up to 4,096 is repeated until their number is a power of two, so that lists of many
/// lengths share a few prepared statements. `IN` and `NOT IN` mean the same with a repeated value; do not use a list where repetition
/// matters, such as `VALUES (?)`. On PostgreSQL `= ANY(?)` with a `Vec` is one statement for all lengths.
///
/// # Errors
///
/// The call fails with [`Kind::Parameters`](crate::Kind::Parameters) if the list is empty, or if it is used in
/// `exec_many`.
pub fn list<'v, T: Into<Value<'v>>>(values: impl IntoIterator<Item = T>) -> Native {
    let values = values.into_iter().map(|value| value.into().into_owned());
    Native {
        type_name: "cenote::list",
        value: Arc::new(List(values.collect())),
    }
}

/// The values of a [`list`].
pub(crate) struct List(Vec<Value<'static>>);

impl List {
    /// Returns the list that a parameter is, if it is one.
    #[inline]
    pub(crate) fn of<'p>(param: &'p Param<'_>) -> Option<&'p List> {
        match param {
            Param::Value(_) => None,
            Param::Native(native) => native.value.downcast_ref(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns its values, the last one repeated up to a power of two. Long lists are not padded: that could exceed the number of
    /// parameters that a database takes, which is 32,766 on SQLite and 65,535 on PostgreSQL and MySQL.
    pub(crate) fn padded(&self) -> impl Iterator<Item = &Value<'static>> {
        const LONGEST_PADDED: usize = 4_096;
        let missing = match self.0.len() {
            0 => 0,
            length if length > LONGEST_PADDED => 0,
            length => length.next_power_of_two() - length,
        };
        let last = self.0.last().into_iter();
        let padding = last.flat_map(move |last| std::iter::repeat_n(last, missing));
        self.0.iter().chain(padding)
    }
}
