//! Decides what a text may do in a sandbox.

use crate::driver::Dialect;
use crate::sql::{Class, Keyword, Statements, TransactionVerb, classify, pieces};
use crate::{Error, Kind, Result};

/// The databases with differences that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Postgres,
    Mysql,
    Sqlite,
    /// A driver that this crate does not know.
    Other,
}

impl Family {
    pub(super) fn of(driver: &str) -> Self {
        match driver {
            "pgsql" => Family::Postgres,
            "mysql" => Family::Mysql,
            "sqlite" => Family::Sqlite,
            _ => Family::Other,
        }
    }

    /// Returns whether a failed statement aborts the transaction, so that each statement outside of a transaction of the
    /// code under test needs a savepoint of its own. Where it does not, such a savepoint would undo too much: in
    /// production the statements of a script before the one that fails stay.
    pub(super) fn aborts(self) -> bool {
        !matches!(self, Family::Mysql | Family::Sqlite)
    }

    /// Returns whether the driver resets a session inside a transaction.
    pub(super) fn resets_in_transaction(self) -> bool {
        self == Family::Postgres
    }
}

/// How the sandbox runs a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Text {
    /// As it is.
    Plain {
        reads_only: bool,
    },
    /// As it is, but only inside a transaction of the code under test.
    AtSavepoint,
    Begin,
    Commit,
    Rollback,
}

/// Words of a text that only begins or ends a transaction, without options.
const NOISE: &[&str] = &[
    "begin",
    "start",
    "transaction",
    "work",
    "commit",
    "end",
    "rollback",
    "abort",
    "deferred",
    "immediate",
    "exclusive",
];

/// Refuses a text that could leave the sandbox.
pub(super) fn check(family: Family, dialect: &'static Dialect, sql: &str) -> Result<Text> {
    check_each(dialect, sql, |class, sql| check_one(family, class, sql))
}

/// Refuses a text of a hook that could leave the sandbox. A hook may change the session: it runs again after each reset.
pub(super) fn check_hook(family: Family, dialect: &'static Dialect, sql: &str) -> Result<Text> {
    check_each(dialect, sql, |class, sql| match class.verb {
        Some(Keyword::Set) => Ok(()),
        _ => check_commits(family, class, sql),
    })
}

/// Translates transaction control, and checks each statement of any other text.
fn check_each(
    dialect: &'static Dialect,
    sql: &str,
    check: impl Fn(&Class, &str) -> Result<()>,
) -> Result<Text> {
    let whole = classify(dialect, sql);
    if let Some(verb) = whole.transaction {
        return control(verb, sql);
    }
    if whole.contains_transaction_control {
        return Err(refused(
            "a script with BEGIN, COMMIT, ROLLBACK or a savepoint cannot run in a sandbox: run its statements one by one",
        ));
    }
    if whole.statements == Statements::Several {
        for piece in pieces(dialect, sql) {
            check(&classify(dialect, piece.bare), piece.bare)?;
        }
    } else {
        check(&whole, sql)?;
    }
    Ok(Text::Plain {
        reads_only: whole.reads_only,
    })
}

fn control(verb: TransactionVerb, sql: &str) -> Result<Text> {
    let text = match verb {
        TransactionVerb::Begin => Text::Begin,
        TransactionVerb::Commit => Text::Commit,
        TransactionVerb::Rollback => Text::Rollback,
        TransactionVerb::Savepoint | TransactionVerb::Release | TransactionVerb::RollbackTo => {
            return Ok(Text::AtSavepoint);
        }
    };
    let mut words = sql.split(|of: char| of.is_ascii_whitespace() || of == ';');
    match words.all(|word| word.is_empty() || NOISE.contains(&&*word.to_ascii_lowercase())) {
        true => Ok(text),
        false => Err(refused(
            "a sandbox runs transaction control without options and comments only: use db.transaction_options(), or \
             leave the options out",
        )),
    }
}

fn check_one(family: Family, class: &Class, sql: &str) -> Result<()> {
    if class.survives_reset {
        return Err(refused(
            "this statement changes the session in a way that only a new connection undoes, and a sandbox has one \
             connection: use a database for this test",
        ));
    }
    if matches!(class.verb, Some(Keyword::Listen | Keyword::Unlisten)) {
        return Err(refused(
            "LISTEN takes effect with a commit, and a sandbox never commits: use a database for this test",
        ));
    }
    if class.only_session && !family.resets_in_transaction() {
        return Err(refused(
            "this statement changes the session, which this database cannot reset inside the sandbox's transaction: \
             set it with on_connect(..), or use a database for this test",
        ));
    }
    check_commits(family, class, sql)
}

/// Refuses a statement that would end the sandbox's transaction.
fn check_commits(family: Family, class: &Class, sql: &str) -> Result<()> {
    if class.verb == Some(Keyword::Prepare) && !class.only_session {
        return Err(refused(
            "PREPARE TRANSACTION would take the sandbox's transaction away: use a database for this test",
        ));
    }
    if family == Family::Mysql && !stays_in_transaction(class, sql) {
        return Err(refused(
            "MySQL and MariaDB commit before this statement, and with it everything in the sandbox: change the schema \
             before the sandbox is opened, or use a database for this test",
        ));
    }
    Ok(())
}

/// Returns whether MySQL runs a statement inside the open transaction. Everything that is not known to do so may commit.
fn stays_in_transaction(class: &Class, sql: &str) -> bool {
    if class.statements == Statements::Empty {
        return true;
    }
    match class.verb {
        Some(
            Keyword::Select
            | Keyword::Insert
            | Keyword::Update
            | Keyword::Delete
            | Keyword::Replace
            | Keyword::With
            | Keyword::Values
            | Keyword::Table
            | Keyword::Do
            | Keyword::Explain
            | Keyword::Describe
            | Keyword::Show,
        ) => true,
        Some(_) => false,
        None => {
            let first = sql.split_ascii_whitespace().next().unwrap_or_default();
            ["call", "desc"]
                .iter()
                .any(|word| first.eq_ignore_ascii_case(word))
        }
    }
}

fn refused(message: &str) -> Error {
    Error::new(Kind::Unsupported, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(family: Family, sql: &str) -> Result<Text> {
        let dialect = match family {
            Family::Postgres => &Dialect::POSTGRES,
            Family::Mysql => &Dialect::MYSQL,
            Family::Sqlite | Family::Other => &Dialect::SQLITE,
        };
        check(family, dialect, sql)
    }

    #[test]
    fn mysql_runs_nothing_that_commits() {
        for sql in [
            "CREATE TABLE t (n INT)",
            "create temporary table t (n int)",
            "ALTER TABLE t ADD m INT",
            "DROP TABLE t",
            "TRUNCATE t",
            "RENAME TABLE a TO b",
            "LOCK TABLES t WRITE",
            "SET autocommit = 1",
            "ANALYZE TABLE t",
            "GRANT ALL ON *.* TO x",
            "INSERT INTO t VALUES (1); DROP TABLE t",
            "SELECT 1 /*!; DROP TABLE t */",
            "/*!50000 DROP TABLE t */",
            "BEGIN NOT ATOMIC COMMIT; END",
            "XA START 'a'",
        ] {
            let refused = of(Family::Mysql, sql);
            assert!(
                refused.is_err_and(|error| error.kind() == Kind::Unsupported),
                "{sql}"
            );
        }
        for sql in [
            "SELECT 1",
            "(SELECT 1)",
            "INSERT INTO t VALUES (1)",
            "REPLACE INTO t VALUES (1)",
            "WITH a AS (SELECT 1) SELECT * FROM a",
            "CALL p()",
            "SHOW TABLES",
            "INSERT INTO t VALUES (1); UPDATE t SET n = 2",
            "",
        ] {
            assert!(of(Family::Mysql, sql).is_ok(), "{sql}");
        }
    }

    #[test]
    fn control_of_transactions_is_translated_or_refused() {
        for (sql, text) in [
            ("BEGIN", Text::Begin),
            ("start transaction;", Text::Begin),
            ("BEGIN IMMEDIATE", Text::Begin),
            ("COMMIT", Text::Commit),
            ("END TRANSACTION", Text::Commit),
            ("Rollback Work", Text::Rollback),
            ("SAVEPOINT a", Text::AtSavepoint),
            ("ROLLBACK TO a", Text::AtSavepoint),
        ] {
            assert_eq!(of(Family::Sqlite, sql).ok(), Some(text), "{sql}");
        }
        for sql in [
            "BEGIN ISOLATION LEVEL SERIALIZABLE",
            "COMMIT AND CHAIN",
            "INSERT INTO t VALUES (1); COMMIT",
            "PREPARE TRANSACTION 'a'",
            "LISTEN a",
            "SELECT setseed(0.5)",
            "LOAD 'auto_explain'",
        ] {
            assert!(of(Family::Postgres, sql).is_err(), "{sql}");
        }
        assert!(of(Family::Postgres, "SET search_path = a").is_ok());
        assert!(of(Family::Sqlite, "PRAGMA foreign_keys = 0").is_err());
    }

    #[test]
    fn hook_changes_the_session_and_commits_nothing() {
        for sql in [
            "SET sql_mode = ''",
            "SET a = 1; SELECT 1",
            "SELECT 1",
            "COMMIT",
        ] {
            let checked = check_hook(Family::Mysql, &Dialect::MYSQL, sql);
            assert!(checked.is_ok(), "{sql}");
        }
        for sql in [
            "CREATE TABLE t (n INT)",
            "SET a = 1; COMMIT",
            "BEGIN; COMMIT",
        ] {
            let checked = check_hook(Family::Mysql, &Dialect::MYSQL, sql);
            assert!(checked.is_err(), "{sql}");
        }
        let pragma = check_hook(Family::Sqlite, &Dialect::SQLITE, "PRAGMA foreign_keys = 1");
        assert!(pragma.is_ok());
    }
}
