//! A JSON document in a cell as a serde type.

use serde::de::Visitor;

use super::refused::Refused;
use crate::types::value::{ConvertError, Value};

/// The serde type to read.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "json"), allow(dead_code))]
pub(super) enum Shape {
    /// The type that the document has: the visitor knows what it takes.
    Any,
    /// [`Json`](crate::Json) around the type that the document has.
    Newtype,
    /// An enum, which may have data.
    Enum {
        name: &'static str,
        variants: &'static [&'static str],
    },
}

/// Returns whether the newtype of this name is [`Json`](crate::Json).
#[cfg(feature = "json")]
pub(super) fn is_json(newtype: &str) -> bool {
    newtype == crate::types::value::JSON_NEWTYPE
}

/// Without the feature there is no `Json`.
#[cfg(not(feature = "json"))]
pub(super) fn is_json(_newtype: &str) -> bool {
    false
}

/// Reads the JSON document in the value.
#[cfg(feature = "json")]
pub(super) fn read<'r, V: Visitor<'r>>(
    value: Value<'r>,
    wanted: &str,
    shape: Shape,
    visitor: V,
) -> Result<V::Value, Refused> {
    use std::borrow::Cow;

    let misfit = |text: &str, error: serde_json::Error| {
        let error = crate::types::value::json_explained(text, &error);
        Refused::Value(format!("the JSON is no {wanted}: {error}"))
    };
    match value {
        Value::Json(Cow::Borrowed(text)) | Value::Text(Cow::Borrowed(text)) => {
            let mut json = serde_json::Deserializer::from_str(text);
            let read = shape.read(&mut json, visitor);
            let read = read.map_err(|error| misfit(text, error))?;
            json.end().map_err(|error| misfit(text, error))?;
            Ok(read)
        }
        // The result may borrow from the row, but not from a text that this function drops.
        Value::Json(Cow::Owned(text)) | Value::Text(Cow::Owned(text)) => {
            let json = serde_json::from_str::<serde_json::Value>(&text);
            let json = json.map_err(|error| misfit(&text, error))?;
            shape.read(json, visitor).map_err(|error| misfit("", error))
        }
        value @ Value::Array(_) => {
            let json = crate::types::value::json_document(value)?;
            shape.read(json, visitor).map_err(|error| misfit("", error))
        }
        other => Err(ConvertError::found(&other, wanted).into()),
    }
}

/// Without the feature nothing reads JSON.
#[cfg(not(feature = "json"))]
pub(super) fn read<'r, V: Visitor<'r>>(
    value: Value<'r>,
    wanted: &str,
    _shape: Shape,
    _visitor: V,
) -> Result<V::Value, Refused> {
    Err(ConvertError::found(&value, wanted).into())
}

#[cfg(feature = "json")]
impl Shape {
    fn read<'r, D, V>(self, json: D, visitor: V) -> Result<V::Value, D::Error>
    where
        D: serde::Deserializer<'r>,
        V: Visitor<'r>,
    {
        match self {
            Shape::Any => json.deserialize_any(visitor),
            Shape::Newtype => visitor.visit_newtype_struct(json),
            Shape::Enum { name, variants } => json.deserialize_enum(name, variants, visitor),
        }
    }
}
