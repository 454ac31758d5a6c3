//! Histograms of durations.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Eight buckets for each power of two: a bucket is an eighth wide.
const SUB: u32 = 3;
const BUCKETS: usize = 64 << SUB;

/// A histogram of durations. Relaxed throughout: the numbers are independent.
#[derive(Debug)]
pub(crate) struct Latencies {
    buckets: [AtomicU64; BUCKETS],
    micros: AtomicU64,
    longest: AtomicU64,
}

/// Count, sum, mean, percentile and maximum of a histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencySummary {
    /// How many there are.
    pub count: u64,
    /// Their sum.
    pub sum: Duration,
    /// The mean.
    pub mean: Duration,
    /// The 99th percentile, at most an eighth too long.
    pub p99: Duration,
    /// The longest.
    pub max: Duration,
}

impl Default for Latencies {
    fn default() -> Self {
        Latencies {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            micros: AtomicU64::new(0),
            longest: AtomicU64::new(0),
        }
    }
}

impl Latencies {
    pub(crate) fn record(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.buckets[bucket(micros)].fetch_add(1, Relaxed);
        self.micros.fetch_add(micros, Relaxed);
        self.longest.fetch_max(micros, Relaxed);
    }

    pub(crate) fn summary(&self) -> LatencySummary {
        let buckets: Vec<u64> = self.buckets.iter().map(|n| n.load(Relaxed)).collect();
        let count: u64 = buckets.iter().sum();
        if count == 0 {
            return LatencySummary::default();
        }
        let rank = (count * 99).div_ceil(100);
        let mut seen = 0;
        let at = buckets.iter().position(|of_these| {
            seen += of_these;
            seen >= rank
        });
        let longest = self.longest.load(Relaxed);
        let p99 = at.map_or(longest, |at| end_of(at).min(longest));
        let sum = self.micros.load(Relaxed);
        LatencySummary {
            count,
            sum: Duration::from_micros(sum),
            mean: Duration::from_micros(sum / count),
            p99: Duration::from_micros(p99),
            max: Duration::from_micros(longest),
        }
    }
}

fn bucket(micros: u64) -> usize {
    let small = 1 << SUB;
    if micros < small {
        return usize::try_from(micros).unwrap_or(0);
    }
    let shift = micros.ilog2() - SUB;
    let within = usize::try_from((micros >> shift) - small).unwrap_or(0);
    (((shift + 1) as usize) << SUB) + within
}

/// The longest duration that belongs to this bucket.
fn end_of(bucket: usize) -> u64 {
    let small = 1usize << SUB;
    if bucket < small {
        return bucket as u64;
    }
    let shift = (bucket >> SUB) - 1;
    let next = ((bucket & (small - 1)) + small + 1) as u64;
    let end = u32::try_from(shift).ok().and_then(|shift| {
        // Shifted back to see whether anything was lost.
        let end = next.checked_shl(shift)?;
        (end >> shift == next).then_some(end)
    });
    end.map_or(u64::MAX, |end| end - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_within_an_eighth_of_its_buckets_end() {
        for shift in 0..63 {
            for offset in [0_u64, 1, 5] {
                let micros = (1_u64 << shift) + offset.min((1 << shift) - 1);
                let end = end_of(bucket(micros));
                assert!(end >= micros, "{micros} is above {end}");
                assert!(end - micros <= micros / 8, "{micros} is far from {end}");
            }
        }
        assert_eq!(end_of(bucket(u64::MAX)), u64::MAX);
    }

    #[test]
    fn mean_and_longest_are_exact_and_the_99th_is_near() {
        let histogram = Latencies::default();
        assert_eq!(histogram.summary(), LatencySummary::default());
        for millis in 1..=100 {
            histogram.record(Duration::from_millis(millis));
        }
        let times = histogram.summary();
        assert_eq!(times.mean, Duration::from_micros(50_500));
        assert_eq!(times.max, Duration::from_millis(100));
        assert!(times.p99 >= Duration::from_millis(99) && times.p99 <= times.max);
    }
}
