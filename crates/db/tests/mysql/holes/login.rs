//! Servers that are not what they say: who would get the password, and what they can send.
#![expect(
    clippy::disallowed_methods,
    reason = "a server of a test is no work of a pool"
)]

use std::sync::Arc;
use std::time::Duration;

use cenote::{Db, Kind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

use crate::servers::scripted::{OK, Peer, greeting};
use crate::servers::{port, soon};

const PASSWORD: &str = "cenote-secret";

/// A server that sends these packets, each but the first as an answer. Returns its port and what it received.
async fn scripted(says: Vec<Vec<u8>>) -> (u16, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let told = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&told);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut peer = Peer::new(stream);
            for packet in &says {
                peer.send(packet).await;
                let Some(answer) = peer.read().await else {
                    break;
                };
                all.lock().await.extend(answer);
            }
        }
    });
    (port, told)
}

fn dsn(host: &str, port: u16, more: &str) -> String {
    format!("mysql:host={host};port={port};user=app;password={PASSWORD}{more}")
}

#[tokio::test]
async fn h33_an_unchecked_server_far_away_gets_no_password() {
    // An address without a host: nothing is sent there.
    for sslmode in [
        "",
        ";sslmode=disable",
        ";sslmode=prefer",
        ";sslmode=require",
    ] {
        let limit = ";connect_timeout=30s";
        let db = Db::open(&dsn("192.0.2.1", 3306, &format!("{sslmode}{limit}")))
            .await
            .unwrap();
        let error = soon("it is refused", db.ping()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Config, "{sslmode}: {error:?}");
        assert!(error.message().contains("unverified_login"), "{error}");
        assert!(!error.to_string().contains(PASSWORD), "{error}");
    }
    // With the option, a verified server or no password, the client tries to connect, where no server answers.
    let unreachable = async |dsn: String| {
        let db = Db::builder(&format!("{dsn};connect_timeout=20ms"))
            .open()
            .await
            .unwrap();
        let error = soon("it is tried", db.ping()).await.unwrap_err();
        assert!(
            matches!(error.kind(), Kind::Timeout | Kind::Connect),
            "{error:?}"
        );
    };
    unreachable(dsn("192.0.2.1", 3306, ";unverified_login=true")).await;
    unreachable(dsn("192.0.2.1", 3306, ";sslmode=verify-full")).await;
    unreachable("mysql:host=192.0.2.1;user=app".to_owned()).await;
}

#[tokio::test]
async fn h33_no_plugin_gets_the_password_in_the_clear() {
    for plugin in [
        "mysql_clear_password",
        "sha256_password",
        "dialog",
        "mysql_old_password",
    ] {
        let switch = [
            b"\xfe".as_slice(),
            plugin.as_bytes(),
            b"\x0012345678901234567890\0",
        ]
        .concat();
        let (port, told) =
            scripted(vec![greeting("mysql_native_password"), switch, OK.to_vec()]).await;
        let db = Db::open(&dsn("127.0.0.1", port, ";sslmode=disable"))
            .await
            .unwrap();
        let error = soon("it is refused", db.ping()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Connect, "{plugin}: {error:?}");
        let told = told.lock().await;
        let has_password = told
            .windows(PASSWORD.len())
            .any(|part| part == PASSWORD.as_bytes());
        assert!(!has_password, "{plugin}");
    }
}

/// The client library panics over some of these.
#[tokio::test]
async fn h33_what_no_server_sends_is_an_error_and_no_panic() {
    let sha2 = || greeting("caching_sha2_password");
    let full = || vec![1, 4];
    let key = |text: &str| [b"\x01", text.as_bytes()].concat();
    let scripts = [
        vec![vec![]],
        vec![vec![0x0a]],
        vec![sha2(), vec![]],
        vec![sha2(), vec![1]],
        vec![sha2(), full(), vec![]],
        vec![sha2(), full(), key("")],
        vec![
            sha2(),
            full(),
            key("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"),
        ],
        vec![sha2(), vec![0xfe]],
        vec![sha2(), b"\xfeparsec\0".to_vec(), vec![]],
        vec![sha2(), OK.to_vec(), vec![]],
        vec![sha2(), OK.to_vec(), vec![1]],
        vec![sha2(), OK.to_vec(), vec![0xfb]],
    ];
    for script in scripts {
        let (port, _) = scripted(script.clone()).await;
        let db = Db::builder(&dsn(
            "127.0.0.1",
            port,
            ";sslmode=disable;connect_timeout=2s",
        ))
        .open()
        .await
        .unwrap();
        let error = soon("it fails", db.ping()).await.unwrap_err();
        assert!(
            matches!(error.kind(), Kind::Connect | Kind::Timeout),
            "{script:?}: {error:?}"
        );
    }
}

/// A result of one column `a`, whose first row is an empty packet.
fn empty_row() -> [Vec<u8>; 3] {
    let column = b"\x03def\0\0\0\x01a\0\x0c\x3f\0\x0b\0\0\0\x03\x80\0\0\0\0";
    [vec![1], column.to_vec(), vec![]]
}

/// A proxy to the test server that answers texts with GARBAGE itself.
async fn in_the_middle() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(("127.0.0.1", port())).await.unwrap();
            let (mut from_server, mut to_server) = server.into_split();
            let (mut from_client, mut to_client) = client.into_split();
            tokio::spawn(async move {
                let mut bytes = vec![0; 65_536];
                let (tell, mut told) = tokio::sync::mpsc::unbounded_channel::<()>();
                let answers = async {
                    let mut bytes = vec![0; 65_536];
                    loop {
                        tokio::select! {
                            read = from_server.read(&mut bytes) => match read {
                                Ok(length) if length > 0 => {
                                    let _ = to_client.write_all(&bytes[..length]).await;
                                }
                                _ => return,
                            },
                            Some(()) = told.recv() => {
                                for (n, packet) in (1_u8..).zip(empty_row()) {
                                    let length = u8::try_from(packet.len()).unwrap();
                                    let whole = [&[length, 0, 0, n], packet.as_slice()].concat();
                                    let _ = to_client.write_all(&whole).await;
                                }
                            }
                        }
                    }
                };
                let questions = async {
                    while let Ok(length) = from_client.read(&mut bytes).await
                        && length > 0
                    {
                        match bytes[..length].windows(7).any(|part| part == b"GARBAGE") {
                            true => tell.send(()).unwrap(),
                            false => to_server.write_all(&bytes[..length]).await.unwrap(),
                        }
                    }
                };
                tokio::select! {
                    () = answers => {}
                    () = questions => {}
                }
            });
        }
    });
    own
}

#[tokio::test]
async fn h33_an_empty_row_costs_the_connection_and_no_panic() {
    let port = in_the_middle().await;
    let dsn = format!(
        "mysql:host=127.0.0.1;port={port};dbname=cenote;user=cenote;password={PASSWORD};sslmode=disable"
    );
    let db = Db::builder(&dsn)
        .max(1)
        .acquire_timeout(Duration::from_secs(10))
        .open()
        .await
        .unwrap();
    let id = async || {
        db.query_as_one::<i64>("SELECT CONNECTION_ID()", ())
            .await
            .unwrap()
    };
    let first = id().await;
    let error = soon("it fails", db.query("SELECT 'GARBAGE'", ()))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Kind::ConnectionLost, "{error:?}");
    let second = id().await;
    assert_ne!(first, second, "another connection");
    let mut rows = db.stream("SELECT 'GARBAGE'", ()).await.unwrap();
    let error = soon("it fails", rows.try_next()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::ConnectionLost, "{error:?}");
    drop(rows);
    assert_ne!(second, id().await, "another connection");
    let lost = db
        .transaction(async || {
            db.query("SELECT 'GARBAGE'", ()).await.unwrap_err();
            db.query("SELECT 1", ()).await
        })
        .await;
    assert_eq!(lost.unwrap_err().kind(), Kind::TransactionLost);
    id().await;
}
