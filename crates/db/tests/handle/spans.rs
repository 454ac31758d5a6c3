//! The spans of statements, transactions and acquires.

use cenote::{Db, Result};
use cenote_testkit::Fake;
use cenote_testkit::poll::{Hand, cancel_after, now};

use crate::log::{Log, SpanLine};

async fn open(name: &str, set: impl FnOnce(cenote::Builder) -> cenote::Builder) -> Db {
    let dsn = format!("sqlite:file:spans-{name}?mode=memory&cache=shared");
    let db = set(Db::builder(&dsn)).open().await.unwrap();
    db.exec("CREATE TABLE t (n INTEGER)", ()).await.unwrap();
    db
}

/// Each span as its name, the name of the span around it, and its outcome. All have to be closed.
fn shape(spans: &[SpanLine]) -> Vec<(&str, &str, &str)> {
    let closed = |span: &SpanLine| assert!(span.is_closed(), "{span:?} is open");
    spans.iter().for_each(closed);
    let shape = |span: &'static str| span;
    spans
        .iter()
        .map(|span| {
            let parent = span.parent.map_or("", shape);
            (span.name, parent, span.field("cenote.outcome"))
        })
        .collect()
}

#[tokio::test]
async fn a_statement_has_the_fields_of_opentelemetry() -> Result<()> {
    let db = open("fields", |builder| builder).await;
    let log = Log::new();
    let sql = "SELECT n, 'ada' FROM t UNION SELECT 1, 'bo'";
    let rows = db.query(sql, ()).await?;
    let line = line!() - 1;
    assert_eq!(rows.len(), 1);
    let spans = log.take_spans();
    assert_eq!(
        shape(&spans),
        [("statement", "", "ok"), ("acquire", "statement", "ok")]
    );
    let statement = &spans[0];
    for (name, expected) in [
        ("otel.name", "SELECT t SELECT"),
        ("otel.kind", "client"),
        ("db.system.name", "sqlite"),
        ("db.operation.name", "SELECT"),
        ("db.query.summary", "SELECT t SELECT"),
        ("db.response.returned_rows", "1"),
        ("code.line.number", &line.to_string()),
        ("db.query.text", ""),
        ("error.type", ""),
        ("otel.status_code", ""),
    ] {
        assert_eq!(statement.field(name), expected, "{name}");
    }
    assert!(statement.field("code.file.path").ends_with("spans.rs"));
    assert_eq!(spans[1].field("code.line.number"), line.to_string());

    db.exec("INSERT INTO t VALUES (1), (2)", ()).await?;
    assert_eq!(log.take_spans()[0].field("cenote.affected_rows"), "2");
    Ok(())
}

#[tokio::test]
async fn a_span_shows_masked_sql_only_if_asked_to() -> Result<()> {
    let secret = "SELECT 'swordfish'";
    let db = open("text", |builder| builder.span_text()).await;
    let silent = open("silent", |builder| builder).await;
    let log = Log::new();
    db.query(secret, ()).await?;
    silent.query(secret, ()).await?;
    let spans = log.take_spans();
    assert_eq!(spans[0].field("db.query.text"), "SELECT ***");
    assert!(!format!("{spans:?}").contains("swordfish"), "{spans:?}");
    assert!(!spans[2].fields.contains_key("db.query.text"));
    Ok(())
}

#[tokio::test]
async fn a_failed_statement_names_its_error() -> Result<()> {
    let fake = Fake::new();
    let db = fake.builder().open().await?;
    fake.fail_on("SELECT 1", "42P01");
    let log = Log::new();
    db.query("SELECT 1", ()).await.unwrap_err();
    let spans = log.take_spans();
    assert_eq!(shape(&spans)[0], ("statement", "", "failed"));
    for (name, expected) in [
        ("otel.status_code", "ERROR"),
        ("db.response.status_code", "42P01"),
        ("error.type", "Database"),
    ] {
        assert_eq!(spans[0].field(name), expected, "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn calls_of_a_transaction_are_inside_its_span() -> Result<()> {
    let db = open("transaction", |builder| builder).await;
    let log = Log::new();
    db.transaction(async || {
        db.exec("INSERT INTO t VALUES (1)", ()).await?;
        db.transaction(async || db.exec("DELETE FROM t", ()).await)
            .await?;
        Ok(())
    })
    .await?;
    let failed: Result<()> = db
        .transaction(async || Err(cenote::Error::other(std::io::Error::other("no"))))
        .await;
    failed.unwrap_err();
    assert_eq!(
        shape(&log.take_spans()),
        [
            ("transaction", "", "committed"),
            ("acquire", "transaction", "ok"),
            ("statement", "transaction", "ok"),
            ("transaction", "transaction", "committed"),
            ("statement", "transaction", "ok"),
            ("transaction", "", "rolled_back"),
            ("acquire", "transaction", "ok"),
        ]
    );
    Ok(())
}

#[tokio::test]
async fn a_guard_closes_the_span_of_its_transaction() -> Result<()> {
    let db = open("guard", |builder| builder).await;
    let log = Log::new();
    cenote::scope(async {
        let transaction = db.begin().await?;
        transaction.commit().await?;
        db.begin().await?.rollback().await?;
        drop(db.begin().await?);
        Ok::<_, cenote::Error>(())
    })
    .await?;
    let spans = log.take_spans();
    let outcomes: Vec<_> = shape(&spans)
        .into_iter()
        .filter(|(name, ..)| *name == "transaction")
        .map(|(.., outcome)| outcome)
        .collect();
    assert_eq!(outcomes, ["committed", "rolled_back", "dropped"]);
    Ok(())
}

#[tokio::test]
async fn the_span_of_a_stream_ends_with_the_stream() -> Result<()> {
    let db = open("stream", |builder| builder).await;
    db.exec("INSERT INTO t VALUES (1), (2), (3)", ()).await?;
    let log = Log::new();
    let mut rows = db.stream("SELECT n FROM t", ()).await?;
    while rows.try_next().await?.is_some() {}
    let mut dropped = db.stream("SELECT n FROM t", ()).await?;
    dropped.try_next().await?;
    drop(dropped);
    drop(rows);
    let spans = log.take_spans();
    let statements: Vec<_> = spans
        .iter()
        .filter(|span| span.name == "statement")
        .collect();
    let ended = |span: &SpanLine| {
        assert!(span.is_closed());
        let field = |name| span.field(name).to_owned();
        (field("cenote.outcome"), field("db.response.returned_rows"))
    };
    assert_eq!(ended(statements[0]), ("ok".into(), "3".into()));
    assert_eq!(ended(statements[1]), ("dropped".into(), "1".into()));
    Ok(())
}

#[test]
fn a_wait_for_a_connection_is_a_child_of_its_statement() {
    let fake = Fake::new();
    let db = now(fake.builder().max(1).open()).unwrap();
    let log = Log::new();
    let held = now(db.connection()).unwrap();
    let mut query = Hand::new(db.query("SELECT 1", ()));
    query.waits();
    // Another call between two polls is not inside the span of the waiting one.
    let mut other = Hand::new(db.query("SELECT 2", ()));
    other.waits();
    drop(held);
    query.finish().unwrap();
    other.finish().unwrap();
    assert_eq!(
        shape(&log.take_spans()),
        [
            ("acquire", "", "ok"),
            ("statement", "", "ok"),
            ("acquire", "statement", "ok"),
            ("statement", "", "ok"),
            ("acquire", "statement", "ok"),
        ]
    );
}

#[test]
fn a_call_dropped_at_any_poll_closes_its_spans() {
    for polls in 0.. {
        let fake = Fake::new();
        fake.poll_pending(2);
        let db = now(fake.builder().max(1).open()).unwrap();
        let log = Log::new();
        let done = cancel_after(polls, async {
            db.transaction(async || db.exec("INSERT INTO t VALUES (1)", ()).await)
                .await
        });
        let spans = log.take_spans();
        let shape = shape(&spans);
        if done.is_some() {
            assert!(polls > 3, "the test drops nothing");
            assert!(
                shape.iter().all(|(.., outcome)| *outcome != "dropped"),
                "{shape:?}"
            );
            return;
        }
        if polls > 0 {
            assert_eq!(
                shape[0],
                ("transaction", "", "dropped"),
                "after {polls} polls"
            );
            assert_eq!(
                shape
                    .iter()
                    .filter(|(.., outcome)| outcome.is_empty())
                    .count(),
                0
            );
        }
    }
}
