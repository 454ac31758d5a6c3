//! Several servers.

use cenote::{Db, Error, Kind};
use cenote_testkit::proxy::Network;

use crate::servers::network::{dsn_through, proxy_with};
use crate::servers::scripted::{Client, Scripted, message};
use crate::servers::{
    WHO, assert_whole, free_port, port, refused, required_variable, second_port, soon, standby_port,
};

/// A DSN of servers of this machine, tried in this order.
fn servers(ports: &[u16], options: &str) -> String {
    let hosts = vec!["127.0.0.1"; ports.len()].join(",");
    let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
    format!(
        "pgsql:host={hosts};port={};{WHO};{options}",
        ports.join(",")
    )
}

/// The port of the server that one ends up with.
async fn reached(dsn: &str) -> u16 {
    // Through a pooler, a statement that is kept may be on another connection.
    let db = Db::builder(dsn).statement_cache(0).open().await.unwrap();
    let sql = "SELECT current_setting('port')";
    let port: String = soon("it connects", db.query_as_one(sql, ())).await.unwrap();
    port.parse().unwrap()
}

/// The error of a handle that is opened with a connection, which no host fits.
async fn unfit(dsn: &str) -> Error {
    let opened = Db::builder(dsn).min(1).open();
    soon("it is refused", opened).await.unwrap_err()
}

#[tokio::test]
async fn the_first_server_that_is_there_is_taken() {
    let nobody = free_port();
    assert_eq!(
        reached(&servers(&[nobody, port(), second_port()], "")).await,
        port()
    );
    assert_eq!(
        reached(&servers(&[second_port(), port()], "")).await,
        second_port()
    );
    let url = format!(
        "postgres://cenote:cenote-secret@127.0.0.1:{nobody},localhost:{}/cenote",
        port()
    );
    assert_eq!(reached(&url).await, port());
}

#[tokio::test]
async fn the_kind_of_server_that_is_wanted_is_found() {
    let (primary, second, standby) = (port(), second_port(), standby_port());
    let all = [standby, second, primary];
    for (wanted, order, found) in [
        ("any", all, standby),
        ("read-write", all, primary),
        ("read-only", [primary, second, standby], second),
        ("read-only", [primary, standby, second], standby),
        ("primary", all, second),
        ("standby", [primary, second, standby], standby),
        ("prefer-standby", [primary, second, standby], standby),
    ] {
        let dsn = servers(&order, &format!("target_session_attrs={wanted}"));
        assert_eq!(reached(&dsn).await, found, "{wanted} of {order:?}");
    }
    let without_standby = servers(&[primary, second], "target_session_attrs=prefer-standby");
    assert_eq!(reached(&without_standby).await, primary);
}

#[tokio::test]
async fn without_a_suitable_host_the_error_lists_every_answer() {
    let nobody = free_port();
    let wanted = "target_session_attrs=read-write";
    let error = unfit(&servers(&[nobody, second_port(), standby_port()], wanted)).await;
    assert_eq!(error.kind(), Kind::Connect);
    let message = error.message();
    for port in [nobody, second_port(), standby_port()] {
        assert!(
            message.contains(&format!("127.0.0.1:{port}: ")),
            "{message}"
        );
    }
    assert!(
        message.contains("is the server running there?"),
        "{message}"
    );
    assert!(
        message.contains("target_session_attrs=read-write"),
        "{message}"
    );
    assert!(!message.contains("cenote-secret"), "{message}");
}

#[tokio::test]
async fn refused_login_ends_the_search_and_a_starting_server_does_not() {
    let wrong = servers(&[port(), second_port()], "").replace("cenote-secret", "wrong");
    let error = refused(&wrong).await;
    assert_eq!(error.sql_state(), Some("28P01"));
    assert!(
        !error.message().contains(&second_port().to_string()),
        "{error}"
    );

    let starting = Scripted::new(|mut client: Client| async move {
        client.read_startup().await;
        let said = b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0";
        client.send(&message(b'E', said)).await;
    })
    .await;
    let dsn = servers(&[starting.port(), port()], "sslmode=disable");
    assert_eq!(reached(&dsn).await, port());
    let error = refused(&servers(&[starting.port()], "sslmode=disable")).await;
    assert_eq!(
        (error.kind(), error.sql_state()),
        (Kind::Connect, Some("57P03"))
    );
}

#[tokio::test]
async fn silent_server_does_not_use_up_the_time_of_the_next_one() {
    let silent =
        Scripted::new(|mut client: Client| async move { client.fall_silent().await }).await;
    for options in ["sslmode=prefer", "sslmode=disable"] {
        let options = format!("{options};connect_timeout=600ms");
        assert_eq!(
            reached(&servers(&[silent.port(), port()], &options)).await,
            port()
        );
    }
    // By default each of several servers has three seconds.
    let dsn = servers(&[silent.port(), port()], "sslmode=disable");
    assert_eq!(reached(&dsn).await, port());
}

#[tokio::test]
async fn all_servers_being_silent_is_a_timeout_that_names_them() {
    let silent =
        Scripted::new(|mut client: Client| async move { client.fall_silent().await }).await;
    let ports = [silent.port(), silent.port()];
    let error = refused(&servers(&ports, "sslmode=disable;connect_timeout=40ms")).await;
    assert_eq!(error.kind(), Kind::Timeout, "{error}");
    assert!(error.message().contains("40ms"), "{error}");
}

#[tokio::test]
async fn a_server_that_reports_nothing_is_asked_for_its_kind() {
    // PgBouncer does not report what the servers behind it do.
    let pgbouncer = required_variable("CENOTE_TEST_POSTGRES_PGBOUNCER");
    for (wanted, fits) in [
        ("read-write", true),
        ("primary", true),
        ("read-only", false),
        ("standby", false),
    ] {
        let dsn = format!("{pgbouncer};target_session_attrs={wanted}");
        match fits {
            true => assert_eq!(reached(&dsn).await, port(), "{wanted}"),
            false => assert_eq!(unfit(&dsn).await.kind(), Kind::Connect, "{wanted}"),
        }
    }
}

#[tokio::test]
async fn every_address_of_a_name_is_tried() {
    // `localhost` has two of them on most machines, and this server listens on only one.
    let only_v4 = proxy_with(Network::ideal()).await;
    let dsn = dsn_through(&only_v4).replace("host=127.0.0.1", "host=localhost");
    let db = Db::builder(&dsn).max(2).open().await.unwrap();
    assert_whole(&db).await;
}
