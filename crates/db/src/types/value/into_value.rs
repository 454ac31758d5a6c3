//! Types that become a [`Value`], and so a parameter.

use std::borrow::Cow;
use std::net::IpAddr;

use super::{Date, DateTime, Time, Value};

from_copy_scalar! {
    u8 => |number| Value::Int(i64::from(number));
}

from_copy! {
    IpAddr => |address| Value::Text(Cow::Owned(address.to_string()));
    bool => |truth| Value::Bool(truth);
    i8 => |number| Value::Int(i64::from(number));
    i16 => |number| Value::Int(i64::from(number));
    i32 => |number| Value::Int(i64::from(number));
    i64 => |number| Value::Int(number);
    isize => |number| Value::Int(number as i64);
    u16 => |number| Value::Int(i64::from(number));
    u32 => |number| Value::Int(i64::from(number));
    u64 => |number| i64::try_from(number).map_or(Value::UInt(number), Value::Int);
    usize => |number| Value::from(number as u64);
    f32 => |number| Value::Float(f64::from(number));
    f64 => |number| Value::Float(number);
    char => |letter| Value::Text(Cow::Owned(letter.to_string()));
    Date => |date| Value::Date(date);
    Time => |time| Value::Time(time);
    DateTime => |moment| Value::DateTime(moment);
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Value::Text(Cow::Borrowed(text))
    }
}

impl<'a> From<&&'a str> for Value<'a> {
    fn from(text: &&'a str) -> Self {
        Value::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Value::Text(Cow::Owned(text))
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(text: &'a String) -> Self {
        Value::Text(Cow::Borrowed(text))
    }
}

impl From<Box<str>> for Value<'_> {
    fn from(text: Box<str>) -> Self {
        Value::Text(Cow::Owned(text.into_string()))
    }
}

impl<'a> From<Cow<'a, str>> for Value<'a> {
    fn from(text: Cow<'a, str>) -> Self {
        Value::Text(text)
    }
}

impl<'a> From<&'a Cow<'_, str>> for Value<'a> {
    fn from(text: &'a Cow<'_, str>) -> Self {
        Value::Text(Cow::Borrowed(text))
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Value::Bytes(Cow::Borrowed(bytes))
    }
}

impl<'a> From<&&'a [u8]> for Value<'a> {
    fn from(bytes: &&'a [u8]) -> Self {
        Value::Bytes(Cow::Borrowed(bytes))
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Value<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Value::Bytes(Cow::Borrowed(bytes))
    }
}

impl<const N: usize> From<[u8; N]> for Value<'_> {
    fn from(bytes: [u8; N]) -> Self {
        Value::Bytes(Cow::Owned(bytes.to_vec()))
    }
}

impl From<Vec<u8>> for Value<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Value::Bytes(Cow::Owned(bytes))
    }
}

impl<'a> From<&'a Vec<u8>> for Value<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        Value::Bytes(Cow::Borrowed(bytes))
    }
}

impl<'a> From<Cow<'a, [u8]>> for Value<'a> {
    fn from(bytes: Cow<'a, [u8]>) -> Self {
        Value::Bytes(bytes)
    }
}

impl<'a> From<&'a Cow<'_, [u8]>> for Value<'a> {
    fn from(bytes: &'a Cow<'_, [u8]>) -> Self {
        Value::Bytes(Cow::Borrowed(bytes))
    }
}

impl<'a> From<&'a Value<'_>> for Value<'a> {
    fn from(value: &'a Value<'_>) -> Self {
        value.as_borrowed()
    }
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, T::into)
    }
}

impl<'a> From<&'a Option<String>> for Value<'a> {
    fn from(text: &'a Option<String>) -> Self {
        Value::from(text.as_deref())
    }
}

impl<'a> From<&Option<&'a str>> for Value<'a> {
    fn from(text: &Option<&'a str>) -> Self {
        Value::from(*text)
    }
}

impl<'a> From<&'a Option<Vec<u8>>> for Value<'a> {
    fn from(bytes: &'a Option<Vec<u8>>) -> Self {
        Value::from(bytes.as_deref())
    }
}
