//! SCRAM logins hash the password thousands of times: never on the thread that polls.

use std::sync::mpsc::channel;

use cenote::{Db, Kind};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::servers::scripted::{Client, Scripted, message};
use crate::servers::soon;

/// PostgreSQL's default.
const ITERATIONS: u32 = 4096;
const LOGINS: usize = 4;

/// Sends a SCRAM challenge, reports that, and reports the client's answer.
async fn challenge(mut client: Client, report: UnboundedSender<&'static str>) {
    client.read_startup().await;
    let offer = [&10_i32.to_be_bytes()[..], b"SCRAM-SHA-256\0\0"].concat();
    client.send(&message(b'R', &offer)).await;
    let (_, first) = client.read().await.unwrap();
    let first = String::from_utf8_lossy(&first).into_owned();
    let (_, nonce) = first.rsplit_once("r=").unwrap();
    let challenge = format!("r={nonce}server,s=c2FsdA==,i={ITERATIONS}");
    let challenge = [&11_i32.to_be_bytes()[..], challenge.as_bytes()].concat();
    client.send(&message(b'R', &challenge)).await;
    let _ = report.send("challenged");
    let (_, answer) = client.read().await.unwrap();
    assert!(answer.starts_with(b"c=biws,r="), "{answer:?}");
    let _ = report.send("answered");
}

/// The runtime's only thread for blocking work is occupied. So no login can get past its hash, and the
/// polling thread must go on with everything else.
#[test]
fn login_storm_leaves_the_polling_thread_free() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    runtime.block_on(async {
        let (release, released) = channel();
        let occupied = tokio::task::spawn_blocking(move || released.recv());
        let (report, mut reports) = unbounded_channel();
        let server = Scripted::new(move |client| challenge(client, report.clone())).await;
        let builder = Db::builder(&server.dsn()).max(LOGINS);
        let db = builder.max_creating(LOGINS).open().await.unwrap();
        let logins: Vec<_> = (0..LOGINS)
            .map(|_| {
                let db = db.clone();
                cenote::spawn(async move { db.ping().await })
            })
            .collect();
        for _ in 0..LOGINS {
            let reported = soon("a challenge is sent", reports.recv()).await;
            assert_eq!(reported, Some("challenged"));
        }
        // Long enough for the executor to have read all sockets many times.
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        assert!(reports.try_recv().is_err(), "a hash ran on this thread");
        release.send(()).unwrap();
        for _ in 0..LOGINS {
            let reported = soon("an answer is sent", reports.recv()).await;
            assert_eq!(reported, Some("answered"));
        }
        occupied.await.unwrap().unwrap();
        for login in logins {
            // The scripted server goes away without its proof.
            let error = soon("the login ends", login).await.unwrap().unwrap_err();
            assert_eq!(error.kind(), Kind::Connect, "{error}");
        }
    });
}
