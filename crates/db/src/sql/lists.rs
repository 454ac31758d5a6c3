//! Expands the placeholders of lists: `IN (?)` becomes `IN (?, ?)`.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::dialect::{Dialect, PlaceholderStyle};
use super::lexer::{Lexer, Token, TokenKind};
use super::scan_cache::CachedScan;
use crate::driver::Param;
use crate::types::params::List;
use crate::{Error, Kind, Result};

/// A text whose placeholders have been expanded. They have numbers where the database has such placeholders, else all are `?`.
#[derive(Debug)]
pub(crate) struct Expanded<'p> {
    pub(crate) sql: String,
    pub(crate) params: Vec<Param<'p>>,
    pub(crate) origin: Origin,
}

/// The text before its lists were expanded.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) scan: Arc<CachedScan>,
    /// In characters: where a placeholder is now, and where it was.
    moved: Vec<(Range<usize>, Range<usize>)>,
}

impl Origin {
    /// Returns the position in the caller's text of a position in the expanded text. Both count characters from 1.
    pub(crate) fn written(&self, character: usize) -> usize {
        let at = character.saturating_sub(1);
        let before = self.moved.iter().rfind(|(now, _)| now.start <= at);
        let written = match before {
            None => at,
            Some((now, was)) if at < now.end => was.start,
            Some((now, was)) => was.end + (at - now.end),
        };
        written + 1
    }
}

/// Expands the lists among the parameters, which are in the order of the scan's placeholders.
///
/// # Errors
///
/// [`Kind::Parameters`] for an empty list.
pub(crate) fn expand<'p>(scan: &Arc<CachedScan>, given: &[Param<'p>]) -> Result<Expanded<'p>> {
    let (dialect, sql) = (scan.dialect(), scan.written_sql());
    let mut out = String::with_capacity(sql.len() * 2);
    let mut values = Values::new(dialect.placeholders, given);
    let mut moved = Vec::new();
    let mut copied = 0;
    let mut numbering = Numbering::default();
    let mut lexer = Lexer::new(dialect, sql);
    // Characters so far, of the caller's text and of the new one.
    let (mut was_at, mut now_at) = (0, 0);
    while let Some(token) = lexer.next() {
        let Some(position) = numbering.position(dialect, &token, sql) else {
            continue;
        };
        // The scan has counted the same tokens: there is a parameter for each.
        let Some(param) = given.get(position) else {
            break;
        };
        if List::of(param).is_some_and(List::is_empty) {
            return Err(empty(token.text(sql)));
        }
        let between = &sql[copied..token.start];
        out.push_str(between);
        was_at += between.chars().count();
        now_at += between.chars().count();
        let start = out.len();
        // `LIMIT?` and `?5` are two tokens each, and stay so.
        out.push(' ');
        values.write(position, param, &mut out);
        out.push(' ');
        let (now, was) = (out.len() - start, token.text(sql).chars().count());
        moved.push((now_at..now_at + now, was_at..was_at + was));
        now_at += now;
        was_at += was;
        copied = token.end;
    }
    out.push_str(&sql[copied..]);
    Ok(Expanded {
        sql: out,
        params: values.params,
        origin: Origin {
            scan: Arc::clone(scan),
            moved,
        },
    })
}

/// The parameters of the expanded text.
struct Values<'p> {
    params: Vec<Param<'p>>,
    /// What a placeholder with a number begins with, and the numbers of each given parameter. A parameter that is used
    /// twice stays one: the database infers its type from all its uses, and compares expressions with it.
    numbered: Option<(char, Vec<Range<usize>>)>,
}

impl<'p> Values<'p> {
    fn new(style: PlaceholderStyle, given: &[Param<'p>]) -> Self {
        let mut params = Vec::with_capacity(given.len() * 2);
        let sign = match style {
            PlaceholderStyle::Question => None,
            PlaceholderStyle::NumberedQuestion => Some('?'),
            PlaceholderStyle::NumberedDollar => Some('$'),
        };
        let numbered = sign.map(|sign| {
            let numbers = given.iter().map(|param| {
                let first = params.len() + 1;
                add(&mut params, param);
                first..params.len() + 1
            });
            (sign, numbers.collect())
        });
        Values { params, numbered }
    }

    /// Writes the placeholders of a parameter.
    fn write(&mut self, position: usize, param: &Param<'p>, out: &mut String) {
        use std::fmt::Write as _;
        let (sign, numbers) = match &self.numbered {
            Some((sign, numbers)) => (Some(*sign), numbers[position].clone()),
            None => {
                let first = self.params.len();
                add(&mut self.params, param);
                (None, first..self.params.len())
            }
        };
        let first = numbers.start;
        for number in numbers {
            let comma = if number > first { ", " } else { "" };
            let _ = match sign {
                Some(sign) => write!(out, "{comma}{sign}{number}"),
                None => write!(out, "{comma}?"),
            };
        }
    }
}

/// Adds a parameter, or the values of a list.
fn add<'p>(params: &mut Vec<Param<'p>>, param: &Param<'p>) {
    match List::of(param) {
        None => params.push(param.clone()),
        Some(list) => {
            for value in list.padded() {
                params.push(Param::Value(value.clone()));
            }
        }
    }
}

/// Numbers the placeholders as the [`Rewriter`](super::placeholders::Rewriter) does.
#[derive(Default)]
struct Numbering<'s> {
    /// The highest position so far.
    count: usize,
    names: HashMap<&'s str, usize>,
}

impl<'s> Numbering<'s> {
    /// Returns the parameter, counted from 0, that a placeholder stands for; `None` for other tokens.
    fn position(&mut self, dialect: &Dialect, token: &Token, sql: &'s str) -> Option<usize> {
        let text = token.text(sql);
        let known = match token.kind {
            TokenKind::Question => None,
            TokenKind::Numbered => {
                let number = text[1..].parse::<usize>().ok()?;
                self.count = self.count.max(number);
                return number.checked_sub(1);
            }
            // Where placeholders have no numbers, each use of a name is a parameter of its own.
            TokenKind::Named if dialect.placeholders == PlaceholderStyle::Question => None,
            TokenKind::Named => self.names.get(text).copied(),
            _ => return None,
        };
        if known.is_some() {
            return known;
        }
        let position = self.count;
        self.count = self.count.saturating_add(1);
        if token.kind == TokenKind::Named {
            self.names.insert(text, position);
        }
        Some(position)
    }
}

#[cold]
fn empty(placeholder: &str) -> Error {
    let message = format!(
        "the list for the placeholder {placeholder} is empty, and SQL has no empty list: skip the call, or use \
         another condition"
    );
    Error::new(Kind::Parameters, message)
}

#[cfg(test)]
mod tests {
    use super::super::cached_scan;
    use super::*;
    use crate::types::params::list;
    use crate::types::value::Value;

    fn expanded(dialect: &'static Dialect, sql: &str, given: &[Param<'_>]) -> (String, Vec<i64>) {
        let scan = cached_scan(dialect, sql).expect("the text is valid");
        let expanded = expand(&scan, given).expect("no list is empty");
        let number = |param| match param {
            Param::Value(Value::Int(number)) => number,
            other => panic!("{other:?} is no number"),
        };
        let params = expanded.params.into_iter().map(number).collect();
        (expanded.sql, params)
    }

    fn numbers(values: impl IntoIterator<Item = i64>) -> Param<'static> {
        Param::Native(list(values))
    }

    #[test]
    fn a_list_is_padded_to_a_power_of_two_by_its_last_value() {
        for (values, padded) in [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (9, 16), (16, 16)] {
            let (sql, params) = expanded(&Dialect::SQLITE, "a IN (?)", &[numbers(1..=values)]);
            let marks: Vec<_> = (1..=padded).map(|number| format!("?{number}")).collect();
            assert_eq!(sql, format!("a IN ( {} )", marks.join(", ")));
            let last = std::iter::repeat(values);
            let expected: Vec<i64> = (1..=values).chain(last).take(padded).collect();
            assert_eq!(params, expected);
        }
    }

    #[test]
    fn each_placeholder_keeps_its_value_in_every_writing() {
        let given = [numbers([1, 2]), Param::Value(Value::Int(7))];
        for sql in ["a IN (?) AND b=?", "a IN (:l) AND b=:n"] {
            for (dialect, expected) in [
                (&Dialect::SQLITE, "a IN ( ?1, ?2 ) AND b= ?3 "),
                (&Dialect::POSTGRES, "a IN ( $1, $2 ) AND b= $3 "),
                (&Dialect::MYSQL, "a IN ( ?, ? ) AND b= ? "),
            ] {
                let (sql, params) = expanded(dialect, sql, &given);
                assert_eq!(sql, expected);
                assert_eq!(params, [1, 2, 7]);
            }
        }
        let (sql, params) = expanded(&Dialect::POSTGRES, "a=$2 AND b IN ($1) AND '$1'=''", &given);
        assert_eq!(sql, "a= $3  AND b IN ( $1, $2 ) AND '$1'=''");
        assert_eq!(params, [1, 2, 7]);
        // A name is one parameter where placeholders have numbers, and one for each use elsewhere.
        let (sql, params) = expanded(
            &Dialect::SQLITE,
            "a=:n OR b IN (:l) OR c=:n",
            &[given[1].clone(), given[0].clone()],
        );
        assert_eq!(sql, "a= ?1  OR b IN ( ?2, ?3 ) OR c= ?1 ");
        assert_eq!(params, [7, 1, 2]);
        // SQLite counts on from the highest number.
        let mixed = "a IN (?1) OR b=?";
        let (sql, params) = expanded(&Dialect::SQLITE, mixed, &given);
        assert_eq!(sql, "a IN ( ?1, ?2 ) OR b= ?3 ");
        assert_eq!(params, [1, 2, 7]);
        let again = [given[1].clone(), given[0].clone(), given[1].clone()];
        let (_, params) = expanded(&Dialect::MYSQL, "a=:n OR b IN (:l) OR c=:n", &again);
        assert_eq!(params, [7, 1, 2, 7]);
    }

    #[test]
    fn a_position_is_that_of_the_callers_text() {
        let sql = "ä IN (:list) x :n y";
        let scan = cached_scan(&Dialect::POSTGRES, sql).expect("the text is valid");
        let given = [numbers(1..=4), Param::Value(Value::Int(7))];
        let expanded = expand(&scan, &given).expect("no list is empty");
        let find = |sql: &str, wanted| {
            sql.chars()
                .position(|letter| letter == wanted)
                .map(|at| at + 1)
        };
        for letter in ['ä', 'I', '(', 'x', 'y'] {
            let now = find(&expanded.sql, letter).expect("it is there");
            assert_eq!(
                Some(expanded.origin.written(now)),
                find(sql, letter),
                "{letter}"
            );
        }
        let inside = find(&expanded.sql, ',').expect("there are several");
        assert_eq!(Some(expanded.origin.written(inside)), find(sql, ':'));
    }
}
