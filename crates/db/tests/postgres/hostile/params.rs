//! A parameter means the same the first time, as text, and later, in binary where that is known.

use cenote::driver::{Param, Value};

use crate::servers::client::Client;

const TYPES: &[&str] = &[
    "bool",
    "int2",
    "int4",
    "int8",
    "oid",
    "float4",
    "float8",
    "numeric",
    "text",
    "varchar(5)",
    "char(3)",
    "name",
    "\"char\"",
    "bytea",
    "date",
    "time",
    "timetz",
    "timestamp",
    "timestamptz",
    "timestamp(0)",
    "interval",
    "uuid",
    "json",
    "jsonb",
    "int4[]",
    "text[]",
    "inet",
    "money",
    "xml",
    "numeric(6,2)",
    "bit(3)",
    "int4range",
    "regclass",
];

fn values() -> Vec<Value<'static>> {
    let moment = |text: &str| text.parse().unwrap();
    let mut values = vec![
        Value::Null,
        Value::Bool(true),
        Value::Bool(false),
        Value::UInt(u64::MAX),
        Value::UInt(7),
        Value::Bytes(vec![0, 255, 92, 39].into()),
        Value::Bytes(Vec::new().into()),
        Value::Bytes(b"true"[..].into()),
        Value::Uuid([0xab; 16]),
        Value::Json("[1, null]".into()),
        Value::Json("{\"a\":\"\u{e9}\"}".into()),
        Value::Date("2024-02-29".parse().unwrap()),
        Value::Date("0001-01-01".parse().unwrap()),
        Value::Time("23:59:59.999999999".parse().unwrap()),
        Value::Time("00:00:00".parse().unwrap()),
        Value::DateTime(moment("2024-02-29 23:59:59.9999999")),
        Value::DateTime(moment("1969-12-31 23:59:59.000001")),
        Value::Timestamp(moment("2024-07-01 00:00:00")),
        Value::Timestamp(moment("0001-01-01 00:00:00")),
    ];
    values.extend([0, 1, -1, 300, 70_000, i64::MAX, i64::MIN].map(Value::Int));
    let floats = [
        0.0,
        -0.0,
        1.5,
        0.1,
        1e300,
        -5e-324,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        2147483648.0,
    ];
    values.extend(floats.map(Value::Float));
    values.extend(
        ["0", "-1.50", "123456789012345678901234567890.123"].map(|it| Value::Decimal(it.into())),
    );
    let texts = [
        "",
        "1",
        " 1 ",
        "t",
        "abc",
        "{1,NULL}",
        "\u{1f980}",
        "infinity",
        "NaN",
        "2024-01-01",
        "2024-01-01 10:00+02",
        "a\0b",
        "\\x00ff",
        "null",
        "10.0.0.1",
        "1 day",
        "[1,2)",
        "pg_class",
        "101",
        "12:00",
    ];
    values.extend(texts.map(|it| Value::Text(it.into())));
    values
}

#[tokio::test]
async fn every_value_for_every_type_comes_to_the_same_each_time() {
    let mut client = Client::new().await;
    client.must("SET TimeZone = 'America/New_York'").await;
    for kind in TYPES {
        for (n, value) in values().into_iter().enumerate() {
            let sql = format!("SELECT ($1::{kind})::text, pg_typeof($1)::text /* {n} */");
            let params = [Param::Value(value.clone())];
            let mut seen = Vec::new();
            for _ in 0..3 {
                let done = client.run(&sql, &params).await;
                seen.push(match done {
                    Ok(done) => {
                        let row = done.rows.unwrap().into_rows().next().unwrap();
                        Ok((
                            row.get::<Option<String>>(0).unwrap(),
                            row.get::<String>(1).unwrap(),
                        ))
                    }
                    Err(error) => Err(error.sql_state().map(str::to_owned)),
                });
            }
            assert!(
                seen[0] == seen[1] && seen[1] == seen[2],
                "{value:?} as {kind}: {seen:?}"
            );
            assert!(!client.connection.is_broken(), "{value:?} as {kind}");
        }
    }
}

#[tokio::test]
async fn as_many_parameters_as_there_can_be_and_one_more() {
    let mut client = Client::new().await;
    let sum = |many: usize| {
        let places: Vec<_> = (1..=many).map(|n| format!("(${n}::int)")).collect();
        format!("SELECT sum(n) FROM (VALUES {}) AS v (n)", places.join(","))
    };
    for many in [10_000, 65_535] {
        let params: Vec<_> = (0..many).map(|_| Param::Value(Value::Int(1))).collect();
        for _ in 0..2 {
            let expected = Value::Int(i64::try_from(many).unwrap());
            assert_eq!(client.value(&sum(many), &params).await, expected);
        }
    }
    let params: Vec<_> = (0..65_536).map(|_| Param::Value(Value::Int(1))).collect();
    let error = client.run(&sum(2), &params).await.unwrap_err();
    assert_eq!(error.kind(), cenote::Kind::Parameters, "{error}");
    assert_eq!(client.get::<i32>("SELECT 7").await, 7);
}
