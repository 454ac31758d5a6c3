//! The ODBC driver.
//!
//! ```text
//! Odbc ──template──> OdbcTemplate ──connect──> OdbcConnection ──programs──> thread: Session
//! ```
//!
//! | file | what is in it |
//! |---|---|
//! | `config` | the options and the connection string |
//! | `reconnect` | refuses attributes that make a driver reconnect automatically |
//! | `connect` | the template, which opens each connection on a thread of its own |
//! | `connection` | implements the driver contract |
//! | `cancel` | cancels the call that runs on the thread |
//! | `session`, `execute`, `statement`, `stream`, `transaction`, `rows` | what runs on the thread |
//! | `stale` | when a cached statement is prepared again |
//! | `verify` | checks a session's character set and identity |
//! | `handle` | ODBC's handles, and all `unsafe` code |
//! | `types` | parameters and result values |
//! | `error` | errors of ODBC drivers |

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

/// The driver for any database with an ODBC driver, through unixODBC.
#[doc = include_str!("behaviour.md")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Odbc {
    _private: (),
}

impl Odbc {
    /// Returns the driver.
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
