//! The PostgreSQL driver.
//!
//! ```text
//! Postgres ──template──> PostgresTemplate ──connect──> PostgresConnection ── Wire ── Socket
//! ```
//!
//! | file | what is in it |
//! |---|---|
//! | `config`, `env`, `service`, `passfile` | the options: from the DSN, libpq's environment variables, service file and password file |
//! | `net` | sockets, TLS, and the choice of a server |
//! | `protocol` | messages and SCRAM, without I/O |
//! | `wire`, `early_read` | sends and receives messages; when to read right after a send |
//! | `connect`, `startup`, `authenticate`, `require_auth` | the template; the startup of a connection; the login, and which methods are allowed |
//! | `connection` | implements the driver contract |
//! | `execute`, `script`, `statement`, `kept` | running statements; scripts; prepared statements; which of them are cached |
//! | `stale` | when a cached statement is prepared again |
//! | `transaction`, `stream`, `reset` | transactions, row streams, resets of the session |
//! | `copy` | COPY from and to the client |
//! | `dropped_call`, `cancel` | settles a dropped call; cancel requests |
//! | `listening` | a connection that receives notifications |
//! | `session` | the session state that the server reports |
//! | `param` | parameters |
//! | `types`, `text`, `array`, `calendar` | values of rows |
//! | `from_sql`, `binary` | values of rows for types of the user |
//! | `lookup`, `known_type` | looks up types that are not built in |
//! | `positions` | the position at the end of a call; reads on a replica that has reached one |
//! | `suspicion` | why a connection was lost, and whether its host may have lost its role |
//! | `error`, `engine` | errors of the server and of the socket; which server it is, and commits whose outcome is unknown |

mod array;
mod authenticate;
mod batch;
mod binary;
mod calendar;
mod cancel;
mod config;
mod connect;
mod connection;
pub(crate) mod copy;
mod dropped_call;
mod early_read;
mod engine;
mod env;
mod error;
mod execute;
mod from_sql;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod kept;
mod known_type;
mod listening;
mod lookup;
mod net;
mod param;
mod passfile;
mod pipeline;
mod positions;
mod protocol;
mod require_auth;
mod reset;
mod rows;
mod script;
mod service;
mod session;
mod shared;
mod stale;
mod startup;
mod statement;
mod stream;
mod suspicion;
#[cfg(feature = "migrate")]
mod test_database;
mod text;
mod transaction;
mod types;
mod wire;

use std::sync::Arc;

pub use self::connection::PostgresConnection;
pub use self::from_sql::column_type;
pub use self::param::param;
#[cfg(feature = "migrate")]
pub use self::test_database::TestDatabase;
pub use crate::api::copy::{CopyIn, CopyOut};
pub use bytes::Bytes;
pub use postgres_types::{self, FromSql, ToSql};

use self::config::Config;
use self::connect::PostgresTemplate;
use crate::Result;
use crate::driver::{Driver, Dsn, Options, Template};

/// The driver of PostgreSQL 12 and later: Cenote's own client, which runs in the calling task.
#[doc = include_str!("options.md")]
#[doc = include_str!("behaviour.md")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Postgres {
    _private: (),
}

impl Postgres {
    /// Returns the driver.
    pub fn new() -> Self {
        Postgres::default()
    }
}

impl Driver for Postgres {
    fn name(&self) -> &'static str {
        "pgsql"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["postgres", "postgresql"]
    }

    fn template(&self, dsn: &Dsn, options: &Options) -> Result<Arc<dyn Template>> {
        let config = Config::read(dsn, options)?;
        Ok(Arc::new(PostgresTemplate::new(config)))
    }
}
