//! What PostgreSQL's types are in rows and as parameters: the same the first time, when everything
//! goes as text, as every other time.

use cenote::driver::{Param, Value};
use cenote::postgres::postgres_types::private::BytesMut;
use cenote::postgres::postgres_types::{IsNull, Kind as TypeKind, Type};
use cenote::postgres::{ToSql, param, postgres_types};
use cenote::{Date, DateTime, Kind, Time};

use crate::servers::client::{Client, value};

fn text(text: &str) -> Value<'static> {
    Value::Text(text.to_owned().into())
}

fn json(text: &str) -> Value<'static> {
    Value::Json(text.to_owned().into())
}

fn array<const N: usize>(elements: [Value<'static>; N]) -> Value<'static> {
    Value::Array(elements.into())
}

fn decimal(text: &str) -> Value<'static> {
    Value::Decimal(text.to_owned().into())
}

fn moment(text: &str) -> DateTime {
    text.parse().expect("it is a moment")
}

/// As a new statement, as a kept one, without parameters and as a script.
async fn check(client: &mut Client, sql: &str, expected: &Value<'static>) {
    for time in ["first", "second", "third"] {
        let got = client.value(sql, &[]).await;
        assert!(
            same(&got, expected),
            "{sql}, {time}: {got:?} is not {expected:?}"
        );
    }
    let rows = client.script_rows(sql).await;
    let got = rows[0].value(0).expect("it can be read");
    assert!(
        same(&got, expected),
        "{sql} as a script: {got:?} is not {expected:?}"
    );
}

fn same(one: &Value<'_>, other: &Value<'_>) -> bool {
    match (one, other) {
        (Value::Float(one), Value::Float(other)) => {
            one.to_bits() == other.to_bits() || (one.is_nan() && other.is_nan())
        }
        _ => one == other,
    }
}

#[tokio::test]
async fn every_type_has_the_same_value_in_text_and_binary() {
    let mut client = Client::in_own_schema().await;
    client.script("CREATE TYPE mood AS ENUM ('sad', 'it''s ok'); CREATE DOMAIN small AS int CHECK (VALUE < 100); CREATE TYPE pair AS (a int, b text)").await.unwrap();
    let uuid = *b"\x67\xe5\x50\x44\x10\xb1\x42\x6f\x92\x47\xbb\x68\x0e\x5f\xe0\xc8";
    let date = |year, month, day| Value::Date(Date::new(year, month, day).unwrap());
    for (sql, expected) in [
        ("true", Value::Bool(true)),
        ("false", Value::Bool(false)),
        ("NULL::int", Value::Null),
        ("(-32768)::int2", Value::Int(-32768)),
        ("2147483647::int4", Value::Int(2_147_483_647)),
        ("(-9223372036854775808)::int8", Value::Int(i64::MIN)),
        ("4294967295::oid", Value::Int(4_294_967_295)),
        ("0.1::float8", Value::Float(0.1)),
        ("0.1::float4", Value::Float(f64::from(0.1_f32))),
        ("'NaN'::float8", Value::Float(f64::NAN)),
        ("'-Infinity'::float8", Value::Float(f64::NEG_INFINITY)),
        ("'1e-300'::float8", Value::Float(1e-300)),
        ("12.50::numeric(10, 2)", decimal("12.50")),
        ("'NaN'::numeric", Value::Float(f64::NAN)),
        (
            "123456789012345678901234567890.5",
            decimal("123456789012345678901234567890.5"),
        ),
        ("'text'::text", text("text")),
        ("'grün 🦀'::varchar(20)", text("grün 🦀")),
        ("'ab'::char(4)", text("ab  ")),
        ("'x'::\"char\"", text("x")),
        ("'name'::name", text("name")),
        ("''::text", text("")),
        ("'\\x00ff5c'::bytea", Value::Bytes(vec![0, 255, 92].into())),
        ("''::bytea", Value::Bytes(vec![].into())),
        ("'2024-02-29'::date", date(2024, 2, 29)),
        ("'0044-03-15 BC'::date", date(-43, 3, 15)),
        ("'10000-01-01'::date", date(10_000, 1, 1)),
        ("'infinity'::date", text("infinity")),
        (
            "'09:05:00.25'::time",
            Value::Time(Time::new(9, 5, 0, 250_000_000).unwrap()),
        ),
        ("'24:00'::time", text("24:00:00")),
        (
            "'2024-02-29 09:05:00.000001'::timestamp",
            Value::DateTime(moment("2024-02-29T09:05:00.000001")),
        ),
        (
            "'1999-12-31 23:59:59.5'::timestamp",
            Value::DateTime(moment("1999-12-31T23:59:59.5")),
        ),
        ("'-infinity'::timestamp", text("-infinity")),
        (
            "'2024-02-29 09:05:00+02'::timestamptz",
            Value::Timestamp(moment("2024-02-29T07:05:00")),
        ),
        (
            "'1891-01-01 00:00:00+00'::timestamptz",
            Value::Timestamp(moment("1891-01-01T00:00:00")),
        ),
        (
            "'0001-01-01 00:00:00+00 BC'::timestamptz",
            Value::Timestamp(DateTime::new(Date::new(0, 1, 1).unwrap(), Time::default())),
        ),
        (
            "'67e55044-10b1-426f-9247-bb680e5fe0c8'::uuid",
            Value::Uuid(uuid),
        ),
        ("'{\"a\": [1, null]}'::json", json("{\"a\": [1, null]}")),
        ("'{\"a\":1}'::jsonb", json("{\"a\": 1}")),
        (
            "ARRAY[1, NULL, 3]",
            array([1.into(), Value::Null, 3.into()]),
        ),
        (
            "ARRAY[[1, 2], [3, 4]]",
            array([array([1.into(), 2.into()]), array([3.into(), 4.into()])]),
        ),
        ("'[0:1]={1,2}'::int[]", array([1.into(), 2.into()])),
        ("'{}'::int[]", array([])),
        ("ARRAY[true, false]", array([true.into(), false.into()])),
        (
            "ARRAY[1.50, 2]::numeric[]",
            array([decimal("1.50"), decimal("2")]),
        ),
        (
            "ARRAY['a', 'b \"c\" \\ d', NULL, 'NULL', '', E'\\n']",
            array([
                text("a"),
                text("b \"c\" \\ d"),
                Value::Null,
                text("NULL"),
                text(""),
                text("\n"),
            ]),
        ),
        (
            "ARRAY['{\"a\":1}', '2']::jsonb[]",
            array([json("{\"a\": 1}"), json("2")]),
        ),
        ("ARRAY['2024-02-29'::date]", array([date(2024, 2, 29)])),
        ("'sad'::mood", text("sad")),
        ("'it''s ok'::mood", text("it's ok")),
        ("42::small", Value::Int(42)),
        ("ROW(1, 'x')::pair", text("(1,x)")),
        ("'1 day 02:00'::interval", text("1 day 02:00:00")),
        ("'[1,5)'::int4range", text("[1,5)")),
        ("'127.0.0.1/8'::inet", text("127.0.0.1/8")),
        ("B'101'", text("101")),
        ("'<a/>'::xml", text("<a/>")),
        ("'a b'::tsvector", text("'a' 'b'")),
        ("pg_catalog.pg_sleep(0)", text("")),
        ("'2 1'::int2vector", text("2 1")),
        // The server has no binary form for this one.
        ("'cenote=r/cenote'::aclitem", text("cenote=r/cenote")),
    ] {
        check(&mut client, &format!("SELECT {sql}"), &expected).await;
    }
}

#[tokio::test]
async fn settings_that_change_how_values_are_written_keep_the_values() {
    let mut client = Client::new().await;
    client.script("SET bytea_output = 'escape'; SET timezone = 'Asia/Kolkata'; SET extra_float_digits = 3; SET intervalstyle = 'iso_8601'").await.unwrap();
    let bytes: Vec<u8> = (0..=255).collect();
    let escaped: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    check(
        &mut client,
        &format!("SELECT '\\x{escaped}'::bytea"),
        &Value::Bytes(bytes.into()),
    )
    .await;
    let sql = "SELECT '2024-02-29 09:05:00+02'::timestamptz";
    check(
        &mut client,
        sql,
        &Value::Timestamp(moment("2024-02-29T07:05:00")),
    )
    .await;
    client
        .script("SET timezone = 'America/St_Johns'")
        .await
        .unwrap();
    let sql = "SELECT '1900-02-28 09:05:00+00'::timestamptz";
    check(
        &mut client,
        sql,
        &Value::Timestamp(moment("1900-02-28T09:05:00")),
    )
    .await;
}

#[tokio::test]
async fn columns_have_names_and_types() {
    let mut client = Client::new().await;
    for _ in 0..2 {
        let done = client
            .must("SELECT 1 AS one, 'x'::text AS two, now() AS three")
            .await;
        let rows = done.rows.unwrap();
        let columns = rows.columns().as_slice();
        let names: Vec<_> = columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names, ["one", "two", "three"]);
        let types: Vec<_> = columns
            .iter()
            .map(|column| column.type_name.as_deref())
            .collect();
        assert_eq!(types, [Some("int4"), Some("text"), Some("timestamptz")]);
        assert_eq!(columns[0].type_id, 23);
    }
}

/// Declaring types by what the caller has would break these.
#[tokio::test]
async fn the_servers_own_rules_decide_what_a_parameter_is() {
    let mut client = Client::in_own_schema().await;
    client.must("CREATE TABLE t (at timestamp, n numeric, small int2, flag bool, doc jsonb, tag text, amount float4)").await;
    for _ in 0..3 {
        let sql = "SELECT make_date($1, $2, $3)";
        let params = [value(2024), value(2), value(29)];
        let date = client.value(sql, &params).await;
        assert_eq!(date, Value::Date(Date::new(2024, 2, 29).unwrap()));
        let insert = "INSERT INTO t VALUES ($1, $2, $3, $4, $5, $6, $7)";
        let params = [
            value("2024-02-29 09:05"),
            value(7),
            value(5),
            value("yes"),
            value("{\"a\": 1}"),
            value(42),
            value(0.5),
        ];
        client.run(insert, &params).await.unwrap();
        let rows = client
            .rows("SELECT at, n, small, flag, doc, tag, amount FROM t", &[])
            .await;
        let row = rows.last().unwrap();
        assert_eq!(
            row.value(0).unwrap(),
            Value::DateTime(moment("2024-02-29T09:05:00"))
        );
        assert_eq!(row.value(1).unwrap(), decimal("7"));
        assert_eq!(row.get::<i16>(2).unwrap(), 5);
        assert!(row.get::<bool>(3).unwrap());
        assert_eq!(row.value(4).unwrap(), json("{\"a\": 1}"));
        assert_eq!(row.get::<&str>(5).unwrap(), "42");
        assert_eq!(row.get::<f32>(6).unwrap(), 0.5);
        let untyped = client.value("SELECT $1", &[value(5)]).await;
        assert_eq!(untyped, text("5"), "what nobody says a type of is text");
    }
}

#[tokio::test]
async fn number_out_of_range_is_refused_by_the_server_and_unchanged() {
    let mut client = Client::new().await;
    for _ in 0..2 {
        for (sql, number) in [
            ("SELECT $1::int2", 32_768_i64),
            ("SELECT $1::int4", 1_i64 << 40),
        ] {
            let error = client.run(sql, &[value(number)]).await.unwrap_err();
            assert_eq!(error.sql_state(), Some("22003"), "{error}");
        }
        let error = client.run("SELECT $1::int8", &[value(u64::MAX)]).await;
        assert_eq!(error.unwrap_err().sql_state(), Some("22003"));
        client.run("SELECT $1::int2", &[value(1)]).await.unwrap();
        client.run("SELECT $1::int4", &[value(1)]).await.unwrap();
        client.run("SELECT $1::int8", &[value(1)]).await.unwrap();
    }
}

#[tokio::test]
async fn moments_at_the_edges_go_there_and_back() {
    let mut client = Client::new().await;
    for text in [
        "0001-01-01T00:00:00",
        "9999-12-31T23:59:59.999999",
        "1969-12-31T23:59:59.5",
    ] {
        for _ in 0..2 {
            let sent = moment(text);
            let got = client
                .value("SELECT $1::timestamp", &[value(Value::DateTime(sent))])
                .await;
            assert_eq!(got, Value::DateTime(sent));
            let got = client
                .value("SELECT $1::timestamptz", &[value(Value::Timestamp(sent))])
                .await;
            assert_eq!(got, Value::Timestamp(sent));
            let got = client
                .value("SELECT $1::date", &[value(Value::Date(sent.date))])
                .await;
            assert_eq!(got, Value::Date(sent.date));
        }
    }
    for year in [-4000, 0, 20_000] {
        let date = Date::new(year, 3, 1).unwrap();
        for _ in 0..2 {
            let got = client
                .value("SELECT $1::date", &[value(Value::Date(date))])
                .await;
            assert_eq!(got, Value::Date(date));
            let sent = DateTime::new(date, Time::new(1, 2, 3, 0).unwrap());
            let got = client
                .value("SELECT $1::timestamptz", &[value(Value::Timestamp(sent))])
                .await;
            assert_eq!(got, Value::Timestamp(sent));
        }
    }
    // Below a microsecond PostgreSQL keeps nothing; what is cut off makes no new day.
    let late = Time::new(23, 59, 59, 999_999_999).unwrap();
    for _ in 0..2 {
        let got = client
            .value("SELECT $1::time", &[value(Value::Time(late))])
            .await;
        assert_eq!(
            got,
            Value::Time(Time::new(23, 59, 59, 999_999_000).unwrap())
        );
    }
}

/// A type of an application's own, for an enum of its own.
#[derive(Debug)]
enum Mood {
    Sad,
}

impl ToSql for Mood {
    fn to_sql(
        &self,
        _wanted: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        let Mood::Sad = self;
        out.extend_from_slice(b"sad");
        Ok(IsNull::No)
    }

    fn accepts(wanted: &Type) -> bool {
        wanted.name() == "mood"
            && matches!(wanted.kind(), TypeKind::Enum(labels) if labels[0] == "sad")
    }

    postgres_types::to_sql_checked!();
}

#[tokio::test]
async fn native_parameters_are_whatever_postgres_types_can_write() {
    let mut client = Client::in_own_schema().await;
    client.must("CREATE TYPE mood AS ENUM ('sad', 'ok')").await;
    for _ in 0..2 {
        let params: [Param<'_>; 1] = [Param::Native(param(vec!["a", "b"]))];
        let got = client.value("SELECT $1::text[]", &params).await;
        assert_eq!(got, array([text("a"), text("b")]));
        let params = [Param::Native(param(Mood::Sad)), value(3)];
        let rows = client.rows("SELECT $1::mood, $2::int", &params).await;
        assert_eq!(rows[0].get::<&str>(0).unwrap(), "sad");
        assert_eq!(rows[0].get::<i32>(1).unwrap(), 3);
        let params = [Param::Native(param(vec![Mood::Sad]))];
        let got = client.value("SELECT ($1::mood[])[1]", &params).await;
        assert_eq!(got, text("sad"));
        let params = [Param::Native(param(None::<i32>))];
        assert_eq!(client.value("SELECT $1::int", &params).await, Value::Null);
    }
    let params = [Param::Native(param(1_i32))];
    let error = client.run("SELECT $1::text", &params).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Type, "{error}");
    assert!(error.message().contains("parameter 1"), "{error}");
    let params = [Param::Native(cenote::native(1_i32))];
    let error = client.run("SELECT $1::int", &params).await.unwrap_err();
    assert!(
        error.message().contains("i32") && error.message().contains("postgres::param"),
        "{error}"
    );
    assert_eq!(client.get::<i32>("SELECT 1").await, 1);
}

#[tokio::test]
async fn types_are_looked_up_once_and_for_all_connections_of_a_handle() {
    use cenote::driver::{Driver, Dsn, Options};
    let dsn = crate::servers::client::own_schema(&crate::servers::dsn()).await;
    let dsn = Dsn::parse(&dsn).unwrap();
    let template = cenote::postgres::Postgres::new()
        .template(&dsn, &Options::new())
        .unwrap();
    let mut first = Client {
        connection: crate::servers::client::connect_to(&*template, &dsn, 0)
            .await
            .unwrap(),
    };
    first.must("CREATE TYPE mood AS ENUM ('sad', 'ok')").await;
    let mut second = Client {
        connection: crate::servers::client::connect_to(&*template, &dsn, 0)
            .await
            .unwrap(),
    };
    let mut trips = Vec::new();
    for client in [&mut first, &mut second] {
        let before = client.round_trips();
        let params = [Param::Native(param(Mood::Sad))];
        client.run("SELECT $1::mood", &params).await.unwrap();
        trips.push(client.round_trips() - before);
    }
    assert!(trips[0] > 2, "it was looked up: {trips:?}");
    assert_eq!(trips[1], 2, "it was known: {trips:?}");
}

/// The first time their types have to be looked up, which nobody notices but by the round trips.
#[tokio::test]
async fn arrays_and_domains_of_application_types_work_the_first_time() {
    let mut client = Client::in_own_schema().await;
    client
        .script(
            "CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE DOMAIN small AS int; \
             CREATE TYPE pair AS (a int, b text)",
        )
        .await
        .unwrap();
    let sql = "SELECT ARRAY['ok', NULL, 'sad']::mood[], ARRAY[1, 2]::small[], \
               ARRAY[ROW(1, 'x')::pair], 'ok'::mood, 7";
    for time in 0..3 {
        let rows = client.rows(sql, &[]).await;
        let row = &rows[0];
        assert_eq!(
            row.value(0).unwrap(),
            array([text("ok"), Value::Null, text("sad")]),
            "{time}"
        );
        assert_eq!(row.value(1).unwrap(), array([1.into(), 2.into()]), "{time}");
        assert_eq!(row.value(2).unwrap(), array([text("(1,x)")]), "{time}");
        assert_eq!(row.value(3).unwrap(), text("ok"), "{time}");
        assert_eq!(row.value(4).unwrap(), Value::Int(7), "{time}");
        let types: Vec<_> = row
            .columns()
            .as_slice()
            .iter()
            .map(|it| it.type_name.clone())
            .collect();
        assert_eq!(types[3].as_deref(), Some("mood"), "{time}");
    }
    let rows = client
        .script_rows("SELECT 1; SELECT ARRAY['ok']::mood[]")
        .await;
    assert_eq!(rows[0].value(0).unwrap(), array([text("ok")]));
    let before = client.round_trips();
    client.rows(sql, &[]).await;
    client.rows("SELECT 'sad'::mood", &[]).await;
    assert_eq!(
        client.round_trips() - before,
        2,
        "what is known is not looked up"
    );
}

#[tokio::test]
async fn an_array_is_a_sequence_to_serde() {
    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Order {
        id: i64,
        tags: Vec<String>,
        amounts: Vec<Option<i32>>,
    }
    let db = cenote::Db::open(&crate::servers::dsn()).await.unwrap();
    let sql = "SELECT 7 AS id, ARRAY['new', 'it''s \"big\"'] AS tags, ARRAY[1, NULL] AS amounts";
    for _ in 0..2 {
        let orders: Vec<Order> = db.query_as(sql, ()).await.unwrap();
        let expected = Order {
            id: 7,
            tags: vec!["new".into(), "it's \"big\"".into()],
            amounts: vec![Some(1), None],
        };
        assert_eq!(orders, [expected]);
    }
}
