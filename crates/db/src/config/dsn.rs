//! Data source names: the driver, the server and the options in one line.
//!
//! ```text
//! text ──Dsn::parse──> driver : rest ──by the driver's syntax──> options · credentials · path
//!                                                                    │
//!                          Options (builder) ── the builder wins ──> OptionReader ── take … finish
//! ```
//!
//! Parsing opens nothing, and does not know what an option means:
//!
//! | before the colon | after it | options |
//! |---|---|---|
//! | any | `//user:password@host:port,host/dbname?key=value&…` | `host`, `port`, `dbname`, and the query |
//! | `sqlite` | `path?key=value&…`, `//path?…`, or SQLite's own `file:…` | the query; none with `file:` |
//! | `pgsql` | libpq's `key=value key='va\'lue'`, by spaces or `;` | the pairs |
//! | `odbc` | `key=value;key={va;lue}`, or the name of a data source | the pairs |
//! | others | `key=value;key=va;;lue`, where `;;` is one `;` | the pairs |
//!
//! Option names are case-insensitive. User and password are not options but [`credentials`](Dsn::credentials), which the
//! layer passes to each connect.
//!
//! The displayed form of a DSN never contains a password; it is computed once, by the parser.

mod options;
mod pairs;
mod reader;
mod redact;
pub(crate) mod texts;
mod url;

use std::fmt;
use std::str::FromStr;

pub use self::options::Options;
pub use self::reader::{Host, OptionReader};
use crate::config::secret::{Credentials, Secret};
use crate::{Error, Kind, Result};

/// A parsed data source name.
///
/// It is written as in PHP's PDO, or as a URL:
///
/// ```
/// use cenote::driver::Dsn;
///
/// let dsn: Dsn = "pgsql:host=localhost;port=5432;dbname=shop".parse()?;
/// assert_eq!((dsn.driver(), dsn.option("dbname")), ("pgsql", Some("shop")));
///
/// let dsn: Dsn = "postgres://app:se%20cret@localhost/shop?sslmode=require".parse()?;
/// assert_eq!(dsn.option("dbname"), Some("shop"));
/// assert_eq!(dsn.to_string(), "postgres://app:***@localhost/shop?sslmode=require");
///
/// let dsn: Dsn = "sqlite:/var/lib/shop.db?mode=ro".parse()?;
/// assert_eq!((dsn.path(), dsn.option("mode")), (Some("/var/lib/shop.db"), Some("ro")));
/// # Ok::<(), cenote::Error>(())
/// ```
///
/// `Display` and `Debug` show `***` for every password.
#[derive(Clone, PartialEq, Eq)]
pub struct Dsn {
    driver: String,
    rest: Secret,
    parts: Parts,
}

/// The parts of the text after the colon.
#[derive(Clone, Default, PartialEq, Eq)]
struct Parts {
    /// In the order of the text. Wiped, because any of them may be a secret.
    options: Vec<(String, Secret)>,
    credentials: Credentials,
    path: Option<Secret>,
    /// The text for display: in one line, without passwords.
    shown: String,
}

/// The syntax of the text after the colon, unless it is a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Syntax {
    /// A file name and a query. Its URLs contain no server.
    File,
    /// libpq's: blanks between pairs, quotes around values.
    Libpq,
    /// ODBC's: braces around values, or only a data source name.
    Odbc,
    /// PDO's, with `;;` for a `;` in a value.
    Pdo,
    /// An unknown driver's: PDO's if the text looks like it, otherwise any text.
    Free,
}

impl Syntax {
    fn of(driver: &str) -> Self {
        match driver {
            "sqlite" | "sqlite3" => Syntax::File,
            "pgsql" | "postgres" | "postgresql" => Syntax::Libpq,
            "mysql" | "mariadb" => Syntax::Pdo,
            "odbc" => Syntax::Odbc,
            _ => Syntax::Free,
        }
    }

    /// Returns valid examples, for messages.
    fn example(self) -> &'static str {
        match self {
            Syntax::File => "sqlite:/path/shop.db or sqlite:///path/shop.db?mode=ro",
            Syntax::Libpq => {
                "pgsql:host=localhost;dbname=shop or postgres://user:password@localhost:5432/shop"
            }
            Syntax::Pdo => {
                "mysql:host=localhost;dbname=shop or mysql://user:password@localhost:3306/shop"
            }
            Syntax::Odbc => "odbc:DRIVER={PostgreSQL Unicode};SERVER=localhost or odbc:NAME",
            Syntax::Free => "driver:host=localhost;dbname=shop or driver://localhost/shop",
        }
    }
}

impl Dsn {
    /// Parses a DSN. Opens nothing.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`], in one line with the problem and a valid example. The message never quotes the text, which may
    /// contain a password.
    pub fn parse(text: &str) -> Result<Self> {
        let (driver, rest) = text.split_once(':').ok_or_else(|| {
            malformed(
                "the DSN has no driver: before its first colon stands the driver's name",
                "sqlite:shop.db or postgres://user:password@localhost/shop",
            )
        })?;
        if !is_driver_name(driver) {
            return Err(malformed(
                "the DSN does not begin with the name of a driver and a colon",
                "sqlite:shop.db or postgres://user:password@localhost/shop",
            ));
        }
        let driver = driver.to_ascii_lowercase();
        let syntax = Syntax::of(&driver);
        let mut parts = parse_rest(&driver, syntax, rest).map_err(|wrong| {
            let what = format!("the {driver} DSN is malformed: {wrong}");
            malformed(&what, syntax.example())
        })?;
        parts.shown = parts.shown.replace(char::is_control, " ");
        Ok(Dsn {
            driver,
            rest: Secret::from(rest),
            parts,
        })
    }

    /// Returns the text before the first colon in lower case: `pgsql`, `postgres`, `sqlite` …
    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// Returns the text after the first colon, unchanged, for drivers with their own format.
    ///
    /// It may contain a password, so it must not appear in a message.
    pub fn rest(&self) -> &str {
        self.rest.expose()
    }

    /// Returns the file name or data source name; `None` for a DSN that names a server.
    ///
    /// For `sqlite:` it is the text before the `?`, decoded if the DSN is a URL (`sqlite:///path`). `file:…` is returned as a
    /// whole, because SQLite parses it.
    pub fn path(&self) -> Option<&str> {
        self.parts.path.as_ref().map(Secret::expose)
    }

    /// Returns a copy of the user and the password in the DSN.
    ///
    /// They come from a URL's `user:password@`, or from `user` (`username`, `uid`) and `password` (`passwd`, `pwd`).
    pub fn credentials(&self) -> Credentials {
        self.parts.credentials.clone()
    }

    /// Returns the value of an option, for every syntax.
    pub fn option(&self, name: &str) -> Option<&str> {
        find(&self.parts.options, name).map(Secret::expose)
    }

    /// Returns all options in the order of the text; for a URL, `host`, `port` and `dbname` come first.
    pub fn options(&self) -> impl Iterator<Item = (&str, &str)> {
        in_order(&self.parts.options)
    }

    /// Returns a reader of the options of this DSN and of the builder. The builder's options take precedence.
    pub fn reader<'a>(&'a self, options: &'a Options) -> OptionReader<'a> {
        let replaced = |name: &str| options.get(name).is_some();
        let own = self.options().filter(|(name, _)| !replaced(name));
        OptionReader::new(&self.driver, own.chain(options.iter()).collect())
    }
}

impl FromStr for Dsn {
    type Err = Error;

    /// See [`Dsn::parse`].
    fn from_str(text: &str) -> Result<Self> {
        Dsn::parse(text)
    }
}

impl fmt::Display for Dsn {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.driver, self.parts.shown)
    }
}

impl fmt::Debug for Dsn {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Dsn({self})")
    }
}

fn parse_rest(driver: &str, syntax: Syntax, rest: &str) -> Result<Parts, String> {
    if rest.contains('\0') {
        return Err("there is a NUL in it".to_owned());
    }
    let is_url_or_file = rest.starts_with("//") || syntax == Syntax::File;
    if is_url_or_file && rest.contains(char::is_control) {
        return Err("there is a control character in it, such as a line break".to_owned());
    }
    match (rest.strip_prefix("//"), syntax) {
        (Some(path), Syntax::File) => url::parse_file(path),
        (Some(address), _) => url::parse_server(address),
        (None, Syntax::File) => url::parse_path(rest),
        (None, Syntax::Odbc) if !rest.contains('=') => Ok(just_a_name(rest)),
        (None, Syntax::Free) if !pairs::look_like(rest) => Ok(just_a_name(rest)),
        (None, Syntax::Libpq | Syntax::Pdo) if rest.starts_with('/') => {
            Err(format!("a URL begins with {driver}://"))
        }
        (None, syntax) => pairs::parse(syntax, rest),
    }
}

fn just_a_name(rest: &str) -> Parts {
    Parts {
        path: Some(Secret::from(rest)),
        shown: redact::shown_text(rest).to_owned(),
        ..Parts::default()
    }
}

impl Parts {
    /// Adds a pair to the credentials or to the options.
    fn keep(&mut self, name: String, value: Secret) -> Result<(), String> {
        let lower = name.to_ascii_lowercase();
        match lower.as_str() {
            "user" | "username" | "uid" => match self.credentials.user {
                Some(_) => return Err(format!("the user is given twice, once as {name}")),
                None => self.credentials.user = Some(value.expose().to_owned()),
            },
            "password" | "passwd" | "pwd" => match self.credentials.password {
                Some(_) => return Err(format!("the password is given twice, once as {name}")),
                None => self.credentials.password = Some(value),
            },
            _ => return self.keep_option(name, value),
        }
        Ok(())
    }

    fn keep_option(&mut self, name: String, value: Secret) -> Result<(), String> {
        if find(&self.options, &name).is_some() {
            return Err(format!("the option {name} is given twice"));
        }
        self.options.push((name, value));
        Ok(())
    }
}

fn same_name(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

fn find<'a>(options: &'a [(String, Secret)], name: &str) -> Option<&'a Secret> {
    let found = options.iter().find(|(known, _)| same_name(known, name));
    found.map(|(_, value)| value)
}

fn in_order(options: &[(String, Secret)]) -> impl Iterator<Item = (&str, &str)> {
    options
        .iter()
        .map(|(name, value)| (name.as_str(), value.expose()))
}

/// Whether the text is a valid driver name: a letter, then letters, digits and `+`, `-`, `.`, `_`.
fn is_driver_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.' | '_'))
}

/// Whether the text is a valid option name. A valid one has no line break, so messages can quote it.
fn is_option_name(text: &str) -> bool {
    let fits = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ' ');
    !text.is_empty() && text.chars().all(fits)
}

fn malformed(what: &str, example: &str) -> Error {
    Error::new(Kind::Config, format!("{what}; a right one: {example}"))
}
