//! A network between a client and a server that is slow, narrow, choppy, or cut.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use super::dsn_at;

/// What a network does to bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Weather {
    /// How late they come, in each direction.
    pub(crate) latency: Duration,
    /// How many bytes it carries in a second.
    pub(crate) bandwidth: Option<u64>,
    /// It carries at most so many in one piece.
    pub(crate) slice: Option<usize>,
}

/// A proxy in front of a server. It is gone with this.
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: AbortHandle,
}

struct Shared {
    weather: Mutex<Weather>,
    /// How often all connections were cut.
    cuts: watch::Sender<u64>,
    /// Nothing is carried any more, though all stays connected.
    frozen: watch::Sender<bool>,
    accepted: AtomicUsize,
    /// New connections are cut at once.
    refusing: Mutex<bool>,
    carried: AtomicU64,
}

impl Proxy {
    pub(crate) async fn new(server: u16) -> Self {
        Proxy::with(server, Weather::default()).await
    }

    pub(crate) async fn with(server: u16, weather: Weather) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            weather: Mutex::new(weather),
            cuts: watch::Sender::new(0),
            frozen: watch::Sender::new(false),
            accepted: AtomicUsize::new(0),
            refusing: Mutex::new(false),
            carried: AtomicU64::new(0),
        });
        let accepting = spawn(accept(listener, server, Arc::clone(&shared)));
        Proxy {
            address,
            shared,
            accepting,
        }
    }

    /// The server behind it, as a user who may do anything, without TLS.
    pub(crate) fn dsn(&self) -> String {
        dsn_at(self.port())
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn set(&self, weather: Weather) {
        *self.shared.weather.lock().unwrap() = weather;
    }

    /// Resets all connections.
    pub(crate) fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// From now on, new connections are reset as well; or not any more.
    pub(crate) fn refuse(&self, refuse: bool) {
        *self.shared.refusing.lock().unwrap() = refuse;
    }

    /// From now on, nothing comes through; or it does again.
    pub(crate) fn freeze(&self, frozen: bool) {
        self.shared.frozen.send_replace(frozen);
    }

    /// How many connections there have been.
    pub(crate) fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// How many bytes have come through, in both directions.
    pub(crate) fn carried(&self) -> u64 {
        self.shared.carried.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "the network is no part of the program, and has its own tasks"
)]
fn spawn(task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
    tokio::task::spawn(task).abort_handle()
}

async fn accept(listener: TcpListener, server: u16, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        shared.accepted.fetch_add(1, Ordering::Relaxed);
        if *shared.refusing.lock().unwrap() {
            reset(&client);
            continue;
        }
        connections.spawn(carry_both(client, server, Arc::clone(&shared)));
    }
}

async fn carry_both(client: TcpStream, server: u16, shared: Arc<Shared>) {
    let mut cuts = shared.cuts.subscribe();
    let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else {
        return;
    };
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    // Closing them resets them, unless they have said goodbye before.
    reset(&client);
    reset(&server);
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        _ = cuts.changed() => {}
        _ = async {
            tokio::join!(
                carry(from_client, to_server, &shared),
                carry(from_server, to_client, &shared),
            )
        } => {}
    }
}

/// Closing this one will throw away what is on its way, and tell the other side so.
fn reset(stream: &TcpStream) {
    #[allow(
        deprecated,
        reason = "no time is waited: a linger of nothing does not block"
    )]
    stream.set_linger(Some(Duration::ZERO)).unwrap();
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, shared: &Shared) -> io::Result<()> {
    let mut frozen = shared.frozen.subscribe();
    let mut bytes = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut bytes).await?;
        let weather = *shared.weather.lock().unwrap();
        if read == 0 {
            return to.shutdown().await;
        }
        let pieces = bytes[..read].chunks(weather.slice.unwrap_or(read));
        if !weather.latency.is_zero() {
            delay(weather.latency).await;
        }
        for piece in pieces {
            if let Some(bandwidth) = weather.bandwidth {
                let micros = 1_000_000 * piece.len() as u64 / bandwidth;
                delay(Duration::from_micros(micros)).await;
            }
            frozen
                .wait_for(|frozen| !frozen)
                .await
                .map_err(io::Error::other)?;
            to.write_all(piece).await?;
            shared
                .carried
                .fetch_add(piece.len() as u64, Ordering::Relaxed);
        }
    }
}

/// The time that bytes need on their way. No test waits by this.
async fn delay(time: Duration) {
    tokio::time::sleep_until(Instant::now() + time).await;
}
