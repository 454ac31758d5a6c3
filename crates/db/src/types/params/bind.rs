//! Matches parameters with placeholders.

use std::borrow::Cow;

use super::Params;
use crate::driver::Param;
use crate::sql::Placeholders;
use crate::types::value::Value;
use crate::{Error, Kind, Result};

impl<'a> Params<'a> {
    /// Returns one value for each placeholder, in the order that the database expects.
    ///
    /// # Errors
    ///
    /// [`Kind::Parameters`] if the number, the names or the kind of the values (with or without names) does
    /// not match the placeholders. The message names the mismatch.
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
            let without_value: Vec<&str> = names
                .iter()
                .filter(|name| !values.iter().any(|(given, _)| given == *name))
                .copied()
                .collect();
            return Err(unknown(name, &without_value));
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

/// The error for values without names where the placeholders have names.
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

/// The error for values with names where the placeholders have none.
fn no_names(values: &[(Cow<'_, str>, Param<'_>)], placeholders: usize) -> Error {
    let placeholders = counted_placeholders(placeholders);
    match values.first() {
        None => refuse(format!("the SQL has {placeholders} and no value was given")),
        Some((name, _)) => refuse(format!(
            "the SQL has {placeholders} without names, and a value was given for :{name}"
        )),
    }
}

/// The error for a value whose name no placeholder has.
fn unknown(name: &str, without_value: &[&str]) -> Error {
    let mut message = format!("the SQL has no placeholder :{name}");
    if let Some(meant) = closest(name, without_value) {
        message.push_str(&format!("; :{meant} has no value, did you mean that?"));
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

/// Returns the name that was probably meant.
fn closest<'n>(name: &str, names: &[&'n str]) -> Option<&'n str> {
    let nearest = *names.iter().min_by_key(|other| edits(name, other))?;
    // Two edits turn a short name into an unrelated one.
    let allowed = if name.chars().count() < 5 { 1 } else { 2 };
    (edits(name, nearest) <= allowed).then_some(nearest)
}

/// Returns how many letters have to be changed, added, removed or swapped with their neighbour to turn one
/// name into the other. Case does not count.
fn edits(one: &str, other: &str) -> usize {
    let lower = |name: &str| -> Vec<char> { name.to_lowercase().chars().collect() };
    let (one, other) = (lower(one), lower(other));
    // `table[a][b]` is the number for the first `a` letters of one and the first `b` of the other.
    let mut table = vec![vec![0; other.len() + 1]; one.len() + 1];
    for a in 0..=one.len() {
        for b in 0..=other.len() {
            if a == 0 || b == 0 {
                table[a][b] = a + b;
                continue;
            }
            let changed = table[a - 1][b - 1] + usize::from(one[a - 1] != other[b - 1]);
            let mut least = changed.min(table[a - 1][b] + 1).min(table[a][b - 1] + 1);
            let is_swap =
                a > 1 && b > 1 && one[a - 1] == other[b - 2] && one[a - 2] == other[b - 1];
            if is_swap {
                least = least.min(table[a - 2][b - 2] + 1);
            }
            table[a][b] = least;
        }
    }
    table[one.len()][other.len()]
}
