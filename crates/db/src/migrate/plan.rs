//! Compares the files with the history: what is applied, what is pending, what contradicts.

use super::files::{Migration, Migrations, wrong};
use super::history::Recorded;
use crate::{Error, Result};

/// What the history and the files say about each migration, the lowest version first.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// One entry for each file, and for each applied migration without a file.
    pub entries: Vec<Entry>,
    table: String,
    ignores_missing: bool,
}

/// What the history and the files say about one migration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The name of its file: `V1__create_users.sql`.
    pub file: String,
    /// The version of the migration.
    pub version: i64,
    /// Whether the migration is applied.
    pub state: State,
}

/// Whether a migration is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// It is applied.
    Applied {
        /// When, in UTC and as RFC 3339.
        on: String,
    },
    /// The next [`Db::migrate`](crate::Db::migrate) applies it.
    Pending,
    /// It is applied, and its file was changed since.
    Changed {
        /// When it was applied.
        on: String,
        /// The checksum of the file as it is now.
        checksum: u64,
    },
    /// It is applied, under another name.
    Renamed {
        /// When it was applied.
        on: String,
        /// The name that the history has.
        applied_as: String,
    },
    /// It is applied, and its file is missing.
    Missing {
        /// When it was applied.
        on: String,
    },
    /// It is not applied, and a higher version is.
    OutOfOrder {
        /// The highest version that is applied.
        after: i64,
    },
}

impl Status {
    pub(super) fn new(migrations: &Migrations, recorded: &[Recorded]) -> Self {
        let highest = recorded.iter().map(|row| row.version).max();
        let of_file = |migration: &Migration| {
            let row = recorded
                .iter()
                .find(|row| row.version == migration.version());
            Entry {
                file: migration.file().to_owned(),
                version: migration.version(),
                state: match row {
                    Some(row) => compared(migration, row),
                    None => unapplied(migration, highest),
                },
            }
        };
        let mut entries: Vec<Entry> = migrations.iter().map(of_file).collect();
        let files = migrations.all();
        for row in recorded {
            if files
                .iter()
                .all(|migration| migration.version() != row.version)
            {
                entries.push(Entry {
                    file: format!("V{}__{}.sql", row.version, row.name),
                    version: row.version,
                    state: State::Missing {
                        on: row.applied_on.clone(),
                    },
                });
            }
        }
        entries.sort_by_key(|entry| entry.version);
        Status {
            entries,
            table: migrations.history_table().to_owned(),
            ignores_missing: migrations.ignores_missing(),
        }
    }

    /// Returns the entries that the next [`Db::migrate`](crate::Db::migrate) would apply, in order.
    ///
    /// # Errors
    ///
    /// [`Kind::Migration`](crate::Kind::Migration), as `Db::migrate` would fail before it applies
    /// anything: the history contradicts the files.
    pub fn pending(&self) -> Result<Vec<&Entry>> {
        match self
            .entries
            .iter()
            .find_map(|entry| self.contradiction(entry))
        {
            Some(error) => Err(error),
            None => {
                let pending = self.entries.iter();
                Ok(pending
                    .filter(|entry| entry.state == State::Pending)
                    .collect())
            }
        }
    }

    fn contradiction(&self, entry: &Entry) -> Option<Error> {
        let Entry { file, version, .. } = entry;
        let table = &self.table;
        Some(wrong(match &entry.state {
            State::Applied { .. } | State::Pending => return None,
            State::Missing { .. } if self.ignores_missing => return None,
            State::Changed { on, checksum } => format!(
                "{file} was changed after it was applied on {on}: restore the file and put the change into a new \
                 migration, or, if both have the same effect, accept the file with UPDATE {table} SET checksum = \
                 '{checksum}' WHERE version = {version}"
            ),
            State::Renamed { on, applied_as } => format!(
                "version {version} was applied on {on} as {applied_as:?} and its file is {file}: rename the file \
                 back, or give the new migration a version of its own"
            ),
            State::Missing { on } => format!(
                "{file} was applied on {on} and its file is missing: restore the file, or run a newer version of \
                 the program (Migrations::ignore_missing accepts a newer schema)"
            ),
            State::OutOfOrder { after } => format!(
                "{file} is not applied, and version {after} is: give it a version above {after}, or rename it to \
                 U{} if it may be applied later",
                file.strip_prefix('V').unwrap_or(file)
            ),
        }))
    }
}

fn compared(migration: &Migration, row: &Recorded) -> State {
    let on = row.applied_on.clone();
    if row.name != migration.name() {
        let applied_as = row.name.clone();
        return State::Renamed { on, applied_as };
    }
    match migration.has_checksum(&row.checksum) {
        true => State::Applied { on },
        false => State::Changed {
            on,
            checksum: migration.checksum(),
        },
    }
}

fn unapplied(migration: &Migration, highest: Option<i64>) -> State {
    match highest {
        Some(after) if after > migration.version() && !migration.any_order() => {
            State::OutOfOrder { after }
        }
        _ => State::Pending,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    fn files(names: &[&str]) -> Migrations {
        let files = names.iter().map(|name| (*name, "SELECT 1"));
        Migrations::from_files(files).unwrap()
    }

    fn applied(migrations: &Migrations) -> Vec<Recorded> {
        let rows = migrations.iter().map(|migration| Recorded {
            version: migration.version(),
            name: migration.name().to_owned(),
            applied_on: "2026-01-02T03:04:05Z".to_owned(),
            checksum: migration.checksum().to_string(),
        });
        rows.collect()
    }

    fn pending(status: &Status) -> Vec<&str> {
        let pending = status.pending().unwrap();
        pending.iter().map(|entry| entry.file.as_str()).collect()
    }

    fn refused(status: &Status, says: &[&str]) {
        let error = status.pending().unwrap_err();
        assert_eq!(error.kind(), Kind::Migration);
        for text in says {
            assert!(error.message().contains(text), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_not_in_the_history_is_pending_in_order() {
        let all = files(&["V10__c.sql", "V2__b.sql", "V1__a.sql"]);
        assert_eq!(
            pending(&Status::new(&all, &[])),
            ["V1__a.sql", "V2__b.sql", "V10__c.sql"]
        );
        let some = applied(&files(&["V1__a.sql", "V2__b.sql"]));
        assert_eq!(pending(&Status::new(&all, &some)), ["V10__c.sql"]);
        assert_eq!(pending(&Status::new(&all, &applied(&all))), [""; 0]);
    }

    #[test]
    fn only_u_files_may_come_late() {
        let history = applied(&files(&["V1__a.sql", "V5__b.sql"]));
        let late = files(&["V1__a.sql", "U3__late.sql", "V5__b.sql"]);
        assert_eq!(pending(&Status::new(&late, &history)), ["U3__late.sql"]);
        let wrong = files(&["V1__a.sql", "V3__late.sql", "V5__b.sql"]);
        let status = Status::new(&wrong, &history);
        refused(&status, &["V3__late.sql", "version 5", "U3__late.sql"]);
    }

    #[test]
    fn a_changed_file_is_refused_with_what_to_do() {
        let now = files(&["V1__a.sql"]);
        let mut history = applied(&now);
        history[0].checksum = "7".to_owned();
        let update = format!(
            "UPDATE refinery_schema_history SET checksum = '{}' WHERE version = 1",
            now.all()[0].checksum()
        );
        let status = Status::new(&now, &history);
        refused(&status, &["V1__a.sql", "2026-01-02T03:04:05Z", &update]);
        let renamed = Status::new(&files(&["V1__b.sql"]), &applied(&now));
        refused(&renamed, &["V1__b.sql", "\"a\""]);
    }

    #[test]
    fn a_missing_file_is_refused_unless_that_is_accepted() {
        let history = applied(&files(&["V1__a.sql", "V2__b.sql"]));
        let older = files(&["V1__a.sql"]);
        refused(&Status::new(&older, &history), &["V2__b.sql", "missing"]);
        let tolerant = older.ignore_missing();
        assert_eq!(pending(&Status::new(&tolerant, &history)), [""; 0]);
    }
}
