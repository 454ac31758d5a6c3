//! A data source name is taken apart or refused in one line; what is shown of it can be read again,
//! and never shows the secret.

use std::error::Error as _;
use std::fmt::Write as _;

use cenote::driver::{Credentials, Driver, Dsn, Options};
use cenote::mysql::Mysql;
use cenote::odbc::Odbc;
use cenote::postgres::Postgres;
use cenote::sqlite::Sqlite;
use cenote::{Error, Kind};

use super::choices::Choices;

const NAMES: [&str; 6] = ["sqlite", "pgsql", "postgres", "mysql", "odbc", "own"];

/// Stands in a password. No message has these letters in this order.
const MARK: &str = "SQUEAMISH";

pub fn check(data: &[u8]) {
    let mut choices = Choices::new(data);
    match choices.byte() % 3 {
        0 => any_text(&choices.rest_as_text()),
        1 => {
            let name = choices.pick(&NAMES);
            any_text(&format!("{name}:{}", choices.rest_as_text()));
        }
        _ => planted(choices),
    }
}

fn any_text(text: &str) {
    match Dsn::parse(text) {
        Ok(dsn) => {
            can_be_read_again(&dsn);
            let _ = everything_shown(&dsn);
        }
        Err(error) => is_one_line_about_the_configuration(&error),
    }
}

/// The first line of all that is wrong with a DSN.
fn is_one_line_about_the_configuration(error: &Error) {
    assert_eq!(error.kind(), Kind::Config, "{error}");
    assert_eq!(error.message().lines().count(), 1, "{error}");
}

/// What is shown is a DSN again, for the same place: only what is secret, and what would break
/// the line, is not as it was.
fn can_be_read_again(dsn: &Dsn) {
    let shown = dsn.to_string();
    assert_eq!(shown.lines().count(), 1, "{shown:?}");
    let again = Dsn::parse(&shown)
        .unwrap_or_else(|error| panic!("{shown:?} cannot be read again: {error}"));
    assert_eq!(again.to_string(), shown);
    assert_eq!(again.driver(), dsn.driver());
    let is_same = |then: &str, now: &str| {
        now == then || now == then.replace(char::is_control, " ") || now.contains("***")
    };
    let (then, now) = (dsn.credentials().user, again.credentials().user);
    match (&then, &now) {
        (Some(then), Some(now)) => assert!(is_same(then, now), "{then:?} and {now:?}"),
        (then, now) => assert_eq!(then, now, "the user in {shown:?}"),
    }
    match (dsn.path(), again.path()) {
        (Some(then), Some(now)) => assert!(is_same(then, now), "{then:?} and {now:?}"),
        (then, now) => assert_eq!(then, now, "the path in {shown:?}"),
    }
    let (then, now): (Vec<_>, Vec<_>) = (dsn.options().collect(), again.options().collect());
    assert_eq!(then.len(), now.len(), "{shown:?}");
    for ((name, value), (name_again, value_again)) in then.iter().zip(&now) {
        assert_eq!(name, name_again, "{shown:?}");
        assert!(
            is_same(value, value_again),
            "{name}: {value:?} and {value_again:?} in {shown:?}"
        );
    }
    let had_password = dsn.credentials().password.is_some();
    assert_eq!(
        again.credentials().password.is_some(),
        had_password,
        "{shown:?}"
    );
}

/// A DSN with a secret in it, rightly written or cut off anywhere: it is nowhere to be seen.
fn planted(mut choices: Choices<'_>) {
    let form = choices.byte();
    let cut = choices.byte();
    let before = choices.text(40).replace('\0', "");
    let after = choices.rest_as_text().replace('\0', "");
    if before.contains(MARK) || after.contains(MARK) {
        return;
    }
    let secret = format!("{before}{MARK}{after}");
    let text = write(form, &secret);
    let (text, is_whole) = match cut {
        0..128 => (text.as_str(), true),
        // Without what comes after it, it is a name like any other.
        _ if form % FORMS >= WELL_FORMED => (text.as_str(), true),
        _ => {
            let end = usize::from(cut - 128).min(text.len());
            let end = (0..=end).rev().find(|end| text.is_char_boundary(*end));
            (&text[..end.unwrap_or(0)], false)
        }
    };
    let shown = match Dsn::parse(text) {
        Ok(dsn) => {
            if is_whole && form % FORMS < WITH_PASSWORD {
                let given = dsn.credentials().password;
                let given = given.as_ref().map(|given| given.expose());
                assert_eq!(given, Some(secret.as_str()), "{text:?}");
            }
            can_be_read_again(&dsn);
            everything_shown(&dsn)
        }
        Err(error) => {
            assert!(
                !is_whole || form % FORMS >= WELL_FORMED,
                "{text:?}: {error}"
            );
            is_one_line_about_the_configuration(&error);
            everything_said(&error)
        }
    };
    assert!(!shown.contains(MARK), "{text:?}: {shown}");
}

/// The ways to write a secret into a DSN. The first ones are a password, rightly written.
const WITH_PASSWORD: u8 = 8;
const WELL_FORMED: u8 = 12;
const FORMS: u8 = 16;

fn write(form: u8, secret: &str) -> String {
    let backslashed = secret.replace('\\', r"\\").replace('\'', r"\'");
    let mut encoded = String::new();
    for byte in secret.bytes() {
        let _ = write!(encoded, "%{byte:02X}");
    }
    match form % FORMS {
        0 => format!("pgsql:password='{backslashed}' host=h"),
        1 => format!("odbc:DSN=x;PWD={{{}}};UID=me", secret.replace('}', "}}")),
        2 => format!(
            "mysql:user=me;password={};host=h",
            secret.replace(';', ";;")
        ),
        3 => format!("own:passwd={};a=b", secret.replace(';', ";;")),
        4 => format!("postgres://me:{encoded}@h:5432/db"),
        5 => format!("mysql://h/db?password={encoded}&compress=1"),
        6 => format!("postgresql://:{encoded}@[::1],h2/db?sslmode=require"),
        7 => format!("pgsql:host=h dbname=x pwd='{backslashed}'"),
        8 => format!("sqlite:x.db?key={encoded}"),
        9 => format!("sqlite:file:x?hexkey={encoded}&mode=ro"),
        10 => format!("postgres://h/db?sslpassword={encoded}"),
        11 => format!("own:access_token={};a=b", secret.replace(';', ";;")),
        // Somebody forgot to encode it.
        12 => format!("postgres://me:{secret}@h/db?x=1"),
        13 => format!("mysql://me:{secret}@h:3306/db"),
        14 => format!("own://me:{secret}@h"),
        _ => format!("sqlite://me:{secret}@h/db"),
    }
}

/// Everything that can be printed about a DSN, also by the drivers.
fn everything_shown(dsn: &Dsn) -> String {
    let none = Options::new();
    let reader = dsn.reader(&none);
    let mut shown = format!("{dsn} {dsn:?} {dsn:#?} {reader:?} {:?}", dsn.credentials());
    if let Err(error) = reader.finish() {
        shown += &everything_said(&error);
    }
    let mut reader = dsn.reader(&none);
    for name in ["key", "access_token", "sslpassword", "hexkey", "x", "a"] {
        if let Err(error) = reader.take_size(name) {
            shown += &everything_said(&error);
        }
    }
    let mut options = Options::new();
    for (name, value) in dsn.options() {
        options.set(name, value);
    }
    let _ = write!(
        shown,
        " {options:?} {:?}",
        Credentials::default().or(dsn.credentials())
    );
    let drivers: [&dyn Driver; 4] = [
        &Sqlite::new(),
        &Postgres::new(),
        &Mysql::new(),
        &Odbc::new(),
    ];
    for driver in drivers {
        match driver.template(dsn, &none) {
            Ok(template) => {
                let _ = write!(shown, " {template:?} {}", template.address());
            }
            Err(error) => {
                is_one_line_about_the_configuration(&error);
                shown += &everything_said(&error);
            }
        }
    }
    shown
}

/// An error in all its words, down to its first cause.
fn everything_said(error: &Error) -> String {
    let mut said = format!(" {error} {error:?} {error:#?}");
    let mut cause = error.source();
    while let Some(why) = cause {
        let _ = write!(said, " {why} {why:?}");
        cause = why.source();
    }
    said
}
