//! Sequences of network faults that can be repeated.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::Instant;

use super::front::Proxy;
use super::network::{CutAfter, Direction, Network, OnConnect};

/// One change of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Sets the faults of the network.
    Network(Network),
    /// Sets what happens to new connections.
    OnConnect(OnConnect),
    /// Closes all connections.
    Cut,
    /// Resets all connections.
    Reset,
    /// Removes all faults: an ideal network, and new connections are forwarded.
    Heal,
}

/// A fault and the pause before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The pause after the step before.
    pub after: Duration,
    /// The change.
    pub fault: Fault,
}

/// A sequence of faults. `Display` prints one line per step, for the message of a failing test.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    steps: Vec<Step>,
}

impl Script {
    /// Returns a script without steps.
    pub fn new() -> Self {
        Script::default()
    }

    /// Adds a step: a fault after a pause.
    #[must_use]
    pub fn then(mut self, after: Duration, fault: Fault) -> Self {
        self.steps.push(Step { after, fault });
        self
    }

    /// Returns a script of random faults of every kind, of about this length. Each fault lasts up to 200 ms. Between
    /// faults and at the end the network is ideal. The same seed gives the same script.
    pub fn random(seed: u64, length: Duration) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut script = Script::new();
        let mut time = Duration::ZERO;
        while time < length {
            let (calm, bad) = (brief(&mut rng), brief(&mut rng));
            script = script
                .then(calm, Fault::draw(&mut rng))
                .then(bad, Fault::Heal);
            time += calm + bad;
        }
        script
    }

    /// Returns the steps.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }
}

impl fmt::Display for Script {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut time = Duration::ZERO;
        for Step { after, fault } in &self.steps {
            time += *after;
            writeln!(out, "{time:>10.1?}  {fault:?}")?;
        }
        Ok(())
    }
}

impl Fault {
    /// Draws a fault other than `Heal`.
    fn draw(rng: &mut Rng) -> Self {
        let network = match rng.u8(..9) {
            0 => return Fault::Cut,
            1 => return Fault::Reset,
            2 => return Fault::OnConnect(OnConnect::Reset),
            3 => return Fault::OnConnect(OnConnect::Ignore),
            4 => Network {
                delay: brief(rng) / 4,
                jitter: brief(rng) / 4,
                ..Network::ideal()
            },
            5 => Network {
                bandwidth: Some(rng.u64(2_000..200_000)),
                ..Network::ideal()
            },
            6 => Network {
                slice: Some(rng.usize(1..=8)),
                ..Network::ideal()
            },
            7 => Network {
                black_hole: Some(direction(rng)),
                ..Network::ideal()
            },
            _ => Network {
                cut_after: Some(CutAfter {
                    direction: direction(rng),
                    bytes: rng.u64(..20_000),
                }),
                ..Network::ideal()
            },
        };
        Fault::Network(network)
    }
}

fn brief(rng: &mut Rng) -> Duration {
    Duration::from_millis(rng.u64(5..=200))
}

fn direction(rng: &mut Rng) -> Direction {
    match rng.bool() {
        true => Direction::ToServer,
        false => Direction::ToClient,
    }
}

impl Proxy {
    /// Applies a fault now.
    pub fn inflict(&self, fault: Fault) {
        match fault {
            Fault::Network(network) => self.set(network),
            Fault::OnConnect(on_connect) => self.on_connect(on_connect),
            Fault::Cut => self.cut(),
            Fault::Reset => self.reset(),
            Fault::Heal => self.heal(),
        }
    }

    /// Applies the steps of a script, with their pauses.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the network stays as the last step left it.
    pub async fn play(&self, script: &Script) {
        let mut due = Instant::now();
        for Step { after, fault } in script.steps() {
            due += *after;
            tokio::time::sleep_until(due).await;
            self.inflict(*fault);
        }
    }
}
