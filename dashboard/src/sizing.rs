//! Whether a pool has the right number of connections, judged by Little's law.
//!
//! Little's law: on average, as many connections are busy as checkouts begin in a second, times the seconds that each
//! holds its connection. Calls that wait are demand as well: with enough connections they would be busy instead, unless
//! the database itself is the limit ([`curve`]).

pub mod curve;

use std::time::Duration;

/// A shorter time, or fewer checkouts, are no basis for a verdict.
const SHORTEST: Duration = Duration::from_secs(10);
const FEWEST: u64 = 20;

/// From this time on, a smaller pool may be recommended: bursts come seldom.
const LONG_ENOUGH: Duration = Duration::from_secs(60);

/// The load of a pool in a period.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The maximum number of connections.
    pub max: usize,
    /// The length of the period.
    pub period: Duration,
    /// How many times a connection was taken in the period.
    pub checkouts: u64,
    /// How many connections were in use, on average.
    pub busy: f64,
    /// How many connections were in use, at most.
    pub busy_peak: usize,
    /// How many calls waited for a connection, on average, without those that waited to write.
    pub waiting: f64,
    /// How many calls waited for a connection, at most, without those that waited to write.
    pub waiting_peak: usize,
    /// How many calls waited to write, on average, on a database with one writer at a time.
    pub waiting_to_write: f64,
    /// How many connections are held for so long that the program probably does not use them.
    pub stuck: usize,
    /// From this number of busy connections on, more of them did no more, if the period shows it: see [`curve::knee`].
    pub useful: Option<usize>,
}

/// What is wrong with the size of a pool, if anything is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Size {
    /// Too little has happened.
    Unknown,
    /// The size is right.
    Right,
    /// Calls wait although the program uses its connections well.
    TooSmall,
    /// The program never uses most of the connections.
    TooLarge,
    /// Connections are held and not used, or the one writer or the database is the limit: a larger pool changes nothing.
    NotTheProblem,
}

/// The judgement of a [`Load`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Verdict {
    /// What is wrong, if anything is.
    pub size: Size,
    /// The maximum to set, if another one is better.
    pub suggested: Option<usize>,
    /// The verdict in one or two sentences.
    pub text: String,
    /// The calculation behind it.
    pub arithmetic: String,
}

/// Judges the size of a pool.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use cenote_dashboard::sizing::{Load, Size, judge};
///
/// // 1,000 checkouts a second that take 8 ms each keep 8 connections busy.
/// let verdict = judge(&Load {
///     max: 10,
///     period: Duration::from_secs(60),
///     checkouts: 60_000,
///     busy: 8.0,
///     busy_peak: 10,
///     waiting: 0.0,
///     waiting_peak: 0,
///     waiting_to_write: 0.0,
///     stuck: 0,
///     useful: None,
/// });
/// assert_eq!(verdict.size, Size::Right);
/// assert_eq!(verdict.arithmetic, "1,000 checkouts a second × 8.0 ms held = 8.0 of 10 busy on average");
/// ```
pub fn judge(load: &Load) -> Verdict {
    let verdict = |size, suggested, text: String| Verdict {
        size,
        suggested,
        text,
        arithmetic: arithmetic(load),
    };
    let max = load.max;
    if load.stuck > 0 && load.stuck * 2 >= max {
        let text = format!(
            "Not a matter of size: {} of {max} connections are held and not given back. Find the line that holds them \
             first.",
            load.stuck
        );
        return verdict(Size::NotTheProblem, None, text);
    }
    if load.period < SHORTEST || load.checkouts < FEWEST {
        let text = "Too little has happened for a verdict.".to_owned();
        return verdict(Size::Unknown, None, text);
    }
    if load.waiting_to_write >= 0.5 && load.waiting_to_write > load.waiting {
        let text = format!(
            "Not a matter of size: on average {:.1} calls wait for the one writer of the database. Make write \
             transactions shorter.",
            load.waiting_to_write
        );
        return verdict(Size::NotTheProblem, None, text);
    }
    let needed = connections_for(load.busy + load.waiting);
    if load.waiting_peak > 0
        && needed > max
        && let Some(useful) = load.useful.filter(|useful| *useful < max)
    {
        let text = format!(
            "Not too small: {useful} busy connections did as much as {max}, so the database is the limit. With more, each \
             checkout takes longer. Make the statements cheaper; {useful} connections would be enough."
        );
        return verdict(Size::NotTheProblem, Some(useful), text);
    }
    if load.waiting_peak > 0 && needed > max {
        let text = format!(
            "Too small: on average {:.1} calls wait while {:.1} of {max} connections work. About {needed} would serve \
             them, unless the database itself is the limit (cenote size measures it): then each checkout takes longer instead.",
            load.waiting, load.busy
        );
        return verdict(Size::TooSmall, Some(needed), text);
    }
    let enough = connections_for(load.busy).max(load.busy_peak + 1);
    if load.period >= LONG_ENOUGH && load.waiting_peak == 0 && enough * 2 <= max {
        let text = format!(
            "Larger than needed: at most {} of {max} connections were in use. {enough} would be enough for this load.",
            load.busy_peak
        );
        return verdict(Size::TooLarge, Some(enough), text);
    }
    let text = match load.waiting_peak {
        0 => format!(
            "The size is right: nobody waited, and at most {} of {max} connections were in use.",
            load.busy_peak
        ),
        peak => format!(
            "The size is right on average ({:.1} of {max} busy). In bursts up to {peak} calls waited for a moment.",
            load.busy
        ),
    };
    verdict(Size::Right, None, text)
}

/// Returns how many connections serve this many calls at a time, with room for the usual variation: the square root of
/// the average.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a small positive number"
)]
fn connections_for(calls: f64) -> usize {
    let calls = calls.max(0.0);
    ((calls + calls.sqrt()).ceil() as usize).max(1)
}

fn arithmetic(load: &Load) -> String {
    let seconds = load.period.as_secs_f64();
    if seconds <= 0.0 || load.checkouts == 0 {
        return format!("{:.1} of {} busy on average", load.busy, load.max);
    }
    #[allow(clippy::cast_precision_loss, reason = "a count to show")]
    let rate = load.checkouts as f64 / seconds;
    let held = Duration::try_from_secs_f64(load.busy / rate).unwrap_or_default();
    format!(
        "{} checkouts a second × {} held = {:.1} of {} busy on average",
        crate::text::rate(rate),
        crate::text::duration(held),
        load.busy,
        load.max
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load() -> Load {
        Load {
            max: 10,
            period: Duration::from_secs(300),
            checkouts: 300_000,
            busy: 6.0,
            busy_peak: 9,
            waiting: 0.0,
            waiting_peak: 0,
            waiting_to_write: 0.0,
            stuck: 0,
            useful: None,
        }
    }

    #[test]
    fn pool_that_nobody_waits_for_is_right() {
        let verdict = judge(&load());
        assert_eq!((verdict.size, verdict.suggested), (Size::Right, None));
        assert_eq!(
            verdict.arithmetic,
            "1,000 checkouts a second × 6.0 ms held = 6.0 of 10 busy on average"
        );
    }

    #[test]
    fn short_burst_of_waiters_is_no_reason_to_grow() {
        let verdict = judge(&Load {
            waiting: 0.05,
            waiting_peak: 12,
            busy_peak: 10,
            ..load()
        });
        assert_eq!(verdict.size, Size::Right);
        assert!(verdict.text.contains("up to 12 calls"), "{verdict:?}");
    }

    #[test]
    fn waiting_calls_are_demand_for_connections() {
        let verdict = judge(&Load {
            busy: 10.0,
            busy_peak: 10,
            waiting: 6.0,
            waiting_peak: 20,
            ..load()
        });
        // 16 at a time, and 4 for the variation.
        assert_eq!(
            (verdict.size, verdict.suggested),
            (Size::TooSmall, Some(20))
        );
    }

    #[test]
    fn more_connections_are_not_advised_if_they_do_no_more() {
        let full = Load {
            busy: 10.0,
            busy_peak: 10,
            waiting: 6.0,
            waiting_peak: 20,
            useful: Some(4),
            ..load()
        };
        let verdict = judge(&full);
        assert_eq!(
            (verdict.size, verdict.suggested),
            (Size::NotTheProblem, Some(4))
        );
        assert!(verdict.text.contains("did as much as 10"), "{verdict:?}");
        let all_needed = Load {
            useful: Some(10),
            ..full
        };
        assert_eq!(judge(&all_needed).size, Size::TooSmall);
    }

    #[test]
    fn unused_connections_are_too_many_after_a_minute() {
        let idle = Load {
            max: 50,
            busy: 2.0,
            busy_peak: 5,
            ..load()
        };
        let verdict = judge(&idle);
        assert_eq!((verdict.size, verdict.suggested), (Size::TooLarge, Some(6)));
        let young = Load {
            period: Duration::from_secs(30),
            ..idle
        };
        assert_eq!(judge(&young).size, Size::Right);
    }

    #[test]
    fn leaked_connections_are_not_a_matter_of_size() {
        let verdict = judge(&Load {
            checkouts: 3,
            busy: 10.0,
            busy_peak: 10,
            waiting: 40.0,
            waiting_peak: 60,
            stuck: 9,
            ..load()
        });
        assert_eq!(
            (verdict.size, verdict.suggested),
            (Size::NotTheProblem, None)
        );
        assert!(verdict.text.contains("9 of 10"), "{verdict:?}");
    }

    #[test]
    fn queue_of_writers_is_not_a_matter_of_size() {
        let verdict = judge(&Load {
            waiting_to_write: 12.0,
            waiting: 1.0,
            waiting_peak: 3,
            ..load()
        });
        assert_eq!(verdict.size, Size::NotTheProblem);
        assert!(verdict.text.contains("one writer"), "{verdict:?}");
    }

    #[test]
    fn little_data_gives_no_verdict() {
        for load in [
            Load {
                period: Duration::from_secs(9),
                ..load()
            },
            Load {
                checkouts: 19,
                ..load()
            },
            Load {
                checkouts: 0,
                busy: 0.0,
                period: Duration::ZERO,
                ..load()
            },
        ] {
            assert_eq!(judge(&load).size, Size::Unknown);
        }
    }
}
