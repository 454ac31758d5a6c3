//! What `cenote size` shows: a chart that grows on a terminal, a line for each measurement elsewhere, then the result.

use std::io::{self, IsTerminal, Stdout, Write};
use std::time::Duration;

use cenote_bank::figures::{counted, grouped};
use cenote_size::limit::Limit;
use cenote_size::{Report, Row, Sample, Session};

use crate::screen::{Paint, Screen, Size};
use crate::wrap::wrapped;

/// The widest bar, and what stands beside it.
const WIDEST: usize = 32;
const BESIDE: usize = 46;

enum Mode {
    Live(Screen<Stdout>, Paint),
    Plain,
    /// Only the result, in JSON.
    Json,
    /// The reader is gone.
    Deaf,
}

/// Shows a measurement on standard output.
pub(crate) struct View {
    mode: Mode,
    title: String,
    database: String,
    rows: Vec<Row>,
    knee: Option<usize>,
    length: Duration,
    /// Why the output failed.
    trouble: Option<io::Error>,
    began: tokio::time::Instant,
}

impl View {
    pub(crate) fn new(json: bool) -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let mode = match json {
            true => Mode::Json,
            false if io::stdout().is_terminal() && !dumb => {
                Mode::Live(Screen::new(io::stdout()), Paint::by_environment())
            }
            false => Mode::Plain,
        };
        View {
            mode,
            title: String::new(),
            database: String::new(),
            rows: Vec::new(),
            knee: None,
            length: Duration::ZERO,
            trouble: None,
            began: tokio::time::Instant::now(),
        }
    }

    /// Whether the reader is gone.
    pub(crate) fn is_deaf(&self) -> bool {
        matches!(self.mode, Mode::Deaf)
    }

    /// Returns why the output failed, unless the reader just went away.
    pub(crate) fn trouble(&mut self) -> Option<io::Error> {
        let gone = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
        self.trouble.take().filter(|error| !gone(error))
    }

    /// Shows what will be measured.
    pub(crate) fn begin(&mut self, session: &Session) {
        let most = counted(session.most(), "connection");
        self.title = format!("{}: pools of 1 to {most}", session.workload());
        self.database = session.database().to_owned();
        self.length = session.progress().1;
        self.began = tokio::time::Instant::now();
        if matches!(self.mode, Mode::Plain) {
            let (title, database, seconds) =
                (&self.title, &self.database, self.length.as_secs_f64());
            let line = format!("{title}, at most {seconds:.0} s on {database}\n");
            self.write(&line);
        }
    }

    /// Takes in a new measurement.
    pub(crate) fn measured(&mut self, session: &Session) {
        self.rows = session.rows();
        self.knee = session.knee();
        if let (Mode::Plain, Some(sample)) = (&self.mode, session.samples().last()) {
            let line = plain_line(session.progress().0, sample);
            self.write(&line);
        }
    }

    /// Draws the live view.
    pub(crate) fn draw(&mut self, session: &Session) {
        self.tick(session.progress());
    }

    /// Draws the live view again, while a measurement is under way.
    pub(crate) fn tick(&mut self, (_, length): (Duration, Duration)) {
        let elapsed = self.began.elapsed().min(length);
        if let Mode::Live(screen, paint) = &mut self.mode {
            let size = Size::of_terminal();
            let mut lines = vec![
                heading(&self.title, elapsed, length, size.columns, *paint),
                paint.dim(&format!("on {}", self.database)),
                String::new(),
            ];
            lines.extend(chart(
                &self.rows,
                self.knee,
                size.columns,
                size.rows.saturating_sub(6),
                *paint,
            ));
            lines.push(String::new());
            lines.push(paint.dim("Ctrl-C stops and reports what there is"));
            let drawn = screen.draw(&lines, size);
            self.note(drawn);
        }
    }

    /// Shows the result.
    pub(crate) fn end(&mut self, report: &Report) {
        match &mut self.mode {
            Mode::Json => {
                let json = serde_json::to_string(report).expect("numbers and texts can be written");
                self.write(&format!("{json}\n"));
            }
            Mode::Plain => self.write(&wrapped(
                &format!("\n{}", text(report, 80, Paint::none())),
                80,
            )),
            Mode::Live(screen, paint) => {
                let columns = Size::of_terminal().columns;
                let text = wrapped(&text(report, columns, *paint), columns);
                let written = screen.erase().and_then(|()| screen.write(&text));
                self.note(written);
            }
            Mode::Deaf => {}
        }
    }

    fn write(&mut self, text: &str) {
        let mut out = io::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        drop(out);
        self.note(written);
    }

    fn note(&mut self, written: io::Result<()>) {
        if let Err(error) = written {
            self.trouble = Some(error);
            self.mode = Mode::Deaf;
        }
    }
}

fn plain_line(elapsed: Duration, sample: &Sample) -> String {
    format!(
        "{:5.1} s {:>4} connections {:>9}/s  statement {:>9}  wait {:>9}\n",
        elapsed.as_secs_f64(),
        sample.size,
        rate(sample.throughput),
        millis(sample.statement.p50),
        millis(sample.wait.p50),
    )
}

fn heading(title: &str, now: Duration, length: Duration, columns: usize, paint: Paint) -> String {
    let clock = format!(
        "{:.0} of at most {:.0} s",
        now.as_secs_f64(),
        length.as_secs_f64()
    );
    let room = columns.min(80).saturating_sub(clock.len() + 2);
    let title: String = title.chars().take(room).collect();
    let gap = columns
        .min(80)
        .saturating_sub(title.chars().count() + clock.len());
    format!("{}{:gap$}{clock}", paint.bold(&title), "")
}

/// The chart: a line for each size, as many as fit. Where there are too many, those far from the knee go.
fn chart(
    rows: &[Row],
    knee: Option<usize>,
    columns: usize,
    most: usize,
    paint: Paint,
) -> Vec<String> {
    let width = columns.saturating_sub(BESIDE).clamp(4, WIDEST);
    let highest = rows.iter().map(|row| row.throughput).fold(0.0, f64::max);
    let mut shown: Vec<&Row> = rows.iter().collect();
    if shown.len() > most.max(3) {
        let far = |row: &&Row| row.size.abs_diff(knee.unwrap_or(0));
        shown.sort_by_key(far);
        shown.truncate(most.max(3));
        shown.sort_by_key(|row| row.size);
    }
    let head = format!(
        "{:>5}  {:width$}  {:>9}  {:>11}  {:>10}",
        "size", "", "ops/s", "statement", "wait"
    );
    let mut lines = vec![paint.dim(&head)];
    for row in shown {
        let bar = bar(row.throughput, highest, width);
        let text = format!(
            "  {:>9}  {:>11}  {:>10}",
            rate(row.throughput),
            millis(row.statement_ms.p50),
            millis(row.wait_ms.p50)
        );
        let is_knee = Some(row.size) == knee;
        let (bar, size) = match is_knee {
            true => (paint.green(&bar), paint.green(&format!("{:>5}", row.size))),
            false => (paint.blue(&bar), format!("{:>5}", row.size)),
        };
        let mark = if is_knee { " <" } else { "" };
        lines.push(format!("{size}  {bar}{text}{mark}"));
    }
    lines
}

fn bar(value: f64, highest: f64, width: usize) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "eighths of some columns"
    )]
    let eighths = match highest > 0.0 {
        true => (value / highest * (width * 8) as f64).round() as usize,
        false => 0,
    };
    let eighths = eighths.min(width * 8);
    let bar = format!("{}{}", "█".repeat(eighths / 8), PARTS[eighths % 8]);
    format!("{bar:<width$}")
}

/// The result for people.
pub(crate) fn text(report: &Report, columns: usize, paint: Paint) -> String {
    let mut lines = vec![
        paint.bold(&format!(
            "{} on {}{}",
            report.workload,
            report.database,
            if report.interrupted {
                ", interrupted"
            } else {
                ""
            }
        )),
        format!(
            "{}, {:.0} s, {}",
            counted(report.clients, "client"),
            report.seconds,
            match report.read_only {
                true => "read-only",
                false => "with writes",
            }
        ),
        String::new(),
    ];
    let knee = report.knee.map(|knee| knee.connections);
    lines.extend(chart(&report.sizes, knee, columns, usize::MAX, paint));
    lines.push(String::new());
    if let Some(advice) = &report.recommendation {
        let each = match (advice.instances, advice.replicas) {
            (1, 1) => String::new(),
            (instances, 1) => format!(", for each of {instances} instances"),
            (1, replicas) => format!(", over {replicas} servers"),
            (instances, replicas) => {
                format!(", for each of {instances} instances, over {replicas} servers")
            }
        };
        let size = counted(advice.max, "connection");
        lines.push(format!("recommended  {}{each}", paint.green(&size)));
        lines.push(format!("why          {}", advice.reason));
        let limit = match report.limit {
            Limit::Unknown => report.evidence.clone(),
            _ => format!("{}: {}", report.limit.name(), report.evidence),
        };
        lines.push(format!("limit        {limit}"));
        lines.push(format!("set          {}", advice.setting));
    } else {
        lines.push("Nothing was measured.".to_owned());
    }
    if let Some(knee) = report.knee {
        lines.push(format!(
            "certainty    {:.0} %: from {} to {}, repeats differ by {:.1} %",
            knee.confidence * 100.0,
            knee.low,
            knee.high,
            knee.noise * 100.0
        ));
    }
    if let Some(last) = report.sizes.last() {
        lines.push(format!("seen         {}", seen(last, report)));
    }
    for note in &report.notes {
        lines.push(format!("{}         {note}", paint.yellow("note")));
    }
    lines.push(String::new());
    lines.join("\n")
}

/// What was seen of processors and server with the most connections.
fn seen(row: &Row, report: &Report) -> String {
    let known =
        |value: Option<f64>| value.map_or("unknown".to_owned(), |value| format!("{value:.1}"));
    let server = match row.evidence.activity {
        None => "server: unknown".to_owned(),
        Some(activity) => format!(
            "server sessions: {:.1} run, {:.1} in locks, {:.1} on disk, {:.1} sleep",
            activity.cpu, activity.locks, activity.disk, activity.sleeping
        ),
    };
    let machine = row
        .evidence
        .machine_cpu
        .map_or("unknown".to_owned(), |share| {
            format!("{:.0} % busy", share * 100.0)
        });
    format!(
        "with {}: this program uses {} of {:.0} processors, machine {machine}; {server}",
        counted(row.size, "connection"),
        known(row.evidence.client_cpu),
        report.processors
    )
}

fn rate(rate: f64) -> String {
    if rate < 99.5 {
        return format!("{rate:.1}");
    }
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive number to show"
    )]
    let whole = rate.round() as u64;
    grouped(whole)
}

/// Milliseconds with three digits or more.
fn millis(millis: f64) -> String {
    match millis {
        _ if millis < 9.995 => format!("{millis:.2} ms"),
        _ if millis < 99.95 => format!("{millis:.1} ms"),
        _ => format!("{millis:.0} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(size: usize, throughput: f64) -> Row {
        Row {
            size,
            throughput,
            ..Row::default()
        }
    }

    #[test]
    fn chart_fits_into_80_columns_and_the_rows_given() {
        let rows: Vec<Row> = (1..=40).map(|size| row(size, 1_234_567.0)).collect();
        for columns in [50, 60, 80, 200] {
            let lines = chart(&rows, Some(20), columns, 12, Paint::none());
            assert_eq!(lines.len(), 13);
            for line in &lines {
                assert!(line.chars().count() <= columns, "{columns}: {line}");
            }
            assert!(lines.iter().any(|line| line.ends_with('<')), "{lines:?}");
        }
    }

    #[test]
    fn bars_are_as_long_as_their_values() {
        assert_eq!(bar(50.0, 100.0, 4), "██  ");
        assert_eq!(bar(100.0, 100.0, 4), "████");
        assert_eq!(bar(0.0, 0.0, 4), "    ");
        assert_eq!(bar(9.0, 100.0, 4), "▍   ");
    }

    #[test]
    fn figures_keep_three_digits() {
        assert_eq!(millis(0.034), "0.03 ms");
        assert_eq!(millis(50.12), "50.1 ms");
        assert_eq!(millis(1_234.6), "1235 ms");
        assert_eq!(
            (rate(0.5), rate(1_234.4)),
            ("0.5".to_owned(), "1,234".to_owned())
        );
    }
}
