//! The output while it runs and at the end: a few lines redrawn in place on a terminal, one
//! line a second elsewhere, then the summary.

use std::io::{self, IsTerminal, Stdout, Write};
use std::time::Duration;

use cenote_bank::figures::{counted, grouped};
use cenote_bank::{Outcome, Snapshot, Summary};

use crate::args::Options;
use crate::frame::{self, Heading, History};
use crate::screen::{Paint, Screen, Size};
use crate::summary;
use crate::wrap::wrapped;

/// How often the live view is drawn.
const FRAME: Duration = Duration::from_millis(100);
/// How often a plain line is written.
const LINE: Duration = Duration::from_secs(1);

#[derive(Debug)]
enum Mode {
    Live(Screen<Stdout>, Paint),
    Plain,
    /// Only the summary, in JSON.
    Json,
    /// The reader is gone.
    Deaf,
}

/// Shows a run on standard output.
#[derive(Debug)]
pub(crate) struct View {
    mode: Mode,
    heading: Heading,
    history: History,
    stopping: Option<&'static str>,
    /// Why the output failed.
    trouble: Option<io::Error>,
}

impl View {
    pub(crate) fn new(options: &Options) -> Self {
        let can_redraw = || {
            let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
            io::stdout().is_terminal() && !dumb
        };
        let mode = match options.json {
            true => Mode::Json,
            false if can_redraw() => Mode::Live(Screen::new(io::stdout()), Paint::by_environment()),
            false => Mode::Plain,
        };
        View {
            mode,
            heading: Heading {
                title: format!(
                    "{} on {}",
                    counted(options.bank.tasks, "task"),
                    counted(options.bank.max, "connection")
                ),
                database: String::new(),
                tasks: options.bank.tasks,
                length: options.bank.length,
                has_faults: options.bank.chaos.is_some(),
            },
            history: History::new(),
            stopping: None,
            trouble: None,
        }
    }

    /// Returns the time between two frames.
    pub(crate) fn interval(&self) -> Duration {
        match self.mode {
            Mode::Plain => LINE,
            _ => FRAME,
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

    /// Shows that the run begins, on this database.
    pub(crate) fn begin(&mut self, database: &str) {
        self.heading.database = database.to_owned();
        if matches!(self.mode, Mode::Plain) {
            let Heading { title, length, .. } = &self.heading;
            let seconds = length.as_secs_f64();
            let line = format!("{title} for {seconds:.1} s on {database}\n");
            self.write(&line);
        }
    }

    /// Shows the figures.
    pub(crate) fn draw(&mut self, now: &Snapshot) {
        self.history.push(now);
        if let Mode::Plain = self.mode {
            let line = self.plain_line(now);
            return self.write(&line);
        }
        if let Mode::Live(screen, paint) = &mut self.mode {
            let size = Size::of_terminal();
            let (heading, stopping) = (&self.heading, self.stopping);
            let lines = frame::lines(heading, now, &self.history, stopping, size, *paint);
            let drawn = screen.draw(&lines, size);
            self.note(drawn);
        }
    }

    fn plain_line(&self, now: &Snapshot) -> String {
        let audits = &now.audits;
        let audit = match audits.wrong {
            Some(_) => "MONEY WRONG",
            None if audits.done == 0 => "unaudited",
            None => "money ok",
        };
        let lasting = now.phases.iter().filter(|phase| phase.to.is_none());
        let fault: String = lasting.map(|phase| format!("  {}", phase.name)).collect();
        format!(
            "{:5.1} s {:>6} commits/s {:>7} commits {:>6} rollbacks {:>4} waiting  \
             {audit}{fault}\n",
            now.elapsed.as_secs_f64(),
            grouped(self.history.rate(1)),
            grouped(now.counts.of(Outcome::Committed)),
            grouped(now.counts.rolled_back()),
            grouped(now.status.waiting as u64),
        )
    }

    /// Shows that a signal stops the run.
    pub(crate) fn interrupt(&mut self) {
        let line = "stopping; once more to end at once";
        self.stopping = Some(line);
        if matches!(self.mode, Mode::Plain) {
            self.write(&format!("{line}\n"));
        }
    }

    /// Shows the summary.
    pub(crate) fn end(&mut self, summary: &Summary) {
        match &mut self.mode {
            Mode::Json => self.write(&summary::json(summary)),
            Mode::Plain => self.write(&format!("\n{}", summary::text(summary, Paint::none()))),
            Mode::Live(screen, paint) => {
                let text = wrapped(&summary::text(summary, *paint), Size::of_terminal().columns);
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
