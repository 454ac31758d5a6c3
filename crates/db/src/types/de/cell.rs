//! One value of a row as a serde type.

use std::borrow::Cow;

use serde::de::value::SeqDeserializer;
use serde::de::{DeserializeSeed, Deserializer, IntoDeserializer, SeqAccess, Visitor};

use super::document::{self, Shape};
use super::refused::Refused;
use crate::types::row::Row;
use crate::types::value::{ConvertError, FromValue, Value};

/// A value of a row. It is decoded when it is read: a column that serde skips never is.
pub(super) enum Cell<'r> {
    /// The column at this position.
    Column(&'r Row, usize),
    /// A decoded value, or an element of an array.
    Value(Value<'r>),
}

impl<'r> Cell<'r> {
    fn value(self) -> Result<Value<'r>, Refused> {
        match self {
            Cell::Column(row, position) => Ok(row.decode(position)?),
            Cell::Value(value) => Ok(value),
        }
    }

    fn get<T: FromValue<'r>>(self) -> Result<T, Refused> {
        Ok(T::from_value(self.value()?)?)
    }

    fn text<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Refused> {
        let value = self.value()?;
        let type_name = value.type_name();
        if let Value::Text(_) = value {
            return visit_text(Cow::from_value(value)?, visitor);
        }
        // A type that parses text, such as a moment of chrono, does not know what it parses.
        let text = Cow::from_value(value)?;
        let visited = visit_text(text, visitor);
        visited.map_err(|refused| refused.of_type(type_name))
    }

    fn bytes<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Refused> {
        match self.value()? {
            Value::Uuid(uuid) => visitor.visit_bytes(&uuid),
            value => visit_bytes(Cow::from_value(value)?, visitor),
        }
    }

    fn sequence<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Refused> {
        match self.value()? {
            Value::Bytes(bytes) => {
                let mut each = bytes.iter().copied().map(Byte);
                let read = visitor.visit_seq(SeqDeserializer::new(&mut each))?;
                whole(read, bytes.len(), each.len(), "bytes")
            }
            Value::Array(elements) => visit_array(elements, visitor),
            value => document::read(value, "an array", Shape::Any, visitor),
        }
    }
}

/// An element of bytes. It is a `u8`: bytes are no array of other numbers, as for [`FromValue`].
struct Byte(u8);

impl<'de> Deserializer<'de> for Byte {
    type Error = Refused;

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Refused> {
        let bytes = Value::Bytes(Cow::Borrowed(&[]));
        Err(ConvertError::found(&bytes, "an array").into())
    }

    fn deserialize_u8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_u8(self.0)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        visitor.visit_newtype_struct(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'r> IntoDeserializer<'r, Refused> for Byte {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// The elements of an array, one after the other.
struct Elements<'r> {
    rest: std::vec::IntoIter<Value<'r>>,
    read: usize,
}

impl<'r> SeqAccess<'r> for Elements<'r> {
    type Error = Refused;

    fn next_element_seed<S: DeserializeSeed<'r>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Refused> {
        let Some(element) = self.rest.next() else {
            return Ok(None);
        };
        self.read += 1;
        let read = seed.deserialize(Cell::Value(element));
        read.map(Some)
            .map_err(|refused| refused.in_element(self.read))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

fn visit_array<'r, V: Visitor<'r>>(
    elements: Vec<Value<'r>>,
    visitor: V,
) -> Result<V::Value, Refused> {
    let count = elements.len();
    let mut elements = Elements {
        rest: elements.into_iter(),
        read: 0,
    };
    let read = visitor.visit_seq(&mut elements)?;
    whole(read, count, elements.rest.len(), "elements")
}

/// Refuses what was read if something is left: a tuple takes as much as it needs and ignores the rest.
fn whole<T>(read: T, count: usize, left: usize, what: &str) -> Result<T, Refused> {
    match left {
        0 => Ok(read),
        left => Err(Refused::Value(format!(
            "found {count} {what}, wanted {} of them",
            count - left
        ))),
    }
}

macro_rules! read_number {
    ($($method:ident $type:ident $visit:ident;)*) => {$(
        fn $method<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Refused> {
            visitor.$visit(self.get::<$type>()?)
        }
    )*};
}

impl<'r> Deserializer<'r> for Cell<'r> {
    type Error = Refused;

    read_number! {
        deserialize_bool bool visit_bool;
        deserialize_i8 i8 visit_i8;
        deserialize_i16 i16 visit_i16;
        deserialize_i32 i32 visit_i32;
        deserialize_i64 i64 visit_i64;
        deserialize_u8 u8 visit_u8;
        deserialize_u16 u16 visit_u16;
        deserialize_u32 u32 visit_u32;
        deserialize_u64 u64 visit_u64;
        deserialize_f32 f32 visit_f32;
        deserialize_f64 f64 visit_f64;
        deserialize_char char visit_char;
    }

    fn deserialize_any<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Refused> {
        match self.value()? {
            Value::Null => visitor.visit_unit(),
            Value::Bool(truth) => visitor.visit_bool(truth),
            Value::Int(number) => visitor.visit_i64(number),
            Value::UInt(number) => visitor.visit_u64(number),
            Value::Float(number) => visitor.visit_f64(number),
            Value::Bytes(bytes) => visit_bytes(bytes, visitor),
            Value::Array(elements) => visit_array(elements, visitor),
            #[cfg(feature = "json")]
            value @ Value::Json(_) => document::read(value, "JSON", Shape::Any, visitor),
            value => visit_text(Cow::from_value(value)?, visitor),
        }
    }

    fn deserialize_str<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Refused> {
        match self.value()? {
            // A `Uuid` takes its 16 bytes here. `&str` would take borrowed bytes, so these are not.
            Value::Bytes(bytes) if bytes.len() == 16 => visitor.visit_bytes(&bytes),
            value => Cell::Value(value).text(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.text(visitor)
    }

    fn deserialize_identifier<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.text(visitor)
    }

    fn deserialize_bytes<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.bytes(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Refused> {
        match self.value()? {
            Value::Null => visitor.visit_none(),
            value => visitor.visit_some(Cell::Value(value)),
        }
    }

    fn deserialize_unit<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Refused> {
        match self.value()? {
            Value::Null => visitor.visit_unit(),
            other => Err(ConvertError::found(&other, "NULL").into()),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'r>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'r>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        if document::is_json(name) {
            document::read(self.value()?, "JSON", Shape::Newtype, visitor)
        } else {
            visitor.visit_newtype_struct(self)
        }
    }

    fn deserialize_seq<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.sequence(visitor)
    }

    fn deserialize_tuple<V: Visitor<'r>>(
        self,
        _len: usize,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.sequence(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'r>>(
        self,
        _name: &'static str,
        _len: usize,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.sequence(visitor)
    }

    fn deserialize_map<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Refused> {
        document::read(self.value()?, "map", Shape::Any, visitor)
    }

    fn deserialize_struct<V: Visitor<'r>>(
        self,
        name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        document::read(self.value()?, name, Shape::Any, visitor)
    }

    fn deserialize_enum<V: Visitor<'r>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        match self.value()? {
            Value::Text(text) => visitor.visit_enum(text.into_deserializer()),
            value => document::read(value, name, Shape::Enum { name, variants }, visitor),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_unit()
    }
}

fn visit_text<'r, V: Visitor<'r>>(text: Cow<'r, str>, visitor: V) -> Result<V::Value, Refused> {
    match text {
        Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
        Cow::Owned(text) => visitor.visit_string(text),
    }
}

fn visit_bytes<'r, V: Visitor<'r>>(bytes: Cow<'r, [u8]>, visitor: V) -> Result<V::Value, Refused> {
    match bytes {
        Cow::Borrowed(bytes) => visitor.visit_borrowed_bytes(bytes),
        Cow::Owned(bytes) => visitor.visit_byte_buf(bytes),
    }
}
