//! What stays with a session of PostgreSQL, how it is noticed, and how it is brought back.

use std::time::Duration;

use cenote::driver::{Begin, Reset, Value};
use cenote::{Db, Error, Kind};

use crate::servers::client::{Client, value};
use crate::servers::dsn;
use crate::servers::own::OwnServer;
use crate::servers::scripted::{Scripted, message};

const PREPARED: &str = "SELECT count(*) FROM pg_catalog.pg_prepared_statements";

#[tokio::test]
async fn reset_takes_one_round_trip_and_keeps_our_statements() {
    let dsn = crate::servers::client::own_schema(&dsn()).await;
    let dsn = format!("{dsn};application_name=origin");
    let mut client = Client::open(&dsn).await;
    let schema = client.get::<String>("SELECT current_schema()::text").await;
    client.must("CREATE SEQUENCE s").await;
    client
        .script(
            "SET application_name = 'other'; SET search_path = pg_catalog; \
             CREATE TEMP TABLE scratch (n int); LISTEN channel; \
             SELECT pg_advisory_lock(4711); \
             BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT 1; COMMIT; \
             SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
        )
        .await
        .unwrap();
    for _ in 0..3 {
        client.run("SELECT $1::int + 1", &[value(1)]).await.unwrap();
    }
    let kept = client.own().kept_statements();
    let before = client.round_trips();
    assert_eq!(client.connection.reset().await.unwrap(), Reset::Done);
    assert_eq!(client.round_trips() - before, 1);
    assert_eq!(client.own().kept_statements(), kept);
    let before = client.round_trips();
    client.run("SELECT $1::int + 1", &[value(1)]).await.unwrap();
    assert_eq!(client.round_trips() - before, 1);

    let name = client.get::<String>("SHOW application_name").await;
    assert_eq!(name, "origin");
    let current = client.get::<String>("SELECT current_schema()::text").await;
    assert_eq!(current, schema);
    let read_only = client.get::<String>("SHOW transaction_read_only").await;
    assert_eq!(read_only, "off");
    assert_eq!(
        client.must_not("SELECT * FROM scratch").await.sql_state(),
        Some("42P01")
    );
    for left in [
        "SELECT count(*) FROM pg_catalog.pg_listening_channels()",
        "SELECT count(*) FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
        "SELECT count(*) FROM pg_catalog.pg_cursors WHERE name = 'c'",
    ] {
        assert_eq!(client.get::<i64>(left).await, 0, "{left}");
    }
}

#[tokio::test]
async fn application_statements_end_with_a_reset_and_take_ours_along() {
    let mut client = Client::new().await;
    for sql in ["SELECT 1", "SELECT 2"] {
        client.must(sql).await;
    }
    client.must("PREPARE mine AS SELECT 3").await;
    assert!(client.connection.session_changed());
    client.connection.reset().await.unwrap();
    assert_eq!(client.own().kept_statements(), 0);
    assert_eq!(client.get::<i64>(PREPARED).await, 1, "only this one");
    assert_eq!(
        client.must_not("EXECUTE mine").await.sql_state(),
        Some("26000")
    );
    for sql in ["SELECT 1", "SELECT 2"] {
        client.must(sql).await;
    }
}

#[tokio::test]
async fn a_deallocate_all_of_the_application_is_noticed() {
    let mut client = Client::new().await;
    for sql in ["DEALLOCATE ALL", "DISCARD ALL"] {
        for _ in 0..2 {
            client.must("SELECT 1").await;
        }
        client.script(sql).await.unwrap();
        assert!(client.connection.session_changed());
        for _ in 0..2 {
            assert_eq!(client.get::<i32>("SELECT 1").await, 1);
        }
    }
}

#[tokio::test]
async fn reported_settings_touch_the_session_unless_transaction_local() {
    let mut client = Client::new().await;
    let sql = "CREATE FUNCTION pg_temp.quietly(name text) RETURNS text LANGUAGE sql AS \
               'SELECT pg_catalog.set_config(''application_name'', name, false)'";
    client.must(sql).await;
    client.must("SELECT 1").await;
    assert!(!client.connection.session_changed());
    client.must("SELECT pg_temp.quietly('x')").await;
    assert!(
        client.connection.session_changed(),
        "the text tells nothing, the server does"
    );
    client.must("SELECT 1").await;
    assert!(
        !client.connection.session_changed(),
        "it is about the last call"
    );

    client
        .connection
        .begin_with(&Begin::default(), None)
        .await
        .unwrap();
    client.must("SET LOCAL application_name = 'y'").await;
    assert!(!client.connection.session_changed());
    client.connection.commit().await.unwrap();
    assert!(!client.connection.session_changed());

    client
        .connection
        .begin_with(&Begin::default(), None)
        .await
        .unwrap();
    client.must("SELECT pg_temp.quietly('z')").await;
    client.connection.commit().await.unwrap();
    assert!(
        client.connection.session_changed(),
        "it is reported once it is certain"
    );
    client.must("LISTEN channel").await;
    assert!(client.connection.session_changed());
}

#[tokio::test]
async fn a_setting_can_be_made_of_any_value_that_can_be_written() {
    let mut client = Client::new().await;
    for (name, value, shown) in [
        ("statement_timeout", Value::Int(12_000), "12s"),
        ("application_name", Value::Text("it's me".into()), "it's me"),
        ("enable_seqscan", Value::Bool(false), "off"),
        ("seq_page_cost", Value::Float(1.5), "1.5"),
        ("my.own", Value::Text("x".into()), "x"),
    ] {
        client.connection.set(name, &value).await.unwrap();
        assert_eq!(client.get::<String>(&format!("SHOW {name}")).await, shown);
    }
    let error = client
        .connection
        .set("no_such_setting", &Value::Int(1))
        .await;
    assert_eq!(error.unwrap_err().sql_state(), Some("42704"));
    let error = client.connection.set("my.own", &Value::Null).await;
    assert_eq!(error.unwrap_err().kind(), cenote::Kind::Type);
}

#[tokio::test]
async fn a_probe_notices_that_the_server_has_closed() {
    let mut client = Client::new().await;
    let mut other = Client::new().await;
    client.connection.probe(Duration::from_secs(1));
    assert!(!client.connection.is_broken());
    let process = client.own().process_id();
    other
        .must(&format!(
            "SELECT pg_catalog.pg_terminate_backend({process})"
        ))
        .await;
    let left = format!("SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE pid = {process}");
    while other.get::<i64>(&left).await > 0 {
        tokio::task::yield_now().await;
    }
    client.connection.probe(Duration::from_secs(1));
    assert!(client.connection.is_broken());
    let error = client.run("SELECT 1", &[]).await.unwrap_err();
    assert!(error.is_connection_lost(), "{error}");
}

#[tokio::test]
async fn a_probe_reads_what_arrived_while_idle() {
    let mut client = Client::new().await;
    let mut other = Client::new().await;
    client.must("LISTEN a_look").await;
    other.must("NOTIFY a_look, 'hello'").await;
    for _ in 0..100 {
        client.connection.probe(Duration::from_secs(1));
        assert!(!client.connection.is_broken());
        tokio::task::yield_now().await;
    }
    assert_eq!(client.get::<i32>("SELECT 7").await, 7);
}

#[tokio::test]
async fn a_connection_that_is_terminated_says_why() {
    let mut client = Client::new().await;
    let mut other = Client::new().await;
    let process = client.own().process_id();
    other
        .must(&format!(
            "SELECT pg_catalog.pg_terminate_backend({process})"
        ))
        .await;
    let left = format!("SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE pid = {process}");
    while other.get::<i64>(&left).await > 0 {
        tokio::task::yield_now().await;
    }
    let error = client.run("SELECT 1", &[]).await.unwrap_err();
    assert!(error.is_connection_lost(), "{error}");
    assert_eq!(error.sql_state(), Some("57P01"), "{error}");
    assert!(client.connection.is_broken());
}

/// Then the server would not read in a text what is read in it here.
#[tokio::test]
async fn a_session_in_which_backslashes_mean_something_is_not_used() {
    let refused = |error: Error| {
        assert_eq!(error.kind(), Kind::Config, "{error}");
        let says = error.message().contains("standard_conforming_strings");
        assert!(says, "{error}");
    };
    let off = "SET standard_conforming_strings = off";
    let usual = Db::builder(&dsn()).max(1).open().await.unwrap();
    let show = "SHOW standard_conforming_strings";
    // Nobody else finds it so.
    cenote::scope(async { usual.exec(off, ()).await.unwrap() }).await;
    assert_eq!(usual.query_as_one::<String>(show, ()).await.unwrap(), "on");
    for is_streamed in [false, true] {
        let own = usual.connection().await.unwrap();
        match is_streamed {
            true => drop(own.stream(off, ()).await.unwrap()),
            false => drop(own.exec(off, ()).await.unwrap()),
        }
        match is_streamed {
            true => refused(own.prepare(show).await.unwrap_err()),
            false => refused(own.exec(show, ()).await.unwrap_err()),
        }
        drop(own);
        assert_eq!(usual.query_as_one::<String>(show, ()).await.unwrap(), "on");
    }
    let undone = usual
        .transaction(async || {
            usual.exec(off, ()).await?;
            refused(usual.exec("SELECT 1", ()).await.unwrap_err());
            usual.exec("SELECT 1", ()).await
        })
        .await;
    assert_eq!(undone.unwrap_err().kind(), Kind::TransactionLost);

    let from_start = format!("{};set.standard_conforming_strings=off", dsn());
    let from_start = Db::open(&from_start).await.unwrap();
    refused(from_start.exec("SELECT 1", ()).await.unwrap_err());
    let off = usual.set_default("standard_conforming_strings", "off");
    refused(off.await.unwrap_err());
    usual.exec("SELECT 1", ()).await.unwrap();
    // A function that has it off for itself is nobody else's business.
    let schema = crate::servers::client::own_schema(&dsn()).await;
    let mut client = Client::open(&schema).await;
    client
        .must(
            "CREATE FUNCTION old() RETURNS text LANGUAGE sql \
             SET standard_conforming_strings = off AS 'SELECT ''a'''",
        )
        .await;
    assert_eq!(client.get::<String>("SELECT old()").await, "a");
}

fn is_refused_encoding(error: &Error) {
    assert_eq!(error.kind(), Kind::Config, "{error}");
    assert!(error.message().contains("client_encoding"), "{error}");
}

/// Every encoding but UTF8: multi-byte ones hide quotes, single-byte ones store other letters, and SQL_ASCII
/// sends what is not UTF-8.
const OTHER_ENCODINGS: [&str; 6] = ["LATIN1", "GBK", "SJIS", "BIG5", "WIN1252", "SQL_ASCII"];

#[tokio::test]
async fn h16_other_client_encodings_are_refused_at_connect() {
    for encoding in OTHER_ENCODINGS {
        let dsn = format!("{};set.client_encoding={encoding}", dsn());
        let db = Db::open(&dsn).await.unwrap();
        is_refused_encoding(&db.exec("SELECT 1", ()).await.unwrap_err());
        // A pooler or a server that does not do as it is asked.
        let server = Scripted::new(move |mut client| async move {
            client.read_startup().await;
            let report = format!("client_encoding\0{encoding}\0");
            let mut hello = message(b'R', &0_i32.to_be_bytes());
            hello.extend(message(b'S', report.as_bytes()));
            hello.extend(message(b'Z', b"I"));
            client.send(&hello).await;
            client.fall_silent().await;
        });
        let server = server.await;
        let db = Db::open(&server.dsn()).await.unwrap();
        is_refused_encoding(&db.exec("SELECT 1", ()).await.unwrap_err());
    }
    // What the role, the database or `options` say is overruled by what the client asks for.
    let name = crate::servers::unique("cenote_encoding");
    let mut admin = Client::new().await;
    for sql in [
        format!("CREATE DATABASE {name}"),
        format!("ALTER DATABASE {name} SET client_encoding = 'LATIN1'"),
        format!("ALTER ROLE cenote IN DATABASE {name} SET client_encoding = 'GBK'"),
    ] {
        admin.must(&sql).await;
    }
    let other = crate::servers::client::with_option(&dsn(), "dbname", &name);
    let db = Db::open(&other).await.unwrap();
    let encoding: String = db.query_as_one("SHOW client_encoding", ()).await.unwrap();
    assert_eq!(encoding, "UTF8");
    let dsn = format!("{};options='-c client_encoding=LATIN1'", dsn());
    let db = Db::open(&dsn).await.unwrap();
    let encoding: String = db.query_as_one("SHOW client_encoding", ()).await.unwrap();
    assert_eq!(encoding, "UTF8");
}

#[tokio::test]
async fn h16_nothing_runs_after_the_encoding_has_changed() {
    let db = Db::builder(&dsn()).max(1).open().await.unwrap();
    let shown = async || db.query_as_one::<String>("SHOW client_encoding", ()).await;
    for encoding in OTHER_ENCODINGS {
        for change in [
            format!("SET client_encoding = '{encoding}'"),
            format!("SET NAMES '{encoding}'"),
        ] {
            // The end of the coroutine resets it.
            cenote::scope(async { db.exec(&change, ()).await.unwrap() }).await;
            assert_eq!(shown().await.unwrap(), "UTF8", "{change}");
            for is_prepared in [false, true] {
                let own = db.connection().await.unwrap();
                own.exec(&change, ()).await.unwrap();
                let refused = match is_prepared {
                    false => own.exec("SELECT 'é'", ()).await.unwrap_err(),
                    true => own.prepare("SELECT 'é'").await.unwrap_err(),
                };
                is_refused_encoding(&refused);
                drop(own);
                assert_eq!(shown().await.unwrap(), "UTF8", "{change}");
            }
        }
    }
    let lost = db
        .transaction(async || {
            db.exec("SET LOCAL client_encoding = 'GBK'", ()).await?;
            // Under GBK the backslash would be the second half of a letter, and the lock would be taken.
            let hidden = "SELECT E'€\\', pg_advisory_lock(1), '";
            is_refused_encoding(&db.exec(hidden, ()).await.unwrap_err());
            db.exec("SELECT 1", ()).await
        })
        .await;
    assert_eq!(lost.unwrap_err().kind(), Kind::TransactionLost);
    let refused = db.set_default("client_encoding", "LATIN1").await;
    is_refused_encoding(&refused.unwrap_err());
    assert_eq!(shown().await.unwrap(), "UTF8");
}

#[tokio::test]
async fn h16_an_answer_in_another_encoding_is_an_error() {
    let schema = crate::servers::client::own_schema(&dsn()).await;
    let db = Db::builder(&schema).max(1).open().await.unwrap();
    db.exec(
        "CREATE FUNCTION quietly() RETURNS text LANGUAGE sql AS \
         'SELECT pg_catalog.set_config(''client_encoding'', ''LATIN1'', false)'",
        (),
    )
    .await
    .unwrap();
    db.exec("CREATE TABLE t (a text, b text)", ())
        .await
        .unwrap();
    let sql = "SELECT quietly(), 'Ã©'";
    // In LATIN1 these two letters are the bytes of an é.
    let error = db.query(sql, ()).await.unwrap_err();
    is_refused_encoding(&error);
    assert!(error.message().contains("was carried out"), "{error}");
    let mut stream = db.stream(sql, ()).await.unwrap();
    let ended = loop {
        match stream.try_next().await {
            Ok(Some(_)) => {}
            ended => break ended,
        }
    };
    is_refused_encoding(&ended.unwrap_err());
    drop(stream);
    let sets = [("a",), ("é",)];
    let sql = "INSERT INTO t VALUES (?, quietly())";
    is_refused_encoding(&db.exec_many(sql, sets).await.unwrap_err());
    // One statement by itself is read before it changes anything.
    db.exec("INSERT INTO t VALUES ('é', quietly())", ())
        .await
        .unwrap();
    let right: String = db
        .query_as_one("SELECT a FROM t WHERE a = 'é' AND b = 'LATIN1'", ())
        .await
        .unwrap();
    assert_eq!(right, "é");
}

/// The server reports it only with its next answer, and a reset would go back to it.
#[tokio::test]
async fn h16_a_default_that_was_changed_meanwhile_is_refused() {
    let server = OwnServer::start(&[]).await;
    let mut client = Client::open(&server.dsn()).await;
    let mut other = Client::open(&server.dsn()).await;
    client
        .must("ALTER SYSTEM SET standard_conforming_strings = off")
        .await;
    client.must("SELECT pg_reload_conf()").await;
    let error = loop {
        match client.run("SELECT 1", &[]).await {
            Ok(_) => tokio::task::yield_now().await,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), Kind::Config, "{error}");
    assert!(client.connection.is_broken());
    while !other.connection.session_changed() {
        other.must("SELECT 1").await;
    }
    assert_eq!(other.connection.reset().await.unwrap(), Reset::Replace);
}

#[tokio::test]
async fn h19_a_routine_with_an_atomic_body_ends_no_transaction() {
    let schema = crate::servers::client::own_schema(&dsn()).await;
    let db = Db::builder(&schema).max(1).open().await.unwrap();
    db.exec("CREATE TABLE t (a int)", ()).await.unwrap();
    let routine = "CREATE FUNCTION twice(a int) RETURNS int BEGIN ATOMIC \
                   INSERT INTO t VALUES (CASE WHEN a > 0 THEN a END); \
                   SELECT 2 * a AS end; END";
    let undone = db
        .transaction(async || {
            db.exec(routine, ()).await?;
            let four: i32 = db.query_as_one("SELECT twice(2)", ()).await?;
            assert_eq!(four, 4);
            Err::<(), _>(Error::new(Kind::Other, "to undo it"))
        })
        .await;
    assert_eq!(undone.unwrap_err().kind(), Kind::Other);
    let left: i64 = db.query_as_one("SELECT count(*) FROM t", ()).await.unwrap();
    assert_eq!(left, 0);
    db.transaction(async || db.exec(routine, ()).await.map(drop))
        .await
        .unwrap();
    assert_eq!(
        db.query_as_one::<i32>("SELECT twice(3)", ()).await.unwrap(),
        6
    );
}

/// A temporary table that nobody called so.
#[tokio::test]
async fn h20_a_temporary_schemas_table_reaches_no_other_task() {
    let db = Db::builder(&dsn()).max(1).open().await.unwrap();
    let look = "SELECT (to_regclass('pg_temp.hidden') IS NULL)";
    for path in [
        "SET LOCAL search_path = pg_temp",
        "SET LOCAL search_path = 'pg_temp'",
        "SELECT set_config('search_path', 'pg_temp', true)",
        "SELECT set_config('search_path', 'pg_' || 'temp', true)",
    ] {
        for create in [
            "CREATE TABLE hidden (a int)",
            "SELECT 1 AS a INTO hidden",
            "CREATE VIEW hidden AS SELECT 1 AS a",
            "CREATE SEQUENCE hidden",
        ] {
            db.transaction(async || {
                db.exec(path, ()).await?;
                db.exec(create, ()).await.map(drop)
            })
            .await
            .unwrap();
            let is_gone: bool = db.query_as_one(look, ()).await.unwrap();
            assert!(is_gone, "{path}; {create}");
        }
    }
}

/// They cost neither a pinned connection nor a reset.
#[tokio::test]
async fn h22_statements_that_change_no_session_pin_nothing() {
    let schema = crate::servers::client::own_schema(&dsn()).await;
    let db = Db::builder(&schema).max(1).open().await.unwrap();
    db.exec("CREATE TABLE t (a int)", ()).await.unwrap();
    db.exec("CREATE MATERIALIZED VIEW v AS SELECT 1", ())
        .await
        .unwrap();
    for sql in [
        "SHOW work_mem",
        "NOTIFY jobs, 'one'",
        "COMMENT ON TABLE t IS 'mine'",
        "ANALYZE t",
        "VACUUM t",
        "REINDEX TABLE t",
        "REFRESH MATERIALIZED VIEW v",
        "GRANT SELECT ON t TO PUBLIC",
        "REVOKE SELECT ON t FROM PUBLIC",
        "CREATE POLICY p ON t USING (true)",
    ] {
        cenote::scope(async {
            let done = db.exec(sql, ()).await;
            done.unwrap_or_else(|error| panic!("{sql}: {error}"));
            assert_eq!(db.status().active, 0, "{sql}");
        })
        .await;
        assert_eq!(db.status().active, 0, "{sql}");
    }
    cenote::scope(async {
        db.exec("DO 'BEGIN END'", ()).await.unwrap();
        assert_eq!(db.status().active, 1);
    })
    .await;
}

#[tokio::test]
async fn h0b_statements_are_kept_under_what_on_connect_has_set() {
    let db = Db::builder(&dsn())
        .max(1)
        .on_connect(async |link: &mut cenote::PooledConnection| {
            link.exec("SET TimeZone = 'Asia/Tokyo'").await
        })
        .open()
        .await
        .unwrap();
    let sql = "SELECT '2024-01-01 12:00'::timestamptz::text";
    for _ in 0..3 {
        let moment: String = db
            .transaction(async || db.query_as_one(sql, ()).await)
            .await
            .unwrap();
        assert_eq!(moment, "2024-01-01 12:00:00+09");
    }
    let kept = "SELECT count(*) FROM pg_catalog.pg_prepared_statements WHERE statement = ?";
    let kept: i64 = db.query_as_one(kept, (sql,)).await.unwrap();
    assert_eq!(kept, 1);
    // A touched session has statements of its own; after the reset the old ones are good again.
    cenote::scope(async {
        db.exec("SET TimeZone = 'UTC'", ()).await.unwrap();
        let moment: String = db.query_as_one(sql, ()).await.unwrap();
        assert_eq!(moment, "2024-01-01 12:00:00+00");
    })
    .await;
    let moment: String = db.query_as_one(sql, ()).await.unwrap();
    assert_eq!(moment, "2024-01-01 12:00:00+09");
}
