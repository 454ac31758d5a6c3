//! How long a woken waiter may take before what it was given goes to another.

use std::time::Duration;

/// The shortest and the longest patience.
const BOUNDS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// How many times the usual delay a waiter may take.
const TIMES: u32 = 4;

/// The smoothed time from the wake of a waiter to its poll. Polls that came too late
/// count like all others, so that the patience grows until they are in time.
#[derive(Debug, Default)]
pub(crate) struct WakeToPoll {
    nanos: u64,
}

impl WakeToPoll {
    /// A waiter was polled so many nanoseconds after it was woken.
    #[inline]
    pub(crate) fn note(&mut self, nanos: u64) {
        // By the coarse clock nearly all polls come at once.
        if nanos | self.nanos != 0 {
            self.smooth(nanos);
        }
    }

    #[cold]
    fn smooth(&mut self, nanos: u64) {
        // A quarter each: a few samples are enough, up and down. Rounded so that it
        // comes down to zero.
        if nanos > self.nanos {
            self.nanos += (nanos - self.nanos) / 4;
        } else {
            self.nanos -= (self.nanos - nanos).div_ceil(4);
        }
    }

    pub(crate) fn patience(&self) -> Duration {
        Duration::from_nanos(self.nanos)
            .saturating_mul(TIMES)
            .clamp(BOUNDS.0, BOUNDS.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_follows_the_delay_within_its_bounds() {
        let mut delay = WakeToPoll::default();
        assert_eq!(delay.patience(), Duration::from_millis(50));
        for _ in 0..50 {
            delay.note(1_100_000_000);
        }
        let patience = delay.patience();
        assert!(patience > Duration::from_millis(4300), "{patience:?}");
        for _ in 0..50 {
            delay.note(u64::MAX);
        }
        assert_eq!(delay.patience(), Duration::from_secs(5));
        for _ in 0..200 {
            delay.note(0);
        }
        assert_eq!(delay.nanos, 0);
    }
}
