//! What is refused: COPY as a text, other texts as a COPY, and databases without COPY.

use cenote::driver::Request;
use cenote::{Db, Kind};

use super::{CSV_IN, count, db};
use crate::servers::assert_whole;
use crate::servers::client::Client;

/// Names the calls that do it.
fn points_to_copy(error: &cenote::Error) {
    assert_eq!(error.kind(), Kind::Unsupported, "{error}");
    for name in ["copy_in", "copy_in_rows", "copy_out"] {
        assert!(error.message().contains(name), "{error}");
    }
}

#[tokio::test]
async fn copy_as_a_text_names_the_calls_that_do_it() {
    let db = db().await;
    for sql in [CSV_IN, "COPY t TO STDOUT", "COPY (SELECT 1) TO STDOUT"] {
        points_to_copy(&db.exec(sql, ()).await.unwrap_err());
        points_to_copy(&db.query(sql, ()).await.unwrap_err());
        points_to_copy(&db.run_all(sql, ()).await.unwrap_err());
        points_to_copy(&db.prepare(sql).await.unwrap_err());
        points_to_copy(&db.stream(sql, ()).await.unwrap_err());
        points_to_copy(&db.exec_many(sql, [(), ()]).await.unwrap_err());
        let error = db
            .transaction(async || db.exec(sql, ()).await.map(drop))
            .await;
        points_to_copy(&error.unwrap_err());
    }
    // The server answers a script with the failure of its COPY, which comes first.
    let error = db.exec("SELECT 1; COPY t TO STDOUT", ()).await.unwrap_err();
    points_to_copy(&error);
    assert!(db.exec("SELECT 1; COPY t FROM STDIN", ()).await.is_err());
    assert_eq!(count(&db).await, 0);
    assert_whole(&db).await;
}

#[tokio::test]
async fn a_text_that_is_no_client_copy_is_refused_unsent() {
    let mut client = Client::in_own_schema().await;
    client.must("CREATE TABLE t (n int)").await;
    let db = db().await;
    for sql in [
        "SELECT 1",
        "",
        "COPY t FROM '/etc/passwd'",
        "COPY t FROM PROGRAM 'cat'",
        "COPY t TO '/tmp/file'",
        "COPY t FROM STDIN; DROP TABLE t",
        "SELECT 1; COPY t FROM STDIN",
        "COPY t",
    ] {
        let error = db.copy_in(sql).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported, "{sql}: {error}");
        assert!(error.message().contains("FROM STDIN"), "{error}");
        let error = db.copy_out(sql).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported, "{sql}: {error}");
        assert!(error.message().contains("TO STDOUT"), "{error}");
    }
    let error = db.copy_in("COPY t TO STDOUT").await.unwrap_err();
    assert!(error.message().contains("use copy_out"), "{error}");
    let error = db.copy_out(CSV_IN).await.unwrap_err();
    assert!(error.message().contains("use copy_in"), "{error}");
    let error = db.copy_out("COPY (SELECT ?) TO STDOUT").await.unwrap_err();
    assert_eq!(error.kind(), Kind::Parameters, "{error}");
    // The driver itself refuses, too.
    let before = client.round_trips();
    assert!(
        client
            .connection
            .run(Request::new(CSV_IN, &[]))
            .await
            .is_err()
    );
    assert_eq!(client.round_trips(), before);
    assert_eq!(count(&db).await, 0);
}

#[tokio::test]
async fn errors_of_the_start_are_the_servers() {
    let db = db().await;
    for (sql, state) in [
        ("COPY missing FROM STDIN", "42P01"),
        ("COPY t (nothing) FROM STDIN", "42703"),
        ("COPY t FROM STDIN (FORMAT nothing)", "22023"),
        ("COPY t FROM STDIN (", "42601"),
    ] {
        let error = db.copy_in(sql).await.unwrap_err();
        assert_eq!(error.sql_state(), Some(state), "{error}");
        assert_eq!(error.sql(), Some(sql));
        let error = db.copy_out(&sql.replace("FROM STDIN", "TO STDOUT")).await;
        assert_eq!(error.unwrap_err().sql_state(), Some(state));
    }
    let error = db.copy_in("COPY missing FROM STDIN").await.unwrap_err();
    assert!(error.position().is_none_or(|at| at == 6), "{error}");
    let read_only = db.transaction_options().read_only();
    let copied = read_only
        .run(async || db.copy_in(CSV_IN).await.map(drop))
        .await;
    assert_eq!(copied.unwrap_err().sql_state(), Some("25006"));
    assert_whole(&db).await;
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn another_database_refuses_and_names_exec_many() {
    let db = Db::open("sqlite:file:copy-refused?mode=memory&cache=shared")
        .await
        .unwrap();
    db.exec("CREATE TABLE t (id INTEGER)", ()).await.unwrap();
    for error in [
        db.copy_in(CSV_IN).await.map(drop).unwrap_err(),
        db.copy_out("COPY t TO STDOUT").await.map(drop).unwrap_err(),
        db.copy_in_rows("t", &["id"], [1])
            .await
            .map(drop)
            .unwrap_err(),
    ] {
        assert_eq!(error.kind(), Kind::Unsupported, "{error}");
        assert!(error.message().contains("exec_many"), "{error}");
    }
}
