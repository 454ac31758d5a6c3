//! Putting parameters in the order of the placeholders.

use std::borrow::Cow;

use super::Params;
use crate::driver::Param;
use crate::sql::Placeholders;
use crate::types::value::Value;
use crate::{Error, Kind, Result};

impl<'a> Params<'a> {
    /// One value for each placeholder, in the order that the database wants them.
    ///
    /// # Errors
    ///
    /// [`Kind::Parameters`] if their number, their names or their kind (with or without names) do
    /// not fit; it says which.
    #[inline]
    pub fn bind(self, placeholders: &Placeholders<'_>) -> Result<Vec<Param<'a>>> {
        match (self, placeholders) {
            (Params::Positional(values), Placeholders::None) => counted(values, 0),
            (Params::Positional(values), Placeholders::Positional(count)) => {
                counted(values, *count)
            }
            (Params::Positional(values), Placeholders::Named(names)) => {
                Err(unnamed(&values, names))
            }
            (Params::Named(values), Placeholders::None) => by_name(values, &[]),
            (Params::Named(values), Placeholders::Named(names)) => by_name(values, names),
            (Params::Named(values), Placeholders::Positional(count)) => {
                Err(no_names(&values, *count))
            }
        }
    }
}

#[inline]
fn counted(values: Vec<Param<'_>>, placeholders: usize) -> Result<Vec<Param<'_>>> {
    match values.len() == placeholders {
        true => Ok(values),
        false => Err(miscounted(values.len(), placeholders)),
    }
}

#[cold]
fn miscounted(values: usize, placeholders: usize) -> Error {
    refuse(format!(
        "the SQL has {} and {}",
        counted_placeholders(placeholders),
        given(values)
    ))
}

fn by_name<'a>(
    mut values: Vec<(Cow<'a, str>, Param<'a>)>,
    names: &[&str],
) -> Result<Vec<Param<'a>>> {
    for (at, (name, _)) in values.iter().enumerate() {
        if values[..at].iter().any(|(other, _)| other == name) {
            return Err(refuse(format!("two values were given for :{name}")));
        }
        if !names.contains(&&**name) {
            return Err(unknown(name, names));
        }
    }
    let mut bound = Vec::with_capacity(names.len());
    for (at, name) in names.iter().enumerate() {
        let Some((_, value)) = values.iter_mut().find(|(given, _)| given == name) else {
            return Err(refuse(format!("no value was given for :{name}")));
        };
        let is_needed_again = names[at + 1..].contains(name);
        bound.push(if is_needed_again {
            value.clone()
        } else {
            std::mem::replace(value, Param::Value(Value::Null))
        });
    }
    Ok(bound)
}

/// Values without names for placeholders with names.
fn unnamed(values: &[Param<'_>], names: &[&str]) -> Error {
    let first = names.first().copied().unwrap_or_default();
    if values.is_empty() {
        return refuse(format!("no value was given for :{first}"));
    }
    refuse(format!(
        "the placeholders of the SQL have names, such as :{first}, and {} without a name",
        given(values.len())
    ))
}

/// Values with names for placeholders without.
fn no_names(values: &[(Cow<'_, str>, Param<'_>)], placeholders: usize) -> Error {
    let placeholders = counted_placeholders(placeholders);
    match values.first() {
        None => refuse(format!("the SQL has {placeholders} and no value was given")),
        Some((name, _)) => refuse(format!(
            "the SQL has {placeholders} without names, and a value was given for :{name}"
        )),
    }
}

fn unknown(name: &str, names: &[&str]) -> Error {
    let mut message = format!("the SQL has no placeholder :{name}");
    if let Some(meant) = closest(name, names) {
        message.push_str(&format!("; did you mean :{meant}?"));
    }
    refuse(message)
}

fn refuse(message: String) -> Error {
    Error::new(Kind::Parameters, message)
}

fn counted_placeholders(count: usize) -> String {
    match count {
        0 => "no placeholders".to_owned(),
        1 => "1 placeholder".to_owned(),
        count => format!("{count} placeholders"),
    }
}

fn given(count: usize) -> String {
    match count {
        0 => "no value was given".to_owned(),
        1 => "1 value was given".to_owned(),
        count => format!("{count} values were given"),
    }
}

/// The name that was probably meant.
fn closest<'n>(name: &str, names: &[&'n str]) -> Option<&'n str> {
    let slips = |other: &&str| slips(name, other);
    let nearest = *names.iter().min_by_key(|other| slips(other))?;
    // In a short name, two slips make another name of it.
    let allowed = if name.chars().count() < 5 { 1 } else { 2 };
    (slips(&nearest) <= allowed).then_some(nearest)
}

/// How many letters have to be changed, added or left out to make one name of the other.
/// Case does not count.
fn slips(one: &str, other: &str) -> usize {
    let one: Vec<char> = one.chars().collect();
    // Row by row of the table of all beginnings of the two; only the last row is kept.
    let mut row: Vec<usize> = (0..=one.len()).collect();
    for (at, letter) in other.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (column, same) in one
            .iter()
            .map(|own| own.eq_ignore_ascii_case(&letter))
            .enumerate()
        {
            let changed = diagonal + usize::from(!same);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[one.len()]
}
