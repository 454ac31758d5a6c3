//! The placeholders of SQL, dialect by dialect: what is one, what is none, and what is sent.

use std::borrow::Cow;

use cenote::Kind;
use cenote::sql::{Backslashes, Dialect, Placeholders, scan};

/// What to expect of a text.
enum Expect {
    /// No placeholders, and no change.
    Same,
    /// So many positional ones, and no change.
    Count(usize),
    /// So many positional ones in this text.
    Numbered(usize, &'static str),
    /// These names in this text.
    Names(&'static [&'static str], &'static str),
    /// No placeholders, but another text.
    Text(&'static str),
}

use Expect::{Count, Names, Numbered, Same, Text};

fn check(dialect: &Dialect, cases: &[(&str, Expect)]) {
    for (sql, expect) in cases {
        let scanned = match scan(dialect, sql) {
            Ok(scanned) => scanned,
            Err(error) => panic!("{}: {sql}: {error}", dialect.name),
        };
        let (text, placeholders) = match expect {
            Same => (*sql, Placeholders::None),
            Count(count) => (*sql, Placeholders::Positional(*count)),
            Numbered(count, text) => (*text, Placeholders::Positional(*count)),
            Names(names, text) => (*text, Placeholders::Named(names.to_vec())),
            Text(text) => (*text, Placeholders::None),
        };
        assert_eq!(scanned.sql, text, "{}: {sql}", dialect.name);
        assert_eq!(
            scanned.placeholders, placeholders,
            "{}: {sql}",
            dialect.name
        );
        let unchanged = matches!(expect, Same | Count(_));
        let borrowed = matches!(scanned.sql, Cow::Borrowed(_));
        assert_eq!(borrowed, unchanged, "{}: {sql}", dialect.name);
    }
}

#[test]
fn sqlite_text_is_read_as_sqlite_reads_it() {
    check(
        &Dialect::SQLITE,
        &[
            ("SELECT 1", Same),
            ("", Same),
            ("  \n\t ", Same),
            ("SELECT ?", Count(1)),
            ("SELECT ?, ? WHERE a=?", Count(3)),
            ("SELECT ?1, ?2, ?1", Count(2)),
            ("SELECT ?7", Count(7)),
            ("SELECT ?5, ?", Count(6)),
            ("SELECT ?, ?3, ?", Count(4)),
            ("SELECT ?1a", Count(1)),
            ("SELECT :a", Names(&["a"], "SELECT ?1")),
            ("SELECT :a, :b, :a", Names(&["a", "b"], "SELECT ?1, ?2, ?1")),
            ("SELECT :a1_B", Names(&["a1_B"], "SELECT ?1")),
            ("SELECT :_", Names(&["_"], "SELECT ?1")),
            ("SELECT :größe+1", Names(&["größe"], "SELECT ?1+1")),
            ("SELECT :a||:b", Names(&["a", "b"], "SELECT ?1||?2")),
            ("SELECT x IS:a", Names(&["a"], "SELECT x IS ?1")),
            ("SELECT :a(x)", Names(&["a"], "SELECT ?1(x)")),
            ("SELECT :a::b", Names(&["a"], "SELECT ?1::b")),
            ("SELECT '?', ':a', '$1', '@b'", Same),
            ("SELECT 'it''s ?'", Same),
            ("SELECT '\\', ?", Count(1)),
            ("SELECT 'a' ? 'b'", Count(1)),
            ("SELECT e'a\\', ?", Count(1)),
            ("SELECT \"a?b\"\":c\"", Same),
            ("SELECT `a?b``:c`", Same),
            ("SELECT [a?b:c$1], ?", Count(1)),
            ("SELECT [a[b], ?", Count(1)),
            ("SELECT [a]], ?", Count(1)),
            ("SELECT 1 -- ? :a\n, ?", Count(1)),
            ("SELECT 1 -- ? \r :a\n, ?", Count(1)),
            ("SELECT 1--?\n, ?", Count(1)),
            ("SELECT 1 /* ? :a */, ?", Count(1)),
            ("SELECT 1 /* /* ? */, ?", Count(1)),
            ("SELECT 1 /*! ? */, ?", Count(1)),
            ("SELECT 1 /*/ ? */, ?", Count(1)),
            ("SELECT 1 /**/, ?", Count(1)),
            ("SELECT '12:30:00', 12", Same),
            ("SELECT x->>'$.a', x->'$.b'", Same),
            ("SELECT a$1, a$b FROM t$", Same),
            ("SELECT 'never ends ?", Same),
            ("SELECT \"never ends ?", Same),
            ("SELECT [never ends ?", Same),
            ("SELECT 1 /* never ends ?", Same),
            ("SELECT 1 -- never ends ?", Same),
            ("SELECT '", Same),
            ("SELECT [", Same),
            ("SELECT ?? ", Count(2)),
            ("SELECT $", Same),
            ("SELECT @", Same),
            ("SELECT :", Same),
            ("SELECT x'00?', ?", Count(1)),
            ("SELECT \u{feff}?", Count(1)),
        ],
    );
}

#[test]
fn postgres_text_is_read_as_postgres_reads_it() {
    check(
        &Dialect::POSTGRES,
        &[
            ("SELECT 1", Same),
            ("SELECT ?", Numbered(1, "SELECT $1")),
            ("SELECT ?, ?", Numbered(2, "SELECT $1, $2")),
            (
                "SELECT ?,?,?,?,?,?,?,?,?,?,?",
                Numbered(11, "SELECT $1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11"),
            ),
            ("SELECT $1", Count(1)),
            ("SELECT $2, $1, $2", Count(2)),
            ("PREPARE f(int) AS SELECT $1", Same),
            ("CREATE FUNCTION f(int) RETURNS int RETURN $1 + 1", Same),
            (
                "CREATE OR REPLACE PROCEDURE p(int) BEGIN ATOMIC SELECT $1; SELECT $1; END",
                Same,
            ),
            ("PREPARE f(int) AS SELECT $1; EXECUTE f(1)", Same),
            ("CREATE TABLE t AS SELECT $1::int", Count(1)),
            ("EXPLAIN SELECT $1::int", Count(1)),
            ("SELECT ?; SELECT ?", Numbered(2, "SELECT $1; SELECT $2")),
            ("SELECT $12", Count(12)),
            ("SELECT :a", Names(&["a"], "SELECT $1")),
            ("SELECT :a, :b, :a", Names(&["a", "b"], "SELECT $1, $2, $1")),
            ("SELECT :a::int", Names(&["a"], "SELECT $1::int")),
            ("SELECT '1'::int, :a", Names(&["a"], "SELECT '1'::int, $1")),
            ("SELECT x::int=:a", Names(&["a"], "SELECT x::int=$1")),
            (
                "SELECT :a::int,:b::text",
                Names(&["a", "b"], "SELECT $1::int,$2::text"),
            ),
            ("SELECT a::b::c", Same),
            (
                "SELECT f(x := 1, y := :y)",
                Names(&["y"], "SELECT f(x := 1, y := $1)"),
            ),
            ("SELECT f(x:=:x)", Names(&["x"], "SELECT f(x:=$1)")),
            ("SELECT f(x =>:x)", Names(&["x"], "SELECT f(x =>$1)")),
            // Slices.
            ("SELECT a[1:2]", Same),
            ("SELECT a[1:n]", Same),
            ("SELECT a[i:j]", Same),
            ("SELECT a[f(1) :n]", Same),
            ("SELECT a[b[1]:c]", Same),
            ("SELECT a[?:n]", Numbered(1, "SELECT a[$1:n]")),
            ("SELECT a[:2]", Same),
            ("SELECT a[ : n]", Same),
            ("SELECT a[:n]", Names(&["n"], "SELECT a[$1]")),
            ("SELECT a[:lo:hi]", Names(&["lo"], "SELECT a[$1:hi]")),
            (
                "SELECT a[:lo : :hi]",
                Names(&["lo", "hi"], "SELECT a[$1 : $2]"),
            ),
            ("SELECT a[1:2], :n", Names(&["n"], "SELECT a[1:2], $1")),
            (
                "SELECT ARRAY[:a,:b]",
                Names(&["a", "b"], "SELECT ARRAY[$1,$2]"),
            ),
            (
                "SELECT ARRAY[[:a], [:b]], ARRAY[CASE WHEN x THEN :c END]",
                Names(
                    &["a", "b", "c"],
                    "SELECT ARRAY[[$1], [$2]], ARRAY[CASE WHEN x THEN $3 END]",
                ),
            ),
            ("SELECT (ARRAY[1,2])[1:n]", Same),
            ("SELECT \"a\"[1:n]", Same),
            // Question marks.
            ("SELECT d ?? 'k'", Text("SELECT d ? 'k'")),
            ("SELECT d ??| a, d ??& b", Text("SELECT d ?| a, d ?& b")),
            ("SELECT d @?? '$.a'", Text("SELECT d @? '$.a'")),
            ("SELECT d ?? ?", Numbered(1, "SELECT d ? $1")),
            ("SELECT d ?? :k", Names(&["k"], "SELECT d ? $1")),
            ("SELECT d ?? $1", Numbered(1, "SELECT d ? $1")),
            ("SELECT '??'", Same),
            // A number never runs into what is beside it.
            ("SELECT a LIMIT?", Numbered(1, "SELECT a LIMIT $1")),
            ("SELECT ?AS b", Numbered(1, "SELECT $1 AS b")),
            ("SELECT ?5", Numbered(1, "SELECT $1 5")),
            ("SELECT :a:b", Names(&["a", "b"], "SELECT $1 $2")),
            ("SELECT a$?", Numbered(1, "SELECT a$ $1")),
            ("SELECT \u{e9}?", Numbered(1, "SELECT \u{e9} $1")),
            // Strings.
            ("SELECT '?', ':a', '$1'", Same),
            ("SELECT 'it''s ?', $1", Count(1)),
            ("SELECT '\\', $1", Count(1)),
            ("SELECT E'\\', $1', $2", Count(2)),
            ("SELECT e'a''\\'?', $1", Count(1)),
            ("SELECT E'a'\n 'b\\'$2', $1", Count(1)),
            ("SELECT E'a' -- x'\n -- y\n 'b\\'$2', $1", Count(1)),
            ("SELECT E'a' 'b\\', $1", Count(1)),
            ("SELECT name'a\\', $1", Count(1)),
            ("SELECT U&'d\\0061t?', $1", Count(1)),
            ("SELECT B'1', X'1F', N'?', $1", Count(1)),
            ("SELECT \"a?\"\"$9\", $1", Count(1)),
            // Dollar quotes.
            ("SELECT $$ ? :a $1 ' $$, $1", Count(1)),
            ("SELECT $q$ $$ ? $r$ $q$, $1", Count(1)),
            ("SELECT $_1$ ? $_1$, $1", Count(1)),
            ("SELECT $é$ ? $é$, $1", Count(1)),
            ("SELECT $a$ $A$ ? $a$, $1", Count(1)),
            ("SELECT $a$ b$a$, $1", Count(1)),
            ("SELECT a$b$, $1", Count(1)),
            ("SELECT a$1, b$2$, $1", Count(1)),
            ("SELECT $a, $1", Count(1)),
            ("DO $$ BEGIN x := :a; END $$", Same),
            // Comments.
            ("SELECT 1 -- ? $7\n, $1", Count(1)),
            ("SELECT 1 -- ?\r, $1", Count(1)),
            ("SELECT 5--$2\n, $1", Count(1)),
            ("SELECT 1 /* /* ? */ $9 */, $1", Count(1)),
            ("SELECT 1 /* -- */, $1", Count(1)),
            ("SELECT 1 /*! $9 */, $1", Count(1)),
            ("SELECT '/*', $1, '*/'", Count(1)),
            ("SELECT 1 # 2, x #>> '{a}', $1", Count(1)),
            ("SELECT `a", Same),
            // What does not end.
            ("SELECT 'never ends ?", Same),
            ("SELECT E'never ends \\", Same),
            ("SELECT $a$ never ends ?", Same),
            ("SELECT $a$ never ends ? $a", Same),
            ("SELECT /* /* never */ ends ?", Same),
            ("SELECT a[1", Same),
            ("SELECT $", Same),
            ("SELECT $$", Same),
            ("SELECT :", Same),
            ("SELECT time '12:30:00', interval '1:00'", Same),
            ("SELECT j->>'$.a', j #>> '{b}'", Same),
            ("SELECT 1:2", Same),
        ],
    );
}

#[test]
fn mysql_text_is_read_as_mysql_reads_it() {
    check(
        &Dialect::MYSQL,
        &[
            ("SELECT 1", Same),
            ("SELECT ?", Count(1)),
            ("SELECT ?, ?", Count(2)),
            ("SELECT ??", Count(2)),
            ("SELECT ?1", Count(1)),
            ("SELECT :a", Names(&["a"], "SELECT ?")),
            (
                "SELECT :a, :b, :a",
                Names(&["a", "b", "a"], "SELECT ?, ?, ?"),
            ),
            ("SELECT $1", Same),
            ("SELECT a$1", Same),
            ("SELECT @a := 1, ?", Count(1)),
            ("SELECT @a:=:a", Names(&["a"], "SELECT @a:=?")),
            ("SELECT @@sql_mode, ?", Count(1)),
            // Labels.
            ("again: LOOP", Same),
            ("again:LOOP", Same),
            ("`again`:LOOP", Same),
            ("WHERE a =:a", Names(&["a"], "WHERE a =?")),
            ("IN(:a,:b)", Names(&["a", "b"], "IN(?,?)")),
            ("LIMIT :a", Names(&["a"], "LIMIT ?")),
            // Strings.
            ("SELECT '?', \":a\"", Same),
            ("SELECT 'it''s ?', ?", Count(1)),
            ("SELECT 'it\\'s ?', ?", Count(1)),
            ("SELECT 'a\\\\', ?", Count(1)),
            ("SELECT \"it\\\"s ?\", ?", Count(1)),
            ("SELECT \"a\"\"?\", ?", Count(1)),
            ("SELECT \"'\", ?, \"'\"", Count(1)),
            ("SELECT _utf8'a?', N'?', x'3F', b'1', ?", Count(1)),
            ("SELECT 'é\\é?', ?", Count(1)),
            ("SELECT `a?``:b`, ?", Count(1)),
            ("SELECT `a\\`, ?", Count(1)),
            ("SELECT $$ ?, ' $$ ' ", Count(1)),
            ("SELECT j->>'$.a', j->'$[0]', ?", Count(1)),
            ("SELECT '12:30:00', TIME '12:30', ?", Count(1)),
            // Comments.
            ("SELECT 1 -- ?\n, ?", Count(1)),
            ("SELECT 1 --\t?\n, ?", Count(1)),
            ("SELECT 1 --\n ?", Count(1)),
            ("SELECT 5--?", Count(1)),
            ("SELECT 5--1, ?", Count(1)),
            ("SELECT 1 --", Same),
            ("SELECT 1 -- ?\r ?\n, ?", Count(1)),
            ("SELECT 1 # ?\n, ?", Count(1)),
            ("SELECT 1 #?", Same),
            ("SELECT a#b ?\n, ?", Count(1)),
            ("SELECT 1 /* ? */, ?", Count(1)),
            ("SELECT 1 /* /* ? */, ?", Count(1)),
            ("SELECT /*+ MAX_EXECUTION_TIME(?) */ ?", Count(1)),
            // These are read as SQL.
            ("SELECT /*! ? + */ ?", Count(2)),
            ("SELECT /*!50000 ? + */ ?", Count(2)),
            ("SELECT /*M!100100 ? + */ ?", Count(2)),
            ("SELECT /*!50000 /* ? */ ? + */ ?", Count(2)),
            ("SELECT /*!50000 '*/?', */ ?", Count(1)),
            (
                "SELECT /*! :a + */ :b",
                Names(&["a", "b"], "SELECT /*! ? + */ ?"),
            ),
            ("SELECT 2 */ 3, ?", Count(1)),
            ("SELECT /*M ? */ ?", Count(1)),
            ("SELECT a[?]", Count(1)),
            // What does not end.
            ("SELECT 'never ends \\' ?", Same),
            ("SELECT 'never ends \\", Same),
            ("SELECT \"never ends ?", Same),
            ("SELECT `never ends ?", Same),
            ("SELECT /* never ends ?", Same),
            ("SELECT /*!", Same),
            ("SELECT :", Same),
            ("SELECT @", Same),
        ],
    );
}

#[test]
fn odbc_text_is_read_as_ansi_sql() {
    check(
        &Dialect::ODBC,
        &[
            ("SELECT 1", Same),
            ("SELECT ?", Count(1)),
            ("SELECT ?, ?", Count(2)),
            ("SELECT ??", Count(2)),
            ("SELECT :a", Names(&["a"], "SELECT ?")),
            (
                "SELECT :a, :b, :a",
                Names(&["a", "b", "a"], "SELECT ?, ?, ?"),
            ),
            ("{call p(?, ?)}", Count(2)),
            ("{? = call f(?)}", Count(2)),
            ("{call p(:a)}", Names(&["a"], "{call p(?)}")),
            ("SELECT {ts '2020-01-01 12:30:00'}, ?", Count(1)),
            ("SELECT {fn CONCAT(?, 'a:b')}", Count(1)),
            ("SELECT $1", Same),
            ("SELECT a$1, b#, @c", Same),
            ("SELECT [a?b], ?", Count(1)),
            ("SELECT [a]]?b], ?", Count(1)),
            ("SELECT [a:b].[c], :d", Names(&["d"], "SELECT [a:b].[c], ?")),
            ("SELECT \"a?\"\":b\", ?", Count(1)),
            ("SELECT 'it''s ?', ?", Count(1)),
            ("SELECT 'a\\', ?", Count(1)),
            ("SELECT E'a\\', ?", Count(1)),
            ("SELECT N'?', X'3F', ?", Count(1)),
            ("SELECT DATE '2020-01-01', TIME '12:30:00', ?", Count(1)),
            ("SELECT `?", Count(1)),
            ("SELECT $$ ? $$", Count(1)),
            ("SELECT 1 -- ?\n, ?", Count(1)),
            ("SELECT 1 --?\n, ?", Count(1)),
            ("SELECT 1 -- ?\r, ?", Count(1)),
            ("SELECT 1 # ?", Count(1)),
            ("SELECT 1 /* ? */, ?", Count(1)),
            ("SELECT 1 /* /* ? */, ?", Count(1)),
            ("SELECT 1 /* ' */, ?", Count(1)),
            ("SELECT '/*', ?, '*/'", Count(1)),
            ("SELECT '--', ?", Count(1)),
            ("SELECT a::int, ?", Count(1)),
            ("SELECT col:field FROM t", Same),
            (
                "SELECT col:field, :a FROM t",
                Names(&["a"], "SELECT col:field, ? FROM t"),
            ),
            ("again: SELECT 1", Same),
            ("SELECT x := 1, :a", Names(&["a"], "SELECT x := 1, ?")),
            ("SELECT j->>'$.a'", Same),
            ("SELECT 1:2", Same),
            ("SELECT 'never ends ?", Same),
            ("SELECT [never ends ?", Same),
            ("SELECT [never ends ]] ?", Same),
            ("SELECT \"never ends ?", Same),
            ("SELECT /* never ends ?", Same),
            ("SELECT -- never ends ?", Same),
            ("SELECT :", Same),
            ("?", Count(1)),
            (":a", Names(&["a"], "?")),
        ],
    );
}

#[test]
fn mixed_placeholders_are_an_error_that_names_both() {
    let cases = [
        (&Dialect::SQLITE, "SELECT ?, :a", "`?`", "`:a`"),
        (&Dialect::SQLITE, "SELECT :a, ?2", "`:a`", "`?2`"),
        (&Dialect::POSTGRES, "SELECT ?, :name", "`?`", "`:name`"),
        (&Dialect::POSTGRES, "SELECT $1, ?", "`$1`", "`?`"),
        (&Dialect::POSTGRES, "SELECT :name, $12", "`:name`", "`$12`"),
        (&Dialect::POSTGRES, "SELECT d ? 'k', $1", "`?`", "`$1`"),
        (&Dialect::MYSQL, "SELECT :a, ?", "`:a`", "`?`"),
        (&Dialect::ODBC, "{? = call f(:a)}", "`?`", "`:a`"),
    ];
    for (dialect, sql, first, second) in cases {
        let error = scan(dialect, sql).unwrap_err();
        assert_eq!(error.kind(), Kind::Parameters, "{sql}");
        let message = error.message();
        assert!(
            message.contains(first) && message.contains(second),
            "{message}"
        );
    }
}

#[test]
fn mix_with_a_postgres_question_mark_explains_the_operator() {
    let error = scan(&Dialect::POSTGRES, "SELECT d ? 'k' WHERE a = $1").unwrap_err();
    assert!(error.message().contains("`??`"), "{error}");
    let error = scan(&Dialect::POSTGRES, "SELECT :a, $1").unwrap_err();
    assert!(!error.message().contains("`??`"), "{error}");
}

/// SQLite would take them for placeholders and read NULL for them.
#[test]
fn variables_that_sqlite_would_read_as_null_are_a_named_error() {
    for name in ["@a", "$a", "$1", ":1", ":1a", "@1", "$$"] {
        let sql = format!("SELECT 'a', {name}");
        let error = scan(&Dialect::SQLITE, &sql).unwrap_err();
        assert_eq!(error.kind(), Kind::Parameters, "{sql}");
        assert!(error.message().contains(&format!("`{name}`")), "{error}");
    }
}

#[test]
fn repeated_name_has_one_position_among_any_number_of_names() {
    let names: Vec<String> = (0..2000).map(|n| format!("n{n}")).collect();
    let once: Vec<String> = names.iter().map(|name| format!(":{name}")).collect();
    let sql = format!("SELECT {}, {}", once.join(", "), once.join(", "));

    let numbered = scan(&Dialect::POSTGRES, &sql).unwrap();
    assert_eq!(numbered.placeholders.count(), 2000);
    assert_eq!(
        numbered.placeholders,
        Placeholders::Named(names.iter().map(String::as_str).collect())
    );
    assert!(numbered.sql.ends_with("$1999, $2000"));
    assert!(numbered.sql.contains("$2000, $1, $2"));

    let plain = scan(&Dialect::MYSQL, &sql).unwrap();
    assert_eq!(plain.placeholders.count(), 4000);
}

#[test]
fn numbers_that_no_database_knows_are_passed_on() {
    let sql = "SELECT ?99999999999999999999999";
    let scanned = scan(&Dialect::SQLITE, sql).unwrap();
    assert_eq!(scanned.sql, sql);
    assert_eq!(scanned.placeholders.count(), usize::MAX);
    let scanned = scan(&Dialect::POSTGRES, "SELECT $0").unwrap();
    assert_eq!(scanned.placeholders, Placeholders::Positional(0));
}

#[test]
fn a_dialect_of_ones_own_changes_one_rule() {
    static PLAIN: Dialect = {
        let mut dialect = Dialect::MYSQL;
        dialect.backslashes = Backslashes::Plain;
        dialect
    };
    let sql = "SELECT 'a\\', ?, ' '";
    assert_eq!(scan(&PLAIN, sql).unwrap().placeholders.count(), 1);
    assert_eq!(scan(&Dialect::MYSQL, sql).unwrap().placeholders.count(), 0);
}
