//! The driver of MySQL and MariaDB.
//!
//! ```text
//! Mysql ──template──> MysqlTemplate ──connect──> MysqlConnection ── Wire ── mysql_async::Conn
//! ```
//!
//! | file | what is in it |
//! |---|---|
//! | `config`, `session` | the DSN and the options; what every session is told |
//! | `connect` | the template; which server, and the login |
//! | `connection` | the contract of a connection, towards the layer |
//! | `settle`, `cancel`, `wire` | the guard of calls under way: what happens after a dropped call, and how the server learns of it |
//! | `execute`, `run_all`, `statement`, `stream` | running statements; all results of a script; kept statements; rows batch by batch |
//! | `stale` | when a kept statement is prepared again |
//! | `transaction`, `reset` | as they say |
//! | `param`, `decimal`, `types` | values on their way there and back |
//! | `infile` | files of this machine that a server may ask for |
//! | `error` | what the server says, as errors of this crate |

mod cancel;
mod commit_detection;
mod config;
mod connect;
mod connection;
mod decimal;
mod dropped_call;
mod error;
mod execute;
mod infile;
mod param;
mod reset;
mod run_all;
mod session;
mod session_effects;
mod stale;
mod statement;
mod stream;
mod transaction;
mod types;
mod wire;

use std::sync::Arc;

pub use self::connection::MysqlConnection;
pub use mysql_async::Value as RawValue;

use self::config::Config;
use self::connect::MysqlTemplate;
use crate::Result;
use crate::driver::{Driver, Dsn, Options, Template};

/// MySQL 8 and later, MariaDB 10.3 and later: by `mysql_async`'s connections, and without its pool.
#[doc = include_str!("options.md")]
#[doc = include_str!("behaviour.md")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Mysql {
    _private: (),
}

impl Mysql {
    /// MySQL and MariaDB.
    pub fn new() -> Self {
        Mysql::default()
    }
}

impl Driver for Mysql {
    fn name(&self) -> &'static str {
        "mysql"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["mariadb"]
    }

    fn template(&self, dsn: &Dsn, options: &Options) -> Result<Arc<dyn Template>> {
        let config = Config::read(dsn, options)?;
        Ok(Arc::new(MysqlTemplate::new(config)))
    }
}
