//! When an answer is looked for right after the question was sent.
//!
//! A server on the same machine may have had the processor while the question was being sent, and have answered
//! by then; waiting for what is there costs more than a look. A look in vain is a system call for nothing.

use std::time::Duration;

/// A send that took so long was interrupted: by the server's being at work, as likely as not.
const LONG_SEND: Duration = Duration::from_micros(10);

/// After so many answers in a row that were there already, the next is waited for, so that other tasks get their
/// turn.
const LONGEST_LUCK: u8 = 32;

/// After looks in vain, so many sends at most go without one. Where the server has a processor of its own, a send
/// takes long for other reasons.
const LONGEST_PAUSE: u8 = 64;

#[derive(Debug, Default)]
pub(super) struct EarlyRead {
    /// So many in a row found an answer.
    luck: u8,
    /// So many sends went without one after the last in vain; none if the last found something.
    pause: u8,
    /// So many sends are yet to go without one.
    to_skip: u8,
}

impl EarlyRead {
    /// Something is about to be sent: whether a look may follow.
    pub(super) fn may_follow(&mut self) -> bool {
        if self.luck >= LONGEST_LUCK {
            self.luck = 0;
            return false;
        }
        let is_due = self.to_skip == 0;
        self.to_skip = self.to_skip.saturating_sub(1);
        is_due
    }

    /// The send took so long: whether a look does follow.
    pub(super) fn is_worth_it(&mut self, send_took: Duration) -> bool {
        let is_long = send_took >= LONG_SEND;
        if !is_long {
            self.luck = 0;
        }
        is_long
    }

    /// What came of a look.
    pub(super) fn note(&mut self, found: bool) {
        if found {
            self.luck += 1;
            self.pause = 0;
            return;
        }
        self.luck = 0;
        self.pause = (2 * self.pause + 1).min(LONGEST_PAUSE);
        self.to_skip = self.pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many sends go without a look before the next.
    fn gap(looks: &mut EarlyRead) -> usize {
        (0..).take_while(|_| !looks.may_follow()).count()
    }

    #[test]
    fn vain_early_reads_become_rare_and_a_hit_makes_up_for_them() {
        let mut looks = EarlyRead::default();
        for expected in [0, 1, 3, 7, 15, 31, 63, 64, 64] {
            assert_eq!(gap(&mut looks), expected);
            looks.note(false);
        }
        assert_eq!(gap(&mut looks), 64);
        looks.note(true);
        assert_eq!(gap(&mut looks), 0);
        looks.note(false);
        assert_eq!(gap(&mut looks), 1);
    }

    #[test]
    fn after_many_answers_that_were_there_already_one_is_waited_for() {
        let mut looks = EarlyRead::default();
        for _ in 0..LONGEST_LUCK {
            assert!(looks.may_follow());
            looks.note(true);
        }
        assert!(!looks.may_follow());
        assert!(looks.may_follow());
    }

    #[test]
    fn a_send_that_was_short_is_not_followed_by_a_look() {
        let mut looks = EarlyRead::default();
        assert!(!looks.is_worth_it(LONG_SEND / 2));
        assert!(looks.is_worth_it(LONG_SEND));
    }
}
