//! H0a: whatever a statement is, right or wrong, the next call gets its own answer.
//!
//! Every kind of statement in PostgreSQL's grammar goes through every method, and after each a fresh
//! number is asked for, in the same place and on the same connection.

use std::sync::atomic::{AtomicI64, Ordering};

use cenote::{Db, Error, Kind, Result};

use crate::servers::{own_tables, soon};

/// The kinds of statements that the grammar's `stmt` has, most of them right the first time and wrong
/// the next. What is about the whole server is wrong at once.
const STATEMENTS: &[&str] = &[
    // What moves rows through the connection.
    "COPY v FROM STDIN",
    "COPY raising FROM STDIN",
    "COPY t FROM STDIN",
    "COPY t (n) FROM STDIN WITH (FORMAT csv) WHERE n > 1",
    "COPY missing FROM STDIN",
    "COPY t FROM STDIN WITH (nonsense)",
    "COPY t TO STDOUT",
    "COPY (SELECT generate_series(1, 3)) TO STDOUT",
    "COPY (SELECT 1 / 0) TO STDOUT",
    "COPY v TO STDOUT",
    "COPY t FROM '/no/such/file'",
    "COPY t TO PROGRAM 'false'",
    "COPY (INSERT INTO t VALUES (1) RETURNING n) TO STDOUT",
    // Queries and changes.
    "SELECT 1",
    "SELECT",
    "SELECT FROM t",
    "SELECT n FROM t FOR UPDATE",
    "SELECT 1 / 0",
    "SELECT missing",
    "SELEC 1",
    "SELECT 1 INTO made_by_select",
    "SELECT generate_series(1, 600)",
    "SELECT 1 / (300 - n) FROM generate_series(1, 600) AS g (n)",
    "VALUES (1), (2)",
    "TABLE t",
    "WITH a AS (INSERT INTO t VALUES (1) RETURNING n) SELECT n FROM a",
    "INSERT INTO t VALUES (1)",
    "INSERT INTO t VALUES (1) RETURNING n",
    "INSERT INTO t VALUES ('x')",
    "INSERT INTO v VALUES (1)",
    "INSERT INTO raising VALUES (1)",
    "INSERT INTO deferred VALUES (1)",
    "UPDATE t SET n = n + 1",
    "UPDATE t SET missing = 1",
    "DELETE FROM t WHERE n > 5",
    "MERGE INTO t USING (SELECT 1 AS n) s ON t.n = s.n WHEN MATCHED THEN DELETE",
    "TRUNCATE t",
    "TRUNCATE missing",
    "LOCK TABLE t",
    "LOCK TABLE missing",
    "EXPLAIN SELECT 1",
    "EXPLAIN (ANALYZE) INSERT INTO t VALUES (1)",
    "EXPLAIN COPY t TO STDOUT",
    "CALL p()",
    "CALL raises()",
    "CALL commits()",
    "CALL missing()",
    "DO $$ BEGIN NULL; END $$",
    "DO $$ BEGIN RAISE 'no'; END $$",
    "DO $$ BEGIN EXECUTE 'COPY t FROM STDIN'; END $$",
    "DO $$ BEGIN EXECUTE 'COPY t TO STDOUT'; END $$",
    "",
    ";",
    "-- nothing",
    // Cursors and prepared statements.
    "DECLARE c CURSOR FOR SELECT 1",
    "DECLARE h CURSOR WITH HOLD FOR SELECT 1",
    "FETCH 1 FROM c",
    "FETCH ALL FROM h",
    "MOVE 1 FROM c",
    "CLOSE c",
    "CLOSE ALL",
    "CLOSE missing",
    "PREPARE own AS SELECT 1",
    "PREPARE own_with(int) AS SELECT 1",
    "EXECUTE own",
    "EXECUTE missing",
    "DEALLOCATE own",
    "DEALLOCATE missing",
    "DEALLOCATE ALL",
    // The transaction.
    "BEGIN",
    "BEGIN ISOLATION LEVEL SERIALIZABLE",
    "START TRANSACTION READ ONLY",
    "SAVEPOINT s",
    "RELEASE s",
    "ROLLBACK TO s",
    "COMMIT",
    "END",
    "COMMIT AND CHAIN",
    "ROLLBACK",
    "ROLLBACK AND CHAIN",
    "ABORT",
    "PREPARE TRANSACTION 'two'",
    "COMMIT PREPARED 'two'",
    "ROLLBACK PREPARED 'two'",
    "SET TRANSACTION READ ONLY",
    "SET CONSTRAINTS ALL IMMEDIATE",
    "SET CONSTRAINTS missing DEFERRED",
    // The session.
    "SET work_mem = '1MB'",
    "SET LOCAL work_mem = '1MB'",
    "SET missing = 1",
    "SET TIME ZONE 'Asia/Tokyo'",
    "SET ROLE missing",
    "SET ROLE NONE",
    "SET SESSION AUTHORIZATION DEFAULT",
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
    "RESET work_mem",
    "RESET ALL",
    "SHOW work_mem",
    "SHOW ALL",
    "SHOW missing.setting",
    "LISTEN channel",
    "NOTIFY channel, 'payload'",
    "UNLISTEN *",
    "LOAD 'plpgsql'",
    "LOAD 'missing'",
    "DISCARD TEMP",
    "DISCARD PLANS",
    "DISCARD ALL",
    // What is defined.
    "CREATE TABLE made (n int)",
    "CREATE TABLE made_as AS SELECT 1 AS n",
    "CREATE TEMP TABLE scratch (n int)",
    "CREATE UNLOGGED TABLE made (n int)",
    "CREATE VIEW made_view AS SELECT 1 AS n",
    "CREATE MATERIALIZED VIEW made_mat AS SELECT 1 AS n",
    "REFRESH MATERIALIZED VIEW made_mat",
    "CREATE INDEX made_index ON t (n)",
    "CREATE INDEX CONCURRENTLY made_index ON missing (n)",
    "CREATE SEQUENCE made_sequence",
    "CREATE TYPE made_type AS ENUM ('a')",
    "ALTER TYPE made_type ADD VALUE 'b'",
    "CREATE TYPE made_pair AS (a int, b int)",
    "CREATE DOMAIN made_domain AS int CHECK (VALUE > 0)",
    "ALTER DOMAIN made_domain DROP NOT NULL",
    "CREATE FUNCTION made_function(int) RETURNS int LANGUAGE sql AS 'SELECT $1'",
    "CREATE FUNCTION made_copy() RETURNS void LANGUAGE sql AS 'COPY t FROM STDIN'",
    "SELECT made_copy()",
    "ALTER FUNCTION made_function(int) STABLE",
    "CREATE PROCEDURE made_procedure() LANGUAGE sql AS ''",
    "CREATE AGGREGATE made_sum(int) (SFUNC = int4pl, STYPE = int)",
    "CREATE OPERATOR === (LEFTARG = int, RIGHTARG = int, FUNCTION = int4eq)",
    "CREATE OPERATOR FAMILY made_family USING btree",
    "CREATE CAST (text AS made_type) WITH INOUT",
    "CREATE COLLATION made_collation (provider = libc, locale = 'C')",
    "CREATE CONVERSION made_conversion FOR 'LATIN1' TO 'UTF8' FROM missing",
    "CREATE TRIGGER made_trigger BEFORE INSERT ON t EXECUTE FUNCTION missing()",
    "CREATE EVENT TRIGGER made_event ON nonsense EXECUTE FUNCTION missing()",
    "CREATE RULE made_rule AS ON INSERT TO made DO ALSO NOTHING",
    "CREATE POLICY made_policy ON t",
    "CREATE STATISTICS made_statistics ON n, m FROM t",
    "CREATE PUBLICATION made_publication",
    "CREATE SUBSCRIPTION made_subscription CONNECTION 'nonsense' PUBLICATION p",
    "CREATE SCHEMA pg_made",
    "CREATE EXTENSION missing",
    "ALTER EXTENSION plpgsql UPDATE TO 'missing'",
    "CREATE FOREIGN DATA WRAPPER made_wrapper",
    "CREATE SERVER made_server FOREIGN DATA WRAPPER made_wrapper",
    "CREATE FOREIGN TABLE made_foreign (n int) SERVER made_server",
    "CREATE USER MAPPING FOR CURRENT_USER SERVER made_server",
    "IMPORT FOREIGN SCHEMA s FROM SERVER made_server INTO public",
    "CREATE TEXT SEARCH CONFIGURATION made_search (COPY = simple)",
    "CREATE TRANSFORM FOR int LANGUAGE sql (FROM SQL WITH FUNCTION missing(internal))",
    "CREATE ACCESS METHOD made_method TYPE INDEX HANDLER missing",
    "CREATE LANGUAGE missing",
    "CREATE DATABASE template1",
    "CREATE TABLESPACE made_space LOCATION 'nowhere'",
    "CREATE ROLE cenote",
    "CREATE ASSERTION a CHECK (true)",
    "ALTER TABLE t ADD COLUMN m int",
    "ALTER TABLE t DROP COLUMN m",
    "ALTER TABLE missing ADD COLUMN m int",
    "ALTER SYSTEM SET missing = 1",
    "ALTER DATABASE missing SET work_mem = 1",
    "ALTER ROLE missing NOLOGIN",
    "ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC",
    "ALTER LARGE OBJECT 1 OWNER TO CURRENT_USER",
    "COMMENT ON TABLE t IS 'x'",
    "SECURITY LABEL ON TABLE t IS 'x'",
    "GRANT SELECT ON t TO PUBLIC",
    "GRANT missing TO cenote",
    "REVOKE SELECT ON t FROM PUBLIC",
    "REASSIGN OWNED BY missing TO cenote",
    "DROP OWNED BY missing",
    "DROP FOREIGN DATA WRAPPER made_wrapper CASCADE",
    "DROP PUBLICATION made_publication",
    "DROP VIEW made_view",
    "DROP TABLE made, made_as, made_by_select",
    "DROP TABLE IF EXISTS missing",
    "DROP TYPE made_type CASCADE",
    "DROP FUNCTION made_function",
    "DROP INDEX made_index",
    // What looks after it.
    "ANALYZE t",
    "VACUUM t",
    "CLUSTER t",
    "REINDEX TABLE t",
    "CHECKPOINT",
];

const TABLES: &[&str] = &[
    "CREATE TABLE t (n int)",
    "CREATE VIEW v AS SELECT n, 1 AS one FROM t GROUP BY n",
    "CREATE TABLE raising (n int)",
    "CREATE FUNCTION raise_it() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$",
    "CREATE TRIGGER raising BEFORE INSERT ON raising EXECUTE FUNCTION raise_it()",
    "CREATE TABLE deferred (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)",
    "CREATE PROCEDURE p() LANGUAGE plpgsql AS $$ BEGIN NULL; END $$",
    "CREATE PROCEDURE raises() LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$",
    "CREATE PROCEDURE commits() LANGUAGE plpgsql AS $$ BEGIN COMMIT; END $$",
];

/// With one connection, so that what a call leaves on it meets the next.
async fn handle() -> Db {
    let db = own_tables(|builder| builder.max(1)).await;
    for sql in TABLES {
        db.exec(sql, ()).await.unwrap();
    }
    db
}

#[derive(Clone, Copy, Debug)]
enum Method {
    Exec,
    Query,
    QueryOne,
    QueryOpt,
    Stream,
    DroppedStream,
    Prepare,
    ExecMany,
    Batch,
    FirstOfScript,
    LastOfScript,
}

const METHODS: &[Method] = &[
    Method::Exec,
    Method::Query,
    Method::QueryOne,
    Method::QueryOpt,
    Method::Stream,
    Method::DroppedStream,
    Method::Prepare,
    Method::ExecMany,
    Method::Batch,
    Method::FirstOfScript,
    Method::LastOfScript,
];

/// Runs a text by a method of a `Db` or a `Connection`, which have no trait in common.
macro_rules! run {
    ($on:expr, $method:expr, $sql:expr) => {{
        let (on, sql): (_, &str) = ($on, $sql);
        let done: Result<()> = async {
            match $method {
                Method::Exec => on.exec(sql, ()).await.map(drop),
                Method::Query => on.query(sql, ()).await.map(drop),
                Method::QueryOne => on.query_one(sql, ()).await.map(drop),
                Method::QueryOpt => on.query_opt(sql, ()).await.map(drop),
                Method::Stream => {
                    let mut rows = on.stream(sql, ()).await?;
                    while rows.try_next().await?.is_some() {}
                    Ok(())
                }
                Method::DroppedStream => {
                    let mut rows = on.stream(sql, ()).await?;
                    rows.try_next().await.map(drop)
                }
                Method::Prepare => {
                    let statement = on.prepare(sql).await?;
                    statement.exec(()).await?;
                    statement.query(()).await.map(drop)
                }
                Method::ExecMany => on.exec_many(sql, [(), ()]).await.map(drop),
                Method::Batch => {
                    let mut batch = on.batch();
                    let number = "SELECT ?::int8";
                    let before = batch.query_scalar_one::<i64>(number, (1,));
                    batch.query(sql, ());
                    batch.exec(sql, ());
                    let after = batch.query_scalar_one::<i64>(number, (2,));
                    let mut results = batch.run().await?;
                    if let Ok(before) = results.take(before) {
                        assert_eq!(before, 1, "{sql}");
                    }
                    if let Ok(after) = results.take(after) {
                        assert_eq!(after, 2, "{sql}");
                    }
                    results.check()
                }
                Method::FirstOfScript => {
                    let script = format!("{sql}; SELECT 1");
                    on.exec(&script, ()).await.map(drop)
                }
                Method::LastOfScript => {
                    let script = format!("SELECT 1; {sql}");
                    on.query(&script, ()).await.map(drop)
                }
            }
        }
        .await;
        if let Err(error) = done {
            let what = format!("{:?} of {sql}: {error}", $method);
            assert_ne!(error.kind(), Kind::ConnectionLost, "{what}");
        }
    }};
}

/// Asks for a number that no call has asked for before.
macro_rules! ask {
    ($on:expr, $what:expr) => {{
        static LAST: AtomicI64 = AtomicI64::new(0);
        let asked = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let answered: Result<i64> = $on.query_as_one("SELECT ?::int8", (asked,)).await;
        match answered {
            Ok(answer) => {
                assert_eq!(answer, asked, "out of step after {}", $what);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }};
}

async fn try_each(db: &Db, place: &str, run: impl AsyncFn(&Db, Method, &str)) {
    for sql in STATEMENTS {
        for method in METHODS {
            let what = format!("{method:?} {place} of {sql}");
            soon(&what, run(db, *method, sql)).await;
            let asked: Result<()> = soon(&what, async { ask!(db, what) }).await;
            asked.unwrap_or_else(|error| panic!("{what}: {error}"));
        }
    }
}

#[tokio::test]
async fn h0a_every_statement_unpinned_keeps_answers_in_step() {
    let db = handle().await;
    try_each(&db, "alone", async |db, method, sql| run!(db, method, sql)).await;
}

#[tokio::test]
async fn h0a_every_statement_in_a_scope_keeps_answers_in_step() {
    let db = handle().await;
    try_each(&db, "in a scope", async |db, method, sql| {
        let (db, sql) = (db.clone(), sql.to_owned());
        cenote::scope(async move {
            run!(&db, method, &sql);
            let _ = ask!(db, sql);
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn h0a_every_statement_in_a_transaction_keeps_answers_in_step() {
    let db = handle().await;
    try_each(&db, "in a transaction", async |db, method, sql| {
        let done: Result<()> = db
            .transaction(async || {
                ask!(db, sql)?;
                run!(db, method, sql);
                let _ = ask!(db, sql);
                Err(Error::new(Kind::Other, "rolled back"))
            })
            .await;
        done.unwrap_err();
        let done = db.transaction(async || {
            run!(db, method, sql);
            ask!(db, sql)
        });
        let _ = done.await;
    })
    .await;
}

#[tokio::test]
async fn h0a_every_statement_on_a_connection_keeps_answers_in_step() {
    let db = handle().await;
    try_each(&db, "on a connection", async |db, method, sql| {
        let connection = db.connection().await.unwrap();
        run!(&connection, method, sql);
        let _ = ask!(connection, sql);
    })
    .await;
}
