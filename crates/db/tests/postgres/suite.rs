//! The PostgreSQL driver keeps every promise that the suite asks of a driver: by TCP and by a unix
//! socket.

use cenote::postgres::Postgres;
use cenote_testkit::suite::{Subject, check_table};

use crate::servers::client::own_schema;
use crate::servers::{dsn, unix_dsn};

/// The table in the documentation.
const TABLE: &str = include_str!("../../docs/drivers.md");

const ENDLESS: &str = "SELECT pg_catalog.pg_sleep(3600)";

async fn subject(dsn: &str) -> Subject {
    let dsn = own_schema(dsn).await;
    let subject = Subject::new(Postgres::new(), &dsn).expect("the DSN is right");
    subject
        .sql(|sql| {
            sql.endless = Some(ENDLESS.into());
            sql.types.bytes = Some("BYTEA".into());
            sql.types.uuid = Some("UUID".into());
            sql.types.json = Some("JSON".into());
        })
        .unreachable("pgsql:host=127.0.0.1;port=1;dbname=nowhere;user=nobody")
        .expect("the DSN is right")
}

mod by_tcp {
    use super::*;

    async fn make() -> Subject {
        subject(&dsn()).await
    }

    cenote_testkit::driver_suite!(make);

    #[tokio::test]
    async fn the_table_of_drivers_is_right() {
        check_table(&make().await, TABLE, "PostgreSQL").await;
    }
}

mod by_unix_socket {
    use super::*;

    async fn make() -> Subject {
        subject(&unix_dsn()).await
    }

    cenote_testkit::driver_suite!(make);
}
