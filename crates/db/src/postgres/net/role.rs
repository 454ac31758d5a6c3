//! What a server is: primary or standby, and which timeline it writes.

use super::super::config::Config;
use super::super::startup::Started;
use super::hosts;
use crate::Result;
use crate::driver::{BoxFuture, Credentials, History, HostProbe, HostRole};

/// Returns the server's role, without its history. PostgreSQL 14 and later report it at startup; older servers and poolers
/// need queries.
pub(crate) async fn ask(started: &mut Started) -> Result<HostRole> {
    let standby = match started.parameter("in_hot_standby") {
        Some(told) => told == "on",
        None => {
            let told = started.ask("SELECT pg_catalog.pg_is_in_recovery()").await?;
            told.as_deref() == Some("t")
        }
    };
    let read_only = match started.parameter("default_transaction_read_only") {
        Some(told) => told == "on",
        None => started.ask("SHOW transaction_read_only").await?.as_deref() == Some("on"),
    };
    Ok(HostRole::new(standby, read_only))
}

/// The cluster and the timeline that a primary writes. The control file has the timeline, too, but only from the first
/// checkpoint after a promotion on.
const HISTORY: &str = "SELECT system_identifier::pg_catalog.text || ' ' || \
                       pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8) \
                       FROM pg_catalog.pg_control_system()";

/// Returns the history that a primary writes; `None` if the server does not say, as others that speak the protocol.
pub(crate) async fn history(started: &mut Started, role: HostRole) -> Result<Option<History>> {
    if role.standby {
        return Ok(None);
    }
    let told = started.try_ask(HISTORY).await?;
    Ok(told.as_deref().and_then(read_history))
}

fn read_history(told: &str) -> Option<History> {
    let (cluster, timeline) = told.split_once(' ')?;
    Some(History {
        cluster: cluster.parse().ok()?,
        timeline: u32::from_str_radix(timeline, 16).ok()?,
    })
}

/// A session that only asks what its server is.
pub(crate) struct Probe {
    started: Started,
}

impl Probe {
    /// Logs in to one of the servers.
    ///
    /// # Cancel safety
    ///
    /// If dropped, nothing stays open.
    pub(crate) async fn open(
        config: &Config,
        server: usize,
        credentials: &Credentials,
    ) -> Result<Self> {
        let started = hosts::log_in_to(config, server, credentials).await?;
        Ok(Probe { started })
    }
}

impl HostProbe for Probe {
    fn ask(&mut self) -> BoxFuture<'_, Result<HostRole>> {
        Box::pin(async move {
            // What the server reported is from the startup, unless it has reported a change since.
            let standby = self
                .started
                .ask("SELECT pg_catalog.pg_is_in_recovery()")
                .await?;
            let read_only = self
                .started
                .ask("SHOW default_transaction_read_only")
                .await?;
            let is = |told: Option<String>, yes: &str| told.as_deref() == Some(yes);
            let mut role = HostRole::new(is(standby, "t"), is(read_only, "on"));
            role.history = history(&mut self.started, role).await?;
            Ok(role)
        })
    }
}
