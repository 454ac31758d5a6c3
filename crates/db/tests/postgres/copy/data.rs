//! Data in and out: formats, sizes, backpressure, errors of the server.

use std::future::poll_fn;
use std::time::Duration;

use cenote::postgres::Bytes;
use cenote::{CallOptions, Kind};
use cenote_testkit::poll::{Hand, drop_after};
use futures_core::Stream;

use super::{CSV_IN, count, db, db_with, megabyte, read_all};
use crate::log::Log;
use crate::servers::{assert_whole, quiet, soon};

#[tokio::test]
async fn text_and_csv_go_in_and_come_out_the_same() {
    let db = db().await;
    for (format, data) in [
        ("text", "1\tada\n2\t\\N\n3\ttab\\tnew\\nline\n"),
        ("csv", "1,ada\n2,\n3,\"comma, \"\"quote\"\"\"\n"),
        ("csv, DELIMITER '?', NULL 'none'", "1?ada\n2?none\n"),
    ] {
        db.exec("TRUNCATE t", ()).await.unwrap();
        let sql = format!("COPY t (id, name) FROM STDIN (FORMAT {format})");
        let mut copy = db.copy_in(&sql).await.unwrap();
        // Pieces need not end where rows end, and may be empty.
        for piece in data.as_bytes().chunks(7) {
            copy.send(piece.to_vec()).await.unwrap();
            copy.send(Bytes::new()).await.unwrap();
        }
        let rows = u64::try_from(data.lines().count()).unwrap();
        assert_eq!(copy.finish().await.unwrap(), rows, "{format}");
        let sql = format!("COPY (SELECT id, name FROM t ORDER BY id) TO STDOUT (FORMAT {format})");
        let copy = db.copy_out(&sql).await.unwrap();
        assert_eq!(read_all(copy).await.unwrap(), data, "{format}");
    }
    assert_whole(&db).await;
}

#[tokio::test]
async fn binary_data_goes_out_and_in_again() {
    let db = db().await;
    let sql = "INSERT INTO t SELECT n, repeat('x', n::int) FROM generate_series(1, 1000) n";
    db.exec(sql, ()).await.unwrap();
    let mut out = db
        .copy_out("COPY t TO STDOUT (FORMAT binary)")
        .await
        .unwrap();
    let mut data = Vec::new();
    while let Some(piece) = out.try_next().await.unwrap() {
        data.push(piece);
    }
    db.exec("TRUNCATE t", ()).await.unwrap();
    let mut copy = db
        .copy_in("COPY t FROM STDIN (FORMAT binary)")
        .await
        .unwrap();
    for piece in data {
        copy.send(piece).await.unwrap();
    }
    assert_eq!(copy.finish().await.unwrap(), 1000);
    let sum = "SELECT sum(length(name)) FROM t";
    assert_eq!(
        db.query_scalar_one::<i64>(sql_int(sum).as_str(), ())
            .await
            .unwrap(),
        500_500
    );
}

fn sql_int(sql: &str) -> String {
    format!("SELECT ({sql})::int8")
}

#[tokio::test]
async fn a_copy_without_data_stores_and_gives_nothing() {
    let db = db().await;
    let copy = db.copy_in(CSV_IN).await.unwrap();
    assert_eq!(copy.finish().await.unwrap(), 0);
    let mut out = db.copy_out("COPY t TO STDOUT").await.unwrap();
    for _ in 0..3 {
        assert_eq!(out.try_next().await.unwrap(), None);
    }
    quiet(&db).await;
}

#[tokio::test]
async fn copy_out_is_a_stream_of_pieces_of_whole_rows() {
    let db = db().await;
    let sql = "COPY (SELECT n, repeat('x', 100) FROM generate_series(1, 100000) n) TO STDOUT";
    let mut out = db.copy_out(sql).await.unwrap();
    let (mut rows, mut pieces) = (0, 0);
    while let Some(piece) = poll_fn(|cx| std::pin::pin!(&mut out).poll_next(cx)).await {
        let piece = piece.unwrap();
        assert_eq!(piece.last(), Some(&b'\n'));
        // Bounded: one row more than 64 KiB.
        assert!(piece.len() < 66_000, "{}", piece.len());
        rows += piece.iter().filter(|byte| **byte == b'\n').count();
        pieces += 1;
    }
    assert_eq!(rows, 100_000);
    assert!(pieces > 100);
}

#[tokio::test]
async fn send_waits_while_the_server_takes_no_data() {
    let db = db_with(|builder| builder.max(3)).await;
    let admin = db.connection().await.unwrap();
    admin
        .exec("BEGIN; LOCK TABLE t IN SHARE MODE", ())
        .await
        .unwrap();
    let mut copy = Hand::new(db.copy_in(CSV_IN));
    // The COPY itself waits for the lock: no data is asked for.
    assert!(copy.poll().is_pending());
    drop(copy);
    admin.exec("ROLLBACK", ()).await.unwrap();

    // A trigger that waits: the server does not read.
    db.run_all(
        "CREATE FUNCTION waits() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN PERFORM pg_advisory_xact_lock(770077); RETURN NEW; END'; \
         CREATE TRIGGER waits BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION waits()",
        (),
    )
    .await
    .unwrap();
    admin
        .exec("SELECT pg_advisory_lock(770077)", ())
        .await
        .unwrap();
    let mut copy = db.copy_in(CSV_IN).await.unwrap();
    let (mut sent, mut id) = (0, 0);
    let data = loop {
        let (data, next) = megabyte(id);
        let data = Bytes::from(data);
        // What the sockets take is bounded, and what the connection keeps is, too.
        if drop_after(1, copy.send(data.clone())).await.is_none() {
            break data;
        }
        (sent, id) = (sent + 1, next);
        assert!(sent < 50, "nothing holds the data back");
    };
    admin
        .exec("SELECT pg_advisory_unlock(770077)", ())
        .await
        .unwrap();
    // A dropped send has taken nothing: the same data is sent again.
    copy.send(data).await.unwrap();
    let rows = copy.finish().await.unwrap();
    assert_eq!(i64::try_from(rows).unwrap(), count(&db).await);
    assert_eq!(usize::try_from(rows).unwrap(), megabyte(id).1);
}

#[tokio::test]
async fn error_of_the_server_ends_a_long_copy_early() {
    for through_unix in [false, true] {
        let db = match through_unix {
            false => db().await,
            true => {
                let dsn = crate::servers::client::own_schema(&crate::servers::unix_dsn()).await;
                let db = cenote::Db::builder(&dsn).max(2).open().await.unwrap();
                let sql = "CREATE TABLE t (id int8 PRIMARY KEY, name text)";
                db.exec(sql, ()).await.unwrap();
                db
            }
        };
        let mut copy = db.copy_in(CSV_IN).await.unwrap();
        copy.send("1,a\n2,b\nx,c\n").await.unwrap();
        let mut sent = 0;
        let error = soon("the server's error arrives", async {
            loop {
                let (data, _) = megabyte(10);
                match copy.send(data).await {
                    Ok(()) => sent += 1,
                    Err(error) => break error,
                }
                assert!(sent < 100, "nobody notices the error");
            }
        })
        .await;
        assert_eq!(error.sql_state(), Some("22P02"), "{error}");
        assert_eq!((error.row(), error.column()), (Some(2), Some("id")));
        let shown = error.to_string();
        assert!(shown.contains("row 2, column id"), "{shown}");
        assert!(!shown.contains("\"x\""), "values are not shown: {shown}");
        assert_eq!(error.sql(), Some(CSV_IN));
        assert_eq!(error.call_site().unwrap().file(), file!());
        // The error stays.
        let again = copy.send("4,d\n").await.unwrap_err();
        assert_eq!(again.sql_state(), Some("22P02"));
        assert_eq!(copy.finish().await.unwrap_err().sql_state(), Some("22P02"));
        assert_eq!(count(&db).await, 0);
        assert_whole(&db).await;
    }
}

#[tokio::test]
async fn error_at_the_end_names_the_line_and_stores_nothing() {
    let db = db().await;
    for (data, state, row, column) in [
        ("1,a\n1,b\n", "23505", 1, None),
        ("1,a\n2,b,c\n", "22P04", 1, None),
        (",a\n", "23502", 0, Some("id")),
        // The field ends at the end of the data, on the line after it.
        ("1,a\n2,\"b\n", "22P04", 2, None),
    ] {
        let mut copy = db.copy_in(CSV_IN).await.unwrap();
        copy.send(data).await.unwrap();
        let error = copy.finish().await.unwrap_err();
        assert_eq!(error.sql_state(), Some(state), "{error}");
        assert_eq!(
            (error.row(), error.column()),
            (Some(row), column),
            "{error}"
        );
        assert_eq!(count(&db).await, 0);
    }
    assert_whole(&db).await;
}

#[tokio::test]
async fn error_in_the_middle_of_copy_out_ends_it() {
    let db = db().await;
    let sql =
        "COPY (SELECT 1 / (5000 - n), repeat('x', 100) FROM generate_series(1, 9000) n) TO STDOUT";
    let mut out = db.copy_out(sql).await.unwrap();
    let error = loop {
        match out.try_next().await {
            Ok(piece) => drop(piece.expect("it cannot end well")),
            Err(error) => break error,
        }
    };
    assert_eq!(error.sql_state(), Some("22012"));
    assert_eq!(error.sql(), Some(sql));
    assert_eq!(out.try_next().await.unwrap(), None);
    assert_whole(&db).await;
}

#[tokio::test]
async fn copy_out_that_is_dropped_gives_a_clean_connection_back() {
    let db = db_with(|builder| builder.max(1)).await;
    let before = crate::servers::session_id(&db).await;
    let sql = "COPY (SELECT n, repeat('x', 100) FROM generate_series(1, 5000000) n) TO STDOUT";
    for pieces in 0..3 {
        let mut out = db.copy_out(sql).await.unwrap();
        for _ in 0..pieces {
            out.try_next().await.unwrap().unwrap();
        }
        drop(out);
        // The rest is cancelled: the same session goes on.
        let session = soon("the next call", crate::servers::session_id(&db)).await;
        assert_eq!(session, before);
    }
    // One that writes is not undone.
    let sql = "COPY (INSERT INTO t SELECT n, repeat('x', 1000) FROM generate_series(1, 20000) n \
               RETURNING *) TO STDOUT";
    let mut out = db.copy_out(sql).await.unwrap();
    out.try_next().await.unwrap().unwrap();
    drop(out);
    assert_eq!(count(&db).await, 20_000);
}

#[tokio::test]
async fn time_limits_end_a_copy() {
    let limit = Duration::from_millis(200);
    let db = db_with(|builder| builder.max(2)).await;
    db.run_all(
        "CREATE FUNCTION sleeps() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN PERFORM pg_sleep(3600); RETURN NEW; END'; \
         CREATE TRIGGER sleeps BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION sleeps()",
        (),
    )
    .await
    .unwrap();
    let limited = db.with(CallOptions::new().timeout(limit));
    let rows = (0..10).map(|id| (id, "x"));
    let copied = limited.copy_in_rows("t", &["id", "name"], rows);
    let error = soon("its end", copied).await.unwrap_err();
    assert_eq!(error.kind(), Kind::StatementTimeout, "{error}");
    let mut copy = limited.copy_in(CSV_IN).await.unwrap();
    copy.send("1,a\n").await.unwrap();
    let error = soon("its end", copy.finish()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::StatementTimeout, "{error}");
    let mut copy = limited.copy_in(CSV_IN).await.unwrap();
    let error = soon("its end", async {
        loop {
            if let Err(error) = copy.send(megabyte(1).0).await {
                break error;
            }
        }
    })
    .await;
    assert_eq!(error.kind(), Kind::StatementTimeout, "{error}");
    assert_eq!(
        copy.finish().await.unwrap_err().kind(),
        Kind::StatementTimeout
    );
    assert_whole(&db).await;
    assert_eq!(count(&db).await, 0);
}

#[tokio::test]
async fn the_statement_log_has_copies_with_their_rows() {
    let db = db().await;
    let log = Log::new();
    db.copy_in_rows("t", &["id"], [1, 2]).await.unwrap();
    let lines = log.take(tracing::Level::DEBUG, "cenote::statement");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].contains("COPY \"t\" (\"id\") FROM STDIN"),
        "{lines:?}"
    );
    assert!(lines[0].contains("rows=2"), "{lines:?}");
    let mut copy = db.copy_in(CSV_IN).await.unwrap();
    copy.send("3,a\n").await.unwrap();
    copy.finish().await.unwrap();
    let lines = log.take(tracing::Level::DEBUG, "cenote::statement");
    assert_eq!(lines.len(), 2, "the start and the end: {lines:?}");
    assert!(
        lines[1].contains("rows=1") && lines[1].contains("COPY t FROM STDIN"),
        "{lines:?}"
    );
}

#[tokio::test]
async fn an_acquire_that_waits_for_a_copy_names_its_line() {
    let db = db_with(|builder| builder.max(1).acquire_timeout(Duration::from_secs(1))).await;
    let copy = db.copy_in(CSV_IN).await.unwrap();
    let line = line!() - 1;
    let error = db.query("SELECT 1", ()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Timeout);
    let holder = error.holders().first().unwrap();
    assert_eq!(holder.caller.line(), line);
    drop(copy);
    assert_whole(&db).await;
}

#[tokio::test]
async fn a_tag_is_sent_with_a_copy() {
    let db = db().await;
    let tagged = db.with(CallOptions::new().tag("import"));
    let rows = tagged.copy_in_rows("t", &["id"], [1, 2, 3]);
    assert_eq!(rows.await.unwrap(), 3);
    let sql = "COPY (SELECT query FROM pg_stat_activity WHERE pid = pg_backend_pid()) TO STDOUT";
    let shown = read_all(tagged.copy_out(sql).await.unwrap()).await.unwrap();
    assert!(shown.starts_with("/* import */ COPY"), "{shown}");
}
