//! Parameters whose type the server infers: arrays where it takes a text, and `?` without a cast.

use cenote::driver::{Param, Value};
use cenote::{CallOptions, Db, Error, Kind, Result, list};

use crate::servers::client::Client;
use crate::servers::own_tables;

async fn people() -> Db {
    let db = own_tables(|builder| builder.max(1)).await;
    let script =
        "CREATE TABLE person (id int8 PRIMARY KEY, name text, code varchar(9), tags text[]);
                  INSERT INTO person VALUES (1, 'ada', 'a', '{x,y}'), (2, 'bob', 'b', '{z}')";
    db.exec(script, ()).await.unwrap();
    db
}

fn assert_refused(error: &Error, sql: &str) {
    assert_eq!(error.kind(), Kind::Type, "{sql}: {error}");
    for name in ["list(", "= ANY(?)"] {
        assert!(error.message().contains(name), "{sql}: {error}");
    }
}

#[tokio::test]
async fn array_for_a_text_is_refused_in_every_form_and_run() {
    let db = people().await;
    let names = vec!["ada", "bob"];
    for cache in [true, false] {
        for sql in [
            "SELECT id FROM person WHERE name IN (?)",
            "SELECT id FROM person WHERE name NOT IN (?)",
            "SELECT id FROM person WHERE name in ( ? ) AND id > 0",
            "SELECT id FROM person WHERE code IN ('a', ?)",
            "SELECT id FROM person WHERE name = ?",
            "SELECT id FROM person WHERE name = ANY(tags) AND name <> ?",
            "UPDATE person SET name = ?",
        ] {
            let sql = match cache {
                true => sql.to_owned(),
                // Such a text is never kept.
                false => format!("{sql} -- {}", "x".repeat(5_000)),
            };
            for _ in 0..3 {
                let error = db.query(&sql, (names.clone(),)).await.unwrap_err();
                assert_refused(&error, &sql);
            }
        }
    }
    let update = "UPDATE person SET name = ? WHERE id = ?";
    let error = db.exec_many(update, vec![(names, 1)]).await.unwrap_err();
    assert_refused(&error, update);
    let kept: Vec<String> = db
        .query_scalar("SELECT name FROM person ORDER BY id", ())
        .await
        .unwrap();
    assert_eq!(kept, ["ada", "bob"]);
}

#[tokio::test]
async fn array_where_the_sql_takes_one_is_used() -> Result<()> {
    let db = people().await;
    let names = vec!["ada", "eve"];
    for _ in 0..3 {
        for sql in [
            "SELECT id FROM person WHERE name = ANY(?)",
            "SELECT id FROM person WHERE name IN (SELECT unnest(?::text[]))",
        ] {
            let found: Vec<i64> = db.query_scalar(sql, (names.clone(),)).await?;
            assert_eq!(found, [1], "{sql}");
        }
        // An array column is compared with an array.
        for sql in [
            "SELECT id FROM person WHERE tags IN (?)",
            "SELECT id FROM person WHERE tags = ?",
            "SELECT id FROM person WHERE tags @> ?",
        ] {
            let found: Vec<i64> = db.query_scalar(sql, (vec!["x", "y"],)).await?;
            assert_eq!(found, [1], "{sql}");
        }
        let sql = "SELECT id FROM person WHERE name IN (?)";
        let found: Vec<i64> = db.query_scalar(sql, (list(&names),)).await?;
        assert_eq!(found, [1]);
        let sql = "UPDATE person SET tags = ? WHERE id = ?";
        db.exec_many(sql, vec![(vec!["x", "y"], 1)]).await?;
        let untold = CallOptions::new().tag("arrays");
        let sql = "SELECT id FROM person WHERE id = ANY(?)";
        let found: Vec<i64> = db.with(untold).query_scalar(sql, (vec![2, 3],)).await?;
        assert_eq!(found, [2]);
    }
    Ok(())
}

/// The page "When to write `?::type`" shows these.
#[tokio::test]
async fn untyped_parameter_means_the_same_in_every_run() {
    let mut client = Client::new().await;
    let sample = r#"'{"a": [7, 8], "1": "one"}'"#;
    let int = || Value::Int(1);
    for (sql, value, expected) in [
        // Taken for text: a key.
        (
            format!("({sample}::jsonb -> $1)::text"),
            int(),
            Some("\"one\""),
        ),
        (format!("({sample}::jsonb -> 'a' -> $1)::text"), int(), None),
        (
            format!("({sample}::jsonb -> 'a' -> $1::int4)::text"),
            int(),
            Some("8"),
        ),
        (
            format!("({sample}::jsonb #>> $1::text[])"),
            Value::Array(vec!["a".into(), 1.into()]),
            Some("8"),
        ),
        (
            "pg_typeof($1::int8)::text".to_owned(),
            int(),
            Some("bigint"),
        ),
        (
            "(date '2024-01-31' + $1::int4)::text".to_owned(),
            int(),
            Some("2024-02-01"),
        ),
        (
            "(interval '2 days' > $1)::text".to_owned(),
            Value::Text("1 day".into()),
            Some("true"),
        ),
        ("coalesce($1, 'x')".to_owned(), int(), Some("1")),
    ] {
        let expected = expected.map(str::to_owned);
        for run in 1..=3 {
            let done = client
                .run(&format!("SELECT {sql}"), &[Param::Value(value.clone())])
                .await;
            let row = done.unwrap().rows.unwrap().into_rows().next().unwrap();
            let found: Option<String> = row.get(0).unwrap();
            assert_eq!(found, expected, "{sql} in run {run}");
        }
    }
}

/// Also of that page.
#[tokio::test]
async fn parameter_without_any_type_is_refused_by_the_server() {
    let mut client = Client::new().await;
    for sql in [
        "pg_typeof($1)",
        "jsonb_build_object('n', $1)",
        "date '2024-01-31' + $1",
        "$1 IS NULL",
        "count(*) FROM unnest($1)",
    ] {
        let done = client
            .run(&format!("SELECT {sql}"), &[Param::Value(Value::Int(1))])
            .await;
        let error = done.unwrap_err();
        let state = error.sql_state().unwrap_or_default().to_owned();
        assert!(["42P18", "42725"].contains(&&*state), "{sql}: {error}");
    }
    let half = [Param::Value(Value::Float(0.5))];
    let sql = "SELECT ($1 * interval '1 day')::text";
    assert_eq!(
        client.value(sql, &half).await,
        Value::Text("12:00:00".into())
    );
}
