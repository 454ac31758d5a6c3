//! UUIDs of the `uuid` crate.

use uuid::Uuid;

use super::{ConvertError, FromValue, Value};

from_copy! {
    Uuid => |uuid| Value::Uuid(uuid.into_bytes());
}

impl<'r> FromValue<'r> for Uuid {
    fn from_value(value: Value<'r>) -> Result<Self, ConvertError> {
        match value {
            Value::Uuid(bytes) => Ok(Uuid::from_bytes(bytes)),
            Value::Bytes(bytes) => Uuid::from_slice(&bytes).map_err(|_| {
                ConvertError::new(format!("found {} bytes, wanted 16 for a Uuid", bytes.len()))
            }),
            Value::Text(text) => {
                Uuid::try_parse(&text).map_err(|_| ConvertError::unreadable(&text, "Uuid"))
            }
            other => Err(ConvertError::found(&other, "Uuid")),
        }
    }
}
