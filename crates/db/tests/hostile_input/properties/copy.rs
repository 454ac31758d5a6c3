//! Whatever a PostgreSQL server answers to a COPY is read or called garbage; so are the texts around a COPY.

use cenote::Value;
use cenote::postgres::fuzzing::{copied_query, copied_value, copy_place, read_copy};
use cenote::postgres::postgres_types::Type;

use super::choices::Choices;
use super::memory::most_used_by;

/// An inbox, and the first allocations of this and that.
const MEMORY_FOR_NOTHING: usize = 64 * 1024;

/// As for other answers: see `decoder`.
const MEMORY_FOR_A_BYTE: usize = 40;

/// The header of a value's binary form: its length, then four words.
const NUMERIC_HEADER: usize = 4 + 8;

pub fn check(data: &[u8]) {
    let mut choices = Choices::new(data);
    match choices.byte() % 4 {
        0 => answers(choices),
        1 => context(&choices.rest_as_text()),
        2 => text(&choices.rest_as_text()),
        _ => number(&choices.rest_as_text()),
    }
}

fn answers(mut choices: Choices<'_>) {
    let piece = 1 + usize::from(choices.byte()) * 16;
    let takes_data = choices.byte().is_multiple_of(2);
    let is_built = !choices.byte().is_multiple_of(4);
    let built = is_built.then(|| messages(&mut choices));
    let bytes = built.as_deref().unwrap_or_else(|| choices.rest());
    let (read, memory) = most_used_by(|| read_copy(bytes, piece, takes_data));
    let allowed = MEMORY_FOR_NOTHING + MEMORY_FOR_A_BYTE * bytes.len();
    assert!(memory <= allowed, "{memory} bytes for {}", bytes.len());
    assert!(read.messages <= bytes.len() / 5);
    assert!(read.copied <= bytes.len() - read.messages * 5);
    assert!(takes_data || read.copied == 0);
}

/// Messages that are what their lengths say, in any order.
fn messages(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    while !choices.is_empty() {
        let tag = choices.pick(b"HGdddddcCZZEENSAWT");
        let body = match tag {
            b'H' | b'G' => choices
                .pick(&["\0\0\x01\0\0", "\x01\0\x02\0\x01\0\x01", "", "\0"])
                .into(),
            b'C' => choices
                .pick(&["COPY 5\0", "COPY x\0", "COMMIT\0", "COPY 5"])
                .into(),
            b'Z' => choices.pick(&["I", "T", "E", "?"]).into(),
            b'E' | b'N' => {
                let words = choices.text(40).replace('\0', "");
                format!("SERROR\0C22P02\0Mx\0WCOPY t, line {words}\0\0").into()
            }
            _ => choices.bytes(60).to_vec(),
        };
        let length = u32::try_from(body.len() + 4).expect("they are short");
        bytes.push(tag);
        bytes.extend(length.to_be_bytes());
        bytes.extend(body);
    }
    bytes
}

fn context(context: &str) {
    for context in [context.to_owned(), format!("COPY t, line {context}")] {
        if let Some((_, Some(column))) = copy_place(&context) {
            assert!(!column.is_empty() && context.contains(column));
        }
    }
}

fn text(sql: &str) {
    for sql in [
        sql.to_owned(),
        format!("COPY {sql} TO STDOUT"),
        format!("COPY ({sql}) TO STDOUT"),
    ] {
        if let Some(Some(query)) = copied_query(&sql) {
            assert!(sql.contains(query));
        }
    }
}

/// A number has its digits in the binary form, and no others.
fn number(text: &str) {
    let value = Value::Decimal(text.into());
    let Ok(written) = copied_value(&value, &Type::NUMERIC) else {
        return;
    };
    let words: Vec<u16> = written[4..]
        .chunks(2)
        .map(|word| u16::from_be_bytes([word[0], word[1]]))
        .collect();
    let groups = usize::from(words[0]);
    assert_eq!(written.len(), NUMERIC_HEADER + 2 * groups);
    assert!(words[4..].iter().all(|group| *group < 10_000));
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let digits = digits.trim_matches('0');
    let sent: String = words[4..]
        .iter()
        .map(|group| format!("{group:04}"))
        .collect();
    if groups > 0 {
        assert_eq!(sent.trim_matches('0'), digits, "{text}");
    }
}
