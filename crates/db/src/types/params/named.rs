//! Parameters by name.

use std::borrow::Cow;

use super::IntoParam;
use crate::driver::Param;
use crate::{Error, Result};

/// Parameters by the names of their placeholders.
///
/// [`named!`](crate::named) is shorter where the names are known at compile time.
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
    /// The error of the first value that cannot be a parameter. The call returns it.
    failed: Option<Error>,
}

impl<'a> Named<'a> {
    /// Returns an empty set of parameters.
    pub fn new() -> Self {
        Named::default()
    }

    /// Returns an empty set of parameters, with room for `capacity` of them.
    pub fn with_capacity(capacity: usize) -> Self {
        Named {
            pairs: Vec::with_capacity(capacity),
            failed: None,
        }
    }

    /// Adds a value for the placeholder of this name, which is written without the colon.
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

/// Parameters by the names of their placeholders: `named! { min: 18, name }` for `:min` and `:name`.
///
/// A name alone is short for `name: name`.
///
/// ```
/// use cenote::named;
///
/// let name = String::from("ada");
/// let params = named! { min: 18, name: &name };
/// let short = named! { min: 18, name };
/// let none = named! {};
/// ```
#[macro_export]
macro_rules! named {
    ($($name:ident $(: $value:expr)?),* $(,)?) => {{
        const NAMES: &[&str] = &[$(stringify!($name)),*];
        $crate::Named::with_capacity(NAMES.len())$(.with(
            // `r#type` is how Rust writes the name `type`.
            stringify!($name).trim_start_matches("r#"),
            $crate::named!(@value $name $(: $value)?),
        ))*
    }};
    (@value $name:ident : $value:expr) => { $value };
    (@value $name:ident) => { $name };
}
