//! One connection through a proxy, from its accept to its end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::sync::watch;
use tokio::time::Instant;

use super::address::{Address, Stream};
use super::front::Shared;
use super::line::{FarEnd, NearEnd, line};
use super::network::{Direction, Network};

/// The most bytes of one read.
pub(super) const CHUNK: usize = 16 * 1024;

/// How the test ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Closes it.
    Cut,
    /// Resets it: both sides get an error.
    Reset,
}

/// The number of ends that the test has ordered, and the last of them.
pub(super) type Ends = (u64, End);

/// Forwards bytes in both directions until both sides have closed or the test orders an end.
///
/// # Cancel safety
///
/// Dropped, both sides are closed.
pub(super) async fn carry(
    client: Stream,
    server: &Address,
    shared: Arc<Shared>,
    mut ends: watch::Receiver<Ends>,
    mut rng: Rng,
) {
    let Ok(server) = server.connect().await else {
        // To the client this is a server that refuses.
        return client.reset();
    };
    let (mut from_client, mut to_client) = split(client);
    let (mut from_server, mut to_server) = split(server);
    let mut there = Way::new(Direction::ToServer, &shared, rng.fork());
    let mut back = Way::new(Direction::ToClient, &shared, rng.fork());
    let carried = async {
        tokio::try_join!(
            there.carry(&mut from_client, &mut to_server),
            back.carry(&mut from_server, &mut to_client),
        )
    };
    let end = tokio::select! {
        ended = carried => match ended {
            Ok(_) => End::Cut,
            // One side is lost, so the other is reset.
            Err(_) => End::Reset,
        },
        end = ordered(&mut ends) => end,
    };
    if end == End::Reset {
        from_client.unsplit(to_client).reset();
        from_server.unsplit(to_server).reset();
    }
}

/// Reads and never answers, until the client closes or the test orders an end.
///
/// # Cancel safety
///
/// Dropped, the connection is closed.
pub(super) async fn ignore(mut client: Stream, mut ends: watch::Receiver<Ends>) {
    let mut bytes = [0; 1024];
    let talk = async { while client.read(&mut bytes).await.is_ok_and(|read| read > 0) {} };
    let end = tokio::select! {
        () = talk => End::Cut,
        end = ordered(&mut ends) => end,
    };
    if end == End::Reset {
        client.reset();
    }
}

async fn ordered(ends: &mut watch::Receiver<Ends>) -> End {
    match ends.changed().await {
        Ok(()) => ends.borrow_and_update().1,
        // The proxy is gone.
        Err(_) => End::Cut,
    }
}

/// One direction of a connection: a reader and a writer with a [`line`] in between.
struct Way<'s> {
    direction: Direction,
    shared: &'s Shared,
    network: watch::Receiver<Network>,
    rng: Rng,
}

impl<'s> Way<'s> {
    fn new(direction: Direction, shared: &'s Shared, rng: Rng) -> Self {
        Way {
            direction,
            shared,
            network: shared.network(),
            rng,
        }
    }

    /// Forwards bytes until the sender closes; then closes the other side as well.
    ///
    /// # Cancel safety
    ///
    /// Dropped, bytes that were read and not yet written are lost, as on a broken connection.
    async fn carry(
        &mut self,
        from: &mut ReadHalf<Stream>,
        to: &mut WriteHalf<Stream>,
    ) -> io::Result<()> {
        let (near, far) = line();
        let mut exit = Exit {
            direction: self.direction,
            shared: self.shared,
            network: self.network.clone(),
            gone: 0,
        };
        tokio::try_join!(self.read(from, near), exit.write(far, to))?;
        Ok(())
    }

    /// Reads until the sender closes or is lost, and puts what arrives on the line.
    async fn read(&mut self, from: &mut ReadHalf<Stream>, mut near: NearEnd) -> io::Result<()> {
        let mut bytes = vec![0; CHUNK];
        let mut has_greeted = false;
        loop {
            let is_delayed = self.network.borrow_and_update().is_delayed();
            let mut room = near.room(is_delayed).await;
            let read = from.read(&mut bytes).await;
            let network = *self.network.borrow_and_update();
            if network.is_delayed() {
                room.share(read.as_ref().map_or(0, |read| *read));
            }
            let delay = network.delay + network.jitter.mul_f64(self.rng.f64());
            let bytes = match read {
                Ok(read) => &bytes[..read],
                Err(lost) => {
                    near.put(delay, room, Err(lost));
                    return Ok(());
                }
            };
            if self.direction == Direction::ToServer && !has_greeted && !bytes.is_empty() {
                self.shared.has_greeted(bytes);
                has_greeted = true;
            }
            self.shared.has_read(self.direction, bytes.len());
            near.put(delay, room, Ok(bytes.to_vec()));
            if bytes.is_empty() {
                return Ok(());
            }
        }
    }
}

/// The end of a direction at which bytes leave the proxy.
struct Exit<'s> {
    direction: Direction,
    shared: &'s Shared,
    network: watch::Receiver<Network>,
    /// The bytes forwarded so far.
    gone: u64,
}

impl Exit<'_> {
    /// Writes what arrives at the end of the line.
    async fn write(&mut self, mut far: FarEnd, to: &mut WriteHalf<Stream>) -> io::Result<()> {
        while let Some(arrived) = far.next().await {
            let bytes = arrived.bytes?;
            if bytes.is_empty() {
                self.way_is_free().await?;
                return to.shutdown().await;
            }
            let mut left = &bytes[..];
            while !left.is_empty() {
                left = self.send_piece(left, to).await?;
            }
        }
        Ok(())
    }

    /// Sends the next piece and returns the rest.
    async fn send_piece<'b>(
        &mut self,
        bytes: &'b [u8],
        to: &mut WriteHalf<Stream>,
    ) -> io::Result<&'b [u8]> {
        let network = self.way_is_free().await?;
        let piece = network
            .piece(self.direction, self.gone, bytes.len())
            .ok_or(io::ErrorKind::ConnectionReset)?;
        wait(network.transmission(piece)).await;
        let (piece, rest) = bytes.split_at(piece);
        to.write_all(piece).await?;
        self.gone += piece.len() as u64;
        self.shared.has_sent(self.direction, piece.len());
        if !rest.is_empty() {
            // So that the reader can see the piece alone.
            tokio::task::yield_now().await;
        }
        Ok(rest)
    }

    /// Waits while bytes of this direction are withheld.
    async fn way_is_free(&mut self) -> io::Result<Network> {
        let direction = self.direction;
        let free = self
            .network
            .wait_for(|network| !network.holds_back(direction));
        free.await.map(|network| *network).map_err(io::Error::other)
    }
}

/// Sleeps, unless the time is zero.
async fn wait(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep_until(Instant::now() + time).await;
    }
}
