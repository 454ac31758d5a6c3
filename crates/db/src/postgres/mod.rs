//! The PostgreSQL driver.
//!
//! ```text
//! Postgres ──template──> PostgresTemplate ──connect──> PostgresConnection ── Wire ── Socket
//! ```
//!
//! | file | what is in it |
//! |---|---|
//! | `config`, `env`, `passfile` | the DSN, the options, and libpq's environment and password file |
//! | `net` | sockets: which server; the bytes to it, in the clear or by TLS; channel binding |
//! | `protocol` | messages, framing, answers and SCRAM, without I/O |
//! | `wire`, `looks` | messages to and from a socket; when an early answer is looked for |
//! | `connect`, `startup`, `require_auth` | the template; the login, and which kinds of it are allowed |
//! | `connection` | the contract of a connection, towards the layer |
//! | `execute`, `script`, `statement`, `kept` | running statements; scripts; a prepared statement; which are kept, and for how long |
//! | `stale` | when a kept statement is prepared again |
//! | `transaction`, `stream`, `reset` | as they say |
//! | `settle`, `cancel` | after a dropped call |
//! | `session` | what the server has told of the session |
//! | `param` | parameters, on their way to the server |
//! | `types`, `text`, `array`, `calendar` | values of rows |
//! | `from_sql`, `binary` | values of rows for types of the user |
//! | `lookup`, `known_type` | types that are not built in |
//! | `error` | what the server says, as errors of this crate |

mod array;
mod binary;
mod calendar;
mod cancel;
mod config;
mod connect;
mod connection;
mod dropped_call;
mod early_read;
mod env;
mod error;
mod execute;
mod from_sql;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod kept;
mod known_type;
mod lookup;
mod net;
mod param;
mod passfile;
mod protocol;
mod require_auth;
mod reset;
mod script;
mod session;
mod stale;
mod startup;
mod statement;
mod stream;
mod text;
mod transaction;
mod types;
mod wire;

use std::sync::Arc;

pub use self::connection::PostgresConnection;
pub use self::from_sql::column_type;
pub use self::param::param;
pub use postgres_types::{self, FromSql, ToSql};

use self::config::Config;
use self::connect::PostgresTemplate;
use crate::Result;
use crate::driver::{Driver, Dsn, Options, Template};

/// PostgreSQL, by a client of our own that the calling task drives. Version 12 or later.
#[doc = include_str!("options.md")]
#[doc = include_str!("behaviour.md")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Postgres {
    _private: (),
}

impl Postgres {
    /// PostgreSQL.
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
