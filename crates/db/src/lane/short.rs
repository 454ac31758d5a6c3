//! Which texts are proven to be short. A pure state machine: the caller passes the time.
//!
//! ```text
//! unknown ──16 short runs──> short ──too many long runs──> barred ──10 min, 20 min …──> unknown
//! ```
//!
//! What a run takes beyond the least round trip is the server's work, or a delay on the way. On a far network the delays are
//! longer, so the limits grow with the round trip. A run of medium length takes back the proof of one short run, so that most runs
//! of a proven text are short.
//!
//! One long run proves nothing: where the processors are busy, a few of 10,000 runs of a point read take longer than 5 ms,
//! because the server's process waits for a processor. So a text is barred if one in 200 of its runs is long, and at least
//! four were long one after the other: those at the same time may have one cause.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A run this short counts as proof, or one that takes half a round trip.
const SHORT: Duration = Duration::from_millis(1);

/// A run that takes a round trip more than this is a reason to bar its text.
const LONG: Duration = Duration::from_millis(5);

/// How many short runs admit a text.
const PROOF: u8 = 16;

/// A text is barred if one in this many runs is long.
const RARE: u32 = 200;

/// How many moments with long runs bar a text.
const MOMENTS: u32 = 4;

/// After this many runs, earlier ones count half.
const WINDOW: u32 = 1024;

/// How long a text is barred for the first time. The time doubles with each bar.
const FIRST_BAR: Duration = Duration::from_secs(10 * 60);
const LONGEST_BAR: Duration = Duration::from_secs(24 * 60 * 60);

/// How long the least round trip counts. A server that is further away after a failover has another one.
const ROUND_TRIP_AGE: Duration = Duration::from_secs(60);

/// How many texts are remembered.
const MOST: usize = 1024;

/// A hash of a text.
pub(super) type TextId = u64;

/// What is known about the texts of a handle.
#[derive(Debug, Default)]
pub(super) struct Texts {
    all: HashMap<TextId, Record>,
    round_trip: RoundTrip,
    /// When a statement ran last that is certainly short.
    asked: Option<Instant>,
}

/// The least time of a round trip, of this period and the one before.
#[derive(Debug, Default)]
struct RoundTrip {
    since: Option<Instant>,
    current: Option<Duration>,
    previous: Option<Duration>,
}

/// Returns whether a run with this service time proves that its text is short.
fn is_short(service: Duration, least: Duration) -> bool {
    service <= SHORT.max(least / 2).min(LONG)
}

/// Returns whether a run with this service time is a reason to bar its text.
pub(super) fn is_long(service: Duration, least: Duration) -> bool {
    service > LONG + least
}

impl RoundTrip {
    fn least(&self) -> Option<Duration> {
        self.current.into_iter().chain(self.previous).min()
    }

    fn note(&mut self, took: Duration, now: Instant) {
        let age = |since: Instant| now.saturating_duration_since(since);
        if self.since.is_none_or(|since| age(since) >= ROUND_TRIP_AGE) {
            self.previous = self.current.take();
            self.since = Some(now);
        }
        self.current = Some(self.current.map_or(took, |least| least.min(took)));
    }
}

#[derive(Debug, Default)]
struct Record {
    short_runs: u8,
    runs: u32,
    long_runs: u32,
    /// Long runs that did not overlap.
    moments: u32,
    /// The end of the last long run.
    last_long: Option<Instant>,
    barred: Option<Bar>,
}

#[derive(Clone, Copy, Debug)]
struct Bar {
    until: Instant,
    length: Duration,
}

impl Record {
    /// Counts a run. Returns whether too many were long.
    fn count(&mut self, service: Duration, is_long: bool, now: Instant) -> bool {
        self.runs += 1;
        if is_long {
            self.long_runs += 1;
            let is_apart = |last: Instant| now.saturating_duration_since(last) >= service;
            self.moments += u32::from(self.last_long.is_none_or(is_apart));
            self.last_long = Some(now);
        }
        let is_slow = self.moments >= MOMENTS && self.long_runs * RARE >= self.runs;
        if self.runs >= WINDOW {
            self.runs /= 2;
            self.long_runs /= 2;
            self.moments /= 2;
        }
        is_slow && is_long
    }
}

impl Texts {
    /// Returns whether the text is proven to be short, and not barred.
    pub(super) fn is_short(&self, text: TextId, now: impl FnOnce() -> Instant) -> bool {
        let Some(record) = self.all.get(&text) else {
            return false;
        };
        record.short_runs == PROOF && record.barred.is_none_or(|bar| bar.until <= now())
    }

    /// Returns whether the text is barred.
    pub(super) fn is_barred(&self, text: TextId, now: impl FnOnce() -> Instant) -> bool {
        let bar = self.all.get(&text).and_then(|record| record.barred);
        bar.is_some_and(|bar| bar.until > now())
    }

    /// Returns whether the least round trip may be that of slow statements: nothing that is certainly short has run for a while.
    pub(super) fn is_round_trip_unsure(&self, now: Instant) -> bool {
        let age = |asked| now.saturating_duration_since(asked);
        self.asked.is_none_or(|asked| age(asked) >= ROUND_TRIP_AGE)
    }

    /// Notes how long a statement took, with its round trip, that is certainly short.
    pub(super) fn note_question(&mut self, took: Duration, now: Instant) -> Duration {
        self.asked = Some(now);
        self.note_round_trip(took, now)
    }

    /// Notes how long a run took, with its round trip. Returns the least of the last minutes. If that was much longer before,
    /// what was short beyond it proves nothing.
    pub(super) fn note_round_trip(&mut self, took: Duration, now: Instant) -> Duration {
        let before = self.round_trip.least();
        self.round_trip.note(took, now);
        let least = self.least_round_trip();
        if before.is_some_and(|before| !is_short(before.saturating_sub(least), least)) {
            self.all
                .values_mut()
                .for_each(|record| record.short_runs = 0);
        }
        least
    }

    fn least_round_trip(&self) -> Duration {
        self.round_trip.least().unwrap_or_default()
    }

    /// Notes the service time of a run: without the round trip and without what waited before it.
    pub(super) fn note(&mut self, text: TextId, service: Duration, now: Instant) {
        let least = self.least_round_trip();
        let Some(record) = self.record(text, now) else {
            return;
        };
        if record.barred.is_some_and(|bar| bar.until > now) {
            return;
        }
        let is_long = is_long(service, least);
        if record.count(service, is_long, now) {
            self.bar(text, now);
        } else if is_short(service, least) {
            record.short_runs = (record.short_runs + 1).min(PROOF);
        } else if record.short_runs < PROOF {
            record.short_runs = match is_long {
                true => 0,
                false => record.short_runs.saturating_sub(1),
            };
        }
    }

    /// Bars a text: for twice as long as the last time.
    pub(super) fn bar(&mut self, text: TextId, now: Instant) {
        let Some(record) = self.record(text, now) else {
            return;
        };
        let length = match record.barred {
            // Runs that began before the bar may report later.
            Some(bar) if bar.until > now => return,
            Some(bar) => (bar.length * 2).min(LONGEST_BAR),
            None => FIRST_BAR,
        };
        let until = now + length;
        *record = Record {
            barred: Some(Bar { until, length }),
            ..Record::default()
        };
    }

    /// Returns the record of a text. Where there are too many, those that are neither proven nor barred are forgotten; if that is
    /// not enough, all that are not barred now.
    fn record(&mut self, text: TextId, now: Instant) -> Option<&mut Record> {
        if self.all.len() >= MOST && !self.all.contains_key(&text) {
            self.all
                .retain(|_, record| record.short_runs == PROOF || record.barred.is_some());
            if self.all.len() >= MOST {
                let is_barred = |bar: Bar| bar.until > now;
                self.all
                    .retain(|_, record| record.barred.is_some_and(is_barred));
            }
            if self.all.len() >= MOST {
                return None;
            }
        }
        Some(self.all.entry(text).or_default())
    }
}

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "the times are relative to one another"
)]
mod tests {
    use super::*;

    fn short(texts: &Texts, now: Instant) -> bool {
        texts.is_short(1, || now)
    }

    fn prove(texts: &mut Texts, now: Instant) {
        for _ in 0..PROOF {
            assert!(!short(texts, now));
            texts.note(1, SHORT, now);
        }
        assert!(short(texts, now));
    }

    #[test]
    fn sixteen_short_runs_admit_a_text() {
        let (mut texts, now) = (Texts::default(), Instant::now());
        for _ in 0..PROOF - 1 {
            texts.note(1, SHORT, now);
        }
        texts.note(1, LONG * 2, now);
        prove(&mut texts, now);
        for _ in 0..100 {
            texts.note(1, LONG, now);
        }
        assert!(short(&texts, now), "runs of medium length are no reason");
        assert!(!texts.is_short(2, || now), "another text");
    }

    #[test]
    fn text_is_admitted_if_most_of_its_runs_are_short() {
        let (mut texts, now) = (Texts::default(), Instant::now());
        for n in 0..1000 {
            let is_medium = n % 2 == 0;
            texts.note(1, if is_medium { SHORT * 2 } else { SHORT }, now);
        }
        assert!(!short(&texts, now), "half of them");
        for n in 0..100 {
            let is_medium = n % 3 == 0;
            texts.note(1, if is_medium { SHORT * 2 } else { SHORT }, now);
        }
        assert!(short(&texts, now), "two thirds of them");
    }

    #[test]
    fn delays_of_a_far_network_are_no_work_of_the_server() {
        let (mut texts, now) = (Texts::default(), Instant::now());
        let round_trip = Duration::from_millis(6);
        texts.note_round_trip(round_trip, now);
        for _ in 0..PROOF {
            assert!(!short(&texts, now));
            texts.note(1, round_trip / 2, now);
        }
        assert!(short(&texts, now));
        run_slowly(&mut texts, 100, now);
        assert!(short(&texts, now), "it took a round trip more");
        texts.note_round_trip(Duration::from_millis(1), now);
        run_slowly(&mut texts, MOMENTS, now);
        assert!(texts.all[&1].barred.is_some(), "of this server it is slow");
    }

    #[test]
    fn slow_statements_alone_are_not_taken_for_the_round_trip() {
        let (mut texts, now) = (Texts::default(), Instant::now());
        assert!(texts.is_round_trip_unsure(now));
        let slow = Duration::from_millis(20);
        for _ in 0..PROOF {
            let least = texts.note_round_trip(slow, now);
            texts.note(1, slow - least, now);
        }
        assert!(short(&texts, now), "nothing else has run");
        let least = texts.note_question(SHORT, now);
        assert!(!texts.is_round_trip_unsure(now) && !short(&texts, now));
        for _ in 0..PROOF {
            texts.note(1, slow - least, now);
        }
        assert!(!short(&texts, now));
        assert!(texts.is_round_trip_unsure(now + ROUND_TRIP_AGE));
    }

    #[test]
    fn least_round_trip_of_a_lost_server_is_forgotten() {
        let (mut texts, now) = (Texts::default(), Instant::now());
        let (near, far) = (Duration::from_millis(1), Duration::from_millis(20));
        assert_eq!(texts.note_round_trip(near, now), near);
        assert_eq!(texts.note_round_trip(far, now + ROUND_TRIP_AGE), near);
        assert_eq!(texts.note_round_trip(far, now + ROUND_TRIP_AGE * 2), far);
    }

    #[test]
    fn many_texts_that_run_once_forget_no_proof_and_no_bar() {
        let (mut texts, now) = (Texts::default(), Instant::now());
        prove(&mut texts, now);
        texts.bar(2, now);
        let later = now + FIRST_BAR;
        for text in 0..10 * MOST as u64 {
            texts.note(100 + text, SHORT, later);
        }
        assert!(texts.all.len() <= MOST);
        assert!(short(&texts, later));
        texts.bar(3, later);
        for _ in 0..=PROOF {
            texts.note(3, SHORT, later);
        }
        assert!(!texts.is_short(3, || later), "barred");
        texts.bar(2, later);
        assert!(texts.all[&2].barred.unwrap().length > FIRST_BAR);
    }

    /// Runs a text slowly, so many times one after the other. Returns the time of the last end.
    fn run_slowly(texts: &mut Texts, times: u32, mut now: Instant) -> Instant {
        for _ in 0..times {
            now += LONG * 2;
            texts.note(1, LONG * 2, now);
        }
        now
    }

    #[test]
    fn slow_text_is_barred_twice_as_long_each_time() {
        let (mut texts, mut now) = (Texts::default(), Instant::now());
        let minutes = |n: u32| Duration::from_secs(60) * n;
        for length in [minutes(10), minutes(20), minutes(40)] {
            prove(&mut texts, now);
            now = run_slowly(&mut texts, MOMENTS - 1, now);
            assert!(short(&texts, now), "it may be the machine");
            now = run_slowly(&mut texts, 1, now);
            assert!(!short(&texts, now));
            run_slowly(&mut texts, 8, now);
            let over = now + length;
            now = over - Duration::from_nanos(1);
            for _ in 0..PROOF {
                texts.note(1, SHORT, now);
            }
            assert!(!short(&texts, now), "still barred");
            now = over;
        }
        for _ in 0..20 {
            texts.bar(1, now);
            now += LONGEST_BAR;
        }
        prove(&mut texts, now);
    }

    #[test]
    fn long_runs_at_the_same_time_count_once() {
        let (mut texts, now) = (Texts::default(), Instant::now());
        prove(&mut texts, now);
        for _ in 0..100 {
            texts.note(1, LONG * 4, now + LONG * 4);
        }
        assert!(short(&texts, now));
    }

    /// Returns whether a text is barred of which one run in so many is long.
    fn is_barred(one_in: u32) -> bool {
        let (mut texts, mut now) = (Texts::default(), Instant::now());
        prove(&mut texts, now);
        for n in 1..20_000 {
            match n % one_in {
                0 => now = run_slowly(&mut texts, 1, now),
                _ => texts.note(1, SHORT, now),
            }
        }
        !short(&texts, now)
    }

    #[test]
    fn share_of_long_runs_decides() {
        assert!(is_barred(50) && is_barred(100));
        assert!(!is_barred(500) && !is_barred(1000));
    }
}
