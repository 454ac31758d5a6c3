//! The statements and functions that change a session, database by database.

use cenote::sql::{Dialect, SessionEffect, SessionFunction};

use crate::support::{class, leaves_the_session_alone, only_changes_the_session, touches};

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
            "SET local TO 1",
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
            "CREATE VIEW pg_temp.v AS SELECT 1",
            "CREATE SEQUENCE pg_temp.s",
            "CREATE TABLE t AS SELECT * FROM pg_temp.s",
            "ALTER TABLE t SET SCHEMA pg_temp",
            "SHOW x; SET x = 1",
            "COMMENT ON TABLE pg_temp.t IS 'a'",
            "ANALYZE pg_temp_3.t",
            "CREATE EXTENSION dblink",
            "ALTER EXTENSION dblink UPDATE",
            "CREATE LANGUAGE plperl",
            "CREATE SCHEMA s CREATE TEMP TABLE t (a int)",
            "CREATE RULE r AS ON INSERT TO t DO ALSO SELECT pg_advisory_lock(1)",
            "CREATE POLICY p ON t USING (set_config('a', 'b', false) = 'b')",
            "ALTER TABLE t ADD CHECK (pg_try_advisory_lock(a))",
            "CREATE TABLE t (a int DEFAULT pg_advisory_lock(1))",
            "IMPORT FOREIGN SCHEMA s FROM SERVER x INTO y",
            "EXPLAIN SHOW x",
            "EXPLAIN ANALYZE EXECUTE s",
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
            "SET LOCAL search_path = app, public",
            "SET LOCAL search_path TO 'app'",
            "SELECT set_config('search_path', 'app, public', true)",
        ],
    );
    // It is an error, if anything.
    only_changes_the_session(&Dialect::POSTGRES, &["SELECT set_config('a')"]);
}

/// What is created while it is set so is temporary, and stays when the transaction ends.
#[test]
fn h20_a_temporary_search_path_touches_the_session() {
    for sql in [
        "SET LOCAL search_path = pg_temp",
        "SET LOCAL search_path = 'pg_temp'",
        "SET LOCAL search_path = $$pg_temp$$",
        "SET LOCAL search_path = U&'pg!005ftemp' UESCAPE '!'",
        "SET LOCAL search_path = 'pg_'\n'temp'",
        "SELECT set_config('search_'\n'path', 'pg_temp', true)",
        "SELECT set_config('search_path', 'pg_' -- and\n'temp', true)",
        "SELECT set_config('search_path', U&'pg!005ftemp' UESCAPE '!', true)",
        "SET LOCAL search_path = 'app', 'PG_TEMP'",
        "SET LOCAL search_path = E'pg\\x5ftemp'",
        "SELECT set_config('search_path', 'pg_temp', true)",
        "SELECT set_config('Search_Path', 'app, pg_temp', true)",
        "SELECT set_config('search_path', $1, true)",
        "SELECT set_config('search_path', 'pg_' || 'temp', true)",
        "SELECT set_config('search_path', tenant(), true)",
        "SELECT set_config($1, $2, true)",
        "SELECT set_config(name, value, true) FROM settings",
        "SELECT set_config(E'search\\x5fpath', 'pg_temp', true)",
        "SELECT set_config($$search_path$$, 'pg_temp', true)",
    ] {
        assert!(class(&Dialect::POSTGRES, sql).touches_session, "{sql}");
    }
}

#[test]
fn h22_statements_that_change_no_session_are_known() {
    leaves_the_session_alone(
        &Dialect::POSTGRES,
        &[
            "SHOW search_path",
            "SHOW ALL",
            "NOTIFY jobs, 'one'",
            "COMMENT ON TABLE t IS 'temporary'",
            "ANALYZE",
            "ANALYZE VERBOSE t (a)",
            "ANALYSE t",
            "VACUUM (FULL, ANALYZE) t",
            "COPY t (a) FROM STDIN (FORMAT csv) WHERE a > 1",
            "COPY (SELECT a FROM t) TO STDOUT",
            "GRANT SELECT ON t TO u",
            "REVOKE ALL ON SCHEMA s FROM PUBLIC",
            "TRUNCATE t",
            "REINDEX TABLE CONCURRENTLY t",
            "REFRESH MATERIALIZED VIEW CONCURRENTLY v",
            "CLUSTER t USING i",
            "CHECKPOINT",
            "LOCK TABLE t IN SHARE MODE",
            "LOCK tables",
            "SECURITY LABEL ON TABLE t IS 'x'",
            "REASSIGN OWNED BY a TO b",
            "DROP OWNED BY a",
            "CREATE ROLE r LOGIN",
            "ALTER ROLE r SET work_mem = 1",
            "CREATE USER MAPPING FOR u SERVER s",
            "CREATE SCHEMA s",
            "DROP SCHEMA s CASCADE",
            "CREATE DATABASE d",
            "ALTER DATABASE d SET work_mem = 1",
            "ALTER SYSTEM SET work_mem = 1",
            "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO u",
            "CREATE POLICY p ON t USING (owner = current_user)",
            "CREATE RULE r AS ON INSERT TO t DO ALSO NOTIFY jobs",
            "CREATE PUBLICATION p FOR TABLE t",
            "CREATE FOREIGN TABLE f (a int) SERVER s",
            "CREATE TEXT SEARCH CONFIGURATION c (COPY = simple)",
            "CREATE CONSTRAINT TRIGGER x AFTER INSERT ON t EXECUTE FUNCTION f()",
            "CREATE STATISTICS s ON a, b FROM t",
            "CREATE OPERATOR === (LEFTARG = int, RIGHTARG = int, FUNCTION = f)",
            "CREATE AGGREGATE a (int) (SFUNC = f, STYPE = int)",
        ],
    );
    for sql in ["SHOW x", "NOTIFY jobs", "LOCK TABLE t", "ANALYZE"] {
        assert!(!class(&Dialect::POSTGRES, sql).reads_only, "{sql}");
    }
}

#[test]
fn h15_what_no_reset_undoes_is_known_on_postgres() {
    let survives = |sql| class(&Dialect::POSTGRES, sql).survives_reset;
    for sql in [
        "LOAD 'auto_explain'",
        "SELECT 1; LOAD 'auto_explain'; SELECT 2",
        "SELECT setseed(0.5)",
        "SELECT a, setseed(b) FROM t",
        "SET seed = 0.5",
        "SET SESSION seed TO 0.5",
        "SET LOCAL seed = 0.5",
        "SET LOCAL \"seed\" = 0.5",
        "RESET seed",
        "SELECT set_config('seed', '0.5', true)",
        "SELECT set_config('Seed', $1, false)",
        "SELECT set_config('se'\n'ed', '0.5', true)",
        "SELECT U&\"set\\0073eed\"(0.5)",
        "UPDATE pg_settings SET setting = '0.5' WHERE name = 'seed'",
        "DO $$ BEGIN LOAD 'x'; END $$",
        "DO 'BEGIN PERFORM setseed(0.5); END'",
        "SELECT dblink_connect('a', 'b')",
        "SELECT * FROM public.dblink('a', 'b') AS t (a int)",
        "SELECT pg_replication_origin_session_setup('a')",
        "SELECT pg_backup_start('a', true)",
        "SELECT pg_create_logical_replication_slot('a', 'b', true)",
    ] {
        assert!(survives(sql), "{sql}");
        assert!(class(&Dialect::POSTGRES, sql).touches_session, "{sql}");
    }
    for sql in [
        "SELECT 1",
        "SET search_path = seed",
        "SET app.seed = 1",
        "SET work_mem = 1",
        "SET LOCAL work_mem = 1",
        "SELECT set_config('app.user', $1, true)",
        "SELECT pg_advisory_lock(1)",
        "CREATE TEMP TABLE seed (load int)",
        "DO $$ BEGIN PERFORM 1; END $$",
        "PREPARE a AS SELECT 1",
        "SELECT seed, load FROM pg_settings",
        "DISCARD ALL",
    ] {
        assert!(!survives(sql), "{sql}");
    }
}

/// The last argument tells, and no other.
#[test]
fn a_local_setting_is_distinguished_from_a_session_setting() {
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
            "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            "LOCK TABLE t READ",
            "FLUSH TABLES WITH READ LOCK",
            "FLUSH TABLES a, b FOR EXPORT",
            "SELECT a INTO @b FROM t",
            "DROP TEMPORARY TABLE t",
            "HANDLER t OPEN",
            "BACKUP LOCK t",
            "XA START 'a'",
            "GET DIAGNOSTICS @n = NUMBER",
            "DO @a := 1",
        ],
    );
    touches(
        &Dialect::MYSQL,
        &[
            "SET GLOBAL max_connections = 1",
            "SET PERSIST max_connections = 1",
            "SET @@global.max_connections = 1",
            "SET sql_mode = '', GLOBAL max_connections = 1",
            "FLUSH TABLES export",
            "FLUSH PRIVILEGES",
            "SELECT a INTO OUTFILE '/a' FROM t WHERE b = @b",
            "XA RECOVER",
            "XA ROLLBACK 'a'",
            "EXECUTE IMMEDIATE 'SELECT 1'",
            "SET PASSWORD = 'a'",
            "SET STATEMENT max_statement_time = 1 FOR SELECT 1",
            "SET DEFAULT ROLE r TO u",
            "RESET MASTER",
            "LOAD DATA INFILE 'a' INTO TABLE t",
            "SELECT @a := 1",
            "SELECT@a:=1",
            "SELECT @a",
            "SELECT @'a', @`b`",
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
            "IF 1 THEN SET @a = 1; END IF",
        ],
    );
    leaves_the_session_alone(
        &Dialect::MYSQL,
        &[
            "SELECT @@version",
            "SELECT @@session.sql_mode, @@global.x",
            "SELECT IS_FREE_LOCK('a'), LAST_INSERT_ID(), FOUND_ROWS()",
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
fn function_unknown_as_harmless_in_mysql_touches_the_session() {
    touches(
        &Dialect::MYSQL,
        &[
            "SELECT get_locks(1), GET_LOC('a')",
            "SELECT GÉT_LOCKS('a', 1)",
            "SELECT mine()",
            "SELECT mine (1) FROM t",
            "SELECT `mine`(1)",
            "SELECT `max`(1)",
            "SELECT max (1)",
            "SELECT $max(1)",
            "SELECT 1max(1)",
            "SELECT any_value(1)",
            "SELECT shop.max(1)",
            "SELECT shop . /* */ max(1)",
            "SELECT -- with\n mine(1)",
            "SELECT # into\n mine(1)",
            "CREATE TABLE t AS VALUES (mine(1))",
            "SELECT COUNT(*) FROM t WHERE shop.mine(a) > 1",
            "SELECT `shop`.`count`(a) FROM t WHERE other.`mine` (a)",
            "INSERT INTO t (a) VALUES (mine(1))",
            "UPDATE t SET a = mine(a)",
            "DELETE FROM t WHERE mine(a)",
            "REPLACE INTO t SELECT mine(a) FROM u",
            "CREATE TABLE t AS SELECT mine(a) FROM u",
            "WITH x (a) AS (SELECT mine(1)) SELECT * FROM x",
            "SELECT -- WITH\nmine(1)",
            "SELECT # INTO\nshop.mine(1)",
            "SELECT a.into, mine(1) FROM t",
            "SELECT against(1), MATCH (a) AGAINST ('x') FROM t",
            "SELECT than(1)",
        ],
    );
    leaves_the_session_alone(
        &Dialect::MYSQL,
        &[
            "INSERT INTO t (a, b) VALUES (?, NOW()) ON DUPLICATE KEY UPDATE a = VALUES(a)",
            "INSERT INTO `shop`.`t` (a) SELECT a FROM u",
            "INSERT INTO shop . t(a) VALUES (1), (2) RETURNING (a)",
            "INSERT INTO /* here */ shop -- and\n . `t` /* there */ (a) VALUES (1)",
            "REPLACE INTO t (a) VALUES (CAST(? AS DECIMAL(10, 2)))",
            "SELECT COUNT(*), sum(a), Max(b) FROM (SELECT 1) t WHERE a IN (1, 2) AND (b OR NOT (c))",
            "SELECT a FROM t LEFT JOIN u USING (id) WHERE EXISTS (SELECT 1) ORDER BY (a)",
            "SELECT ROW_NUMBER() OVER (PARTITION BY (a)) FROM t FORCE INDEX (i)",
            "SELECT JSON_EXTRACT(a, '$.b'), MATCH (a) AGAINST ('x') FROM t PARTITION (p0)",
            "WITH x (a) AS (SELECT 1) SELECT * FROM x",
            "WITH RECURSIVE x (a) AS (SELECT 1) SELECT * FROM x",
            "INSERT /* */ INTO -- into\n t (a) VALUES (1)",
            "CREATE TABLE t (id INT(11), KEY i (id), CHECK (id > 0))",
            "ALTER TABLE t ADD INDEX own_name (a)",
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
fn odbc_trusts_no_unknown_text_on_any_database() {
    only_changes_the_session(
        &Dialect::ODBC,
        &[
            "SET LANGUAGE French",
            "SET TRANSACTION READ ONLY",
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

#[test]
fn copy_is_as_safe_as_the_functions_that_it_calls() {
    touches(
        &Dialect::POSTGRES,
        &[
            "COPY (SELECT set_config('a.b', 'c', false)) TO STDOUT",
            "COPY t FROM STDIN WHERE pg_advisory_lock(1) IS NULL",
            "COPY pg_temp.t FROM STDIN",
        ],
    );
}
