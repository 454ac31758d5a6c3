//! One frame of the live view.

use std::collections::VecDeque;
use std::time::Duration;

use cenote::pool::Status;
use cenote_bank::figures::{grouped, millis, money, per_second};
use cenote_bank::{CAUSES, Outcome, Snapshot};

use crate::screen::{Paint, Size};
use crate::summary::{described, row};

/// The widest bar.
const WIDEST: usize = 30;
/// What stands before a bar, and what has to have room after it.
const LABEL: usize = 13;
const AFTER: usize = 34;

/// Commits over the last steps, for the line of throughput.
#[derive(Debug)]
pub(crate) struct History {
    steps: VecDeque<(Duration, u64)>,
}

impl History {
    pub(crate) fn new() -> Self {
        History {
            steps: VecDeque::from([(Duration::ZERO, 0)]),
        }
    }

    pub(crate) fn push(&mut self, now: &Snapshot) {
        let committed = now.counts.of(Outcome::Committed);
        self.steps.push_back((now.elapsed, committed));
        if self.steps.len() > WIDEST + 1 {
            self.steps.pop_front();
        }
    }

    /// Returns the commits per second over the last `back` steps.
    pub(crate) fn rate(&self, back: usize) -> u64 {
        let from = self.steps.iter().rev().nth(back).or(self.steps.front());
        match (from, self.steps.back()) {
            (Some(from), Some(to)) => rate(from, to),
            _ => 0,
        }
    }

    /// The last steps, one character each.
    fn line(&self, width: usize) -> String {
        const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let pairs = self.steps.iter().zip(self.steps.iter().skip(1));
        let rates: Vec<u64> = pairs.map(|(from, to)| rate(from, to)).collect();
        let rates = &rates[rates.len().saturating_sub(width)..];
        let highest = rates.iter().copied().max().unwrap_or(0).max(1);
        let levels = rates.iter().map(|rate| {
            let level = usize::try_from(rate * 7 / highest).unwrap_or(7);
            LEVELS[level.min(7)]
        });
        let line: String = levels.collect();
        format!("{line:<width$}")
    }
}

fn rate(from: &(Duration, u64), to: &(Duration, u64)) -> u64 {
    per_second(to.1.saturating_sub(from.1), to.0.saturating_sub(from.0))
}

/// What does not change from frame to frame.
#[derive(Debug)]
pub(crate) struct Heading {
    pub(crate) title: String,
    pub(crate) database: String,
    pub(crate) tasks: usize,
    pub(crate) length: Duration,
    /// Faults are injected.
    pub(crate) has_faults: bool,
}

/// How badly a line is needed: where there is little room, the least needed go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Need {
    Gap,
    Detail,
    Number,
    Heart,
}

/// The lines of a frame, as many as fit.
pub(crate) fn lines(
    heading: &Heading,
    now: &Snapshot,
    history: &History,
    stopping: Option<&str>,
    size: Size,
    paint: Paint,
) -> Vec<String> {
    let width = bar_width(size.columns);
    let mut lines = vec![
        (Need::Number, title(heading, now, size.columns, paint)),
        (Need::Detail, paint.dim(&format!("on {}", heading.database))),
        (Need::Gap, String::new()),
        (Need::Heart, connections(&now.status, width, paint)),
        (
            Need::Heart,
            waiting(&now.status, heading.tasks, width, paint),
        ),
        (Need::Heart, throughput(history, width)),
        (Need::Number, waits(now)),
    ];
    if heading.has_faults {
        lines.push((Need::Heart, fault(now, paint)));
        lines.extend(now.failover.map(|took| (Need::Number, failover(took))));
    }
    lines.push((Need::Gap, String::new()));
    let counts = &now.counts;
    let number = |name: &str, count: u64, means: &str| row(name, count, means);
    lines.push((
        Need::Number,
        number("committed", counts.of(Outcome::Committed), ""),
    ));
    lines.push((
        Need::Number,
        number("rolled back", counts.rolled_back(), ""),
    ));
    for cause in CAUSES {
        let (name, why) = described(cause);
        let line = number(&format!("  {name}"), counts.of(cause), why);
        lines.push((Need::Detail, line));
    }
    let given_up = counts.of(Outcome::GaveUp) + counts.of(Outcome::Unserved);
    lines.push((
        Need::Detail,
        number("not begun", given_up, "cancelled before they began"),
    ));
    lines.push((Need::Gap, String::new()));
    lines.push((Need::Heart, sum(now, paint)));
    let hint = stopping.unwrap_or("Ctrl-C stops, checks and prints the summary");
    lines.push((Need::Gap, paint.dim(hint)));

    let room = size.rows.saturating_sub(1);
    for need in [Need::Gap, Need::Detail, Need::Number] {
        if lines.len() > room {
            lines.retain(|(of, _)| *of != need);
        }
    }
    lines.into_iter().map(|(_, line)| line).collect()
}

fn bar_width(columns: usize) -> usize {
    columns.saturating_sub(LABEL + AFTER).min(WIDEST)
}

/// A label, a bar if there is room for one, and what it says in words.
fn labelled(label: &str, bar: &str, words: &str) -> String {
    let gap = if bar.is_empty() { "" } else { "  " };
    format!("{label:<LABEL$}{bar}{gap}{words}")
}

fn title(heading: &Heading, now: &Snapshot, columns: usize, paint: Paint) -> String {
    let clock = format!(
        "{:.1} of {:.1} s",
        now.elapsed.min(heading.length).as_secs_f64(),
        heading.length.as_secs_f64()
    );
    let used = heading.title.chars().count() + clock.len();
    let gap = columns.min(80).saturating_sub(used).max(2);
    format!("{}{:gap$}{clock}", paint.bold(&heading.title), "")
}

/// One cell for each place, or for several where there are many; a wide one where there
/// are few.
fn connections(status: &Status, width: usize, paint: Paint) -> String {
    let words = format!(
        "{} active, {} idle, {} opening",
        status.active, status.idle, status.creating
    );
    let max = status.max.max(1);
    let cells = max.min(width);
    if cells == 0 {
        return labelled("connections", "", &words);
    }
    // The running sums are scaled, not the parts: so the bar is always full.
    let scale = |places: usize| places.min(max) * cells / max;
    let active = scale(status.active);
    let held = scale(status.active + status.idle);
    let total = scale(status.total);
    let wide = (width / cells).clamp(1, 4);
    let cell = |at: usize| {
        let (glyph, gap) = match wide {
            1 => (1, ""),
            wide => (wide - 1, " "),
        };
        let painted = match at {
            _ if at < active => paint.green(&"█".repeat(glyph)),
            _ if at < held => paint.blue(&"▒".repeat(glyph)),
            _ if at < total => paint.yellow(&"+".repeat(glyph)),
            _ => "·".repeat(glyph),
        };
        painted + gap
    };
    let bar: String = (0..cells).map(cell).collect();
    let padding = width.saturating_sub(cells * wide);
    labelled("connections", &format!("{bar}{:padding$}", ""), &words)
}

fn waiting(status: &Status, tasks: usize, width: usize, paint: Paint) -> String {
    let filled = (status.waiting * width).div_ceil(tasks.max(1)).min(width);
    let bar = format!(
        "{}{}",
        paint.yellow(&"█".repeat(filled)),
        "·".repeat(width - filled)
    );
    let bar = if width == 0 { "" } else { &bar };
    let words = format!(
        "{} of {} tasks in the queue",
        grouped(status.waiting as u64),
        grouped(tasks as u64)
    );
    labelled("waiting", bar, &words)
}

fn throughput(history: &History, width: usize) -> String {
    let words = format!("{} commits a second", grouped(history.rate(5)));
    labelled("throughput", &history.line(width), &words)
}

fn waits(now: &Snapshot) -> String {
    let words = format!(
        "{} mean, {} p99, {} longest",
        millis(now.waits.mean),
        millis(now.waits.p99),
        millis(now.waits.max)
    );
    labelled("waits", "", &words)
}

/// The faults that last now, or the last one.
pub(crate) fn fault(now: &Snapshot, paint: Paint) -> String {
    let lasting: Vec<&str> = now
        .phases
        .iter()
        .filter(|phase| phase.to.is_none())
        .map(|phase| phase.name)
        .collect();
    let words = match (lasting.is_empty(), now.phases.last()) {
        (false, _) => paint.red(&lasting.join(", ")),
        (true, None) => "none yet".to_owned(),
        (true, Some(last)) => {
            let since = now.elapsed.saturating_sub(last.to.unwrap_or_default());
            let (seconds, name) = (since.as_secs_f64(), last.name);
            format!("none for {seconds:.1} s, the last: {name}")
        }
    };
    labelled("fault", "", &words)
}

/// How long writes were out after the last promotion.
fn failover(took: Duration) -> String {
    let words = format!("writes were back {} after the promotion", millis(took));
    labelled("failover", "", &words)
}

/// What the auditor says so far.
pub(crate) fn sum(now: &Snapshot, paint: Paint) -> String {
    let audits = &now.audits;
    let words = match (audits.wrong, audits.done) {
        (Some(sum), _) => {
            let words = format!("an audit found {} in place of it", money(sum));
            paint.red(&words)
        }
        (None, 0) => "not audited yet".to_owned(),
        (None, 1) => paint.green("1 audit, not a cent missing"),
        (None, done) => paint.green(&format!("{} audits, not a cent missing", grouped(done))),
    };
    labelled("money", "", &format!("{}: {words}", money(now.before)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cenote_bank::{Audits, Counts, LatencySummary};

    async fn snapshot(max: usize) -> Snapshot {
        let dsn = "sqlite:file:frame?mode=memory&cache=shared";
        let db = cenote::Db::builder(dsn).max(max).open().await.unwrap();
        Snapshot {
            elapsed: Duration::from_millis(1_500),
            status: db.status(),
            counts: Counts::default(),
            waits: LatencySummary::default(),
            audits: Audits::default(),
            before: 10_000_000,
            phases: Vec::new(),
            failover: None,
        }
    }

    fn drawn(now: &Snapshot, columns: usize, rows: usize) -> Vec<String> {
        let heading = Heading {
            title: "300 tasks on 5 connections".to_owned(),
            database: "a temporary SQLite file".to_owned(),
            tasks: 300,
            length: Duration::from_secs(5),
            has_faults: true,
        };
        let size = Size { columns, rows };
        let history = History::new();
        lines(&heading, now, &history, None, size, Paint::none())
    }

    #[tokio::test]
    async fn a_frame_fits_into_80_columns_and_24_rows() {
        for max in [1, 2, 5, 7, 29, 30, 31, 1_000] {
            let mut now = snapshot(max).await;
            now.failover = Some(Duration::from_millis(1_999));
            let lines = drawn(&now, 80, 24);
            assert!(lines.iter().any(|line| line.starts_with("failover")));
            assert!(lines.len() < 24, "{}", lines.len());
            for line in lines {
                assert!(line.chars().count() <= 80, "{max}: {line}");
            }
        }
    }

    #[tokio::test]
    async fn at_60_columns_no_word_is_cut() {
        let mut now = snapshot(5).await;
        now.audits.done = 1_234;
        now.waits = LatencySummary {
            mean: Duration::from_millis(999),
            p99: Duration::from_millis(9_999),
            max: Duration::from_millis(9_999),
            ..LatencySummary::default()
        };
        for line in drawn(&now, 60, 40) {
            assert!(line.chars().count() <= 60, "{line}");
        }
    }

    #[tokio::test]
    async fn where_there_is_little_room_the_heart_of_it_stays() {
        let now = snapshot(5).await;
        for rows in 6..24 {
            let lines = drawn(&now, 40, rows);
            assert!(lines.len() < rows, "{rows}: {lines:?}");
            for label in ["connections", "waiting", "throughput", "fault", "money"] {
                let shown = lines.iter().any(|line| line.starts_with(label));
                assert!(shown, "{rows}: {label}");
            }
        }
    }

    #[tokio::test]
    async fn a_wrong_sum_is_said_at_once() {
        let mut now = snapshot(5).await;
        assert!(sum(&now, Paint::none()).contains("not audited yet"));
        now.audits = Audits {
            done: 4,
            wrong: None,
        };
        let line = sum(&now, Paint::none());
        assert_eq!(
            line,
            "money        100,000.00: 4 audits, not a cent missing"
        );
        now.audits.wrong = Some(9_999_999);
        let line = sum(&now, Paint::none());
        assert!(line.contains("99,999.99"), "{line}");
    }

    #[tokio::test]
    async fn the_rate_is_that_of_the_last_steps() {
        let now = snapshot(5).await;
        let mut history = History::new();
        assert_eq!(history.rate(5), 0);
        history.push(&now);
        assert_eq!(history.rate(5), 0);
        history.steps.push_back((Duration::from_millis(2_000), 100));
        assert_eq!(history.rate(1), 200);
        assert_eq!(history.rate(9), 50);
        assert_eq!(history.line(4), "▁█  ");
    }
}
