//! Types that can be one parameter.

use std::any::{Any, type_name};
use std::sync::Arc;

use crate::Result;
use crate::driver::{Native, Param};
use crate::types::value::Value;

/// A type that can be one parameter, inside a tuple, a list of parameters or [`named!`](crate::named).
///
/// Every type that converts into a [`Value`](Value#trait-implementations) is one: for a type of
/// your own, implement `From<YourType> for Value<'_>`. So are [`native`] and [`list`](crate::list) parameters and,
/// with the feature `json`, `Json<T>`.
///
/// A vector or slice is one array, of [`ArrayElement`](crate::ArrayElement)s; `Vec<u8>` and `&[u8]` are bytes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a parameter",
    label = "no parameter",
    note = "for a type of your own write `impl From<YourType> for cenote::Value<'_>`, and `impl From<&YourType> for cenote::Value<'_>` to pass references",
    note = "pass a serde type as a JSON document with `Json(value)`, a `ToSql` of PostgreSQL with `cenote::postgres::param(value)`; types of chrono, time, uuid, rust_decimal and serde_json need the feature of cenote with that name"
)]
pub trait IntoParam<'a> {
    /// Returns the parameter.
    ///
    /// # Errors
    ///
    /// [`Kind::Type`](crate::Kind::Type) if the value has no form that a database takes.
    fn into_param(self) -> Result<Param<'a>>;
}

#[diagnostic::do_not_recommend]
impl<'a, T: Into<Value<'a>>> IntoParam<'a> for T {
    fn into_param(self) -> Result<Param<'a>> {
        Ok(Param::Value(self.into()))
    }
}

impl<'a> IntoParam<'a> for Param<'a> {
    fn into_param(self) -> Result<Param<'a>> {
        Ok(self)
    }
}

impl<'a> IntoParam<'a> for &'a Param<'_> {
    fn into_param(self) -> Result<Param<'a>> {
        Ok(match self {
            Param::Value(value) => Param::Value(value.as_borrowed()),
            Param::Native(native) => Param::Native(native.clone()),
        })
    }
}

impl<'a> IntoParam<'a> for Native {
    fn into_param(self) -> Result<Param<'a>> {
        Ok(Param::Native(self))
    }
}

impl<'a> IntoParam<'a> for &Native {
    fn into_param(self) -> Result<Param<'a>> {
        Ok(Param::Native(self.clone()))
    }
}

/// Returns a parameter of a type that only one driver knows.
///
/// The driver's documentation lists the types that it takes. A call with any other type fails.
pub fn native<T: Any + Send + Sync>(value: T) -> Native {
    Native {
        type_name: type_name::<T>(),
        value: Arc::new(value),
    }
}
