//! The template, which opens connections.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use postgres_types::{Oid, Type};

use super::config::Config;
use super::connection::PostgresConnection;
use super::engine::Engine;
use super::known_type::KnownType;
use super::listening::PostgresListening;
use super::net::hosts::{self, Connected, Session};
use super::net::role::Probe;
use crate::Result;
use crate::driver::{
    BoxFuture, ConnectSettings, Connection, Credentials, Dialect, HostProbe, Hosts, Listening,
    Template,
};

/// What all connections of a handle share.
#[derive(Debug)]
pub(super) struct PostgresTemplate {
    config: Config,
    /// `None` where there is no choice: one host of any role.
    hosts: Option<Arc<Hosts>>,
    types: Arc<Types>,
}

impl PostgresTemplate {
    pub(super) fn new(config: Config) -> Self {
        let types = Types {
            keep_text: config.text_values,
            ..Types::default()
        };
        PostgresTemplate {
            hosts: config.choice(),
            config,
            types: Arc::new(types),
        }
    }
}

/// PostgreSQL's SQL dialect. One instance, because scans are cached by its address.
pub(super) static DIALECT: Dialect = Dialect::POSTGRES;

impl Template for PostgresTemplate {
    fn dialect(&self) -> &'static Dialect {
        &DIALECT
    }

    fn address(&self) -> String {
        self.config.address()
    }

    fn server(&self) -> Option<(String, Option<u16>)> {
        self.config.only_server()
    }

    fn connect<'t>(
        &'t self,
        credentials: Credentials,
        settings: &'t ConnectSettings,
    ) -> BoxFuture<'t, Result<Box<dyn Connection>>> {
        Box::pin(async move {
            let choice = self.hosts.as_ref();
            let Connected {
                session: Session { started, peer },
                place,
            } = hosts::connect(&self.config, choice, &credentials, false).await?;
            let types = Arc::clone(&self.types);
            let engine = self.config.engine.unwrap_or_else(|| Engine::of(&started));
            let mut connection =
                PostgresConnection::new(started, peer, types, settings, engine, place);
            connection.check_reading()?;
            Ok(Box::new(connection) as Box<dyn Connection>)
        })
    }

    fn connect_listening(
        &self,
        credentials: Credentials,
    ) -> BoxFuture<'_, Result<Box<dyn Listening>>> {
        Box::pin(async move {
            let choice = self.hosts.as_ref();
            let connected = hosts::connect(&self.config, choice, &credentials, true).await?;
            let listening = PostgresListening::new(connected).await?;
            Ok(Box::new(listening) as Box<dyn Listening>)
        })
    }

    fn hosts(&self) -> Option<&Arc<Hosts>> {
        self.hosts.as_ref()
    }

    fn open_probe(
        &self,
        host: usize,
        credentials: Credentials,
    ) -> BoxFuture<'_, Result<Box<dyn HostProbe>>> {
        Box::pin(async move {
            let probe = Probe::open(&self.config, host, &credentials).await?;
            Ok(Box::new(probe) as Box<dyn HostProbe>)
        })
    }

    fn has_positions(&self) -> bool {
        true
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The types that are not built in and were looked up so far, for all connections of a handle.
#[derive(Debug, Default)]
pub(super) struct Types {
    /// The option `text_values`.
    pub(super) keep_text: bool,
    known: Mutex<HashMap<Oid, Arc<KnownType>>>,
}

impl Types {
    pub(super) fn get(&self, oid: Oid) -> Option<Arc<KnownType>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&oid).cloned()
    }

    pub(super) fn insert(&self, oid: Oid, found: Arc<KnownType>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(oid, found);
    }

    /// Forgets all types if one of these is not built in: it may have changed, and others may contain it.
    pub(super) fn forget(&self, types: &[Type]) {
        if types.iter().any(|it| Type::from_oid(it.oid()).is_none()) {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.clear();
        }
    }
}
