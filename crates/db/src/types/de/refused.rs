//! Why a row is not what was asked for.

use std::fmt;

use serde::de::{self, Expected, Unexpected};

use crate::types::row::Columns;
use crate::types::value::ConvertError;
use crate::{Error, Kind};

/// Why a row is not what was asked for, before it is an [`Error`].
#[derive(Debug)]
pub(super) enum Refused {
    /// It has no column for this field.
    Missing(&'static str),
    /// A value is not of the type; the column is not known here yet.
    Value(String),
    /// The row was offered as a map, and this was wanted.
    Map(String),
    /// The whole story.
    Told(Error),
}

impl Refused {
    /// The row has another number of columns than were asked for.
    pub(super) fn columns(columns: &Columns, wanted: &str) -> Self {
        Refused::Told(wrong_number(columns, wanted))
    }

    /// With the name of the column, if that is not known yet.
    pub(super) fn at(self, columns: &Columns, position: usize) -> Self {
        match self {
            Refused::Value(message) => {
                let message = format!("{}: {message}", columns.label(position));
                Refused::Told(Error::new(Kind::Type, message))
            }
            known => known,
        }
    }

    pub(super) fn into_error(self, columns: &Columns) -> Error {
        match self {
            Refused::Missing(field) => match columns.position(field) {
                Err(error) => error,
                // Only if case is set aside, which could not be done for this field.
                Ok(_) => columns.no_such(&format_args!("`{field}`")),
            },
            Refused::Value(message) => Error::new(Kind::Type, message),
            Refused::Map(wanted) => wrong_number(columns, &wanted),
            Refused::Told(error) => error,
        }
    }
}

fn wrong_number(columns: &Columns, wanted: &str) -> Error {
    let there = match columns.len() {
        0 => "no columns".to_owned(),
        1 => "1 column".to_owned(),
        count => format!("{count} columns"),
    };
    let message = format!("the row has {there}, wanted {wanted}");
    Error::new(Kind::Column, message)
}

impl de::Error for Refused {
    fn custom<M: fmt::Display>(message: M) -> Self {
        Refused::Value(message.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        match found {
            Unexpected::Map => Refused::Map(wanted.to_string()),
            found => Refused::custom(format_args!("found {found}, wanted {wanted}")),
        }
    }

    fn missing_field(field: &'static str) -> Self {
        Refused::Missing(field)
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let mut message = format!("the row has a column `{field}`, which was not asked for");
        for (at, name) in expected.iter().enumerate() {
            let before = if at == 0 { "; wanted `" } else { ", `" };
            message.push_str(before);
            message.push_str(name);
            message.push('`');
        }
        Refused::Told(Error::new(Kind::Column, message))
    }
}

impl From<ConvertError> for Refused {
    fn from(error: ConvertError) -> Self {
        Refused::Value(error.to_string())
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Refused::Told(error)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Missing(field) => write!(out, "the row has no column `{field}`"),
            Refused::Value(message) => out.write_str(message),
            Refused::Map(wanted) => write!(out, "found a row, wanted {wanted}"),
            Refused::Told(error) => error.fmt(out),
        }
    }
}

impl std::error::Error for Refused {}
