//! What is known about the primary: its newest position, and when it was there, from which the lag of a replica follows.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::position::LogPosition;
use crate::driver::History;

/// The most samples that are kept.
const MOST_SAMPLES: usize = 128;

/// The newest position of the primary, and earlier ones with the time at which the primary was there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Primary {
    newest: Option<LogPosition>,
    /// When that was noted first.
    newest_at: Option<Instant>,
    /// Of the newest history only; times and positions grow.
    samples: VecDeque<(Instant, u64)>,
}

impl Primary {
    pub(crate) fn newest(&self) -> Option<LogPosition> {
        self.newest
    }

    /// Notes where the primary was. `spacing` is the least time between two samples.
    pub(crate) fn note(&mut self, position: LogPosition, now: Instant, spacing: Duration) {
        match self.newest {
            Some(newest) if newest.history == position.history => {
                if newest.lsn >= position.lsn {
                    return;
                }
            }
            // A former primary is never followed.
            Some(newest) if is_former(position.history, newest.history) => return,
            _ => self.samples.clear(),
        }
        (self.newest, self.newest_at) = (Some(position), Some(now));
        let is_due = self
            .samples
            .back()
            .is_none_or(|(last, _)| now.saturating_duration_since(*last) >= spacing);
        if is_due {
            if self.samples.len() == MOST_SAMPLES {
                self.samples.pop_front();
            }
            self.samples.push_back((now, position.lsn));
        }
    }

    /// Returns how long ago the primary wrote the first sample that a replica lacks which has replayed up to `replayed`.
    pub(crate) fn lag(&self, replayed: u64, now: Instant) -> Duration {
        let newest = self.newest_at.zip(self.newest);
        // What was written last is too close to a sample to be one itself, perhaps, and nothing may follow it.
        let newest = newest.map(|(at, newest)| (at, newest.lsn));
        let mut samples = self.samples.iter().copied().chain(newest);
        let missing = samples.find(|(_, lsn)| *lsn > replayed);
        missing.map_or(Duration::ZERO, |(at, _)| now.saturating_duration_since(at))
    }
}

fn is_former(history: History, newest: History) -> bool {
    history.cluster == newest.cluster && history.timeline < newest.timeline
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPACING: Duration = Duration::from_millis(100);

    fn at(timeline: u32, lsn: u64) -> LogPosition {
        let history = History {
            cluster: 7,
            timeline,
        };
        LogPosition { history, lsn }
    }

    fn start() -> Instant {
        cenote_pool::Runtime::now(&cenote_pool::TokioRuntime::new())
    }

    #[test]
    fn lag_is_the_age_of_the_first_missing_sample() {
        let (mut primary, now) = (Primary::default(), start());
        for n in 0..10_u32 {
            let position = at(1, 1000 * u64::from(n + 1));
            primary.note(position, now + SPACING * n, SPACING);
        }
        let end = now + SPACING * 10;
        assert_eq!(primary.lag(10_000, end), Duration::ZERO);
        assert_eq!(primary.lag(9_000, end), SPACING);
        assert_eq!(primary.lag(8_500, end), SPACING * 2);
        assert_eq!(primary.lag(0, end), SPACING * 10);
        // An idle primary writes nothing that a replica could lack.
        assert_eq!(primary.lag(10_000, end + SPACING * 100), Duration::ZERO);
    }

    #[test]
    fn lag_counts_what_was_written_last() {
        let (mut primary, now) = (Primary::default(), start());
        primary.note(at(1, 1000), now, SPACING);
        // Too soon for a sample of its own, and then the primary rests.
        let then = now + SPACING / 2;
        for n in 0..10_u32 {
            primary.note(at(1, 2000), then + SPACING * n, SPACING);
        }
        assert_eq!(primary.lag(1000, then + SPACING * 9), SPACING * 9);
        assert_eq!(primary.lag(2000, then + SPACING * 9), Duration::ZERO);
        primary.note(at(2, 500), then + SPACING * 10, SPACING);
        assert_eq!(primary.lag(100, then + SPACING * 11), SPACING);
    }

    #[test]
    fn former_primary_is_not_followed() {
        let (mut primary, now) = (Primary::default(), start());
        primary.note(at(2, 50), now, SPACING);
        primary.note(at(1, 90), now, SPACING);
        assert_eq!(primary.newest(), Some(at(2, 50)));
        primary.note(at(3, 40), now, SPACING);
        assert_eq!(primary.newest(), Some(at(3, 40)));
    }
}
