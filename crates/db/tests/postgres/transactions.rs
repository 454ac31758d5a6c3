//! What the answers of PostgreSQL say about a transaction and the session around it.

use cenote::Db;

use crate::servers::dsn;

/// A handle with one connection and a function that changes the session, which the server reports
/// when the transaction has ended.
async fn open_with_setter() -> Db {
    let dsn = crate::servers::client::own_schema(&dsn()).await;
    let db = Db::builder(&dsn).max(1).open().await.unwrap();
    db.exec(
        "CREATE FUNCTION sneak(name text, value text) RETURNS text LANGUAGE plpgsql AS \
         $$ BEGIN RETURN set_config(name, value, false); END $$",
        (),
    )
    .await
    .unwrap();
    db
}

#[tokio::test]
async fn h14_settings_reported_at_commit_do_not_leak() {
    for (name, value) in [
        ("TimeZone", "Asia/Tokyo"),
        ("DateStyle", "German"),
        ("IntervalStyle", "iso_8601"),
        ("application_name", "sneaked"),
        ("default_transaction_read_only", "on"),
    ] {
        let db = open_with_setter().await;
        let show = format!("SHOW {name}");
        let before: String = db.query_as_one(&show, ()).await.unwrap();
        db.transaction(async || {
            db.query("SELECT sneak(?, ?)", (name, value)).await?;
            Ok(())
        })
        .await
        .unwrap();
        let after: String = db.query_as_one(&show, ()).await.unwrap();
        assert_eq!(after, before, "{name}");
    }
}

#[tokio::test]
async fn h14_a_setting_reported_at_commit_stays_with_its_coroutine() {
    let db = open_with_setter().await;
    let inside: String = cenote::scope(async {
        let tx = db.begin().await.unwrap();
        tx.query("SELECT sneak('TimeZone', 'Asia/Tokyo')", ())
            .await
            .unwrap();
        tx.commit().await.unwrap();
        db.query_as_one("SHOW TimeZone", ()).await.unwrap()
    })
    .await;
    assert_eq!(inside, "Asia/Tokyo");
    let outside: String = db.query_as_one("SHOW TimeZone", ()).await.unwrap();
    assert_ne!(outside, "Asia/Tokyo");
}

#[tokio::test]
async fn h14_a_text_commit_reports_its_settings_too() {
    let db = open_with_setter().await;
    let before: String = db.query_as_one("SHOW TimeZone", ()).await.unwrap();
    for commit in ["COMMIT", "END", "COMMIT AND CHAIN"] {
        cenote::scope(async {
            db.exec("BEGIN", ()).await.unwrap();
            db.query("SELECT sneak('TimeZone', 'Asia/Tokyo')", ())
                .await
                .unwrap();
            db.exec(commit, ()).await.unwrap();
        })
        .await;
        let after: String = db.query_as_one("SHOW TimeZone", ()).await.unwrap();
        assert_eq!(after, before, "{commit}");
    }
}

#[tokio::test]
async fn h13_a_streamed_set_stays_with_its_coroutine() {
    for drops in [false, true] {
        let db = Db::builder(&dsn()).max(1).open().await.unwrap();
        cenote::scope(async {
            let mut rows = db.stream("SET TimeZone = 'Asia/Tokyo'", ()).await.unwrap();
            if !drops {
                assert!(rows.try_next().await.unwrap().is_none());
            }
            drop(rows);
            let zone: String = db.query_as_one("SHOW TimeZone", ()).await.unwrap();
            assert_eq!(zone, "Asia/Tokyo");
        })
        .await;
        let zone: String = db.query_as_one("SHOW TimeZone", ()).await.unwrap();
        assert_ne!(zone, "Asia/Tokyo");
    }
}
