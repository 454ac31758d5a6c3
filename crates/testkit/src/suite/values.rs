//! Promises about parameters and the values that come back.

use std::fmt::Write;
use std::str::FromStr;

use cenote::driver::{Param, Request, Status, Value};
use cenote::{Date, DateTime, Kind, Time};

use super::client::{Client, row, value};
use super::{Lack, Subject};

/// A table with one column of a type, and values for it.
pub(super) struct Sample {
    /// The name of the table.
    pub(super) name: &'static str,
    column: Option<String>,
    pub(super) values: Vec<Value<'static>>,
}

pub(super) fn samples(subject: &Subject) -> Vec<Sample> {
    let types = subject.sql.types.clone();
    let sample = |name, column, values| Sample {
        name,
        column,
        values,
    };
    let bytes: Vec<u8> = (0..=255).collect();
    let moments = ["2024-02-29T09:05:00", "1999-12-31T23:59:59.999999"];
    let moments = moments.map(parsed::<DateTime>);
    let uuid = [
        0x67, 0xe5, 0x50, 0x44, 0x10, 0xb1, 0x42, 0x6f, 0x92, 0x47, 0xbb, 0x68, 0x0e, 0x5f, 0xe0,
        0xc8,
    ];
    let texts = [
        "",
        "ada",
        "it's \"quoted\" \\ ?",
        "two\nlines\t",
        "grün 🦀 ﷽",
        " spaces ",
    ];
    let floats = [0.0, 0.1, -1.5, 1e300, f64::EPSILON];
    let decimals = ["0", "-12.5", "123456.7891"];
    vec![
        sample("bools", types.bool, vec![true.into(), false.into()]),
        sample(
            "ints",
            types.int,
            [0, -1, 42, i64::MIN, i64::MAX].map(Value::Int).into(),
        ),
        sample(
            "uints",
            types.uint,
            [0, 7, u64::MAX].map(Value::UInt).into(),
        ),
        sample("floats", types.float, floats.map(Value::Float).into()),
        sample(
            "decimals",
            types.decimal,
            decimals.map(|it| Value::Decimal(it.into())).into(),
        ),
        sample("texts", types.text, texts.map(Value::from).into()),
        sample(
            "bytes",
            types.bytes,
            vec![Vec::<u8>::new().into(), bytes.into()],
        ),
        sample(
            "dates",
            types.date,
            moments.map(|it| Value::Date(it.date)).into(),
        ),
        sample(
            "times",
            types.time,
            moments.map(|it| Value::Time(it.time)).into(),
        ),
        sample(
            "moments",
            types.date_time,
            moments.map(Value::DateTime).into(),
        ),
        sample(
            "stamps",
            types.timestamp,
            moments.map(Value::Timestamp).into(),
        ),
        sample("uuids", types.uuid, vec![Value::Uuid(uuid)]),
        sample(
            "jsons",
            types.json,
            vec![Value::Json(r#"{"a":[1,null,"x"]}"#.into())],
        ),
    ]
}

fn parsed<T: FromStr>(text: &str) -> T {
    let parsed = text.parse().ok();
    parsed.expect("the samples of the suite are right")
}

impl Sample {
    /// Creates the table. Returns `false` if the database has no such type.
    pub(super) async fn create(&self, client: &mut Client<'_>) -> bool {
        let Some(column) = &self.column else {
            return false;
        };
        let sql = format!("CREATE TABLE cenote_{} (v {column})", self.name);
        client.must(&sql).await;
        true
    }

    /// Writes a value to the table and reads it back; leaves the table empty.
    pub(super) async fn round_trip(
        &self,
        client: &mut Client<'_>,
        sent: &Value<'static>,
    ) -> Value<'static> {
        let insert = format!("INSERT INTO cenote_{} VALUES (?)", self.name);
        let done = client.run(&insert, &[Param::Value(sent.clone())]).await;
        done.unwrap_or_else(|error| panic!("{insert} with {sent:?}: {error}"));
        let done = client
            .must(&format!("SELECT v FROM cenote_{}", self.name))
            .await;
        let rows = done.rows.expect("a query has rows").into_rows();
        let rows: Vec<_> = rows.collect();
        assert_eq!(rows.len(), 1, "one row of {}", self.name);
        let got = rows[0].value(0).expect("what was written can be read");
        client
            .must(&format!("DELETE FROM cenote_{}", self.name))
            .await;
        got.into_owned()
    }
}

/// A parameter of every neutral type comes back as the same value, or as an equivalent text or number where the
/// database has no such type.
pub async fn every_value_comes_back_as_it_was_sent(subject: &Subject) {
    let mut client = Client::another(subject).await;
    for sample in samples(subject) {
        if !sample.create(&mut client).await {
            continue;
        }
        for sent in &sample.values {
            let got = sample.round_trip(&mut client, sent).await;
            let is_close = !subject.can(Lack::Digits) && is_close_to(&got, sent);
            assert!(
                is_close || stands_for(&got, sent),
                "sent {sent:?}, got {got:?}"
            );
        }
    }
}

/// NULL comes back as NULL, whatever the type of the column.
pub async fn null_comes_back_from_a_column_of_every_type(subject: &Subject) {
    let mut client = Client::another(subject).await;
    for sample in samples(subject) {
        if sample.create(&mut client).await {
            let got = sample.round_trip(&mut client, &Value::Null).await;
            assert_eq!(got, Value::Null, "from {}", sample.name);
        }
    }
}

/// A mebibyte of text and a mebibyte of bytes arrive completely.
pub async fn a_large_text_and_large_bytes_come_back_whole(subject: &Subject) {
    const MEBIBYTE: usize = 1 << 20;
    let mut client = Client::another(subject).await;
    let text: String = ('a'..='z').cycle().take(MEBIBYTE).collect();
    let bytes: Vec<u8> = (0..=255).cycle().take(MEBIBYTE).collect();
    for sample in samples(subject) {
        let sent = match sample.name {
            "texts" => Value::from(text.clone()),
            "bytes" => Value::from(bytes.clone()),
            _ => continue,
        };
        if sample.create(&mut client).await {
            let got = sample.round_trip(&mut client, &sent).await;
            assert!(stands_for(&got, &sent), "{} are whole", sample.name);
        }
    }
    client.is_usable().await;
}

/// A number that is too large for the database is an error and is not changed silently.
pub async fn a_number_that_has_no_place_is_refused(subject: &Subject) {
    if subject.sql.types.uint.is_some() {
        return;
    }
    let mut client = Client::first(subject).await;
    let mut params = row(1);
    params[0] = value(Value::UInt(u64::MAX));
    let refused = client.run(&subject.sql.insert, &params).await;
    refused.expect_err("there is no place for it");
    assert_eq!(client.status(), Status::Idle);
    client.is_usable().await;
    assert_eq!(client.ids().await, [0; 0]);
}

/// A statement with too few or too many parameters is refused, and not run.
pub async fn the_wrong_number_of_parameters_is_refused(subject: &Subject) {
    let mut client = Client::first(subject).await;
    let insert = client.text(&subject.sql.insert).into_owned();
    let enough = row(1);
    let too_many = [enough.clone(), enough.clone()].concat();
    for params in [&enough[..0], &enough[..1], &too_many] {
        let refused = client.connection.run(Request::new(&insert, params)).await;
        let error = refused.expect_err("the number of parameters is wrong");
        let kind = error.kind();
        assert!(matches!(kind, Kind::Parameters | Kind::Database), "{error}");
        assert_eq!(client.status(), Status::Idle);
        client.is_usable().await;
    }
    assert_eq!(client.ids().await, [0; 0]);
}

/// Returns whether a value equals the one sent, perhaps with another type.
fn stands_for(got: &Value<'_>, sent: &Value<'_>) -> bool {
    if got == sent {
        return true;
    }
    match sent {
        Value::Bool(truth) => number(got) == Some(f64::from(u8::from(*truth))),
        Value::Int(sent) => whole(got) == Some(i128::from(*sent)),
        Value::UInt(sent) => whole(got) == Some(i128::from(*sent)),
        Value::Float(sent) => number(got) == Some(*sent),
        Value::Decimal(sent) => match got {
            Value::Decimal(got) | Value::Text(got) => trimmed(got) == trimmed(sent),
            _ => number(got) == sent.parse().ok(),
        },
        Value::Date(sent) => read::<Date>(got) == Some(*sent),
        Value::Time(sent) => read::<Time>(got) == Some(*sent),
        Value::DateTime(sent) | Value::Timestamp(sent) => match got {
            Value::DateTime(got) | Value::Timestamp(got) => got == sent,
            _ => read::<DateTime>(got) == Some(*sent),
        },
        Value::Uuid(sent) => match got {
            Value::Bytes(got) => got[..] == sent[..],
            Value::Text(got) => got
                .replace('-', "")
                .eq_ignore_ascii_case(&hexadecimal(sent)),
            _ => false,
        },
        Value::Json(sent) => match got {
            Value::Text(got) | Value::Json(got) => compact(got) == compact(sent),
            _ => false,
        },
        _ => false,
    }
}

/// Returns whether two floating-point numbers agree in fifteen digits.
fn is_close_to(got: &Value<'_>, sent: &Value<'_>) -> bool {
    let (Value::Float(sent), Some(got)) = (sent, number(got)) else {
        return false;
    };
    (got - sent).abs() <= sent.abs() * 1e-14
}

fn number(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Float(number) => Some(*number),
        Value::Int(number) => number.to_string().parse().ok(),
        Value::UInt(number) => number.to_string().parse().ok(),
        Value::Bool(truth) => Some(f64::from(u8::from(*truth))),
        Value::Decimal(digits) | Value::Text(digits) => digits.parse().ok(),
        _ => None,
    }
}

fn whole(value: &Value<'_>) -> Option<i128> {
    match value {
        Value::Int(number) => Some(i128::from(*number)),
        Value::UInt(number) => Some(i128::from(*number)),
        Value::Decimal(digits) | Value::Text(digits) => trimmed(digits).parse().ok(),
        _ => None,
    }
}

/// Returns the number without trailing zeros of its decimals.
fn trimmed(digits: &str) -> &str {
    match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => digits,
    }
}

/// Parses a date and time; UTC if the text says so.
fn read<T: FromStr>(value: &Value<'_>) -> Option<T> {
    let Value::Text(text) = value else {
        return None;
    };
    let zones = ["Z", "+00:00", "+00"];
    let bare = zones.iter().find_map(|zone| text.strip_suffix(zone));
    bare.unwrap_or(text).parse().ok()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn compact(json: &str) -> String {
    json.split_whitespace().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_may_come_back_in_the_clothes_of_another_type() {
        let date: Date = parsed("2024-02-29");
        let moment: DateTime = parsed("2024-02-29T09:05:00.25");
        for (sent, got) in [
            (Value::Bool(true), Value::Int(1)),
            (Value::Int(-1), Value::from("-1")),
            (
                Value::UInt(u64::MAX),
                Value::Decimal("18446744073709551615".into()),
            ),
            (Value::UInt(7), Value::Decimal("7.0".into())),
            (Value::Float(0.5), Value::from("0.5")),
            (Value::Decimal("-12.5".into()), Value::from("-12.5000")),
            (Value::Decimal("-12.5".into()), Value::Float(-12.5)),
            (Value::Date(date), Value::from("2024-02-29")),
            (Value::DateTime(moment), Value::Timestamp(moment)),
            (
                Value::Timestamp(moment),
                Value::from("2024-02-29 09:05:00.250000+00"),
            ),
            (
                Value::Uuid([0xab; 16]),
                Value::from("ABABABAB-abab-abab-abab-abababababab"),
            ),
            (Value::Uuid([1; 16]), Value::from(vec![1_u8; 16])),
            (Value::Json("[1,2]".into()), Value::from("[1, 2]")),
        ] {
            assert!(stands_for(&got, &sent), "{got:?} for {sent:?}");
        }
    }

    #[test]
    fn another_value_is_not_taken_for_the_one_sent() {
        for (sent, got) in [
            (Value::Bool(true), Value::Int(0)),
            (Value::Int(1), Value::Int(2)),
            (Value::Int(1), Value::Null),
            (Value::UInt(u64::MAX), Value::Int(-1)),
            (Value::Float(0.1), Value::Float(0.2)),
            (Value::Decimal("12.5".into()), Value::from("125")),
            (Value::Decimal("100".into()), Value::from("1")),
            (Value::from("a"), Value::from("A")),
            (Value::from("1"), Value::Int(1)),
            (Value::from(vec![1]), Value::from("1")),
            (Value::Uuid([1; 16]), Value::from(vec![1; 15])),
            (Value::Json("[1]".into()), Value::from("[2]")),
        ] {
            assert!(!stands_for(&got, &sent), "{got:?} for {sent:?}");
        }
    }
}
