//! The `cenote` command: checks and migrates a database, measures the right size of a pool, or runs a bank on it that hundreds of
//! misbehaving tasks use at once.

mod args;
mod check;
mod connect;
mod facts;
mod failure;
mod frame;
mod help;
mod migrate;
mod page;
mod run;
mod screen;
mod size;
mod size_args;
mod size_view;
mod suggest;
mod summary;
mod view;
mod wrap;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use crate::args::{Command, Options};
use crate::failure::Failure;
use crate::screen::Size;
use crate::view::View;

fn main() -> ExitCode {
    let ended = match args::parse(std::env::args_os().skip(1), |name| std::env::var_os(name)) {
        Ok(Command::Run(options)) => run(&options),
        Ok(Command::Migrate(options)) => {
            connect::check_driver(&options.database).and_then(|()| finish(migrate::run(&options)))
        }
        Ok(Command::Check(options)) => {
            connect::check_driver(&options.database).and_then(|()| finish(check::run(&options)))
        }
        Ok(Command::Size(options)) => connect::check_driver(&options.measured.database)
            .and_then(|()| finish(size::run(&options))),
        Ok(Command::Help(text)) => say(text),
        Ok(Command::Version) => say(concat!("cenote ", env!("CARGO_PKG_VERSION"), "\n")),
        Err(failure) => Err(failure),
    };
    ended.unwrap_or_else(|failure| {
        // There is no other place for an error.
        let line = format!("cenote: {failure}");
        let line = match std::io::stderr().is_terminal() {
            true => wrap::wrapped(&line, Size::of_terminal().columns),
            false => line,
        };
        let _ = writeln!(std::io::stderr(), "{line}");
        ExitCode::from(failure.code())
    })
}

/// Prints a text, with its lines broken where a terminal is narrow. Its reader may leave early
/// (`cenote --help | head -1`).
fn say(text: &str) -> Result<ExitCode, Failure> {
    let mut out = std::io::stdout();
    let written = match out.is_terminal() {
        true => out.write_all(wrap::wrapped(text, Size::of_terminal().columns).as_bytes()),
        false => out.write_all(text.as_bytes()),
    };
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Runtime::new()
        .map_err(|error| Failure::other(format!("it cannot start: {error}")))
}

/// Runs a command to its end.
fn finish(command: impl Future<Output = Result<ExitCode, Failure>>) -> Result<ExitCode, Failure> {
    let runtime = runtime()?;
    let ended = runtime.block_on(command);
    // What still runs has no results.
    runtime.shutdown_background();
    ended
}

fn run(options: &Options) -> Result<ExitCode, Failure> {
    connect::check_driver(&options.bank.database)?;
    if options.bank.chaos.as_ref().is_some_and(|it| it.cluster) {
        connect::has_driver("pgsql")?;
    }
    cenote_bank::silence_planned_panics();
    let runtime = runtime()?;
    let mut view = View::new(options);
    let ended = runtime.block_on(run::run(options, &mut view));
    let trouble = view.trouble();
    // Shows the cursor before any error.
    drop(view);
    // What still runs has no results.
    runtime.shutdown_background();
    match (ended?, trouble) {
        (false, _) => Ok(ExitCode::FAILURE),
        (true, Some(error)) => Err(error.into()),
        (true, None) => Ok(ExitCode::SUCCESS),
    }
}
