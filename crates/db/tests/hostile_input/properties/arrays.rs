//! An array has the same elements in every form, or is refused.

use cenote::Value;
use cenote::postgres::fuzzing::{array_of_text, copied_value, parameter_text};
use cenote::postgres::postgres_types::Type;

use super::choices::Choices;

/// PostgreSQL's limit.
const MOST_DIMENSIONS: usize = 6;

/// Nothing deeper is built.
const DEEPEST: usize = 8;

pub fn check(data: &[u8]) {
    let mut choices = Choices::new(data);
    if choices.byte().is_multiple_of(3) {
        any_text(&choices.rest_as_text());
        return;
    }
    let (element, array) = match choices.byte() % 2 {
        0 => (Type::INT8, Type::INT8_ARRAY),
        _ => (Type::TEXT, Type::TEXT_ARRAY),
    };
    let value = build(&mut choices, &element, DEEPEST);
    as_text(&value, &element);
    as_binary(&value, &element, &array);
}

/// An array of arrays or of elements; not always one that PostgreSQL has.
fn build(choices: &mut Choices<'_>, element: &Type, deeper: usize) -> Value<'static> {
    let length = choices.byte() % 4;
    let is_nested = deeper > 0 && choices.byte().is_multiple_of(3);
    let elements = (0..length).map(|_| match choices.byte() % 8 {
        _ if is_nested => build(choices, element, deeper - 1),
        0 => Value::Null,
        1 if deeper > 0 => build(choices, element, deeper - 1),
        number if *element == Type::INT8 => Value::Int(i64::from(number) - 4),
        _ => Value::Text(choices.text(12).into_owned().into()),
    });
    Value::Array(elements.collect())
}

/// The lengths of its dimensions, if PostgreSQL has such an array. Nothing for one without elements.
fn shape(value: &Value<'_>) -> Option<Vec<usize>> {
    let mut elements = Vec::new();
    flat(value, &mut elements);
    if elements.is_empty() {
        return Some(Vec::new());
    }
    lengths(value).filter(|lengths| lengths.len() <= MOST_DIMENSIONS)
}

fn lengths(value: &Value<'_>) -> Option<Vec<usize>> {
    let Value::Array(elements) = value else {
        return Some(Vec::new());
    };
    let mut parts = elements.iter().map(|element| match element {
        element @ Value::Array(_) => lengths(element),
        _ => Some(Vec::new()),
    });
    let first = parts.next().unwrap_or(Some(Vec::new()))?;
    let are_equal = parts.all(|part| part.as_ref() == Some(&first));
    are_equal.then(|| [vec![elements.len()], first].concat())
}

fn flat<'v>(value: &'v Value<'_>, into: &mut Vec<&'v Value<'v>>) {
    match value {
        Value::Array(elements) => elements.iter().for_each(|element| flat(element, into)),
        element => into.push(element),
    }
}

fn depth(value: &Value<'_>) -> usize {
    match value {
        Value::Array(elements) => 1 + elements.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// What is written as text is read as the same.
fn as_text(value: &Value<'_>, element: &Type) {
    let text = parameter_text(value).expect("every array has a text");
    let read = array_of_text(&text, element);
    match depth(value) <= MOST_DIMENSIONS {
        true => assert_eq!(read.as_ref(), Some(value), "{text}"),
        false => assert_eq!(read, None, "{text}"),
    }
}

/// A text is an array or not; what was read is written and read as the same.
fn any_text(text: &str) {
    if let Some(array) = array_of_text(text, &Type::TEXT) {
        let written = parameter_text(&array).expect("every array has a text");
        assert_eq!(
            array_of_text(&written, &Type::TEXT),
            Some(array),
            "{written}"
        );
    }
}

/// The binary form has the same dimensions and elements, or the array is one that PostgreSQL does not have.
fn as_binary(value: &Value<'_>, element: &Type, array: &Type) {
    let written = match (copied_value(value, array), shape(value)) {
        (Ok(written), Some(shape)) => Some((written, shape)),
        (Err(_), None) => None,
        (written, shape) => panic!("{shape:?} was written as {written:?}"),
    };
    let Some((written, shape)) = written else {
        return;
    };
    let mut rest = &written[..];
    assert_eq!(usize::try_from(word(&mut rest)), Ok(written.len() - 4));
    assert_eq!(usize::try_from(word(&mut rest)), Ok(shape.len()));
    let mut elements = Vec::new();
    flat(value, &mut elements);
    let has_null = elements.iter().any(|element| element.is_null());
    assert_eq!(word(&mut rest), i32::from(has_null));
    assert_eq!(u32::try_from(word(&mut rest)), Ok(element.oid()));
    for length in shape {
        assert_eq!(usize::try_from(word(&mut rest)), Ok(length));
        assert_eq!(word(&mut rest), 1);
    }
    for element in elements {
        let length = word(&mut rest);
        let Ok(length) = usize::try_from(length) else {
            assert!(element.is_null());
            continue;
        };
        let (bytes, behind) = rest.split_at(length);
        rest = behind;
        match element {
            Value::Int(number) => assert_eq!(bytes, number.to_be_bytes()),
            Value::Text(text) => assert_eq!(bytes, text.as_bytes()),
            other => panic!("{other:?} was written as {bytes:?}"),
        }
    }
    assert!(rest.is_empty());
}

fn word(rest: &mut &[u8]) -> i32 {
    let (word, behind) = rest.split_first_chunk().expect("a word is left");
    *rest = behind;
    i32::from_be_bytes(*word)
}
