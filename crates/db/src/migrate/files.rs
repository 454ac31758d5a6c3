//! Migrations as files: their names, their texts, and where they come from.

use std::fmt;
use std::path::{Path, PathBuf};

use super::checksum;
use crate::{Error, Kind, Result};

/// The table that refinery uses.
const TABLE: &str = "refinery_schema_history";
/// A comment at the top of a file that begins so is an instruction.
const DIRECTIVE: &str = "cenote:";

/// A set of migrations, ordered by version.
///
/// See the [module](super) for the names of the files and what they may contain.
#[derive(Clone, Debug)]
pub struct Migrations {
    migrations: Vec<Migration>,
    table: String,
    ignores_missing: bool,
}

/// One migration.
#[derive(Clone, PartialEq, Eq)]
pub struct Migration {
    file: String,
    sql: String,
    version: i64,
    /// The part of the file's name between `__` and `.sql`.
    name: String,
    any_order: bool,
    no_transaction: bool,
}

impl Migrations {
    /// Reads all migrations of a folder and of the folders in it.
    ///
    /// It blocks while it reads: call it when the program starts.
    ///
    /// # Errors
    ///
    /// [`Kind::Migration`], naming the file: it cannot be read, an `.sql` file is not named like a
    /// migration, two have the same version, or an instruction in a file is unknown.
    pub fn from_dir(folder: impl AsRef<Path>) -> Result<Self> {
        let mut paths = Vec::new();
        collect(folder.as_ref(), &mut paths)?;
        let files = paths.iter().map(|path| {
            let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, error))?;
            let name = path.file_name().unwrap_or_default();
            Ok((name.to_string_lossy().into_owned(), text))
        });
        Migrations::new(files.collect::<Result<Vec<_>>>()?)
    }

    /// Returns migrations from file names and texts, in any order: for files that are not in a folder.
    ///
    /// ```
    /// use cenote::migrate::Migrations;
    ///
    /// let migrations = Migrations::from_files([
    ///     ("V2__add_email.sql", "ALTER TABLE customer ADD email TEXT"),
    ///     ("V1__create_customer.sql", "CREATE TABLE customer (id INTEGER PRIMARY KEY)"),
    /// ])?;
    /// let versions: Vec<i64> = migrations.iter().map(|migration| migration.version()).collect();
    /// assert_eq!(versions, [1, 2]);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`from_dir`](Migrations::from_dir).
    pub fn from_files<N, T>(files: impl IntoIterator<Item = (N, T)>) -> Result<Self>
    where
        N: Into<String>,
        T: Into<String>,
    {
        let files = files.into_iter();
        Migrations::new(
            files
                .map(|(name, text)| (name.into(), text.into()))
                .collect(),
        )
    }

    /// Returns the migrations of [`embed!`](super::embed), which has checked the names.
    #[doc(hidden)]
    pub fn embedded(names: &[&str], texts: &[&str]) -> Self {
        let files = names.iter().copied().zip(texts.iter().copied());
        Migrations::from_files(files).unwrap_or_else(|wrong| panic!("{wrong}"))
    }

    fn new(files: Vec<(String, String)>) -> Result<Self> {
        let migrations = files
            .into_iter()
            .map(|(file, sql)| Migration::new(file, sql));
        let mut migrations = migrations.collect::<Result<Vec<_>>>()?;
        migrations.sort_by_key(|migration| migration.version);
        for pair in migrations.windows(2) {
            if pair[0].version == pair[1].version {
                let [first, second] = [&pair[0].file, &pair[1].file];
                return Err(wrong(format!(
                    "{first} and {second} have the same version: give one of them another number"
                )));
            }
        }
        Ok(Migrations {
            migrations,
            table: TABLE.to_owned(),
            ignores_missing: false,
        })
    }

    /// Records the history in this table: a name, or a schema and a name with a point between them.
    /// Default: `refinery_schema_history`, the table of refinery.
    ///
    /// # Errors
    ///
    /// [`Kind::Migration`] if the name has anything but ASCII letters, digits, `_` and one point.
    pub fn table(mut self, name: &str) -> Result<Self> {
        let is_name = |part: &str| {
            let mut bytes = part.bytes();
            bytes.next().is_some_and(|first| !first.is_ascii_digit())
                && part
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        let parts = name.split('.');
        if parts.clone().count() > 2 || !parts.into_iter().all(is_name) {
            return Err(wrong(format!(
                "{name:?} cannot be the table of the history: use ASCII letters, digits and _"
            )));
        }
        name.clone_into(&mut self.table);
        Ok(self)
    }

    /// Accepts applied migrations whose files are missing: for a program that is older than the
    /// schema, as during a rolling deployment. Default: such a migration is an error.
    #[must_use]
    pub fn ignore_missing(mut self) -> Self {
        self.ignores_missing = true;
        self
    }

    /// Returns the migrations, the lowest version first.
    pub fn iter(&self) -> impl Iterator<Item = &Migration> {
        self.migrations.iter()
    }

    pub(super) fn all(&self) -> &[Migration] {
        &self.migrations
    }

    pub(super) fn history_table(&self) -> &str {
        &self.table
    }

    pub(super) fn ignores_missing(&self) -> bool {
        self.ignores_missing
    }
}

impl Migration {
    fn new(file: String, sql: String) -> Result<Self> {
        let Some((version, name, any_order)) = parse(&file) else {
            return Err(wrong(format!(
                "{file} is not named like a migration: V1__create_users.sql, with a whole number, two \
                 underscores and a name of letters, digits and _"
            )));
        };
        let name = name.to_owned();
        let no_transaction = directives(&file, &sql)?;
        Ok(Migration {
            file,
            sql,
            version,
            name,
            any_order,
            no_transaction,
        })
    }

    /// Returns the name of its file: `V1__create_users.sql`.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns the number after the first letter of the file's name.
    pub fn version(&self) -> i64 {
        self.version
    }

    /// Returns the name after the two underscores: `create_users`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its SQL.
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// Returns the checksum that the history records: the one of refinery.
    pub fn checksum(&self) -> u64 {
        checksum::checksum(&self.name, self.version, &self.sql)
    }

    /// Whether a recorded checksum is this migration's.
    pub(super) fn has_checksum(&self, recorded: &str) -> bool {
        checksum::matches(recorded, &self.name, self.version, &self.sql)
    }

    /// Whether it may be applied after a higher version: `U1__name.sql`.
    pub(super) fn any_order(&self) -> bool {
        self.any_order
    }

    /// Whether its file says `-- cenote: no-transaction`.
    pub(super) fn no_transaction(&self) -> bool {
        self.no_transaction
    }
}

impl fmt::Debug for Migration {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Migration").field(&self.file).finish()
    }
}

pub(super) fn wrong(message: String) -> Error {
    Error::new(Kind::Migration, message)
}

fn unreadable(path: &Path, error: std::io::Error) -> Error {
    wrong(format!("cannot read {}", path.display())).because(error)
}

/// Collects the SQL files of a folder and of the folders in it, in order of their paths.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = std::fs::read_dir(folder).map_err(|error| unreadable(folder, error))?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = paths
        .collect::<std::io::Result<Vec<_>>>()
        .map_err(|error| unreadable(folder, error))?;
    paths.sort();
    for path in paths {
        let extension = path.extension().and_then(|extension| extension.to_str());
        if path.is_dir() {
            collect(&path, files)?;
        } else if extension == Some("sql") {
            files.push(path);
        } else if extension == Some("rs") && is_rust_migration(&path) {
            return Err(wrong(format!(
                "{} is a migration in Rust, which is not supported: save the SQL that it returns as a \
                 .sql file of the same name; its checksum stays the same",
                path.display()
            )));
        }
    }
    Ok(())
}

/// Whether refinery would run a file as a migration in Rust.
fn is_rust_migration(path: &Path) -> bool {
    let as_sql = path.with_extension("sql");
    as_sql
        .file_name()
        .and_then(|name| name.to_str())
        .is_some_and(is_file_name)
}

/// Reads the instructions in the comments at the top of a file. Returns whether it must not run in a
/// transaction.
fn directives(file: &str, sql: &str) -> Result<bool> {
    let mut no_transaction = false;
    for line in sql.lines().map(str::trim) {
        let Some(comment) = line.strip_prefix("--") else {
            match line.is_empty() {
                true => continue,
                false => break,
            }
        };
        match comment.trim().strip_prefix(DIRECTIVE).map(str::trim) {
            None => {}
            Some("no-transaction") => no_transaction = true,
            Some(other) => {
                return Err(wrong(format!(
                    "{file}: `-- cenote: {other}` is no instruction; there is only \
                     `-- cenote: no-transaction`"
                )));
            }
        }
    }
    Ok(no_transaction)
}

/// Reads the name of a file: version, name, and whether it may be applied out of order. `None` if it
/// is not the name of a migration. Constant, so that [`embed!`](super::embed) checks names at compile time.
const fn parse(file: &str) -> Option<(i64, &str, bool)> {
    let bytes = file.as_bytes();
    let any_order = match bytes {
        [b'V', ..] => false,
        [b'U', ..] => true,
        _ => return None,
    };
    let (mut at, mut version) = (1, 0_i64);
    while at < bytes.len() && bytes[at].is_ascii_digit() {
        let Some(tens) = version.checked_mul(10) else {
            return None;
        };
        let Some(more) = tens.checked_add(i64_of(bytes[at] - b'0')) else {
            return None;
        };
        version = more;
        at += 1;
    }
    let start = at + 2;
    if at == 1 || start >= bytes.len() || bytes[at] != b'_' || bytes[at + 1] != b'_' {
        return None;
    }
    let mut end = start;
    while end < bytes.len() && bytes[end] != b'.' {
        // Letters beyond ASCII are fine, as they are for refinery.
        if !(bytes[end].is_ascii_alphanumeric() || bytes[end] == b'_' || bytes[end] >= 0x80) {
            return None;
        }
        end += 1;
    }
    let (name, extension) = file.split_at(end);
    match extension.as_bytes() {
        b".sql" if end > start => Some((version, name.split_at(start).1, any_order)),
        _ => None,
    }
}

/// `From` is not constant.
#[allow(clippy::cast_lossless, reason = "i64::from is not constant")]
const fn i64_of(digit: u8) -> i64 {
    digit as i64
}

/// Returns whether a file name is that of a migration. For [`embed!`](super::embed).
#[doc(hidden)]
pub const fn is_file_name(file: &str) -> bool {
    parse(file).is_some()
}

/// Returns whether no earlier file has the version of this one. For [`embed!`](super::embed).
#[doc(hidden)]
pub const fn is_new_version(files: &[&str], at: usize) -> bool {
    let Some((version, ..)) = parse(files[at]) else {
        return true;
    };
    let mut before = 0;
    while before < at {
        if let Some((other, ..)) = parse(files[before])
            && other == version
        {
            return false;
        }
        before += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_refinery_reads_them() {
        for (file, read) in [
            ("V1__initial.sql", Some((1, "initial", false))),
            ("V001__a_b.sql", Some((1, "a_b", false))),
            ("U0__late.sql", Some((0, "late", true))),
            (
                "V20240504090241__größe.sql",
                Some((20_240_504_090_241, "größe", false)),
            ),
            ("V1___x.sql", Some((1, "_x", false))),
            ("V1_initial.sql", None),
            ("V1__.sql", None),
            ("V__initial.sql", None),
            ("V1.5__initial.sql", None),
            ("v1__initial.sql", None),
            ("V1__add-users.sql", None),
            ("V1__initial.sql.bak", None),
            ("V1__initial.rs", None),
            ("V99999999999999999999__x.sql", None),
            ("initial.sql", None),
            ("", None),
        ] {
            assert_eq!(parse(file), read, "{file}");
        }
    }

    #[test]
    fn a_second_file_of_one_version_is_found() {
        let files = ["V1__a.sql", "U2__b.sql", "V01__c.sql"];
        let new = [0, 1, 2].map(|at| is_new_version(&files, at));
        assert_eq!(new, [true, true, false]);
        let error = Migrations::from_files(files.map(|file| (file, ""))).unwrap_err();
        assert!(
            error.message().contains("V1__a.sql and V01__c.sql"),
            "{error}"
        );
    }

    #[test]
    fn instructions_stand_at_the_top_and_are_known() {
        let read = |sql: &str| directives("V1__x.sql", sql);
        assert!(read("\n-- why\n--cenote:no-transaction\nSELECT 1").unwrap());
        assert!(!read("SELECT 1\n-- cenote: no-transaction").unwrap());
        assert!(!read("-- about cenote: nothing").unwrap());
        let error = read("-- cenote: no-transactions").unwrap_err();
        assert!(error.message().contains("no-transactions"), "{error}");
    }

    #[test]
    fn the_table_is_a_plain_name() {
        let named = |name: &str| Migrations::new(Vec::new()).unwrap().table(name);
        assert_eq!(
            named("ops.history_1").unwrap().history_table(),
            "ops.history_1"
        );
        for name in ["", "a b", "a;b", "a.b.c", "1a", ".a", "a."] {
            assert!(named(name).is_err(), "{name}");
        }
    }
}
