//! The ODBC driver.
//!
//! ```text
//! Odbc ──template──> OdbcTemplate ──connect──> OdbcConnection ──programs──> thread: Session
//! ```
//!
//! | file | what is in it |
//! |---|---|
//! | `config` | the DSN and the options, and the connection string made of them |
//! | `reconnect` | attributes that are refused, because a driver would reconnect by itself |
//! | `connect` | the template; opening a connection on a thread of its own |
//! | `connection` | the contract of a connection, towards the layer |
//! | `cancel` | which call runs on that thread, and how it is cancelled |
//! | `session`, `execute`, `statement`, `stream`, `transaction`, `rows` | what runs on that thread |
//! | `stale` | when a kept statement is prepared again |
//! | `verify` | what a session is asked, to be sure of it |
//! | `handle` | ODBC's handles, and all that is `unsafe` |
//! | `types` | values on their way there and back |
//! | `error` | what drivers say, as errors of this crate |

mod cancel;
mod config;
mod connect;
mod connection;
mod error;
mod execute;
mod handle;
mod reconnect;
mod rows;
mod session;
mod stale;
mod statement;
mod stream;
mod transaction;
mod types;
mod verify;

use std::sync::Arc;

pub use self::connection::OdbcConnection;

use self::config::Config;
use self::connect::OdbcTemplate;
use crate::Result;
use crate::driver::{Driver, Dsn, Options, Template};

/// Any database that has an ODBC driver, by unixODBC.
#[doc = include_str!("behaviour.md")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Odbc {
    _private: (),
}

impl Odbc {
    /// ODBC.
    pub fn new() -> Self {
        Odbc::default()
    }
}

impl Driver for Odbc {
    fn name(&self) -> &'static str {
        "odbc"
    }

    fn template(&self, dsn: &Dsn, options: &Options) -> Result<Arc<dyn Template>> {
        let config = Config::read(dsn, options)?;
        Ok(Arc::new(OdbcTemplate::new(config)))
    }
}
