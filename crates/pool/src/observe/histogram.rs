//! Histograms of durations, with buckets that are at most a quarter wide.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::core::slot::Slot;
use crate::core::{Core, Filled};
use crate::manager::Manager;

/// Two bits below the leading one: four buckets for each power of two.
const SUB: u32 = 2;
const BUCKETS: usize = 64 << SUB;

/// A histogram that any number of threads record into; [`snapshot`](LiveHistogram::snapshot) reads it.
///
/// It takes 2 KiB, whatever is recorded. The methods take no lock and allocate nothing, except for the snapshot.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use cenote_pool::LiveHistogram;
///
/// let requests = LiveHistogram::new();
/// requests.record(Duration::from_millis(3));
/// assert_eq!(requests.snapshot().count(), 1);
/// ```
// Relaxed throughout: the numbers are independent of each other.
pub struct LiveHistogram {
    buckets: [AtomicU64; BUCKETS],
    sum: AtomicU64,
    max: AtomicU64,
}

impl fmt::Debug for LiveHistogram {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.snapshot().fmt(out)
    }
}

impl Default for LiveHistogram {
    fn default() -> Self {
        LiveHistogram::new()
    }
}

impl LiveHistogram {
    /// Returns an empty histogram.
    pub const fn new() -> Self {
        LiveHistogram {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            sum: AtomicU64::new(0),
            max: AtomicU64::new(0),
        }
    }

    /// Adds a duration.
    pub fn record(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(nanos)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(nanos, Ordering::Relaxed);
        if nanos > self.max.load(Ordering::Relaxed) {
            self.max.fetch_max(nanos, Ordering::Relaxed);
        }
    }

    /// Returns what was recorded until now.
    pub fn snapshot(&self) -> Histogram {
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

/// What an acquire waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitCause {
    /// Another lease had to end.
    Queue,
    /// A resource had to be created.
    Creation,
    /// The acquire hook was pending, on a resource that was idle.
    Check,
}

/// The live histograms of a pool.
#[derive(Debug)]
pub(crate) struct Histograms {
    /// Sampled leases note their beginning as the time since this moment.
    epoch: Instant,
    wait_queue: LiveHistogram,
    wait_create: LiveHistogram,
    wait_check: LiveHistogram,
    pub(crate) create: LiveHistogram,
    usage: LiveHistogram,
}

impl Histograms {
    pub(crate) fn new(epoch: Instant) -> Self {
        Histograms {
            epoch,
            wait_queue: LiveHistogram::default(),
            wait_create: LiveHistogram::default(),
            wait_check: LiveHistogram::default(),
            create: LiveHistogram::default(),
            usage: LiveHistogram::default(),
        }
    }

    /// Records an acquire that waited and got a lease.
    pub(crate) fn record_wait(&self, cause: WaitCause, waited: Duration) {
        let histogram = match cause {
            WaitCause::Queue => &self.wait_queue,
            WaitCause::Creation => &self.wait_create,
            WaitCause::Check => &self.wait_check,
        };
        histogram.record(waited);
    }

    /// Returns the histograms. `leases` counts all leases: those without a recorded wait did not wait.
    pub(crate) fn snapshot(&self, leases: impl FnOnce() -> u64) -> Timings {
        let wait_queue = self.wait_queue.snapshot();
        let wait_create = self.wait_create.snapshot();
        let wait_check = self.wait_check.snapshot();
        let mut wait = wait_queue.clone();
        wait.add(&wait_create);
        wait.add(&wait_check);
        // Counted last: a lease is counted before its wait is recorded.
        wait.buckets[0] += leases().saturating_sub(wait.count());
        Timings {
            wait,
            wait_queue,
            wait_create,
            wait_check,
            create: self.create.snapshot(),
            usage: self.usage.snapshot(),
        }
    }
}

impl<M: Manager> Core<M> {
    /// Notes when a sampled lease begins. For the owner of the slot.
    #[cold]
    pub(crate) fn begin_sample(&self, slot: &Slot<Filled<M>>) {
        // Relaxed: only the owner of the slot writes and reads it.
        let since = self.nanos_since_epoch();
        slot.usage().sampled.store(since, Ordering::Relaxed);
    }

    /// Records the length of a sampled lease that ends. For the owner of the slot.
    #[cold]
    pub(crate) fn end_sample(&self, slot: &Slot<Filled<M>>) {
        // Relaxed: as above.
        let since = slot.usage().sampled.load(Ordering::Relaxed);
        let length = self.nanos_since_epoch().saturating_sub(since);
        self.histograms.usage.record(Duration::from_nanos(length));
    }

    fn nanos_since_epoch(&self) -> u64 {
        let passed = self.now().saturating_duration_since(self.histograms.epoch);
        // 584 years fit.
        u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Histograms of a pool since it was built; see [`Pool::timings`](crate::Pool::timings).
///
/// They are always on. An acquire that finds an idle resource reads no clock for them, so it counts as a wait of zero.
/// All other durations are measured exactly, except [`usage`](Timings::usage), which is a sample.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Timings {
    /// From the start of an acquire to its lease. Every acquire that got a lease counts.
    pub wait: Histogram,
    /// Of these: acquires that got a resource which another holder released, from start to lease.
    pub wait_queue: Histogram,
    /// Of these: acquires that got a new resource, from start to lease.
    pub wait_create: Histogram,
    /// Of these: acquires that got an idle resource whose async acquire hook did not answer at once.
    pub wait_check: Histogram,
    /// Creations that succeeded.
    pub create: Histogram,
    /// From the beginning of a lease to its end: a sample of one lease in 64 of each slot, beginning with the first. A
    /// lease that ended by `discard` or `detach` does not count.
    pub usage: Histogram,
}

/// A distribution of durations, exact to a quarter.
#[derive(Clone)]
pub struct Histogram {
    buckets: Vec<u64>,
    sum: u64,
    max: u64,
}

/// The figures that a person reads, instead of all buckets.
impl fmt::Debug for Histogram {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Histogram")
            .field("count", &self.count())
            .field("sum", &self.sum())
            .field("p50", &self.quantile(0.5))
            .field("p99", &self.quantile(0.99))
            .field("max", &self.max())
            .finish()
    }
}

impl Histogram {
    /// Adds the durations of another histogram.
    pub fn add(&mut self, other: &Histogram) {
        for (count, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *count += more;
        }
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// Returns the durations that an earlier snapshot of the same histogram does not have. [`max`](Histogram::max) is that
    /// of all durations: when the longest was recorded is not known.
    #[must_use]
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let pairs = self.buckets.iter().zip(&earlier.buckets);
        Histogram {
            buckets: pairs.map(|(now, then)| now.saturating_sub(*then)).collect(),
            sum: self.sum.saturating_sub(earlier.sum),
            max: self.max,
        }
    }

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

    /// Returns the buckets that are not empty, shortest durations first. The bounds of buckets are the same in every
    /// histogram: up to 4 ns each nanosecond has a bucket, and from there on each power of two has four.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        let filled = self
            .buckets
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0);
        filled.map(|(index, &count)| Bucket {
            end: Duration::from_nanos(upper_bound(index)),
            count,
        })
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

/// One bucket of a [`Histogram`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Bucket {
    /// The longest duration that belongs to the bucket. Its shortest is a nanosecond more than the end of the bucket
    /// before.
    pub end: Duration,
    /// The number of durations.
    pub count: u64,
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
    fn difference_has_only_what_came_later() {
        let live = LiveHistogram::default();
        live.record(Duration::from_secs(1));
        let earlier = live.snapshot();
        assert_eq!(earlier.since(&earlier).count(), 0);
        assert_eq!(earlier.since(&earlier).quantile(0.5), Duration::ZERO);
        live.record(Duration::from_millis(2));
        let later = live.snapshot().since(&earlier);
        assert_eq!(later.count(), 1);
        assert_eq!(later.sum(), Duration::from_millis(2));
        assert!(later.quantile(1.0) < Duration::from_millis(3));
    }

    #[test]
    fn quantiles_come_in_order_and_end_at_the_longest() {
        let live = LiveHistogram::default();
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
        let shown = format!("{histogram:?}");
        assert!(shown.contains("count: 100") && shown.contains("max: 100ms"));
    }
}
