//! What is kept of the past: one record a second for 15 minutes, and the lines and statements of each minute.

use std::collections::{HashMap, VecDeque};
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use cenote::pool::{BreakerState, Counters, Histogram, Status};
use cenote::{ConnectionHolder, DbTimings, QueueReason, QueuedCall};

use crate::json;
use crate::sizing::{Load, curve};
use crate::text;

/// How many seconds are kept.
pub(crate) const KEPT: usize = 15 * 60;
const SECONDS_OF_A_MINUTE: usize = 60;

/// How many different lines, and how many different statements, a minute keeps. The others are added up.
pub(crate) const MOST_NAMES: usize = 128;

/// The reasons of a wait, in the order of the records.
pub(crate) const REASONS: [QueueReason; 4] = [
    QueueReason::Full,
    QueueReason::Connecting,
    QueueReason::BackingOff,
    QueueReason::Writers,
];

/// One second. Averages are of its samples, counts are exact.
#[derive(Clone, Debug, Default)]
pub(crate) struct Second {
    /// When it ended, in seconds since 1970.
    pub(crate) at: u64,
    /// Its length: more than a second if the runtime was blocked.
    pub(crate) length: Duration,
    pub(crate) max: usize,
    pub(crate) busy: f64,
    pub(crate) busy_peak: usize,
    pub(crate) open: f64,
    pub(crate) connecting: f64,
    /// By [`REASONS`].
    pub(crate) waiting: [f64; 4],
    pub(crate) waiting_peak: usize,
    pub(crate) breaker: u8,
    pub(crate) checkouts: u64,
    pub(crate) statements: u64,
    pub(crate) failed: u64,
    pub(crate) timed_out: u64,
    pub(crate) rejected: u64,
    pub(crate) connects_failed: u64,
    /// 19 of 20 statements took no longer.
    pub(crate) statement_p95: Duration,
}

impl Second {
    /// Writes the record as a list, in the order that `page.js` knows.
    pub(crate) fn write(&self, out: &mut String) {
        let per_second = |count: u64| {
            #[allow(clippy::cast_precision_loss, reason = "a count to show")]
            let count = count as f64;
            count / self.length.as_secs_f64().max(0.001)
        };
        out.push('[');
        out.push_str(&self.at.to_string());
        #[allow(clippy::cast_precision_loss, reason = "small numbers to show")]
        let numbers = [
            self.max as f64,
            self.busy,
            self.busy_peak as f64,
            self.open,
            self.connecting,
            self.waiting[0],
            self.waiting[1],
            self.waiting[2],
            self.waiting[3],
            self.waiting_peak as f64,
            f64::from(self.breaker),
            per_second(self.checkouts),
            per_second(self.statements),
            per_second(self.failed),
            per_second(self.timed_out + self.rejected),
            per_second(self.connects_failed),
            self.statement_p95.as_secs_f64() * 1e3,
        ];
        for number in numbers {
            out.push(',');
            json::number(out, number);
        }
        out.push(']');
    }
}

/// One look at a handle.
pub(crate) struct Sample<'s> {
    pub(crate) status: &'s Status,
    pub(crate) holders: &'s [ConnectionHolder],
    pub(crate) queued: &'s [QueuedCall],
    /// The time since the last sample, which this one stands for.
    pub(crate) weight: Duration,
}

/// Samples of a second that has not ended.
#[derive(Debug, Default)]
struct Sums {
    samples: u32,
    length: Duration,
    busy: usize,
    busy_peak: usize,
    open: usize,
    connecting: usize,
    waiting: [usize; 4],
    waiting_peak: usize,
}

/// The lines and statements of a minute, with the time that samples saw them.
#[derive(Debug, Default)]
struct Minute {
    seconds: usize,
    /// By the address of the location, so that no text is hashed for a sample.
    lines: HashMap<usize, (&'static Location<'static>, Duration)>,
    other_lines: Duration,
    /// By the summary; with a masked text.
    statements: HashMap<Arc<str>, (Arc<str>, Duration)>,
    other_statements: Duration,
}

/// What is kept of the past.
#[derive(Debug)]
pub(crate) struct History {
    seconds: VecDeque<Second>,
    /// The number of the next second.
    next: u64,
    sums: Sums,
    minutes: VecDeque<Minute>,
    last: Totals,
}

/// What only grows, at the end of the last second.
#[derive(Clone, Debug)]
pub(crate) struct Totals {
    pub(crate) counters: Counters,
    pub(crate) timings: DbTimings,
}

impl History {
    pub(crate) fn new(now: Totals) -> Self {
        History {
            seconds: VecDeque::with_capacity(KEPT),
            next: 0,
            sums: Sums::default(),
            minutes: VecDeque::from([Minute::default()]),
            last: now,
        }
    }

    /// Adds a sample. Returns whether its second is over.
    pub(crate) fn add(&mut self, sample: &Sample<'_>) -> bool {
        let (status, sums) = (sample.status, &mut self.sums);
        sums.samples += 1;
        sums.length += sample.weight;
        sums.busy += status.active;
        sums.busy_peak = sums.busy_peak.max(status.active);
        sums.open += status.total - status.creating;
        sums.connecting += status.creating;
        sums.waiting_peak = sums.waiting_peak.max(status.waiting);
        for (sum, waiting) in sums
            .waiting
            .iter_mut()
            .zip(by_reason(status, sample.queued))
        {
            *sum += waiting;
        }
        let minute = self.minutes.back_mut().expect("there is always a minute");
        for holder in sample.holders {
            minute.add(holder, sample.weight);
        }
        self.sums.length >= Duration::from_millis(995)
    }

    /// Ends the second. `at` is the time in seconds since 1970.
    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    pub(crate) fn end_second(&mut self, at: u64, status: &Status, now: Totals) {
        let sums = std::mem::take(&mut self.sums);
        let samples = f64::from(sums.samples.max(1));
        let mean = |sum: usize| sum as f64 / samples;
        let (counters, before) = (&now.counters, &self.last.counters);
        let (timings, earlier) = (&now.timings, &self.last.timings);
        let second = Second {
            at,
            length: sums.length,
            max: status.max,
            busy: mean(sums.busy),
            busy_peak: sums.busy_peak,
            open: mean(sums.open),
            connecting: mean(sums.connecting),
            waiting: sums.waiting.map(mean),
            waiting_peak: sums.waiting_peak,
            breaker: match status.breaker {
                BreakerState::Open => 2,
                BreakerState::HalfOpen => 1,
                _ => 0,
            },
            checkouts: counters.acquired.saturating_sub(before.acquired),
            statements: grown(&timings.statements, &earlier.statements),
            failed: grown(&timings.failed_statements, &earlier.failed_statements),
            timed_out: counters.timed_out.saturating_sub(before.timed_out),
            rejected: counters.rejected.saturating_sub(before.rejected),
            connects_failed: counters.create_failed.saturating_sub(before.create_failed),
            statement_p95: quantile_since(&timings.statements, &earlier.statements, 0.95),
        };
        if self.seconds.len() == KEPT {
            self.seconds.pop_front();
        }
        self.seconds.push_back(second);
        self.next += 1;
        self.last = now;
        let minute = self.minutes.back_mut().expect("there is always a minute");
        minute.seconds += 1;
        if minute.seconds == SECONDS_OF_A_MINUTE {
            if self.minutes.len() == KEPT / SECONDS_OF_A_MINUTE {
                self.minutes.pop_front();
            }
            self.minutes.push_back(Minute::default());
        }
    }

    /// Returns the number of the next second.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Returns the seconds from this number on that are kept.
    pub(crate) fn since(&self, number: u64) -> impl Iterator<Item = &Second> {
        let kept = self.seconds.len();
        let wanted = usize::try_from(self.next.saturating_sub(number)).unwrap_or(kept);
        self.seconds.range(kept - wanted.min(kept)..)
    }

    /// Returns the seconds of the last `seconds`.
    fn last_seconds(&self, seconds: usize) -> impl Iterator<Item = &Second> {
        let kept = self.seconds.len();
        self.seconds.range(kept - seconds.min(kept)..)
    }

    /// Returns what was counted when the last second ended.
    pub(crate) fn totals(&self) -> &Totals {
        &self.last
    }

    /// Returns the sum of a count over the seconds that are kept.
    pub(crate) fn sum(&self, count: impl Fn(&Second) -> u64) -> u64 {
        self.seconds.iter().map(count).sum()
    }

    /// Returns the load of the last `seconds`.
    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    pub(crate) fn load(&self, seconds: usize, max: usize, stuck: usize) -> Load {
        let mut load = Load {
            max,
            period: Duration::ZERO,
            checkouts: 0,
            busy: 0.0,
            busy_peak: 0,
            waiting: 0.0,
            waiting_peak: 0,
            waiting_to_write: 0.0,
            stuck,
            useful: self.useful(seconds),
        };
        for second in self.last_seconds(seconds) {
            let length = second.length.as_secs_f64();
            let [full, connecting, backing_off, writers] = second.waiting;
            load.period += second.length;
            load.checkouts += second.checkouts;
            load.busy += second.busy * length;
            load.busy_peak = load.busy_peak.max(second.busy_peak);
            load.waiting += (full + connecting + backing_off) * length;
            load.waiting_to_write += writers * length;
            if full + connecting + backing_off > 0.0 {
                load.waiting_peak = load.waiting_peak.max(second.waiting_peak);
            }
        }
        let length = load.period.as_secs_f64();
        if length > 0.0 {
            load.busy /= length;
            load.waiting /= length;
            load.waiting_to_write /= length;
        }
        load
    }

    /// Returns from how many busy connections on more of them did no more, if the last `seconds` show it.
    fn useful(&self, seconds: usize) -> Option<usize> {
        #[allow(clippy::cast_precision_loss, reason = "a count of one second")]
        let of_second = |second: &Second| {
            let length = second.length.as_secs_f64().max(0.001);
            (second.busy, second.checkouts as f64 / length)
        };
        let points = curve::of_seconds(self.last_seconds(seconds).map(of_second));
        let knee = curve::knee(&points).filter(|knee| knee.is_reached)?;
        Some(knee.connections)
    }

    /// Returns the lines that held connections for longest, and the time of all others.
    pub(crate) fn top_lines(&self, most: usize) -> Top<String> {
        let mut sums: HashMap<String, Duration> = HashMap::new();
        let mut other = Duration::ZERO;
        for minute in &self.minutes {
            for (location, held) in minute.lines.values() {
                *sums.entry(text::line(location)).or_default() += *held;
            }
            other += minute.other_lines;
        }
        Top::of(sums.into_iter(), other, most)
    }

    /// Returns the statements that ran for longest (summary and masked text), and the time of all others.
    pub(crate) fn top_statements(&self, most: usize) -> Top<StatementNames> {
        let mut sums: HashMap<&str, (StatementNames, Duration)> = HashMap::new();
        let mut other = Duration::ZERO;
        for minute in &self.minutes {
            for (summary, (text, ran)) in &minute.statements {
                let names = || (Arc::clone(summary), Arc::clone(text));
                let sum = sums
                    .entry(summary)
                    .or_insert_with(|| (names(), Duration::ZERO));
                sum.1 += *ran;
            }
            other += minute.other_statements;
        }
        Top::of(sums.into_values(), other, most)
    }
}

/// The summary and the masked text of a statement.
pub(crate) type StatementNames = (Arc<str>, Arc<str>);

/// Those with the longest time, and the time of all others.
#[derive(Debug)]
pub(crate) struct Top<T> {
    pub(crate) first: Vec<(T, Duration)>,
    pub(crate) other: Duration,
}

impl<T: Ord> Top<T> {
    fn of(all: impl Iterator<Item = (T, Duration)>, mut other: Duration, most: usize) -> Self {
        let mut first: Vec<_> = all.collect();
        first.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        other += first
            .iter()
            .skip(most)
            .map(|(_, time)| *time)
            .sum::<Duration>();
        first.truncate(most);
        Top { first, other }
    }
}

impl Minute {
    fn add(&mut self, holder: &ConnectionHolder, weight: Duration) {
        self.add_line(
            std::ptr::from_ref(holder.caller).addr(),
            holder.caller,
            weight,
        );
        if let Some(statement) = holder.statement.as_ref().filter(|it| it.running) {
            self.add_statement(&statement.summary, &statement.text, weight);
        }
    }

    fn add_line(&mut self, address: usize, line: &'static Location<'static>, weight: Duration) {
        let is_full = self.lines.len() == MOST_NAMES;
        match self.lines.get_mut(&address) {
            Some((_, held)) => *held += weight,
            None if is_full => self.other_lines += weight,
            None => {
                self.lines.insert(address, (line, weight));
            }
        }
    }

    fn add_statement(&mut self, summary: &Arc<str>, text: &Arc<str>, weight: Duration) {
        let is_full = self.statements.len() == MOST_NAMES;
        match self.statements.get_mut(summary) {
            Some((_, ran)) => *ran += weight,
            None if is_full => self.other_statements += weight,
            None => {
                let known = (Arc::clone(text), weight);
                self.statements.insert(Arc::clone(summary), known);
            }
        }
    }
}

/// Returns how many calls wait for each of [`REASONS`]. Calls that are not listed count with the last one that is.
pub(crate) fn by_reason(status: &Status, queued: &[QueuedCall]) -> [usize; 4] {
    let mut waiting = [0; 4];
    let mut last = 0;
    for call in queued {
        last = REASONS
            .iter()
            .position(|reason| *reason == call.reason)
            .unwrap_or(0);
        waiting[last] += 1;
    }
    waiting[last] += status.waiting.saturating_sub(queued.len());
    waiting
}

fn grown(now: &Histogram, before: &Histogram) -> u64 {
    now.count().saturating_sub(before.count())
}

/// Returns the duration that this share of the durations since `before` did not exceed; zero if there are none.
pub(crate) fn quantile_since(now: &Histogram, before: &Histogram, share: f64) -> Duration {
    now.since(before).quantile(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantile_counts_only_what_is_new() {
        let live = cenote::pool::LiveHistogram::new();
        for _ in 0..100 {
            live.record(Duration::from_secs(1));
        }
        let before = live.snapshot();
        assert_eq!(quantile_since(&before, &before, 0.95), Duration::ZERO);
        for millis in 1..=20 {
            live.record(Duration::from_millis(millis));
        }
        let now = live.snapshot();
        let p95 = quantile_since(&now, &before, 0.95);
        assert!(
            p95 >= Duration::from_millis(19) && p95 < Duration::from_millis(24),
            "{p95:?}"
        );
        assert_eq!(grown(&now, &before), 20);
    }

    #[test]
    fn ten_thousand_names_in_a_minute_are_128_and_others() {
        let mut minute = Minute::default();
        let weight = Duration::from_millis(100);
        for n in 0..10_000 {
            minute.add_line(n, Location::caller(), weight);
            let name: Arc<str> = format!("SELECT t{n}").into();
            minute.add_statement(&name, &name, weight);
            // One that was known before goes on.
            minute.add_line(3, Location::caller(), weight);
        }
        assert_eq!(
            (minute.lines.len(), minute.statements.len()),
            (MOST_NAMES, MOST_NAMES)
        );
        let others = weight * (10_000 - 128);
        assert_eq!(
            (minute.other_lines, minute.other_statements),
            (others, others)
        );
        assert_eq!(minute.lines[&3].1, weight * 10_001);
    }

    #[test]
    fn top_keeps_the_longest_and_adds_up_the_others() {
        let all = (1..=5).map(|n| (n, Duration::from_secs(n)));
        let top = Top::of(all, Duration::from_secs(10), 2);
        let seconds: Vec<_> = top.first.iter().map(|(name, _)| *name).collect();
        assert_eq!(seconds, [5, 4]);
        assert_eq!(top.other, Duration::from_secs(16));
    }
}
