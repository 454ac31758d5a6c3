//! The binary form of values that arrived as text, for [`FromSql`](super::FromSql) types.
//!
//! The server writes these texts itself, so this parses its output and not what users type. A text that
//! cannot be parsed gives `None`, never another value.

use std::net::IpAddr;

use postgres_types::{Kind as TypeKind, Type};

use super::array::{element_type, parse};
use super::known_type::KnownType;
use super::text;
use super::types::Shape;
use crate::driver::Value;

/// Writes the binary form of a text of this type, which may be inside the known one.
pub(super) fn write(out: &mut Vec<u8>, known: &KnownType, kind: &Type, text: &str) -> Option<()> {
    let mut base = kind;
    while let TypeKind::Domain(of) = base.kind() {
        base = of;
    }
    match Shape::of(base) {
        Shape::Array => array(out, known, base, text),
        Shape::Bytes => text::bytea(text.as_bytes(), |byte| out.push(byte)),
        Shape::Decimal => numeric(out, text),
        Shape::Json if *base == Type::JSONB => versioned(out, text),
        Shape::Json => plain(out, text),
        Shape::Text => other(out, known, base, text),
        shape => {
            out.extend_from_slice(&text::fixed(shape, text.as_bytes())?);
            Some(())
        }
    }
}

fn other(out: &mut Vec<u8>, known: &KnownType, kind: &Type, text: &str) -> Option<()> {
    match kind.kind() {
        TypeKind::Enum(_) => return plain(out, text),
        TypeKind::Composite(fields) => {
            let types = fields.iter().map(|field| field.type_());
            return composite(out, known, &types.collect::<Vec<_>>(), text);
        }
        TypeKind::Range(of) => return range(out, known, of, text),
        TypeKind::Multirange(of) => return multirange(out, known, of, text),
        _ => {}
    }
    match *kind {
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::XML | Type::UNKNOWN => {
            plain(out, text)
        }
        Type::CHAR if text.len() == 1 => plain(out, text),
        Type::VOID => Some(()),
        Type::JSONPATH => versioned(out, text),
        Type::INET | Type::CIDR => inet(out, text, *kind == Type::CIDR),
        Type::INTERVAL => interval(out, text),
        Type::BIT | Type::VARBIT => bits(out, text),
        _ => match kind.name() {
            "citext" => plain(out, text),
            "ltree" | "lquery" | "ltxtquery" => versioned(out, text),
            "hstore" => hstore(out, text),
            _ => None,
        },
    }
}

#[expect(clippy::unnecessary_wraps, reason = "as its neighbours")]
fn plain(out: &mut Vec<u8>, text: &str) -> Option<()> {
    out.extend_from_slice(text.as_bytes());
    Some(())
}

/// Appends the format version, the byte 1, and then the text.
fn versioned(out: &mut Vec<u8>, text: &str) -> Option<()> {
    out.push(1);
    plain(out, text)
}

/// Writes the length of what `write` writes before it.
fn sized(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Option<()>) -> Option<()> {
    let start = out.len();
    push_count(out, 0)?;
    write(out)?;
    let len = i32::try_from(out.len() - start - 4).ok()?;
    out[start..start + 4].copy_from_slice(&len.to_be_bytes());
    Some(())
}

fn push_count(out: &mut Vec<u8>, count: usize) -> Option<()> {
    out.extend_from_slice(&i32::try_from(count).ok()?.to_be_bytes());
    Some(())
}

fn push_null(out: &mut Vec<u8>) {
    out.extend_from_slice(&(-1_i32).to_be_bytes());
}

fn array(out: &mut Vec<u8>, known: &KnownType, kind: &Type, text: &str) -> Option<()> {
    let element = element_type(kind)?;
    let parsed = parse(text, known.delimiter(element), &Value::Text)?;
    let mut elements = Vec::new();
    let mut dimensions = Vec::new();
    flatten(&parsed, 0, &mut dimensions, &mut elements)?;
    // An empty array has no dimensions.
    if elements.is_empty() {
        dimensions.clear();
    }
    let bounds = lower_bounds(text, dimensions.len())?;
    push_count(out, dimensions.len())?;
    push_count(out, usize::from(elements.contains(&None)))?;
    out.extend_from_slice(&element.oid().to_be_bytes());
    for (len, bound) in dimensions.iter().zip(bounds) {
        push_count(out, *len)?;
        out.extend_from_slice(&bound.to_be_bytes());
    }
    for text in elements {
        match text {
            None => push_null(out),
            Some(text) => sized(out, |out| write(out, known, element, text))?,
        }
    }
    Some(())
}

/// Collects the elements in order, and the length of each dimension.
fn flatten<'v>(
    value: &'v Value<'_>,
    depth: usize,
    dimensions: &mut Vec<usize>,
    elements: &mut Vec<Option<&'v str>>,
) -> Option<()> {
    match value {
        Value::Null => elements.push(None),
        Value::Text(text) => elements.push(Some(text)),
        Value::Array(of) => {
            match dimensions.get(depth) {
                None => dimensions.push(of.len()),
                Some(len) if *len == of.len() => {}
                Some(_) => return None,
            }
            for value in of {
                flatten(value, depth + 1, dimensions, elements)?;
            }
        }
        _ => return None,
    }
    Some(())
}

/// Returns the first index of each dimension: 1, unless the bounds stand before the array, as in `[0:1]={1,2}`.
fn lower_bounds(text: &str, dimensions: usize) -> Option<Vec<i32>> {
    if !text.starts_with('[') {
        return Some(vec![1; dimensions]);
    }
    let bounds = text.split_once('=')?.0.strip_suffix(']')?;
    let bound = |bounds: &str| {
        bounds
            .trim_start_matches('[')
            .split_once(':')?
            .0
            .parse()
            .ok()
    };
    let bounds: Vec<i32> = bounds.split(']').map(bound).collect::<Option<_>>()?;
    (bounds.len() == dimensions).then_some(bounds)
}

/// The parts of a composite or a range, which may be in quotes.
struct Parts<'t> {
    rest: &'t str,
}

impl Parts<'_> {
    /// Returns the next part, up to one of `ends`; `None` inside if it is empty and has no quotes.
    fn next(&mut self, ends: &[char]) -> Option<Option<String>> {
        let mut part = String::new();
        let mut had_quotes = false;
        let mut in_quotes = false;
        let mut letters = self.rest.char_indices().peekable();
        while let Some((at, letter)) = letters.next() {
            match letter {
                '\\' => part.push(letters.next()?.1),
                '"' if in_quotes && letters.next_if(|(_, next)| *next == '"').is_some() => {
                    part.push('"');
                }
                '"' => {
                    in_quotes = !in_quotes;
                    had_quotes = true;
                }
                letter if !in_quotes && ends.contains(&letter) => {
                    self.rest = &self.rest[at..];
                    return Some((had_quotes || !part.is_empty()).then_some(part));
                }
                letter => part.push(letter),
            }
        }
        None
    }

    fn skip(&mut self) -> Option<char> {
        let first = self.rest.chars().next()?;
        self.rest = &self.rest[first.len_utf8()..];
        Some(first)
    }
}

/// `(1,"a ""b"" c",)`: the last field is NULL.
fn composite(out: &mut Vec<u8>, known: &KnownType, types: &[&Type], text: &str) -> Option<()> {
    let mut parts = Parts { rest: text };
    push_count(out, types.len())?;
    if parts.skip()? != '(' {
        return None;
    }
    for (n, kind) in types.iter().enumerate() {
        if n > 0 && parts.skip()? != ',' {
            return None;
        }
        let part = parts.next(&[',', ')'])?;
        out.extend_from_slice(&kind.oid().to_be_bytes());
        match part {
            None => push_null(out),
            Some(part) => sized(out, |out| write(out, known, kind, &part))?,
        }
    }
    (parts.rest == ")").then_some(())
}

const EMPTY: u8 = 1;
const LOWER_INCLUSIVE: u8 = 2;
const UPPER_INCLUSIVE: u8 = 4;
const LOWER_INFINITE: u8 = 8;
const UPPER_INFINITE: u8 = 16;

/// `[1,5)`, `(,"2024-01-01 00:00:00"]`, `empty`.
fn range(out: &mut Vec<u8>, known: &KnownType, of: &Type, text: &str) -> Option<()> {
    if text == "empty" {
        out.push(EMPTY);
        return Some(());
    }
    let mut parts = Parts { rest: text };
    one_range(out, known, of, &mut parts)?;
    parts.rest.is_empty().then_some(())
}

fn one_range(out: &mut Vec<u8>, known: &KnownType, of: &Type, parts: &mut Parts<'_>) -> Option<()> {
    let opening = parts.skip()?;
    let lower = parts.next(&[','])?;
    parts.skip()?;
    let upper = parts.next(&[')', ']'])?;
    let closing = parts.skip()?;
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    out.push(
        flag(opening == '[', LOWER_INCLUSIVE)
            | flag(closing == ']', UPPER_INCLUSIVE)
            | flag(lower.is_none(), LOWER_INFINITE)
            | flag(upper.is_none(), UPPER_INFINITE),
    );
    for bound in [lower, upper].into_iter().flatten() {
        sized(out, |out| write(out, known, of, &bound))?;
    }
    matches!(opening, '[' | '(').then_some(())
}

/// `{[1,3),[5,7)}`.
fn multirange(out: &mut Vec<u8>, known: &KnownType, of: &Type, text: &str) -> Option<()> {
    let inner = text.strip_prefix('{')?.strip_suffix('}')?;
    let mut parts = Parts { rest: inner };
    let start = out.len();
    push_count(out, 0)?;
    let mut count = 0_i32;
    while !parts.rest.is_empty() {
        if count > 0 && parts.skip()? != ',' {
            return None;
        }
        sized(out, |out| one_range(out, known, of, &mut parts))?;
        count += 1;
    }
    out[start..start + 4].copy_from_slice(&count.to_be_bytes());
    Some(())
}

const NEGATIVE: u16 = 0x4000;
const NOT_A_NUMBER: u16 = 0xc000;
const INFINITE: u16 = 0xd000;
const MINUS_INFINITE: u16 = 0xf000;

/// Digits in groups of four, the weight of the first group, the sign and the number of decimals.
fn numeric(out: &mut Vec<u8>, text: &str) -> Option<()> {
    let special = match text {
        "NaN" => Some((NOT_A_NUMBER, 0)),
        // The server sends the scale 32 with these.
        "Infinity" => Some((INFINITE, 0x20)),
        "-Infinity" => Some((MINUS_INFINITE, 0x20)),
        _ => None,
    };
    if let Some((sign, scale)) = special {
        numeric_head(out, 0, 0, sign, scale);
        return Some(());
    }
    let (digits, sign) = match text.strip_prefix('-') {
        Some(digits) => (digits, NEGATIVE),
        None => (text, 0),
    };
    let (whole, decimals) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit());
    if whole.is_empty() || !all_digits(whole) || !all_digits(decimals) {
        return None;
    }
    let left = whole.len().next_multiple_of(4);
    let right = decimals.len().next_multiple_of(4);
    let padded = format!("{whole:0>left$}{decimals:0<right$}");
    let groups = padded.as_bytes().chunks(4);
    let groups: Vec<i16> = groups
        .map(|group| {
            group
                .iter()
                .fold(0, |sum, digit| sum * 10 + i16::from(digit - b'0'))
        })
        .collect();
    let zeros = groups.iter().take_while(|group| **group == 0).count();
    let last = groups
        .iter()
        .rposition(|group| *group != 0)
        .map_or(zeros, |last| last + 1);
    let groups = &groups[zeros..last];
    let weight = match groups {
        [] => 0,
        _ => i16::try_from(left / 4).ok()? - 1 - i16::try_from(zeros).ok()?,
    };
    let scale = u16::try_from(decimals.len()).ok()?;
    let count = i16::try_from(groups.len()).ok()?;
    numeric_head(out, count, weight, sign, scale);
    for group in groups {
        out.extend_from_slice(&group.to_be_bytes());
    }
    Some(())
}

fn numeric_head(out: &mut Vec<u8>, count: i16, weight: i16, sign: u16, scale: u16) {
    out.extend_from_slice(&count.to_be_bytes());
    out.extend_from_slice(&weight.to_be_bytes());
    out.extend_from_slice(&sign.to_be_bytes());
    out.extend_from_slice(&scale.to_be_bytes());
}

/// `127.0.0.1/8`, `::1`.
fn inet(out: &mut Vec<u8>, text: &str, is_cidr: bool) -> Option<()> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits.parse::<u8>().ok()?)),
        None => (text, None),
    };
    let is_cidr = u8::from(is_cidr);
    match address.parse().ok()? {
        IpAddr::V4(address) => {
            out.extend_from_slice(&[2, bits.unwrap_or(32), is_cidr, 4]);
            out.extend_from_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            out.extend_from_slice(&[3, bits.unwrap_or(128), is_cidr, 16]);
            out.extend_from_slice(&address.octets());
        }
    }
    Some(())
}

/// `1 year 2 mons -3 days 04:05:06.7`: the style `postgres`, which is the default of `intervalstyle`.
fn interval(out: &mut Vec<u8>, text: &str) -> Option<()> {
    let (mut months, mut days, mut microseconds) = (0_i32, 0_i32, 0_i64);
    let mut words = text.split(' ');
    while let Some(word) = words.next() {
        if word.contains(':') {
            microseconds = clock(word)?;
            continue;
        }
        let number: i32 = word.parse().ok()?;
        match words.next()? {
            "year" | "years" => months = months.checked_add(number.checked_mul(12)?)?,
            "mon" | "mons" => months = months.checked_add(number)?,
            "day" | "days" => days = number,
            _ => return None,
        }
    }
    out.extend_from_slice(&microseconds.to_be_bytes());
    out.extend_from_slice(&days.to_be_bytes());
    out.extend_from_slice(&months.to_be_bytes());
    Some(())
}

/// `-100:05:06.7` in microseconds. Hours go beyond a day.
fn clock(text: &str) -> Option<i64> {
    let (text, sign) = match text.strip_prefix('-') {
        Some(text) => (text, -1),
        None => (text.trim_start_matches('+'), 1),
    };
    let mut parts = text.split(':');
    let hours: i64 = parts.next()?.parse().ok()?;
    let minutes: i64 = parts.next()?.parse().ok()?;
    let (seconds, fraction) = match parts.next()? {
        text if text.contains('.') => text.split_once('.')?,
        text => (text, ""),
    };
    let seconds: i64 = seconds.parse().ok()?;
    let fraction: i64 = format!("{fraction:0<6}").parse().ok()?;
    let seconds = hours
        .checked_mul(3_600)?
        .checked_add(minutes * 60 + seconds)?;
    let whole = seconds.checked_mul(1_000_000)?.checked_add(fraction)?;
    parts.next().is_none().then_some(sign * whole)
}

fn bits(out: &mut Vec<u8>, text: &str) -> Option<()> {
    push_count(out, text.len())?;
    for eight in text.as_bytes().chunks(8) {
        let mut byte = 0;
        for (n, bit) in eight.iter().enumerate() {
            match bit {
                b'1' => byte |= 0x80 >> n,
                b'0' => {}
                _ => return None,
            }
        }
        out.push(byte);
    }
    Some(())
}

/// `"a"=>"1", "b"=>NULL`.
fn hstore(out: &mut Vec<u8>, text: &str) -> Option<()> {
    let start = out.len();
    push_count(out, 0)?;
    let mut count = 0_i32;
    let mut parts = Parts { rest: text };
    while !parts.rest.is_empty() {
        if count > 0 {
            parts.rest = parts.rest.strip_prefix(", ")?;
        }
        let key = quoted(&mut parts)?;
        sized(out, |out| plain(out, &key))?;
        parts.rest = parts.rest.strip_prefix("=>")?;
        match parts.rest.strip_prefix("NULL") {
            Some(rest) => {
                parts.rest = rest;
                push_null(out);
            }
            None => {
                let value = quoted(&mut parts)?;
                sized(out, |out| plain(out, &value))?;
            }
        }
        count += 1;
    }
    out[start..start + 4].copy_from_slice(&count.to_be_bytes());
    Some(())
}

/// A text in quotes, in which a backslash stands before a quote or a backslash.
fn quoted(parts: &mut Parts<'_>) -> Option<String> {
    if parts.skip()? != '"' {
        return None;
    }
    let mut text = String::new();
    loop {
        match parts.skip()? {
            '"' => return Some(text),
            '\\' => text.push(parts.skip()?),
            letter => text.push(letter),
        }
    }
}
