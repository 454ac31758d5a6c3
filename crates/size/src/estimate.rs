//! The knee of measured samples, and how certain it is: medians of the repeats, and a bootstrap over them.

use std::collections::BTreeMap;

use cenote_dashboard::sizing::curve::{Knee, Point, knee, median, spread, standard_error};
use fastrand::Rng;

use crate::ramp::coarseness;

/// How many times the bootstrap draws the samples anew.
const DRAWS: usize = 400;
/// Below this confidence, or above this noise, the machine was too busy for a verdict.
const UNCERTAIN: f64 = 0.7;
const NOISY: f64 = 0.15;

/// Where throughput stops to grow.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// The fewest connections that reach 95 % of the plateau.
    pub size: usize,
    /// Nine of ten draws of the bootstrap lie from here.
    pub low: usize,
    /// To here.
    pub high: usize,
    /// The share of the draws that are within one connection of `size`, or within an eighth of many.
    pub confidence: f64,
    /// How far repeats of one size usually lie from their median, as a share of it.
    pub noise: f64,
    /// The throughput of the plateau.
    pub plateau: f64,
    /// There are measurements far enough beyond: the curve is flat there.
    pub is_reached: bool,
}

impl Estimate {
    /// Returns whether the repeats differ too much for a verdict.
    pub fn is_noisy(&self) -> bool {
        self.confidence < UNCERTAIN || self.noise > NOISY
    }
}

/// Finds the knee of samples: sizes with their throughputs. `None` if nothing was done.
///
/// Once sizes were repeated, those that were measured once no longer count: a single lucky measurement is no knee.
pub fn estimate(samples: &[(usize, f64)]) -> Option<Estimate> {
    let groups = groups(samples);
    let noise = noise(&groups);
    let Knee {
        connections,
        plateau,
        is_reached,
    } = knee(&points(&groups, noise, median))?;
    // A seed of its own: the same samples give the same estimate.
    let mut random = Rng::with_seed(samples.len() as u64);
    let mut drawn: Vec<usize> = (0..DRAWS)
        .filter_map(|_| {
            let redrawn = points(&groups, noise, |of| {
                let drawn = of.iter().map(|_| of[random.usize(..of.len())]);
                median(&drawn.collect::<Vec<_>>())
            });
            Some(knee(&redrawn)?.connections)
        })
        .collect();
    drawn.sort_unstable();
    let near = |size: &&usize| size.abs_diff(connections) <= coarseness(connections);
    #[allow(clippy::cast_precision_loss, reason = "some hundreds")]
    let confidence = drawn.iter().filter(near).count() as f64 / drawn.len().max(1) as f64;
    let at = |percent: usize| {
        drawn
            .get(drawn.len() * percent / 100)
            .copied()
            .unwrap_or(connections)
    };
    Some(Estimate {
        size: connections,
        low: at(5).min(connections),
        high: at(95).max(connections),
        // One measurement of each size says nothing about their spread.
        confidence: if groups.values().any(|of| of.len() > 1) {
            confidence
        } else {
            0.0
        },
        noise,
        plateau,
        is_reached,
    })
}

fn groups(samples: &[(usize, f64)]) -> BTreeMap<usize, Vec<f64>> {
    let mut groups: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for (size, throughput) in samples {
        groups.entry(*size).or_default().push(*throughput);
    }
    let most = groups.values().map(Vec::len).max().unwrap_or(0);
    if most >= 3 {
        groups.retain(|_, of| of.len() > 1);
    }
    groups
}

fn points(
    groups: &BTreeMap<usize, Vec<f64>>,
    noise: f64,
    mut middle: impl FnMut(&[f64]) -> f64,
) -> Vec<Point> {
    let points = groups.iter().map(|(&connections, of)| Point {
        connections,
        throughput: middle(of),
        // The noise of all sizes: that of a few repeats would be too uncertain itself.
        error: standard_error(noise, of.len()),
    });
    points.collect()
}

/// The median over the sizes of the spread of their repeats; of two repeats where there are no more.
fn noise(groups: &BTreeMap<usize, Vec<f64>>) -> f64 {
    let most = groups.values().map(Vec::len).max().unwrap_or(0);
    let repeated = groups.values().filter(|of| of.len() >= most.clamp(2, 3));
    median(&repeated.map(|of| spread(of)).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_samples_give_the_same_estimate() {
        let samples: Vec<(usize, f64)> = (0..30)
            .map(|at| (1 + at % 6, f64::from(u8::try_from(at % 7).unwrap())))
            .collect();
        assert_eq!(estimate(&samples), estimate(&samples));
    }

    #[test]
    fn one_measurement_of_each_size_is_no_confidence() {
        let found = estimate(&[(1, 1.0), (2, 2.0), (4, 2.0), (8, 2.0)]).unwrap();
        assert_eq!((found.size, found.confidence), (2, 0.0));
        assert!(found.is_noisy());
        assert_eq!(estimate(&[]), None);
    }

    #[test]
    fn estimate_lies_between_its_bounds() {
        let mut random = Rng::with_seed(3);
        for _ in 0..200 {
            let samples: Vec<(usize, f64)> = (0..random.usize(1..40))
                .map(|_| (random.usize(1..20), random.f64() * 100.0))
                .collect();
            let Some(found) = estimate(&samples) else {
                continue;
            };
            assert!(
                found.low <= found.size && found.size <= found.high,
                "{found:?}"
            );
            assert!(
                (0.0..=1.0).contains(&found.confidence) && found.noise >= 0.0,
                "{found:?}"
            );
            assert!(samples.iter().any(|(size, _)| *size == found.size));
        }
    }
}
