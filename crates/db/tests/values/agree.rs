//! `Row::get` and serde read the same value from a cell.

use std::fmt::Debug;
use std::net::IpAddr;

use cenote::{Date, DateTime, FromValue, Kind, Row, Time, Value, from_row};
use proptest::prelude::*;
use serde::Deserialize;

use crate::values_support::*;

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{0,8}",
        "[0-9]{1,4}",
        "[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}",
        "20[0-9]{2}-[01][0-9]-[0-3][0-9]([ T][0-2][0-9]:[0-5][0-9](:[0-5][0-9])?(Z|\\+02:00)?)?",
        "[0-2][0-9]:[0-5][0-9](:[0-5][0-9])?",
        Just("10.0.0.1".to_owned()),
        Just("::1".to_owned()),
    ]
}

fn moment() -> impl Strategy<Value = DateTime> {
    (
        1..9999_i32,
        1..=12_u8,
        1..=28_u8,
        0..24_u8,
        0..60_u8,
        0..60_u8,
        0..1_000_000_000_u32,
    )
        .prop_map(|(year, month, day, hour, minute, second, nanosecond)| {
            let time = Time::new(hour, minute, second, nanosecond).unwrap();
            DateTime::new(Date::new(year, month, day).unwrap(), time)
        })
}

fn scalar() -> impl Strategy<Value = Value<'static>> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        prop_oneof![any::<i64>(), -300..300_i64].prop_map(Value::Int),
        any::<u64>().prop_map(Value::UInt),
        prop_oneof![any::<f64>(), any::<f32>().prop_map(f64::from)].prop_map(Value::Float),
        "-?[0-9]{1,25}(\\.[0-9]{1,5})?".prop_map(|digits| Value::Decimal(digits.into())),
        text().prop_map(|text| Value::Text(text.into())),
        // Without a byte, serde cannot see that a `Vec<bool>` is read from bytes.
        prop::collection::vec(any::<u8>(), 1..6).prop_map(|bytes| Value::Bytes(bytes.into())),
        "[a-z]{16}".prop_map(|bytes| Value::Bytes(bytes.into_bytes().into())),
        moment().prop_map(|moment| Value::Date(moment.date)),
        moment().prop_map(|moment| Value::Time(moment.time)),
        moment().prop_map(Value::DateTime),
        moment().prop_map(Value::Timestamp),
        any::<[u8; 16]>().prop_map(Value::Uuid),
    ]
}

fn value() -> impl Strategy<Value = Value<'static>> {
    let array =
        |of: BoxedStrategy<Value<'static>>| prop::collection::vec(of, 0..5).prop_map(Value::Array);
    let ints = prop_oneof![Just(Value::Null), (-300..300_i64).prop_map(Value::Int)].boxed();
    let texts = text().prop_map(|text| Value::Text(text.into())).boxed();
    let nested = array(array(ints.clone()).boxed());
    prop_oneof![
        6 => scalar(),
        1 => array(scalar().boxed()),
        1 => array(ints),
        1 => array(texts),
        1 => nested,
    ]
}

/// Whether the text may be JSON: inside of a document, serde_json's own rules apply.
fn is_document(value: &Value<'_>) -> bool {
    match value {
        Value::Text(text) => text.starts_with('['),
        _ => false,
    }
}

/// Both read the same, or neither reads anything. NaN equals itself here.
fn agree<'r, T>(row: &'r Row) -> Result<(), TestCaseError>
where
    T: FromValue<'r> + Deserialize<'r> + Debug,
{
    let got = row.get::<T>(0).map_err(|error| error.kind());
    let read = from_row::<(T,)>(row).map(|(value,)| value);
    let read = read.map_err(|error| error.kind());
    let name = std::any::type_name::<T>();
    prop_assert_eq!(
        format!("{:?}", got),
        format!("{:?}", read),
        "{} of {:?}",
        name,
        row
    );
    Ok(())
}

macro_rules! all_agree {
    ($row:ident: $($type:ty),* $(,)?) => {
        $(
            agree::<$type>($row)?;
            agree::<Option<$type>>($row)?;
            agree::<Vec<$type>>($row)?;
            agree::<Vec<Option<$type>>>($row)?;
        )*
    };
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn get_and_serde_read_the_same(value in value().prop_filter("JSON", |value| !is_document(value))) {
        let row = &single(value);
        all_agree! { row:
            bool, i8, i16, i32, i64, u8, u16, u32, u64, f32, f64, char, String, Date, Time, DateTime, IpAddr,
            [i64; 2], [u8; 3], Vec<i64>, Vec<u8>,
        }
        agree::<&str>(row)?;
        agree::<Option<&str>>(row)?;
        agree::<&[u8]>(row)?;
        agree::<Vec<&str>>(row)?;
    }
}

#[cfg(feature = "json")]
proptest! {
    /// What both read from a JSON document is the same.
    #[test]
    fn get_and_serde_never_read_two_values_from_json(
        document in r#"\[((-?[1-9][0-9]{0,3}|"[a-z]{0,3}"|true|null|\[1\]|\{"a":1\}|0\.5)(,(2|"b"|null))?)?\]"#,
        as_text: bool,
    ) {
        fn check<'r, T: FromValue<'r> + Deserialize<'r> + Debug + PartialEq>(
            row: &'r Row,
        ) -> Result<(), TestCaseError> {
            if let (Ok(got), Ok((read,))) = (row.get::<T>(0), from_row::<(T,)>(row)) {
                prop_assert_eq!(got, read);
            }
            Ok(())
        }
        let value = match as_text {
            true => Value::Text(document.into()),
            false => Value::Json(document.into()),
        };
        let row = single(value);
        check::<Vec<i64>>(&row)?;
        check::<Vec<Option<f64>>>(&row)?;
        check::<Vec<Option<String>>>(&row)?;
        check::<Vec<Vec<i64>>>(&row)?;
        check::<Vec<bool>>(&row)?;
        check::<String>(&row)?;
        check::<serde_json::Value>(&row)?;
        check::<cenote::Json<serde_json::Value>>(&row)?;
        check::<cenote::Json<Vec<i64>>>(&row)?;
    }
}

#[test]
fn a_sequence_bytes_or_anything_of_one_column_is_refused() {
    let refused = |what: &str| {
        format!(
            "the row has 1 column, and {what} could mean the row or its value: for the value use query_scalar or a \
             tuple of one, (T,)"
        )
    };
    let array = single(vec!["admin", "ops"]);
    assert_eq!(
        refusal(from_row::<Vec<String>>(&array), Kind::Column),
        refused("a sequence")
    );
    assert_eq!(
        refusal(from_row::<Option<Vec<String>>>(&array), Kind::Column),
        refused("a sequence")
    );
    let bytes = single(&b"abc"[..]);
    assert_eq!(
        refusal(from_row::<Vec<u8>>(&bytes), Kind::Column),
        refused("a sequence")
    );
    assert_eq!(
        refusal(from_row::<&[u8]>(&bytes), Kind::Column),
        refused("bytes")
    );

    #[derive(Debug, Deserialize)]
    #[serde(untagged)]
    #[allow(dead_code, reason = "it is only read")]
    enum Either {
        Number(i64),
        Text(String),
    }
    assert_eq!(
        refusal(from_row::<Either>(&single(1)), Kind::Column),
        refused("a type that takes anything")
    );
    assert!(matches!(
        from_row::<(Either,)>(&single(1)).unwrap().0,
        Either::Number(1)
    ));
    let (tags,): (Vec<String>,) = from_row(&array).unwrap();
    assert_eq!(tags, ["admin", "ops"]);
    let (blob,): (&[u8],) = from_row(&bytes).unwrap();
    assert_eq!(blob, b"abc");
    assert_eq!(
        from_row::<Vec<i64>>(&row(&[("a", 1.into()), ("b", 2.into())])).unwrap(),
        [1, 2]
    );
}

#[cfg(feature = "json")]
#[test]
fn a_json_value_is_the_row_only_if_it_has_several_columns() {
    let document = single(Value::Json("[1]".into()));
    let message = refusal(from_row::<serde_json::Value>(&document), Kind::Column);
    assert!(message.contains("query_scalar"), "{message}");
    let (value,): (serde_json::Value,) = from_row(&document).unwrap();
    assert_eq!(value, serde_json::json!([1]));
    let array = single(Value::Array(vec![1.into(), Value::Null]));
    let (value,): (serde_json::Value,) = from_row(&array).unwrap();
    assert_eq!(value, serde_json::json!([1, null]));
}

#[test]
fn an_array_that_does_not_fit_names_its_element() {
    let row = single(Value::Array(vec![1.into(), "x".into()]));
    let message = "column `it`: element 2: found text, wanted i64: use String or cast";
    assert_eq!(refusal(row.get::<Vec<i64>>(0), Kind::Type), message);
    assert_eq!(refusal(from_row::<(Vec<i64>,)>(&row), Kind::Type), message);
    let message = "column `it`: found 2 elements, wanted 3 of them";
    assert_eq!(refusal(row.get::<[Value<'_>; 3]>(0), Kind::Type), message);
    let long = single(vec![1, 2]);
    let message = "column `it`: found 2 elements, wanted 1 of them";
    assert_eq!(refusal(from_row::<([i64; 1],)>(&long), Kind::Type), message);
    assert_eq!(refusal(long.get::<[i64; 1]>(0), Kind::Type), message);
}

#[test]
fn a_text_that_serde_cannot_parse_names_the_type_of_the_value() {
    let row = single(Value::Timestamp("2024-02-29T09:05:00".parse().unwrap()));
    let message = refusal(from_row::<(IpAddr,)>(&row), Kind::Type);
    assert!(
        message.starts_with("column `it`: found timestamptz: "),
        "{message}"
    );
    assert!(
        message.ends_with("such as DateTime<Utc>, or cast"),
        "{message}"
    );
}
