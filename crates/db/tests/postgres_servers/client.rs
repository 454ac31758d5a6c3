//! A connection of the driver, without a pool.

#[path = "../server_support/client.rs"]
mod shared;

use cenote::Row;
use cenote::postgres::{Postgres, PostgresConnection};

pub(crate) use self::shared::*;
use super::{dsn, unique};

fn driver() -> Postgres {
    Postgres::new()
}

/// A DSN whose connections see an empty schema of their own.
pub(crate) async fn own_schema(dsn: &str) -> String {
    let schema = unique("cenote_test");
    let mut client = Client::open(dsn).await;
    client.must(&format!("CREATE SCHEMA {schema}")).await;
    client.close().await;
    with_option(dsn, "search_path", &schema)
}

impl Client {
    /// To the test server, in whatever schema there is.
    pub(crate) async fn new() -> Self {
        Client::open(&dsn()).await
    }

    /// To the test server, in an empty schema of its own.
    pub(crate) async fn in_own_schema() -> Self {
        Client::open(&own_schema(&dsn()).await).await
    }

    /// The driver's own.
    pub(crate) fn own(&mut self) -> &mut PostgresConnection {
        let own = self.connection.as_any().downcast_mut();
        own.expect("it is PostgreSQL's")
    }

    pub(crate) fn round_trips(&mut self) -> u64 {
        self.own().round_trips()
    }

    /// The rows of the last statement of a script, which must not fail.
    pub(crate) async fn script_rows(&mut self, sql: &str) -> Vec<Row> {
        let done = self.script(sql).await;
        let done = done.unwrap_or_else(|error| panic!("{sql}: {error}"));
        done.rows.expect("rows were wanted").into_rows().collect()
    }
}
