//! What a network does to the bytes that it carries.

use std::time::Duration;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

/// What becomes of bytes on their way. The default is fair: they come at once and in one piece.
///
/// It holds for connections that are there already, from the next piece on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    /// How late everything comes, in each direction. Default: not at all.
    pub delay: Duration,
    /// By how much more, at most; drawn anew each time. Default: not at all.
    pub jitter: Duration,
    /// How many bytes a second it carries in each direction. Default: any number. 0 is taken as 1.
    pub bandwidth: Option<u64>,
    /// The most bytes that it carries in one piece. Default: any number. 0 is taken as 1.
    pub slice: Option<usize>,
    /// What goes this way is held back, though all stays connected; it comes when the weather
    /// changes. Default: nothing is.
    pub black_hole: Option<Direction>,
    /// Each connection is reset at this byte. Default: none is.
    pub cut_after: Option<CutAfter>,
}

/// The byte at which a connection is reset, counted from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutAfter {
    /// Which bytes are counted.
    pub direction: Direction,
    /// So many still arrive, and not one more.
    pub bytes: u64,
}

impl Weather {
    /// Nothing bad happens.
    pub fn fair() -> Self {
        Weather::default()
    }

    pub(super) fn holds_back(&self, direction: Direction) -> bool {
        self.black_hole == Some(direction)
    }

    /// How many of these bytes go in the next piece, after so many have gone that way.
    /// None, if the connection ends here.
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

    /// How long so many bytes take through a line of this width.
    pub(super) fn transmission(&self, bytes: usize) -> Duration {
        self.bandwidth.map_or(Duration::ZERO, |bandwidth| {
            let micros = (bytes as u64).saturating_mul(1_000_000) / bandwidth.max(1);
            Duration::from_micros(micros)
        })
    }
}

/// What awaits those who connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Doors {
    /// They are let through to the server.
    #[default]
    Open,
    /// They are accepted and reset at once.
    Refusing,
    /// They are accepted, and never get an answer. This stays so for those who came meanwhile.
    Mute,
}
