//! Options that the builder passes beside the DSN.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use super::{Syntax, find, in_order, pairs, redact, same_name};
use crate::config::secret::Secret;

/// Options for the driver, beside those in the DSN.
///
/// `Debug` shows `***` for options whose names are those of secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Options {
    options: Vec<(String, Secret)>,
}

impl Options {
    /// Returns an empty set of options.
    pub fn new() -> Self {
        Options::default()
    }

    /// Parses `name=value;name=value`, where `;;` is a `;` in a value. The error quotes no values.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut options = Options::new();
        pairs::read(Syntax::Pdo, text, |name, value| {
            if options.get(name).is_some() {
                return Err(format!("the option {name} is given twice"));
            }
            options.set(name, value);
            Ok(())
        })?;
        Ok(options)
    }

    /// Sets an option, and replaces an earlier value of the same name.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<Secret>) {
        let name = name.into();
        self.options.retain(|(known, _)| !same_name(known, &name));
        self.options.push((name, value.into()));
    }

    /// Returns the value of an option.
    pub fn get(&self, name: &str) -> Option<&str> {
        find(&self.options, name).map(Secret::expose)
    }

    /// Returns all options, in the order in which they were set.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        in_order(&self.options)
    }

    /// Returns whether there are no options.
    pub fn is_empty(&self) -> bool {
        self.options.is_empty()
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self
            .iter()
            .map(|(name, value)| (name, redact::shown(name, value)));
        out.debug_map().entries(shown).finish()
    }
}

impl<'de> Deserialize<'de> for Options {
    /// Reads a map whose values are texts, numbers or booleans.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OptionsVisitor)
    }
}

struct OptionsVisitor;

impl<'de> Visitor<'de> for OptionsVisitor {
    type Value = Options;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a map of options")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Options, A::Error> {
        let mut options = Options::new();
        while let Some((name, value)) = map.next_entry::<String, Scalar>()? {
            if options.get(&name).is_some() {
                let what = format!("the option {name:?} is given twice");
                return Err(Error::custom(what));
            }
            options.set(name, value.0);
        }
        Ok(options)
    }
}

/// A text, number or boolean of a configuration file, as text.
struct Scalar(String);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl Visitor<'_> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a text, a number or a boolean")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Scalar, E> {
        Ok(Scalar(text.to_owned()))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Scalar, E> {
        Ok(Scalar(text))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Scalar, E> {
        Ok(Scalar(value.to_string()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Scalar, E> {
        Ok(Scalar(value.to_string()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Scalar, E> {
        Ok(Scalar(value.to_string()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Scalar, E> {
        Ok(Scalar(value.to_string()))
    }
}
