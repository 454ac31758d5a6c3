//! Which pool size to measure next: a pure state machine. First doubling, then halving the gap below the knee, then
//! rounds over the sizes around it in random order, until the knee is certain or nothing more can be learnt.
//!
//! Each round measures all its sizes once, so that a load that comes and goes on the machine slows all of them alike.

use std::collections::VecDeque;

use fastrand::Rng;

use crate::estimate::{Estimate, estimate};

/// The fewest and the most rounds.
const FEWEST_ROUNDS: usize = 3;
const MOST_ROUNDS: usize = 12;
/// From this confidence on, no more rounds are needed.
const CERTAIN: f64 = 0.95;

/// What was measured and what comes next.
#[derive(Clone, Debug)]
pub struct Ramp {
    most: usize,
    samples: Vec<(usize, f64)>,
    /// The sizes of the current round that are left.
    round: VecDeque<usize>,
    rounds: usize,
    random: Rng,
}

impl Ramp {
    /// Returns a ramp from 1 to `most` connections, at least 1. The seed decides about the order in a round.
    pub fn new(most: usize, seed: u64) -> Self {
        Ramp {
            most: most.max(1),
            samples: Vec::new(),
            round: VecDeque::new(),
            rounds: 0,
            random: Rng::with_seed(seed),
        }
    }

    /// Returns the largest size.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Returns the sizes and their throughputs, in the order of the measurements.
    pub fn samples(&self) -> &[(usize, f64)] {
        &self.samples
    }

    /// Notes a measurement.
    pub fn add(&mut self, size: usize, throughput: f64) {
        self.samples.push((size, throughput));
    }

    /// Notes that there cannot be more than `most` connections, at least 1.
    pub fn limit(&mut self, most: usize) {
        self.most = self.most.min(most.max(1));
        self.samples.retain(|(size, _)| *size <= self.most);
        self.round.retain(|size| *size <= self.most);
    }

    /// Returns the size to measure next; `None` if nothing more can be learnt.
    pub fn next_size(&mut self) -> Option<usize> {
        if self.rounds == 0
            && let Some(size) = self.doubling().or_else(|| self.halving())
        {
            return Some(size);
        }
        if self.round.is_empty() {
            if self.is_done() {
                return None;
            }
            self.rounds += 1;
            let mut sizes = self.around_the_knee();
            self.random.shuffle(&mut sizes);
            self.round = sizes.into();
        }
        self.round.pop_front()
    }

    /// The next power of two, unless the curve has been flat for two of them.
    fn doubling(&self) -> Option<usize> {
        let Some(largest) = self.samples.iter().map(|(size, _)| *size).max() else {
            return Some(1);
        };
        let flat = self
            .estimate()
            .is_some_and(|found| found.is_reached && largest >= 8 && largest >= 4 * found.size);
        let next = (largest * 2).min(self.most);
        (!flat && next > largest).then_some(next)
    }

    /// The middle of the gap between the knee and the size below it, while that is wide.
    fn halving(&self) -> Option<usize> {
        let knee = self.estimate()?.size;
        let below = self
            .samples
            .iter()
            .map(|(size, _)| *size)
            .filter(|size| *size < knee)
            .max()?;
        (knee - below > coarseness(knee)).then(|| below + (knee - below) / 2)
    }

    fn around_the_knee(&self) -> Vec<usize> {
        let knee = self.estimate().map_or(1, |found| found.size);
        let step = coarseness(knee);
        let mut sizes: Vec<usize> = [2, 1]
            .iter()
            .filter_map(|back| knee.checked_sub(back * step))
            .collect();
        sizes.extend([knee, knee + step, knee + 2 * step, knee * 2, knee * 4]);
        sizes.retain(|size| (1..=self.most).contains(size));
        // Small sizes again: their first measurement may have met a busy moment of the machine.
        sizes.extend([1, knee.div_ceil(2), self.most.min(knee * 4)]);
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    fn is_done(&self) -> bool {
        if self.most == 1 {
            return self.rounds >= FEWEST_ROUNDS;
        }
        let certain = self
            .estimate()
            .is_some_and(|found| found.confidence >= CERTAIN);
        self.rounds >= MOST_ROUNDS || (self.rounds >= FEWEST_ROUNDS && certain)
    }

    /// Returns the knee as far as it is known.
    pub fn estimate(&self) -> Option<Estimate> {
        estimate(&self.samples)
    }
}

/// How exactly a knee can be known: to one connection up to 15, then to an eighth.
pub(crate) fn coarseness(knee: usize) -> usize {
    (knee / 8).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a ramp on a server with a known curve, with noise that is up to this share. Returns the knee and the number of
    /// measurements.
    fn measured(
        curve: impl Fn(f64) -> f64,
        noise: f64,
        most: usize,
        seed: u64,
    ) -> (Estimate, usize) {
        let mut random = Rng::with_seed(seed);
        let mut ramp = Ramp::new(most, seed);
        let mut count = 0;
        while let Some(size) = ramp.next_size() {
            assert!((1..=most).contains(&size), "{size}");
            #[allow(clippy::cast_precision_loss, reason = "a small number")]
            let exact = curve(size as f64);
            ramp.add(size, exact * (1.0 + noise * (random.f64() * 2.0 - 1.0)));
            count += 1;
            assert!(count <= 120, "it does not end");
        }
        (ramp.estimate().unwrap(), count)
    }

    #[test]
    fn places_of_a_server_are_found_within_one() {
        for places in 1..=12_u32 {
            for seed in 0..10 {
                let (found, _) = measured(|n| n.min(f64::from(places)), 0.03, 64, seed);
                let off = found.size.abs_diff(places as usize);
                assert!(off <= 1 && found.is_reached, "{places} {seed}: {found:?}");
            }
        }
    }

    #[test]
    fn many_places_are_found_within_an_eighth() {
        for places in [20_u32, 32, 50, 100] {
            for seed in 0..10 {
                let (found, _) = measured(|n| n.min(f64::from(places)), 0.02, 512, seed);
                let off = found.size.abs_diff(places as usize);
                assert!(off <= places as usize / 8 + 1, "{places} {seed}: {found:?}");
            }
        }
    }

    #[test]
    fn quiet_machine_needs_few_measurements() {
        let (found, count) = measured(|n| n.min(4.0), 0.005, 64, 3);
        assert_eq!(found.size, 4);
        assert!(found.confidence > 0.99 && found.noise < 0.01, "{found:?}");
        assert!(count <= 30, "{count}");
    }

    #[test]
    fn great_noise_is_said_and_the_ramp_ends() {
        let (found, _) = measured(|n| n.min(6.0), 0.5, 64, 5);
        assert!(found.noise > 0.1, "{found:?}");
        assert!(found.is_noisy(), "{found:?}");
    }

    #[test]
    fn growth_to_the_end_is_not_called_a_knee() {
        let (found, _) = measured(|n| n, 0.02, 16, 5);
        assert!(!found.is_reached, "{found:?}");
        let (one, count) = measured(|_| 1.0, 0.0, 1, 5);
        assert_eq!((one.size, one.is_reached), (1, false));
        assert!(count <= 6, "{count}");
    }

    #[test]
    fn server_that_refuses_connections_ends_the_ramp_there() {
        let mut ramp = Ramp::new(64, 1);
        while let Some(size) = ramp.next_size() {
            if size > 5 {
                ramp.limit(5);
                continue;
            }
            #[allow(clippy::cast_precision_loss, reason = "a small number")]
            ramp.add(size, size as f64);
        }
        assert_eq!(ramp.most(), 5);
        assert_eq!(ramp.estimate().unwrap().size, 5);
    }

    #[test]
    fn nothing_done_ends_the_ramp() {
        let mut ramp = Ramp::new(8, 1);
        let mut count = 0;
        while let Some(size) = ramp.next_size() {
            ramp.add(size, 0.0);
            count += 1;
        }
        assert!(ramp.estimate().is_none());
        assert!(count < 100, "{count}");
    }
}
