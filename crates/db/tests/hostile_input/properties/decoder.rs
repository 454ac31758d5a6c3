//! Whatever a PostgreSQL server sends is read or called garbage, in no more memory than it has sent
//! itself, times a constant.

use cenote::postgres::fuzzing::read_answers;
use cenote::{DateTime, Kind, Row};

use super::choices::Choices;
use super::memory::most_used_by;

/// An inbox, two batches and the first allocations of this and that.
const MEMORY_FOR_NOTHING: usize = 64 * 1024;

/// What a byte may cost at most. A column without a name has nineteen bytes on the wire and
/// is known by its name, its position and its type; a NULL has four, and a place in a row. Tables
/// grow by doubling, the old one beside the new one.
const MEMORY_FOR_A_BYTE: usize = 40;

/// Built-in types of every shape, arrays of them, and some that nobody knows.
const TYPES: [u32; 26] = [
    16, 17, 18, 19, 20, 21, 22, 23, 25, 26, 114, 199, 700, 701, 1000, 1007, 1009, 1020, 1082, 1083,
    1114, 1184, 1700, 2950, 3802, 90_001,
];

/// Texts that servers write.
const WORDS: [&str; 24] = [
    "{1,2,NULL}",
    "{{1,2},{3,4}}",
    "[0:1]={1,2}",
    "{\"a\\\"b\",c}",
    "{t,f}",
    "t",
    "f",
    "NaN",
    "-1",
    "2147483648",
    "infinity",
    "-infinity",
    "2024-02-29",
    "0044-03-15 BC",
    "24:00:00",
    "09:05:00.25",
    "2024-02-29 09:05:00",
    "2024-02-29 09:05:00.25+02:30:15",
    "\\x00ff",
    "\\000\\\\",
    "{",
    "}",
    "1e400",
    "00112233-4455-6677-8899-aabbccddeeff",
];

pub fn check(data: &[u8]) {
    let mut choices = Choices::new(data);
    let piece = 1 + usize::from(choices.byte()) * 16;
    let is_built = choices.byte() % 2 == 1;
    let built = is_built.then(|| messages(&mut choices));
    let bytes = built.as_deref().unwrap_or_else(|| choices.rest());
    let (read, memory) = most_used_by(|| read_answers(bytes, piece));
    let allowed = MEMORY_FOR_NOTHING + MEMORY_FOR_A_BYTE * bytes.len();
    assert!(memory <= allowed, "{memory} bytes for {}", bytes.len());
    assert!(read.messages <= bytes.len() / 5);
    for row in read.answers.into_iter().flat_map(|rows| rows.into_rows()) {
        read_row(&row);
    }
}

fn read_row(row: &Row) {
    for column in 0..row.len() {
        if let Err(error) = row.value(column) {
            assert_eq!(error.kind(), Kind::Type, "{error}");
        }
        // Each of them reads other texts as what it wants.
        let _ = row.get::<i64>(column);
        let _ = row.get::<f64>(column);
        let _ = row.get::<bool>(column);
        let _ = row.get::<String>(column);
        let _ = row.get::<DateTime>(column);
    }
    let _ = cenote::from_row::<std::collections::HashMap<String, String>>(row);
}

/// Messages that are what their lengths say, of which any can be the wrong one.
fn messages(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut columns = 0;
    while !choices.is_empty() {
        let tag = choices.pick(b"TDDDDDCZZ12tnsIENSAHGdc3");
        let body = match tag {
            b'T' => {
                columns = u16::from(choices.byte() % 6);
                description(choices, columns)
            }
            b'D' => row(choices, columns),
            b'C' => choices
                .pick(&["SELECT 1\0", "INSERT 0 5\0", "COMMIT\0", "ROLLBACK\0", "x"])
                .into(),
            b'Z' => choices.pick(&["I", "T", "E", "", "?"]).into(),
            b'E' | b'N' => {
                let state = choices.pick(&["42601", "26000", "0A000", "08P01", "57P01"]);
                let words = choices.text(30).replace('\0', "");
                format!("SERROR\0C{state}\0M{words}\0P{}\0\0", choices.byte()).into()
            }
            _ => choices.bytes(20).to_vec(),
        };
        let wrong = match choices.byte() {
            length @ 250.. => usize::from(length - 249),
            _ => 0,
        };
        let length = u32::try_from(body.len() + 4 + wrong).expect("they are short");
        bytes.push(tag);
        bytes.extend(length.to_be_bytes());
        bytes.extend(body);
    }
    bytes
}

fn description(choices: &mut Choices<'_>, columns: u16) -> Vec<u8> {
    let mut body = columns.to_be_bytes().to_vec();
    for _ in 0..columns {
        body.extend(choices.bytes(8).iter().filter(|byte| **byte != 0));
        body.push(0);
        body.extend([0; 6]);
        body.extend(choices.pick(&TYPES).to_be_bytes());
        body.extend([0; 8]);
    }
    body
}

fn row(choices: &mut Choices<'_>, columns: u16) -> Vec<u8> {
    let mut body = columns.to_be_bytes().to_vec();
    for _ in 0..columns {
        let cell = match choices.byte() % 8 {
            0 => None,
            1..5 => Some(choices.pick(&WORDS).as_bytes()),
            _ => Some(choices.bytes(40)),
        };
        let length = cell.map_or(-1, |cell| {
            i32::try_from(cell.len()).expect("they are short")
        });
        body.extend(length.to_be_bytes());
        body.extend(cell.unwrap_or_default());
    }
    body
}
