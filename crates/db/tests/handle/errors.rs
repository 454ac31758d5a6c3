//! What errors and the log say: which call, which line, which SQL, and no values.

use std::time::Duration;

use cenote::{Db, Error, Kind, PooledConnection, Result, Violation};
use tempfile::TempDir;
use tracing::Level;

use crate::log::Log;

const STATEMENTS: &str = "cenote::statement";

async fn open(describe: impl FnOnce(cenote::Builder) -> cenote::Builder) -> (Db, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let dsn = format!("sqlite:{}", folder.path().join("errors.db").display());
    let db = describe(Db::builder(&dsn).max(2)).open().await.unwrap();
    db.exec(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT NOT NULL)",
        (),
    )
    .await
    .unwrap();
    (db, folder)
}

#[track_caller]
fn assert_names(error: &Error, line: u32, sql: Option<&str>) {
    let site = error.call_site().expect("the call is known");
    assert_eq!((site.file(), site.line()), (file!(), line), "{error}");
    assert_eq!(error.sql(), sql, "{error}");
    assert!(error.to_string().contains(&site.to_string()), "{error}");
}

#[tokio::test]
async fn every_error_of_a_call_names_its_line_and_its_sql() -> Result<()> {
    let (db, _folder) = open(|builder| builder).await;
    let bad = "SELECT nothing FROM nowhere WHERE name = 'ada'";
    let none = "SELECT id FROM t";
    let two = "SELECT 1 UNION SELECT 2";
    let typed = "SELECT 'ada' AS name";
    let connection = db.connection().await?;
    let statement = connection.prepare("INSERT INTO t VALUES (?, NULL)").await?;
    let line = line!() + 2;
    let failed = [
        (db.exec(bad, ()).await.unwrap_err(), bad),
        (db.query(bad, ()).await.unwrap_err(), bad),
        (db.exec_many(bad, [()]).await.unwrap_err(), bad),
        (db.prepare(bad).await.map(drop).unwrap_err(), bad),
        (db.run(bad, ()).await.unwrap_err(), bad),
        (db.run_all(bad, ()).await.unwrap_err(), bad),
        (db.stream(bad, ()).await.map(drop).unwrap_err(), bad),
        (connection.exec(bad, ()).await.unwrap_err(), bad),
        (statement.exec((1,)).await.unwrap_err(), statement.sql()),
        (db.query_one(none, ()).await.unwrap_err(), none),
        (db.query_one(two, ()).await.unwrap_err(), two),
        (db.query_opt(two, ()).await.unwrap_err(), two),
        (db.query_as::<i64>(typed, ()).await.unwrap_err(), typed),
        (db.query_as_one::<i64>(none, ()).await.unwrap_err(), none),
        (db.query_as_opt::<i64>(typed, ()).await.unwrap_err(), typed),
        (db.exec("SELECT ?", ()).await.unwrap_err(), "SELECT ?"),
        (db.exec("SELECT '\0'", ()).await.unwrap_err(), "SELECT '\0'"),
    ];
    for ((error, sql), line) in failed.iter().zip(line..) {
        assert_names(error, line, Some(sql));
        assert!(!error.to_string().contains("ada"), "{error}");
        assert!(!format!("{error:?}").contains("ada"), "{error:?}");
    }
    db.transaction(async || {
        let error = db.exec(bad, ()).await.unwrap_err();
        assert_names(&error, line!() - 1, Some(bad));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_error_of_a_call_without_sql_names_its_line() -> Result<()> {
    let (db, _folder) = open(|builder| builder).await;
    let error = db.begin().await.map(drop).unwrap_err();
    assert_names(&error, line!() - 1, None);
    let error = db.pin().await.map(drop).unwrap_err();
    assert_names(&error, line!() - 1, None);
    let error = db.set_default("no_such_pragma", 1).await.unwrap_err();
    assert_names(&error, line!() - 1, None);
    cenote::scope(async {
        let tx = db.begin().await?;
        tx.exec("COMMIT", ()).await?;
        let error = tx.commit().await.unwrap_err();
        assert_names(&error, line!() - 1, None);
        assert_eq!(error.kind(), Kind::TransactionLost, "{error}");
        assert_eq!(error.call_sites()[0].line(), line!() - 4);
        Ok::<_, Error>(())
    })
    .await?;
    db.close().await?;
    for (error, line) in [
        (db.ping().await.unwrap_err(), line!()),
        (db.connection().await.map(drop).unwrap_err(), line!()),
        (
            db.transaction(async || Ok(())).await.unwrap_err(),
            line!() - 1,
        ),
    ] {
        assert_names(&error, line, None);
        assert_eq!(error.kind(), Kind::Closed);
    }
    Ok(())
}

#[tokio::test]
async fn an_error_of_a_stream_names_the_call_that_started_it() -> Result<()> {
    let (db, _folder) = open(|builder| builder).await;
    let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
               SELECT CASE i WHEN 4999 THEN abs(-9223372036854775808) ELSE i END FROM n";
    let mut rows = db.stream(sql, ()).await?;
    let line = line!() - 1;
    let error = loop {
        match rows.try_next().await {
            Ok(row) => assert!(row.is_some(), "it fails before its end"),
            Err(error) => break error,
        }
    };
    assert_names(&error, line, Some(sql));

    let typed = "SELECT 'ada' AS name";
    let mut rows = db.stream_as::<i64>(typed, ()).await?;
    let line = line!() - 1;
    let error = rows.try_next().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Type);
    assert_names(&error, line, Some(typed));
    Ok(())
}

#[tokio::test]
async fn an_error_of_on_connect_names_the_line_in_the_hook() {
    let folder = tempfile::tempdir().unwrap();
    let dsn = format!("sqlite:{}", folder.path().join("hook.db").display());
    let line = line!() + 1;
    let hook = async |conn: &mut PooledConnection| conn.exec("SELEC 1").await;
    let db = Db::builder(&dsn).on_connect(hook).open().await.unwrap();
    let error = db.exec("SELECT 1", ()).await.unwrap_err();
    assert_names(&error, line, Some("SELEC 1"));
}

#[tokio::test]
async fn sqlite_reports_position_table_and_column() -> Result<()> {
    let (db, _folder) = open(|builder| builder).await;
    let character = |sql: &str, of: &str| sql[..sql.find(of).unwrap()].chars().count() + 1;
    for sql in [
        "SELECT 'größe', nope FROM t",
        "SELECT :größe, nope FROM t WHERE id = :größe",
        "SELECT 'größe'; SELECT 1, nope; SELECT 3",
    ] {
        let error = match sql.contains(':') {
            true => db.query(sql, cenote::named! { größe: 1 }).await,
            false => db.query(sql, ()).await,
        };
        let error = error.unwrap_err();
        assert_eq!(error.position(), Some(character(sql, "nope")), "{error}");
        assert_eq!(error.column(), Some("nope"), "{error}");
    }
    let error = db.exec("INSERT INTO t VALUES (1, NULL)", ()).await;
    let error = error.unwrap_err();
    assert_eq!((error.table(), error.column()), (Some("t"), Some("name")));
    Ok(())
}

#[tokio::test]
async fn no_value_is_in_the_text_of_an_error_of_sqlite() {
    let (db, _folder) = open(|builder| builder).await;
    for sql in [
        "SELECT 1 'a' 'ada@example.com'",
        "SELECT 'ada@example.com",
        "SELECT * FROM t WHERE name = \"ada@example.com\" AND nope",
        "SELECT 1 2 90909090",
    ] {
        let error = db.query(sql, ()).await.unwrap_err();
        for shown in [error.to_string(), format!("{error:?}")] {
            assert!(!shown.contains("ada") && !shown.contains("9090"), "{shown}");
        }
    }
}

#[tokio::test]
async fn the_statement_log_has_every_statement_and_no_value() -> Result<()> {
    let (db, _folder) = open(|builder| builder).await;
    let log = Log::new();
    db.exec("INSERT INTO t VALUES (1, 'ada'), (?, ?)", (2, "grace"))
        .await?;
    let line = line!() - 2;
    db.query("SELECT id FROM t", ()).await?;
    db.transaction(async || db.exec("DELETE FROM t WHERE id = 7", ()).await)
        .await?;
    let lines = log.take(Level::DEBUG, STATEMENTS);
    let expected = [
        ("INSERT INTO t VALUES (***, ***), (?, ?)", "rows=2"),
        ("SELECT id FROM t", "rows=2"),
        ("BEGIN", "outcome=\"ok\""),
        ("DELETE FROM t WHERE id = ***", "rows=0"),
        ("COMMIT", "outcome=\"ok\""),
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, (sql, rows)) in lines.iter().zip(expected) {
        assert!(line.contains(sql) && line.contains(rows), "{line}");
        assert!(line.contains("elapsed="), "{line}");
        assert!(!line.contains("ada") && !line.contains("grace"), "{line}");
    }
    assert!(
        lines[0].contains(&format!("errors.rs:{line}:")),
        "{lines:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_slow_statement_is_a_warning_and_others_are_not() -> Result<()> {
    for (threshold, warnings) in [(Duration::from_nanos(1), 1), (Duration::from_secs(3600), 0)] {
        let (db, _folder) = open(|builder| builder.slow_statements(threshold)).await;
        let log = Log::new();
        db.query("SELECT 'ada' UNION SELECT 'grace'", ()).await?;
        let line = line!() - 1;
        let lines = log.take(Level::WARN, STATEMENTS);
        assert_eq!(lines.len(), warnings, "{lines:?}");
        for logged in lines {
            let expected = "slow statement: SELECT *** UNION SELECT ***";
            assert!(logged.contains(expected), "{logged}");
            assert!(logged.contains("rows=2"), "{logged}");
            assert!(logged.contains(&format!("errors.rs:{line}:")), "{logged}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_statement_log_says_which_statements_failed() -> Result<()> {
    let (db, _folder) = open(|builder| builder).await;
    let log = Log::new();
    db.exec("SELECT nope", ()).await.unwrap_err();
    let lines = log.take(Level::DEBUG, STATEMENTS);
    assert!(
        matches!(&lines[..], [line] if line.contains("outcome=\"failed\"")),
        "{lines:?}"
    );
    Ok(())
}

#[tokio::test]
async fn leak_warning_reaches_the_pool() {
    let (db, _folder) = open(|builder| builder.leak_warning(Duration::from_secs(7))).await;
    let leak_warning = db.pool().unwrap().config().leak_warning;
    assert_eq!(leak_warning, Some(Duration::from_secs(7)));
}

#[cfg(debug_assertions)]
#[tokio::test]
async fn a_task_spawned_in_a_transaction_is_warned_of() -> Result<()> {
    const TARGET: &str = "cenote::coroutine";
    let (db, _folder) = open(|builder| builder).await;
    let log = Log::new();
    let (mut spawned, mut called) = (0, 0);
    db.transaction(async || {
        let inner = db.clone();
        let task = async move {
            for _ in 0..2 {
                inner.query("SELECT 1", ()).await?;
            }
            inner.outside().query("SELECT 1", ()).await
        };
        called = line!() - 4;
        spawned = line!() + 1;
        cenote::spawn(task).await.expect("it does not panic")?;
        Ok(())
    })
    .await?;
    let lines = log.take(Level::WARN, TARGET);
    let [line] = &lines[..] else {
        panic!("one warning for a task: {lines:?}");
    };
    for number in [spawned, called] {
        assert!(line.contains(&format!("errors.rs:{number}:")), "{line}");
    }
    let outside = db.clone();
    cenote::spawn(async move { outside.query("SELECT 1", ()).await })
        .await
        .expect("it does not panic")?;
    assert!(log.take(Level::WARN, TARGET).is_empty());
    Ok(())
}

#[tokio::test]
async fn value_that_does_not_fit_is_a_violation_of_data() -> Result<()> {
    let (db, _folder) = open(|builder| builder).await;
    db.exec("CREATE TABLE strict_one (n INTEGER) STRICT", ())
        .await?;
    for sql in [
        "INSERT INTO strict_one VALUES ('ada')",
        "INSERT INTO t (id, name) VALUES ('ada', 'x')",
        "SELECT sum(n) FROM (SELECT 9223372036854775807 AS n UNION ALL SELECT 1)",
        "SELECT json('{')",
    ] {
        let error = db.query(sql, ()).await.unwrap_err();
        assert_eq!(error.violation(), Some(Violation::Data), "{sql}: {error}");
    }
    Ok(())
}

#[tokio::test]
async fn errors_of_the_pool_speak_of_connections() -> Result<()> {
    let (db, _folder) = open(|builder| builder.max(1)).await;
    let held = db.connection().await?;
    let error = db
        .close_and_drain(Duration::from_millis(1))
        .await
        .unwrap_err();
    let mut chain = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        chain.push_str(&inner.to_string());
        cause = inner.source();
    }
    let expected = "the database handle is closed, but 1 connection was still in use; ";
    assert!(chain.starts_with(expected), "{chain}");
    for word in ["lease", "place", "hook", "resource", "pool"] {
        assert!(!chain.contains(word), "{word}: {chain}");
    }
    drop(held);
    Ok(())
}
