//! The back-off between failed creations, and a little randomness.

use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::{Duration, Instant};

/// A pause that doubles with every failure, up to a limit, and ends with a success.
#[derive(Debug)]
pub(crate) struct Backoff {
    range: Option<(Duration, Duration)>,
    in_a_row: u32,
    until: Option<Instant>,
    /// As `until`, for creations that nobody waits for. Those always pause; otherwise a pool that
    /// cannot reach its minimum would never rest.
    background: Option<Instant>,
    last_failure: Option<Instant>,
}

/// The pause of background creations in a pool without a back-off.
const DEFAULT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

impl Backoff {
    pub(crate) fn new(range: Option<(Duration, Duration)>) -> Self {
        Backoff {
            range,
            in_a_row: 0,
            until: None,
            background: None,
            last_failure: None,
        }
    }

    /// Returns whether a creation may begin.
    pub(crate) fn over(&self, now: Instant) -> bool {
        self.until(now).is_none()
    }

    /// Returns until when no creation may begin.
    pub(crate) fn until(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|&until| until > now)
    }

    /// Returns until when no background creation may begin.
    pub(crate) fn background_until(&self, now: Instant) -> Option<Instant> {
        self.background.filter(|&until| until > now)
    }

    /// Counts the failure of a creation that began at `began`. Returns the number of failures in a
    /// row. Failures of creations that ran side by side count once, because they have the same cause. A
    /// creation that began within the pause had its slot before the pause.
    pub(crate) fn failed(&mut self, began: Instant, now: Instant, random: f64) -> u32 {
        let known = self.until.max(self.last_failure);
        if known.is_some_and(|known| began < known) && self.in_a_row > 0 {
            return self.in_a_row;
        }
        self.last_failure = Some(now);
        self.in_a_row = self.in_a_row.saturating_add(1);
        let (first, longest) = self.range.unwrap_or(DEFAULT);
        let doublings = (self.in_a_row - 1).min(20);
        let pause = first.saturating_mul(1 << doublings).min(longest);
        // Between half and the whole, so that many pools do not retry at the same time.
        let share = Duration::try_from_secs_f64(pause.as_secs_f64() * (0.5 + random / 2.0));
        self.background = now.checked_add(share.unwrap_or(pause));
        self.until = self.range.and(self.background);
        self.in_a_row
    }

    pub(crate) fn succeeded(&mut self) {
        self.in_a_row = 0;
        self.until = None;
        self.background = None;
    }
}

/// Returns a random number from 0 to 1, good enough to spread events in time.
pub(crate) fn random() -> f64 {
    thread_local! {
        static SEED: Cell<u64> = Cell::new(RandomState::new().build_hasher().finish() | 1);
    }
    SEED.with(|seed| {
        let mut x = seed.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        seed.set(x);
        f64::from(u32::try_from(x >> 32).unwrap_or(0)) / f64::from(u32::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: Option<(Duration, Duration)> =
        Some((Duration::from_millis(100), Duration::from_secs(5)));

    fn start() -> Instant {
        crate::runtime::Runtime::now(&crate::runtime::ThreadRuntime::new())
    }

    #[test]
    fn the_pause_doubles_up_to_its_limit_and_success_forgets_it() {
        let mut backoff = Backoff::new(RANGE);
        let mut now = start();
        assert!(backoff.over(now));
        for expected in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            backoff.failed(now, now, 1.0);
            let until = backoff.until(now).expect("it pauses");
            assert_eq!(until - now, Duration::from_millis(expected));
            now = until;
            assert!(backoff.over(now));
        }
        backoff.succeeded();
        assert_eq!(backoff.failed(now, now, 0.0), 1);
        assert_eq!(backoff.until(now).unwrap() - now, Duration::from_millis(50));
    }

    #[test]
    fn failures_side_by_side_count_once() {
        let mut backoff = Backoff::new(RANGE);
        let now = start();
        let later = now + Duration::from_millis(1);
        assert_eq!(backoff.failed(now, later, 1.0), 1);
        assert_eq!(backoff.failed(now, later, 1.0), 1);
    }

    #[test]
    fn creation_that_began_before_the_back_off_counts_with_it() {
        let mut backoff = Backoff::new(RANGE);
        let now = start();
        assert_eq!(backoff.failed(now, now, 1.0), 1);
        let until = backoff.until(now).expect("it pauses");
        // It had its slot before the pause began, and fails after the pause.
        let late = now + Duration::from_millis(1);
        assert_eq!(backoff.failed(late, until, 1.0), 1);
        assert_eq!(backoff.until(now), Some(until), "the pause is no longer");
        // This one began after the pause.
        assert_eq!(backoff.failed(until, until, 1.0), 2);
    }
}
