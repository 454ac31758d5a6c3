//! `cenote size`: measures how many connections a pool should have, and shows it meanwhile.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use cenote_size::{Error, Report, Session, Workload};
use tokio::time::interval;

use crate::failure::Failure;
use crate::run::Signals;
use crate::size_args::SizeOptions;
use crate::size_view::View;

/// Runs the command.
pub(crate) async fn run(options: &SizeOptions) -> Result<ExitCode, Failure> {
    let mut measured = options.measured.clone();
    if let Some(file) = &options.workload {
        measured.workload = Some(read(file)?);
    }
    let mut signals = Signals::listen()?;
    let started = signals.unless(Session::start(measured)).await;
    let mut session = started.ok_or_else(Failure::interrupted_check)??;
    let mut view = View::new(options.json);
    view.begin(&session);
    let ended = measure(&mut session, &mut view, &mut signals).await;
    // A second signal ends this, too.
    let cleaned_up = signals.unless(session.clean_up()).await;
    let interrupted = match ended {
        Ok(interrupted) => interrupted,
        Err(error) => {
            drop(view);
            return Err(error.into());
        }
    };
    let report = session.report(interrupted);
    view.end(&report);
    let trouble = view.trouble();
    // Shows the cursor before any error.
    drop(view);
    write(options, &report)?;
    cleaned_up.ok_or_else(Failure::interrupted_size)??;
    match trouble {
        Some(error) => Err(error.into()),
        None if report.ok => Ok(ExitCode::SUCCESS),
        None => Ok(ExitCode::FAILURE),
    }
}

/// Measures to the end. Returns whether a signal, or a reader who left, stopped it.
async fn measure(
    session: &mut Session,
    view: &mut View,
    signals: &mut Signals,
) -> Result<bool, Error> {
    let mut frames = interval(Duration::from_millis(100));
    loop {
        view.draw(session);
        let shown = session.progress();
        let size = {
            let mut step = std::pin::pin!(session.step());
            loop {
                tokio::select! {
                    size = &mut step => break size?,
                    // The measurement under way is lost, the others stay.
                    () = signals.next() => return Ok(true),
                    _ = frames.tick() => view.tick(shown),
                }
            }
        };
        if view.is_deaf() {
            return Ok(true);
        }
        if size.is_none() {
            return Ok(false);
        }
        view.measured(session);
    }
}

fn read(file: &std::path::Path) -> Result<Workload, Failure> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::InvalidData => "it is not UTF-8".to_owned(),
            _ => error.to_string(),
        };
        Failure::with_code(2, format!("cannot read the workload {name}: {why}"))
    })?;
    Workload::parse(&name, &text).map_err(|error| Failure::with_code(2, error))
}

fn write(options: &SizeOptions, report: &Report) -> Result<(), Failure> {
    let Some(file) = &options.report else {
        return Ok(());
    };
    std::fs::write(file, report.html())
        .map_err(|error| Failure::other(format!("cannot write {}: {error}", file.display())))
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Workload(text) => Failure::with_code(2, text),
            Error::Database(text) => Failure::database(text),
            error => Failure::other(error),
        }
    }
}
