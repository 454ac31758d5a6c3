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
use super::weather::{Direction, Weather};

/// What is read at once.
const CHUNK: usize = 16 * 1024;

/// How a connection ends before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// As if the other side had closed it.
    Cut,
    /// With an error.
    Reset,
}

/// The last end that was ordered, and the how-manieth it was.
pub(super) type Ends = (u64, End);

/// Carries bytes both ways, until both sides have said goodbye or an end is ordered.
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
        // As good as no server.
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
            // One side is gone: so is the other.
            Err(_) => End::Reset,
        },
        end = ordered(&mut ends) => end,
    };
    if end == End::Reset {
        from_client.unsplit(to_client).reset();
        from_server.unsplit(to_server).reset();
    }
}

/// Lets somebody say what they like and never answers, until they go or an end is ordered.
///
/// # Cancel safety
///
/// Dropped, the client is cut off.
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

/// One of the two ways of a connection.
struct Way<'s> {
    direction: Direction,
    shared: &'s Shared,
    weather: watch::Receiver<Weather>,
    /// How many bytes have gone this way.
    gone: u64,
    rng: Rng,
}

impl<'s> Way<'s> {
    fn new(direction: Direction, shared: &'s Shared, rng: Rng) -> Self {
        Way {
            direction,
            shared,
            weather: shared.weather(),
            gone: 0,
            rng,
        }
    }

    /// Until the one side has said goodbye, which is passed on.
    ///
    /// # Cancel safety
    ///
    /// Dropped, what was read and not yet written is lost, as it is on a line that is cut.
    async fn carry(
        &mut self,
        from: &mut ReadHalf<Stream>,
        to: &mut WriteHalf<Stream>,
    ) -> io::Result<()> {
        let mut bytes = vec![0; CHUNK];
        let mut has_greeted = false;
        loop {
            let read = from.read(&mut bytes).await?;
            if self.direction == Direction::ToServer && !has_greeted && read > 0 {
                self.shared.has_greeted(&bytes[..read]);
                has_greeted = true;
            }
            self.shared.has_read(self.direction, read);
            let weather = *self.weather.borrow_and_update();
            wait(weather.delay + weather.jitter.mul_f64(self.rng.f64())).await;
            let mut left = &bytes[..read];
            while !left.is_empty() {
                left = self.send_piece(left, to).await?;
            }
            if read == 0 {
                self.way_is_free().await?;
                return to.shutdown().await;
            }
        }
    }

    /// Sends what goes in one piece, and gives back the rest.
    async fn send_piece<'b>(
        &mut self,
        bytes: &'b [u8],
        to: &mut WriteHalf<Stream>,
    ) -> io::Result<&'b [u8]> {
        let weather = self.way_is_free().await?;
        let piece = weather
            .piece(self.direction, self.gone, bytes.len())
            .ok_or(io::ErrorKind::ConnectionReset)?;
        wait(weather.transmission(piece)).await;
        let (piece, rest) = bytes.split_at(piece);
        to.write_all(piece).await?;
        self.gone += piece.len() as u64;
        self.shared.has_sent(self.direction, piece.len());
        if !rest.is_empty() {
            // So that the reader has a chance to see it alone.
            tokio::task::yield_now().await;
        }
        Ok(rest)
    }

    /// Waits while this way is a black hole.
    async fn way_is_free(&mut self) -> io::Result<Weather> {
        let direction = self.direction;
        let free = self
            .weather
            .wait_for(|weather| !weather.holds_back(direction));
        free.await.map(|weather| *weather).map_err(io::Error::other)
    }
}

/// The time that bytes need on their way.
async fn wait(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep_until(Instant::now() + time).await;
    }
}
