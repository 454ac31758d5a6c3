//! What a session of PostgreSQL can hold, and that none of it reaches the next one who gets the connection.
//!
//! The list is taken from the server's manual: DISCARD, SET, LOAD, "Prepared statements", "Cursors", "Advisory locks",
//! "Large objects", "Replication progress tracking", "Backup control", "dblink", `setseed`, sequence functions.

use cenote::{Db, ResetPolicy, Result};

use crate::servers::client::{Client, own_schema};
use crate::servers::dsn;

/// What a session can hold.
struct Held {
    name: &'static str,
    /// What plants it. `LINK` stands for a connection string.
    plant: &'static str,
    /// What is looked at: it has to be what a session that nobody has used says.
    look: &'static str,
    /// What becomes of the connection: a reset undoes it, or another one takes its place.
    by: By,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Reset,
    Replacement,
}

const fn held(name: &'static str, plant: &'static str, look: &'static str, by: By) -> Held {
    Held {
        name,
        plant,
        look,
        by,
    }
}

const HELD: &[Held] = &[
    held(
        "setting",
        "SET statement_timeout = 12345",
        "SHOW statement_timeout",
        By::Reset,
    ),
    held(
        "search_path",
        "SET search_path = pg_catalog",
        "SHOW search_path",
        By::Reset,
    ),
    held(
        "setting by function",
        "SELECT set_config('work_mem', '70kB', false)",
        "SHOW work_mem",
        By::Reset,
    ),
    held(
        "setting by view",
        "UPDATE pg_settings SET setting = '71' WHERE name = 'work_mem'",
        "SHOW work_mem",
        By::Replacement,
    ),
    held(
        "custom setting",
        "SET my.own = 'secret'",
        "SELECT coalesce(current_setting('my.own', true), '')",
        By::Reset,
    ),
    held(
        "session characteristics",
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY, ISOLATION LEVEL SERIALIZABLE",
        "SELECT current_setting('transaction_read_only') || current_setting('transaction_isolation')",
        By::Reset,
    ),
    held(
        "role",
        "SET ROLE trusted",
        "SELECT current_user::text",
        By::Reset,
    ),
    held(
        "session authorization",
        "SET SESSION AUTHORIZATION trusted",
        "SELECT session_user::text",
        By::Reset,
    ),
    held(
        "channel",
        "DO $$ BEGIN EXECUTE 'LISTEN news'; END $$",
        "SELECT count(*)::text FROM pg_listening_channels()",
        By::Reset,
    ),
    held(
        "temporary table",
        "CREATE TEMP TABLE scratch AS SELECT 1",
        "SELECT (to_regclass('pg_temp.scratch') IS NULL)::text",
        By::Reset,
    ),
    held(
        "temporary function",
        "CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "SELECT count(*)::text FROM pg_proc \
         WHERE proname = 'f' AND pronamespace = pg_my_temp_schema()",
        By::Reset,
    ),
    held(
        "advisory lock",
        "SELECT pg_advisory_lock(4711)",
        "SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
        By::Reset,
    ),
    held(
        "cursor",
        "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
        "SELECT count(*)::text FROM pg_cursors WHERE name = 'c'",
        By::Reset,
    ),
    held(
        "prepared statement",
        "PREPARE mine AS SELECT 1",
        "SELECT count(*)::text FROM pg_prepared_statements WHERE name = 'mine'",
        By::Reset,
    ),
    held(
        "prepared statement of a block",
        "DO $$ BEGIN EXECUTE 'PREPARE mine AS SELECT 1'; END $$",
        "SELECT count(*)::text FROM pg_prepared_statements WHERE name = 'mine'",
        By::Reset,
    ),
    held(
        "prepared statement of a procedure",
        "CALL prepare_mine()",
        "SELECT count(*)::text FROM pg_prepared_statements WHERE name = 'mine'",
        By::Reset,
    ),
    held(
        "large object",
        "DO $$ BEGIN PERFORM lo_open(lo_create(0), 131072); END $$",
        "SELECT has_descriptor(0)::text",
        By::Reset,
    ),
    held(
        "seed",
        "SELECT setseed(0.5)",
        "SELECT (random() IN (SELECT * FROM seeded))::text",
        By::Replacement,
    ),
    held(
        "seed by setting",
        "SET seed = 0.5",
        "SELECT (random() IN (SELECT * FROM seeded))::text",
        By::Replacement,
    ),
    held(
        "seed for a transaction",
        "SELECT set_config('seed', '0.5', true)",
        "SELECT (random() IN (SELECT * FROM seeded))::text",
        By::Replacement,
    ),
    held(
        "seed of a block",
        "DO $$ BEGIN PERFORM setseed(0.5); END $$",
        "SELECT (random() IN (SELECT * FROM seeded))::text",
        By::Replacement,
    ),
    held(
        "library",
        "LOAD 'auto_explain'",
        "SELECT count(*)::text FROM pg_settings WHERE name LIKE 'auto_explain.%'",
        By::Replacement,
    ),
    held(
        "library of a block",
        "DO $$ BEGIN LOAD 'auto_explain'; END $$",
        "SELECT count(*)::text FROM pg_settings WHERE name LIKE 'auto_explain.%'",
        By::Replacement,
    ),
    held(
        "named dblink",
        "SELECT dblink_connect('other', LINK)",
        "SELECT coalesce(array_length(dblink_get_connections(), 1), 0)::text",
        By::Replacement,
    ),
    held(
        "unnamed dblink",
        "SELECT dblink_connect(LINK)",
        "SELECT has_link()::text",
        By::Replacement,
    ),
    held(
        "origin of replication",
        "SELECT pg_replication_origin_session_setup('far')",
        "SELECT pg_replication_origin_session_is_setup()::text",
        By::Replacement,
    ),
    held(
        "mode of an extension",
        "SELECT isn_weak(true)",
        "SELECT isn_weak()::text",
        By::Replacement,
    ),
    held(
        "backup",
        "SELECT pg_backup_start('b', true)",
        "SELECT in_backup()::text",
        By::Replacement,
    ),
    held(
        "temporary slot",
        "SELECT pg_create_physical_replication_slot('temporary_slot', false, true)",
        "SELECT count(*)::text FROM pg_replication_slots WHERE active_pid = pg_backend_pid()",
        By::Replacement,
    ),
];

/// `currval` of a sequence and `lastval`.
const SEQUENCE: &str = "SELECT nextval('s')";

/// An empty database of its own, since extensions and origins are not a schema's.
async fn house() -> String {
    let mut admin = Client::new().await;
    let name = crate::servers::unique("cenote_reset");
    admin.must(&format!("CREATE DATABASE {name}")).await;
    let dsn = crate::servers::client::with_option(&dsn(), "dbname", &name);
    let mut client = Client::open(&dsn).await;
    for sql in [
        "CREATE EXTENSION dblink",
        "CREATE EXTENSION isn",
        "CREATE SEQUENCE s",
        "SELECT setseed(0.5)",
        "CREATE TABLE seeded AS SELECT random() FROM generate_series(1, 9)",
        "CREATE PROCEDURE prepare_mine() LANGUAGE plpgsql AS \
         $$ BEGIN EXECUTE 'PREPARE mine AS SELECT 1'; END $$",
        "CREATE FUNCTION has_link() RETURNS bool LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM dblink_exec('SELECT 1'); RETURN true; \
         EXCEPTION WHEN connection_does_not_exist THEN RETURN false; WHEN OTHERS THEN RETURN true; END $$",
        "CREATE FUNCTION has_descriptor(fd int) RETURNS bool LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM lo_tell(fd); RETURN true; \
         EXCEPTION WHEN undefined_object THEN RETURN false; END $$",
        "CREATE FUNCTION in_backup() RETURNS bool LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM pg_backup_stop(); RETURN true; \
         EXCEPTION WHEN object_not_in_prerequisite_state THEN RETURN false; END $$",
        "SELECT pg_replication_origin_create('far') \
         WHERE NOT EXISTS (SELECT 1 FROM pg_replication_origin WHERE roname = 'far')",
    ] {
        client.must(sql).await;
    }
    dsn
}

fn link(dsn: &str) -> String {
    let (_, rest) = dsn.split_once(':').expect("a DSN has a driver");
    format!("'{}'", rest.replace(';', " "))
}

async fn pid(db: &Db) -> i32 {
    let pid = db.query_as_one("SELECT pg_backend_pid()", ()).await;
    pid.expect("the connection works")
}

#[tokio::test]
async fn h15_nothing_that_a_session_can_hold_reaches_the_next() -> Result<()> {
    let dsn = house().await;
    let fresh = async |look: &str| {
        let db = Db::open(&dsn).await.unwrap();
        db.query_as_one::<String>(look, ()).await.unwrap()
    };
    let db = Db::builder(&dsn).max(1).open().await?;
    for Held {
        name,
        plant,
        look,
        by,
    } in HELD
    {
        let plant = plant.replace("LINK", &link(&dsn));
        let before = pid(&db).await;
        let expected = fresh(look).await;
        cenote::scope(async { db.exec(&plant, ()).await.unwrap() }).await;
        let was_replaced = pid(&db).await != before;
        assert_eq!(was_replaced, *by == By::Replacement, "{name}");
        let found: String = db.query_as_one(look, ()).await?;
        assert_eq!(found, expected, "{name}");
    }
    cenote::scope(async { db.exec(&format!("{SEQUENCE}; SELECT 1"), ()).await.unwrap() }).await;
    let state = db.exec("SELECT lastval()", ()).await.unwrap_err();
    assert_eq!(state.sql_state(), Some("55000"));
    Ok(())
}

/// What hides in a function is undone, too, but for what only the end of a connection undoes.
#[tokio::test]
async fn h15_always_undoes_what_functions_do_in_silence() -> Result<()> {
    let dsn = house().await;
    let always = Db::builder(&dsn)
        .max(1)
        .reset(ResetPolicy::Always)
        .open()
        .await?;
    let replace = Db::builder(&dsn)
        .max(1)
        .reset(ResetPolicy::Replace)
        .open()
        .await?;
    let admin = Db::open(&dsn).await?;
    let fresh = async |look: &str| {
        let db = Db::open(&dsn).await.unwrap();
        db.query_as_one::<String>(look, ()).await.unwrap()
    };
    for held in HELD {
        // A procedure cannot be a function, a cursor is the function's own, and backups and slots only end with a session.
        let is_left = [
            "library",
            "library of a block",
            "backup",
            "temporary slot",
            "mode of an extension",
        ]
        .contains(&held.name);
        if held.plant.starts_with("CALL") || ["cursor", "large object"].contains(&held.name) {
            continue;
        }
        let plant = held.plant.replace("LINK", &link(&dsn)).replace('\'', "''");
        let body = match plant.strip_prefix("DO $$ BEGIN ") {
            Some(block) => block.replace("END $$", "").replace("''", "'"),
            None => format!("EXECUTE '{plant}';"),
        };
        let sql = format!(
            "CREATE OR REPLACE FUNCTION silently() RETURNS void LANGUAGE plpgsql AS \
             $f$ BEGIN {body} END $f$"
        );
        admin.exec(&sql, ()).await?;
        let expected = fresh(held.look).await;
        for (policy, db) in [("always", &always), ("replace", &replace)] {
            if is_left && policy == "always" {
                continue;
            }
            let before = pid(db).await;
            let done = db.exec("SELECT silently()", ()).await;
            done.unwrap_or_else(|error| panic!("{}: {error}", held.name));
            // Before the look, which may itself be a reason to replace it.
            let is_other = pid(db).await != before;
            assert_eq!(is_other, policy == "replace", "{}", held.name);
            let found: String = db.query_as_one(held.look, ()).await?;
            assert_eq!(found, expected, "{}: {policy}", held.name);
        }
    }
    Ok(())
}

/// The kept statements go with it, and come back by themselves.
#[tokio::test]
async fn h15_always_forgets_our_statements_and_runs_on() -> Result<()> {
    let db = Db::builder(&own_schema(&dsn()).await)
        .max(1)
        .reset(ResetPolicy::Always)
        .open()
        .await?;
    let process = pid(&db).await;
    for n in 0..5 {
        let sum: i32 = db.query_as_one("SELECT ?::int4 + 1", (n,)).await?;
        assert_eq!(sum, n + 1);
    }
    assert_eq!(pid(&db).await, process);
    Ok(())
}
