//! What errors of PostgreSQL say, and what the log says of its statements.

use std::time::Duration;

use cenote::{Db, Error, Kind, Result, Violation};
use tracing::Level;

use crate::log::Log;
use crate::servers::{client, dsn};

async fn open(describe: impl FnOnce(cenote::Builder) -> cenote::Builder) -> Db {
    let dsn = client::own_schema(&dsn()).await;
    let db = describe(Db::builder(&dsn).max(2)).open().await.unwrap();
    let script = "CREATE TABLE person (id int8 PRIMARY KEY, email text NOT NULL UNIQUE, age int4);
                  INSERT INTO person VALUES (1, 'ada@example.com', 36)";
    db.exec(script, ()).await.unwrap();
    db
}

#[tokio::test]
async fn a_violation_names_table_column_and_constraint() {
    let db = open(|builder| builder).await;
    let sql = "INSERT INTO person (id, email) VALUES (2, :email)";
    let email = cenote::named! { email: "ada@example.com" };
    let error = db.exec(sql, email).await.unwrap_err();
    let line = line!() - 1;
    assert_eq!(error.violation(), Some(Violation::Unique));
    assert_eq!(error.table(), Some("person"));
    assert!(error.schema().is_some());
    assert_eq!(error.constraint(), Some("person_email_key"));
    let detail = "Key (email)=(ada@example.com) already exists.";
    assert_eq!(error.detail(), Some(detail));
    assert_eq!(error.sql(), Some(sql));
    assert_eq!(error.call_site().unwrap().line(), line);
    let expected = format!(
        "duplicate key value violates unique constraint \"person_email_key\" (SQLSTATE 23505): \
         INSERT INTO person (id, email) VALUES (***, :email); at {}",
        error.call_site().unwrap()
    );
    assert_eq!(error.to_string(), expected);
    assert!(!format!("{error:?}").contains("ada@"), "{error:?}");

    let error = db.exec("INSERT INTO person VALUES (3, NULL)", ()).await;
    let error = error.unwrap_err();
    assert!(error.is_not_null_violation());
    assert_eq!(error.column(), Some("email"));
}

#[tokio::test]
async fn no_value_is_in_the_text_of_an_error() {
    let db = open(|builder| builder).await;
    let cases = [
        "SELECT 'ada@example.com'::int4",
        "SELECT 'ada@example.com'::date",
        "SELECT 'ada@example.com'::text::int4[]",
        "SELECT 1 'ada@example.com'",
        "SELECT 'ada@example.com",
        "SELECT E'ada@example.com",
        "SELECT $$ada@example.com$$ $$x$$",
    ];
    for sql in cases {
        let error = db.query(sql, ()).await.unwrap_err();
        assert!(!error.to_string().contains("ada"), "{error}");
        assert!(!format!("{error:?}").contains("ada"), "{error:?}");
    }
    let given = db.query("SELECT ?::text::int4", "ada@example.com").await;
    let error = given.unwrap_err();
    let message = "invalid input syntax for type integer: ***";
    assert_eq!(error.message(), message);
    assert!(error.detail().unwrap().contains("ada@example.com"));
}

#[tokio::test]
async fn a_hint_and_a_position_are_those_of_the_callers_sql() {
    let db = open(|builder| builder).await;
    let sql = "SELECT 'größe', :größe::int4, emial FROM person";
    for _ in 0..2 {
        let error = db
            .query(sql, cenote::named! { größe: 1 })
            .await
            .unwrap_err();
        let before = &sql[..sql.find("emial").unwrap()];
        assert_eq!(
            error.position(),
            Some(before.chars().count() + 1),
            "{error}"
        );
        let hint = error.hint().expect("PostgreSQL has an idea");
        assert!(hint.contains("person.email"), "{hint}");
        assert!(error.to_string().ends_with(hint), "{error}");
    }
}

#[tokio::test]
async fn an_aborted_transaction_names_its_first_failure() -> Result<()> {
    let db = open(|builder| builder).await;
    let first = "INSERT INTO person VALUES (1, 'grace@example.com', 7)";
    let check = |error: &Error, line: u32| {
        assert!(error.message().contains("person_pkey"), "{error}");
        assert_eq!(error.call_sites()[0].line(), line, "{error}");
        let cause: &Error = error.downcast_ref().expect("the first failure");
        assert!(cause.is_unique_violation());
        assert_eq!(cause.sql(), Some(first));
        assert!(!error.to_string().contains("grace"), "{error}");
    };
    let done: Result<()> = db
        .transaction(async || {
            db.exec(first, ()).await.unwrap_err();
            let line = line!() - 1;
            for _ in 0..2 {
                let error = db.query("SELECT 2", ()).await.unwrap_err();
                assert_eq!(error.sql_state(), Some("25P02"));
                assert_eq!(error.sql(), Some("SELECT 2"));
                check(&error, line);
            }
            Ok(())
        })
        .await;
    let error = done.unwrap_err();
    assert_eq!(error.kind(), Kind::RolledBack);
    check(&error, line!() - 13);

    let connection = db.connection().await?;
    connection.exec("BEGIN", ()).await?;
    connection.exec("SELECT 1 / 0", ()).await.unwrap_err();
    let line = line!() - 1;
    let error = connection.exec("SELECT 1", ()).await.unwrap_err();
    assert_eq!(error.call_sites()[0].line(), line, "{error}");
    assert!(error.message().contains("division by zero"), "{error}");
    connection.exec("ROLLBACK", ()).await?;
    Ok(())
}

#[tokio::test]
async fn a_savepoint_forgets_its_failure_when_it_is_rolled_back() -> Result<()> {
    let db = open(|builder| builder).await;
    db.transaction(async || {
        let inner: Result<()> = db
            .transaction(async || db.exec("SELECT 1 / 0", ()).await.map(drop))
            .await;
        inner.unwrap_err();
        db.exec("SELECT nope", ()).await.unwrap_err();
        let line = line!() - 1;
        let error = db.exec("SELECT 1", ()).await.unwrap_err();
        assert_eq!(error.call_sites()[0].line(), line, "{error}");
        assert!(error.message().contains("nope"), "{error}");
        Err::<(), _>(error)
    })
    .await
    .unwrap_err();
    Ok(())
}

#[tokio::test]
async fn an_error_of_a_stream_names_its_call_and_aborts() -> Result<()> {
    let db = open(|builder| builder).await;
    let sql = "SELECT ?::int4 / (4000 - n) FROM generate_series(1, 5000) n";
    db.transaction(async || {
        let mut rows = db.stream(sql, (1,)).await?;
        let line = line!() - 1;
        let error = loop {
            match rows.try_next().await {
                Ok(row) => assert!(row.is_some(), "it fails before its end"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.sql(), Some(sql), "{error}");
        assert_eq!(error.call_site().unwrap().line(), line);
        drop(rows);
        let after = db.exec("SELECT 1", ()).await.unwrap_err();
        assert_eq!(after.call_sites()[0].line(), line, "{after}");
        Err::<(), _>(after)
    })
    .await
    .unwrap_err();
    Ok(())
}

#[tokio::test]
async fn a_cancelled_statement_names_its_limit() {
    let limit = Duration::from_millis(200);
    let db = open(|builder| builder.statement_timeout(limit)).await;
    let log = Log::new();
    let sql = "SELECT pg_sleep(60)";
    let error = db.query(sql, ()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::StatementTimeout);
    let site = error.call_site().unwrap();
    assert_eq!(
        error.to_string(),
        format!(
            "statement cancelled after 200 ms (statement_timeout): SELECT pg_sleep(***); at {site}"
        )
    );
    let lines = log.take(Level::DEBUG, "cenote::statement");
    let is_dropped = |line: &String| line.contains("pg_sleep") && line.contains("\"dropped\"");
    assert!(lines.iter().any(is_dropped), "{lines:?}");
}

#[tokio::test]
async fn a_time_out_of_an_acquire_names_all_holders() -> Result<()> {
    let limit = Duration::from_millis(100);
    let db = open(|builder| builder.min(2).acquire_timeout(limit)).await;
    let _one = db.connection().await?;
    let _other = db.connection().await?;
    let line = line!() - 1;
    let error = db.query("SELECT 1", ()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Timeout);
    let mut lines: Vec<_> = error.holders().iter().map(|it| it.caller.line()).collect();
    lines.sort_unstable();
    assert_eq!(lines, [line - 1, line]);
    let text = error.to_string();
    assert!(text.starts_with("timed out after "), "{text}");
    let expected =
        " ms waiting for a connection (2 of 2 in use); see Error::holders: SELECT ***; at ";
    assert!(text.contains(expected), "{text}");
    assert_eq!(error.sql(), Some("SELECT 1"));
    Ok(())
}

#[tokio::test]
async fn a_slow_statement_of_postgres_is_logged() -> Result<()> {
    let db = open(|builder| builder.slow_statements(Duration::from_millis(20))).await;
    let log = Log::new();
    db.query("SELECT pg_sleep(0.05) FROM generate_series(1, 2)", ())
        .await?;
    let line = line!() - 2;
    db.query("SELECT 1", ()).await?;
    let lines = log.take(Level::WARN, "cenote::statement");
    let slow = lines.iter().find(|line| line.contains("pg_sleep"));
    let slow = slow.expect("it took more than 20 ms");
    assert!(
        slow.contains("slow statement: SELECT pg_sleep(***)"),
        "{slow}"
    );
    assert!(slow.contains("rows=2"), "{slow}");
    assert!(slow.contains(&format!("errors.rs:{line}:")), "{slow}");
    Ok(())
}

#[tokio::test]
async fn value_that_does_not_fit_is_a_violation_of_data() {
    let db = open(|builder| builder).await;
    db.exec("CREATE TABLE short (code varchar(3), n int2)", ())
        .await
        .unwrap();
    for (sql, state) in [
        ("INSERT INTO short (code) VALUES ('long')", "22001"),
        ("INSERT INTO short (n) VALUES (70000)", "22003"),
        ("SELECT 'x'::int4", "22P02"),
        ("SELECT 1 / 0", "22012"),
        ("SELECT '2024-02-30'::date", "22008"),
    ] {
        let error = db.exec(sql, ()).await.unwrap_err();
        assert_eq!(error.sql_state(), Some(state), "{sql}: {error}");
        assert_eq!(error.violation(), Some(Violation::Data), "{sql}: {error}");
    }
}

#[tokio::test]
async fn log_and_errors_show_the_sql_as_it_was_written() -> Result<()> {
    let db = open(|builder| builder.slow_statements(Duration::from_nanos(1))).await;
    let log = Log::new();
    let sql = "SELECT id FROM person WHERE email = ? AND id < 7";
    let named = "SELECT id FROM person WHERE email = :email";
    for _ in 0..2 {
        db.query(sql, ("x",)).await?;
    }
    db.query(named, cenote::named! { email: "x" }).await?;
    let many = "INSERT INTO person (id, email) VALUES (?, ?)";
    db.exec_many(many, [(8, "h"), (9, "i")]).await?;
    let lines = log.take(Level::WARN, "cenote::statement");
    let shown = "slow statement: SELECT id FROM person WHERE email = ? AND id < ***";
    assert!(
        lines[..2].iter().all(|line| line.contains(shown)),
        "{lines:?}"
    );
    assert!(lines[2].contains(named), "{lines:?}");
    assert!(lines[3].contains(many), "{lines:?}");

    // The arrow of an error is where its position is, also behind what can be shown.
    let columns = "id, ".repeat(100);
    let sql = format!("SELECT {columns} wrong FROM person WHERE id = ?");
    let error = db.query(&sql, (1,)).await.unwrap_err();
    let position = error.position().unwrap();
    assert!(sql[position - 1..].starts_with("wrong"), "{position}");
    let shown = "id, →wrong FROM person WHERE id = ?";
    assert!(error.to_string().contains(shown), "{error}");
    Ok(())
}
