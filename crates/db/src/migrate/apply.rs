//! Applies pending migrations, one after the other, each in a session of its own.

use std::future::Future;
use std::panic::Location;
use std::time::Duration;

use super::files::{Migration, Migrations};
use super::history;
use super::lock::Lock;
use super::plan::Status;
use crate::sql::{self, Dialect, Keyword, Piece, TransactionVerb};
use crate::{Connection, Db, Error, Kind, Result};

/// What a call of [`Db::migrate`] has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The migrations that it has applied, in order; empty if the database was up to date, or another
    /// program was faster.
    pub applied: Vec<Applied>,
}

/// A migration that was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Applied {
    /// The name of its file: `V1__create_users.sql`.
    pub file: String,
    /// How long the migration took.
    pub took: Duration,
}

impl Db {
    /// Applies the migrations that are pending, each of them once, however many programs call this at
    /// the same time.
    ///
    /// It takes one connection at a time, and waits for as long as another program migrates: limit that with
    /// a time-out around the call. What a migration sets in its session ends with the migration. If nothing is pending it takes no lock and changes nothing. The time limits of
    /// this `Db` (`statement_timeout`, `max_transaction_age`) apply to migrations, too.
    ///
    /// ```
    /// use cenote::Db;
    /// use cenote::migrate::Migrations;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> cenote::Result<()> {
    /// let db = Db::open("sqlite:file:migrate-doc?mode=memory&cache=shared").await?;
    /// let migrations = Migrations::from_files([
    ///     ("V1__create_customer.sql", "CREATE TABLE customer (id INTEGER PRIMARY KEY)"),
    ///     ("V2__add_email.sql", "ALTER TABLE customer ADD email TEXT"),
    /// ])?;
    /// let report = db.migrate(&migrations).await?;
    /// assert_eq!(report.applied.len(), 2);
    /// assert!(db.migrate(&migrations).await?.applied.is_empty());
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropped, the migrations that were finished stay applied and recorded. The one under way is rolled back where it
    /// runs in a transaction, and the lock is released. Without a transaction its first statements may have
    /// taken effect.
    ///
    /// # Errors
    ///
    /// [`Kind::Migration`] if the history contradicts the files (nothing is applied then), or if a statement fails: the
    /// message names the file, the statement, its line and the reason, and [`Error::sql`] is the statement. Earlier
    /// migrations stay applied. A lost connection keeps its own kind.
    #[track_caller]
    pub fn migrate<'a>(
        &'a self,
        migrations: &'a Migrations,
    ) -> impl Future<Output = Result<Report>> + Send + 'a {
        let site = Location::caller();
        async move {
            let mut report = Report::default();
            let done = self
                .migrate_all(migrations, |applied| report.applied.push(applied))
                .await;
            done.map_err(|error| error.of_call(site))?;
            Ok(report)
        }
    }

    /// Applies the migrations that are pending, like [`migrate`](Db::migrate), and calls a function after each of them: also
    /// if a later one fails, the program knows what was applied.
    ///
    /// # Cancel safety
    ///
    /// As [`migrate`](Db::migrate).
    ///
    /// # Errors
    ///
    /// As [`migrate`](Db::migrate).
    #[track_caller]
    pub fn migrate_each<'a>(
        &'a self,
        migrations: &'a Migrations,
        on_applied: impl FnMut(Applied) + Send + 'a,
    ) -> impl Future<Output = Result<()>> + Send + 'a {
        let site = Location::caller();
        async move {
            let done = self.migrate_all(migrations, on_applied).await;
            done.map_err(|error| error.of_call(site))
        }
    }

    async fn migrate_all(
        &self,
        migrations: &Migrations,
        mut on_applied: impl FnMut(Applied),
    ) -> Result<()> {
        let mut skipped = None;
        loop {
            match self.migrate_next(migrations).await? {
                Step::UpToDate => return Ok(()),
                Step::Applied(applied) => on_applied(applied),
                // The history must list the migration now. If it does not, the loop would never end.
                Step::AppliedElsewhere(file) if skipped.as_ref() != Some(&file) => {
                    skipped = Some(file);
                }
                Step::AppliedElsewhere(file) => {
                    let table = migrations.history_table();
                    let message = format!(
                        "{file} cannot be recorded in {table}: a unique key refuses it, but the table has no such version"
                    );
                    return Err(Error::new(Kind::Migration, message));
                }
            }
        }
    }

    /// Applies the first migration that is pending, on a connection of its own: what a migration sets in its session,
    /// such as the empty `search_path` of a dump, must not change what the next one means.
    async fn migrate_next(&self, migrations: &Migrations) -> Result<Step> {
        let mut connection = self.connection().await?;
        let recorded = history::read(&connection, migrations.history_table()).await?;
        let status = Status::new(migrations, recorded.as_deref().unwrap_or_default());
        if status.pending()?.is_empty() {
            return Ok(Step::UpToDate);
        }
        let lock = Lock::of(self.driver_name(), &connection).await?;
        lock.take(&connection).await?;
        let run = Run {
            db: self,
            migrations,
            dialect: self.dialect(),
            commits_ddl: self.driver_name() == "mysql",
            has_session: lock != Lock::Pooler,
        };
        // A cancel from here on gives the connection back: the pool rolls back and resets the
        // session, which releases the lock.
        let done = run.next(&mut connection).await;
        let released = lock.release(&connection).await;
        let step = done?;
        released?;
        Ok(step)
    }
}

/// What became of the first pending migration.
enum Step {
    /// None was pending.
    UpToDate,
    Applied(Applied),
    /// Another program has applied this file.
    AppliedElsewhere(String),
}

impl Migrations {
    /// Returns what is applied and what is pending. It changes nothing and takes no lock:
    /// [`Status::pending`] is the dry run of [`Db::migrate`].
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing has happened.
    ///
    /// # Errors
    ///
    /// The history cannot be read, or no connection is free in time.
    #[track_caller]
    pub fn status<'a>(&'a self, db: &'a Db) -> impl Future<Output = Result<Status>> + Send + 'a {
        let site = Location::caller();
        async move {
            let read = async {
                let connection = db.connection().await?;
                history::read(&connection, self.history_table()).await
            };
            let recorded = read.await.map_err(|error| error.of_call(site))?;
            Ok(Status::new(self, recorded.as_deref().unwrap_or_default()))
        }
    }
}

/// One step of [`Db::migrate`] that holds the lock.
struct Run<'r> {
    db: &'r Db,
    migrations: &'r Migrations,
    dialect: &'static Dialect,
    /// Each statement that defines something commits what is before it: MySQL.
    commits_ddl: bool,
    /// All statements outside of a transaction run in one session: no pooler is in between.
    has_session: bool,
}

impl Run<'_> {
    async fn next(&self, connection: &mut Connection) -> Result<Step> {
        let recorded = history::read_or_create(connection, self.migrations).await?;
        let status = Status::new(self.migrations, &recorded);
        let Some(version) = status.pending()?.first().map(|entry| entry.version) else {
            return Ok(Step::UpToDate);
        };
        let migration = self
            .migrations
            .iter()
            .find(|migration| migration.version() == version)
            .expect("what is pending has a file");
        let file = migration.file().to_owned();
        let began = self.db.now();
        if !self.one(connection, migration).await? {
            return Ok(Step::AppliedElsewhere(file));
        }
        let took = self.db.now().duration_since(began);
        tracing::info!(migration = file, ?took, "migration applied");
        Ok(Step::Applied(Applied { file, took }))
    }

    /// Applies a migration. `false` if another program has done that.
    async fn one(&self, connection: &mut Connection, migration: &Migration) -> Result<bool> {
        let pieces = sql::pieces(self.dialect, migration.sql());
        let attempt = Attempt {
            run: self,
            migration,
            pieces: &pieces,
        };
        match attempt.can_be_undone() {
            true => attempt.in_transaction(connection).await,
            false => attempt.one_by_one(connection).await,
        }
    }
}

/// A migration that is being applied.
struct Attempt<'a> {
    run: &'a Run<'a>,
    migration: &'a Migration,
    pieces: &'a [Piece<'a>],
}

impl Attempt<'_> {
    /// Whether a rollback undoes all of it.
    fn can_be_undone(&self) -> bool {
        use Keyword::{Delete, Insert, Replace, Select, Update, With};
        let changes_rows = |piece: &Piece<'_>| {
            matches!(
                piece.verb,
                Some(Delete | Insert | Replace | Select | Update | With)
            )
        };
        let is_safe = !self.run.commits_ddl || self.pieces.iter().all(changes_rows);
        is_safe && !self.migration.no_transaction()
    }

    async fn in_transaction(&self, connection: &mut Connection) -> Result<bool> {
        self.refuse_transaction_control()?;
        let table = self.run.migrations.history_table();
        let transaction = connection.begin().await?;
        // First, so that a second program waits here until the first has ended.
        let insert = history::record(table);
        let recorded = transaction
            .exec(&insert, history::values(self.migration))
            .await;
        if history::was_recorded(&recorded) {
            transaction.rollback().await?;
            return Ok(false);
        }
        recorded.map_err(|error| self.not_recorded(error, "it was rolled back"))?;
        for (at, piece) in self.pieces.iter().enumerate() {
            let sent = sql::verbatim(self.run.dialect, piece.text);
            if let Err(error) = transaction.exec(&sent, ()).await {
                // If the rollback fails the connection is closed, which is a rollback, too.
                let _ = transaction.rollback().await;
                let mut failed = self.failed(at, &sent, error, "it was rolled back");
                if refuses_transactions(&failed) {
                    failed = failed.with_advice(
                        "move the statement to a file of its own with `-- cenote: no-transaction` at the top",
                    );
                }
                return Err(failed);
            }
        }
        let file = self.migration.file();
        let committed = transaction.commit().await;
        committed.map_err(|error| match error.kind() {
            Kind::OutcomeUnknown => {
                let message = format!(
                    "whether {file} was committed is unknown: migrate again, the history shows it"
                );
                error.wrapped(Kind::OutcomeUnknown, message)
            }
            kind => {
                let message = format!("{file} could not be committed: {}", error.message());
                error.wrapped(kind_of(kind), message)
            }
        })?;
        Ok(true)
    }

    async fn one_by_one(&self, connection: &mut Connection) -> Result<bool> {
        let table = self.run.migrations.history_table();
        let version = self.migration.version();
        if !self.run.has_session {
            let message = format!(
                "{} runs without a transaction, which is not safe through a pooler such as PgBouncer: it may run each \
                 statement in another session, and no lock keeps other programs out; migrate with a DSN of the server itself",
                self.migration.file()
            );
            return Err(Error::new(Kind::Migration, message));
        }
        if history::has(connection, table, version).await? {
            return Ok(false);
        }
        // The file may set another search path, or USE another database.
        let driver = self.run.db.driver_name();
        let table = &history::qualified(connection, driver, table).await?;
        for (at, piece) in self.pieces.iter().enumerate() {
            let sent = sql::verbatim(self.run.dialect, piece.text);
            let done = connection.exec(&sent, ()).await;
            done.map_err(|error| self.failed(at, &sent, error, &self.left_behind(at)))?;
        }
        let left = self.left_behind(self.pieces.len());
        if connection.in_transaction() {
            let file = self.migration.file();
            let message = format!("{file} leaves a transaction open: end it with COMMIT");
            return Err(Error::new(Kind::Migration, message));
        }
        let insert = history::record(table);
        let recorded = connection
            .exec(&insert, history::values(self.migration))
            .await;
        if history::was_recorded(&recorded) {
            return Ok(false);
        }
        recorded.map_err(|error| self.not_recorded(error, &left))?;
        Ok(true)
    }

    /// A migration must not end the transaction that it runs in.
    fn refuse_transaction_control(&self) -> Result<()> {
        for (at, piece) in self.pieces.iter().enumerate() {
            // What cannot be scanned is refused when it is run.
            let scanned = sql::scan(self.run.dialect, piece.bare).ok();
            let verb = scanned.and_then(|scanned| scanned.class.transaction);
            if let Some(
                TransactionVerb::Begin | TransactionVerb::Commit | TransactionVerb::Rollback,
            ) = verb
            {
                let message = format!(
                    "{}, {}: {} would end the transaction that every migration runs in; remove it, or put \
                     `-- cenote: no-transaction` at the top of the file",
                    self.migration.file(),
                    self.place(at, 1, piece.text),
                    piece.bare
                );
                return Err(Error::new(Kind::Migration, message));
            }
        }
        Ok(())
    }

    fn failed(&self, at: usize, sent: &str, error: Error, effect: &str) -> Error {
        let character = error.position().unwrap_or(1);
        let place = self.place(at, character, sent);
        let file = self.migration.file();
        let kind = kind_of(error.kind());
        let message = format!("{file} failed at {place}: {}; {effect}", error.message());
        let statement = self.pieces[at].text;
        let mut error = error.wrapped(kind, message);
        error.relocate(&|character| without_doubled(statement, sent, character));
        error.in_call(Location::caller(), Some((self.run.dialect, statement)))
    }

    fn not_recorded(&self, error: Error, effect: &str) -> Error {
        let (file, table) = (self.migration.file(), self.run.migrations.history_table());
        let kind = kind_of(error.kind());
        let reason = error.message();
        let message = format!("{file} could not be recorded in {table}: {reason}; {effect}");
        error.wrapped(kind, message)
    }

    /// Names a statement, and the line of this character of it.
    fn place(&self, at: usize, character: usize, sent: &str) -> String {
        let before = &self.migration.sql()[..self.pieces[at].offset];
        let inside = sent.chars().take(character.saturating_sub(1));
        let is_break = |letter: &char| *letter == '\n';
        let line = 1 + before.chars().chain(inside).filter(is_break).count();
        format!("statement {} of {}, line {line}", at + 1, self.pieces.len())
    }

    /// Names the effect of the statements before this one, which nothing undoes.
    fn left_behind(&self, at: usize) -> String {
        let why = match self.migration.no_transaction() {
            true => "it runs without a transaction",
            false => "MySQL commits definitions at once",
        };
        let which = match at {
            0 => return format!("no earlier statement of it has taken effect ({why})"),
            1 => "statement 1 has".to_owned(),
            some => format!("statements 1 to {some} have"),
        };
        format!(
            "{which} taken effect ({why}): undo that, or make it repeatable, before you migrate again"
        )
    }
}

/// Returns whether a database refused to run a statement because of the transaction around it.
fn refuses_transactions(error: &Error) -> bool {
    // SQLite has no SQLSTATE: "cannot VACUUM from within a transaction".
    error.sql_state() == Some("25001") || error.message().contains("within a transaction")
}

/// Converts a position in the sent SQL, in which operators `?` are doubled, to a position in the statement as written.
fn without_doubled(statement: &str, sent: &str, character: usize) -> usize {
    let mut written = statement.chars().peekable();
    let before = sent.chars().take(character.saturating_sub(1));
    let matched = before.filter(|letter| written.next_if_eq(letter).is_some());
    matched.count() + 1
}

/// A migration that the database refuses is [`Kind::Migration`]; a lost connection or a time-out stays
/// what it is.
fn kind_of(kind: Kind) -> Kind {
    match kind {
        Kind::Database | Kind::Parameters => Kind::Migration,
        kind => kind,
    }
}
