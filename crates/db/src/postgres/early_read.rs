//! Decides when to read right after a send, before the executor reports data.
//!
//! A server on the same machine may have run while the request was being sent, and have answered already. Then reading
//! at once is cheaper than waiting for the executor. If nothing has arrived, the read is a wasted system call.

use std::time::Duration;

/// A send that takes longer than this was probably interrupted by the server's work.
const LONG_SEND: Duration = Duration::from_micros(10);

/// The maximum of successful early reads in a row; then one call waits for the executor, so that other tasks run.
const MAX_HITS: u8 = 32;

/// The maximum of sends without an early read after misses. If the server has a processor of its own, a send takes
/// long for other reasons.
const MAX_PAUSE: u8 = 64;

#[derive(Debug, Default)]
pub(super) struct EarlyRead {
    /// Successful early reads in a row.
    hits: u8,
    /// How many sends the last miss skipped; 0 after a hit.
    pause: u8,
    /// How many sends are still to be skipped.
    to_skip: u8,
}

impl EarlyRead {
    /// Returns whether an early read may follow the send that is about to begin.
    pub(super) fn may_follow(&mut self) -> bool {
        if self.hits >= MAX_HITS {
            self.hits = 0;
            return false;
        }
        let is_due = self.to_skip == 0;
        self.to_skip = self.to_skip.saturating_sub(1);
        is_due
    }

    /// Returns whether an early read is worth it after a send of this duration.
    pub(super) fn is_worth_it(&mut self, send_took: Duration) -> bool {
        let is_long = send_took >= LONG_SEND;
        if !is_long {
            self.hits = 0;
        }
        is_long
    }

    /// Records whether an early read found data.
    pub(super) fn note(&mut self, found: bool) {
        if found {
            self.hits += 1;
            self.pause = 0;
            return;
        }
        self.hits = 0;
        self.pause = (2 * self.pause + 1).min(MAX_PAUSE);
        self.to_skip = self.pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of sends before the next early read.
    fn gap(reads: &mut EarlyRead) -> usize {
        (0..).take_while(|_| !reads.may_follow()).count()
    }

    #[test]
    fn vain_early_reads_become_rare_and_a_hit_makes_up_for_them() {
        let mut reads = EarlyRead::default();
        for expected in [0, 1, 3, 7, 15, 31, 63, 64, 64] {
            assert_eq!(gap(&mut reads), expected);
            reads.note(false);
        }
        assert_eq!(gap(&mut reads), 64);
        reads.note(true);
        assert_eq!(gap(&mut reads), 0);
        reads.note(false);
        assert_eq!(gap(&mut reads), 1);
    }

    #[test]
    fn after_many_hits_one_call_waits() {
        let mut reads = EarlyRead::default();
        for _ in 0..MAX_HITS {
            assert!(reads.may_follow());
            reads.note(true);
        }
        assert!(!reads.may_follow());
        assert!(reads.may_follow());
    }

    #[test]
    fn short_send_is_not_followed_by_an_early_read() {
        let mut reads = EarlyRead::default();
        assert!(!reads.is_worth_it(LONG_SEND / 2));
        assert!(reads.is_worth_it(LONG_SEND));
    }
}
