//! The driver of MySQL and MariaDB.
//!
//! ```text
//! Mysql ──template──> MysqlTemplate ──connect──> MysqlConnection ── Wire ── mysql_async::Conn
//! ```
//!
//! | file | what is in it |
//! |---|---|
//! | `config`, `session` | the DSN and the options; the settings of every session |
//! | `connect` | the template; the login, for the search of a host |
//! | `role`, `suspicion`, `cut` | what a server is; errors that have it asked; ends the calls on a host that was retired |
//! | `connection` | implements the driver contract |
//! | `dropped_call`, `cancel`, `wire` | the in-flight flag; kills the query of a dropped call; closes the socket on drop |
//! | `execute`, `run_all`, `statement`, `stream` | running statements; all results of a script; cached statements; row streams |
//! | `stale` | when a cached statement is prepared again |
//! | `session_effects`, `commit_detection` | what a text may have changed in the session; whether it has ended the transaction |
//! | `positions` | the position at the end of a call, and reads on replicas: MariaDB only |
//! | `transaction`, `reset` | transactions, resets of the session |
//! | `param`, `decimal`, `types` | parameters and result values |
//! | `infile` | files that `LOAD DATA LOCAL INFILE` may send |
//! | `error`, `engine` | errors of the server and of the client library; which server it is, and what only its codes mean |

mod cancel;
mod commit_detection;
mod config;
mod connect;
mod connection;
mod cut;
mod decimal;
mod dropped_call;
mod engine;
mod error;
mod execute;
mod infile;
mod param;
mod positions;
mod reset;
mod role;
mod run_all;
mod session;
mod session_effects;
mod stale;
mod statement;
mod stream;
mod suspicion;
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

/// The driver of MySQL 8 and later and MariaDB 10.3 and later, on `mysql_async`'s connections, without its pool.
#[doc = include_str!("options.md")]
#[doc = include_str!("behaviour.md")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Mysql {
    _private: (),
}

impl Mysql {
    /// Returns the driver.
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
