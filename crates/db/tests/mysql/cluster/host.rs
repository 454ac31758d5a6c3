//! A scripted host whose role a test changes, and that can hang.

#![allow(
    clippy::disallowed_methods,
    reason = "a server of a test is no work of a pool"
)]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use cenote::Db;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::servers::scripted::{OK, OK_INSIDE, Peer, Refusal};

const VERSION: &str = "10.11.6-MariaDB";

pub(super) const WRITE: &str = "UPDATE t SET a = 1";

pub(super) const READ_ONLY: Refusal = Refusal {
    code: 1290,
    state: "HY000",
    message: "The MariaDB server is running with the --read-only option so it cannot execute this statement",
};

pub(super) const NOT_PREPARED: Refusal = Refusal {
    code: 1047,
    state: "08S01",
    message: "WSREP has not yet prepared node for application use",
};

/// What a host says it is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Is {
    Primary,
    /// This variable is on.
    Standby(&'static str),
    /// A node of a Galera cluster, in this state.
    Node(&'static str),
}

impl Is {
    pub(super) const STANDBY: Is = Is::Standby("read_only");
    pub(super) const SYNCED: Is = Is::Node("4");
    pub(super) const JOINING: Is = Is::Node("1");

    /// What writes are answered with.
    fn refusal(self) -> Option<Refusal> {
        match self {
            Is::Primary => None,
            Is::Standby(_) => Some(READ_ONLY),
            Is::Node(state) => (state != "4").then_some(NOT_PREPARED),
        }
    }
}

pub(super) struct Host {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    is: Mutex<Is>,
    /// What writes are refused with, whatever the host is.
    refusal: Mutex<Option<Refusal>>,
    /// What logins are refused with.
    closed: Mutex<Option<Refusal>>,
    hangs: watch::Sender<bool>,
    /// How many writes have arrived, and how many of them were refused.
    writes: AtomicUsize,
    refused: AtomicUsize,
    /// How often the host was asked what it is.
    asked: AtomicUsize,
    /// How many sessions there are that have written.
    writers: AtomicUsize,
}

impl Host {
    pub(super) async fn start(is: Is) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            is: Mutex::new(is),
            refusal: Mutex::new(None),
            closed: Mutex::new(None),
            hangs: watch::Sender::new(false),
            writes: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            asked: AtomicUsize::new(0),
            writers: AtomicUsize::new(0),
        });
        let all = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (shared, peer) = (Arc::clone(&all), Peer::new(stream));
                tokio::spawn(async move { shared.serve(peer, port).await });
            }
        });
        Host { port, shared }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn becomes(&self, is: Is) {
        *self.shared.is.lock().unwrap() = is;
    }

    /// Has it refuse every write by this error, or by what its role says.
    pub(super) fn refuses(&self, refusal: Option<Refusal>) {
        *self.shared.refusal.lock().unwrap() = refusal;
    }

    /// Has it let nobody in.
    pub(super) fn lets_nobody_in(&self, refusal: Refusal) {
        *self.shared.closed.lock().unwrap() = Some(refusal);
    }

    /// It answers nobody, or everybody who has waited.
    pub(super) fn hangs(&self, hangs: bool) {
        self.shared.hangs.send_replace(hangs);
    }

    /// How many writes it has accepted.
    pub(super) fn writes(&self) -> usize {
        self.arrived() - self.shared.refused.load(Ordering::Relaxed)
    }

    /// How many writes have arrived.
    pub(super) fn arrived(&self) -> usize {
        self.shared.writes.load(Ordering::Relaxed)
    }

    pub(super) fn asked(&self) -> usize {
        self.shared.asked.load(Ordering::Relaxed)
    }

    pub(super) fn writers(&self) -> usize {
        self.shared.writers.load(Ordering::Relaxed)
    }
}

/// Counts a session that has written, until it ends.
struct Writer<'s>(&'s Shared, AtomicBool);

impl Writer<'_> {
    fn has_written(&self) {
        if !self.1.swap(true, Ordering::Relaxed) {
            self.0.writers.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        if self.1.load(Ordering::Relaxed) {
            self.0.writers.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Shared {
    fn is(&self) -> Is {
        *self.is.lock().unwrap()
    }

    async fn serve(&self, mut peer: Peer, port: u16) {
        let mut hangs = self.hangs.subscribe();
        hangs.wait_for(|hangs| !hangs).await.unwrap();
        let closed = *self.closed.lock().unwrap();
        if let Some(refusal) = closed {
            return peer.turn_away(VERSION, refusal).await;
        }
        peer.let_in(VERSION).await;
        let writer = Writer(self, AtomicBool::new(false));
        let mut is_inside = false;
        while let Some(request) = peer.read().await {
            let (command, text) = request.split_first().unwrap();
            let text = String::from_utf8_lossy(text).into_owned();
            if text == WRITE {
                writer.has_written();
                self.writes.fetch_add(1, Ordering::Relaxed);
            }
            hangs.wait_for(|hangs| !hangs).await.unwrap();
            if *command == 3 && peer.serve_driver(&text, VERSION).await {
                continue;
            }
            let refusal = match &*text {
                "START TRANSACTION" | "START TRANSACTION READ ONLY" => {
                    is_inside = true;
                    None
                }
                "COMMIT" | "ROLLBACK" => {
                    is_inside = false;
                    None
                }
                WRITE => self.refusal.lock().unwrap().or(self.is().refusal()),
                text if text.starts_with("SHOW GLOBAL") => {
                    self.tell(&mut peer, text, port).await;
                    continue;
                }
                _ => None,
            };
            match refusal {
                Some(refusal) => {
                    self.refused.fetch_add(1, Ordering::Relaxed);
                    peer.refuse(refusal).await;
                }
                None => peer.send(if is_inside { OK_INSIDE } else { OK }).await,
            }
        }
    }

    /// Says what the host is.
    async fn tell(&self, peer: &mut Peer, asked: &str, port: u16) {
        let (is, name) = (self.is(), port.to_string());
        let mut variables = vec![("server_uuid", &*name)];
        if asked.starts_with("SHOW GLOBAL VARIABLES") {
            self.asked.fetch_add(1, Ordering::Relaxed);
            match is {
                Is::Primary => variables.push(("read_only", "OFF")),
                Is::Standby(variable) => variables.push((variable, "ON")),
                Is::Node(_) => variables.push(("wsrep_on", "ON")),
            }
        } else if let Is::Node(state) = is {
            variables = vec![
                ("wsrep_ready", if state == "4" { "ON" } else { "OFF" }),
                ("wsrep_cluster_status", "Primary"),
                ("wsrep_local_state", state),
            ];
        }
        let rows: Vec<_> = variables
            .iter()
            .map(|(name, value)| [Some(*name), Some(*value)])
            .collect();
        let rows: Vec<&[_]> = rows.iter().map(|row| &row[..]).collect();
        peer.send_rows(&rows).await;
    }
}

/// Opens a handle of three connections.
pub(super) async fn open(dsn: &str) -> Db {
    Db::builder(dsn).max(3).open().await.unwrap()
}

/// Writes on every connection of a pool of three.
pub(super) async fn write_on_all(db: &Db) {
    let mut all = Vec::new();
    for _ in 0..3 {
        all.push(db.connection().await.unwrap());
    }
    for connection in &all {
        connection.exec(WRITE, ()).await.unwrap();
    }
}
