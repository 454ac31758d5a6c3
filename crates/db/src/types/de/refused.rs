//! The error of reading a row into a serde type.

use std::fmt;

use serde::de::{self, Expected, Unexpected};

use crate::types::row::Columns;
use crate::types::value::ConvertError;
use crate::{Error, Kind};

/// Why a row cannot be read into a type. It becomes an [`Error`] when the columns are known.
#[derive(Debug)]
pub(super) enum Refused {
    /// The row has no column for this field.
    Missing(&'static str),
    /// A value has another type; its column is not known yet.
    Value(String),
    /// The row was offered as a map, and the type is another one.
    Map(String),
    /// A row of one column, read into a type that could be the row or the value.
    Ambiguous(&'static str),
    /// An error that needs no more information.
    Complete(Error),
}

impl Refused {
    /// Returns the error for a row that has another number of columns than the type.
    pub(super) fn columns(columns: &Columns, wanted: &str) -> Self {
        Refused::Complete(wrong_number(columns, wanted))
    }

    /// Returns the error with the name of the column.
    pub(super) fn at(self, columns: &Columns, position: usize) -> Self {
        match self {
            Refused::Value(message) => {
                let message = format!("{}: {message}", columns.label(position));
                Refused::Complete(Error::new(Kind::Type, message))
            }
            // A value that serde took for a map, such as a JSON object.
            Refused::Map(wanted) => {
                Refused::Value(format!("found a map, wanted {wanted}")).at(columns, position)
            }
            known => known,
        }
    }

    /// Returns the error with the position of the element in its array, counted from 1.
    pub(super) fn in_element(self, position: usize) -> Self {
        match self {
            Refused::Value(message) => Refused::Value(format!("element {position}: {message}")),
            known => known,
        }
    }

    /// Returns the error with the type of the value, for a type that parses it from text.
    pub(super) fn of_type(self, type_name: &str) -> Self {
        let remedy = match type_name {
            "timestamptz" => "; a type with a time zone takes it, such as DateTime<Utc>, or cast",
            "datetime" => "; a type without a time zone takes it, such as NaiveDateTime, or cast",
            _ => "",
        };
        match self {
            Refused::Value(message) => {
                Refused::Value(format!("found {type_name}: {message}{remedy}"))
            }
            known => known,
        }
    }

    pub(super) fn into_error(self, columns: &Columns) -> Error {
        match self {
            Refused::Missing(field) => match columns.position(field) {
                Err(error) => error,
                // A flattened struct finds its columns by the exact case only.
                Ok(_) => columns.no_such(&format_args!("`{field}`")),
            },
            Refused::Value(message) => Error::new(Kind::Type, message),
            Refused::Map(wanted) => wrong_number(columns, &wanted),
            Refused::Ambiguous(what) => ambiguous(what),
            Refused::Complete(error) => error,
        }
    }
}

fn ambiguous(what: &str) -> Error {
    let message = format!(
        "the row has 1 column, and {what} could mean the row or its value: for the value use query_scalar \
         or a tuple of one, (T,)"
    );
    Error::new(Kind::Column, message)
}

fn wrong_number(columns: &Columns, wanted: &str) -> Error {
    let there = match columns.len() {
        0 => "no columns".to_owned(),
        1 => "1 column".to_owned(),
        count => format!("{count} columns"),
    };
    let remedy = match columns.len() {
        1 => "; for the value of the column use query_scalar or a tuple of one, (T,)",
        _ => "",
    };
    let message = format!("the row has {there}, wanted {wanted}{remedy}");
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
        Refused::Complete(Error::new(Kind::Column, message))
    }
}

impl From<ConvertError> for Refused {
    fn from(error: ConvertError) -> Self {
        Refused::Value(error.to_string())
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Refused::Complete(error)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Missing(field) => write!(out, "the row has no column `{field}`"),
            Refused::Value(message) => out.write_str(message),
            Refused::Map(wanted) => write!(out, "found a row, wanted {wanted}"),
            Refused::Ambiguous(what) => ambiguous(what).fmt(out),
            Refused::Complete(error) => error.fmt(out),
        }
    }
}

impl std::error::Error for Refused {}
