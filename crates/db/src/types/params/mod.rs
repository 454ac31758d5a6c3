//! Parameters: single values, tuples, slices, [`named!`](crate::named), [`list`].

mod bind;
mod into_param;
mod into_params;
mod list;
mod named;

use std::borrow::Cow;

pub use into_param::{IntoParam, native};
pub use into_params::IntoParams;
pub(crate) use into_params::bare_params;
pub(crate) use list::List;
pub use list::list;
pub use named::Named;

use crate::driver::Param;
use crate::types::value::Value;

/// The parameters of one statement, in the order in which they were given.
#[derive(Clone, Debug)]
pub enum Params<'a> {
    /// One for each placeholder, in order.
    Positional(Vec<Param<'a>>),
    /// By the names of the placeholders.
    Named(Vec<(Cow<'a, str>, Param<'a>)>),
}

impl<'a> Params<'a> {
    /// Returns a single parameter.
    #[inline]
    pub(crate) fn one(value: Value<'a>) -> Self {
        Params::Positional(vec![Param::Value(value)])
    }

    /// Returns the number of parameters.
    pub fn len(&self) -> usize {
        match self {
            Params::Positional(values) => values.len(),
            Params::Named(values) => values.len(),
        }
    }

    /// Returns whether there are no parameters.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
