//! A text that changes the session is never taken for one that leaves it alone.

use std::cell::RefCell;

use cenote::sql::{Dialect, Statements, scan};
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};

use super::choices::Choices;
use super::placeholders::DIALECTS;

pub fn check(data: &[u8]) {
    let mut choices = Choices::new(data);
    match choices.byte() % 4 {
        0 => sqlite_agrees(&choices.rest_as_text()),
        1 => {
            let touching = statement(&mut choices);
            must_touch(touching.0, &touching.1);
        }
        _ => {
            let touching = expression(&mut choices);
            must_touch(touching.0, &touching.1);
        }
    }
}

fn must_touch(dialect: &Dialect, sql: &str) {
    let scanned =
        scan(dialect, sql).unwrap_or_else(|error| panic!("{}: {sql:?}: {error}", dialect.name));
    assert!(scanned.class.touches_session, "{}: {sql:?}", dialect.name);
    assert!(!scanned.class.reads_only, "{}: {sql:?}", dialect.name);
}

/// Statements that change the session, token by token.
fn statements(dialect: &Dialect) -> &'static [&'static str] {
    if dialect == &Dialect::POSTGRES {
        &[
            "SET search_path TO x",
            "SET SESSION statement_timeout = 1",
            "SET ROLE r",
            "SET local . x = 1",
            "RESET ALL",
            "LISTEN jobs",
            "UNLISTEN *",
            "DISCARD ALL",
            "LOAD 'x'",
            "PREPARE s AS SELECT 1",
            "EXECUTE s",
            "DEALLOCATE s",
            "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
            "CREATE TEMP TABLE t ( a int )",
            "CREATE OR REPLACE TEMPORARY VIEW v AS SELECT 1",
            "CREATE TABLE pg_temp . t ( a int )",
            "CREATE TABLE \"pg_temp_3\" . t ( a int )",
            "SELECT a INTO TEMP t FROM s",
            "SELECT a INTO LOCAL TEMPORARY TABLE t FROM s",
            "WITH x AS ( SELECT 1 ) SELECT a INTO pg_temp . t FROM x",
            "UPDATE pg_settings SET setting = 1",
            "UPDATE pg_catalog . \"pg_settings\" SET setting = 1",
            "DO $$BEGIN;END$$",
            "CALL p ( )",
            "COPY pg_temp . t FROM STDIN",
            "COPY ( SELECT set_config ( 'a.b' , 'c' , false ) ) TO STDOUT",
            "SET LOCAL search_path = 'pg_temp'",
            "SET LOCAL seed = 0.5",
        ]
    } else if dialect == &Dialect::MYSQL {
        &[
            "SET @a = 1",
            "SET @@sql_mode = ''",
            "SET SESSION sql_mode = ''",
            "SET NAMES utf8mb4",
            "SET autocommit = 0",
            "SET TRANSACTION READ ONLY",
            "USE db",
            "LOCK TABLES t READ",
            "UNLOCK TABLES",
            "FLUSH TABLES WITH READ LOCK",
            "PREPARE s FROM 'SELECT+1'",
            "EXECUTE s",
            "DEALLOCATE PREPARE s",
            "CREATE TEMPORARY TABLE t ( a int )",
            "CREATE OR REPLACE TEMPORARY TABLE t ( a int )",
            "SELECT SQL_CALC_FOUND_ROWS a FROM t",
            "SELECT a INTO @b FROM t",
            "CALL p ( )",
            "DO get_lock ( 'a' , 1 )",
            "HANDLER t OPEN",
            "LOAD DATA LOCAL INFILE 'x' INTO TABLE t",
            "DROP TEMPORARY TABLE t",
        ]
    } else if dialect == &Dialect::SQLITE {
        &[
            "PRAGMA foreign_keys = ON",
            "PRAGMA main . cache_size = 1",
            "ATTACH 'a' AS b",
            "DETACH b",
            "CREATE TEMP TABLE t ( a )",
            "CREATE TEMPORARY VIEW v AS SELECT 1",
            "CREATE TABLE temp . t ( a )",
            "CREATE TABLE \"temp\" . t ( a )",
            "CREATE TABLE 'temp' . t ( a )",
            "CREATE TABLE [temp] . t ( a )",
            "CREATE TEMP TRIGGER x AFTER INSERT ON t BEGIN SELECT 1 ; END",
        ]
    } else {
        &[
            "SET LANGUAGE French",
            "USE db",
            "ALTER SESSION SET x = 1",
            "CREATE LOCAL TEMPORARY TABLE t ( a int )",
            "CREATE TABLE #t ( a int )",
            "SELECT a INTO #t FROM s",
            "SELECT 1 SET ROWCOUNT 1",
            "SELECT 1 EXEC p",
            "SELECT 1 USE db",
            "DECLARE @a int",
            "{ call p ( ) }",
            "EXECUTE AS USER = 'x'",
        ]
    }
}

/// Values whose making changes the session.
fn expressions(dialect: &Dialect) -> &'static [&'static str] {
    if dialect == &Dialect::POSTGRES {
        &[
            "set_config ( 'a' , 'b' , false )",
            "pg_catalog . set_config ( 'a' , 'b' , $1 )",
            "\"set_config\" ( 'a' , 'b' , false OR true )",
            "set_config ( 'a' , set_config ( 'b' , 'c' , false ) , true )",
            "pg_advisory_lock ( 1 )",
            "pg_try_advisory_lock_shared ( 1 , 2 )",
            "\"pg_advisory_unlock_all\" ( )",
            "setseed ( 0.5 )",
            "set_config ( 'search_path' , 'pg_temp' , true )",
            "set_config ( 'seed' , '0.5' , true )",
            "dblink_exec ( 'x' )",
            "query_to_xml ( 'x' , true , true , '' )",
            "U&\"s\\0065t_config\" ( 'a' , 'b' , false )",
        ]
    } else if dialect == &Dialect::MYSQL {
        &[
            "get_lock ( 'a' , 1 )",
            "`release_all_locks` ( )",
            "@a := 1",
            "@`a` := 1",
            "@'a'",
            "an_own_function ( 1 )",
            "shop . `count` ( 1 ) + mine ( 2 )",
            "GÉT_LOCK ( 'a' , 1 )",
        ]
    } else if dialect == &Dialect::SQLITE {
        &[
            "load_extension ( 'a' )",
            "\"load_extension\" ( 'a' )",
            "[load_extension] ( 'a' )",
            "`load_extension` ( 'a' )",
            "fts3_tokenizer ( 'a' , 'b' )",
        ]
    } else {
        &[
            "get_lock ( 'a' , 1 )",
            "set_config ( 'a' , 'b' , false )",
            "load_extension ( 'a' )",
            "pg_advisory_lock ( 1 )",
            "@a",
        ]
    }
}

/// Harmless but for the value.
const FRAMES: [&str; 20] = [
    "SELECT VALUE",
    "SELECT a , VALUE FROM t WHERE b = 1",
    "SELECT 'it''s' , VALUE AS x",
    "SELECT ( ( VALUE ) )",
    "SELECT * FROM t WHERE a IN ( SELECT VALUE )",
    "SELECT CASE WHEN a = 1 THEN VALUE ELSE 2 END FROM t",
    "SELECT a FROM t ORDER BY VALUE",
    "SELECT a FROM t GROUP BY a HAVING VALUE = 1",
    "SELECT 1 UNION ALL SELECT VALUE",
    "SELECT max ( VALUE ) FROM t",
    "SELECT * FROM ( SELECT VALUE ) y",
    "WITH x AS ( SELECT VALUE ) SELECT * FROM x",
    "INSERT INTO t VALUES ( 1 , VALUE )",
    "INSERT INTO t ( a ) SELECT VALUE FROM u",
    "UPDATE t SET a = VALUE WHERE b = 2",
    "DELETE FROM t WHERE a = VALUE",
    "REPLACE INTO t VALUES ( VALUE )",
    "CREATE TABLE t AS SELECT VALUE",
    "SELECT 1 ; SELECT VALUE",
    "EXPLAIN ANALYZE SELECT VALUE",
];

fn statement(choices: &mut Choices<'_>) -> (&'static Dialect, String) {
    let dialect = choices.pick(&DIALECTS);
    let tokens = choices.pick(statements(dialect));
    let before = choices.pick(&["", "", "", "SELECT 1 ; ", "/* harmless */ ", "; "]);
    (
        dialect,
        format!("{before}{}", dressed(dialect, tokens, choices)),
    )
}

fn expression(choices: &mut Choices<'_>) -> (&'static Dialect, String) {
    let dialect = choices.pick(&DIALECTS);
    let value = choices.pick(expressions(dialect));
    let tokens = choices.pick(&FRAMES).replace("VALUE", value);
    (dialect, dressed(dialect, &tokens, choices))
}

/// The tokens with anything between them that means nothing, in letters of any size.
fn dressed(dialect: &Dialect, tokens: &str, choices: &mut Choices<'_>) -> String {
    let mut sql = String::new();
    for token in tokens.split(' ') {
        // What is quoted is another name in other letters.
        let is_plain = token.starts_with(|c: char| c.is_ascii_alphabetic()) && !token.contains('"');
        let pattern = if is_plain { choices.byte() } else { 0 };
        for (n, letter) in token.chars().enumerate() {
            let swapped = match letter.is_ascii_lowercase() {
                true => letter.to_ascii_uppercase(),
                false => letter.to_ascii_lowercase(),
            };
            sql.push(if pattern >> (n % 8) & 1 == 1 {
                swapped
            } else {
                letter
            });
        }
        sql += &nothing(dialect, choices);
    }
    sql
}

/// White space and comments.
fn nothing(dialect: &Dialect, choices: &mut Choices<'_>) -> String {
    let kind = choices.byte() % 12;
    if kind < 7 {
        return [" ", " ", " ", "\n", "\t", "\r\n", "\u{c}"][usize::from(kind)].to_owned();
    }
    let words = choices.text(12);
    let one_line = words.replace(['\n', '\r'], "");
    let no_comment = words.replace(['*', '/'], "");
    match kind {
        7 => format!(" -- {one_line}\n"),
        8 if dialect == &Dialect::MYSQL => format!(" #{one_line}\n"),
        9 if dialect == &Dialect::POSTGRES => format!("/* /* {no_comment} */ */"),
        _ => format!("/* {no_comment} */"),
    }
}

thread_local! {
    static EFFECTS: RefCell<Effects> = const { RefCell::new(Effects { session: None, transaction: None }) };
    static SQLITE: rusqlite::Connection = {
        let mut connection = rusqlite::Connection::open_in_memory().expect("it needs nothing");
        let tables = "CREATE TABLE t (a, b, c); CREATE TABLE u (a, b)";
        connection.execute_batch(tables).expect("it is empty");
        connection.authorizer(Some(note)).expect("it is open");
        connection
    };
}

/// What SQLite says that a statement does.
#[derive(Default)]
struct Effects {
    session: Option<String>,
    transaction: Option<String>,
}

fn note(context: AuthContext<'_>) -> Authorization {
    let action = context.action;
    EFFECTS.with_borrow_mut(|effects| match action {
        AuthAction::Attach { .. }
        | AuthAction::Detach { .. }
        | AuthAction::Pragma { .. }
        | AuthAction::CreateTempIndex { .. }
        | AuthAction::CreateTempTable { .. }
        | AuthAction::CreateTempTrigger { .. }
        | AuthAction::CreateTempView { .. } => effects.session = Some(format!("{action:?}")),
        AuthAction::Transaction { .. } | AuthAction::Savepoint { .. } => {
            effects.transaction = Some(format!("{action:?}"));
        }
        _ => {}
    });
    Authorization::Allow
}

/// SQLite itself says what a statement does: what changes the session is known as that, and what
/// begins or ends a transaction as well.
fn sqlite_agrees(sql: &str) {
    // It reads no further than to a NUL; the driver refuses such a text.
    let scanned = match scan(&Dialect::SQLITE, sql) {
        Ok(scanned) if !sql.contains('\0') => scanned,
        _ => return,
    };
    EFFECTS.take();
    let is_understood = SQLITE.with(|connection| connection.prepare(&scanned.sql).is_ok());
    let effects = EFFECTS.take();
    if !is_understood || scanned.class.statements != Statements::One {
        return;
    }
    if let Some(effect) = effects.session {
        assert!(scanned.class.touches_session, "{sql:?}: {effect}");
    }
    if let Some(effect) = effects.transaction {
        assert!(
            scanned.class.contains_transaction_control,
            "{sql:?}: {effect}"
        );
    }
}
