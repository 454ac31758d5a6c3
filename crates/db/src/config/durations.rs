//! Durations in configurations: a text with a unit, a number of seconds, or `off`.

use std::fmt;
use std::time::Duration;

use serde::de::{Deserializer, Error, Visitor};

use crate::config::dsn::texts::parse_duration;

const SECOND: Duration = Duration::from_secs(1);

/// Reads a duration that cannot be switched off.
pub(super) fn required<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    optional(deserializer)?.ok_or_else(|| D::Error::custom("this duration cannot be switched off"))
}

/// Reads a duration that can be switched off.
pub(super) fn optional<'de, D>(deserializer: D) -> Result<Option<Duration>, D::Error>
where
    D: Deserializer<'de>,
{
    deserializer.deserialize_any(DurationVisitor)
}

/// Reads `30s`, a number of seconds, or `off`.
pub(super) fn parse(text: &str) -> Result<Option<Duration>, &'static str> {
    match text.trim().to_ascii_lowercase().as_str() {
        // Not every file format has a null.
        "off" | "none" => Ok(None),
        _ => parse_duration(text, SECOND).map(Some),
    }
}

struct DurationVisitor;

impl<'de> Visitor<'de> for DurationVisitor {
    type Value = Option<Duration>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a duration such as \"30s\", a number of seconds, or \"off\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        parse(text).map_err(|wrong| E::custom(format_args!("{text:?} {wrong}")))
    }

    fn visit_u64<E: Error>(self, seconds: u64) -> Result<Self::Value, E> {
        Ok(Some(Duration::from_secs(seconds)))
    }

    fn visit_i64<E: Error>(self, seconds: i64) -> Result<Self::Value, E> {
        match u64::try_from(seconds) {
            Ok(seconds) => self.visit_u64(seconds),
            Err(_) => Err(E::custom(format_args!("{seconds} s is less than no time"))),
        }
    }

    fn visit_f64<E: Error>(self, seconds: f64) -> Result<Self::Value, E> {
        Duration::try_from_secs_f64(seconds)
            .map(Some)
            .map_err(|_| E::custom(format_args!("{seconds} s is no duration")))
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}
