//! The driver of MySQL and MariaDB keeps every promise that the suite asks of a driver: by TCP, by TLS
//! and by a unix socket. What it cannot do is said with `Lack`.

use cenote::mysql::Mysql;
use cenote_testkit::suite::{Lack, Subject, check_table};

use crate::servers::client::own_database;
use crate::servers::{dsn, unix_dsn};

/// The table in the documentation.
const TABLE: &str = include_str!("../../docs/drivers.md");

async fn subject(dsn: &str) -> Subject {
    let dsn = own_database(dsn).await;
    let subject = Subject::new(Mysql::new(), &dsn).expect("the DSN is right");
    subject
        .sql(|sql| {
            sql.endless = Some("SELECT SLEEP(3600)".into());
            sql.numbered = Some([
                "CREATE TABLE numbered (id INT AUTO_INCREMENT PRIMARY KEY, name TEXT)".into(),
                "INSERT INTO numbered (name) VALUES ('a')".into(),
            ]);
            sql.types.uint = Some("BIGINT UNSIGNED".into());
            sql.types.text = Some("MEDIUMTEXT".into());
            sql.types.bytes = Some("MEDIUMBLOB".into());
            sql.types.date_time = Some("DATETIME(6)".into());
            sql.types.timestamp = Some("TIMESTAMP(6) NULL".into());
            sql.types.uuid = Some("UUID".into());
            sql.types.json = Some("JSON".into());
        })
        // A connection on which a call was dropped is closed, and its query killed.
        .lacks(Lack::Settling)
        .unreachable("mysql:host=127.0.0.1;port=1;dbname=nowhere;user=nobody")
        .expect("the DSN is right")
}

mod by_tcp {
    use super::*;

    async fn make() -> Subject {
        subject(&(dsn() + ";sslmode=disable")).await
    }

    cenote_testkit::driver_suite!(make);

    #[tokio::test]
    async fn the_table_of_drivers_is_right() {
        check_table(&make().await, TABLE, "MariaDB").await;
    }
}

mod by_tls {
    use super::*;

    async fn make() -> Subject {
        subject(&(dsn() + ";sslmode=require")).await
    }

    cenote_testkit::driver_suite!(make);
}

mod by_unix_socket {
    use super::*;

    async fn make() -> Subject {
        subject(&unix_dsn()).await
    }

    cenote_testkit::driver_suite!(make);
}
