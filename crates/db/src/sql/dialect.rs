//! The differences between the SQL of databases, in one table.

use super::session::{self, SessionFunction};
use super::{harmless, harmless_postgres};

/// How one kind of database reads SQL.
///
/// A dialect is plain data. To make your own, change the nearest preset:
///
/// ```
/// use cenote::sql::{Backslashes, Dialect};
///
/// /// MySQL with `NO_BACKSLASH_ESCAPES` in its `sql_mode`.
/// static STRICT: Dialect = {
///     let mut dialect = Dialect::MYSQL;
///     dialect.name = "mysql without backslash escapes";
///     dialect.backslashes = Backslashes::Plain;
///     dialect
/// };
/// assert!(STRICT.hash_comments);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dialect {
    /// The name of the dialect in messages.
    pub name: &'static str,

    /// The placeholders that the database itself understands.
    pub placeholders: PlaceholderStyle,
    /// `??` means a question mark that is no placeholder.
    pub doubled_question_marks: bool,
    /// The database reads `@x`, `$x` and `:1` as placeholders, and as NULL if they have no value. Cenote refuses them.
    pub own_variables: bool,

    /// Where a backslash escapes a quote.
    pub backslashes: Backslashes,
    /// What double quotes enclose.
    pub double_quotes: DoubleQuotes,
    /// Backticks quote identifiers.
    pub backticks: bool,
    /// What square brackets mean.
    pub brackets: Brackets,
    /// `$tag$ … $tag$` is a string.
    pub dollar_quotes: bool,

    /// Two dashes begin a comment only if a space or a control character follows.
    pub dashes_need_space: bool,
    /// A carriage return ends a comment of two dashes, as a line feed does.
    pub carriage_return_ends_comment: bool,
    /// `#` begins a comment.
    pub hash_comments: bool,
    /// A block comment can contain block comments.
    pub nested_comments: bool,
    /// Some versions of the server read `/*! … */` as SQL.
    pub executable_comments: bool,
    /// A byte order mark between words is white space.
    pub byte_order_marks: bool,

    /// A colon right after a word ends a label.
    pub labels: bool,
    /// The statements in the body of a trigger end in semicolons; the trigger ends
    /// with `; END`.
    pub trigger_bodies: bool,
    /// `BEGIN NOT ATOMIC … END`, `IF … END IF` and loops are statements that contain semicolons.
    pub compound_statements: bool,
    /// The statements in the body of a routine end in semicolons, between BEGIN ATOMIC and `; END`.
    pub atomic_bodies: bool,
    /// A new statement can begin without a semicolon before it.
    pub unseparated_statements: bool,

    /// `END` commits.
    pub end_commits: bool,
    /// `SET LOCAL`, `SET TRANSACTION` and `SET CONSTRAINTS` end with the transaction, and `RESET` only affects the
    /// session.
    pub transaction_settings: bool,
    /// First words of further statements that leave the session unchanged.
    pub plain_statements: &'static [&'static str],
    /// Further objects that CREATE, ALTER and DROP can name without changing the session.
    pub plain_objects: &'static [&'static str],
    /// `@x` is a variable of the session.
    pub user_variables: bool,
    /// `#x` is a temporary table.
    pub hash_tables: bool,
    /// Functions by which a plain SELECT can change the session, in any order.
    pub session_functions: &'static [&'static [SessionFunction]],
    /// The database's functions that change nothing, and words before a parenthesis that is no call: sorted lists, in
    /// lower case.
    pub known_functions: &'static [&'static [&'static str]],
    /// Known functions that are another function if a space precedes the parenthesis.
    pub touching_functions: &'static [&'static str],
    /// A function that is not [known](Dialect::known_functions) may change the session. Otherwise only the
    /// [`session_functions`](Dialect::session_functions) may.
    pub only_known_functions: bool,
}

/// The placeholders of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceholderStyle {
    /// `?`, in order.
    Question,
    /// `?1`, and `?` for the next number.
    NumberedQuestion,
    /// `$1`.
    NumberedDollar,
}

/// Where a backslash escapes a quote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backslashes {
    /// Nowhere: a quote in a string is doubled.
    Plain,
    /// In `E'…'`.
    InEStrings,
    /// In every string.
    InStrings,
}

/// What double quotes enclose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoubleQuotes {
    /// An identifier.
    Identifier,
    /// A string.
    String,
}

/// What square brackets mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Brackets {
    /// They have no meaning of their own.
    Symbol,
    /// They quote an identifier, up to the first `]`.
    Identifier,
    /// They quote an identifier, in which `]]` means `]`.
    DoubledIdentifier,
    /// Array subscripts and slices: `a[1]`, `a[1:2]`.
    Subscript,
}

impl Dialect {
    /// SQLite.
    pub const SQLITE: Dialect = Dialect {
        name: "SQLite",
        placeholders: PlaceholderStyle::NumberedQuestion,
        own_variables: true,
        backticks: true,
        brackets: Brackets::Identifier,
        carriage_return_ends_comment: false,
        executable_comments: false,
        byte_order_marks: true,
        labels: false,
        trigger_bodies: true,
        unseparated_statements: false,
        end_commits: true,
        user_variables: false,
        hash_tables: false,
        session_functions: &[session::SQLITE],
        ..Dialect::ODBC
    };

    /// PostgreSQL, with `standard_conforming_strings` on.
    pub const POSTGRES: Dialect = Dialect {
        name: "PostgreSQL",
        placeholders: PlaceholderStyle::NumberedDollar,
        doubled_question_marks: true,
        backslashes: Backslashes::InEStrings,
        brackets: Brackets::Subscript,
        dollar_quotes: true,
        nested_comments: true,
        executable_comments: false,
        labels: false,
        atomic_bodies: true,
        unseparated_statements: false,
        end_commits: true,
        transaction_settings: true,
        plain_statements: session::POSTGRES_PLAIN,
        plain_objects: session::POSTGRES_OBJECTS,
        user_variables: false,
        hash_tables: false,
        session_functions: &[session::POSTGRES],
        known_functions: &[
            harmless_postgres::POSTGRES_FUNCTIONS,
            harmless_postgres::POSTGRES_WORDS,
        ],
        ..Dialect::ODBC
    };

    /// MySQL and MariaDB, with neither `ANSI_QUOTES` nor `NO_BACKSLASH_ESCAPES`.
    pub const MYSQL: Dialect = Dialect {
        name: "MySQL",
        backslashes: Backslashes::InStrings,
        double_quotes: DoubleQuotes::String,
        backticks: true,
        brackets: Brackets::Symbol,
        dashes_need_space: true,
        carriage_return_ends_comment: false,
        hash_comments: true,
        compound_statements: true,
        unseparated_statements: false,
        hash_tables: false,
        session_functions: &[session::MYSQL],
        known_functions: &[harmless::FUNCTIONS, harmless::WORDS],
        touching_functions: harmless::TOUCHING,
        only_known_functions: true,
        ..Dialect::ODBC
    };

    /// ANSI SQL for the unknown database of an ODBC driver.
    ///
    /// The class assumes the worst of all databases: the session functions of the other dialects, the executable
    /// comments of MySQL, and the variables, temporary tables and missing semicolons of SQL Server. It cannot cover
    /// every database: reset the session if a reset is cheap.
    pub const ODBC: Dialect = Dialect {
        name: "ODBC",
        placeholders: PlaceholderStyle::Question,
        doubled_question_marks: false,
        own_variables: false,
        backslashes: Backslashes::Plain,
        double_quotes: DoubleQuotes::Identifier,
        backticks: false,
        brackets: Brackets::DoubledIdentifier,
        dollar_quotes: false,
        dashes_need_space: false,
        carriage_return_ends_comment: true,
        hash_comments: false,
        nested_comments: false,
        executable_comments: true,
        byte_order_marks: false,
        labels: true,
        trigger_bodies: false,
        compound_statements: false,
        atomic_bodies: false,
        unseparated_statements: true,
        end_commits: false,
        transaction_settings: false,
        plain_statements: &[],
        plain_objects: &[],
        user_variables: true,
        hash_tables: true,
        session_functions: &[session::SQLITE, session::POSTGRES, session::MYSQL],
        known_functions: &[harmless_postgres::COMMON_FUNCTIONS, harmless::WORDS],
        touching_functions: &[],
        only_known_functions: false,
    };
}
