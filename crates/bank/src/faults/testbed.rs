//! What the injector can break: the server's process and the network.

use std::time::Duration;

use cenote::driver::Dsn;
use cenote::{Builder, Db, DbConfig};
use cenote_testkit::proxy::Proxy;
use tokio::time::{Instant, interval};

use super::dialect::{Dialect, SESSIONS};
use super::fault::{FAULTS, Fault, Needs};
use super::network;
use super::server::Server;
use crate::cluster::Cluster;
use crate::database::Source;
use crate::run::{Chaos, Error};

/// How long a server may take to start.
const STARTING: Duration = Duration::from_secs(30);
/// How many prepared statements each connection keeps: fewer than there are texts.
pub(crate) const STATEMENTS: usize = 16;

/// Server and network of a run with faults.
#[derive(Debug)]
pub(crate) struct Testbed {
    pub(crate) dialect: Dialect,
    pub(crate) proxy: Option<Proxy>,
    pub(crate) server: Option<Server>,
    pub(crate) cluster: Option<Cluster>,
    /// Which faults cannot be injected, and why.
    pub(crate) left_out: Vec<String>,
    /// The only faults to inject; empty for all.
    only: Vec<Fault>,
    /// Short reads of several clients share a connection.
    shares: bool,
    dsn: Dsn,
}

impl Testbed {
    /// Starts the server, if there is a command, and a proxy in front of it.
    pub(crate) async fn start(
        source: &Source,
        cluster: Option<Cluster>,
        chaos: &Chaos,
        seed: u64,
    ) -> Result<Self, Error> {
        let command = chaos.server.as_deref();
        let config = source.config();
        let dsn = config.parse_dsn()?;
        let dialect = Dialect::of(dsn.driver()).ok_or_else(|| {
            let driver = dsn.driver();
            Error::Usage(format!("chaos does not know its way around {driver}"))
        })?;
        if command.is_some() && !dialect.has_server() {
            let why = "--server is given, and SQLite has none";
            return Err(Error::Usage(why.to_owned()));
        }
        let mut left_out = Vec::new();
        let server = command.map(|command| {
            Server::start(command, dialect)
                .map_err(|error| Error::Other(format!("the server cannot be started: {error}")))
        });
        let proxy = network::start_proxy(config, &dsn, dialect, seed).await;
        if cluster.is_some() {
            left_out
                .push("faults of the network and of a single server: it is a cluster".to_owned());
        } else if dialect.has_server() {
            if let Err(why) = &proxy {
                left_out.push(format!("faults of the network: {why}"));
            }
            if command.is_none() {
                let why = "no command was given to start it (--server)";
                left_out.push(format!("restarts, kills and freezes of the server: {why}"));
            }
        } else {
            left_out.push("faults of network and server: SQLite has neither".to_owned());
        }
        let testbed = Testbed {
            dialect,
            proxy: proxy.ok(),
            server: server.transpose()?,
            cluster,
            left_out,
            only: chaos.only.clone(),
            shares: chaos.share_connections,
            dsn,
        };
        if testbed.faults().is_empty() {
            let why = testbed.left_out.join("; ");
            return Err(Error::Usage(format!("--only leaves nothing to do: {why}")));
        }
        Ok(testbed)
    }

    /// Opens the handle that the clients share. Its timeouts are short, so that much happens.
    pub(crate) async fn open(&self, source: &Source, max: usize) -> cenote::Result<Db> {
        let mut config = source.config().clone();
        config.max = max;
        config.acquire_timeout = Some(Duration::from_secs(10));
        config.healthcheck_interval = Some(Duration::from_millis(500));
        config.idle_timeout = Some(Duration::from_secs(2));
        config.max_lifetime = Some(Duration::from_secs(3));
        config.lifetime_jitter = 0.3;
        config.statement_cache = STATEMENTS;
        config.share_connections = self.shares;
        // The handle has to leave a host that hangs before any of these is over.
        if self.cluster.is_none() {
            config.connect_timeout = Duration::from_secs(1);
            config.cleanup_timeout = Duration::from_millis(500);
            let has_server = self.dialect.has_server();
            config.statement_timeout = has_server.then_some(Duration::from_secs(1));
        }
        self.name(&mut config, SESSIONS);
        if let Some(proxy) = &self.proxy {
            network::reroute(&mut config, &self.dsn, self.dialect, proxy);
        }
        Builder::from_config(config).open().await
    }

    /// Waits for the server and opens the observer's handle, which bypasses the proxy.
    pub(crate) async fn open_observer(&mut self, source: &Source) -> Result<Db, Error> {
        let mut config = source.config().clone();
        config.max = 1;
        config.connect_timeout = Duration::from_secs(2);
        self.name(&mut config, "cenote-observer");
        let observer = Builder::from_config(config).open().await?;
        self.wait_until_ready(&observer).await?;
        Ok(observer)
    }

    fn name(&self, config: &mut DbConfig, name: &str) {
        if self.dialect == Dialect::Postgres {
            config.options.set("application_name", name);
        }
    }

    /// Waits until the server answers.
    pub(crate) async fn wait_until_ready(&mut self, observer: &Db) -> Result<(), Error> {
        let begun = Instant::now();
        let mut looks = interval(Duration::from_millis(20));
        loop {
            looks.tick().await;
            let Err(error) = observer.ping().await else {
                return Ok(());
            };
            let Some(server) = &mut self.server else {
                return Err(error.into());
            };
            if !server.is_running() {
                let why = "the command of --server has ended; run it by hand to see why";
                return Err(Error::Database(why.to_owned()));
            }
            if begun.elapsed() > STARTING {
                let why = format!("the server does not answer: {error}");
                return Err(Error::Database(why));
            }
        }
    }

    /// Keeps the directory of the cluster, if there is one, and returns it.
    pub(crate) fn keep_cluster(&mut self) -> Option<String> {
        self.cluster.as_mut().map(Cluster::keep)
    }

    /// Returns the faults that can be injected here.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        let can = |fault: &Fault| match fault.needs() {
            Needs::Nothing => true,
            Needs::Sessions => self.dialect.has_server(),
            Needs::Network => self.proxy.is_some(),
            Needs::Process => self.server.is_some(),
            Needs::Cluster => self.cluster.is_some(),
        };
        let wanted = |fault: &Fault| self.only.is_empty() || self.only.contains(fault);
        FAULTS
            .into_iter()
            .filter(|fault| can(fault) && wanted(fault))
            .collect()
    }
}
