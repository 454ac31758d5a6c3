//! JSON documents, as `serde_json` reads and writes them.

use std::any::type_name;
use std::borrow::Cow;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{ConvertError, FromValue, Value};
use crate::driver::Param;
use crate::types::params::IntoParam;
use crate::{Error, Kind, Result};

/// Anything of serde's as a JSON document: written as a parameter, read from a row.
///
/// ```
/// # use cenote::{Json, Row};
/// # fn example(row: &Row) -> cenote::Result<()> {
/// #[derive(serde::Deserialize)]
/// struct Settings {
///     theme: String,
/// }
///
/// let Json(settings) = row.get::<Json<Settings>>("settings")?;
/// println!("{}", settings.theme);
/// # Ok(())
/// # }
/// ```
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
// The name is how the deserializer of rows knows that text is to be read as JSON.
#[serde(rename = "$cenote::Json")]
pub struct Json<T>(pub T);

/// What [`Json`] is called towards a deserializer.
pub(crate) const JSON_NEWTYPE: &str = "$cenote::Json";

impl<T: Serialize> Json<T> {
    fn write(&self) -> Result<Value<'static>> {
        match serde_json::to_string(&self.0) {
            Ok(text) => Ok(Value::Json(Cow::Owned(text))),
            Err(error) => {
                let message = format!("a {} has no JSON form: {error}", type_name::<T>());
                Err(Error::new(Kind::Type, message).because(error))
            }
        }
    }
}

/// # Errors
///
/// [`Kind::Type`] if it has no JSON form, such as a map whose keys are no strings.
impl<'a, T: Serialize> IntoParam<'a> for Json<T> {
    fn into_param(self) -> Result<Param<'a>> {
        self.write().map(Param::Value)
    }
}

/// As [`Json`] itself.
impl<'a, T: Serialize> IntoParam<'a> for &Json<T> {
    fn into_param(self) -> Result<Param<'a>> {
        self.write().map(Param::Value)
    }
}

/// `None` is NULL of the database, not of JSON.
impl<'a, T: Serialize> IntoParam<'a> for Option<Json<T>> {
    fn into_param(self) -> Result<Param<'a>> {
        match self {
            Some(json) => json.into_param(),
            None => Ok(Param::Value(Value::Null)),
        }
    }
}

impl From<serde_json::Value> for Value<'_> {
    fn from(json: serde_json::Value) -> Self {
        Value::Json(Cow::Owned(json.to_string()))
    }
}

impl From<&serde_json::Value> for Value<'_> {
    fn from(json: &serde_json::Value) -> Self {
        Value::Json(Cow::Owned(json.to_string()))
    }
}

impl<'r> FromValue<'r> for serde_json::Value {
    fn from_value(value: Value<'r>) -> Result<Self, ConvertError> {
        read(value, "serde_json::Value")
    }
}

impl<'r, T: DeserializeOwned> FromValue<'r> for Json<T> {
    fn from_value(value: Value<'r>) -> Result<Self, ConvertError> {
        read(value, type_name::<T>()).map(Json)
    }
}

fn read<T: DeserializeOwned>(value: Value<'_>, wanted: &str) -> Result<T, ConvertError> {
    match value {
        Value::Json(text) | Value::Text(text) => serde_json::from_str(&text).map_err(|error| {
            let message = format!("the JSON is no {wanted}: {error}");
            ConvertError::new(message).because(error)
        }),
        other => Err(ConvertError::found(&other, "JSON")),
    }
}
