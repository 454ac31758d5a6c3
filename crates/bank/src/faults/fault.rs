//! The kinds of faults, and the order in which they come.

use fastrand::Rng;
use serde::{Serialize, Serializer};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The server kills sessions.
    KillBackends,
    /// The network closes every connection.
    Cut,
    /// The network resets every connection.
    Reset,
    /// The network closes each connection after some bytes.
    CutAtByte,
    /// The network is slow.
    Delay,
    /// The network has little bandwidth.
    Throttle,
    /// The network delivers single bytes.
    SingleBytes,
    /// The network loses everything in one direction.
    BlackHole,
    /// New connections get no answer.
    Mute,
    /// New connections are refused.
    Refuse,
    /// The server restarts in order.
    Restart,
    /// The server is killed and starts again.
    Crash,
    /// The server's processes are stopped for a while.
    Freeze,
    /// The injector holds every connection of the pool.
    ExhaustPool,
    /// The pool's breaker opens.
    OpenBreaker,
    /// The pool gets another size.
    Resize,
    /// `Db::replace_all`.
    ReplaceAll,
    /// The injector locks every account.
    LockAll,
    /// The primary of the cluster is killed, and a standby promoted.
    KillPrimary,
    /// The primary of the cluster is stopped, a standby promoted, and the old primary wakes up.
    FreezePrimary,
    /// The primary of the cluster shuts down in order, and a standby is promoted.
    SwitchOver,
    /// A standby of the cluster is killed and starts again.
    KillStandby,
    /// All hosts of the cluster restart, one after the other.
    Roll,
}

/// What the injector needs for a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    /// A `Db`.
    Nothing,
    /// A server whose sessions can be killed.
    Sessions,
    /// A proxy in front of the server.
    Network,
    /// The server's process.
    Process,
    /// A cluster with a primary and standbys.
    Cluster,
}

/// Every kind of fault.
pub const FAULTS: [Fault; 23] = [
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
    Fault::ReplaceAll,
    Fault::LockAll,
    Fault::KillPrimary,
    Fault::FreezePrimary,
    Fault::SwitchOver,
    Fault::KillStandby,
    Fault::Roll,
];

impl Fault {
    /// Returns its name on the command line and in JSON.
    pub fn key(self) -> &'static str {
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
            Fault::ReplaceAll => "replace_all",
            Fault::LockAll => "lock_all",
            Fault::KillPrimary => "kill_primary",
            Fault::FreezePrimary => "freeze_primary",
            Fault::SwitchOver => "switch_over",
            Fault::KillStandby => "kill_standby",
            Fault::Roll => "roll",
        }
    }

    /// Returns its name for people.
    pub fn name(self) -> &'static str {
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
            Fault::ReplaceAll => "pool replaced",
            Fault::LockAll => "all accounts locked",
            Fault::KillPrimary => "primary killed",
            Fault::FreezePrimary => "primary frozen",
            Fault::SwitchOver => "switch-over",
            Fault::KillStandby => "standby killed",
            Fault::Roll => "hosts restarted",
        }
    }

    pub(super) fn needs(self) -> Needs {
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
            | Fault::ReplaceAll
            | Fault::LockAll => Needs::Nothing,
            Fault::KillPrimary
            | Fault::FreezePrimary
            | Fault::SwitchOver
            | Fault::KillStandby
            | Fault::Roll => Needs::Cluster,
        }
    }

    /// Whether other faults can be injected while it lasts: only the clients notice it.
    pub(crate) fn is_lasting(self) -> bool {
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

impl Serialize for Fault {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.key())
    }
}

/// Faults in a random order: every kind once, then every kind once more.
#[derive(Debug)]
pub(super) struct Schedule {
    kinds: Vec<Fault>,
    left: Vec<Fault>,
}

impl Schedule {
    pub(super) fn new(kinds: Vec<Fault>) -> Self {
        Schedule {
            kinds,
            left: Vec::new(),
        }
    }

    /// Returns the next fault.
    pub(super) fn next(&mut self, rng: &mut Rng) -> Option<Fault> {
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
    fn every_round_has_every_kind_in_an_order_by_the_seed() {
        let rounds = |seed| {
            let mut rng = Rng::with_seed(seed);
            let mut schedule = Schedule::new(FAULTS.to_vec());
            let draws = std::iter::repeat_with(|| schedule.next(&mut rng).unwrap());
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
