//! Parameters by name.

use std::borrow::Cow;

use super::IntoParam;
use crate::driver::Param;
use crate::{Error, Result};

/// Parameters by the names of their placeholders.
///
/// [`named!`](crate::named) writes them shorter, if the names are known when the program is written.
///
/// ```
/// use cenote::Named;
///
/// let mut params = Named::new().with("min", 18);
/// for (name, value) in [("first", "ada"), ("last", "lovelace")] {
///     params = params.with(name, value);
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Named<'a> {
    pairs: Vec<(Cow<'a, str>, Param<'a>)>,
    /// Why the first value that is no parameter is none. It is told when they are used.
    failed: Option<Error>,
}

impl<'a> Named<'a> {
    /// None so far.
    pub fn new() -> Self {
        Named::default()
    }

    /// None so far, with room for so many.
    pub fn with_capacity(capacity: usize) -> Self {
        Named {
            pairs: Vec::with_capacity(capacity),
            failed: None,
        }
    }

    /// With a value for the placeholder of this name; the name is without the colon.
    #[must_use]
    pub fn with(mut self, name: impl Into<Cow<'a, str>>, value: impl IntoParam<'a>) -> Self {
        match value.into_param() {
            Ok(value) => self.pairs.push((name.into(), value)),
            Err(error) => self.failed = self.failed.or(Some(error)),
        }
        self
    }

    pub(super) fn into_pairs(self) -> Result<Vec<(Cow<'a, str>, Param<'a>)>> {
        match self.failed {
            None => Ok(self.pairs),
            Some(error) => Err(error),
        }
    }
}

/// Parameters by the names of their placeholders: `named! { min: 18, name: "ada" }` for `:min` and `:name`.
///
/// ```
/// use cenote::named;
///
/// let name = String::from("ada");
/// let params = named! { min: 18, name: &name };
/// let none = named! {};
/// ```
#[macro_export]
macro_rules! named {
    ($($name:ident : $value:expr),* $(,)?) => {{
        const NAMES: &[&str] = &[$(stringify!($name)),*];
        $crate::Named::with_capacity(NAMES.len())$(.with(
            // `r#type` is how Rust writes the name `type`.
            stringify!($name).trim_start_matches("r#"),
            $value,
        ))*
    }};
}
