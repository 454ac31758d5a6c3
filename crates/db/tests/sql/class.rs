//! What a text may do to the session and to the transaction, as far as the text tells.

use cenote::sql::{Dialect, Statements, TransactionVerb};

use crate::support::{ALL, class, leaves_the_session_alone, only_changes_the_session, touches};

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
                "SELECT last_insert_id(), count(*)",
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
    leaves_the_session_alone(
        &Dialect::SQLITE,
        &["SELECT last_insert_rowid(), changes(), own_function(a)"],
    );
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
                "CREATE EXTENSION x",
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
                "COMMIT PREPARED 'a'",
                "PREPARE TRANSACTION 'a'",
                "START SLAVE",
                "BEGIN NOT ATOMIC",
                "BEGIN SELECT 1",
            ],
        );
    }
    for dialect in ALL.into_iter().filter(|it| **it != Dialect::POSTGRES) {
        touches(
            dialect,
            &[
                "COPY t FROM STDIN",
                "SHOW x",
                "VACUUM",
                "ANALYZE",
                "GRANT ALL ON t TO u",
                "CREATE ROLE x",
                "DROP DATABASE d",
                "DROP SCHEMA s",
                "ALTER SYSTEM SET x = 1",
                "ALTER ROLE r SET x = 1",
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
fn executable_comment_touches_the_session_since_servers_differ() {
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
fn transaction_control_beside_executable_comments_is_uncertain() {
    for dialect in [&Dialect::MYSQL, &Dialect::ODBC] {
        for sql in [
            "/*!50000 BEGIN */",
            "/*!99999 SAVEPOINT a */ COMMIT AND CHAIN",
        ] {
            let class = class(dialect, sql);
            assert_eq!(class.transaction, None, "{sql}");
            assert!(class.touches_session && class.contains_transaction_control);
        }
    }
}

#[test]
fn transaction_control_is_recognised_by_its_verb() {
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

const ATOMIC: &str = "CREATE OR REPLACE FUNCTION f(a int) RETURNS int LANGUAGE sql BEGIN ATOMIC \
                      INSERT INTO t VALUES (CASE WHEN a > 0 THEN 1 ELSE 2 END); \
                      SELECT a AS end, (t).end FROM t; \
                      END";

#[test]
fn h19_a_routine_with_an_atomic_body_is_one_statement() {
    let plain = "CREATE PROCEDURE p() BEGIN ATOMIC DELETE FROM t; END";
    let empty = "CREATE FUNCTION f() RETURNS void begin atomic end";
    for routine in [ATOMIC, plain, empty] {
        for sql in [
            routine.to_owned(),
            format!("{routine};"),
            format!("{routine} ; -- done"),
        ] {
            let class = class(&Dialect::POSTGRES, &sql);
            assert_eq!(class.statements, Statements::One, "{sql}");
            assert!(!class.contains_transaction_control, "{sql}");
            assert!(!class.touches_session, "{sql}");
        }
        for more in ["COMMIT", "END", "SELECT 1; ROLLBACK"] {
            let sql = format!("{routine}; {more}");
            let class = class(&Dialect::POSTGRES, &sql);
            assert_eq!(class.statements, Statements::Several, "{sql}");
            assert!(class.contains_transaction_control, "{sql}");
        }
    }
}

/// Where the words are something else, what follows is seen.
#[test]
fn h19_words_that_only_look_like_a_body_hide_nothing() {
    for sql in [
        "CREATE TABLE t (begin atomic); COMMIT",
        "CREATE TABLE begin atomic; COMMIT",
        "SELECT begin atomic FROM t; COMMIT",
        "CREATE FUNCTION f(begin atomic) RETURNS int RETURN 1; COMMIT",
        "CREATE FUNCTION f() RETURNS int AS 'BEGIN ATOMIC'; COMMIT",
        "CREATE FUNCTION f() RETURNS int AS $$BEGIN ATOMIC$$; COMMIT",
        "CREATE FUNCTION f() RETURNS int \"begin\" atomic; COMMIT",
        "CREATE FUNCTION f() RETURNS begin /* */ ; atomic; COMMIT",
        "CREATE TRIGGER x BEFORE INSERT ON t EXECUTE FUNCTION begin atomic; COMMIT",
        "BEGIN ATOMIC; COMMIT",
        "END",
    ] {
        let class = class(&Dialect::POSTGRES, sql);
        assert!(class.contains_transaction_control, "{sql}");
    }
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
fn h0e_a_compound_statement_is_one_statement_of_mariadb() {
    for (sql, statements, controls) in [
        ("BEGIN NOT ATOMIC SELECT 3; END", Statements::One, false),
        (
            "BEGIN NOT ATOMIC SELECT 3; END; SELECT 4",
            Statements::Several,
            false,
        ),
        ("IF 1 THEN COMMIT; END IF;", Statements::One, true),
        (
            "IF 1 THEN SELECT 1; END IF; COMMIT",
            Statements::Several,
            true,
        ),
        (
            "WHILE 1 DO BEGIN SET x = 1; END; END WHILE",
            Statements::One,
            false,
        ),
        (
            "LOOP IF a THEN SELECT 1; END IF; END LOOP",
            Statements::One,
            false,
        ),
        (
            "REPEAT SELECT REPEAT('a', 3); UNTIL 1 END REPEAT",
            Statements::One,
            false,
        ),
        (
            "FOR i IN 1..3 DO SELECT i FOR UPDATE; END FOR",
            Statements::One,
            false,
        ),
        (
            "CASE a WHEN 1 THEN SELECT 1; ELSE BEGIN END; END CASE",
            Statements::One,
            false,
        ),
        // A name that looks like a word of the language: nothing is hidden, whatever the count of blocks.
        (
            "IF 1 THEN SELECT begin; END IF; ROLLBACK",
            Statements::One,
            true,
        ),
        (
            "IF 1 THEN SELECT end; END IF; ROLLBACK",
            Statements::Several,
            true,
        ),
    ] {
        let class = class(&Dialect::MYSQL, sql);
        assert_eq!(class.statements, statements, "{sql}");
        assert_eq!(class.contains_transaction_control, controls, "{sql}");
        assert!(class.touches_session && !class.reads_only, "{sql}");
        assert_eq!(
            (class.transaction, class.only_session),
            (None, false),
            "{sql}"
        );
    }
}

#[test]
fn h0e_a_transaction_is_distinguished_from_a_block() {
    for sql in ["BEGIN", "BEGIN WORK", "START TRANSACTION"] {
        assert_eq!(
            class(&Dialect::MYSQL, sql).transaction,
            Some(TransactionVerb::Begin)
        );
    }
    let script = class(&Dialect::MYSQL, "BEGIN; SELECT 1; COMMIT");
    assert_eq!(script.statements, Statements::Several);
    assert!(script.contains_transaction_control);
}

#[test]
fn h21_only_reads_with_known_functions_are_called_pure() {
    for sql in [
        "SELECT a FROM t WHERE b IN (1, 2) AND (c OR NOT (d))",
        "SELECT count(*), max (a), lower(b) FROM t GROUP BY GROUPING SETS ((a), (b))",
        "SELECT * FROM generate_series(1, 3) AS g (n)",
        "SELECT CAST(a AS varchar(10)), b::numeric(10, 2), ARRAY(SELECT 1) FROM t",
        "SELECT row_number() OVER (PARTITION BY a ORDER BY (b)) FROM t",
        "SELECT sum(a) FILTER (WHERE b > 0) FROM t LEFT JOIN u USING (id)",
        "WITH x (a) AS (SELECT 1) SELECT * FROM x WHERE EXISTS (SELECT 1)",
        "WITH x AS MATERIALIZED (SELECT now()) SELECT * FROM x",
        "EXPLAIN (ANALYZE, BUFFERS) SELECT repeat('x', 10)",
        "VALUES (1), (2)",
        "TABLE t",
        "SELECT a = ANY ($1), coalesce(b, extract(year FROM c)) FROM t LIMIT (1)",
    ] {
        assert!(class(&Dialect::POSTGRES, sql).pure_read, "{sql}");
    }
    for sql in [
        "SELECT pay()",
        "SELECT pay (1)",
        "SELECT shop.lower(a) FROM t",
        "SELECT \"lower\"(a) FROM t",
        "SELECT a FROM t WHERE pay(a)",
        "SELECT * FROM pay(1) AS t (a int)",
        "SELECT nextval('s')",
        "SELECT lo_put(1, 0, '')",
        "SELECT pg_notify('a', 'b')",
        "SELECT pg_advisory_lock(1)",
        "SELECT pg_advisory_xact_lock(1)",
        "SELECT set_config('a.b', 'c', true)",
        "SELECT pg_cancel_backend(1)",
        "SELECT pg_sleep(1)",
        "SELECT txid_current()",
        "SELECT a FROM t FOR UPDATE",
        "INSERT INTO t VALUES (1)",
        "EXPLAIN ANALYZE SELECT pay()",
        "WITH x AS (SELECT pay()) SELECT 1",
        "SELECT count(*) FROM pay()",
    ] {
        let class = class(&Dialect::POSTGRES, sql);
        assert!(!class.pure_read, "{sql}");
    }
    for dialect in ALL {
        assert!(class(dialect, "SELECT a FROM t").pure_read);
        assert!(!class(dialect, "SELECT pay(a) FROM t").pure_read);
        assert!(!class(dialect, "SELECT sleep(1)").pure_read);
    }
}

#[test]
fn number_of_a_sequence_is_no_pure_read() {
    for dialect in ALL {
        for sql in [
            "SELECT NEXT VALUE FOR s",
            "SELECT a, next /* */ value FOR shop.s FROM t",
            "SELECT s.nextval FROM dual",
        ] {
            assert!(!class(dialect, sql).pure_read, "{sql}");
        }
        let sql = "SELECT value, next FROM t FETCH NEXT 1 ROWS ONLY";
        assert!(class(dialect, sql).pure_read, "{sql}");
    }
}
