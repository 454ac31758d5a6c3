//! A bad day of a network, written down: so that it can be repeated.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::Instant;

use super::front::Proxy;
use super::weather::{CutAfter, Direction, Doors, Weather};

/// One thing that goes wrong, or right again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The weather changes.
    Weather(Weather),
    /// Those who connect find other doors.
    Doors(Doors),
    /// All connections are closed.
    Cut,
    /// All connections are reset.
    Reset,
    /// Fair weather, and open doors.
    Heal,
}

/// A fault, and how long after the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// How long nothing changes before it.
    pub after: Duration,
    /// What happens then.
    pub fault: Fault,
}

/// Faults in their order. Its `Display` is what a failing test should print: one line a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    steps: Vec<Step>,
}

impl Script {
    /// Nothing happens.
    pub fn new() -> Self {
        Script::default()
    }

    /// And then, after so long, this.
    #[must_use]
    pub fn then(mut self, after: Duration, fault: Fault) -> Self {
        self.steps.push(Step { after, fault });
        self
    }

    /// Draws faults of every kind from a seed, for about so long. Each lasts for up to 200 ms; all
    /// is well between them, and at the end. The same seed gives the same script.
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

    /// Its steps.
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
    /// Draws one that is no `Heal`.
    fn draw(rng: &mut Rng) -> Self {
        let weather = match rng.u8(..9) {
            0 => return Fault::Cut,
            1 => return Fault::Reset,
            2 => return Fault::Doors(Doors::Refusing),
            3 => return Fault::Doors(Doors::Mute),
            4 => Weather {
                delay: brief(rng) / 4,
                jitter: brief(rng) / 4,
                ..Weather::fair()
            },
            5 => Weather {
                bandwidth: Some(rng.u64(2_000..200_000)),
                ..Weather::fair()
            },
            6 => Weather {
                slice: Some(rng.usize(1..=8)),
                ..Weather::fair()
            },
            7 => Weather {
                black_hole: Some(direction(rng)),
                ..Weather::fair()
            },
            _ => Weather {
                cut_after: Some(CutAfter {
                    direction: direction(rng),
                    bytes: rng.u64(..20_000),
                }),
                ..Weather::fair()
            },
        };
        Fault::Weather(weather)
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
    /// Does this to the network.
    pub fn inflict(&self, fault: Fault) {
        match fault {
            Fault::Weather(weather) => self.set(weather),
            Fault::Doors(doors) => self.doors(doors),
            Fault::Cut => self.cut(),
            Fault::Reset => self.reset(),
            Fault::Heal => self.heal(),
        }
    }

    /// Plays a script from its beginning to its end.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it stays as the last step left it.
    pub async fn play(&self, script: &Script) {
        let mut due = Instant::now();
        for Step { after, fault } in script.steps() {
            due += *after;
            tokio::time::sleep_until(due).await;
            self.inflict(*fault);
        }
    }
}
