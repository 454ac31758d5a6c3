//! Types of PostgreSQL: one value has one type by every way, and reaches the types of a program whole.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::net::IpAddr;

use cenote::postgres::postgres_types::{Kind as TypeKind, Type};
use cenote::postgres::{FromSql, column_type};
use cenote::{Builder, CallOptions, Db, Json, Kind, Row, list, named};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde::Deserialize;

use crate::samples::case;
use crate::servers::client::own_schema;
use crate::servers::dsn;

const TYPES: &str = "
    CREATE TYPE mood AS ENUM ('sad', 'it''s ok', 'a,b');
    CREATE DOMAIN small AS int4 CHECK (VALUE < 100);
    CREATE TYPE pair AS (a int4, b text);
    CREATE TYPE nest AS (p pair, l int4[], d timestamptz);
    CREATE DOMAIN ints AS int4[];
    CREATE TYPE moodrange AS RANGE (subtype = mood);
    CREATE TYPE colon;
    CREATE FUNCTION colon_in(cstring) RETURNS colon LANGUAGE internal IMMUTABLE STRICT AS 'textin';
    CREATE FUNCTION colon_out(colon) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'textout';
    CREATE TYPE colon (INPUT = colon_in, OUTPUT = colon_out, LIKE = text, DELIMITER = ':');
    CREATE DOMAIN colons AS colon[];
";

/// Handles on a schema with the types above: one that keeps statements, one that keeps none.
async fn handles() -> (Db, Db) {
    let dsn = own_schema(&dsn()).await;
    let db = open(Db::builder(&dsn)).await;
    db.exec(TYPES, ()).await.unwrap();
    // Another test may create it at the same time.
    let created = "CREATE EXTENSION IF NOT EXISTS hstore SCHEMA pg_catalog";
    let _ = db.exec(created, ()).await;
    (db, open(Db::builder(&dsn).statement_cache(0)).await)
}

async fn open(builder: Builder) -> Db {
    builder.max(2).open().await.unwrap()
}

async fn one(sql: &str) -> Row {
    let db = Db::open(&dsn()).await.unwrap();
    db.query_one(sql, ()).await.unwrap()
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The values and the types of rows. NaN and minus zero are printed as what they are.
fn shown(rows: &[Row]) -> Vec<String> {
    let row = |row: &Row| {
        let types = row.columns().as_slice().iter();
        let types: Vec<_> = types
            .map(|column| (&column.type_name, column_type(column)))
            .collect();
        format!("{row:?} {types:?}")
    };
    rows.iter().map(row).collect()
}

async fn streamed(db: &Db, sql: &str) -> Vec<String> {
    let mut stream = db.stream(sql, ()).await.unwrap();
    let mut rows = Vec::new();
    while let Some(row) = stream.try_next().await.unwrap() {
        rows.push(row);
    }
    shown(&rows)
}

/// Reads the rows of a query by every way there is.
async fn every_way(kept: &Db, unkept: &Db, sql: &str) -> Vec<(&'static str, Vec<String>)> {
    let query = async |db: &Db| shown(&db.query(sql, ()).await.unwrap());
    let mut ways = vec![("the first time", query(kept).await)];
    for _ in 2..=10 {
        ways.push(("again", query(kept).await));
    }
    ways.push(("by a stream", streamed(kept, sql).await));
    ways.push(("without a cache", query(unkept).await));
    ways.push(("by a stream without a cache", streamed(unkept, sql).await));
    let script = format!("SELECT 1; {sql}");
    ways.push((
        "by a script",
        shown(&kept.query(&script, ()).await.unwrap()),
    ));
    for outcomes in [
        kept.run_all(&script, ()).await,
        unkept.run_all(&script, ()).await,
    ] {
        let rows = outcomes.unwrap().pop().unwrap().into_rows();
        ways.push(("among several results", shown(&rows)));
    }
    let uncached = kept.with(CallOptions::new().no_cache());
    ways.push((
        "by a call without a cache",
        shown(&uncached.query(sql, ()).await.unwrap()),
    ));
    let other = format!("{sql} AND true");
    ways.push((
        "by a stream of a new statement",
        streamed(kept, &other).await,
    ));
    for db in [kept, unkept] {
        let in_transaction = db.transaction(async || {
            let stream = streamed(db, &format!("{sql} AND 1 = 1")).await;
            Ok([query(db).await, stream])
        });
        for rows in in_transaction.await.unwrap() {
            ways.push(("in a transaction", rows));
        }
        let connection = db.connection().await.unwrap();
        let prepared = connection.prepare(sql).await.unwrap();
        ways.push(("prepared", shown(&prepared.query(()).await.unwrap())));
    }
    ways
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

#[test]
fn a_value_has_one_type_by_every_way() {
    let runtime = runtime();
    let (kept, unkept) = runtime.block_on(handles());
    let mut runner = TestRunner::new(ProptestConfig::with_cases(200));
    let checked = runner.run(&case(), |(kind, texts)| {
        let literals: Vec<_> = texts.iter().map(|text| literal(text)).collect();
        let rows: Vec<_> = literals
            .iter()
            .map(|text| format!("({text}::{kind})"))
            .collect();
        let pairs: Vec<_> = literals
            .iter()
            .map(|text| format!("[{text}, NULL]"))
            .collect();
        let (rows, literals, pairs) = (rows.join(", "), literals.join(", "), pairs.join(", "));
        let sql = format!(
            "SELECT v, ARRAY[{literals}, NULL]::{kind}[] AS l, ARRAY[{pairs}]::{kind}[] AS ll \
             FROM (VALUES {rows}, (NULL)) AS t(v) WHERE true"
        );
        let ways = runtime.block_on(every_way(&kept, &unkept, &sql));
        let (_, first) = &ways[0];
        for (way, rows) in &ways[1..] {
            prop_assert_eq!(rows, first, "{}: {}", way, sql);
        }
        Ok(())
    });
    checked.unwrap();
}

/// The binary form of a value, whatever its type.
#[derive(Debug, PartialEq)]
struct Binary(Vec<u8>);

impl<'a> FromSql<'a> for Binary {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Binary(raw.to_vec()))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// Types whose text form is not converted.
const TEXT_ONLY: [&str; 6] = ["timetz", "macaddr", "point", "box", "tsvector", "colon"];

#[test]
fn get_sql_gets_the_bytes_that_the_server_sends_in_binary() {
    let runtime = runtime();
    let (db, _) = runtime.block_on(handles());
    let mut runner = TestRunner::new(ProptestConfig::with_cases(400));
    let cases = case().prop_filter("it has no binary form here", |(kind, _)| {
        !TEXT_ONLY.contains(kind) && *kind != "colons"
    });
    let checked = runner.run(&cases, |(kind, texts)| {
        let text = literal(&texts[0]);
        for value in [
            format!("{text}::{kind}"),
            format!("ARRAY[{text}, NULL]::{kind}[]"),
        ] {
            let row = runtime.block_on(async {
                let sql =
                    format!("SELECT typsend::text FROM pg_type WHERE oid = pg_typeof({value})");
                let send: String = db.query_scalar_one(&sql, ()).await.unwrap();
                db.query_one(
                    &format!("SELECT v, {send}(v) FROM (SELECT {value}) AS t(v)"),
                    (),
                )
                .await
                .unwrap()
            });
            let sent: Vec<u8> = row.get(1).unwrap();
            prop_assert_eq!(row.get_sql::<Binary>(0).unwrap(), Binary(sent), "{}", value);
        }
        Ok(())
    });
    checked.unwrap();
}

#[tokio::test]
async fn a_type_without_a_binary_form_is_refused_with_the_remedy() {
    let row = one("SELECT '(1,2)'::point AS at, 7 AS n, NULL::int4 AS none").await;
    let error = row.get_sql::<Binary>("at").unwrap_err();
    assert_eq!(error.kind(), Kind::Type);
    assert!(
        error
            .message()
            .starts_with("column `at`: found point as text"),
        "{error}"
    );
    assert!(error.message().ends_with("use String or cast"), "{error}");
    let error = row.get_sql::<String>("n").unwrap_err();
    assert_eq!(
        error.message(),
        "column `n`: found int4, wanted alloc::string::String: use a type that accepts it, or cast"
    );
    assert_eq!(row.get_sql::<Option<i32>>("none").unwrap(), None);
    assert!(
        row.get_sql::<i32>("none")
            .unwrap_err()
            .message()
            .contains("an Option takes NULL")
    );
    assert_eq!(row.get_sql::<i32>("x").unwrap_err().kind(), Kind::Column);
}

/// An enum of an application, as `#[derive(FromSql)]` reads it.
#[derive(Debug, PartialEq, Deserialize)]
enum Mood {
    #[serde(rename = "sad")]
    Sad,
    #[serde(rename = "it's ok")]
    Ok,
}

impl<'a> FromSql<'a> for Mood {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        match raw {
            b"sad" => Ok(Mood::Sad),
            b"it's ok" => Ok(Mood::Ok),
            _ => Err("no mood".into()),
        }
    }

    fn accepts(kind: &Type) -> bool {
        kind.name() == "mood" && matches!(kind.kind(), TypeKind::Enum(_))
    }
}

#[tokio::test]
async fn types_of_the_application_are_read_from_the_first_time_on() {
    let (db, unkept) = handles().await;
    let sql = "SELECT 'sad'::mood AS mood, ARRAY['it''s ok', NULL]::mood[] AS moods, \
               'a=>1, b=>NULL'::hstore AS attributes, '10.0.0.1'::inet AS host, \
               '1 day 02:00'::interval AS pause, ROW(1, 'x')::pair AS pair, '[1,5)'::int4range AS range";
    for db in [&db, &db, &unkept] {
        let row = db.query_one(sql, ()).await.unwrap();
        assert_eq!(row.get_sql::<Mood>("mood").unwrap(), Mood::Sad);
        assert_eq!(
            row.get_sql::<Vec<Option<Mood>>>("moods").unwrap(),
            [Some(Mood::Ok), None]
        );
        assert_eq!(
            row.get::<Vec<Option<&str>>>("moods").unwrap(),
            [Some("it's ok"), None]
        );
        let (moods,): (Vec<Option<Mood>>,) = db
            .query_as_one("SELECT ARRAY['sad', NULL]::mood[]", ())
            .await
            .unwrap();
        assert_eq!(moods, [Some(Mood::Sad), None]);
        let attributes: HashMap<String, Option<String>> = row.get_sql("attributes").unwrap();
        assert_eq!(attributes["a"].as_deref(), Some("1"));
        assert_eq!(attributes["b"], None);
        let host: IpAddr = "10.0.0.1".parse().unwrap();
        assert_eq!(row.get::<IpAddr>("host").unwrap(), host);
        assert_eq!(row.get_sql::<IpAddr>("host").unwrap(), host);
        assert_eq!(row.get::<&str>("pause").unwrap(), "1 day 02:00:00");
        assert_eq!(row.get::<&str>("pair").unwrap(), "(1,x)");
        assert_eq!(row.get::<&str>("range").unwrap(), "[1,5)");
        let raw = row.raw("mood").unwrap().unwrap();
        assert_eq!(
            (raw.bytes, raw.column.type_name.as_deref()),
            (&b"sad"[..], Some("mood"))
        );
        assert!(
            matches!(column_type(raw.column).kind(), TypeKind::Enum(labels) if labels.len() == 3)
        );
    }
}

#[tokio::test]
async fn an_array_is_a_vector_of_any_depth_and_delimiter() {
    let (db, _) = handles().await;
    let sql = "SELECT ARRAY[[1, 2], [3, NULL]] AS matrix, '{}'::text[] AS none, \
               ARRAY['(2,2),(0,0)', '(4,3),(1,1)']::box[] AS boxes, '{a:b,c:NULL}'::colon[] AS colons, \
               ARRAY['{a:b}']::colons[] AS nested, ARRAY['\\x00ff'::bytea] AS blobs, \
               ARRAY['{\"a\": 1}'::jsonb] AS documents";
    for _ in 0..2 {
        let row = db.query_one(sql, ()).await.unwrap();
        assert_eq!(
            row.get::<Vec<Vec<Option<i32>>>>("matrix").unwrap(),
            [[Some(1), Some(2)], [Some(3), None]]
        );
        assert_eq!(
            row.get::<[[Option<i64>; 2]; 2]>("matrix").unwrap(),
            [[Some(1), Some(2)], [Some(3), None]]
        );
        assert!(row.get::<Vec<String>>("none").unwrap().is_empty());
        assert_eq!(
            row.get::<Vec<&str>>("boxes").unwrap(),
            ["(2,2),(0,0)", "(4,3),(1,1)"]
        );
        assert_eq!(
            row.get::<Vec<Option<&str>>>("colons").unwrap(),
            [Some("a"), Some("b,c"), None]
        );
        assert_eq!(row.get::<Vec<Vec<String>>>("nested").unwrap(), [["a", "b"]]);
        assert_eq!(row.get::<Vec<Vec<u8>>>("blobs").unwrap(), [[0, 255]]);
        let [Json(document)]: [Json<HashMap<String, i32>>; 1] = row.get("documents").unwrap();
        assert_eq!(document["a"], 1);
        let error = row.get::<Vec<i32>>("matrix").unwrap_err();
        assert_eq!(
            error.message(),
            "column `matrix`: element 1: found array, wanted i32: use Vec<T> or cast"
        );
        let error = row.get::<Vec<&str>>("colons").unwrap_err();
        assert_eq!(
            error.message(),
            "column `colons`: element 3: found NULL, wanted &str; an Option takes NULL"
        );
    }
}

#[tokio::test]
async fn query_scalar_reads_the_value_and_query_as_the_row() {
    let db = Db::open(&dsn()).await.unwrap();
    let tags = "SELECT ARRAY['admin', 'ops']";
    let document = "SELECT '{\"a\": [1]}'::jsonb AS d";
    let blob = "SELECT '\\x00ff'::bytea AS b";
    for _ in 0..2 {
        assert_eq!(
            db.query_scalar_one::<Vec<String>>(tags, ()).await.unwrap(),
            ["admin", "ops"]
        );
        let json: serde_json::Value = db.query_scalar_one(document, ()).await.unwrap();
        assert_eq!(json, serde_json::json!({ "a": [1] }));
        assert_eq!(
            db.query_scalar_one::<Vec<u8>>(blob, ()).await.unwrap(),
            [0, 255]
        );
        for error in [
            db.query_as::<Vec<String>>(tags, ()).await.unwrap_err(),
            db.query_as::<serde_json::Value>(document, ())
                .await
                .unwrap_err(),
            db.query_as::<Vec<u8>>(blob, ()).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), Kind::Column);
            assert!(error.message().contains("query_scalar"), "{error}");
        }
        let map: HashMap<String, HashMap<String, Vec<i32>>> =
            db.query_as_one(document, ()).await.unwrap();
        assert_eq!(map["d"]["a"], [1]);
    }
    let missing = db.query_scalar_opt::<i32>("SELECT 1 WHERE false", ()).await;
    assert_eq!(missing.unwrap(), None);
    let null = db
        .query_scalar_opt::<Option<i32>>("SELECT NULL::int4", ())
        .await;
    assert_eq!(null.unwrap(), Some(None));
    let all = db
        .query_scalar::<i32>("SELECT generate_series(1, 3)", ())
        .await;
    assert_eq!(all.unwrap(), [1, 2, 3]);
    let two = db.query_scalar::<i32>("SELECT 1, 2", ()).await.unwrap_err();
    assert_eq!(two.message(), "the row has 2 columns, wanted 1 value");
}

#[tokio::test]
async fn vectors_are_one_array_and_a_list_is_many_placeholders() {
    let db = Db::open(&dsn()).await.unwrap();
    let ids = vec![2_i64, 3, 5];
    let names = ["a\"b", "c\\d", "", "NULL", "e,f{}"];
    for _ in 0..2 {
        let any = "SELECT n FROM generate_series(1, 6) AS n WHERE n = ANY(?) ORDER BY n";
        assert_eq!(db.query_scalar::<i64>(any, (&ids,)).await.unwrap(), ids);
        let any = "SELECT n FROM generate_series(1, 6) AS n WHERE n = ANY(:ids) ORDER BY n";
        assert_eq!(
            db.query_scalar::<i64>(any, named! { ids: ids.clone() })
                .await
                .unwrap(),
            ids
        );
        let both: Vec<String> = db
            .query_scalar_one("SELECT ?::text[]", (&names[..],))
            .await
            .unwrap();
        assert_eq!(both, names);
        let blobs: Vec<Vec<u8>> = db
            .query_scalar_one("SELECT ?::bytea[]", (vec![vec![0_u8, 255], vec![]],))
            .await
            .unwrap();
        assert_eq!(blobs, [vec![0, 255], vec![]]);
        let matrix: Vec<Vec<Option<f64>>> = db
            .query_scalar_one("SELECT ?::float8[]", ([[Some(0.5), None]],))
            .await
            .unwrap();
        assert_eq!(matrix, [[Some(0.5), None]]);
        let bytes: Vec<u8> = db
            .query_scalar_one("SELECT ?::bytea", (vec![1_u8, 2],))
            .await
            .unwrap();
        assert_eq!(bytes, [1, 2]);
        let sql =
            "SELECT n FROM generate_series(1, 6) AS n WHERE n IN (:ids) AND n > :min ORDER BY n";
        let found: Vec<i64> = db
            .query_scalar(sql, named! { min: 2, ids: list(&ids) })
            .await
            .unwrap();
        assert_eq!(found, [3, 5]);
    }
    let sum: i64 = db
        .query_scalar_one("SELECT ?::int8 + ?::int8", [20_i64, 22])
        .await
        .unwrap();
    assert_eq!(sum, 42, "an outer array is the list of parameters");
}

#[tokio::test]
async fn parameter_used_twice_stays_one_beside_a_list() {
    let db = Db::open(&dsn()).await.unwrap();
    let sql = "SELECT n + :step FROM generate_series(1, 6) AS n \
               WHERE n IN (:ids) AND (n > :least OR :least IS NULL) GROUP BY n + :step ORDER BY 1";
    let params = named! { step: 10_i64, ids: list([1, 2, 3]), least: Some(1_i64) };
    let found: Vec<i64> = db.query_scalar(sql, params).await.unwrap();
    assert_eq!(found, [12, 13]);
}

#[tokio::test]
async fn a_bare_value_is_one_parameter() {
    let db = Db::open(&dsn()).await.unwrap();
    for _ in 0..2 {
        assert_eq!(
            db.query_scalar_one::<i64>("SELECT ?::int8", 7)
                .await
                .unwrap(),
            7
        );
        assert_eq!(
            db.query_scalar_one::<String>("SELECT ?::text", "ada")
                .await
                .unwrap(),
            "ada"
        );
        let name = String::from("ada");
        assert_eq!(
            db.query_scalar_one::<String>("SELECT ?::text", &name)
                .await
                .unwrap(),
            "ada"
        );
        assert_eq!(
            db.query_scalar_one::<Option<i64>>("SELECT ?::int8", None::<i64>)
                .await
                .unwrap(),
            None
        );
        let uuid = uuid::Uuid::from_u128(7);
        let row = db.query_one("SELECT ?::uuid", uuid).await.unwrap();
        assert_eq!(row.get::<uuid::Uuid>(0).unwrap(), uuid);
        let day = chrono::NaiveDate::from_ymd_opt(2024, 2, 29);
        let row = db.query_one("SELECT ?::date", day).await.unwrap();
        assert_eq!(row.get::<Option<chrono::NaiveDate>>(0).unwrap(), day);
    }
}

#[tokio::test]
async fn messages_say_what_to_write() {
    let db = Db::open(&dsn()).await.unwrap();
    let error = db
        .query("SELECT '{\"a\": 1}'::jsonb ? 'a'", ())
        .await
        .unwrap_err();
    assert_eq!(
        error.message(),
        "the SQL has 1 placeholder and no value was given; write ?? for the operator"
    );
    assert!(
        db.query_scalar_one::<bool>("SELECT '{\"a\": 1}'::jsonb ?? ?", "a")
            .await
            .unwrap()
    );
    let name = 1;
    let error = db
        .query("SELECT :name::int", named! { nmae: name })
        .await
        .unwrap_err();
    assert_eq!(
        error.message(),
        "the SQL has no placeholder :nmae; :name has no value, did you mean that?"
    );
    let row = one("SELECT '2024-02-29 09:05+00'::timestamptz AS at").await;
    let error = row.get::<chrono::NaiveDateTime>("at").unwrap_err();
    assert_eq!(
        error.message(),
        "column `at`: found timestamptz, wanted NaiveDateTime: use DateTime<Utc> or cast"
    );
    let error = db
        .query("SELECT 1 WHERE 1 IN (?)", (list(Vec::<i64>::new()),))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Parameters);
    assert!(
        error
            .message()
            .starts_with("the list for the placeholder ? is empty"),
        "{error}"
    );
}

#[tokio::test]
async fn a_position_after_a_list_is_that_of_the_callers_text() {
    let db = Db::open(&dsn()).await.unwrap();
    let sql = "SELECT 1 WHERE 1 IN (:ids) AND ä.x = :y";
    let params = named! { ids: list([1, 2, 3]), y: 1 };
    let error = db.query(sql, params).await.unwrap_err();
    let expected = sql.chars().position(|letter| letter == 'ä').unwrap() + 1;
    assert_eq!(error.position(), Some(expected), "{error}");
}
