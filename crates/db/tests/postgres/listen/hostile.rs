//! Servers that break the rules.

use std::time::Duration;

use cenote::listen::GapCause;
use cenote::{Db, Kind};

use super::support::*;
use crate::servers::scripted::{Client, Scripted, message};
use crate::servers::until;

fn notification(channel: &str, payload: &[u8]) -> Vec<u8> {
    let body = [
        &7_i32.to_be_bytes()[..],
        channel.as_bytes(),
        b"\0",
        payload,
        b"\0",
    ];
    message(b'A', &body.concat())
}

/// What accepts a request.
fn accepted() -> Vec<u8> {
    [message(b'C', b"LISTEN\0"), message(b'Z', b"I")].concat()
}

/// Lets a client in and says that it is the session `1`, as the key has said.
async fn let_in(client: &mut Client) {
    client.let_in().await;
    client.read_request().await;
    let column = [&b"\0\x01pid\0"[..], &[0; 6], &[0, 0, 0, 23], &[0; 8]].concat();
    let row = b"\0\x01\0\0\0\x011";
    client.send(&message(b'T', &column)).await;
    client.send(&message(b'D', row)).await;
    client.send(&accepted()).await;
}

/// A server that accepts LISTEN and says this afterwards, once for each connection.
async fn says(bytes: Vec<u8>) -> (Scripted, Db) {
    let server = Scripted::new(move |mut client: Client| {
        let bytes = bytes.clone();
        async move {
            let_in(&mut client).await;
            client.read_request().await;
            client.send(&accepted()).await;
            client.send(&bytes).await;
            client.fall_silent().await;
        }
    })
    .await;
    let db = Db::open(&server.dsn()).await.unwrap();
    (server, db)
}

#[tokio::test]
async fn payload_that_is_no_text_is_a_gap_at_its_place() {
    let bytes = [
        notification("news", b"one"),
        notification("news", b"\xff"),
        notification("\u{fffd}", b"for nobody"),
        notification("news", b"two"),
    ];
    let (_server, db) = says(bytes.concat()).await;
    let mut listener = db.listen(["news"]).await.unwrap();
    assert_eq!(payload(&mut listener).await, "one");
    assert!(matches!(gap(&mut listener).await, GapCause::NotText));
    assert_eq!(payload(&mut listener).await, "two");
    assert_eq!(status(&db).reconnects, 0);
}

#[tokio::test]
async fn broken_protocol_is_a_lost_connection() {
    let garbage = [
        message(b'A', b"\0\0\0\x07news\0no end"),
        message(b'A', b"\0\0"),
        message(b'Z', b"I"),
        message(b'C', b"LISTEN\0"),
        message(b'D', b"\0\0"),
        message(b'?', b""),
        message(b'E', b"no report"),
        // A notification that is longer than any server sends.
        b"A\x3f\xff\xff\xff".to_vec(),
        vec![0; 5],
    ];
    for garbage in garbage {
        let shown = format!("{garbage:?}");
        let bytes = [notification("news", b"one"), garbage].concat();
        let (_server, db) = says(bytes).await;
        let mut listener = db.listen(["news"]).await.unwrap();
        for _ in 0..2 {
            assert_eq!(payload(&mut listener).await, "one", "{shown}");
            let GapCause::ConnectionLost(error) = gap(&mut listener).await else {
                panic!("{shown}");
            };
            assert_eq!(error.kind(), Kind::ConnectionLost, "{shown}: {error}");
        }
    }
}

#[tokio::test]
async fn notifications_before_the_acknowledgement_are_covered() {
    let server = Scripted::new(|mut client: Client| async move {
        let_in(&mut client).await;
        client.read_request().await;
        // It is sent to the session, but `listen` has not returned: or the Gap is still to come.
        client.send(&notification("news", b"early")).await;
        client.send(&accepted()).await;
        client.send(&notification("news", b"late")).await;
        client.read_request().await;
    })
    .await;
    let db = Db::builder(&server.dsn())
        .healthcheck_interval(Duration::from_millis(20))
        .open()
        .await
        .unwrap();
    let mut listener = db.listen(["news"]).await.unwrap();
    assert_eq!(payload(&mut listener).await, "late");
    // The server hangs up at the first ping.
    let _ = gap(&mut listener).await;
    assert_eq!(payload(&mut listener).await, "late");
}

#[tokio::test]
async fn server_that_never_acknowledges_is_left_and_tried_again() {
    let server = Scripted::new(|mut client: Client| async move {
        let_in(&mut client).await;
        client.fall_silent().await;
    })
    .await;
    let db = Db::builder(&server.dsn())
        .connect_timeout(Duration::from_millis(50))
        .acquire_timeout(None)
        .open()
        .await
        .unwrap();
    let other = db.clone();
    let joining = cenote::spawn(async move { other.listen(["news"]).await.map(drop) });
    until("the silence is noticed", async || {
        let status = db.listen_status();
        status.is_some_and(|status| status.last_error.is_some())
    })
    .await;
    let error = status(&db).last_error.unwrap();
    assert!(error.message().contains("not answered"), "{error}");
    assert!(!status(&db).connected);
    db.close().await.unwrap();
    let error = joining.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), Kind::Closed, "{error:?}");
}
