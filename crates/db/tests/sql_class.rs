//! What a text may do to the session and to the transaction, as far as the text tells.

use cenote::sql::{
    Class, Dialect, SessionEffect, SessionFunction, Statements, TransactionVerb, scan,
};

const ALL: [&Dialect; 4] = [
    &Dialect::SQLITE,
    &Dialect::POSTGRES,
    &Dialect::MYSQL,
    &Dialect::ODBC,
];

fn class(dialect: &Dialect, sql: &str) -> Class {
    match scan(dialect, sql) {
        Ok(scanned) => scanned.class,
        Err(error) => panic!("{}: {sql}: {error}", dialect.name),
    }
}

fn leaves_the_session_alone(dialect: &Dialect, texts: &[&str]) {
    for sql in texts {
        let class = class(dialect, sql);
        assert!(!class.touches_session, "{}: {sql}", dialect.name);
        assert!(!class.only_session, "{}: {sql}", dialect.name);
    }
}

/// It touches the session, and may do more than that.
fn touches(dialect: &Dialect, texts: &[&str]) {
    for sql in texts {
        let class = class(dialect, sql);
        assert!(class.touches_session, "{}: {sql}", dialect.name);
        assert!(!class.only_session, "{}: {sql}", dialect.name);
        assert!(!class.reads_only, "{}: {sql}", dialect.name);
    }
}

/// It makes no sense unless the session is kept.
fn only_changes_the_session(dialect: &Dialect, texts: &[&str]) {
    for sql in texts {
        let class = class(dialect, sql);
        assert!(class.touches_session, "{}: {sql}", dialect.name);
        assert!(class.only_session, "{}: {sql}", dialect.name);
        assert!(!class.reads_only, "{}: {sql}", dialect.name);
    }
}

#[test]
fn plain_statements_leave_every_session_alone() {
    for dialect in ALL {
        leaves_the_session_alone(
            dialect,
            &[
                "SELECT 1",
                "select a, count(*) from t where b in (1, 2) group by a",
                "(SELECT 1) UNION (SELECT 2)",
                "((SELECT 1))",
                "INSERT INTO t (a) VALUES (?)",
                "UPDATE t SET a = ? WHERE b = ?",
                "DELETE FROM t",
                "REPLACE INTO t VALUES (1)",
                "VALUES (1), (2)",
                "WITH x AS (SELECT 1) SELECT * FROM x",
                "WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x",
                "MERGE INTO t USING s ON a = b WHEN MATCHED THEN DELETE",
                "TRUNCATE TABLE t",
                "EXPLAIN SELECT 1",
                "EXPLAIN DELETE FROM t",
                "CREATE TABLE t (a int)",
                "CREATE TABLE IF NOT EXISTS t (a int)",
                "CREATE INDEX i ON t (a)",
                "CREATE UNIQUE INDEX i ON t (a)",
                "CREATE VIEW v AS SELECT 1",
                "CREATE OR REPLACE VIEW v AS SELECT 1",
                "DROP TABLE t",
                "DROP INDEX i",
                "ALTER TABLE t ADD COLUMN b int",
                "SELECT temp, temporary FROM weather",
                "SELECT 'SET x = 1', \"lock\", 'get_lock(1)'",
                "SELECT 1 /* SET x = 1; */ -- PRAGMA x",
                "SELECT last_insert_rowid(), nextval('s'), last_insert_id(), changes()",
                "SELECT a FROM set_of_things, pragma_like, listen",
                "",
                "  ",
                ";",
                ";;",
                "-- nothing",
                "/* nothing */ ;",
            ],
        );
    }
}

#[test]
fn what_is_not_known_touches_the_session() {
    for dialect in ALL {
        touches(
            dialect,
            &[
                "CALL p()",
                "DO 1",
                "EXECUTE s",
                "SHOW x",
                "VACUUM",
                "ANALYZE",
                "GRANT ALL ON t TO u",
                "COPY t FROM STDIN",
                "CREATE EXTENSION x",
                "CREATE ROLE x",
                "DROP DATABASE d",
                "DROP SCHEMA s",
                "ALTER SYSTEM SET x = 1",
                "ALTER ROLE r SET x = 1",
                "EXPLAIN CREATE TABLE t AS SELECT 1",
                "EXPLAIN EXECUTE s",
                "EXPLAIN",
                "EXPLAIN ANALYZE",
                "EXPLAIN EXPLAIN SELECT 1",
                "{call p()}",
                "1",
                "'a'",
                "\"select\" 1",
                "sélect 1",
                "SELEC 1",
                "x SELECT 1",
                "= SELECT 1",
                "FETCH NEXT FROM c",
                "XA START 'a'",
                "COMMIT PREPARED 'a'",
                "PREPARE TRANSACTION 'a'",
                "START SLAVE",
                "BEGIN NOT ATOMIC",
                "BEGIN SELECT 1",
            ],
        );
    }
}

#[test]
fn several_statements_touch_the_session() {
    for dialect in ALL {
        for sql in [
            "SELECT 1; SELECT 2",
            "SELECT 1; SET x = 1",
            "; SELECT 1 ; ; SELECT 2;",
            "SELECT ';'; SELECT 1",
            "SET x = 1; SET y = 2",
        ] {
            let class = class(dialect, sql);
            assert_eq!(class.statements, Statements::Several, "{sql}");
            assert!(class.touches_session, "{}: {sql}", dialect.name);
            assert!(!class.only_session, "{}: {sql}", dialect.name);
            assert!(!class.reads_only, "{}: {sql}", dialect.name);
            assert_eq!(class.transaction, None, "{sql}");
        }
    }
}

#[test]
fn a_semicolon_at_the_end_and_comments_are_no_other_statement() {
    for dialect in ALL {
        for sql in [
            "SELECT 1",
            "SELECT 1;",
            "SELECT 1 ; ",
            "SELECT 1;;",
            "; SELECT 1",
            "SELECT 1; -- done",
            "SELECT 1; /* done; really */",
            "SELECT 1 -- ; SELECT 2",
            "SELECT ';', \";\"",
        ] {
            assert_eq!(class(dialect, sql).statements, Statements::One, "{sql}");
        }
        for sql in ["", ";", " ; ; ", "-- a;b", "/* a */"] {
            assert_eq!(class(dialect, sql).statements, Statements::Empty, "{sql}");
        }
    }
}

/// D-core-028a, D-core-028b
#[test]
fn a_session_statement_is_seen_behind_comments_of_every_style() {
    for (dialect, statement) in [
        (&Dialect::MYSQL, "SET SESSION sql_mode = ''"),
        (&Dialect::POSTGRES, "SET search_path = x"),
        (&Dialect::SQLITE, "PRAGMA foreign_keys = 0"),
        (&Dialect::ODBC, "SET LANGUAGE French"),
    ] {
        only_changes_the_session(
            dialect,
            &[
                statement,
                &statement.to_lowercase(),
                &format!("/* SELECT */ {statement}"),
                &format!("-- SELECT\n{statement}"),
                &format!("/**/--\n/*;*/ {statement}"),
                &format!(" \t\r\n{statement};"),
            ],
        );
    }
    only_changes_the_session(
        &Dialect::MYSQL,
        &[
            "# SELECT\nSET x = 1",
            "#\nSET x = 1",
            "/*! SET x = 1 */",
            "/*!40101 SET NAMES utf8 */",
            "/*!40101 SET NAMES utf8 */;",
            "/*M!100100 SET NAMES utf8 */",
            "/*!SET*/ x = 1",
        ],
    );
    only_changes_the_session(&Dialect::POSTGRES, &["/* /* a */ b */ SET x = 1"]);
}

/// D-core-028e
#[test]
fn a_call_of_a_procedure_touches_the_session() {
    touches(&Dialect::MYSQL, &["CALL p()", "/* a */ call p(?)"]);
}

#[test]
fn every_executable_comment_touches_the_session_because_only_some_servers_read_it() {
    for dialect in [&Dialect::MYSQL, &Dialect::ODBC] {
        touches(
            dialect,
            &[
                "SELECT /*! STRAIGHT_JOIN */ a FROM t",
                "SELECT 1 /*!99999 ' */; SET x = 1 -- '",
                "/*!50000 SELECT */ 1",
                "SELECT 1 /*M! , GET_LOCK('a', 1) */",
            ],
        );
    }
    leaves_the_session_alone(&Dialect::POSTGRES, &["SELECT 1 /*! SET x = 1 */"]);
}

#[test]
fn postgres_session_statements_are_known() {
    only_changes_the_session(
        &Dialect::POSTGRES,
        &[
            "SET search_path TO x",
            "SET SESSION statement_timeout = 1",
            "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
            "SET ROLE r",
            "SET TIME ZONE 'UTC'",
            "SET local.x = 1",
            "SET transaction.x TO 1",
            "SET constraints . x = 1",
            "SET LOCAL",
            "RESET ALL",
            "RESET search_path",
            "LISTEN jobs",
            "UNLISTEN *",
            "DISCARD ALL",
            "LOAD 'auto_explain'",
            "PREPARE s AS SELECT 1",
            "DEALLOCATE s",
            "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
            "DECLARE c BINARY INSENSITIVE NO SCROLL CURSOR WITH HOLD FOR SELECT 1",
            "CREATE TEMP TABLE t (a int)",
            "CREATE TEMPORARY TABLE t AS SELECT 1",
            "CREATE LOCAL TEMP TABLE t (a int)",
            "CREATE GLOBAL TEMPORARY TABLE t (a int)",
            "CREATE OR REPLACE TEMP VIEW v AS SELECT 1",
            "CREATE TEMP SEQUENCE s",
            "SELECT pg_advisory_lock(1)",
            "SELECT pg_advisory_lock($1, $2)",
            "SELECT pg_try_advisory_lock(hashtext('a')) AS locked;",
            "SELECT pg_catalog.pg_advisory_unlock_all()",
            "SELECT \"pg_advisory_lock\" (1)",
            "SELECT set_config('a.b', 'c', false)",
            "SELECT set_config('a.b', 'c', $1)",
            "SELECT pg_catalog.set_config('search_path', '', false);",
            "SELECT setseed(0.5)",
            "SELECT * INTO TEMP t FROM s",
            "SELECT 1 INTO TEMPORARY TABLE t",
            "SELECT 1 INTO LOCAL TEMP t",
            "WITH x AS (SELECT 1) SELECT * INTO TEMP t FROM x",
        ],
    );
    touches(
        &Dialect::POSTGRES,
        &[
            "DECLARE c CURSOR WITHOUT HOLD FOR SELECT 1",
            "NOTIFY jobs",
            "LOCK TABLE t",
            "SELECT set_config('a', 'b', false), 1",
            "SELECT set_config('a', 'b', false) FROM t",
            "SELECT pg_advisory_lock(id) FROM t",
            "SELECT 1, pg_advisory_lock(1)",
            "SELECT 1 WHERE pg_try_advisory_lock(1)",
            "INSERT INTO t VALUES (set_config('a', 'b', false))",
            "UPDATE t SET a = PG_ADVISORY_LOCK (1)",
            "DELETE FROM t WHERE pg_advisory_unlock/* */(1)",
            "VALUES (set_config('a', 'b', false))",
            "EXPLAIN ANALYZE SELECT pg_advisory_lock(1)",
            "CREATE TABLE t AS SELECT set_config('a', 'b', false)",
            "SELECT \"set_config\"('a', 'b', false) FROM t",
            "SELECT U&\"set\\005fconfig\"('a', 'b', false)",
            "SELECT u&\"x\" FROM t",
            "SELECT * FROM dblink_connect('x')",
            "SELECT dblink('x', 'y')",
            "SELECT query_to_xml('SELECT set_config(''a'', ''b'', false)', true, true, '')",
            "SELECT * FROM ts_stat('SELECT 1')",
            "SELECT * FROM crosstab('SELECT 1')",
            "UPDATE pg_settings SET setting = 1",
            "WITH x AS (UPDATE pg_catalog.pg_settings SET setting = 1 RETURNING 1) SELECT 1",
            "UPDATE \"pg_settings\" SET setting = 1",
            "CREATE TABLE pg_temp.t (a int)",
            "CREATE TABLE \"pg_temp\".t (a int)",
            "CREATE TABLE pg_temp_3.t (a int)",
            "SELECT 1 INTO pg_temp.t",
            "CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "EXPLAIN ANALYZE CREATE TEMP TABLE t AS SELECT 1",
            "WITH x AS (DELETE FROM s RETURNING 1) SELECT * INTO TEMP t FROM x",
        ],
    );
    leaves_the_session_alone(
        &Dialect::POSTGRES,
        &[
            "SET LOCAL statement_timeout = 1",
            "SET LOCAL \"a.b\" = 'c'",
            "set /* */ local a.b to 1",
            "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            "SET CONSTRAINTS ALL DEFERRED",
            "SELECT set_config('a.b', $1, true)",
            "SELECT set_config('a.b', f(1, 2), TRUE), set_config('c', 'd', true) FROM t",
            "SELECT pg_advisory_xact_lock(1)",
            "SELECT pg_try_advisory_xact_lock_shared(1)",
            "SELECT nextval('s'), setval('s', 1), currval('s')",
            "SELECT lo_get(1), pg_notify('a', 'b')",
            "SELECT pg_advisory_lock FROM t",
            "SELECT * FROM pg_settings",
            "SELECT 1 INTO t",
            "SELECT 1 INTO UNLOGGED t",
            "SELECT 1 INTO TABLE temp",
            "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON, SETTINGS) SELECT 1",
            "EXPLAIN ANALYZE VERBOSE UPDATE t SET a = 1",
            "CREATE MATERIALIZED VIEW v AS SELECT 1",
            "CREATE UNLOGGED TABLE t (a int)",
            "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS $$ SELECT set_config('a', 'b', false) $$",
            "CREATE OR REPLACE PROCEDURE p() LANGUAGE sql AS $$ SELECT 1; SELECT 2 $$",
            "SELECT a @> b, c <@ d, e @@ f, g # h",
        ],
    );
}

/// The last argument tells, and no other.
#[test]
fn a_local_setting_is_told_from_one_of_the_session() {
    for sql in [
        "SELECT set_config('a', 'b', false OR true)",
        "SELECT set_config('a', 'b', true AND false)",
        "SELECT set_config('a', 'b', NOT true)",
        "SELECT set_config('a', 'b', true::bool)",
        "SELECT set_config('a', 'b', (true))",
        "SELECT set_config('a', f(1, true), false)",
        "SELECT set_config('a', f(1, true))",
        "SELECT set_config('a', set_config('b', 'c', false), true)",
        "SELECT set_config('a', set_config('b', 'c', true), true)",
        "SELECT set_config('a', 'b', 'true')",
        "SELECT set_config('a', 'b', \"true\")",
        "SELECT set_config(is_local => false, setting_name => 'a', new_value => true)",
        "SELECT set_config('a', 'b', true), set_config('a', 'b', false)",
        "SELECT set_config('a', 'b', true",
        "SELECT set_config(true)",
    ] {
        assert!(class(&Dialect::POSTGRES, sql).touches_session, "{sql}");
    }
}

#[test]
fn mysql_session_statements_are_known() {
    only_changes_the_session(
        &Dialect::MYSQL,
        &[
            "SET @a = 1",
            "SET @@sql_mode = ''",
            "SET @@session.sql_mode = ''",
            "SET SESSION sql_mode = ''",
            "SET LOCAL sql_mode = ''",
            "SET autocommit = 0",
            "SET NAMES utf8mb4",
            "SET ROLE r",
            "SET SESSION TRANSACTION READ ONLY",
            "USE db",
            "LOCK TABLES t READ",
            "LOCK INSTANCE FOR BACKUP",
            "UNLOCK TABLES",
            "PREPARE s FROM 'SELECT 1'",
            "DEALLOCATE PREPARE s",
            "DROP PREPARE s",
            "CREATE TEMPORARY TABLE t (a int)",
            "CREATE OR REPLACE TEMPORARY TABLE t (a int)",
            "SELECT GET_LOCK('a', 1)",
            "SELECT get_lock(?, ?) AS locked",
            "SELECT `GET_LOCK`('a', 1)",
            "SELECT RELEASE_LOCK('a')",
            "SELECT RELEASE_ALL_LOCKS()",
            "DO GET_LOCK('a', 1)",
            "DO RELEASE_LOCK('a')",
        ],
    );
    touches(
        &Dialect::MYSQL,
        &[
            "SET GLOBAL max_connections = 1",
            "SET PERSIST max_connections = 1",
            "SET @@global.max_connections = 1",
            "SET sql_mode = '', GLOBAL max_connections = 1",
            "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            "SET PASSWORD = 'a'",
            "SET STATEMENT max_statement_time = 1 FOR SELECT 1",
            "SET DEFAULT ROLE r TO u",
            "RESET MASTER",
            "LOAD DATA INFILE 'a' INTO TABLE t",
            "LOCK TABLE t READ",
            "FLUSH TABLES WITH READ LOCK",
            "SELECT @a := 1",
            "SELECT@a:=1",
            "SELECT @a",
            "SELECT @'a', @`b`",
            "SELECT a INTO @b FROM t",
            "SELECT @@version, @a",
            "INSERT INTO t VALUES (@a)",
            "UPDATE t SET a = @a := @a + 1",
            "SELECT SQL_CALC_FOUND_ROWS * FROM t",
            "SELECT sql_calc_found_rows * FROM t",
            "SELECT GET_LOCK('a', 1), 1",
            "SELECT 1 FROM t WHERE GET_LOCK ('a', 1)",
            "SELECT GET_LOCK('a', 1) FROM t",
            "SELECT \"GET_LOCK\"('a', 1) + 1",
            "SELECT GÉT_LOCK('a', 1) + 1",
            "CREATE TABLE t SELECT GET_LOCK('a', 1)",
            "CREATE PROCEDURE p() BEGIN SET @a = 1; END",
            "CREATE TABLE temp (a int)",
            "DROP TEMPORARY TABLE t",
            "IF 1 THEN SET @a = 1; END IF",
        ],
    );
    leaves_the_session_alone(
        &Dialect::MYSQL,
        &[
            "SELECT @@version",
            "SELECT @@session.sql_mode, @@global.x",
            "SELECT IS_FREE_LOCK('a'), LAST_INSERT_ID(), FOUND_ROWS()",
            "SELECT get_locks(1), GET_LOC('a')",
            "SELECT GÉT_LOCKS('a', 1)",
            "SELECT '@a', `@b`, \"@c\" -- @d",
            "SELECT 1 # @a",
            "EXPLAIN FORMAT=JSON SELECT 1",
            "EXPLAIN FORMAT = 'tree' SELECT 1",
            "SELECT a FROM t FOR UPDATE",
            "CREATE FULLTEXT INDEX i ON t (a)",
            "CREATE TRIGGER x BEFORE INSERT ON t FOR EACH ROW INSERT INTO u VALUES (1)",
        ],
    );
}

#[test]
fn sqlite_session_statements_are_known() {
    only_changes_the_session(
        &Dialect::SQLITE,
        &[
            "PRAGMA foreign_keys = ON",
            "PRAGMA foreign_keys=0",
            "PRAGMA busy_timeout(100)",
            "PRAGMA main.cache_size = -100",
            "PRAGMA \"main\".[synchronous] = 0",
            "ATTACH 'a.db' AS a",
            "ATTACH DATABASE ? AS a",
            "DETACH a",
            "CREATE TEMP TABLE t (a)",
            "CREATE TEMPORARY VIEW v AS SELECT 1",
            "CREATE TEMP TRIGGER x AFTER INSERT ON t BEGIN SELECT 1; END",
        ],
    );
    touches(
        &Dialect::SQLITE,
        &[
            "PRAGMA foreign_keys",
            "PRAGMA user_version = 5",
            "PRAGMA journal_mode = WAL",
            "PRAGMA table_info(t)",
            "PRAGMA integrity_check(10)",
            "PRAGMA wal_checkpoint(TRUNCATE)",
            "CREATE TABLE temp.t (a)",
            "CREATE TABLE \"temp\".t (a)",
            "CREATE TABLE [Temp].t (a)",
            "CREATE TABLE `temp`.t (a)",
            "CREATE TABLE 'temp'.t (a)",
            "CREATE INDEX temp.i ON t (a)",
            "CREATE TRIGGER x AFTER INSERT ON temp.t BEGIN SELECT 1; END",
            "ALTER TABLE temp.t RENAME TO u",
            "SELECT load_extension('a')",
            "SELECT \"load_extension\"('a')",
            "SELECT [load_extension]('a')",
            "SELECT 1, \u{feff}load_extension('a')",
            "INSERT INTO t VALUES (LOAD_EXTENSION('a'))",
            "REINDEX",
        ],
    );
    leaves_the_session_alone(
        &Dialect::SQLITE,
        &[
            "EXPLAIN QUERY PLAN SELECT 1",
            "CREATE VIRTUAL TABLE t USING fts5(a)",
            "SELECT * FROM temp.t",
            "SELECT last_insert_rowid(), changes(), total_changes()",
            "SELECT * FROM pragma_table_info('t')",
            "\u{feff}SELECT 1",
        ],
    );
}

#[test]
fn odbc_is_on_its_guard_for_every_database() {
    only_changes_the_session(
        &Dialect::ODBC,
        &[
            "SET LANGUAGE French",
            "USE db",
            "ALTER SESSION SET x = 1",
            "CREATE LOCAL TEMPORARY TABLE t (a int)",
            "SELECT GET_LOCK('a', 1)",
            "SELECT pg_advisory_lock(1)",
        ],
    );
    touches(
        &Dialect::ODBC,
        &[
            "SET TRANSACTION READ ONLY",
            "CREATE GLOBAL TEMPORARY TABLE t (a int)",
            "CREATE TABLE #t (a int)",
            "SELECT * INTO #t FROM s",
            "SELECT * FROM ##t",
            "SELECT @a = 1",
            "SELECT 1 SET ROWCOUNT 1",
            "UPDATE t SET a = 1 SET ROWCOUNT 1",
            "SELECT 1 EXEC p",
            "INSERT INTO t EXEC p",
            "SELECT 1 USE db",
            "SELECT 1 DECLARE c CURSOR FOR SELECT 2",
            "SELECT 1 REVERT",
            "COMMIT SET ROWCOUNT 1",
            "BEGIN TRAN EXEC p",
            "{call p(?)}",
            "BEGIN SET x 1 END",
            "SELECT load_extension('a')",
        ],
    );
    leaves_the_session_alone(
        &Dialect::ODBC,
        &[
            "UPDATE t SET a = 1",
            "MERGE INTO t USING s ON a = b WHEN MATCHED THEN UPDATE SET a = 1",
            "INSERT INTO t SET a = 1",
            "SELECT @@VERSION",
            "SELECT {fn NOW()}",
            "SELECT [set] FROM [use]",
        ],
    );
}

#[test]
fn transaction_control_is_told_by_its_verb() {
    use TransactionVerb::{Begin, Commit, Release, Rollback, RollbackTo, Savepoint};
    for dialect in ALL {
        for (sql, verb) in [
            ("BEGIN", Begin),
            ("begin;", Begin),
            ("/* a */ BEGIN -- b", Begin),
            ("BEGIN TRANSACTION", Begin),
            ("BEGIN WORK", Begin),
            ("BEGIN IMMEDIATE", Begin),
            ("BEGIN EXCLUSIVE TRANSACTION", Begin),
            ("BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY", Begin),
            ("BEGIN NOT DEFERRABLE", Begin),
            ("START TRANSACTION", Begin),
            ("START TRANSACTION READ ONLY", Begin),
            ("COMMIT", Commit),
            ("COMMIT WORK", Commit),
            ("COMMIT AND CHAIN", Commit),
            ("ROLLBACK", Rollback),
            ("ROLLBACK WORK", Rollback),
            ("ROLLBACK AND NO CHAIN", Rollback),
            ("ROLLBACK TO a", RollbackTo),
            ("ROLLBACK TO SAVEPOINT a", RollbackTo),
            ("ROLLBACK WORK TO SAVEPOINT a", RollbackTo),
            ("ROLLBACK TRANSACTION TO a", RollbackTo),
            ("SAVEPOINT a", Savepoint),
            ("RELEASE a", Release),
            ("RELEASE SAVEPOINT a", Release),
        ] {
            let class = class(dialect, sql);
            assert_eq!(class.transaction, Some(verb), "{}: {sql}", dialect.name);
            assert!(class.contains_transaction_control, "{sql}");
            assert!(!class.touches_session, "{}: {sql}", dialect.name);
            assert!(!class.reads_only, "{sql}");
        }
        for sql in [
            "SELECT 1",
            "COMMIT PREPARED 'a'",
            "ROLLBACK PREPARED 'a'",
            "BEGIN NOT ATOMIC SELECT 1",
            "START SLAVE",
            "EXPLAIN COMMIT",
            "SELECT 'BEGIN' -- COMMIT",
            "SET TRANSACTION READ ONLY",
        ] {
            let class = class(dialect, sql);
            assert_eq!(class.transaction, None, "{}: {sql}", dialect.name);
            assert!(!class.contains_transaction_control, "{sql}");
        }
    }
    for dialect in [&Dialect::POSTGRES, &Dialect::SQLITE] {
        for sql in ["END", "END TRANSACTION"] {
            assert_eq!(class(dialect, sql).transaction, Some(Commit), "{sql}");
        }
    }
    assert_eq!(class(&Dialect::MYSQL, "END").transaction, None);
    assert_eq!(
        class(&Dialect::POSTGRES, "ABORT").transaction,
        Some(Rollback)
    );
    assert_eq!(
        class(&Dialect::MYSQL, "/*!50000 BEGIN */").transaction,
        Some(Begin)
    );
}

#[test]
fn transaction_control_is_found_in_a_script() {
    for dialect in ALL {
        for sql in [
            "BEGIN; SELECT 1; COMMIT",
            "SELECT 1; ROLLBACK",
            "SELECT 1;;SAVEPOINT a;",
        ] {
            let class = class(dialect, sql);
            assert!(class.contains_transaction_control, "{sql}");
            assert_eq!(class.transaction, None, "{sql}");
        }
        assert!(!class(dialect, "SELECT 1; SELECT 2").contains_transaction_control);
    }
}

#[test]
fn a_sqlite_trigger_with_its_body_is_one_statement() {
    let trigger = "CREATE TRIGGER x AFTER UPDATE ON t BEGIN \
                   UPDATE t SET a = CASE WHEN b THEN 1 ELSE 2 END; \
                   DELETE FROM u; \
                   END";
    for sql in [
        trigger.to_owned(),
        format!("{trigger};"),
        format!("{trigger} ; -- done"),
    ] {
        let class = class(&Dialect::SQLITE, &sql);
        assert_eq!(class.statements, Statements::One, "{sql}");
        assert!(!class.touches_session, "{sql}");
        assert!(!class.contains_transaction_control, "{sql}");
    }
    for more in ["PRAGMA x", "SELECT 1", "COMMIT", "SELECT 1 AS end;"] {
        let sql = format!("{trigger}; {more}");
        let class = class(&Dialect::SQLITE, &sql);
        assert_eq!(class.statements, Statements::Several, "{sql}");
        assert!(class.touches_session, "{sql}");
    }
    // `begin` can be a column's name there.
    let sql = "CREATE TRIGGER x AFTER INSERT ON t BEGIN UPDATE t SET begin = 1; END; PRAGMA y";
    assert_eq!(class(&Dialect::SQLITE, sql).statements, Statements::Several);
}

#[test]
fn only_plain_reads_are_called_reads() {
    for dialect in ALL {
        for sql in [
            "SELECT a FROM t",
            "VALUES (1)",
            "TABLE t",
            "WITH x AS (SELECT 1) SELECT * FROM x",
            "EXPLAIN SELECT 1",
            "(SELECT 1) UNION (SELECT 2)",
            "SELECT replace(a, 'insert', 'update') FROM t",
        ] {
            assert!(class(dialect, sql).reads_only, "{}: {sql}", dialect.name);
        }
        for sql in [
            "",
            "INSERT INTO t VALUES (1)",
            "UPDATE t SET a = 1",
            "DELETE FROM t",
            "REPLACE INTO t VALUES (1)",
            "CREATE TABLE t (a int)",
            "WITH x AS (SELECT 1) REPLACE INTO t SELECT * FROM x",
            "WITH x AS (DELETE FROM t RETURNING a) SELECT * FROM x",
            "WITH x AS (INSERT INTO t VALUES (1) RETURNING a) SELECT * FROM x",
            "SELECT a FROM t FOR UPDATE",
            "SELECT a FROM t FOR NO KEY UPDATE",
            "SELECT a FROM t FOR SHARE",
            "SELECT a FROM t FOR KEY SHARE",
            "SELECT a FROM t LOCK IN SHARE MODE",
            "SELECT a INTO b FROM t",
            "EXPLAIN ANALYZE INSERT INTO t VALUES (1)",
            "SELECT 1; SELECT 2",
            "BEGIN",
        ] {
            assert!(!class(dialect, sql).reads_only, "{}: {sql}", dialect.name);
        }
    }
}

#[test]
fn a_dialect_of_ones_own_names_its_own_session_functions() {
    static FUNCTIONS: &[SessionFunction] = &[
        SessionFunction::new("app_lock", SessionEffect::Only),
        SessionFunction::new("app_*", SessionEffect::Changes),
    ];
    static MINE: Dialect = {
        let mut dialect = Dialect::SQLITE;
        dialect.session_functions = &[FUNCTIONS];
        dialect
    };
    only_changes_the_session(&MINE, &["SELECT App_Lock(1)"]);
    touches(&MINE, &["SELECT app_anything(1)", "SELECT app_(1)"]);
    leaves_the_session_alone(&MINE, &["SELECT app(1)", "SELECT load_extension('a')"]);
}
