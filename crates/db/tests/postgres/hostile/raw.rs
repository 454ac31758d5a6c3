//! Transactions that an application begins and ends by its own SQL, through a handle.

use cenote::{Db, Kind};

use crate::servers::{own_tables, soon};

/// A handle with a table, and in its scope a transaction that has failed after a row was written.
async fn failed(db: &Db) {
    db.exec("BEGIN", ()).await.unwrap();
    db.exec("INSERT INTO t VALUES (1)", ()).await.unwrap();
    db.exec("SELECT 1 / 0", ()).await.unwrap_err();
}

async fn handle() -> Db {
    let db = own_tables(|builder| builder.max(2)).await;
    db.exec("CREATE TABLE t (n int)", ()).await.unwrap();
    db
}

async fn count(db: &Db) -> i64 {
    db.query_as_one("SELECT count(*) FROM t", ()).await.unwrap()
}

#[tokio::test]
async fn ending_a_failed_transaction_never_reports_a_commit() {
    let db = handle().await;
    for end in [
        "COMMIT",
        "COMMIT WORK",
        "END",
        "COMMIT AND NO CHAIN",
        "/* so */ commit",
        "COMMIT; SELECT 1",
        "PREPARE TRANSACTION 'two'",
        "COMMIT AND CHAIN",
    ] {
        let (db, db_in) = (db.clone(), db.clone());
        let ended = cenote::scope(async move {
            failed(&db_in).await;
            db_in.exec(end, ()).await
        })
        .await;
        assert_eq!(soon("a count", count(&db)).await, 0, "{end}");
        let error = ended.expect_err(end);
        assert_eq!(error.kind(), Kind::RolledBack, "{end}: {error}");
    }
}

/// A database of one connection with a function `quietly()`, which changes the session.
async fn with_quiet_function() -> Db {
    let db = own_tables(|builder| builder.max(1)).await;
    db.exec(
        "CREATE FUNCTION quietly() RETURNS text LANGUAGE sql AS \
         $$ SELECT pg_catalog.set_config('TimeZone', 'Asia/Tokyo', false) $$",
        (),
    )
    .await
    .unwrap();
    db
}

/// What one task leaves behind in a session, the next does not find.
#[tokio::test]
async fn what_a_dropped_call_did_to_the_session_is_undone_as_well() {
    let db = with_quiet_function().await;
    for polls in 0..6 {
        let dropper = db.clone();
        let call = cenote::scope(async move { dropper.exec("SELECT quietly()", ()).await });
        let _ = cenote_testkit::poll::drop_after(polls, call).await;
        let zone: String = soon("to ask", db.query_as_one("SHOW TimeZone", ()))
            .await
            .unwrap();
        assert_eq!(zone, "UTC", "{polls} polls");
    }
}

/// Nothing in the text tells that it does.
#[tokio::test]
async fn session_change_by_a_function_outside_coroutines_is_undone() {
    let db = with_quiet_function().await;
    for _ in 0..3 {
        let set: String = db.query_as_one("SELECT quietly()", ()).await.unwrap();
        assert_eq!(set, "Asia/Tokyo");
        let zone: String = soon("to ask", db.query_as_one("SHOW TimeZone", ()))
            .await
            .unwrap();
        assert_eq!(zone, "UTC");
    }
}
