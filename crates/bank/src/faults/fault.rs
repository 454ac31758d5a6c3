//! What can go wrong.

use fastrand::Rng;
use serde::{Serialize, Serializer};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    KillBackends,
    Cut,
    Reset,
    CutAtByte,
    Delay,
    Throttle,
    SingleBytes,
    BlackHole,
    Mute,
    Refuse,
    Restart,
    Crash,
    Freeze,
    ExhaustPool,
    OpenBreaker,
    Resize,
    Recycle,
    LockAll,
}

/// What a fault can only be made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// A `Db`.
    Nothing,
    /// A server whose sessions can be ended.
    Sessions,
    /// A network between the bank and its server.
    Network,
    /// The server's process.
    Process,
}

pub(crate) const FAULTS: [Fault; 18] = [
    Fault::KillBackends,
    Fault::Cut,
    Fault::Reset,
    Fault::CutAtByte,
    Fault::Delay,
    Fault::Throttle,
    Fault::SingleBytes,
    Fault::BlackHole,
    Fault::Mute,
    Fault::Refuse,
    Fault::Restart,
    Fault::Crash,
    Fault::Freeze,
    Fault::ExhaustPool,
    Fault::OpenBreaker,
    Fault::Resize,
    Fault::Recycle,
    Fault::LockAll,
];

impl Fault {
    /// What it is called by programs.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Fault::KillBackends => "kill_backends",
            Fault::Cut => "cut",
            Fault::Reset => "reset",
            Fault::CutAtByte => "cut_at_byte",
            Fault::Delay => "delay",
            Fault::Throttle => "throttle",
            Fault::SingleBytes => "single_bytes",
            Fault::BlackHole => "black_hole",
            Fault::Mute => "mute",
            Fault::Refuse => "refuse",
            Fault::Restart => "restart",
            Fault::Crash => "crash",
            Fault::Freeze => "freeze",
            Fault::ExhaustPool => "exhaust_pool",
            Fault::OpenBreaker => "open_breaker",
            Fault::Resize => "resize",
            Fault::Recycle => "recycle",
            Fault::LockAll => "lock_all",
        }
    }

    /// What it is called by people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Fault::KillBackends => "sessions killed",
            Fault::Cut => "network cut",
            Fault::Reset => "network reset",
            Fault::CutAtByte => "cut at a byte",
            Fault::Delay => "network slow",
            Fault::Throttle => "network narrow",
            Fault::SingleBytes => "byte by byte",
            Fault::BlackHole => "black hole",
            Fault::Mute => "mute server",
            Fault::Refuse => "refusing server",
            Fault::Restart => "server restarted",
            Fault::Crash => "server killed",
            Fault::Freeze => "server frozen",
            Fault::ExhaustPool => "pool exhausted",
            Fault::OpenBreaker => "breaker opened",
            Fault::Resize => "pool resized",
            Fault::Recycle => "pool recycled",
            Fault::LockAll => "all accounts locked",
        }
    }

    pub(crate) fn needs(self) -> Needs {
        match self {
            Fault::KillBackends => Needs::Sessions,
            Fault::Cut
            | Fault::Reset
            | Fault::CutAtByte
            | Fault::Delay
            | Fault::Throttle
            | Fault::SingleBytes
            | Fault::BlackHole
            | Fault::Mute
            | Fault::Refuse => Needs::Network,
            Fault::Restart | Fault::Crash | Fault::Freeze => Needs::Process,
            Fault::ExhaustPool
            | Fault::OpenBreaker
            | Fault::Resize
            | Fault::Recycle
            | Fault::LockAll => Needs::Nothing,
        }
    }
}

impl Serialize for Fault {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.key())
    }
}

impl Fault {
    /// It lasts until it is healed, and stops nobody but the clients.
    pub(crate) fn is_weather(self) -> bool {
        matches!(
            self,
            Fault::CutAtByte
                | Fault::Delay
                | Fault::Throttle
                | Fault::SingleBytes
                | Fault::BlackHole
        )
    }
}

/// Faults in an order that follows from a seed: every kind once, then every kind once more.
#[derive(Debug)]
pub(crate) struct Deck {
    kinds: Vec<Fault>,
    left: Vec<Fault>,
}

impl Deck {
    pub(crate) fn new(kinds: Vec<Fault>) -> Self {
        Deck {
            kinds,
            left: Vec::new(),
        }
    }

    /// The next one.
    pub(crate) fn draw(&mut self, rng: &mut Rng) -> Option<Fault> {
        if self.left.is_empty() {
            self.left.clone_from(&self.kinds);
            rng.shuffle(&mut self.left);
        }
        self.left.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_comes_up_once_in_a_round_in_an_order_that_follows_from_the_seed() {
        let rounds = |seed| {
            let mut rng = Rng::with_seed(seed);
            let mut deck = Deck::new(FAULTS.to_vec());
            let draws = std::iter::repeat_with(|| deck.draw(&mut rng).unwrap());
            draws.take(2 * FAULTS.len()).collect::<Vec<_>>()
        };
        assert_eq!(rounds(3), rounds(3));
        assert_ne!(rounds(3), rounds(4));
        for round in rounds(3).chunks(FAULTS.len()) {
            let mut sorted = round.to_vec();
            sorted.sort();
            assert_eq!(sorted, FAULTS, "one of each, in any order");
        }
    }

    #[test]
    fn no_two_kinds_have_the_same_name() {
        for name in [Fault::name, Fault::key] {
            let mut names: Vec<_> = FAULTS.iter().map(|fault| name(*fault)).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), FAULTS.len());
        }
    }
}
