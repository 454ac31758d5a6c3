//! The faults of a network: delays, limits, withheld bytes, resets.

use std::time::Duration;

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

/// What the network does to bytes. The default forwards them at once and in one piece.
///
/// A change also applies to open connections, from the next piece on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// How long everything is delayed, in each direction. Default: not at all. The throughput stays as it is: up to 1 MiB of each
    /// direction is on its way at once.
    pub delay: Duration,
    /// The longest random addition to `delay`, drawn for each read. Nothing overtakes what was read before. Default: none.
    pub jitter: Duration,
    /// Bytes per second in each direction. Default: no limit. 0 counts as 1.
    pub bandwidth: Option<u64>,
    /// The most bytes in one piece. Default: no limit. 0 counts as 1.
    pub slice: Option<usize>,
    /// Withholds the bytes of this direction while the connections stay open; a later change delivers them.
    /// Default: neither direction.
    pub black_hole: Option<Direction>,
    /// Resets each connection at this byte. Default: never.
    pub cut_after: Option<CutAfter>,
}

/// The byte at which a connection is reset, counted from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutAfter {
    /// The direction whose bytes count.
    pub direction: Direction,
    /// The number of bytes that still arrive.
    pub bytes: u64,
}

impl Network {
    /// Returns a network without faults.
    pub fn ideal() -> Self {
        Network::default()
    }

    /// Whether bytes spend time on their way.
    pub(super) fn is_delayed(&self) -> bool {
        !(self.delay.is_zero() && self.jitter.is_zero())
    }

    pub(super) fn holds_back(&self, direction: Direction) -> bool {
        self.black_hole == Some(direction)
    }

    /// Returns how many of the `left` bytes are in the next piece, after `gone` bytes in this direction. Returns
    /// `None` if the connection ends here.
    pub(super) fn piece(&self, direction: Direction, gone: u64, left: usize) -> Option<usize> {
        let piece = left.min(self.slice.unwrap_or(left).max(1));
        match self.cut_after {
            Some(cut) if cut.direction == direction => {
                let until_cut = cut.bytes.saturating_sub(gone);
                let until_cut = usize::try_from(until_cut).unwrap_or(usize::MAX);
                Some(piece.min(until_cut)).filter(|piece| *piece > 0)
            }
            _ => Some(piece),
        }
    }

    /// Returns how long the bandwidth delays these bytes.
    pub(super) fn transmission(&self, bytes: usize) -> Duration {
        self.bandwidth.map_or(Duration::ZERO, |bandwidth| {
            let micros = (bytes as u64).saturating_mul(1_000_000) / bandwidth.max(1);
            Duration::from_micros(micros)
        })
    }
}

/// What the proxy does with a new connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnConnect {
    /// Forwards it to the server.
    #[default]
    Forward,
    /// Accepts it and resets it at once.
    Reset,
    /// Accepts it and never answers, even after a later change of this setting.
    Ignore,
}
