//! Arrays, from the text that the server writes: `{1,NULL,3}`, `[0:1]={{a},{"b,c"}}`.

use std::borrow::Cow;

use postgres_types::{Kind as TypeKind, Type};

use super::known_type::KnownType;
use super::text;
use super::types::{Shape, utf8};
use crate::Result;
use crate::driver::{Column, Value};

/// The most dimensions that PostgreSQL's arrays have.
pub(super) const MOST_DIMENSIONS: usize = 6;

/// Returns the array of a cell. A text that is no array stays text.
///
/// # Errors
///
/// The text is no UTF-8.
#[inline(never)]
pub(super) fn value<'r>(column: &Column, bytes: &'r [u8]) -> Result<Value<'r>> {
    let text = utf8(bytes)?;
    let known = KnownType::of_column(column);
    let array = nested(&known, &known.kind, text);
    Ok(array.unwrap_or(Value::Text(Cow::Borrowed(text))))
}

/// Returns the array of this type, which may be inside the known one.
fn nested<'r>(known: &KnownType, kind: &Type, text: &'r str) -> Option<Value<'r>> {
    let element = element_type(kind)?;
    let shape = Shape::of(element);
    parse(text, known.delimiter(element), &|text| match shape {
        // An array of a domain over arrays: each element is quoted text.
        Shape::Array => match nested(known, element, &text) {
            Some(array) => array.into_owned(),
            None => Value::Text(text),
        },
        shape => text::value(shape, text),
    })
}

/// Returns the type of the elements of an array, or of a domain over one.
pub(super) fn element_type(kind: &Type) -> Option<&Type> {
    match kind.kind() {
        TypeKind::Array(element) => Some(element),
        TypeKind::Domain(of) => element_type(of),
        _ => None,
    }
}

/// Parses an array whose elements `read` reads from their text. Returns `None` if the text is no array.
pub(super) fn parse<'r>(
    text: &'r str,
    delimiter: u8,
    read: &dyn Fn(Cow<'r, str>) -> Value<'r>,
) -> Option<Value<'r>> {
    let mut array = ArrayText {
        rest: without_bounds(text)?,
        delimiter,
        read,
    };
    let value = array.level(MOST_DIMENSIONS)?;
    array.rest.is_empty().then_some(value)
}

/// Returns the text after the bounds, which stand before it if one of them is not 1: `[0:1]={1,2}`.
fn without_bounds(text: &str) -> Option<&str> {
    match text.starts_with('[') {
        true => Some(text.split_once('=')?.1),
        false => Some(text),
    }
}

/// The rest of an array that is being parsed.
struct ArrayText<'r, 'f> {
    rest: &'r str,
    delimiter: u8,
    read: &'f dyn Fn(Cow<'r, str>) -> Value<'r>,
}

impl<'r> ArrayText<'r, '_> {
    fn level(&mut self, depth: usize) -> Option<Value<'r>> {
        let deeper = depth.checked_sub(1)?;
        self.expect(b'{')?;
        let mut elements = Vec::new();
        if self.first()? != b'}' {
            loop {
                elements.push(match self.first()? {
                    b'{' => self.level(deeper)?,
                    b'"' => self.quoted()?,
                    _ => self.bare()?,
                });
                if self.first()? != self.delimiter {
                    break;
                }
                self.expect(self.delimiter)?;
            }
        }
        self.expect(b'}')?;
        Some(Value::Array(elements))
    }

    fn first(&self) -> Option<u8> {
        self.rest.as_bytes().first().copied()
    }

    fn expect(&mut self, wanted: u8) -> Option<()> {
        if self.first()? != wanted {
            return None;
        }
        // A delimiter beyond ASCII would be a part of a character only.
        self.rest = self.rest.get(1..)?;
        Some(())
    }

    /// An element without quotes.
    fn bare(&mut self) -> Option<Value<'r>> {
        let ends = |byte: &u8| *byte == self.delimiter || *byte == b'}';
        let end = self.rest.as_bytes().iter().position(ends)?;
        let (element, rest) = self.rest.split_at_checked(end)?;
        self.rest = rest;
        match element {
            "" => None,
            "NULL" => Some(Value::Null),
            element => Some((self.read)(Cow::Borrowed(element))),
        }
    }

    /// An element in quotes, in which a backslash stands before a quote or a backslash.
    fn quoted(&mut self) -> Option<Value<'r>> {
        self.expect(b'"')?;
        let end = self.rest.find(['"', '\\'])?;
        let mut element = Cow::Borrowed(&self.rest[..end]);
        self.rest = &self.rest[end..];
        while self.first()? == b'\\' {
            self.expect(b'\\')?;
            let escaped = self.rest.chars().next()?;
            let after = escaped.len_utf8();
            let end = after + self.rest[after..].find(['"', '\\'])?;
            element.to_mut().push_str(&self.rest[..end]);
            self.rest = &self.rest[end..];
        }
        self.expect(b'"')?;
        Some((self.read)(element))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str, delimiter: u8) -> Option<Value<'_>> {
        parse(text, delimiter, &Value::Text)
    }

    fn array(elements: &[&'static str]) -> Value<'static> {
        Value::Array(elements.iter().map(|text| Value::from(*text)).collect())
    }

    #[test]
    fn arrays_are_parsed_with_their_quotes_and_bounds() {
        assert_eq!(texts("{}", b','), Some(Value::Array(Vec::new())));
        assert_eq!(texts("{a,b}", b','), Some(array(&["a", "b"])));
        assert_eq!(texts("{a:b,c}", b':'), Some(array(&["a", "b,c"])));
        assert_eq!(
            texts(r#"[0:1]={"a \"\\ä","NULL"}"#, b','),
            Some(array(&["a \"\\ä", "NULL"]))
        );
        let null = Some(Value::Array(vec![Value::Null]));
        assert_eq!(texts("{NULL}", b','), null);
        let two = Value::Array(vec![array(&["a"]), array(&["b"])]);
        assert_eq!(texts("{{a},{b}}", b','), Some(two));
    }

    #[test]
    fn a_text_that_is_no_array_is_refused() {
        for text in [
            "",
            "a",
            "{",
            "{a",
            "{a,}",
            "{,a}",
            "{\"a}",
            "{a}b",
            "[0:1]{a}",
            "{\"a\"b}",
            "{\"a\\",
            "{{{{{{{a}}}}}}}",
            "{ä",
            "{a\u{1f980}",
        ] {
            assert_eq!(texts(text, b','), None, "{text}");
            let _ = texts(text, 0xa4);
        }
    }
}
