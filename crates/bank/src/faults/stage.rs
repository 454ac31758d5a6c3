//! What the actor plays with: the server's process and the network, as far as they are in its hands.

use std::time::Duration;

use cenote::driver::Dsn;
use cenote::{Builder, Db, DbConfig};
use cenote_testkit::proxy::Proxy;
use tokio::time::{Instant, interval};

use super::dialect::{Dialect, SESSIONS};
use super::fault::{FAULTS, Fault, Needs};
use super::network;
use super::server::Server;
use crate::args::Options;
use crate::failure::Failure;
use crate::source::Source;

/// How long a server may take to be there.
const STARTING: Duration = Duration::from_secs(30);
/// How many prepared statements each connection keeps: fewer than there are texts.
pub(crate) const STATEMENTS: usize = 16;

/// The stage.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) dialect: Dialect,
    pub(crate) proxy: Option<Proxy>,
    pub(crate) server: Option<Server>,
    /// Which faults cannot be made, and why.
    pub(crate) left_out: Vec<String>,
    /// No others, unless it is empty.
    only: Vec<Fault>,
    dsn: Dsn,
}

impl Stage {
    /// Starts the server, if a command for that is given, and puts the proxy in front of it.
    pub(crate) async fn set(source: &Source, options: &Options) -> Result<Self, Failure> {
        let command = options.server.as_deref();
        let config = source.config();
        let dsn = config.parse_dsn()?;
        let dialect = Dialect::of(dsn.driver()).ok_or_else(|| {
            let driver = dsn.driver();
            Failure::usage(format!("chaos does not know its way around {driver}"))
        })?;
        if command.is_some() && !dialect.has_server() {
            return Err(Failure::usage("--server is given, and SQLite has none"));
        }
        let mut left_out = Vec::new();
        let server = command.map(|command| {
            Server::start(command, dialect)
                .map_err(|error| Failure::other(format!("the server cannot be started: {error}")))
        });
        let proxy = network::in_between(config, &dsn, dialect, options.seed).await;
        if dialect.has_server() {
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
        let stage = Stage {
            dialect,
            proxy: proxy.ok(),
            server: server.transpose()?,
            left_out,
            only: options.only.clone(),
            dsn,
        };
        if stage.faults().is_empty() {
            let why = stage.left_out.join("; ");
            return Err(Failure::usage(format!(
                "--only leaves nothing to do: {why}"
            )));
        }
        Ok(stage)
    }

    /// The handle that the clients share. Its limits are short, so that much happens in a short
    /// time.
    pub(crate) async fn open(&self, source: &Source, max: usize) -> cenote::Result<Db> {
        let mut config = source.config().clone();
        config.max = max;
        config.acquire_timeout = Some(Duration::from_secs(10));
        config.connect_timeout = Duration::from_secs(1);
        config.cleanup_timeout = Duration::from_millis(500);
        config.healthcheck_interval = Some(Duration::from_millis(500));
        config.idle_timeout = Some(Duration::from_secs(2));
        config.max_lifetime = Some(Duration::from_secs(3));
        config.lifetime_jitter = 0.3;
        config.statement_cache = STATEMENTS;
        if self.dialect.has_server() {
            config.statement_timeout = Some(Duration::from_secs(1));
        }
        self.name(&mut config, SESSIONS);
        if let Some(proxy) = &self.proxy {
            network::reroute(&mut config, &self.dsn, self.dialect, proxy);
        }
        Builder::from_config(config).open().await
    }

    /// The handle that looks at everything from outside, on a way of its own to the server; it is
    /// there when the server is.
    pub(crate) async fn open_office(&mut self, source: &Source) -> Result<Db, Failure> {
        let mut config = source.config().clone();
        config.max = 1;
        config.connect_timeout = Duration::from_secs(2);
        self.name(&mut config, "cenote-office");
        let office = Builder::from_config(config).open().await?;
        self.is_there(&office).await?;
        Ok(office)
    }

    fn name(&self, config: &mut DbConfig, name: &str) {
        if self.dialect == Dialect::Postgres {
            config.options.set("application_name", name);
        }
    }

    /// Waits until the server answers.
    pub(crate) async fn is_there(&mut self, office: &Db) -> Result<(), Failure> {
        let begun = Instant::now();
        let mut looks = interval(Duration::from_millis(20));
        loop {
            looks.tick().await;
            let Err(error) = office.ping().await else {
                return Ok(());
            };
            let Some(server) = &mut self.server else {
                return Err(error.into());
            };
            if !server.is_running() {
                let why = "the command of --server has ended; run it by hand to see why";
                return Err(Failure::database(why));
            }
            if begun.elapsed() > STARTING {
                return Err(Failure::database(format!(
                    "the server does not answer: {error}"
                )));
            }
        }
    }

    /// All faults that can be made here.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        let can = |fault: &Fault| match fault.needs() {
            Needs::Nothing => true,
            Needs::Sessions => self.dialect.has_server(),
            Needs::Network => self.proxy.is_some(),
            Needs::Process => self.server.is_some(),
        };
        let wanted = |fault: &Fault| self.only.is_empty() || self.only.contains(fault);
        FAULTS
            .into_iter()
            .filter(|fault| can(fault) && wanted(fault))
            .collect()
    }
}
