//! JSON documents, read and written by `serde_json`.

use std::any::type_name;
use std::borrow::Cow;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::json_path::explained;
use super::{ArrayElement, ConvertError, FromValue, Value};
use crate::driver::Param;
use crate::types::params::IntoParam;
use crate::{Error, Kind, Result};

/// A serde type as a JSON document: written as a parameter, read from a row.
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
// The deserializer of rows recognises the wrapper by this name and parses text as JSON.
#[serde(rename = "$cenote::Json")]
pub struct Json<T>(pub T);

/// The name under which [`Json`] presents itself to a deserializer.
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
/// [`Kind::Type`] if the value has no JSON form, such as a map whose keys are no strings.
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

impl ArrayElement for serde_json::Value {
    fn element(&self) -> Value<'_> {
        self.into()
    }
}

impl From<&Option<serde_json::Value>> for Value<'_> {
    fn from(json: &Option<serde_json::Value>) -> Self {
        Value::from(json.as_ref())
    }
}

/// Text is refused: as a `serde_json::Value` serde reads it as a JSON string, `Json` as a document.
impl<'r> FromValue<'r> for serde_json::Value {
    fn from_value(value: Value<'r>) -> Result<Self, ConvertError> {
        match value {
            Value::Text(_) => Err(ConvertError::new(
                "found text, wanted serde_json::Value: use Json<serde_json::Value> to parse it, String to keep it",
            )),
            value => read(value, "serde_json::Value"),
        }
    }
}

impl<'r, T: DeserializeOwned> FromValue<'r> for Json<T> {
    fn from_value(value: Value<'r>) -> Result<Self, ConvertError> {
        read(value, type_name::<T>()).map(Json)
    }
}

fn read<T: DeserializeOwned>(value: Value<'_>, wanted: &str) -> Result<T, ConvertError> {
    let misfit = |text: &str, error: serde_json::Error| {
        let message = format!("the JSON is no {wanted}: {}", explained(text, &error));
        ConvertError::new(message).because(error)
    };
    match value {
        Value::Json(text) | Value::Text(text) => {
            serde_json::from_str(&text).map_err(|error| misfit(&text, error))
        }
        Value::Array(_) => {
            let read = serde_json::from_value(document(value)?);
            read.map_err(|error| misfit("", error))
        }
        other => Err(ConvertError::found(&other, "JSON")),
    }
}

/// Returns an array with its elements as a JSON document. What JSON has no type for is a string.
pub(crate) fn document(value: Value<'_>) -> Result<serde_json::Value, ConvertError> {
    Ok(match value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(truth) => truth.into(),
        Value::Int(number) => number.into(),
        Value::UInt(number) => number.into(),
        // A float that JSON has no number for is a string, such as "NaN", and never null.
        Value::Float(number) if !number.is_finite() => number.to_string().into(),
        Value::Float(number) => number.into(),
        Value::Json(text) => serde_json::from_str(&text).map_err(|error| {
            ConvertError::new(format!("the JSON cannot be read: {error}")).because(error)
        })?,
        Value::Array(elements) => elements
            .into_iter()
            .map(document)
            .collect::<Result<_, _>>()?,
        value => String::from_value(value)?.into(),
    })
}

/// Returns the elements of a JSON array as values.
pub(super) fn elements(
    value: Value<'_>,
    wanted: &str,
) -> Result<Vec<Value<'static>>, ConvertError> {
    let found = ConvertError::found(&value, wanted);
    let text = match value {
        Value::Json(text) | Value::Text(text) => text,
        _ => return Err(found),
    };
    match serde_json::from_str::<Vec<serde_json::Value>>(&text) {
        Ok(elements) => Ok(elements.into_iter().map(element).collect()),
        Err(error) => Err(found.because(error)),
    }
}

fn element(json: serde_json::Value) -> Value<'static> {
    match json {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(truth) => Value::Bool(truth),
        serde_json::Value::String(text) => Value::Text(Cow::Owned(text)),
        serde_json::Value::Array(elements) => {
            Value::Array(elements.into_iter().map(element).collect())
        }
        serde_json::Value::Object(_) => Value::Json(Cow::Owned(json.to_string())),
        serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::Int(number),
            (None, Some(number)) => Value::UInt(number),
            (None, None) => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
    }
}
