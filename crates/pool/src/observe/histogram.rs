//! Histograms of durations, with buckets that are at most a quarter wide.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Two bits below the leading one: four buckets for each power of two.
const SUB: u32 = 2;
const BUCKETS: usize = 64 << SUB;

/// A live histogram. Relaxed throughout: the numbers are independent of each other.
#[derive(Debug)]
pub(crate) struct Live {
    buckets: [AtomicU64; BUCKETS],
    sum: AtomicU64,
    max: AtomicU64,
}

impl Default for Live {
    fn default() -> Self {
        Live {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            sum: AtomicU64::new(0),
            max: AtomicU64::new(0),
        }
    }
}

impl Live {
    pub(crate) fn record(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(nanos)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(nanos, Ordering::Relaxed);
        self.max.fetch_max(nanos, Ordering::Relaxed);
    }

    fn snapshot(&self) -> Histogram {
        Histogram {
            buckets: self
                .buckets
                .iter()
                .map(|b| b.load(Ordering::Relaxed))
                .collect(),
            sum: self.sum.load(Ordering::Relaxed),
            max: self.max.load(Ordering::Relaxed),
        }
    }
}

/// The live histograms of a pool.
#[derive(Debug, Default)]
pub(crate) struct Histograms {
    pub(crate) wait: Live,
    pub(crate) create: Live,
    pub(crate) check: Live,
    pub(crate) usage: Live,
}

impl Histograms {
    pub(crate) fn snapshot(&self) -> Timings {
        let Histograms {
            wait,
            create,
            check,
            usage,
        } = self;
        Timings {
            wait: wait.snapshot(),
            create: create.snapshot(),
            check: check.snapshot(),
            usage: usage.snapshot(),
        }
    }
}

/// Histograms of a pool; see [`Pool::timings`](crate::Pool::timings).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Timings {
    /// From the start of an acquire to its lease.
    pub wait: Histogram,
    /// Creations that succeeded.
    pub create: Histogram,
    /// The acquire hook.
    pub check: Histogram,
    /// From the beginning of a lease to its end.
    pub usage: Histogram,
}

/// A distribution of durations, exact to a quarter.
#[derive(Clone, Debug)]
pub struct Histogram {
    buckets: Vec<u64>,
    sum: u64,
    max: u64,
}

impl Histogram {
    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the sum of the durations.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum)
    }

    /// Returns the longest duration.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max)
    }

    /// Returns the duration that this share (0.0 to 1.0) of the durations did not exceed, rounded up to the
    /// end of its bucket; zero if there are none.
    pub fn quantile(&self, share: f64) -> Duration {
        let count = self.count();
        // Counts are below 2^52, and a share of a count is not more than the count.
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a count"
        )]
        let rank = ((count as f64) * share.clamp(0.0, 1.0)).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (index, of_these) in self.buckets.iter().enumerate() {
            seen += of_these;
            if seen >= rank {
                return Duration::from_nanos(upper_bound(index).min(self.max));
            }
        }
        Duration::ZERO
    }
}

fn bucket(nanos: u64) -> usize {
    let small = 1 << SUB;
    if nanos < small {
        return usize::try_from(nanos).unwrap_or(0);
    }
    let shift = nanos.ilog2() - SUB;
    let within = usize::try_from((nanos >> shift) - small).unwrap_or(0);
    (((shift + 1) as usize) << SUB) + within
}

fn upper_bound(index: usize) -> u64 {
    let small = 1usize << SUB;
    if index < small {
        return index as u64;
    }
    let shift = (index >> SUB) - 1;
    let first = ((index & (small - 1)) + small) as u64;
    first
        .checked_add(1)
        .and_then(|next| next.checked_shl(u32::try_from(shift).unwrap_or(64)))
        .map_or(u64::MAX, |end| end.wrapping_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_below_its_bucket_end_and_within_a_quarter() {
        for shift in 0..63 {
            for offset in [0u64, 1, 3] {
                let nanos = (1u64 << shift) + offset.min((1 << shift) - 1);
                let end = upper_bound(bucket(nanos));
                assert!(end >= nanos, "{nanos} is above {end}");
                assert!(end - nanos <= nanos / 4, "{nanos} is far from {end}");
            }
        }
        assert_eq!(upper_bound(bucket(u64::MAX)), u64::MAX);
    }

    #[test]
    fn quantiles_come_in_order_and_end_at_the_longest() {
        let live = Live::default();
        for millis in 1..=100 {
            live.record(Duration::from_millis(millis));
        }
        let histogram = live.snapshot();
        assert_eq!(histogram.count(), 100);
        assert_eq!(histogram.quantile(1.0), Duration::from_millis(100));
        assert_eq!(histogram.max(), Duration::from_millis(100));
        let median = histogram.quantile(0.5);
        assert!(median >= Duration::from_millis(50) && median <= Duration::from_millis(63));
        assert!(histogram.quantile(0.0) <= median);
    }
}
