//! H0b: a kept statement means what its text means now, in the session that runs it.
//!
//! PostgreSQL resolves literals and names when it parses. All handles here have one connection, so that
//! every call meets the statements that the calls before it have left there.

use bytes::BytesMut;
use cenote::driver::{Param, Request, Value};
use cenote::postgres::param;
use cenote::postgres::postgres_types::{self, IsNull, Kind as TypeKind, ToSql, Type};
use cenote::{Db, Error, Kind, Result};
use cenote_testkit::poll::drop_after;

use crate::servers::client::{Client, own_schema, value};
use crate::servers::{dsn, own_tables};

/// A setting, another value for it, and a text that it gives another meaning.
const SETTINGS: &[(&str, &str, &str)] = &[
    (
        "TimeZone",
        "Asia/Tokyo",
        "SELECT extract(epoch FROM '2024-01-01 12:00'::timestamptz)::text",
    ),
    (
        "DateStyle",
        "ISO, DMY",
        "SELECT ('02/03/2024'::date - '2024-01-01'::date)::text",
    ),
    (
        "IntervalStyle",
        "sql_standard",
        "SELECT extract(epoch FROM '-1 2:00:00'::interval)::text",
    ),
    ("search_path", "other", "SELECT name::text FROM t"),
    // The server does not report these.
    (
        "transform_null_equals",
        "on",
        "SELECT count(*)::text FROM (VALUES (NULL::int)) v (x) WHERE x = NULL",
    ),
    (
        "array_nulls",
        "off",
        "SELECT (('{NULL}'::text[])[1] IS NULL)::text",
    ),
    (
        "timezone_abbreviations",
        "Australia",
        "SELECT extract(epoch FROM '2024-01-01 12:00 EST'::timestamptz)::text",
    ),
];

async fn handle() -> Db {
    let db = own_tables(|builder| builder.max(1)).await;
    let other = crate::servers::unique("other");
    for sql in [
        "CREATE TABLE t (name text)".to_owned(),
        "INSERT INTO t VALUES ('own')".to_owned(),
        format!("CREATE SCHEMA {other}"),
        format!("CREATE TABLE {other}.t (name text)"),
        format!("INSERT INTO {other}.t VALUES ('other')"),
        format!("CREATE FUNCTION other_schema() RETURNS text IMMUTABLE RETURN '{other}'"),
    ] {
        db.exec(&sql, ()).await.unwrap();
    }
    db
}

async fn get(db: &Db, sql: &str) -> String {
    let got: Result<String> = db.query_as_one(sql, ()).await;
    got.unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// The value, where `other` stands for the schema of that name.
async fn value_of(db: &Db, value: &str) -> String {
    match value {
        "other" => get(db, "SELECT other_schema()").await,
        value => value.to_owned(),
    }
}

fn rolled_back() -> Result<()> {
    Err(Error::new(Kind::Other, "rolled back"))
}

#[tokio::test]
async fn h0b_a_setting_of_a_transaction_stays_in_it() {
    for (name, value, sql) in SETTINGS {
        for kept_before in [true, false] {
            let db = handle().await;
            let value = value_of(&db, value).await;
            let fresh = handle().await;
            let before = get(&fresh, sql).await;
            if kept_before {
                for _ in 0..2 {
                    assert_eq!(get(&db, sql).await, before);
                }
            }
            for set in [
                format!("SET LOCAL {name} = '{value}'"),
                format!("SELECT set_config('{name}', '{value}', true)"),
                format!("SELECT \"set_config\"('{name}', ('{value}'), (true))"),
            ] {
                let done: Result<()> = db
                    .transaction(async || {
                        if kept_before {
                            assert_eq!(get(&db, sql).await, before);
                        }
                        db.exec(&set, ()).await?;
                        let mut inside = String::new();
                        for _ in 0..2 {
                            inside = get(&db, sql).await;
                            assert_ne!(inside, before, "{set}: {sql}");
                        }
                        // A savepoint that is rolled back takes its settings with it.
                        let undone: Result<()> = db
                            .transaction(async || {
                                db.exec(&format!("SET LOCAL {name} TO DEFAULT"), ()).await?;
                                get(&db, sql).await;
                                rolled_back()
                            })
                            .await;
                        undone.unwrap_err();
                        assert_eq!(get(&db, sql).await, inside, "{set}: {sql}");
                        Ok(())
                    })
                    .await;
                done.unwrap();
                for _ in 0..2 {
                    assert_eq!(get(&db, sql).await, before, "{set}: {sql}");
                }
            }
        }
    }
}

#[tokio::test]
async fn h0b_a_setting_ends_where_a_transaction_is_chained() {
    for (name, value, sql) in SETTINGS {
        let db = handle().await;
        let value = value_of(&db, value).await;
        let before = get(&db, sql).await;
        let connection = db.connection().await.unwrap();
        connection.exec("BEGIN", ()).await.unwrap();
        let set = format!("SET LOCAL {name} = '{value}'");
        connection.exec(&set, ()).await.unwrap();
        let inside: String = connection.query_as_one(sql, ()).await.unwrap();
        assert_ne!(inside, before, "{sql}");
        connection.exec("COMMIT AND CHAIN", ()).await.unwrap();
        let chained: String = connection.query_as_one(sql, ()).await.unwrap();
        assert_eq!(chained, before, "{sql}");
        connection.exec("COMMIT", ()).await.unwrap();
    }
}

#[tokio::test]
async fn h0b_a_setting_of_a_scope_ends_with_it() {
    for (name, value, sql) in SETTINGS {
        for kept_before in [true, false] {
            let db = handle().await;
            let value = value_of(&db, value).await;
            let fresh = handle().await;
            let before = get(&fresh, sql).await;
            if kept_before {
                assert_eq!(get(&db, sql).await, before);
            }
            for set in [
                format!("SET {name} = '{value}'"),
                format!("SELECT set_config('{name}', '{value}', false)"),
                format!("DO $$ BEGIN PERFORM set_config('{name}', '{value}', false); END $$"),
            ] {
                let inner = db.clone();
                let inside = cenote::scope(async move {
                    inner.exec(&set, ()).await.unwrap();
                    let inside = get(&inner, sql).await;
                    assert_eq!(get(&inner, sql).await, inside);
                    // Each change counts, not only the first.
                    inner.exec(&format!("RESET {name}"), ()).await.unwrap();
                    let reset = get(&inner, sql).await;
                    inner.exec(&set, ()).await.unwrap();
                    assert_eq!(get(&inner, sql).await, inside);
                    (inside, reset)
                })
                .await;
                assert_eq!(inside.1, before, "{name}");
                assert_ne!(inside.0, before, "{name}");
                for _ in 0..2 {
                    assert_eq!(get(&db, sql).await, before, "{name}");
                }
            }
        }
    }
}

#[tokio::test]
async fn h0b_a_function_that_sets_something_reported_is_noticed() {
    let db = handle().await;
    let (_, _, sql) = SETTINGS[0];
    let before = get(&db, sql).await;
    for (name, local) in [("sets_local", "true"), ("sets", "false")] {
        let make = format!(
            "CREATE FUNCTION {name}() RETURNS void LANGUAGE plpgsql AS \
             $$ BEGIN PERFORM set_config('TimeZone', 'Asia/Tokyo', {local}); END $$"
        );
        db.exec(&make, ()).await.unwrap();
    }
    assert_eq!(get(&db, sql).await, before);
    for call in ["SELECT sets_local()", "SELECT sets()"] {
        let done: Result<()> = db
            .transaction(async || {
                db.exec(call, ()).await?;
                assert_ne!(get(&db, sql).await, before, "{call}");
                rolled_back()
            })
            .await;
        done.unwrap_err();
        assert_eq!(get(&db, sql).await, before, "{call}");
    }
    let inner = db.clone();
    cenote::scope(async move {
        inner.exec("SELECT sets()", ()).await.unwrap();
        get(&inner, sql).await
    })
    .await;
    assert_eq!(get(&db, sql).await, before);
}

#[tokio::test]
async fn h0b_a_new_default_reaches_kept_statements() {
    for (name, value, sql) in SETTINGS {
        let db = handle().await;
        let value = value_of(&db, value).await;
        let before = get(&db, sql).await;
        db.set_default(name, value.as_str()).await.unwrap();
        let after = get(&db, sql).await;
        assert_ne!(after, before, "{name}");
        // A reset sets it again.
        let inner = db.clone();
        cenote::scope(async move {
            inner.exec("SET work_mem = '1MB'", ()).await.unwrap();
            get(&inner, sql).await;
        })
        .await;
        assert_eq!(get(&db, sql).await, after, "{name}");
    }
}

/// A new temporary table invalidates no plan on the server.
#[tokio::test]
async fn h0b_a_temporary_table_hides_another_while_it_is_there() {
    let db = handle().await;
    let sql = "SELECT name::text FROM t";
    assert_eq!(get(&db, sql).await, "own");
    let inner = db.clone();
    cenote::scope(async move {
        assert_eq!(get(&inner, sql).await, "own");
        let make = "CREATE TEMP TABLE t AS SELECT 'temporary'::text AS name";
        inner.exec(make, ()).await.unwrap();
        assert_eq!(get(&inner, sql).await, "temporary");
        inner.exec("DROP TABLE pg_temp.t", ()).await.unwrap();
        assert_eq!(get(&inner, sql).await, "own");
        inner.exec(make, ()).await.unwrap();
        assert_eq!(get(&inner, sql).await, "temporary");
    })
    .await;
    assert_eq!(get(&db, sql).await, "own");
}

#[tokio::test]
async fn h0b_a_literal_that_means_now_does_not_freeze() {
    let db = handle().await;
    db.exec("CREATE TABLE moments (at timestamptz)", ())
        .await
        .unwrap();
    for sql in [
        "INSERT INTO moments VALUES ('now')",
        "INSERT INTO moments VALUES (timestamptz ' NOW ')",
        "INSERT INTO moments VALUES (E'n\\157w')",
        "INSERT INTO moments VALUES ('no'\n'w')",
    ] {
        db.exec("TRUNCATE moments", ()).await.unwrap();
        for _ in 0..3 {
            db.exec(sql, ()).await.unwrap();
        }
        let different = "SELECT count(DISTINCT at) FROM moments";
        let different: i64 = db.query_as_one(different, ()).await.unwrap();
        assert_eq!(different, 3, "{sql}");
    }
}

#[tokio::test]
async fn h0b_what_this_session_redefines_is_used_at_once() {
    let db = handle().await;
    let sql = "SELECT (a = ?)::text FROM of_type";
    for labels in ["'a', 'b'", "'b', 'a'"] {
        for define in [
            "DROP TABLE IF EXISTS of_type",
            "DROP TYPE IF EXISTS letter",
            &format!("CREATE TYPE letter AS ENUM ({labels})"),
            "CREATE TABLE of_type (a letter)",
            "INSERT INTO of_type VALUES ('a')",
        ] {
            db.exec(define, ()).await.unwrap();
        }
        for _ in 0..3 {
            let is_a: String = db.query_as_one(sql, ("a",)).await.unwrap();
            assert_eq!(is_a, "true");
        }
    }
    // In a transaction, too, and after it was rolled back.
    let sum = "SELECT sum(n)::text FROM numbers WHERE n < ?";
    db.exec("CREATE TABLE numbers AS SELECT 1 AS n", ())
        .await
        .unwrap();
    let get = async || -> Result<String> { db.query_as_one(sum, (100,)).await };
    for _ in 0..2 {
        assert_eq!(get().await.unwrap(), "1");
        let done: Result<()> = db
            .transaction(async || {
                assert_eq!(get().await?, "1");
                db.exec("DROP TABLE numbers", ()).await?;
                db.exec("CREATE TABLE numbers AS SELECT 2::numeric AS n", ())
                    .await?;
                for _ in 0..2 {
                    assert_eq!(get().await?, "2");
                }
                rolled_back()
            })
            .await;
        assert_eq!(done.unwrap_err().kind(), Kind::Other);
        assert_eq!(get().await.unwrap(), "1");
    }
    // A table that stands before another of the same name.
    let both = handle().await;
    let other = value_of(&both, "other").await;
    let own: String = both
        .query_as_one("SELECT current_schema()::text", ())
        .await
        .unwrap();
    let path = format!("{own}, {other}");
    both.set_default("search_path", path.as_str())
        .await
        .unwrap();
    both.exec("DROP TABLE t", ()).await.unwrap();
    let name = "SELECT name::text FROM t";
    for make in [
        "CREATE TABLE t AS SELECT 'nearer'::text AS name",
        "SELECT 'nearer'::text AS name INTO t",
    ] {
        let found: String = both.query_as_one(name, ()).await.unwrap();
        assert_eq!(found, "other");
        both.exec(make, ()).await.unwrap();
        let found: String = both.query_as_one(name, ()).await.unwrap();
        assert_eq!(found, "nearer", "{make}");
        both.exec("DROP TABLE t", ()).await.unwrap();
    }
}

/// Another session defines it anew: the statement may fail once, and is right from then on.
#[tokio::test]
async fn h0b_a_statement_that_fails_as_stale_is_forgotten() {
    let dsn = own_schema(&dsn()).await;
    let mut other = Client::open(&dsn).await;
    for (make, again, sql) in [
        (
            "CREATE TYPE letter AS ENUM ('a')",
            "DROP TYPE letter; CREATE TYPE letter AS ENUM ('a')",
            "SELECT ($1::letter = 'a')::text",
        ),
        (
            "CREATE TABLE columns (a text, b text); INSERT INTO columns VALUES ('a', 'b')",
            "ALTER TABLE columns DROP COLUMN a; ALTER TABLE columns ADD COLUMN a text; \
             UPDATE columns SET a = 'a'",
            "SELECT (a = $1)::text FROM columns",
        ),
        (
            "CREATE FUNCTION f(text) RETURNS text LANGUAGE sql AS 'SELECT ($1 = ''a'')::text'",
            "DROP FUNCTION f; \
             CREATE FUNCTION f(text) RETURNS text LANGUAGE sql AS 'SELECT ($1 = ''a'')::text'",
            "SELECT f($1)",
        ),
        (
            "CREATE SEQUENCE s",
            "DROP SEQUENCE s; CREATE SEQUENCE s",
            "SELECT (nextval('s') > 0 AND $1 = 'a')::text",
        ),
    ] {
        other.script(make).await.unwrap();
        for in_transaction in [false, true] {
            let mut client = Client::open(&dsn).await;
            for _ in 0..3 {
                client.run(sql, &[value("a")]).await.unwrap();
                other.script(again).await.unwrap();
                if in_transaction {
                    client.begin().await;
                    client.must("SELECT 1").await;
                }
                let first = client.run(sql, &[value("a")]).await;
                assert!(in_transaction || first.is_ok(), "{sql}: {first:?}");
                client.connection.rollback().await.unwrap();
                let again = client.value(sql, &[value("a")]).await;
                assert_eq!(again, Value::Text("true".into()), "{sql}");
            }
        }
    }
}

/// A record of as many ones as its type has fields.
#[derive(Debug)]
struct Ones;

impl ToSql for Ones {
    fn to_sql(
        &self,
        wanted: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        let TypeKind::Composite(fields) = wanted.kind() else {
            return Err("a record is wanted".into());
        };
        out.extend_from_slice(&u32::try_from(fields.len())?.to_be_bytes());
        for field in fields {
            out.extend_from_slice(&field.type_().oid().to_be_bytes());
            out.extend_from_slice(&[0, 0, 0, 4, 0, 0, 0, 1]);
        }
        Ok(IsNull::No)
    }

    fn accepts(wanted: &Type) -> bool {
        matches!(wanted.kind(), TypeKind::Composite(_))
    }

    postgres_types::to_sql_checked!();
}

#[tokio::test]
async fn h0b_a_type_that_was_altered_is_looked_up_again() {
    let dsn = own_schema(&dsn()).await;
    let mut other = Client::open(&dsn).await;
    other.must("CREATE TYPE ones AS (a int)").await;
    let sql = "SELECT length($1::ones::text)";
    for in_transaction in [false, true] {
        let mut client = Client::open(&dsn).await;
        let ones = [Param::Native(param(Ones))];
        for round in 0..3 {
            let before = client.rows(sql, &ones).await[0].get::<i64>(0).unwrap();
            let column = crate::servers::unique("more");
            other
                .must(&format!("ALTER TYPE ones ADD ATTRIBUTE {column} int"))
                .await;
            if in_transaction {
                client.begin().await;
                client.must("SELECT 1").await;
            }
            let first = client.run(sql, &ones).await;
            assert!(in_transaction || first.is_ok(), "round {round}: {first:?}");
            client.connection.rollback().await.unwrap();
            let after = client.rows(sql, &ones).await[0].get::<i64>(0).unwrap();
            assert_eq!(after, before + 2, "(1) and (1,1)");
        }
    }
}

/// The first two calls say what a column that is gone costs: an error each, and the right one once it is back.
#[tokio::test]
async fn h0b_a_column_that_comes_back_is_found() {
    let dsn = own_schema(&dsn()).await;
    let mut other = Client::open(&dsn).await;
    let mut client = Client::open(&dsn).await;
    other.script("CREATE TABLE c (a int)").await.unwrap();
    client.must("SELECT a FROM c").await;
    other.must("ALTER TABLE c DROP COLUMN a").await;
    for _ in 0..2 {
        let gone = client.must_not("SELECT a FROM c").await;
        assert_eq!(gone.sql_state(), Some("42703"), "{gone}");
    }
    other.must("ALTER TABLE c ADD COLUMN a text").await;
    client.must("SELECT a FROM c").await;
}

const ON_SERVER: &str = "SELECT count(*) FROM pg_catalog.pg_prepared_statements WHERE NOT from_sql";

/// Statements of a changed session go with it, and those of before are still there.
#[tokio::test]
async fn h0b_a_reset_drops_the_statements_of_the_changed_session() {
    let mut client = Client::new().await;
    let ask = async |client: &mut Client, n: i64| {
        let before = client.round_trips();
        let sum = client.value("SELECT $1::bigint + 1", &[value(n)]).await;
        assert_eq!(sum, Value::Int(n + 1));
        assert_eq!(client.round_trips() - before, 1);
    };
    ask(&mut client, 1).await;
    for n in 0..3 {
        client.connection.expect_session_change();
        client.must("SET work_mem = '1MB'").await;
        ask(&mut client, n).await;
        ask(&mut client, n).await;
        assert_eq!(client.own().kept_statements(), 2);
        client.connection.reset().await.unwrap();
        assert_eq!(client.own().kept_statements(), 1);
        ask(&mut client, n).await;
        let there = client.script_rows(ON_SERVER).await[0]
            .get::<i64>(0)
            .unwrap();
        assert_eq!(there, 1);
    }
}

#[tokio::test]
async fn h0b_an_untouched_session_parses_a_text_once() {
    let mut client = Client::in_own_schema().await;
    client.must("CREATE TABLE t (n int)").await;
    let insert = "INSERT INTO t VALUES ($1)";
    for n in 0..5 {
        client.begin().await;
        let params: [Param<'_>; 1] = [value(n)];
        client.run(insert, &params).await.unwrap();
        client.connection.commit().await.unwrap();
    }
    let parsed = "SELECT count(*) FROM pg_catalog.pg_prepared_statements \
                  WHERE statement LIKE 'INSERT%' AND generic_plans + custom_plans = 5";
    let parsed = client.script_rows(parsed).await[0].get::<i64>(0).unwrap();
    assert_eq!(parsed, 1, "one statement, run five times");
}

/// The answer to a dropped call is thrown away unread: nobody can tell then whether it had columns.
#[tokio::test]
async fn h0b_a_dropped_query_leaves_the_kept_statements() {
    let mut client = Client::new().await;
    for sql in ["SELECT 1", "SELECT 2"] {
        client.must(sql).await;
    }
    for polls in 0..5 {
        let call = client.connection.run(Request::new("SELECT 1", &[]));
        let _ = drop_after(polls, call).await;
        client.connection.settle().await.unwrap();
        assert_eq!(client.own().kept_statements(), 2, "{polls} polls");
    }
}

#[tokio::test]
async fn deallocate_of_nothing_has_no_hint_about_poolers() {
    let mut client = Client::new().await;
    for _ in 0..2 {
        for sql in ["DEALLOCATE missing", "EXECUTE missing"] {
            let error = client.must_not(sql).await;
            assert_eq!(error.sql_state(), Some("26000"));
            assert!(!error.message().contains("PgBouncer"), "{error}");
        }
    }
    let inside = "DO $$ BEGIN EXECUTE 'DEALLOCATE missing'; END $$";
    let error = client.must_not(inside).await;
    assert!(!error.message().contains("PgBouncer"), "{error}");
}
