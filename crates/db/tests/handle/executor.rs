//! One function for all styles of use: executors, their options and their streams, on SQLite.
#![allow(
    clippy::disallowed_methods,
    reason = "tasks of users are spawned like this"
)]

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use cenote::sqlite::SqliteConnection;
use cenote::{CallOptions, Db, Executor, Kind, Result, Statement, scope};
use futures_core::Stream;
use tempfile::TempDir;

const ENDLESS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
                       SELECT count(*) FROM n";

const TAGGED: CallOptions = CallOptions::new().tag("checkout");

async fn notes() -> (Db, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("notes.db");
    let dsn = format!("sqlite:{}?in_place=on", file.display());
    let db = Db::builder(&dsn).max(3).open().await.unwrap();
    let create = "CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT NOT NULL)";
    db.exec(create, ()).await.unwrap();
    (db, folder)
}

/// A function that knows no style.
async fn add(db: impl Into<Executor<'_>>, text: &str) -> Result<Option<i64>> {
    let db = db.into();
    let added = db
        .exec("INSERT INTO note (text) VALUES (?)", (text,))
        .await?;
    assert_eq!(count(db).await?, count(&db).await?);
    Ok(added.last_insert_id)
}

async fn count(db: impl Into<Executor<'_>>) -> Result<i64> {
    db.into()
        .query_as_one("SELECT count(*) FROM note", ())
        .await
}

/// What `StreamExt::next` does.
async fn next<S: Stream + Unpin>(rows: &mut S) -> Option<S::Item> {
    poll_fn(|cx| Pin::new(&mut *rows).poll_next(cx)).await
}

/// Asks the only idle connection of a handle.
async fn ask<T>(db: &Db, question: impl Fn(&mut SqliteConnection) -> T) -> T {
    let mut lease = db.pool().unwrap().acquire().await.unwrap();
    let connection = lease.driver().as_any();
    question(connection.downcast_mut().unwrap())
}

#[tokio::test]
async fn executor_of_a_db_is_ambient() -> Result<()> {
    let (db, _folder) = notes().await;
    assert_eq!(add(&db, "un-pinned").await?, Some(1));
    let undone: Result<()> = db
        .transaction(async || {
            add(&db, "in the transaction").await?;
            add(db.with(TAGGED), "and with options").await?;
            assert_eq!(count(&db).await?, 3);
            assert_eq!(count(&db.outside()).await?, 1, "outside is outside");
            Err(cenote::Error::other("no"))
        })
        .await;
    assert_eq!(undone.unwrap_err().kind(), Kind::Other);
    assert_eq!(count(&db).await?, 1);
    Ok(())
}

#[tokio::test]
async fn executor_of_a_connection_runs_there_and_nowhere_else() -> Result<()> {
    let (db, _folder) = notes().await;
    let mut connection = db.connection().await?;
    connection
        .exec("CREATE TEMP TABLE own (n INTEGER)", ())
        .await?;
    let here = Executor::from(&connection);
    let own = "SELECT count(*) FROM own";
    assert_eq!(here.query_as_one::<i64>(own, ()).await?, 0);
    assert_eq!(here.with(TAGGED).query_as_one::<i64>(own, ()).await?, 0);
    assert!(
        db.query(own, ()).await.is_err(),
        "the table is that session's"
    );

    let tx = connection.begin().await?;
    add(&tx, "in tx").await?;
    add(tx.with(TAGGED), "in tx with options").await?;
    assert_eq!(count(&tx).await?, 2);
    assert_eq!(count(&db).await?, 0, "db is elsewhere");
    tx.rollback().await?;
    assert_eq!(count(&connection).await?, 0);
    Ok(())
}

#[tokio::test]
async fn executor_of_a_guard_runs_in_it_and_in_its_savepoint() -> Result<()> {
    let (db, _folder) = notes().await;
    scope(async {
        let mut tx = db.begin().await?;
        add(&tx, "kept").await?;
        let savepoint = tx.savepoint().await?;
        add(&savepoint, "undone").await?;
        savepoint.rollback().await?;
        tx.commit().await
    })
    .await?;
    assert_eq!(count(&db).await?, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_style_can_be_spawned_on_a_multi_thread_runtime() -> Result<()> {
    let (db, _folder) = notes().await;
    let of_db = db.clone();
    tokio::spawn(async move { add(&of_db, "db").await })
        .await
        .unwrap()?;
    let with_options = db.clone();
    tokio::spawn(async move { add(with_options.with(TAGGED), "options").await })
        .await
        .unwrap()?;
    let ambient = db.clone();
    let closure = async move {
        let in_closure = ambient.clone();
        ambient
            .transaction_options()
            .retry(async || add(&in_closure, "closure").await)
            .await
    };
    tokio::spawn(closure).await.unwrap()?;
    let explicit = db.clone();
    tokio::spawn(async move {
        let mut connection = explicit.connection().await?;
        add(&connection, "connection").await?;
        let tx = connection.transaction_options().begin().await?;
        add(&tx, "tx").await?;
        let mut rows = tx.stream_as::<(i64,)>("SELECT id FROM note", ()).await?;
        assert_eq!(rows.try_next().await?, Some((1,)));
        drop(rows);
        tx.commit().await
    })
    .await
    .unwrap()?;
    let guarded = db.clone();
    cenote::spawn(async move {
        let tx = guarded.begin().await?;
        add(&tx, "guard").await?;
        tx.commit().await
    })
    .await
    .unwrap()?;
    assert_eq!(count(&db).await?, 6);
    Ok(())
}

#[tokio::test]
async fn call_on_a_temporary_executor_can_be_awaited_later() -> Result<()> {
    let (db, _folder) = notes().await;
    let (one, two) = tokio::join!(
        db.with(TAGGED).query_as_one::<i64>("SELECT 1", ()),
        db.with(CallOptions::new())
            .query_as_one::<i64>("SELECT 2", ()),
    );
    assert_eq!((one?, two?), (1, 2));
    Ok(())
}

#[tokio::test]
async fn options_add_up_and_later_ones_win() {
    let (db, _folder) = notes().await;
    let minute = Duration::from_secs(60);
    let options = CallOptions::new().timeout(minute).tag("first");
    let executor = db
        .with(options)
        .with(CallOptions::new().tag("second").no_cache());
    let wanted = CallOptions::new().timeout(minute).no_cache().tag("second");
    let shown = format!("{executor:?}");
    assert!(shown.contains(&format!("{wanted:?}")), "{shown}");
}

#[tokio::test]
async fn timeout_of_a_call_cancels_it_and_frees_its_connection() -> Result<()> {
    let (db, _folder) = notes().await;
    let soon = CallOptions::new().timeout(Duration::from_millis(20));
    let late = db.with(soon).query(ENDLESS, ()).await.unwrap_err();
    assert_eq!(late.kind(), Kind::StatementTimeout);
    assert_eq!(db.with(soon).query_as_one::<i64>("SELECT 1", ()).await?, 1);
    let late = db.with(soon).stream(ENDLESS, ()).await;
    assert_eq!(late.unwrap_err().kind(), Kind::StatementTimeout);

    let doomed = db
        .transaction(async || {
            let late = db.with(soon).query(ENDLESS, ()).await.unwrap_err();
            assert_eq!(late.kind(), Kind::StatementTimeout);
            add(&db, "never").await
        })
        .await;
    assert_eq!(doomed.unwrap_err().kind(), Kind::Doomed);
    assert_eq!(count(&db).await?, 0);
    Ok(())
}

#[tokio::test]
async fn timeout_of_a_call_replaces_that_of_the_handle() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let dsn = format!("sqlite:{}", folder.path().join("slow.db").display());
    let db = Db::builder(&dsn)
        .statement_timeout(Duration::from_nanos(1))
        .open()
        .await?;
    let slow = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 200000)
                SELECT count(*) FROM n";
    let late = db.query(slow, ()).await.unwrap_err();
    assert_eq!(late.kind(), Kind::StatementTimeout);
    let minute = CallOptions::new().timeout(Duration::from_secs(60));
    assert_eq!(
        db.with(minute).query_as_one::<i64>(slow, ()).await?,
        200_000
    );
    Ok(())
}

#[tokio::test]
async fn tagged_statements_run_inline_like_others() -> Result<()> {
    let (db, _folder) = notes().await;
    add(&db, "one").await?;
    let read = "SELECT text FROM note WHERE id = ?";
    for _ in 0..4 {
        let text: String = db.with(TAGGED).query_as_one(read, (1,)).await?;
        assert_eq!(text, "one");
    }
    let runs = ask(&db, |connection| connection.in_place_runs()).await;
    let run = db.with(TAGGED).run(read, (1,)).await?;
    assert_eq!(run.columns()[0].name, "text");
    let none = db.with(TAGGED).run(read, (7,)).await?;
    assert_eq!((none.columns().len(), none.into_rows().len()), (1, 0));
    assert!(ask(&db, |connection| connection.in_place_runs()).await >= runs + 2);
    Ok(())
}

#[tokio::test]
async fn statement_without_cache_is_compiled_each_time() -> Result<()> {
    let (db, _folder) = notes().await;
    let read = "SELECT text FROM note WHERE id = ?";
    let compiled = || ask(&db, |connection| connection.compiled_statements());
    db.query(read, (1,)).await?;
    let before = compiled().await;
    db.query(read, (1,)).await?;
    assert_eq!(compiled().await, before, "it is kept");
    for n in 1..=2 {
        db.with(CallOptions::new().no_cache())
            .query(read, (1,))
            .await?;
        assert_eq!(compiled().await, before + n);
    }
    db.with(TAGGED).query(read, (1,)).await?;
    assert_eq!(compiled().await, before + 3, "a tag is part of the key");
    db.with(TAGGED).query(read, (1,)).await?;
    assert_eq!(compiled().await, before + 3);
    Ok(())
}

#[tokio::test]
async fn prepared_statement_keeps_the_tag_it_was_prepared_with() -> Result<()> {
    let (db, _folder) = notes().await;
    let options = TAGGED.no_cache();
    let statement: Statement = db
        .with(options)
        .prepare("SELECT count(*) FROM note")
        .await?;
    assert_eq!(statement.sql(), "SELECT count(*) FROM note");
    assert_eq!(statement.query_as::<i64>(()).await?, [0]);
    drop(statement);
    let compiled = ask(&db, |connection| connection.compiled_statements()).await;
    let again = db
        .with(TAGGED)
        .query("SELECT count(*) FROM note", ())
        .await?;
    assert_eq!(again.len(), 1);
    let now = ask(&db, |connection| connection.compiled_statements()).await;
    assert_eq!(now, compiled, "the tagged text is still prepared");
    Ok(())
}

#[tokio::test]
async fn tag_pins_and_classifies_as_the_bare_text_does() -> Result<()> {
    let (db, _folder) = notes().await;
    let left = db.with(TAGGED).exec("BEGIN", ()).await.unwrap_err();
    assert_eq!(left.kind(), Kind::LeftTransaction);
    let session = db.with(TAGGED).exec("PRAGMA cache_size = 9", ()).await;
    assert_eq!(session.unwrap_err().kind(), Kind::LeftSession);
    scope(async {
        db.with(TAGGED).exec("BEGIN", ()).await?;
        assert!(db.in_transaction());
        add(&db, "undone").await?;
        db.with(TAGGED).exec("ROLLBACK", ()).await?;
        assert!(!db.in_transaction());
        Ok::<_, cenote::Error>(())
    })
    .await?;
    assert_eq!(count(&db).await?, 0);
    let script = "INSERT INTO note (text) VALUES ('a'); INSERT INTO note (text) VALUES ('b')";
    db.with(TAGGED).exec(script, ()).await?;
    let many = db.with(TAGGED);
    many.exec_many("INSERT INTO note (text) VALUES (:text)", [("c",), ("d",)])
        .await
        .unwrap_err();
    many.exec_many("INSERT INTO note (text) VALUES (?)", [("c",), ("d",)])
        .await?;
    assert_eq!(count(&db).await?, 4);
    let wrong = "SELECT 'ö', wrong FROM note";
    let bare = db.query(wrong, ()).await.unwrap_err().position();
    let tagged = db.with(TAGGED).query(wrong, ()).await.unwrap_err();
    assert_eq!(tagged.position(), bare);
    Ok(())
}

#[tokio::test]
async fn stream_as_reads_rows_into_a_type() -> Result<()> {
    let (db, _folder) = notes().await;
    for text in ["1", "two", "3"] {
        add(&db, text).await?;
    }
    let sql = "SELECT id, text FROM note ORDER BY id";
    let mut rows = db.stream_as::<(i64, String)>(sql, ()).await?;
    assert_eq!(rows.columns()[1].name, "text");
    let mut read = Vec::new();
    while let Some(row) = rows.try_next().await? {
        read.push(row);
    }
    let wanted = [(1, "1"), (2, "two"), (3, "3")];
    assert_eq!(read, wanted.map(|(id, text)| (id, text.to_owned())));

    // A row that does not fit is an error of its own, also for one who reads it as a `Stream`.
    let mut rows = db
        .stream_as::<(i64, bool)>("SELECT 1, 1 UNION ALL SELECT 2, 'x'", ())
        .await?;
    assert_eq!(next(&mut rows).await.unwrap()?, (1, true));
    assert_eq!(
        next(&mut rows).await.unwrap().unwrap_err().kind(),
        Kind::Type
    );
    assert!(next(&mut rows).await.is_none());
    assert_eq!(count(&db).await?, 3, "the connection is back");
    Ok(())
}
