//! serde for dates and times: they are the text that `Display` writes.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::{Serialize, Serializer};

use super::{ConvertError, Date, DateTime, Time};

macro_rules! as_text {
    ($($type:ident, $example:literal, $parse:path;)*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(Text {
                    example: $example,
                    parse: $parse,
                })
            }
        }
    )*};
}

as_text! {
    Date, "a date, such as 2024-02-29", Date::from_str;
    Time, "a time, such as 09:05:00", Time::from_str;
    // A timestamp of a row ends with a `Z`.
    DateTime, "a date and a time, such as 2024-02-29T09:05:00", DateTime::parse_utc;
}

struct Text<T> {
    example: &'static str,
    parse: fn(&str) -> Result<T, ConvertError>,
}

impl<T> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.example)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).map_err(E::custom)
    }
}
