//! The template, which opens connections.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use postgres_types::{Oid, Type};

use super::config::Config;
use super::connection::PostgresConnection;
use super::known_type::KnownType;
use super::listening::PostgresListening;
use super::net::hosts;
use crate::Result;
use crate::driver::{
    BoxFuture, ConnectSettings, Connection, Credentials, Dialect, Listening, Template,
};

/// What all connections of a handle share.
#[derive(Debug)]
pub(super) struct PostgresTemplate {
    config: Config,
    types: Arc<Types>,
}

impl PostgresTemplate {
    pub(super) fn new(config: Config) -> Self {
        let types = Types {
            keep_text: config.text_values,
            ..Types::default()
        };
        PostgresTemplate {
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
            let (started, peer) = hosts::connect(&self.config, &credentials).await?;
            let types = Arc::clone(&self.types);
            let mut connection = PostgresConnection::new(started, peer, types, settings);
            connection.check_reading()?;
            Ok(Box::new(connection) as Box<dyn Connection>)
        })
    }

    fn connect_listening(
        &self,
        credentials: Credentials,
    ) -> BoxFuture<'_, Result<Box<dyn Listening>>> {
        Box::pin(async move {
            let (started, _) = hosts::connect(&self.config, &credentials).await?;
            let listening = PostgresListening::new(started).await?;
            Ok(Box::new(listening) as Box<dyn Listening>)
        })
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
