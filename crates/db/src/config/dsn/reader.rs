//! Reads options one by one, so that an unknown option is an error.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{redact, same_name, texts};
use crate::{Error, Kind, Result};

/// The options of a DSN and of the builder, for a driver to take one by one.
///
/// A driver takes every option that it knows, and then calls [`finish`](OptionReader::finish), which refuses
/// the rest.
///
/// ```
/// use std::time::Duration;
/// use cenote::driver::{Dsn, Options};
///
/// let dsn: Dsn = "mydb:host=localhost;prot=7".parse()?;
/// let options = Options::new();
/// let mut reader = dsn.reader(&options);
/// assert_eq!(reader.take("host"), Some("localhost"));
/// assert_eq!(reader.take_parsed::<u16>("port")?, None);
/// let error = reader.finish().unwrap_err();
/// assert_eq!(error.message(), "mydb has no option prot; did you mean port?");
/// # Ok::<(), cenote::Error>(())
/// ```
pub struct OptionReader<'a> {
    driver: &'a str,
    left: Vec<(&'a str, &'a str)>,
    /// The names that the driver has asked for, found or not.
    known: Vec<String>,
}

/// A server, or the folder of a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Host {
    /// The name or address; an IPv6 address without brackets. Empty for the driver's default.
    pub name: String,
    /// The port, if the options contain one.
    pub port: Option<u16>,
}

impl Host {
    /// Returns whether the name is that of a Unix socket or its folder.
    pub fn is_socket(&self) -> bool {
        self.name.starts_with(['/', '@'])
    }
}

impl<'a> OptionReader<'a> {
    pub(super) fn new(driver: &'a str, options: Vec<(&'a str, &'a str)>) -> Self {
        OptionReader {
            driver,
            left: options,
            known: Vec::new(),
        }
    }

    /// Takes an option and returns its value.
    pub fn take(&mut self, name: &str) -> Option<&'a str> {
        self.known.push(name.to_owned());
        let at = self
            .left
            .iter()
            .position(|(left, _)| same_name(left, name))?;
        Some(self.left.remove(at).1)
    }

    /// Takes an option and parses its value, for example as a number.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`] with the option, the driver and the value.
    pub fn take_parsed<T>(&mut self, name: &str) -> Result<Option<T>>
    where
        T: FromStr<Err: fmt::Display>,
    {
        self.take_with(name, |text| {
            let value = text.trim().parse();
            value.map_err(|wrong: T::Err| format!("is wrong: {wrong}"))
        })
    }

    /// Takes a boolean option: `1`, `true`, `on`, `yes`; `0`, `false`, `off`, `no`.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`] with the option, the driver and the value.
    pub fn take_bool(&mut self, name: &str) -> Result<Option<bool>> {
        self.take_with(name, texts::parse_bool)
    }

    /// Takes a duration: `250ms`, `5s`, `2min`, `1h`, `1d`.
    ///
    /// A number without a unit counts `unit`s. Choose the unit that the option has in other programs: libpq's
    /// `connect_timeout` counts seconds, SQLite's `busy_timeout` milliseconds.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`] with the option, the driver and the value.
    pub fn take_duration(&mut self, name: &str, unit: Duration) -> Result<Option<Duration>> {
        self.take_with(name, |text| texts::parse_duration(text, unit))
    }

    /// Takes a number of bytes: `4096`, `64k`, `16MiB`, `1GB`.
    ///
    /// Each unit is 1024 times the previous one, in every spelling.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`] with the option, the driver and the value.
    pub fn take_size(&mut self, name: &str) -> Result<Option<u64>> {
        self.take_with(name, texts::parse_size)
    }

    /// Takes an option with a fixed set of values, and returns what its value stands for.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`] with the option, the driver, the value and the valid ones.
    pub fn take_choice<T: Copy>(&mut self, name: &str, choices: &[(&str, T)]) -> Result<Option<T>> {
        self.take_with(name, |text| {
            let chosen = choices
                .iter()
                .find(|(word, _)| same_name(word, text.trim()));
            chosen.map(|(_, meaning)| *meaning).ok_or_else(|| {
                let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
                format!("is none of {}", words.join(", "))
            })
        })
    }

    /// Takes `host` and `port`, which may be lists with commas, and returns the servers in order.
    ///
    /// One port applies to all hosts. Returns an empty list if there is neither option.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`] for a port that is not a number from 1 to 65535, or if the numbers of ports and hosts differ.
    pub fn take_hosts(&mut self) -> Result<Vec<Host>> {
        let hosts = self.take("host");
        let ports = self.take_with("port", |text| {
            text.split(',')
                .map(texts::parse_port)
                .collect::<Result<Vec<_>, _>>()
        })?;
        if hosts.is_none() && ports.is_none() {
            return Ok(Vec::new());
        }
        let names: Vec<_> = hosts.unwrap_or_default().split(',').collect();
        let ports = ports.unwrap_or_else(|| vec![None]);
        if ports.len() != 1 && ports.len() != names.len() {
            let (hosts, ports) = (names.len(), ports.len());
            let wrong = format!("has {ports} ports for {hosts} hosts");
            return Err(self.error("port", wrong));
        }
        let port_of = |n: usize| ports.get(n).or(ports.first()).copied().flatten();
        let hosts = names.into_iter().enumerate().map(|(n, name)| Host {
            name: without_brackets(name.trim()).to_owned(),
            port: port_of(n),
        });
        Ok(hosts.collect())
    }

    /// Takes all remaining options, for a driver that passes unknown ones on.
    pub fn take_rest(&mut self) -> Vec<(&'a str, &'a str)> {
        std::mem::take(&mut self.left)
    }

    /// Returns an error about an option, for values that only the driver can judge.
    ///
    /// `wrong` continues the sentence after the name: `cannot be more than max`.
    pub fn error(&self, name: &str, wrong: impl fmt::Display) -> Error {
        let what = format!("the option {name} of {} {wrong}", self.driver);
        Error::new(Kind::Config, what)
    }

    /// Refuses options that the driver has not taken.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`] for the first of them, with the driver's name and a similar option name, if there is one.
    pub fn finish(self) -> Result<()> {
        let Some((unknown, _)) = self.left.first() else {
            return Ok(());
        };
        let advice = match closest(unknown, &self.known) {
            Some(meant) => format!("did you mean {meant}?"),
            None if self.known.is_empty() => "it has none".to_owned(),
            None => format!("it has {}", self.known.join(", ")),
        };
        let unknown = unknown.escape_debug();
        let what = format!("{} has no option {unknown}; {advice}", self.driver);
        Err(Error::new(Kind::Config, what))
    }

    fn take_with<T, Wrong: fmt::Display>(
        &mut self,
        name: &str,
        read: impl FnOnce(&'a str) -> Result<T, Wrong>,
    ) -> Result<Option<T>> {
        let Some(text) = self.take(name) else {
            return Ok(None);
        };
        read(text).map(Some).map_err(|wrong| {
            // A parser's message may quote the value.
            match redact::is_secret(name) {
                true => self.error(name, "has a value that cannot be read"),
                false => {
                    let value: String = redact::shown(name, text).chars().take(60).collect();
                    self.error(name, format_args!("is {value:?}, which {wrong}"))
                }
            }
        })
    }
}

impl fmt::Debug for OptionReader<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.left.iter().map(|(name, _)| name).collect();
        out.debug_struct("OptionReader")
            .field("driver", &self.driver)
            .field("left", &names)
            .finish_non_exhaustive()
    }
}

fn without_brackets(name: &str) -> &str {
    let inner = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    inner.unwrap_or(name)
}

/// Returns the most similar known name, if a typing error can explain the difference.
fn closest<'k>(unknown: &str, known: &'k [String]) -> Option<&'k str> {
    let unknown = unknown.to_ascii_lowercase();
    let steps = |name: &String| edits(&unknown, &name.to_ascii_lowercase());
    let nearest = known.iter().min_by_key(|name| steps(name))?;
    let allowed = 1 + unknown.chars().count() / 5;
    (steps(nearest) <= allowed).then_some(nearest.as_str())
}

/// Returns the edit distance: insertions, deletions, substitutions, and swaps of neighbours.
fn edits(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    let mut previous = None;
    for (i, a) in one.chars().enumerate() {
        let mut row = vec![i + 1];
        for (j, &b) in other.iter().enumerate() {
            let changed = last[j] + usize::from(a != b);
            let mut fewest = changed.min(last[j + 1] + 1).min(row[j] + 1);
            if j > 0 && previous == Some(b) && a == other[j - 1] {
                fewest = fewest.min(before_last[j - 1] + 1);
            }
            row.push(fewest);
        }
        before_last = std::mem::replace(&mut last, row);
        previous = Some(a);
    }
    last[other.len()]
}
