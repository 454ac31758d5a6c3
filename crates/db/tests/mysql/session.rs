//! What stays with a session of MariaDB and how it is brought back; what the server says of a
//! transaction; statements that are kept.

use cenote::driver::{Begin, CommitOutcome, Request, Reset, Savepoint, Status, Value};
use cenote::{Isolation, Kind};

use crate::servers::client::{Client, own_database, value, with_option};
use crate::servers::dsn;

#[tokio::test]
async fn reset_restores_the_session_that_the_dsn_describes() {
    let dsn = own_database(&dsn()).await;
    let dsn = with_option(&dsn, "set.innodb_lock_wait_timeout", "7");
    let dsn = with_option(&dsn, "collation", "utf8mb4_bin");
    let mut client = Client::open(&dsn).await;
    let id = client.id();
    let state = "SELECT CONVERT(CONCAT_WS(' ', DATABASE(), @@character_set_client, @@collation_connection, \
                 @@time_zone, @@sql_mode, @@innodb_lock_wait_timeout, @@autocommit, \
                 @@tx_isolation, COALESCE(@x, 'none'), IS_FREE_LOCK('cenote_reset')) USING utf8mb4)";
    let before: String = client.get(state).await;
    assert!(before.contains(" utf8mb4 utf8mb4_bin +00:00 "), "{before}");
    assert!(before.contains(" 7 ON "), "{before}");
    client
        .script(
            "USE mysql; SET NAMES utf8mb3; SET time_zone = '+05:00'; SET sql_mode = ''; \
             SET innodb_lock_wait_timeout = 99; SET autocommit = 0; SET @x = 1; \
             SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE; \
             DO GET_LOCK('cenote_reset', 0); \
             CREATE TEMPORARY TABLE cenote.scratch (n INT); \
             PREPARE mine FROM 'SELECT 1'; COMMIT",
        )
        .await
        .unwrap();
    client.run("SELECT ? + 1", &[value(1)]).await.unwrap();
    assert_eq!(client.own().kept_statements(), 1);
    assert_eq!(client.connection.reset().await.unwrap(), Reset::Done);
    assert_eq!(client.own().kept_statements(), 0, "the server knows none");
    assert_eq!(client.get::<String>(state).await, before);
    assert_eq!(client.id(), id);
    assert_eq!(client.must_not("EXECUTE mine").await.code(), Some(1243));
    assert_eq!(
        client.must_not("SELECT * FROM cenote.scratch").await.code(),
        Some(1146)
    );
    assert_eq!(
        client.value("SELECT ? + 1", &[value(1)]).await,
        Value::Int(2)
    );
}

#[tokio::test]
async fn what_a_reset_cannot_take_back_asks_for_another_connection() {
    // A role stays.
    let mut client = Client::new().await;
    client.must("SET ROLE auditor").await;
    assert_eq!(client.connection.reset().await.unwrap(), Reset::Replace);
    // So does a database, where the DSN names none to go back to.
    let mut client = Client::open(&with_option(&dsn(), "dbname", "")).await;
    assert_eq!(client.value("SELECT DATABASE()", &[]).await, Value::Null);
    client.must("SET @x = 1").await;
    assert_eq!(client.connection.reset().await.unwrap(), Reset::Done);
    client.must("USE cenote").await;
    assert_eq!(client.connection.reset().await.unwrap(), Reset::Replace);
}

#[tokio::test]
async fn a_setting_is_made_for_the_session_and_is_no_sql() {
    let mut client = Client::new().await;
    for (name, value, read) in [
        ("innodb_lock_wait_timeout", Value::Int(3), "3"),
        (
            "sql_mode",
            Value::Text("NO_ZERO_DATE".into()),
            "NO_ZERO_DATE",
        ),
        ("autocommit", Value::Bool(false), "OFF"),
    ] {
        client.connection.set(name, &value).await.unwrap();
        let got: String = client.get(&format!("SELECT CONCAT(@@{name})")).await;
        assert_eq!(got, read);
    }
    let sneaky = "autocommit = 1, sql_mode";
    let error = client
        .connection
        .set(sneaky, &Value::Int(1))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Config);
    let error = client
        .connection
        .set("no_such_thing", &Value::Int(1))
        .await
        .unwrap_err();
    assert_eq!(error.code(), Some(1193));
}

#[tokio::test]
async fn status_follows_the_server_through_every_kind_of_transaction() {
    let mut client = Client::in_own_database().await;
    client.must("CREATE TABLE t (n INT)").await;
    let (idle, open) = (Status::Idle, Status::InTransaction);
    for (sql, expected) in [
        ("BEGIN", open),
        ("SELECT 1", open),
        ("INSERT INTO t VALUES (1)", open),
        ("SAVEPOINT a", open),
        ("ROLLBACK TO a", open),
        ("COMMIT", idle),
        ("START TRANSACTION READ ONLY", open),
        ("ROLLBACK", idle),
        ("/* x */ BEGIN", open),
        ("CREATE TABLE u (n INT)", idle),
        ("SET autocommit = 0", idle),
        ("SELECT * FROM t", open),
        ("COMMIT AND CHAIN", open),
        ("ROLLBACK RELEASE", idle),
    ] {
        if sql == "ROLLBACK RELEASE" {
            // It ends the connection as well.
            client.must("ROLLBACK").await;
        } else {
            client.must(sql).await;
        }
        assert_eq!(client.connection.status(), expected, "{sql}");
    }
    client.must("SET autocommit = 1").await;
    client
        .script("BEGIN; INSERT INTO t VALUES (2)")
        .await
        .unwrap();
    assert_eq!(client.connection.status(), open);
    client.script("COMMIT; SELECT 1").await.unwrap();
    assert_eq!(client.connection.status(), idle);
}

#[tokio::test]
async fn after_an_error_the_server_is_asked_for_its_status() {
    let mut client = Client::in_own_database().await;
    client.must("CREATE TABLE t (id INT PRIMARY KEY)").await;
    client.must_not("SELECT * FROM missing").await;
    assert_eq!(client.connection.status(), Status::Idle);
    client.begin().await;
    client.must("INSERT INTO t VALUES (1)").await;
    let error = client.must_not("INSERT INTO t VALUES (1)").await;
    assert!(error.is_unique_violation());
    assert_eq!(error.constraint(), Some("PRIMARY"));
    assert_eq!(
        client.connection.status(),
        Status::InTransaction,
        "it goes on"
    );
    // A statement that fails can have committed before it did.
    client.must_not("CREATE TABLE t (n INT)").await;
    assert_eq!(client.connection.status(), Status::Idle);
    assert_eq!(client.get::<i64>("SELECT COUNT(*) FROM t").await, 1);
    let error = client.connection.commit().await.unwrap_err();
    assert_eq!(error.kind(), Kind::NoTransaction);
    let failed = client.script("BEGIN; SELECT * FROM missing; COMMIT").await;
    failed.unwrap_err();
    assert_eq!(client.connection.status(), Status::InTransaction);
    client.connection.rollback().await.unwrap();
    // In the middle of a row stream, too.
    client.begin().await;
    let failing = "SELECT IF(seq < 400, seq, (SELECT 1 UNION SELECT 2)) FROM seq_1_to_500";
    let started = client
        .connection
        .start_stream(Request::new(failing, &[]))
        .await;
    if started.is_ok() {
        let failed = loop {
            match std::future::poll_fn(|cx| client.connection.poll_batch(cx)).await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("it fails before its end"),
                Err(error) => break error,
            }
        };
        assert_eq!(failed.code(), Some(1242));
    }
    assert_eq!(client.connection.status(), Status::InTransaction);
    assert_eq!(client.get::<i64>("SELECT 7").await, 7);
}

#[tokio::test]
async fn begin_in_a_transaction_is_refused_since_it_would_commit() {
    let mut client = Client::new().await;
    client.begin().await;
    let again = client.connection.begin_with(&Begin::default(), None).await;
    assert_eq!(again.unwrap_err().kind(), Kind::NestedBegin);
    assert_eq!(client.connection.status(), Status::InTransaction);
}

#[tokio::test]
async fn isolation_level_is_for_one_transaction_and_not_the_session() {
    let mut client = Client::in_own_database().await;
    client.must("CREATE TABLE t (n INT)").await;
    let default: String = client.get("SELECT @@tx_isolation").await;
    for (level, name) in [
        (Isolation::ReadUncommitted, "READ UNCOMMITTED"),
        (Isolation::ReadCommitted, "READ COMMITTED"),
        (Isolation::RepeatableRead, "REPEATABLE READ"),
        (Isolation::Serializable, "SERIALIZABLE"),
    ] {
        let mut begin = Begin::default();
        begin.isolation = Some(level);
        client.connection.begin_with(&begin, None).await.unwrap();
        client.must("INSERT INTO t VALUES (1)").await;
        // What the server tells about transactions may be a tenth of a second old.
        client.must("DO SLEEP(0.12)").await;
        let now: String = client
            .get(
                "SELECT trx_isolation_level FROM information_schema.INNODB_TRX \
                 WHERE trx_mysql_thread_id = CONNECTION_ID()",
            )
            .await;
        assert_eq!(now, name);
        let done = client.connection.commit().await.unwrap();
        assert_eq!(done, CommitOutcome::Committed);
        assert_eq!(client.get::<String>("SELECT @@tx_isolation").await, default);
    }
}

#[tokio::test]
async fn a_savepoint_can_have_any_name() {
    let mut client = Client::in_own_database().await;
    client.must("CREATE TABLE t (n INT)").await;
    client.begin().await;
    for name in ["a b", "select", "a`b"] {
        client
            .connection
            .savepoint(Savepoint::Set(name))
            .await
            .unwrap();
        client.must("INSERT INTO t VALUES (1)").await;
        client
            .connection
            .savepoint(Savepoint::RollBack(name))
            .await
            .unwrap();
    }
    client.connection.commit().await.unwrap();
    assert_eq!(client.get::<i64>("SELECT COUNT(*) FROM t").await, 0);
}

/// How many statements of this session the server has prepared, and how many it has closed.
async fn counters(client: &mut Client) -> (i64, i64) {
    let mut counts = Vec::new();
    for name in ["COM_STMT_PREPARE", "COM_STMT_CLOSE"] {
        let sql = format!(
            "SELECT CAST(VARIABLE_VALUE AS SIGNED) FROM information_schema.SESSION_STATUS \
             WHERE VARIABLE_NAME = '{name}'"
        );
        counts.push(client.get(&sql).await);
    }
    (counts[0], counts[1])
}

#[tokio::test]
async fn statements_are_prepared_once_and_evicted_by_last_use() {
    let mut client = Client::with_cache(&dsn(), 2).await;
    for _ in 0..5 {
        client.run("SELECT ? + 1", &[value(1)]).await.unwrap();
    }
    assert_eq!(counters(&mut client).await, (1, 0));
    client.run("SELECT ? + 2", &[value(1)]).await.unwrap();
    client.run("SELECT ? + 1", &[value(1)]).await.unwrap();
    client.run("SELECT ? + 3", &[value(1)]).await.unwrap();
    assert_eq!(
        counters(&mut client).await,
        (3, 1),
        "the second one has gone"
    );
    client.run("SELECT ? + 1", &[value(1)]).await.unwrap();
    assert_eq!(counters(&mut client).await, (3, 1));
    client.run("SELECT ? + 2", &[value(1)]).await.unwrap();
    assert_eq!(counters(&mut client).await, (4, 2));
    assert_eq!(client.own().kept_statements(), 2);
}

/// C-010, C-017
#[tokio::test]
async fn a_statement_that_is_not_kept_leaves_nothing_on_the_server() {
    let mut client = Client::with_cache(&dsn(), 0).await;
    for n in 0..3 {
        assert_eq!(
            client.value("SELECT ? + 1", &[value(n)]).await,
            Value::Int(i64::from(n) + 1)
        );
    }
    client.connection.prepare("SELECT ?").await.unwrap();
    assert_eq!(counters(&mut client).await, (4, 4));
    let mut client = Client::new().await;
    let params = [value(1)];
    let mut request = Request::new("SELECT ? + 1", &params);
    request.cache = false;
    client.connection.run(request).await.unwrap();
    assert_eq!(counters(&mut client).await, (1, 1));
}

#[tokio::test]
async fn uncached_streamed_statement_leaves_nothing_on_the_server() {
    let mut client = Client::with_cache(&dsn(), 0).await;
    for (sql, params, is_fine) in [
        ("SELECT seq FROM seq_1_to_1000 WHERE seq > ?", 1, true),
        (
            "SELECT (SELECT seq FROM seq_1_to_2 WHERE seq > ?) + 1",
            1,
            true,
        ),
        (
            "SELECT (SELECT seq FROM seq_1_to_2 WHERE seq > ?) + 1",
            0,
            false,
        ),
        ("SELECT seq FROM seq_1_to_1000 WHERE seq > ? + ?", 1, false),
    ] {
        let params = [value(params)];
        let started = client
            .connection
            .start_stream(Request::new(sql, &params))
            .await;
        let mut done = started.map(drop);
        while done.is_ok() {
            match std::future::poll_fn(|cx| client.connection.poll_batch(cx)).await {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => done = Err(error),
            }
        }
        assert_eq!(done.is_ok(), is_fine, "{sql}: {done:?}");
    }
    assert_eq!(counters(&mut client).await, (4, 4));
}

#[tokio::test]
async fn kept_statement_never_outlives_its_database_or_sql_mode() {
    let mut client = Client::in_own_database().await;
    client.must("CREATE TABLE t (n TINYINT)").await;
    client.must("INSERT INTO t VALUES (1)").await;
    let first: String = client.get("SELECT DATABASE()").await;
    let other = crate::servers::unique("cenote_other");
    client
        .script(&format!(
            "CREATE DATABASE {other}; CREATE TABLE {other}.t (n TINYINT); \
             INSERT INTO {other}.t VALUES (2)"
        ))
        .await
        .unwrap();
    let ask = "SELECT n FROM t WHERE n > ?";
    assert_eq!(client.value(ask, &[value(0)]).await, Value::Int(1));
    client.must(&format!("USE {other}")).await;
    assert_eq!(client.value(ask, &[value(0)]).await, Value::Int(2));
    client
        .script(&format!("SELECT 1; USE {first}"))
        .await
        .unwrap();
    assert_eq!(client.value(ask, &[value(0)]).await, Value::Int(1));
    let insert = "INSERT INTO t VALUES (?)";
    client.run(insert, &[value(1000)]).await.unwrap_err();
    client.run("SET sql_mode = ?", &[value("")]).await.unwrap();
    client.run(insert, &[value(1000)]).await.unwrap();
    let strict = Value::Text("STRICT_ALL_TABLES".into());
    client.connection.set("sql_mode", &strict).await.unwrap();
    client.run(insert, &[value(1000)]).await.unwrap_err();
    assert_eq!(client.value(ask, &[value(100)]).await, Value::Int(127));
}

#[tokio::test]
async fn statement_without_parameters_is_prepared_only_on_request() {
    let mut client = Client::new().await;
    for _ in 0..3 {
        client.must("SELECT 1").await;
    }
    assert_eq!(counters(&mut client).await, (0, 0));
    client.connection.prepare("SELECT 1").await.unwrap();
    client.must("SELECT 1").await;
    assert_eq!(counters(&mut client).await, (1, 0));
}

#[tokio::test]
async fn a_table_that_changes_under_a_kept_statement_is_seen_as_it_is() {
    let mut client = Client::in_own_database().await;
    client.must("CREATE TABLE t (a INT)").await;
    client.must("INSERT INTO t VALUES (1)").await;
    let sql = "SELECT * FROM t WHERE 1 = ?";
    assert_eq!(client.rows(sql, &[value(1)]).await[0].len(), 1);
    client
        .must("ALTER TABLE t ADD b VARCHAR(9) DEFAULT 'x'")
        .await;
    for _ in 0..2 {
        let rows = client.rows(sql, &[value(1)]).await;
        assert_eq!(rows[0].get::<String>("b").unwrap(), "x");
    }
    client.must("ALTER TABLE t MODIFY a VARCHAR(9)").await;
    let rows = client.rows(sql, &[value(1)]).await;
    assert_eq!(rows[0].value("a").unwrap(), Value::Text("1".into()));
    client.must("ALTER TABLE t DROP a").await;
    let rows = client.rows(sql, &[value(1)]).await;
    assert_eq!(rows[0].columns().as_slice()[0].name, "b");
}

#[tokio::test]
async fn local_file_is_refused_unless_its_folder_was_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.csv");
    std::fs::write(&path, "1\n2\n3\n").unwrap();
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret.csv");
    std::fs::write(&secret, "7\n").unwrap();
    std::os::unix::fs::symlink(&secret, folder.path().join("link.csv")).unwrap();
    let dsn = own_database(&dsn()).await;
    let mut client = Client::open(&dsn).await;
    client.must("CREATE TABLE t (n INT)").await;
    let load = |path: &std::path::Path| {
        format!("LOAD DATA LOCAL INFILE '{}' INTO TABLE t", path.display())
    };
    let error = client.must_not(&load(&path)).await;
    assert_eq!(error.kind(), Kind::Unsupported);
    assert!(error.message().contains("local_infile"), "{error}");
    assert!(
        client.connection.is_broken(),
        "the server still waits for it"
    );

    let dsn = with_option(&dsn, "local_infile", &folder.path().display().to_string());
    let mut client = Client::open(&dsn).await;
    assert_eq!(client.must(&load(&path)).await.rows_affected, 3);
    assert_eq!(client.get::<i64>("SELECT SUM(n) FROM t").await, 6);
    let linked = folder.path().join("link.csv");
    let climbed = folder
        .path()
        .join("..")
        .join(outside.path().file_name().unwrap());
    for outside in [secret.clone(), linked, climbed.join("secret.csv")] {
        let mut client = Client::open(&dsn).await;
        let error = client.must_not(&load(&outside)).await;
        assert_eq!(error.kind(), Kind::Unsupported, "{outside:?}");
    }
    assert_eq!(client.get::<i64>("SELECT COUNT(*) FROM t").await, 3);
}

/// glibc's allocator keeps pieces of up to 1032 bytes at hand for each thread.
#[tokio::test]
async fn kept_statement_runs_in_a_future_of_a_common_allocation_size() {
    let mut client = Client::new().await;
    client.run("SELECT ? + 1", &[value(1)]).await.unwrap();
    assert_eq!(client.own().kept_statements(), 1);
    let params = [value(1)];
    let run = client.connection.run(Request::new("SELECT ? + 1", &params));
    assert!(size_of_val(&*run) <= 1032, "{}", size_of_val(&*run));
}
