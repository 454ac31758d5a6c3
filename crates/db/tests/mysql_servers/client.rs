//! A connection of the driver, without a pool.

#[path = "../server_support/client.rs"]
mod shared;

use cenote::mysql::{Mysql, MysqlConnection};

pub(crate) use self::shared::*;
use super::{dsn, unique};

fn driver() -> Mysql {
    Mysql::new()
}

/// A DSN whose connections see an empty database of their own.
pub(crate) async fn own_database(dsn: &str) -> String {
    let database = unique("cenote_test");
    let mut client = Client::open(dsn).await;
    client.must(&format!("CREATE DATABASE {database}")).await;
    client.close().await;
    with_option(dsn, "dbname", &database)
}

impl Client {
    /// To the test server, in whatever database there is.
    pub(crate) async fn new() -> Self {
        Client::open(&dsn()).await
    }

    /// To the test server, in an empty database of its own.
    pub(crate) async fn in_own_database() -> Self {
        Client::open(&own_database(&dsn()).await).await
    }

    /// The driver's own.
    pub(crate) fn own(&mut self) -> &mut MysqlConnection {
        let own = self.connection.as_any().downcast_mut();
        own.expect("it is MySQL's")
    }

    pub(crate) fn id(&mut self) -> u32 {
        self.own().connection_id()
    }
}
