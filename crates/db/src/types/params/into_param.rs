//! What can be one parameter.

use std::any::{Any, type_name};
use std::sync::Arc;

use crate::Result;
use crate::driver::{Native, Param};
use crate::types::value::Value;

/// What can be a parameter.
///
/// Everything is that a [`Value`] can be made [from](Value#trait-implementations): to pass a type of
/// your own, implement `From<YourType> for Value<'_>`. Besides there are what [`native`] makes and,
/// with the feature `json`, `Json<T>`.
pub trait IntoParam<'a> {
    /// The parameter.
    ///
    /// # Errors
    ///
    /// [`Kind::Type`](crate::Kind::Type) if it has no form that a database takes.
    fn into_param(self) -> Result<Param<'a>>;
}

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

/// A parameter of a type that only one driver knows.
///
/// The driver's documentation says which types it takes; any other is an error of the call
/// that uses it.
pub fn native<T: Any + Send + Sync>(value: T) -> Native {
    Native {
        type_name: type_name::<T>(),
        value: Arc::new(value),
    }
}
