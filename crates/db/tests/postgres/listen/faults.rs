//! Lost connections: every loss is a Gap, and nothing is missing after it.

use std::time::Duration;

use cenote::listen::{GapCause, Listener};
use cenote::{Db, Error, Kind};
use cenote_testkit::proxy::{Direction, Network, OnConnect};

use super::support::*;
use crate::servers::network::{dsn_through, proxy_with, silent};
use crate::servers::own::OwnServer;
use crate::servers::{dsn, free_port, kill, soon, until};

/// The error of the next event, which is a Gap by a lost connection.
async fn lost(listener: &mut Listener) -> Error {
    match gap(listener).await {
        GapCause::ConnectionLost(error) => error,
        other => panic!("another cause: {other:?}"),
    }
}

/// What comes after a Gap is complete.
async fn is_back(writer: &Db, channel: &str, listener: &mut Listener) {
    for n in 0..3 {
        notify(writer, channel, n).await;
    }
    for n in 0..3 {
        assert_eq!(payload(listener).await, n.to_string());
    }
    assert!(at_once(listener).is_none(), "one Gap for one loss");
}

#[tokio::test]
async fn killed_backend_is_a_gap_for_every_listener() {
    let db = open().await;
    let (one, two) = (channel(), channel());
    let mut first = db.listen([&*one]).await.unwrap();
    let mut second = db.listen([&*one, &*two]).await.unwrap();
    for round in 1..4 {
        notify(&db, &one, "before").await;
        for listener in [&mut first, &mut second] {
            assert_eq!(payload(listener).await, "before");
        }
        let before = backend(&db);
        kill(&db, before).await;
        for listener in [&mut first, &mut second] {
            assert_eq!(lost(listener).await.sql_state(), Some("57P01"));
        }
        notify(&db, &two, "after").await;
        assert_eq!(payload(&mut second).await, "after");
        is_back(&db, &one, &mut first).await;
        for n in 0..3 {
            assert_eq!(payload(&mut second).await, n.to_string());
        }
        let status = status(&db);
        assert!(status.connected);
        assert_eq!(status.reconnects, round);
        assert_eq!(status.last_error.unwrap().sql_state(), Some("57P01"));
        assert_ne!(status.process_id.map(i64::from), Some(before));
    }
}

#[tokio::test]
async fn restarted_server_is_a_gap() {
    let mut server = OwnServer::start(&[]).await;
    let db = Db::builder(&server.dsn()).max(2).open().await.unwrap();
    let channel = channel();
    let mut listener = db.listen([&*channel]).await.unwrap();
    for crashes in [true, false] {
        match crashes {
            true => server.crash().await,
            false => server.stop().await,
        }
        until("the loss is noticed", async || !status(&db).connected).await;
        // A listener that comes meanwhile fails with the next attempt; the other one stays.
        let refused = soon("it is refused", db.listen(["x"]).into_future()).await;
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), Kind::Connect, "{error:?}");
        assert!(at_once(&mut listener).is_none(), "not before it listens");
        server.start_again().await;
        let _ = lost(&mut listener).await;
        is_back(&db, &channel, &mut listener).await;
    }
}

#[tokio::test]
async fn cut_and_reset_networks_are_gaps() {
    let proxy = proxy_with(Network::ideal()).await;
    let writer = open().await;
    let db = Db::open(&dsn_through(&proxy)).await.unwrap();
    let channel = channel();
    let mut listener = db.listen([&*channel]).await.unwrap();
    for resets in [false, true, false] {
        match resets {
            false => proxy.cut(),
            true => proxy.reset(),
        }
        assert_eq!(lost(&mut listener).await.kind(), Kind::ConnectionLost);
        is_back(&writer, &channel, &mut listener).await;
    }
}

#[tokio::test]
async fn silent_network_is_noticed_by_the_ping() {
    for direction in [Direction::ToServer, Direction::ToClient] {
        let proxy = proxy_with(Network::ideal()).await;
        let writer = open().await;
        let db = Db::builder(&dsn_through(&proxy))
            .healthcheck_interval(Duration::from_millis(50))
            .connect_timeout(Duration::from_millis(500))
            .open()
            .await
            .unwrap();
        let channel = channel();
        let mut listener = db.listen([&*channel]).await.unwrap();
        proxy.set(Network {
            black_hole: Some(direction),
            ..Network::ideal()
        });
        notify(&writer, &channel, "lost").await;
        until("the silence is noticed", async || !status(&db).connected).await;
        let error = status(&db).last_error.unwrap();
        proxy.heal();
        let noticed = match direction {
            // What was sent before the silence was noticed arrived.
            Direction::ToServer => {
                assert_eq!(payload(&mut listener).await, "lost");
                lost(&mut listener).await
            }
            Direction::ToClient => lost(&mut listener).await,
        };
        assert!(noticed.message().contains("not answered"), "{noticed}");
        assert!(
            [Kind::ConnectionLost, Kind::Timeout, Kind::Connect].contains(&error.kind()),
            "{error:?}"
        );
        is_back(&writer, &channel, &mut listener).await;
    }
}

#[tokio::test]
async fn idle_connection_is_pinged_and_kept() {
    let proxy = proxy_with(Network::ideal()).await;
    let db = Db::builder(&dsn_through(&proxy))
        .healthcheck_interval(Duration::from_millis(20))
        .open()
        .await
        .unwrap();
    let channel = channel();
    let mut listener = db.listen([&*channel]).await.unwrap();
    let before = proxy.traffic();
    // A Sync has five bytes.
    until("it is pinged", async || {
        proxy.traffic().to_server >= before.to_server + 5 * 5
    })
    .await;
    assert!(at_once(&mut listener).is_none(), "a ping is no event");
    assert_eq!(status(&db).reconnects, 0);
    assert_eq!(proxy.traffic().accepted, before.accepted);
    is_back(&open().await, &channel, &mut listener).await;
}

#[tokio::test]
async fn listen_in_flight_when_the_connection_dies_is_repeated() {
    let proxy = proxy_with(Network::ideal()).await;
    let db = Db::open(&dsn_through(&proxy)).await.unwrap();
    let (one, two) = (channel(), channel());
    let mut first = db.listen([&*one]).await.unwrap();
    proxy.set(silent());
    let other = db.clone();
    let name = two.clone();
    let joining = cenote::spawn(async move { other.listen([name]).await });
    until("it joins", async || status(&db).listeners == 2).await;
    proxy.heal();
    proxy.reset();
    let mut second = soon("it is ready", joining).await.unwrap().unwrap();
    let writer = open().await;
    is_back(&writer, &two, &mut second).await;
    // LISTEN may have been answered before the reset. Then the loss came after it.
    if status(&db).reconnects > 0 {
        let _ = lost(&mut first).await;
    }
    is_back(&writer, &one, &mut first).await;
}

#[tokio::test]
async fn failed_attempts_are_shown_and_end_nobody() {
    let proxy = proxy_with(Network::ideal()).await;
    let db = Db::open(&dsn_through(&proxy)).await.unwrap();
    let channel = channel();
    let mut listener = db.listen([&*channel]).await.unwrap();
    proxy.on_connect(OnConnect::Reset);
    proxy.cut();
    let attempts = proxy.traffic().accepted;
    until("it tries again and again", async || {
        proxy.traffic().accepted >= attempts + 3
    })
    .await;
    let status = status(&db);
    assert!(!status.connected && status.process_id.is_none());
    assert_eq!(status.listeners, 1);
    assert_eq!(status.last_error.unwrap().kind(), Kind::Connect);
    assert!(at_once(&mut listener).is_none());
    proxy.heal();
    let _ = lost(&mut listener).await;
    is_back(&open().await, &channel, &mut listener).await;
}

#[tokio::test]
async fn pauses_between_attempts_grow() {
    let proxy = proxy_with(Network::ideal()).await;
    let db = Db::open(&dsn_through(&proxy)).await.unwrap();
    let listener = db.listen([channel()]).await.unwrap();
    proxy.on_connect(OnConnect::Reset);
    proxy.cut();
    let first = proxy.arrivals().len();
    until("it has tried five times", async || {
        proxy.arrivals().len() >= first + 5
    })
    .await;
    let arrivals = &proxy.arrivals()[first..];
    for (n, pair) in arrivals.windows(2).enumerate() {
        let least = Duration::from_millis(50 << n);
        assert!(pair[1] - pair[0] >= least, "{n}: {arrivals:?}");
    }
    drop(listener);
    nothing_listens(&db).await;
}

#[tokio::test]
async fn next_server_of_the_list_takes_over() {
    let mut server = OwnServer::start(&[]).await;
    let port: u16 = crate::servers::port();
    let hosts = format!(
        "pgsql:host=127.0.0.1,127.0.0.1,127.0.0.1;port={},{},{port};dbname=cenote;user=cenote;\
         password=cenote-secret;target_session_attrs=read-write",
        free_port(),
        server.port(),
    );
    let db = Db::builder(&hosts).open().await.unwrap();
    let channel = channel();
    let mut listener = db.listen([&*channel]).await.unwrap();
    let own = Db::open(&server.dsn()).await.unwrap();
    notify(&own, &channel, 1).await;
    assert_eq!(payload(&mut listener).await, "1");
    server.crash().await;
    let _ = lost(&mut listener).await;
    let writer = Db::open(&dsn()).await.unwrap();
    is_back(&writer, &channel, &mut listener).await;
}
