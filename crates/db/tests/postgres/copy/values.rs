//! Values in COPY's binary form are those that a parameter stores.

use std::net::IpAddr;

use cenote::driver::Param;
use cenote::postgres::param;
use cenote::{Date, DateTime, Db, Kind, Params, Time, Value};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::db;

const TYPES: &str = "
    CREATE TYPE mood AS ENUM ('sad', 'it''s ok');
    CREATE DOMAIN small AS int4 CHECK (VALUE < 100);
    CREATE DOMAIN smaller AS small;
    CREATE DOMAIN ints AS int4[];
    CREATE DOMAIN code AS varchar(5);
";

fn moment(year: i32, nanosecond: u32) -> DateTime {
    DateTime {
        date: Date::new(year, 2, 28).unwrap(),
        time: Time::new(23, 59, 58, nanosecond).unwrap(),
    }
}

fn text(text: &str) -> Value<'static> {
    Value::Text(text.to_owned().into())
}

fn decimal(digits: &str) -> Value<'static> {
    Value::Decimal(digits.to_owned().into())
}

fn json(document: &str) -> Value<'static> {
    Value::Json(document.to_owned().into())
}

fn ints(numbers: &[i64]) -> Value<'static> {
    Value::Array(numbers.iter().map(|number| Value::Int(*number)).collect())
}

/// Values for columns of each type.
fn samples() -> Vec<(&'static str, Vec<Value<'static>>)> {
    let date = Date::new(2024, 2, 29).unwrap();
    vec![
        ("bool", vec![Value::Bool(true), Value::Bool(false)]),
        ("int2", vec![Value::Int(-32768), Value::UInt(7)]),
        (
            "int4",
            vec![
                Value::Int(-5),
                Value::Int(i64::from(i32::MAX)),
                Value::UInt(7),
            ],
        ),
        ("int8", vec![Value::Int(i64::MIN), Value::UInt(1 << 62)]),
        ("oid", vec![Value::Int(0), Value::UInt(4_000_000_000)]),
        (
            "float4",
            vec![
                Value::Float(1.5),
                Value::Float(f64::NAN),
                Value::Int(3),
                decimal("2.5"),
            ],
        ),
        (
            "float8",
            vec![
                Value::Float(-0.1),
                Value::Float(f64::INFINITY),
                Value::Int(1 << 60),
                Value::UInt(u64::MAX),
                decimal("12.75"),
            ],
        ),
        (
            "numeric",
            vec![
                decimal("-12.50"),
                decimal("123456789012345678901234567890.0001"),
                Value::Int(i64::MIN),
                Value::UInt(u64::MAX),
                Value::Float(1e-7),
                Value::Float(f64::NAN),
                text("0.000"),
                decimal("1e30"),
            ],
        ),
        ("numeric(6, 2)", vec![decimal("1234.567"), Value::Int(5)]),
        (
            "text",
            vec![
                text("é \\ \" \n"),
                Value::Int(5),
                Value::Bool(true),
                Value::Uuid([7; 16]),
            ],
        ),
        ("varchar(5)", vec![text("abc")]),
        ("char(5)", vec![text("ab")]),
        ("name", vec![text("a_name")]),
        ("bytea", vec![Value::Bytes(vec![0, 255, b'\\'].into())]),
        ("uuid", vec![Value::Uuid([0xab; 16])]),
        (
            "date",
            vec![
                Value::Date(date),
                Value::Date(Date::new(-43, 3, 15).unwrap()),
            ],
        ),
        (
            "time",
            vec![Value::Time(Time::new(23, 59, 59, 999_999_999).unwrap())],
        ),
        (
            "time(0)",
            vec![Value::Time(Time::new(1, 2, 3, 600_000_000).unwrap())],
        ),
        (
            "timestamp",
            vec![
                Value::DateTime(moment(1999, 123_456_000)),
                Value::Timestamp(moment(2030, 0)),
            ],
        ),
        (
            "timestamp(3)",
            vec![Value::DateTime(moment(1999, 123_456_000))],
        ),
        ("timestamptz", vec![Value::Timestamp(moment(-3, 1_000))]),
        (
            "json",
            vec![json("{\"a\": [1, null]}"), text("[]"), Value::Int(5)],
        ),
        (
            "jsonb",
            vec![json("{\"a\": [1, null]}"), text("\"x\""), Value::Int(5)],
        ),
        ("xml", vec![text("<a/>")]),
        ("mood", vec![text("it's ok")]),
        ("small", vec![Value::Int(99), Value::UInt(1)]),
        ("smaller", vec![Value::Int(98)]),
        ("code", vec![text("abcde")]),
        (
            "int4[]",
            vec![
                ints(&[1, 2]),
                ints(&[]),
                Value::Array(vec![Value::Null, Value::Int(3)]),
            ],
        ),
        (
            "int8[]",
            vec![
                Value::Array(vec![ints(&[1, 2, 3]), ints(&[4, 5, 6])]),
                Value::Array(vec![Value::Array(vec![ints(&[1])])]),
            ],
        ),
        ("ints", vec![ints(&[1, 2])]),
        ("smaller[]", vec![ints(&[1, 2])]),
        (
            "text[]",
            vec![Value::Array(vec![
                text("a,b"),
                text(""),
                text("NULL"),
                Value::Null,
                text("\"\\"),
            ])],
        ),
        ("mood[]", vec![Value::Array(vec![text("sad"), Value::Null])]),
        (
            "numeric[]",
            vec![Value::Array(vec![decimal("1.50"), Value::Int(2)])],
        ),
        ("jsonb[]", vec![Value::Array(vec![json("{}"), json("[1]")])]),
        (
            "bytea[]",
            vec![Value::Array(vec![Value::Bytes(vec![1, 2].into())])],
        ),
        ("uuid[]", vec![Value::Array(vec![Value::Uuid([3; 16])])]),
        (
            "timestamptz[]",
            vec![Value::Array(vec![Value::Timestamp(moment(2024, 5_000))])],
        ),
    ]
}

/// What the server shows of the column `v`, in the order of `id`.
async fn shown(db: &Db, table: &str) -> Vec<Option<String>> {
    let sql = format!("SELECT v::text FROM {table} ORDER BY id");
    db.query_scalar(&sql, ()).await.unwrap()
}

#[tokio::test]
async fn copied_values_equal_those_of_parameters() {
    let db = db().await;
    db.run_all(TYPES, ()).await.unwrap();
    for (n, (column, values)) in samples().into_iter().enumerate() {
        let (inserted, copied) = (format!("inserted_{n}"), format!("copied_{n}"));
        for table in [&inserted, &copied] {
            let sql = format!("CREATE TABLE {table} (id int8, v {column})");
            db.exec(&sql, ()).await.unwrap();
        }
        let values: Vec<_> = values.into_iter().chain([Value::Null]).collect();
        let insert = format!("INSERT INTO {inserted} VALUES (?, ?)");
        for (id, value) in (0_i64..).zip(&values) {
            db.exec(&insert, (id, value)).await.unwrap();
        }
        let rows = (0_i64..).zip(&values);
        let stored = db.copy_in_rows(&copied, &["id", "v"], rows).await;
        let stored = stored.unwrap_or_else(|error| panic!("{column}: {error}"));
        assert_eq!(stored, u64::try_from(values.len()).unwrap());
        assert_eq!(
            shown(&db, &copied).await,
            shown(&db, &inserted).await,
            "{column}"
        );
    }
}

#[tokio::test]
async fn numbers_of_all_sizes_equal_those_of_parameters() {
    let db = db().await;
    db.exec("CREATE TABLE n (id int8, v numeric)", ())
        .await
        .unwrap();
    let mut runner = TestRunner::deterministic();
    let number = "-?[0-9]{1,40}(\\.[0-9]{1,30})?(e-?[0-9]{1,2})?";
    let numbers = prop::collection::vec(number, 2000).new_tree(&mut runner);
    let numbers = proptest::strategy::ValueTree::current(&numbers.unwrap());
    let rows = numbers.iter().enumerate();
    let rows = rows.map(|(id, number)| (id as i64, Value::Decimal(number.into())));
    db.copy_in_rows("n", &["id", "v"], rows).await.unwrap();
    let expected: Vec<String> = db
        .query_scalar("SELECT n::numeric::text FROM unnest(?::text[]) WITH ORDINALITY AS u (n, at) ORDER BY at", (&numbers[..],))
        .await
        .unwrap();
    let stored: Vec<String> = db
        .query_scalar("SELECT v::text FROM n ORDER BY id", ())
        .await
        .unwrap();
    for ((number, stored), expected) in numbers.iter().zip(&stored).zip(&expected) {
        assert_eq!(stored, expected, "{number}");
    }
}

#[tokio::test]
async fn native_values_reach_columns_of_their_types() {
    let db = db().await;
    db.exec("CREATE TABLE h (id int8, v inet, w int4[])", ())
        .await
        .unwrap();
    let rows = (0..3).map(|id| {
        let host: IpAddr = [127, 0, 0, id].into();
        (i64::from(id), param(host), param(vec![Some(1), None]))
    });
    assert_eq!(
        db.copy_in_rows("h", &["id", "v", "w"], rows).await.unwrap(),
        3
    );
    let hosts = shown(&db, "h").await;
    assert_eq!(hosts[2].as_deref(), Some("127.0.0.2/32"));
}

#[tokio::test]
async fn values_that_do_not_fit_are_refused() {
    let db = db().await;
    db.run_all(TYPES, ()).await.unwrap();
    for (n, (column, value)) in [
        ("int2", Value::Int(40_000)),
        ("int4", Value::Int(1 << 40)),
        ("int8", Value::UInt(u64::MAX)),
        ("int4", text("5")),
        ("int4", Value::Float(1.0)),
        ("bool", Value::Int(1)),
        ("float4", Value::Float(1e300)),
        ("float4", Value::Float(1e-300)),
        ("float8", decimal("1e400")),
        ("float8", decimal("-1e400")),
        ("float8", decimal("0.01e-400")),
        ("float4", decimal("1e400")),
        ("float4", decimal("1e-400")),
        ("numeric", text("no number")),
        ("date", text("2024-01-01")),
        ("timestamptz", Value::DateTime(moment(2024, 0))),
        ("interval", text("1 day")),
        ("oid", Value::Int(-1)),
        ("inet", text("127.0.0.1")),
        ("int4[]", text("{1}")),
        ("int4[]", Value::Array(vec![ints(&[1]), ints(&[1, 2])])),
        ("int4[]", Value::Array(vec![ints(&[1]), Value::Int(1)])),
        ("int4[]", Value::Array(vec![Value::Int(1), ints(&[1])])),
        ("int4[]", Value::Array(vec![ints(&[]), ints(&[1])])),
        (
            "int4[]",
            (0..7).fold(ints(&[1]), |inner, _| Value::Array(vec![inner])),
        ),
        ("int4[]", Value::Array(vec![text("x")])),
        ("int4", ints(&[1])),
    ]
    .into_iter()
    .enumerate()
    {
        let table = format!("r{n}");
        let sql = format!("CREATE TABLE {table} (v {column})");
        db.exec(&sql, ()).await.unwrap();
        let good = Params::Positional(vec![Param::Value(Value::Null)]);
        let bad = Params::Positional(vec![Param::Value(value.clone())]);
        let error = db.copy_in_rows(&table, &["v"], [good, bad]).await;
        let error = error.expect_err(&format!("{column}: {value:?}"));
        assert_eq!(error.kind(), Kind::Type, "{column}: {error}");
        assert_eq!(
            (error.row(), error.column()),
            (Some(1), Some("v")),
            "{error}"
        );
        let sql = format!("SELECT count(*) FROM {table}");
        assert_eq!(db.query_scalar_one::<i64>(&sql, ()).await.unwrap(), 0);
    }
    // Those that only the server can check.
    for (column, value, state) in [
        ("small", Value::Int(100), "23514"),
        ("mood", text("angry"), "22P02"),
        ("numeric(3, 1)", decimal("1000"), "22003"),
        ("json", text("{"), "22P02"),
        ("jsonb", text("{"), "22P02"),
    ] {
        let table = format!("s{}", column.len());
        let sql = format!("DROP TABLE IF EXISTS {table}; CREATE TABLE {table} (v {column})");
        db.run_all(&sql, ()).await.unwrap();
        let rows = [Value::Null, value];
        let error = db.copy_in_rows(&table, &["v"], rows).await.unwrap_err();
        assert_eq!(error.sql_state(), Some(state), "{error}");
        assert_eq!(
            (error.row(), error.column()),
            (Some(1), Some("v")),
            "{error}"
        );
    }
}
