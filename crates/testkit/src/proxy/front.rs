//! The proxy itself: accepts, sends each connection on its way, and takes orders.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastrand::Rng;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::address::{Address, Listener, Stream};
use super::link::{self, End, Ends};
use super::weather::{Direction, Doors, Weather};

/// A proxy in front of a server. Dropped, it listens no more and all its connections are cut.
#[derive(Debug)]
pub struct Proxy {
    address: Address,
    shared: Arc<Shared>,
    ends: watch::Sender<Ends>,
    /// Accepts, and has all connections with it.
    _work: JoinSet<()>,
}

/// What has come through a [`Proxy`] so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Connections that were made to it, also those that it refused.
    pub accepted: u64,
    /// Connections that are open now.
    pub open: u64,
    /// Bytes that clients have sent, whether they have arrived or not.
    pub from_client: u64,
    /// Bytes that the server has sent, whether they have arrived or not.
    pub from_server: u64,
    /// Bytes that were passed on to the server.
    pub to_server: u64,
    /// Bytes that were passed on to clients.
    pub to_client: u64,
    /// Pieces in which bytes were passed on.
    pub pieces: u64,
}

/// What the proxy and its connections share. Relaxed throughout: every number stands for itself.
#[derive(Debug)]
pub(super) struct Shared {
    weather: watch::Sender<Weather>,
    doors: Mutex<Doors>,
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
    /// A proxy on a free port of this machine's loopback. Needs Tokio.
    ///
    /// # Errors
    ///
    /// No port can be had.
    pub async fn in_front_of(server: impl Into<Address>) -> io::Result<Self> {
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Proxy::listen(anywhere, server, 0).await
    }

    /// A proxy at this address, whose jitter comes from this seed. Needs Tokio. The file of a unix
    /// socket must not be there yet; it goes with the proxy.
    ///
    /// # Errors
    ///
    /// The address cannot be had.
    pub async fn listen(
        at: impl Into<Address>,
        server: impl Into<Address>,
        seed: u64,
    ) -> io::Result<Self> {
        let at = at.into();
        let listener = Listener::bind(&at).await?;
        let address = listener.address(at)?;
        let shared = Arc::new(Shared {
            weather: watch::Sender::new(Weather::fair()),
            doors: Mutex::default(),
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
        let house = House {
            listener,
            server: server.into(),
            shared: Arc::clone(&shared),
            ends: ends.subscribe(),
            rng: Rng::with_seed(seed),
        };
        let mut work = JoinSet::new();
        work.spawn(house.serve());
        Ok(Proxy {
            address,
            shared,
            ends,
            _work: work,
        })
    }

    /// Where clients are to connect.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Changes the weather, for connections that are there as well.
    pub fn set(&self, weather: Weather) {
        self.shared.weather.send_replace(weather);
    }

    /// The weather now.
    pub fn weather(&self) -> Weather {
        *self.shared.weather.borrow()
    }

    /// From now on, those who connect find the doors like this.
    pub fn doors(&self, doors: Doors) {
        *lock(&self.shared.doors) = doors;
    }

    /// Closes all connections, as a server that ends does.
    pub fn cut(&self) {
        self.end(End::Cut);
    }

    /// Resets all connections, as a machine that has forgotten them does. What is under way is lost.
    pub fn reset(&self) {
        self.end(End::Reset);
    }

    fn end(&self, how: End) {
        self.ends.send_modify(|(count, last)| {
            *count += 1;
            *last = how;
        });
    }

    /// Fair weather, and open doors.
    pub fn heal(&self) {
        self.set(Weather::fair());
        self.doors(Doors::Open);
    }

    /// What has come through so far.
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

    /// When each connection was made, in order, those that were refused included.
    pub fn arrivals(&self) -> Vec<Instant> {
        lock(&self.shared.arrivals).clone()
    }

    /// What each client has said first, if anything; at most 64 bytes of it. Whether it was TLS that
    /// they asked for, for example.
    pub fn greetings(&self) -> Vec<Vec<u8>> {
        lock(&self.shared.greetings).clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Address::Unix(path) = &self.address {
            // There is nobody to tell, and nothing else to do.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Shared {
    pub(super) fn weather(&self) -> watch::Receiver<Weather> {
        self.weather.subscribe()
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

/// Accepts.
struct House {
    listener: Listener,
    server: Address,
    shared: Arc<Shared>,
    ends: watch::Receiver<Ends>,
    rng: Rng,
}

impl House {
    /// # Cancel safety
    ///
    /// Dropped, all connections are cut.
    async fn serve(mut self) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok(client) => self.receive(client, &mut connections),
                    // One that went while it was accepted, or too many at once: the next comes.
                    Err(_) => tokio::task::yield_now().await,
                },
                // Those that have ended are cleared away.
                Some(_) = connections.join_next() => {}
            }
        }
    }

    fn receive(&mut self, client: Stream, connections: &mut JoinSet<()>) {
        lock(&self.shared.arrivals).push(Instant::now());
        let doors = *lock(&self.shared.doors);
        // What was ordered before it came is not meant for it.
        let mut ends = self.ends.clone();
        ends.mark_unchanged();
        let open = Open::new(&self.shared);
        match doors {
            Doors::Refusing => client.reset(),
            Doors::Mute => {
                connections.spawn(async move {
                    let _open = open;
                    link::ignore(client, ends).await;
                });
            }
            Doors::Open => {
                let (server, rng) = (self.server.clone(), self.rng.fork());
                let shared = Arc::clone(&self.shared);
                connections.spawn(async move {
                    let _open = open;
                    link::carry(client, &server, shared, ends, rng).await;
                });
            }
        }
    }
}

/// Counts an open connection, however it ends.
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
