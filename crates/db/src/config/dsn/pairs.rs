//! DSNs of `key=value` pairs. Each syntax has its own quotes.
//!
//! | syntax | between pairs | how a value contains such a character |
//! |---|---|---|
//! | libpq | blanks or `;` | `'in quotes'`, with `\'` and `\\`; outside quotes `\ ` and `\;` too |
//! | ODBC | `;` | `{in braces}`, with `}}` for a `}` |
//! | PDO | `;` | `;;` for a `;` |
//!
//! The displayed form follows the same rules, so that it can be parsed again.
//!
//! No error quotes the text: after a password without its quotes, the next word belongs to the password.

use super::{Parts, Syntax, is_option_name, redact};
use crate::config::secret::Secret;

/// Whether a text begins with the name of an option and `=`.
pub(super) fn look_like(text: &str) -> bool {
    text.is_empty()
        || text
            .split_once('=')
            .is_some_and(|(name, _)| is_option_name(name.trim()))
}

/// Parses pairs.
pub(super) fn parse(syntax: Syntax, text: &str) -> Result<Parts, String> {
    let mut parts = Parts::default();
    let mut shown = Vec::new();
    read(syntax, text, |name, value| {
        let value_shown = redact::shown(name, value.expose()).replace(char::is_control, " ");
        shown.push(format!("{name}={}", quote(syntax, value_shown)));
        parts.keep(name.to_owned(), value)
    })?;
    parts.shown = shown.join(";");
    Ok(parts)
}

/// Returns a value as this syntax writes it, with quotes if it needs them.
fn quote(syntax: Syntax, value: String) -> String {
    match syntax {
        Syntax::Libpq => {
            let is_plain = |c: char| !(c == ';' || c == '\'' || c == '\\' || c.is_whitespace());
            match value.chars().all(is_plain) {
                true => value,
                false => format!("'{}'", value.replace('\\', r"\\").replace('\'', r"\'")),
            }
        }
        Syntax::Odbc => {
            let is_plain = !value.contains(';') && !value.starts_with('{') && value.trim() == value;
            match is_plain {
                true => value,
                false => format!("{{{}}}", value.replace('}', "}}")),
            }
        }
        Syntax::File | Syntax::Pdo | Syntax::Free => value.replace(';', ";;"),
    }
}

/// Parses pairs and passes each one to `keep`.
pub(super) fn read(
    syntax: Syntax,
    text: &str,
    mut keep: impl FnMut(&str, Secret) -> Result<(), String>,
) -> Result<(), String> {
    let mut rest = skip_separators(text);
    for nth in 1.. {
        if rest.is_empty() {
            break;
        }
        let (name, after) =
            split_name(syntax, rest).ok_or_else(|| format!("part {nth} has no = in it"))?;
        if !is_option_name(name) {
            return Err(format!(
                "part {nth} does not begin with the name of an option"
            ));
        }
        let value = match syntax {
            Syntax::Libpq => libpq_value(after),
            Syntax::Odbc => odbc_value(after),
            Syntax::File | Syntax::Pdo | Syntax::Free => pdo_value(after),
        };
        let (value, after) = value.map_err(|wrong| format!("the value of {name} {wrong}"))?;
        keep(name, value)?;
        rest = skip_separators(after);
    }
    Ok(())
}

fn skip_separators(text: &str) -> &str {
    text.trim_start_matches(|c: char| c == ';' || c.is_whitespace())
}

/// Splits at the next `=`, if it comes before the next separator.
fn split_name(syntax: Syntax, text: &str) -> Option<(&str, &str)> {
    let (name, after) = text.split_once('=')?;
    let name = name.trim_end();
    let separated = match syntax {
        Syntax::Libpq => name.contains(|c: char| c == ';' || c.is_whitespace()),
        _ => name.contains(';'),
    };
    (!separated).then_some((name, after))
}

/// A value with its quotes, and the text after it.
type Written<'a> = (&'a str, &'a str);

/// A value and the text after it, or the problem.
type Value<'a> = Result<(Secret, &'a str), &'static str>;

fn libpq_value(text: &str) -> Value<'_> {
    let text = text.trim_start();
    let (written, after) = match text.strip_prefix('\'') {
        Some(quoted) => libpq_quoted(quoted)?,
        None => split_before(text, |c| c == ';' || c.is_whitespace())?,
    };
    let mut chars = written.chars();
    let unescaped = std::iter::from_fn(|| match chars.next()? {
        '\\' => chars.next(),
        c => Some(c),
    });
    Ok((collect(written, unescaped), after))
}

fn libpq_quoted(text: &str) -> Result<Written<'_>, &'static str> {
    let (written, after) = split_before(text, |c| c == '\'')?;
    let after = after.strip_prefix('\'').ok_or("has no closing quote")?;
    if after.starts_with(|c: char| c != ';' && !c.is_whitespace()) {
        return Err("goes on after its closing quote");
    }
    Ok((written, after))
}

/// Splits before the first character that ends a value, unless a backslash escapes it.
fn split_before(text: &str, ends: impl Fn(char) -> bool) -> Result<Written<'_>, &'static str> {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if ends(c) => return Ok(text.split_at(at)),
            _ => {}
        }
    }
    match escaped {
        true => Err("ends with a backslash"),
        false => Ok((text, "")),
    }
}

fn odbc_value(text: &str) -> Value<'_> {
    let text = text.trim_start();
    let Some(braced) = text.strip_prefix('{') else {
        let (written, after) = text.split_at(text.find(';').unwrap_or(text.len()));
        return Ok((Secret::from(written.trim_end()), after));
    };
    let (written, after) = split_doubled(braced, '}');
    let after = after.strip_prefix('}').ok_or("has no closing brace")?;
    let after = after.trim_start();
    if !after.is_empty() && !after.starts_with(';') {
        return Err("goes on after its closing brace");
    }
    Ok((undouble(written, '}'), after))
}

fn pdo_value(text: &str) -> Value<'_> {
    let (written, after) = split_doubled(text, ';');
    Ok((undouble(written, ';'), after))
}

/// Splits before the first `end` that is not doubled.
fn split_doubled(text: &str, end: char) -> Written<'_> {
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if c == end && chars.next_if(|(_, next)| *next == end).is_none() {
            return text.split_at(at);
        }
    }
    (text, "")
}

fn undouble(written: &str, doubled: char) -> Secret {
    let mut chars = written.chars();
    let single = std::iter::from_fn(|| match chars.next()? {
        c if c == doubled => chars.next(),
        c => Some(c),
    });
    collect(written, single)
}

/// Collects a value without reallocation, which would leave a copy behind that nobody wipes.
fn collect(written: &str, chars: impl Iterator<Item = char>) -> Secret {
    let mut value = String::with_capacity(written.len());
    value.extend(chars);
    Secret::from(value)
}
