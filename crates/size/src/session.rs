//! Measures a database: opens it, checks the workload, measures one size after the other, and leaves nothing behind.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cenote::{Builder, Db, DbConfig, PooledConnection};
use cenote_bank::{Database, Source, WalFile, tables};
use fastrand::Rng;
use tokio::time::Instant;

use crate::limit::Setting;
use crate::measure::{Measured, Plan, Sample, execute, measure};
use crate::ramp::Ramp;
use crate::report::{Facts, Report, Row, rows};
use crate::server::Dialect;
use crate::workload::{Operation, Workload, WorkloadError};

/// About so many measurements fit into the time.
const STEPS: u32 = 36;
const SHORTEST_STEP: Duration = Duration::from_millis(300);
const LONGEST_STEP: Duration = Duration::from_secs(20);
/// The share of a step that warms up: one in so many.
const WARM_UP: u32 = 5;

/// The largest size if none is given.
const MOST: usize = 64;
const MOST_OF_SQLITE: usize = 16;
/// How many connections of the server stay free for others.
const SPARE: usize = 2;

const ACCOUNTS: usize = 1_000;

/// The workload if no file is given. The lower account first, so that opposite transfers do not deadlock.
const BANK: &str = "
param low  = 1 .. 500
param high = 501 .. 1000
param cents = 1 .. 100
statement weight 4
    SELECT balance FROM cenote_bank_account WHERE id = :low
transaction weight 1
    UPDATE cenote_bank_account SET balance = balance - :cents, moves = moves + 1 WHERE id = :low;
    UPDATE cenote_bank_account SET balance = balance + :cents, moves = moves + 1 WHERE id = :high
";

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// The database.
    pub database: Database,
    /// The statements; `None` for a bank on tables of its own, which are dropped in the end.
    pub workload: Option<Workload>,
    /// The statements may write. Otherwise every session is read-only.
    pub allow_writes: bool,
    /// The largest size; `None` for what fits the database, at most 64.
    pub most: Option<usize>,
    /// How many tasks share the pool; `None` for twice the largest size.
    pub clients: Option<usize>,
    /// How long to measure at most.
    pub length: Duration,
    /// How many instances of the program share the database.
    pub instances: usize,
    /// How many servers like the measured one the statements are spread over.
    pub replicas: usize,
    /// Drops tables of the bank's names that are in the way.
    pub force: bool,
    /// Decides about the order of measurements and the parameters.
    pub seed: u64,
}

impl Options {
    /// Returns the defaults for a database: the bank, for at most a minute.
    pub fn new(database: Database) -> Self {
        Options {
            database,
            workload: None,
            allow_writes: false,
            most: None,
            clients: None,
            length: Duration::from_secs(60),
            instances: 1,
            replicas: 1,
            force: false,
            seed: u64::from(fastrand::u32(..)),
        }
    }
}

/// Why nothing can be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The workload does not fit: the file, the line, and what to do.
    Workload(String),
    /// The database cannot be reached, or refuses.
    Database(String),
    /// Anything else, such as no room for a temporary file.
    Other(String),
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Error::Workload(text) | Error::Database(text) | Error::Other(text)) = self;
        out.write_str(text)
    }
}

impl std::error::Error for Error {}

impl From<WorkloadError> for Error {
    fn from(error: WorkloadError) -> Self {
        Error::Workload(error.to_string())
    }
}

impl From<cenote::Error> for Error {
    fn from(error: cenote::Error) -> Self {
        Error::Database(explained(&error))
    }
}

impl From<cenote_bank::Error> for Error {
    fn from(error: cenote_bank::Error) -> Self {
        match error {
            cenote_bank::Error::Database(text) => Error::Database(text),
            error => Error::Other(error.to_string()),
        }
    }
}

/// Returns an error in one line: what the database reported, without the statement and the line of this crate.
pub(crate) fn explained(error: &cenote::Error) -> String {
    let mut text = error.message().to_owned();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let said = inner.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = inner.source();
    }
    if let Some(state) = error.sql_state() {
        text = format!("{text} (SQLSTATE {state})");
    }
    match error.hint() {
        Some(hint) => format!("{text}; hint: {hint}"),
        None => text,
    }
}

/// A measurement under way. [`clean_up`](Session::clean_up) drops the bank's tables and closes everything.
#[derive(Debug)]
pub struct Session {
    options: Options,
    source: Source,
    /// Looks at the server from outside of the measured pool.
    observer: Db,
    /// The pool that is being measured.
    measured: Option<Db>,
    workload: Arc<Workload>,
    has_tables: bool,
    dialect: Dialect,
    ramp: Ramp,
    clients: usize,
    samples: Vec<Sample>,
    notes: Vec<String>,
    wal: WalFile,
    began: Instant,
    /// How long the measurements took, once they are over.
    took: Option<Duration>,
}

impl Session {
    /// Opens the database, creates the tables of the bank if it is the workload, and executes every statement once. Needs
    /// Tokio.
    ///
    /// # Errors
    ///
    /// The database cannot be reached, or a statement fails or writes without `allow_writes`.
    ///
    /// # Cancel safety
    ///
    /// Dropped, tables of the bank may stay behind.
    pub async fn start(options: Options) -> Result<Self, Error> {
        let source = Source::new(&options.database)?;
        let wal = WalFile::before_opening(&source.config().parse_dsn()?);
        let observer = Builder::from_config(configuration(&source, &options, 1))
            .open()
            .await?;
        let dialect = Dialect::of(&observer);
        let is_theirs = matches!(options.database, Database::Theirs { .. });
        let workload = match &options.workload {
            Some(workload) => workload.clone(),
            None => Workload::parse("the bank", BANK)?,
        };
        if dialect.read_only().is_none() && is_read_only(&options) {
            let text = "this database has no read-only sessions that cenote knows: add --allow-writes if it may be changed";
            return Err(Error::Database(text.to_owned()));
        }
        observer.ping().await?;
        let left = dialect.connections_left(&observer).await?;
        let wanted = options.most.unwrap_or(match dialect {
            Dialect::Sqlite => MOST_OF_SQLITE,
            _ => MOST,
        });
        let mut notes = Vec::new();
        let mut most = wanted;
        if let Some(left) = left
            && left.saturating_sub(SPARE) < wanted
        {
            most = left.saturating_sub(SPARE).max(1);
            if options.most.is_some() {
                notes.push(format!(
                    "the server has {left} connections left, so at most {most} were measured"
                ));
            }
        }
        let mut session = Session {
            ramp: Ramp::new(most, options.seed),
            clients: options.clients.unwrap_or((2 * most).clamp(16, 512)),
            options,
            source,
            observer,
            measured: None,
            workload: Arc::new(workload),
            has_tables: false,
            dialect,
            samples: Vec::new(),
            notes,
            wal,
            began: Instant::now(),
            took: None,
        };
        let prepared = session.prepare(is_theirs).await;
        if let Err(error) = prepared {
            // The first error is the one to show.
            let _ = session.clean_up().await;
            return Err(error);
        }
        session.began = Instant::now();
        Ok(session)
    }

    async fn prepare(&mut self, is_theirs: bool) -> Result<(), Error> {
        if self.options.workload.is_none() {
            let force = self.options.force || !is_theirs;
            self.create_tables(force).await?;
        }
        // Its schema disappears with its connection.
        let db = self.open(1).await?;
        self.measured = Some(db.clone());
        let mut random = Rng::with_seed(self.options.seed);
        for operation in &self.workload.operations {
            self.try_out(&db, operation, &mut random).await?;
        }
        let _ = db.close().await;
        self.measured = None;
        Ok(())
    }

    async fn create_tables(&mut self, force: bool) -> Result<(), Error> {
        // From the first statement on something may be there to drop.
        match tables::create(&self.observer, ACCOUNTS, force).await {
            Ok(()) => {
                self.has_tables = true;
                Ok(())
            }
            Err(error) if is_read_only_error(&error) => Err(Error::Database(
                "the database is read-only, so the bank cannot create its tables: measure with --workload FILE of \
                 statements that read"
                    .to_owned(),
            )),
            Err(error) => Err(error.into()),
        }
    }

    /// Executes an operation once, and rolls it back where it can be.
    async fn try_out(&self, db: &Db, operation: &Operation, random: &mut Rng) -> Result<(), Error> {
        for statement in &operation.statements {
            let one = Operation {
                statements: vec![statement.clone()],
                is_transaction: false,
                ..operation.clone()
            };
            let drawn = self.workload.draw_values(random);
            let tried: Result<(), Tried> = db
                .try_transaction(async || {
                    execute(db, &self.workload, &one, &drawn)
                        .await
                        .map_err(Tried::Failed)?;
                    Err(Tried::Worked)
                })
                .await;
            let error = match tried {
                Ok(()) | Err(Tried::Worked) => continue,
                Err(Tried::Failed(error)) => error,
            };
            if is_connection_error(&error) {
                return Err(error.into());
            }
            let text = match (is_read_only_error(&error), is_read_only(&self.options)) {
                (true, true) => "the statement writes; add --allow-writes if the database may be changed".to_owned(),
                (true, false) => "the statement writes, and the database is read-only; measure statements that read".to_owned(),
                (false, _) => format!("the statement fails: {}", explained(&error)),
            };
            return Err(self.workload.error_at(statement.line, text).into());
        }
        Ok(())
    }

    /// Opens a pool of this size.
    async fn open(&self, size: usize) -> Result<Db, Error> {
        let config = configuration(&self.source, &self.options, size);
        let mut builder = Builder::from_config(config);
        if let Some(sql) = self
            .dialect
            .read_only()
            .filter(|_| is_read_only(&self.options))
        {
            builder = builder.on_connect(async move |connection: &mut PooledConnection| {
                connection.exec(sql).await
            });
        }
        Ok(builder.open().await?)
    }

    /// The name of the database, without a password.
    pub fn database(&self) -> &str {
        self.source.shown()
    }

    /// The name of the workload: that of its file, or "the bank".
    pub fn workload(&self) -> &str {
        &self.workload.name
    }

    /// The largest size that is measured.
    pub fn most(&self) -> usize {
        self.ramp.most()
    }

    /// How long it has measured, and how long it may.
    pub fn progress(&self) -> (Duration, Duration) {
        (
            self.took.unwrap_or_else(|| self.began.elapsed()),
            self.options.length,
        )
    }

    /// The measurements so far, in their order.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// The figures so far, by size.
    pub fn rows(&self) -> Vec<Row> {
        rows(&self.samples)
    }

    /// The fewest connections that reach the plateau, as far as it is known.
    pub fn knee(&self) -> Option<usize> {
        self.ramp.estimate().map(|found| found.size)
    }

    /// Measures one size. Returns the size, or `None` if the time is over or nothing more can be learnt.
    ///
    /// # Errors
    ///
    /// The database accepts no connection any more, or no operation succeeds.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the measurement is lost and its clients stop; [`clean_up`](Session::clean_up) closes its pool.
    pub async fn step(&mut self) -> Result<Option<usize>, Error> {
        let step = (self.options.length / STEPS).clamp(SHORTEST_STEP, LONGEST_STEP);
        if self.began.elapsed() + step / 2 > self.options.length && !self.samples.is_empty() {
            return Ok(self.over());
        }
        let Some(size) = self.ramp.next_size() else {
            return Ok(self.over());
        };
        let db = self.open(size).await?;
        self.measured = Some(db.clone());
        let plan = Plan {
            size,
            clients: self.clients.max(size),
            warm_up: step / WARM_UP,
            window: step - step / WARM_UP,
            seed: self
                .options
                .seed
                .wrapping_add(1_000 * self.samples.len() as u64),
        };
        let measured = measure(&db, &self.observer, &self.workload, plan).await;
        self.measured = None;
        match measured {
            Measured::Refused(0, why) => {
                return Err(Error::Database(format!(
                    "the database accepts no connection: {why}"
                )));
            }
            Measured::Refused(open, why) => {
                let note = format!(
                    "the server refused a pool of {size}, so at most {open} were measured: {why}"
                );
                self.notes.push(note);
                self.ramp.limit(open);
                self.samples.retain(|sample| sample.size <= open);
            }
            Measured::Sample(sample) => {
                if sample.done == 0 && sample.failed > 0 {
                    let why = sample.error.unwrap_or_default();
                    return Err(Error::Database(format!(
                        "no operation of {} succeeds: {why}",
                        self.workload.name
                    )));
                }
                self.ramp.add(size, sample.throughput);
                self.samples.push(*sample);
            }
        }
        Ok(Some(size))
    }

    fn over(&mut self) -> Option<usize> {
        self.took.get_or_insert_with(|| self.began.elapsed());
        None
    }

    /// Returns the result of what was measured so far. `interrupted` goes into it.
    pub fn report(&mut self, interrupted: bool) -> Report {
        self.over();
        let is_local = match self.observer.server() {
            None => self.dialect == Dialect::Sqlite,
            Some((host, _)) => {
                host.starts_with('/') || ["localhost", "127.0.0.1", "::1"].contains(&host)
            }
        };
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Report::new(
            Facts {
                database: self.source.shown().to_owned(),
                driver: self.observer.driver_name(),
                workload: self.workload.name.clone(),
                read_only: is_read_only(&self.options),
                clients: self.clients,
                seconds: self.progress().0.as_secs_f64(),
                interrupted,
                instances: self.options.instances.max(1),
                replicas: self.options.replicas.max(1),
                setting: Setting {
                    #[allow(clippy::cast_precision_loss, reason = "a small number")]
                    processors: processors as f64,
                    is_local,
                    is_embedded: self.dialect == Dialect::Sqlite,
                },
                notes: self.notes.clone(),
            },
            &self.samples,
        )
    }

    /// Closes what is open and drops the tables of the bank.
    ///
    /// # Errors
    ///
    /// The tables cannot be dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropped, tables may stay behind; it can be called again.
    pub async fn clean_up(&mut self) -> Result<(), Error> {
        if let Some(measured) = self.measured.take() {
            // What does not end in time is closed with its connection.
            let _ = measured.close_and_drain(Duration::from_secs(5)).await;
        }
        if self.has_tables {
            tables::drop_all(&self.observer).await.map_err(|error| {
                Error::Database(format!(
                    "the tables of the bank could not be dropped: {error}"
                ))
            })?;
            self.has_tables = false;
        }
        // Everything is done by now.
        let _ = self.observer.close_and_drain(Duration::from_secs(1)).await;
        self.wal.gone().await;
        Ok(())
    }
}

/// The settings of a pool of this size.
fn configuration(source: &Source, options: &Options, size: usize) -> DbConfig {
    let mut config = source.config().clone();
    config.max = size;
    config.min = 0;
    config.unpooled = false;
    config.persistent = false;
    // Clients wait for as long as it takes: waits are what is measured.
    config.acquire_timeout = None;
    config.slow_acquire_warning = None;
    config.leak_warning = None;
    config.slow_statements = None;
    let is_theirs = matches!(options.database, Database::Theirs { .. });
    if is_theirs
        && let Ok(dsn) = config.parse_dsn()
        && let Some(mode) = cenote_bank::sqlite_mode(&dsn, is_read_only(options))
    {
        config.options.set("mode", mode);
    }
    config
}

/// The end of a trial.
enum Tried {
    /// Rolls the trial back.
    Worked,
    Failed(cenote::Error),
}

impl From<cenote::Error> for Tried {
    fn from(error: cenote::Error) -> Self {
        Tried::Failed(error)
    }
}

fn is_read_only(options: &Options) -> bool {
    options.workload.is_some() && !options.allow_writes
}

/// Whether a statement failed because session or database only read: the SQLSTATE of PostgreSQL and MySQL, MySQL's
/// `--read-only`, SQLite's result.
fn is_read_only_error(error: &cenote::Error) -> bool {
    let is_read_only = |text: &str| text.contains("readonly") || text.contains("read-only");
    error.sql_state() == Some("25006")
        || [Some(1792), Some(1290)].contains(&error.code())
        || is_read_only(&explained(error))
}

fn is_connection_error(error: &cenote::Error) -> bool {
    use cenote::Kind;
    matches!(
        error.kind(),
        Kind::Connect | Kind::ConnectionLost | Kind::Unavailable | Kind::Timeout | Kind::Config
    )
}
