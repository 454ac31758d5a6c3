//! Parameters: tuples, slices, [`named!`](crate::named).

mod bind;
mod into_param;
mod into_params;
mod named;

use std::borrow::Cow;

pub use into_param::{IntoParam, native};
pub use into_params::IntoParams;
pub use named::Named;

use crate::driver::Param;

/// The parameters of one statement, before they have been put in the order of its placeholders.
#[derive(Clone, Debug)]
pub enum Params<'a> {
    /// One for each placeholder, in order.
    Positional(Vec<Param<'a>>),
    /// By the names of the placeholders.
    Named(Vec<(Cow<'a, str>, Param<'a>)>),
}

impl Params<'_> {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Params::Positional(values) => values.len(),
            Params::Named(values) => values.len(),
        }
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
