//! What the user sees: a few lines redrawn in place on a terminal, one line a
//! second anywhere else, and the summary.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::time::Duration;

use cenote_pool::{BreakerState, DestroyReason, Histogram, Status};

use crate::args::Options;
use crate::simulation::{Report, Snapshot};

/// The widest bar, so that a line fits into 80 columns.
const WIDEST: usize = 40;
/// How many frames make one step of the throughput line.
const FRAMES_PER_STEP: u32 = 2;

const REASONS: [(DestroyReason, &str); 12] = [
    (DestroyReason::AcquireRejected, "rejected on acquire"),
    (DestroyReason::ReleaseRejected, "rejected on release"),
    (DestroyReason::Unhealthy, "unhealthy"),
    (DestroyReason::IdleTimeout, "idle for too long"),
    (DestroyReason::Lifetime, "too old"),
    (DestroyReason::Renewed, "renewed"),
    (DestroyReason::Shrunk, "shrunk"),
    (DestroyReason::Discarded, "discarded"),
    (DestroyReason::Detached, "detached"),
    (DestroyReason::Abandoned, "abandoned"),
    (DestroyReason::RuntimeGone, "runtime gone"),
    (DestroyReason::Closed, "closed"),
];

/// Where and how to show it.
enum Mode {
    Live { colours: bool },
    Plain,
    Json,
}

/// Shows snapshots and the report on standard output.
pub(crate) struct View {
    mode: Mode,
    title: String,
    length: Duration,
    tasks: usize,
    /// How many lines the last frame had, to go back by.
    drawn: usize,
    frame: u32,
    /// Uses at the last steps, the newest last, with the time of each.
    steps: VecDeque<(Duration, u64)>,
}

impl View {
    pub(crate) fn new(options: &Options) -> View {
        let mode = if options.json {
            Mode::Json
        } else if io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
        {
            let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
            Mode::Live { colours }
        } else {
            Mode::Plain
        };
        View {
            mode,
            title: format!(
                "cenote: {} tasks share {} connections",
                options.tasks, options.max
            ),
            length: options.length,
            tasks: options.tasks,
            drawn: 0,
            frame: 0,
            steps: VecDeque::from([(Duration::ZERO, 0)]),
        }
    }

    /// How often to draw.
    pub(crate) fn pace(&self) -> Duration {
        match self.mode {
            Mode::Live { .. } | Mode::Json => Duration::from_millis(100),
            Mode::Plain => Duration::from_secs(1),
        }
    }

    pub(crate) fn draw(&mut self, now: &Snapshot) -> io::Result<()> {
        self.frame += 1;
        match self.mode {
            Mode::Live { colours } => {
                if self.frame.is_multiple_of(FRAMES_PER_STEP) {
                    self.step(now);
                }
                let paint = Paint { on: colours };
                let lines = self.frame_lines(now, &paint);
                self.redraw(&lines)
            }
            Mode::Plain if self.frame == 1 => {
                let mut out = io::stdout();
                writeln!(out, "{}", self.title)
            }
            Mode::Plain => {
                self.step(now);
                let mut out = io::stdout();
                let (seconds, rate) = (now.elapsed.as_secs_f64(), self.rate(1));
                let outage = if now.server_is_down {
                    ", server down"
                } else {
                    ""
                };
                writeln!(
                    out,
                    "{seconds:4.1} s: {rate:>5} uses/s, {}{outage}",
                    now.status
                )
            }
            Mode::Json => Ok(()),
        }
    }

    fn step(&mut self, now: &Snapshot) {
        self.steps.push_back((now.elapsed, now.done));
        if self.steps.len() > WIDEST {
            self.steps.pop_front();
        }
    }

    /// Uses a second, over the last `back` steps.
    fn rate(&self, back: usize) -> u64 {
        let newest = self.steps.len() - 1;
        match (
            self.steps.get(newest.saturating_sub(back)),
            self.steps.get(newest),
        ) {
            (Some(from), Some(to)) => rate(to.1 - from.1, to.0 - from.0),
            _ => 0,
        }
    }

    fn frame_lines(&self, now: &Snapshot, paint: &Paint) -> Vec<String> {
        let status = &now.status;
        let clock = format!(
            "{:.1} of {} s",
            now.elapsed.min(self.length).as_secs_f64(),
            self.length.as_secs()
        );
        let gap = 76_usize.saturating_sub(self.title.len() + clock.len());
        let waiting = bar(status.waiting, self.tasks);
        let breaker = match status.breaker {
            BreakerState::Active => paint.green("active"),
            BreakerState::Inactive => paint.red("open"),
            _ => paint.yellow("recovering"),
        };
        let server = if now.server_is_down {
            paint.red("down")
        } else {
            paint.green("up")
        };
        let counters = &now.counters;
        vec![
            format!("{}{:gap$}{clock}", paint.bold(&self.title), ""),
            String::new(),
            format!(
                "slots    {}  {} active, {} idle, {} creating",
                slots(status, paint),
                status.active,
                status.idle,
                status.creating
            ),
            format!("waiting  {waiting}  {}", status.waiting),
            format!("uses     {}  {}/s", self.spark_line(), self.rate(3)),
            format!(
                "breaker  {breaker}, opened {}; server {server}",
                times(now.opened)
            ),
            String::new(),
            format!(
                "{} used, {} created, {} attempts failed, {} destroyed, {} events",
                now.done, counters.created, counters.create_failed, counters.destroyed, now.events
            ),
            format!(
                "{} broke, {} cancelled, {} panicked, {} timed out, {} refused by the breaker",
                now.broken, now.cancelled, now.panicked, counters.timed_out, now.unavailable
            ),
        ]
    }

    /// The throughput of the last steps, one character each.
    fn spark_line(&self) -> String {
        const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let pairs = self.steps.iter().zip(self.steps.iter().skip(1));
        let rates: Vec<u64> = pairs
            .map(|(from, to)| rate(to.1 - from.1, to.0 - from.0))
            .collect();
        let highest = rates.iter().copied().max().unwrap_or(0).max(1);
        let levels = rates.iter().map(|rate| {
            let level = usize::try_from(rate * 7 / highest).unwrap_or(7);
            LEVELS[level.min(7)]
        });
        let line: String = levels.collect();
        format!("{line:WIDEST$}")
    }

    fn redraw(&mut self, lines: &[String]) -> io::Result<()> {
        let mut frame = String::new();
        if self.drawn == 0 {
            // No cursor, which would flicker, and no line breaks of the terminal's
            // own, which would push the frame out of place; see `leave_live`.
            frame.push_str("\x1b[?25l\x1b[?7l");
        } else {
            let _ = write!(frame, "\x1b[{}A", self.drawn);
        }
        for line in lines {
            let _ = writeln!(frame, "\r{line}\x1b[K");
        }
        self.drawn = lines.len();
        // In one go, so that no half frame is seen.
        let mut out = io::stdout().lock();
        out.write_all(frame.as_bytes())?;
        out.flush()
    }

    /// Leaves the terminal as it was.
    fn leave_live(&mut self) -> io::Result<()> {
        if self.drawn == 0 {
            return Ok(());
        }
        self.drawn = 0;
        let mut out = io::stdout().lock();
        out.write_all(b"\x1b[?25h\x1b[?7h")?;
        out.flush()
    }

    pub(crate) fn summary(&mut self, report: &Report) -> io::Result<()> {
        let text = match self.mode {
            Mode::Json => json(report),
            Mode::Live { colours } => {
                self.draw(&report.end)?;
                self.leave_live()?;
                format!("\n{}", summary(report, &Paint { on: colours }))
            }
            Mode::Plain => summary(report, &Paint { on: false }),
        };
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // For the ways out that have no summary. There is nobody to tell if it fails.
        let _ = self.leave_live();
    }
}

fn summary(report: &Report, paint: &Paint) -> String {
    let Report {
        end,
        worked,
        timings,
        lost,
    } = report;
    let counters = &end.counters;
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<12} {value}");
    };
    line(
        "used",
        format!(
            "{} times in {:.1} s, {} a second",
            end.done,
            worked.as_secs_f64(),
            rate(end.done, *worked)
        ),
    );
    line("waited", quantiles(&timings.wait));
    line("held", quantiles(&timings.usage));
    line(
        "created",
        format!(
            "{}, and {} failed attempts",
            counters.created, counters.create_failed
        ),
    );
    let reasons: Vec<String> = destroyed(report)
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    line(
        "destroyed",
        if reasons.is_empty() {
            "none".to_owned()
        } else {
            reasons.join(", ")
        },
    );
    line(
        "breaker",
        format!(
            "opened {}, recovered {}, refused {} acquires",
            times(end.opened),
            times(end.recovered),
            end.unavailable
        ),
    );
    line(
        "tasks",
        format!(
            "{} cancelled ({} while they queued), {} panicked",
            end.cancelled, counters.cancelled, end.panicked
        ),
    );
    line(
        "acquires",
        format!(
            "{} timed out, {} queued",
            counters.timed_out, counters.waited
        ),
    );
    if lost.is_empty() {
        let all = format!(
            "nothing lost: {} created = {} destroyed + {} idle, nobody waits",
            counters.created, counters.destroyed, end.status.total
        );
        let _ = writeln!(text, "\n{}", paint.green(&all));
    } else {
        for what in lost {
            let _ = writeln!(text, "\n{}", paint.red(&format!("LOST {what}")));
        }
    }
    text
}

fn json(report: &Report) -> String {
    let Report {
        end,
        worked,
        timings,
        lost,
    } = report;
    let counters = &end.counters;
    let wait = &timings.wait;
    let reasons: Vec<String> = destroyed(report)
        .map(|(name, count)| format!("\"{}\":{count}", name.replace(' ', "_")))
        .collect();
    // `{:?}` of these texts is valid JSON: they are plain ASCII.
    let lost: Vec<String> = lost.iter().map(|what| format!("{what:?}")).collect();
    let numbers = [
        ("used", end.done),
        ("per_second", rate(end.done, *worked)),
        ("acquired", counters.acquired),
        ("waited", counters.waited),
        ("wait_p50_us", micros(wait.quantile(0.5))),
        ("wait_p99_us", micros(wait.quantile(0.99))),
        ("wait_max_us", micros(wait.max())),
        ("created", counters.created),
        ("create_failed", counters.create_failed),
        ("destroyed", counters.destroyed),
        ("idle", end.status.idle as u64),
        ("total", end.status.total as u64),
        ("waiting", end.status.waiting as u64),
        ("timed_out", counters.timed_out),
        ("refused", end.unavailable),
        ("broken", end.broken),
        ("cancelled_tasks", end.cancelled),
        ("cancelled_acquires", counters.cancelled),
        ("panicked_tasks", end.panicked),
        ("breaker_opened", end.opened),
        ("breaker_recovered", end.recovered),
        ("events", end.events),
    ];
    let numbers: Vec<String> = numbers
        .iter()
        .map(|(name, number)| format!("\"{name}\":{number}"))
        .collect();
    format!(
        "{{\"seconds\":{:.3},{},\"destroyed_by_reason\":{{{}}},\"lost\":[{}]}}\n",
        worked.as_secs_f64(),
        numbers.join(","),
        reasons.join(","),
        lost.join(",")
    )
}

/// The reasons there were, each with its number.
fn destroyed(report: &Report) -> impl Iterator<Item = (&'static str, u64)> {
    let counters = report.end.counters;
    let counted = REASONS
        .iter()
        .map(move |(reason, name)| (*name, counters.destroyed_for(*reason)));
    counted.filter(|(_, count)| *count > 0)
}

fn quantiles(histogram: &Histogram) -> String {
    format!(
        "half up to {}, 99 % up to {}, longest {}",
        millis(histogram.quantile(0.5)),
        millis(histogram.quantile(0.99)),
        millis(histogram.max())
    )
}

fn millis(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1000.0)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        _ => format!("{count} times"),
    }
}

fn rate(count: u64, time: Duration) -> u64 {
    count * 1000 / micros(time).div_ceil(1000).max(1)
}

/// One cell for each place, or for several where there are many; a wide one
/// where there are few.
fn slots(status: &Status, paint: &Paint) -> String {
    let cells = status.max.min(WIDEST);
    // The running sums are scaled, not the parts: so the bar is always full.
    let scale = |places: usize| places.min(status.max) * cells / status.max;
    let active = scale(status.active);
    let held = scale(status.active + status.idle);
    let total = scale(status.total);
    let (wide, gap) = if cells * 3 <= WIDEST {
        (2, " ")
    } else {
        (1, "")
    };
    let bar: String = (0..cells)
        .map(|cell| {
            let painted = match cell {
                _ if cell < active => paint.green(&"█".repeat(wide)),
                _ if cell < held => paint.blue(&"▒".repeat(wide)),
                _ if cell < total => paint.yellow(&"+".repeat(wide)),
                _ => "·".repeat(wide),
            };
            painted + gap
        })
        .collect();
    let padding = WIDEST - cells * (wide + gap.len());
    format!("{bar}{:padding$}", "")
}

fn bar(part: usize, whole: usize) -> String {
    let filled = (part * WIDEST).div_ceil(whole.max(1)).min(WIDEST);
    format!("{}{}", "█".repeat(filled), "·".repeat(WIDEST - filled))
}

/// Colours, where they are wanted.
struct Paint {
    on: bool,
}

impl Paint {
    fn with(&self, code: &str, text: &str) -> String {
        if self.on && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    fn bold(&self, text: &str) -> String {
        self.with("1", text)
    }

    fn red(&self, text: &str) -> String {
        self.with("31", text)
    }

    fn green(&self, text: &str) -> String {
        self.with("32", text)
    }

    fn yellow(&self, text: &str) -> String {
        self.with("33", text)
    }

    fn blue(&self, text: &str) -> String {
        self.with("34", text)
    }
}
