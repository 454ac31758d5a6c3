//! One run: tables, clients, faults, checks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cenote::Db;
use tokio::time::sleep_until;

use crate::cluster::Cluster;
use crate::database::{Database, Source};
use crate::faults::{Fault, Injector, SessionMarks, Testbed, Tracking};
use crate::summary::Summary;
use crate::tables;
use crate::workload::{Monitor, Workload};

/// How long closing the connections may take.
const CLOSING: Duration = Duration::from_secs(5);

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The database.
    pub database: Database,
    /// The number of clients.
    pub tasks: usize,
    /// The number of connections that the clients share.
    pub max: usize,
    /// How long the clients work.
    pub length: Duration,
    /// The number of accounts.
    pub accounts: usize,
    /// Determines what each client plans, and the order of the faults.
    pub seed: u64,
    /// Faults to inject; `None` for a run without.
    pub chaos: Option<Chaos>,
    /// Keeps the tables; a run that fails its checks always keeps them.
    pub keep: bool,
    /// Drops tables of the same names that this crate did not create.
    pub force: bool,
}

impl Default for Options {
    /// 300 clients on 5 connections and 100 accounts for 5 seconds, on a temporary SQLite file.
    fn default() -> Self {
        Options {
            database: Database::Temporary,
            tasks: 300,
            max: 5,
            length: Duration::from_secs(5),
            accounts: 100,
            // Short enough to type.
            seed: u64::from(fastrand::u32(..)),
            chaos: None,
            keep: false,
            force: false,
        }
    }
}

/// Which faults to inject.
#[derive(Clone, Debug, Default)]
pub struct Chaos {
    /// A shell command that becomes the server; `None` leaves the server's process alone.
    pub server: Option<String>,
    /// Starts a PostgreSQL primary with two standbys, in place of [`Options::database`], and has it fail over.
    pub cluster: bool,
    /// Short reads of several clients share a connection.
    pub share_connections: bool,
    /// The only faults to inject; empty for all.
    pub only: Vec<Fault>,
}

/// Why a run could not start or finish.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The options contradict each other.
    Usage(String),
    /// The database cannot be reached, or refuses.
    Database(String),
    /// Anything else, such as no room for a temporary file.
    Other(String),
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Error::Usage(text) | Error::Database(text) | Error::Other(text)) = self;
        out.write_str(text)
    }
}

impl std::error::Error for Error {}

impl From<cenote::Error> for Error {
    fn from(error: cenote::Error) -> Self {
        Error::Database(error.to_string())
    }
}

/// A run under way. Dropped, the clients stop, and the server that it started ends.
#[derive(Debug)]
pub struct Run {
    options: Options,
    source: Source,
    db: Db,
    /// Creates the tables and reads them from outside of the clients' pool.
    observer: Db,
    workload: Workload,
    injector: Option<Injector>,
}

impl Run {
    /// Opens the database, creates the tables and starts the clients. Needs Tokio.
    ///
    /// # Errors
    ///
    /// The options contradict each other, or the database cannot be used.
    ///
    /// # Cancel safety
    ///
    /// Dropped, tables may stay behind.
    pub async fn start(options: Options) -> Result<Self, Error> {
        let cluster = match &options.chaos {
            // Each client may have two while the pool is twice as large, and old ones end meanwhile.
            Some(Chaos { cluster: true, .. }) => Some(Cluster::start(4 * options.max + 40).await?),
            _ => None,
        };
        let source = match &cluster {
            Some(cluster) => Source::of_cluster(cluster),
            None => Source::new(&options.database)?,
        };
        let (db, observer, testbed) = match &options.chaos {
            None => {
                let observer = source.open(1).await?;
                let db = source.open(options.max).await?;
                tables::create(&observer, options.accounts, options.force).await?;
                (db, observer, None)
            }
            Some(chaos) => {
                let mut testbed = Testbed::start(&source, cluster, chaos, options.seed).await?;
                let observer = testbed.open_observer(&source).await?;
                let db = testbed.open(&source, options.max).await?;
                tables::create(&observer, options.accounts, options.force).await?;
                tables::create_ledger(&observer).await?;
                (db, observer, Some(testbed))
            }
        };
        let tracking = testbed.as_ref().map(|testbed| Tracking {
            ledger: Arc::default(),
            sessions: SessionMarks::new(testbed.dialect),
        });
        let workload = Workload::start(db.clone(), observer.clone(), &options, tracking);
        let inject = |testbed| Injector::new(testbed, workload.monitor(), options.seed);
        Ok(Run {
            injector: testbed.map(inject),
            options,
            source,
            db,
            observer,
            workload,
        })
    }

    /// Runs to the end, and removes the tables unless a check failed.
    ///
    /// # Errors
    ///
    /// Like those of [`start`](Run::start), [`check`](Run::check) and
    /// [`clean_up`](Checked::clean_up). Failed checks are in the summary.
    ///
    /// # Cancel safety
    ///
    /// Dropped, tables may stay behind.
    pub async fn to_end(options: Options) -> Result<Summary, Error> {
        let mut run = Run::start(options).await?;
        run.work().await;
        let mut checked = run.check(false).await?;
        checked.clean_up().await?;
        Ok(checked.summary)
    }

    /// The name of the database, without a password.
    pub fn database(&self) -> &str {
        self.source.shown()
    }

    /// The handle that the clients share.
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// The figures of the run, also while other methods have it.
    pub fn monitor(&self) -> Arc<Monitor> {
        self.workload.monitor()
    }

    /// Works until the time is over, or until an injected fault has broken something.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the clients go on, and a later call continues with the faults.
    pub async fn work(&mut self) {
        let over = self.workload.monitor().started() + self.options.length;
        let faults = async {
            match &mut self.injector {
                Some(injector) => injector.work().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = faults => {}
            () = sleep_until(over) => {}
        }
    }

    /// Heals the last fault, lets the clients finish and checks everything.
    /// `interrupted` goes into the summary.
    ///
    /// # Errors
    ///
    /// The accounts cannot be read.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing is checked, and the tables stay behind.
    pub async fn check(self, interrupted: bool) -> Result<Checked, Error> {
        let injection = match self.injector {
            None => None,
            Some(injector) => Some(injector.end().await),
        };
        let stopped =
            self.workload.stop().await.map_err(|error| {
                Error::Database(format!("the accounts cannot be checked: {error}"))
            })?;
        let (chaos, mut testbed) = match injection {
            None => (None, None),
            Some(injection) => {
                let (report, testbed) = injection.report().await;
                (Some(report), Some(testbed))
            }
        };
        let mut source = self.source;
        let mut summary = Summary::new(&self.options, stopped, chaos);
        summary.database = source.shown().to_owned();
        summary.driver = self.db.driver_name();
        summary.interrupted = interrupted;
        // The tables show where the money went.
        if self.options.keep || !summary.ok {
            let cluster = testbed.as_mut().and_then(Testbed::keep_cluster);
            summary.kept = Some(cluster.unwrap_or_else(|| source.keep()));
        }
        Ok(Checked {
            summary,
            db: self.db,
            observer: self.observer,
            _testbed: testbed,
            _source: source,
        })
    }
}

/// A run that has ended and was checked. Dropped, it removes its temporary file and ends its server.
#[derive(Debug)]
pub struct Checked {
    /// The result.
    pub summary: Summary,
    db: Db,
    observer: Db,
    _testbed: Option<Testbed>,
    _source: Source,
}

impl Checked {
    /// Closes the connections, and drops the tables unless they are to stay.
    ///
    /// # Errors
    ///
    /// The database refuses, or the connections do not close.
    ///
    /// # Cancel safety
    ///
    /// Dropped, tables may stay behind; it can be called again.
    pub async fn clean_up(&mut self) -> Result<(), Error> {
        let failed = |what, error| Error::Database(format!("{what}: {error}"));
        let closed = self.db.close_and_drain(CLOSING).await;
        let tables = match self.summary.kept {
            Some(_) => tables::keep(&self.observer).await,
            None => tables::drop_all(&self.observer).await,
        };
        tables.map_err(|error| failed("the tables could not be put away", error))?;
        closed.map_err(|error| failed("the connections could not be closed", error))?;
        let closed = self.observer.close_and_drain(CLOSING).await;
        closed.map_err(|error| failed("the auditor's connection could not be closed", error))
    }
}
