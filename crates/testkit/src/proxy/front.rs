//! The proxy: accepts connections and applies the test's orders.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastrand::Rng;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::address::{Address, Listener, Stream};
use super::connection::{self, End, Ends};
use super::network::{Direction, Network, OnConnect};

/// A proxy in front of a server. Dropping it closes its listener and all its connections.
#[derive(Debug)]
pub struct Proxy {
    address: Address,
    shared: Arc<Shared>,
    ends: watch::Sender<Ends>,
    /// The task that accepts; it owns the tasks of all connections.
    _work: JoinSet<()>,
}

/// What a [`Proxy`] has forwarded so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Connections that were accepted, including those that were reset at once.
    pub accepted: u64,
    /// Connections that are open now.
    pub open: u64,
    /// Bytes that the proxy has read from clients.
    pub from_client: u64,
    /// Bytes that the proxy has read from the server.
    pub from_server: u64,
    /// Bytes that were forwarded to the server.
    pub to_server: u64,
    /// Bytes that were forwarded to clients.
    pub to_client: u64,
    /// Pieces in which bytes were forwarded.
    pub pieces: u64,
}

/// What the proxy and its connections share. All atomics are relaxed: no counter guards other data.
#[derive(Debug)]
pub(super) struct Shared {
    network: watch::Sender<Network>,
    on_connect: Mutex<OnConnect>,
    arrivals: Mutex<Vec<Instant>>,
    greetings: Mutex<Vec<Vec<u8>>>,
    open: AtomicU64,
    from_client: AtomicU64,
    from_server: AtomicU64,
    to_server: AtomicU64,
    to_client: AtomicU64,
    pieces: AtomicU64,
}

impl Proxy {
    /// Starts a proxy on a free loopback port. Needs Tokio.
    ///
    /// # Errors
    ///
    /// No port is free.
    pub async fn in_front_of(server: impl Into<Address>) -> io::Result<Self> {
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Proxy::listen(anywhere, server, 0).await
    }

    /// Starts a proxy at this address. `seed` decides its jitter. Needs Tokio. The file of a Unix socket must not
    /// exist; the proxy deletes it when it is dropped.
    ///
    /// # Errors
    ///
    /// The address cannot be bound.
    pub async fn listen(
        at: impl Into<Address>,
        server: impl Into<Address>,
        seed: u64,
    ) -> io::Result<Self> {
        let at = at.into();
        let listener = Listener::bind(&at).await?;
        let address = listener.address(at)?;
        let shared = Arc::new(Shared {
            network: watch::Sender::new(Network::ideal()),
            on_connect: Mutex::default(),
            arrivals: Mutex::default(),
            greetings: Mutex::default(),
            open: AtomicU64::new(0),
            from_client: AtomicU64::new(0),
            from_server: AtomicU64::new(0),
            to_server: AtomicU64::new(0),
            to_client: AtomicU64::new(0),
            pieces: AtomicU64::new(0),
        });
        let ends = watch::Sender::new((0, End::Cut));
        let acceptor = Acceptor {
            listener,
            server: server.into(),
            shared: Arc::clone(&shared),
            ends: ends.subscribe(),
            rng: Rng::with_seed(seed),
        };
        let mut work = JoinSet::new();
        work.spawn(acceptor.serve());
        Ok(Proxy {
            address,
            shared,
            ends,
            _work: work,
        })
    }

    /// Returns the address for clients.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Sets the faults of the network, also for open connections.
    pub fn set(&self, network: Network) {
        self.shared.network.send_replace(network);
    }

    /// Returns the current faults of the network.
    pub fn network(&self) -> Network {
        *self.shared.network.borrow()
    }

    /// Sets what happens to new connections.
    pub fn on_connect(&self, on_connect: OnConnect) {
        *lock(&self.shared.on_connect) = on_connect;
    }

    /// Closes all connections, as a server does that shuts down.
    pub fn cut(&self) {
        self.end(End::Cut);
    }

    /// Resets all connections, as after a crash of the server's machine. Bytes in flight are lost.
    pub fn reset(&self) {
        self.end(End::Reset);
    }

    fn end(&self, how: End) {
        self.ends.send_modify(|(count, last)| {
            *count += 1;
            *last = how;
        });
    }

    /// Removes all faults: an ideal network, and new connections are forwarded.
    pub fn heal(&self) {
        self.set(Network::ideal());
        self.on_connect(OnConnect::Forward);
    }

    /// Returns what was forwarded so far.
    pub fn traffic(&self) -> Traffic {
        let shared = &self.shared;
        Traffic {
            accepted: lock(&shared.arrivals).len() as u64,
            open: shared.open.load(Relaxed),
            from_client: shared.from_client.load(Relaxed),
            from_server: shared.from_server.load(Relaxed),
            to_server: shared.to_server.load(Relaxed),
            to_client: shared.to_client.load(Relaxed),
            pieces: shared.pieces.load(Relaxed),
        }
    }

    /// Returns when each connection was accepted, in order, including those that were reset at once.
    pub fn arrivals(&self) -> Vec<Instant> {
        lock(&self.shared.arrivals).clone()
    }

    /// Returns the first bytes of each client that has sent any, at most 64. They show, for example, whether it
    /// requested TLS.
    pub fn greetings(&self) -> Vec<Vec<u8>> {
        lock(&self.shared.greetings).clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Address::Unix(path) = &self.address {
            // A file that is already gone needs no deleting.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Shared {
    pub(super) fn network(&self) -> watch::Receiver<Network> {
        self.network.subscribe()
    }

    pub(super) fn has_greeted(&self, bytes: &[u8]) {
        let first = &bytes[..bytes.len().min(64)];
        lock(&self.greetings).push(first.to_vec());
    }

    pub(super) fn has_read(&self, direction: Direction, bytes: usize) {
        let count = match direction {
            Direction::ToServer => &self.from_client,
            Direction::ToClient => &self.from_server,
        };
        count.fetch_add(bytes as u64, Relaxed);
    }

    pub(super) fn has_sent(&self, direction: Direction, bytes: usize) {
        let count = match direction {
            Direction::ToServer => &self.to_server,
            Direction::ToClient => &self.to_client,
        };
        count.fetch_add(bytes as u64, Relaxed);
        self.pieces.fetch_add(1, Relaxed);
    }
}

/// Accepts connections and starts a task for each.
struct Acceptor {
    listener: Listener,
    server: Address,
    shared: Arc<Shared>,
    ends: watch::Receiver<Ends>,
    rng: Rng,
}

impl Acceptor {
    /// # Cancel safety
    ///
    /// Dropped, all connections are cut.
    async fn serve(mut self) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok(client) => self.receive(client, &mut connections),
                    // The client has left, or the process has too many files: try the next one.
                    Err(_) => tokio::task::yield_now().await,
                },
                // Removes the tasks that have ended.
                Some(_) = connections.join_next() => {}
            }
        }
    }

    fn receive(&mut self, client: Stream, connections: &mut JoinSet<()>) {
        lock(&self.shared.arrivals).push(Instant::now());
        let on_connect = *lock(&self.shared.on_connect);
        // Earlier orders do not apply to a new connection.
        let mut ends = self.ends.clone();
        ends.mark_unchanged();
        let open = Open::new(&self.shared);
        match on_connect {
            OnConnect::Reset => client.reset(),
            OnConnect::Ignore => {
                connections.spawn(async move {
                    let _open = open;
                    connection::ignore(client, ends).await;
                });
            }
            OnConnect::Forward => {
                let (server, rng) = (self.server.clone(), self.rng.fork());
                let shared = Arc::clone(&self.shared);
                connections.spawn(async move {
                    let _open = open;
                    connection::carry(client, &server, shared, ends, rng).await;
                });
            }
        }
    }
}

/// Counts a connection as open until it is dropped.
struct Open(Arc<Shared>);

impl Open {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.open.fetch_add(1, Relaxed);
        Open(Arc::clone(shared))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that can panic runs under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
