//! Fields of serde structs that are read by way of [`FromValue`].

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};

use super::{FromValue, Value};

impl Value<'_> {
    /// Reads a field of a serde struct by way of [`FromValue`], for types that serde reads
    /// differently or not at all.
    ///
    /// SQLite keeps moments as text, `2024-02-29 09:05:00`. The serde impls of `chrono` and `time`
    /// refuse that text; [`Row::get`](crate::Row::get) and this function read it:
    ///
    /// ```
    /// # use cenote::{Date, DateTime};
    /// #[derive(serde::Deserialize)]
    /// struct User {
    ///     name: String,
    ///     #[serde(deserialize_with = "cenote::Value::deserialize_as")]
    ///     created: DateTime, // or chrono::DateTime<Utc>, time::OffsetDateTime …
    ///     #[serde(default, deserialize_with = "cenote::Value::deserialize_as")]
    ///     born: Option<Date>,
    /// }
    /// ```
    ///
    /// serde has no type for a date, a UUID or a decimal: they are [`Value::Text`] here.
    ///
    /// # Errors
    ///
    /// As [`FromValue::from_value`], and if the field is a map.
    pub fn deserialize_as<'de, D, T>(deserializer: D) -> Result<T, D::Error>
    where
        D: Deserializer<'de>,
        T: for<'v> FromValue<'v>,
    {
        let value = deserializer.deserialize_any(AnyValue)?;
        T::from_value(value).map_err(D::Error::custom)
    }
}

struct AnyValue;

impl<'de> DeserializeSeed<'de> for AnyValue {
    type Value = Value<'de>;

    fn deserialize<D: Deserializer<'de>>(self, element: D) -> Result<Value<'de>, D::Error> {
        element.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value<'de>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a value of a database")
    }

    fn visit_unit<E>(self) -> Result<Value<'de>, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value<'de>, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, some: D) -> Result<Value<'de>, D::Error> {
        some.deserialize_any(self)
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Value<'de>, E> {
        Ok(truth.into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value<'de>, E> {
        Ok(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value<'de>, E> {
        Ok(number.into())
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value<'de>, E> {
        Ok(number.into())
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Value<'de>, E> {
        Ok(text.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Value<'de>, E> {
        Ok(text.to_owned().into())
    }

    fn visit_string<E>(self, text: String) -> Result<Value<'de>, E> {
        Ok(text.into())
    }

    fn visit_borrowed_bytes<E>(self, bytes: &'de [u8]) -> Result<Value<'de>, E> {
        Ok(bytes.into())
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Value<'de>, E> {
        Ok(bytes.to_vec().into())
    }

    fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Value<'de>, E> {
        Ok(bytes.into())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Value<'de>, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = array.next_element_seed(AnyValue)? {
            elements.push(element);
        }
        Ok(Value::Array(elements))
    }
}
