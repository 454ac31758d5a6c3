//! Attacks on the driver of MySQL and MariaDB: texts that hide what they do to the session, statements that
//! must not run twice, numbers that must stay exact, and a server that is not the one it was.

use cenote::driver::{Param, Request, Reset, Value};
use cenote::{DateTime, Db, Kind, Outcome, PooledConnection, ResetPolicy, Result};

use cenote_testkit::poll::Hand;

use crate::servers::client::Client;
use crate::servers::own::OwnServer;
use crate::servers::own_tables;

/// Makes a function of the application's own that leaves a variable behind.
async fn make_leaky(db: &Db, name: &str) {
    let sql =
        format!("CREATE FUNCTION {name} (x INT) RETURNS INT BEGIN SET @leak = x; RETURN x; END");
    db.exec(&sql, ()).await.unwrap();
}

/// The one connection goes back between any two of these texts: whatever the first has left in the session,
/// the second must not find.
#[tokio::test]
async fn application_function_is_recognised_in_every_spelling() {
    let db = own_tables(|builder| builder.max(1)).await;
    let schema: String = db.query_as_one("SELECT DATABASE()", ()).await.unwrap();
    let names = [
        "own", "`count`", "`now`", "`in`", "`format`", "`$abs`", "against", "than",
    ];
    for name in names.into_iter().chain(["`1abs`", "any_value"]) {
        make_leaky(&db, name).await;
    }
    db.exec("CREATE TABLE t (a INT)", ()).await.unwrap();
    for text in [
        "SELECT own(1)",
        "SELECT own /* with */ (1)",
        "SELECT -- with\n own(1)",
        "SELECT # all that goes into\n own(1)",
        "SELECT SCHEMA.count(1)",
        "SELECT SCHEMA . count (1)",
        "SELECT SCHEMA.format(1)",
        "SELECT `count`(1)",
        "SELECT `in`(1)",
        "SELECT count (1)",
        "SELECT now (1)",
        "SELECT $abs(1)",
        "SELECT 1abs(1)",
        "SELECT any_value(1)",
        "SELECT against(1)",
        "SELECT than (1)",
        "CREATE TABLE made AS VALUES (own(1))",
        "CREATE TABLE made_otherwise (a INT) AS (VALUES (own(1)))",
        "INSERT INTO t (a) WITH w (a) AS (VALUES (own(1))) SELECT a FROM w",
        "INSERT INTO t (a) VALUES (1) RETURNING own(a)",
        "DELETE FROM t WHERE own(a) = 1",
        "SELECT @leak /* */ := 1",
        "SELECT 1 /*M!100000, own(1) */",
        "SELECT '\\';', own(1) -- '",
        "SET STATEMENT max_statement_time = 5 FOR SELECT own(1)",
        "BEGIN NOT ATOMIC SET @leak = 1; END",
        "SELECT (SELECT(own(1)))",
    ] {
        let text = text.replace("SCHEMA", &schema);
        let ran = db.exec(&text, ()).await;
        ran.unwrap_or_else(|error| panic!("{text}: {error}"));
        let left: Option<i64> = db.query_as_one("SELECT @leak", ()).await.unwrap();
        assert_eq!(left, None, "{text}");
    }
}

#[tokio::test]
async fn procedure_that_fails_like_a_stale_statement_is_not_run_again() {
    let db = own_tables(|builder| builder.max(1)).await;
    db.exec("CREATE TABLE paid (n INT)", ()).await.unwrap();
    // The server knows no such statement, and says so with the number of one that was forgotten: 1243.
    let sql = "CREATE PROCEDURE pay (n INT) BEGIN INSERT INTO paid VALUES (n); EXECUTE nobody; END";
    db.exec(sql, ()).await.unwrap();
    cenote::scope(async {
        let pay = db.prepare("CALL pay(?)").await.unwrap();
        let error = pay.exec((7,)).await.unwrap_err();
        assert_eq!(error.code(), Some(1243), "{error}");
    })
    .await;
    let paid: Vec<i64> = db.query_as("SELECT n FROM paid", ()).await.unwrap();
    assert_eq!(paid, [7]);
}

#[tokio::test]
async fn an_xa_transaction_left_open_reaches_no_other_task() {
    let db = own_tables(|builder| builder.max(1)).await;
    db.exec("CREATE TABLE t (a INT)", ()).await.unwrap();
    let xid = db
        .query_as_one::<String>("SELECT DATABASE()", ())
        .await
        .unwrap();
    let (start, end) = (format!("XA START '{xid}'"), format!("XA END '{xid}'"));
    let prepare = format!("XA PREPARE '{xid}'");
    let insert = "INSERT INTO t VALUES (1)";
    let mut expected = Vec::new();
    for steps in [
        &[&*start, insert][..],
        &[&*start, insert, &*end],
        &[&*start, insert, &*end, &*prepare],
    ] {
        cenote::scope(async {
            for step in steps {
                db.exec(step, ()).await.unwrap();
            }
        })
        .await;
        db.exec("INSERT INTO t VALUES (2)", ()).await.unwrap();
        let seen: Vec<i64> = db.query_as("SELECT a FROM t", ()).await.unwrap();
        expected.push(2);
        assert_eq!(seen, expected, "{steps:?}");
    }
    db.exec(&format!("XA ROLLBACK '{xid}'"), ()).await.unwrap();
}

fn decimal(text: &'static str) -> Param<'static> {
    Param::Value(Value::Decimal(text.into()))
}

#[tokio::test]
async fn the_server_computes_with_a_decimal_to_the_last_digit() {
    let mut client = Client::in_own_database().await;
    let sql = "CREATE TABLE account (id INT, balance DECIMAL(30, 2))";
    client.must(sql).await;
    let sql = "INSERT INTO account VALUES (1, ?)";
    let added = client.run(sql, &[decimal("12345678901234567.89")]).await;
    assert_eq!(added.unwrap().rows_affected, 1);
    let sql = "UPDATE account SET balance = balance - ? WHERE balance >= ?";
    let enough = [decimal("0.01"), decimal("12345678901234567.89")];
    assert_eq!(client.run(sql, &enough).await.unwrap().rows_affected, 1);
    let balance = Value::Decimal("12345678901234567.88".into());
    assert_eq!(
        client.value("SELECT balance FROM account", &[]).await,
        balance
    );
    // A cent is missing now.
    assert_eq!(client.run(sql, &enough).await.unwrap().rows_affected, 0);
    assert_eq!(client.own().prepared_statements(), 2);
    let parts = [decimal("0.1"), decimal("0.2")];
    assert_eq!(
        client.value("SELECT ? + ?", &parts).await,
        Value::Decimal("0.3".into())
    );

    let params = [decimal("12345678901234567.87")];
    let sql = "SELECT balance - ? FROM account";
    let request = Request::new(sql, &params);
    client.connection.start_stream(request).await.unwrap();
    let batch = std::future::poll_fn(|cx| client.connection.poll_batch(cx)).await;
    let row = batch.unwrap().unwrap().into_rows().next().unwrap();
    assert_eq!(row.value(0).unwrap(), Value::Decimal("0.01".into()));
    client.connection.end_stream().await.unwrap();
    let sets = [vec![decimal("1.00")], vec![decimal("2.00")]];
    let sql = "UPDATE account SET balance = balance - ?";
    client.connection.run_batch(sql, &sets).await.unwrap();
    assert_eq!(
        client.value("SELECT balance FROM account", &[]).await,
        Value::Decimal("12345678901234564.88".into())
    );
}

/// Numbers of connections begin anew with every start of a server.
#[tokio::test]
async fn dropped_call_kills_no_new_owner_of_its_id_after_a_restart() {
    let mut server = OwnServer::start(&[]).await;
    let mut client = Client::open(&server.dsn()).await;
    // Two starts of a server are distinguished if they are a second or two apart.
    let sql = "SELECT SLEEP(0.1) + CAST(VARIABLE_VALUE AS SIGNED) FROM information_schema.GLOBAL_STATUS \
               WHERE VARIABLE_NAME = 'UPTIME'";
    while client.get::<i64>(sql).await < 3 {}
    let number = client.id();
    let mut call = Hand::new(client.connection.run(Request::new("DO SLEEP(100)", &[])));
    assert!(call.poll().is_pending());
    server.crash().await;
    server.start_again().await;
    let mut others = Vec::new();
    loop {
        let mut other = Client::open(&server.dsn()).await;
        let its = other.id();
        assert!(its <= number, "the numbers did not begin anew");
        others.push(other);
        if its == number {
            break;
        }
    }
    drop(call);
    client.connection.settle().await.unwrap_err();
    for other in &mut others {
        assert_eq!(other.get::<i64>("SELECT 7").await, 7);
    }
}

#[tokio::test]
async fn a_time_zone_set_by_a_statement_gives_no_timestamps() {
    let mut client = Client::in_own_database().await;
    client.must("CREATE TABLE t (at TIMESTAMP NULL)").await;
    let noon: DateTime = "2024-01-01T12:00:00".parse().unwrap();
    let evening: DateTime = "2024-01-01T17:00:00".parse().unwrap();
    let moment = [Param::Value(Value::Timestamp(noon))];
    client
        .run("INSERT INTO t VALUES (?)", &moment)
        .await
        .unwrap();
    let (text, kept) = ("SELECT at FROM t", "SELECT at FROM t WHERE ? = 1");
    let one = [crate::servers::client::value(1)];
    for _ in 0..2 {
        assert_eq!(client.value(text, &[]).await, Value::Timestamp(noon));
        assert_eq!(client.value(kept, &one).await, Value::Timestamp(noon));
        client.must("SET Time_Zone = '+05:00'").await;
        assert_eq!(client.value(text, &[]).await, Value::DateTime(evening));
        assert_eq!(client.value(kept, &one).await, Value::DateTime(evening));
        let refused = client.run("INSERT INTO t VALUES (?)", &moment).await;
        assert_eq!(refused.unwrap_err().kind(), Kind::Type);
        assert_eq!(client.connection.reset().await.unwrap(), Reset::Done);
    }
    let zone = Value::Text("+05:00".into());
    client.connection.set("time_zone", &zone).await.unwrap();
    assert_eq!(client.value(text, &[]).await, Value::DateTime(evening));
    let script = "SET time_zone = '+00:00'; INSERT INTO t VALUES (NULL), (NULL)";
    let added = client.script(script).await.unwrap();
    assert_eq!(
        added.rows_affected, 2,
        "the result is that of the script itself"
    );
}

/// That a name is unknown may come from deep inside, when the session is another one already.
#[tokio::test]
async fn procedure_failing_on_an_unknown_table_leaves_no_session() {
    let db = own_tables(|builder| builder.max(1)).await;
    let lock: String = db.query_as_one("SELECT DATABASE()", ()).await.unwrap();
    let work = format!("SET @leak = 1; DO GET_LOCK('{lock}', 0); SELECT * FROM nowhere;");
    let sql = format!("CREATE PROCEDURE work () BEGIN {work} END");
    db.exec(&sql, ()).await.unwrap();
    for text in ["CALL work()", &format!("BEGIN NOT ATOMIC {work} END")] {
        let error = db.exec(text, ()).await.unwrap_err();
        assert_eq!(error.code(), Some(1146), "{error}");
        let sql = format!("SELECT IF(@leak IS NULL, 0, 1) + IF(IS_FREE_LOCK('{lock}'), 0, 2)");
        let left: i64 = db.query_as_one(&sql, ()).await.unwrap();
        assert_eq!(left, 0, "{text}");
    }
}

#[tokio::test]
async fn a_commit_that_opens_another_transaction_is_noticed() {
    let db = own_tables(|builder| builder.max(2)).await;
    db.exec("CREATE TABLE t (n INT)", ()).await.unwrap();
    db.exec(
        "CREATE PROCEDURE sly () BEGIN COMMIT; START TRANSACTION; END",
        (),
    )
    .await
    .unwrap();
    for text in [
        "EXECUTE IMMEDIATE 'START TRANSACTION'",
        "EXECUTE IMMEDIATE 'COMMIT AND CHAIN'",
        "SET STATEMENT max_statement_time = 5 FOR COMMIT AND CHAIN",
        "SET STATEMENT max_statement_time = 5 FOR START TRANSACTION",
        "BEGIN NOT ATOMIC COMMIT AND CHAIN; END",
        "/*!999999 SAVEPOINT a */ COMMIT AND CHAIN",
        "SELECT 1; COMMIT AND CHAIN; SELECT 2",
        "CALL sly()",
    ] {
        let done = db
            .transaction(async || {
                db.exec("INSERT INTO t VALUES (1)", ()).await?;
                let _ = db.exec(text, ()).await;
                db.exec("INSERT INTO t VALUES (2)", ()).await
            })
            .await;
        let kind = failed_with_what_followed(&db, text, done).await;
        assert_eq!(kind, Kind::TransactionLost, "{text}");
    }
}

/// Where nothing commits by itself, the next statement opens another transaction.
#[tokio::test]
async fn committing_create_in_a_script_is_noticed_without_autocommit() {
    let db = own_tables(|builder| builder.max(2)).await;
    db.exec("CREATE TABLE t (n INT)", ()).await.unwrap();
    db.set_default("autocommit", 0).await.unwrap();
    let done = db
        .transaction(async || {
            let script = "INSERT INTO t VALUES (1); CREATE TABLE u (n INT); SELECT n FROM t";
            let _ = db.exec(script, ()).await;
            db.exec("INSERT INTO t VALUES (2)", ()).await
        })
        .await;
    assert_eq!(done.unwrap_err().kind(), Kind::TransactionLost);
    db.set_default("autocommit", 1).await.unwrap();
    let all: Vec<i64> = db.query_as("SELECT n FROM t", ()).await.unwrap();
    assert_eq!(all, [1]);
}

#[tokio::test]
async fn a_prepared_call_that_opens_another_transaction_is_noticed() {
    let db = own_tables(|builder| builder.max(2)).await;
    db.exec("CREATE TABLE t (n INT)", ()).await.unwrap();
    let sly = "CREATE PROCEDURE sly (IN n INT) BEGIN COMMIT; START TRANSACTION; END";
    db.exec(sly, ()).await.unwrap();
    let done = db
        .transaction(async || {
            db.exec("INSERT INTO t VALUES (1)", ()).await?;
            let statement = db.prepare("CALL sly(?)").await?;
            let _ = statement.exec((1,)).await;
            db.exec("INSERT INTO t VALUES (2)", ()).await
        })
        .await;
    let kind = failed_with_what_followed(&db, "a prepared CALL", done).await;
    assert_eq!(kind, Kind::TransactionLost);
}

#[tokio::test]
async fn a_stream_whose_call_opens_another_transaction_is_noticed() {
    let db = own_tables(|builder| builder.max(2)).await;
    db.exec("CREATE TABLE t (n INT)", ()).await.unwrap();
    for (name, end) in [("sly", ""), ("failing", "SIGNAL SQLSTATE '45000';")] {
        let body = format!("SELECT n; COMMIT; START TRANSACTION; {end}");
        let sql = format!("CREATE PROCEDURE {name} (IN n INT) BEGIN {body} END");
        db.exec(&sql, ()).await.unwrap();
    }
    db.exec(
        "CREATE PROCEDURE early () BEGIN COMMIT; START TRANSACTION; SIGNAL SQLSTATE '45000'; END",
        (),
    )
    .await
    .unwrap();
    let calls = [
        ("CALL sly(1)", None),
        ("CALL sly(?)", Some(1)),
        ("CALL failing(1)", None),
        ("CALL early()", None),
    ];
    for (text, param) in calls {
        for is_read in [true, false] {
            let done = db
                .transaction(async || {
                    db.exec("INSERT INTO t VALUES (1)", ()).await?;
                    let params: Vec<i64> = param.into_iter().collect();
                    if let Ok(mut rows) = db.stream(text, params).await {
                        while is_read && let Ok(Some(_)) = rows.try_next().await {}
                    }
                    db.exec("INSERT INTO t VALUES (2)", ()).await
                })
                .await;
            let kind = failed_with_what_followed(&db, text, done).await;
            // One whose rest fails while it is thrown away costs its connection.
            let costs_all = text.contains("failing") && !is_read;
            assert_eq!(
                kind == Kind::TransactionLost,
                !costs_all,
                "{text}: {kind:?}"
            );
        }
    }
}

/// The transaction has failed, and the row with a 2 that followed what ended it is not there. Gives the kind of the error.
async fn failed_with_what_followed(db: &Db, what: &str, done: Result<Outcome>) -> Kind {
    let error = done.expect_err(what);
    let later: i64 = db
        .query_as_one("SELECT COUNT(*) FROM t WHERE n = 2", ())
        .await
        .unwrap();
    assert_eq!(later, 0, "{what}");
    error.kind()
}

#[tokio::test]
async fn session_change_keeps_its_transaction_and_savepoints() {
    let db = own_tables(|builder| builder.max(1)).await;
    db.exec("CREATE TABLE t (n INT)", ()).await.unwrap();
    db.transaction(async || {
        db.exec("INSERT INTO t VALUES (1)", ()).await?;
        db.exec("SET @x = 5", ()).await?;
        db.exec("SAVEPOINT mine", ()).await?;
        db.exec("INSERT INTO t VALUES (2)", ()).await?;
        db.exec("DO GET_LOCK('a lock', 0)", ()).await?;
        db.exec("ROLLBACK TO SAVEPOINT mine", ()).await?;
        let x: i64 = db.query_as_one("SELECT @x", ()).await?;
        assert_eq!(x, 5);
        Ok(())
    })
    .await
    .unwrap();
    let all: Vec<i64> = db.query_as("SELECT n FROM t", ()).await.unwrap();
    assert_eq!(all, [1]);
}

/// What such texts do to it is seen in the server's flags alone.
#[tokio::test]
async fn savepoints_in_a_transaction_of_texts_are_left_as_they_are() {
    let db = own_tables(|builder| builder.max(1)).await;
    db.exec("CREATE TABLE t (n INT)", ()).await.unwrap();
    let sql = "CREATE PROCEDURE careful () BEGIN SAVEPOINT its; INSERT INTO t VALUES (3); END";
    db.exec(sql, ()).await.unwrap();
    cenote::scope(async {
        for text in [
            "BEGIN",
            "INSERT INTO t VALUES (1); SAVEPOINT mine; INSERT INTO t VALUES (2)",
            "SET @x = 1; /* back */ ROLLBACK TO SAVEPOINT mine",
            "CALL careful()",
            "ROLLBACK TO SAVEPOINT its",
            "INSERT INTO t VALUES (4)",
            "COMMIT",
        ] {
            let ran = db.exec(text, ()).await;
            ran.unwrap_or_else(|error| panic!("{text}: {error}"));
        }
    })
    .await;
    let all: Vec<i64> = db.query_as("SELECT n FROM t ORDER BY n", ()).await.unwrap();
    assert_eq!(all, [1, 4]);
}

/// A transaction of the layer's on the same connection before it changes nothing about that.
#[tokio::test]
async fn prepared_begin_keeps_the_savepoints_of_its_transaction() {
    let db = own_tables(|builder| builder.max(1)).await;
    db.exec("CREATE TABLE t (n INT)", ()).await.unwrap();
    db.set_default("autocommit", 0).await.unwrap();
    let insert = async |n: i64| db.exec("INSERT INTO t VALUES (?)", (n,)).await;
    db.transaction(async || insert(0).await).await.unwrap();
    cenote::scope(async {
        insert(1).await.unwrap();
        for text in [
            "SAVEPOINT mine",
            "SET @x = 1; ROLLBACK TO SAVEPOINT mine",
            "COMMIT",
        ] {
            db.exec(text, ()).await.unwrap();
        }
    })
    .await;
    db.set_default("autocommit", 1).await.unwrap();
    let all: Vec<i64> = db.query_as("SELECT n FROM t ORDER BY n", ()).await.unwrap();
    assert_eq!(all, [0, 1]);
}

#[tokio::test]
async fn savepoint_of_a_procedure_ends_with_the_procedure() {
    let db = own_tables(|builder| builder.max(1)).await;
    db.exec("CREATE TABLE t (n INT)", ()).await.unwrap();
    let sql = "CREATE PROCEDURE careful () BEGIN SAVEPOINT its; INSERT INTO t VALUES (2); \
               ROLLBACK TO SAVEPOINT its; INSERT INTO t VALUES (3); END";
    db.exec(sql, ()).await.unwrap();
    db.transaction(async || {
        db.exec("INSERT INTO t VALUES (1)", ()).await?;
        db.exec("CALL careful()", ()).await?;
        let gone = db.exec("ROLLBACK TO SAVEPOINT its", ()).await;
        assert_eq!(gone.unwrap_err().code(), Some(1305));
        Ok(())
    })
    .await
    .unwrap();
    let all: Vec<i64> = db.query_as("SELECT n FROM t ORDER BY n", ()).await.unwrap();
    assert_eq!(all, [1, 3]);
}

/// Whatever was read in a text after that would not be what the server reads in it.
#[tokio::test]
async fn nothing_is_run_under_a_mode_in_which_sql_is_read_otherwise() {
    let refused = |done: Result<Outcome>| {
        let error = done.unwrap_err();
        assert_eq!(error.kind(), Kind::Config, "{error}");
        assert!(error.message().contains("in the DSN"), "{error}");
    };
    let db = own_tables(|builder| builder.max(1)).await;
    db.exec("CREATE TABLE t (n INT)", ()).await.unwrap();
    let texts = [
        &["SET sql_mode = 'NO_BACKSLASH_ESCAPES'"][..],
        &["SET @@sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES')"],
        &["PREPARE s FROM 'SET sql_mode = \\'ANSI\\''", "EXECUTE s"],
    ];
    for (texts, is_streamed) in texts
        .into_iter()
        .flat_map(|texts| [(texts, false), (texts, true)])
    {
        let own = db.connection().await.unwrap();
        own.exec("INSERT INTO t VALUES (?)", (1,)).await.unwrap();
        for text in texts {
            match is_streamed {
                true => drop(own.stream(text, ()).await.unwrap()),
                false => drop(own.exec(text, ()).await.unwrap()),
            }
        }
        refused(own.exec("INSERT INTO t VALUES (2)", ()).await);
        refused(own.exec("INSERT INTO t VALUES (?)", (2,)).await);
        assert!(own.prepare("SELECT 1").await.is_err());
        assert!(own.stream("SELECT 1", ()).await.is_err());
        drop(own);
        let others: i64 = db.query_as_one("SELECT MAX(n) FROM t", ()).await.unwrap();
        assert_eq!(others, 1, "{texts:?}, streamed: {is_streamed}");
    }
    for mode in ["NO_BACKSLASH_ESCAPES", "ansi"] {
        let set = db.set_default("sql_mode", mode).await;
        refused(set.map(|()| unreachable!("{mode} is refused")));
        db.exec("SELECT 1", ()).await.unwrap();
    }
    let strict = "STRICT_ALL_TABLES";
    db.set_default("sql_mode", strict).await.unwrap();
    let mode: String = db.query_as_one("SELECT @@sql_mode", ()).await.unwrap();
    assert_eq!(mode, "STRICT_ALL_TABLES");

    let db = Db::builder(&crate::servers::dsn()).on_connect(async |conn: &mut PooledConnection| {
        conn.exec("SET sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES')")
            .await
    });
    refused(db.open().await.unwrap().exec("SELECT 1", ()).await);
}

#[tokio::test]
async fn session_change_by_a_trigger_ends_with_a_permanent_reset() {
    let db = own_tables(|builder| builder.max(1).reset(ResetPolicy::Always)).await;
    db.exec("CREATE TABLE t (n INT)", ()).await.unwrap();
    let sql = "CREATE TRIGGER leaky AFTER INSERT ON t FOR EACH ROW SET @leak = new.n";
    db.exec(sql, ()).await.unwrap();
    db.exec("INSERT INTO t VALUES (1)", ()).await.unwrap();
    let left: Option<i64> = db.query_as_one("SELECT @leak", ()).await.unwrap();
    assert_eq!(left, None);
}
