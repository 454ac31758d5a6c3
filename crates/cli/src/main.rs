//! The `cenote` command: a bank that hundreds of misbehaving tasks use at once.

mod args;
mod failure;
mod frame;
mod run;
mod screen;
mod summary;
mod view;

use std::io::Write;
use std::process::ExitCode;

use crate::args::{Command, HELP, Options};
use crate::failure::Failure;
use crate::view::View;

fn main() -> ExitCode {
    let ended = match args::parse(std::env::args_os().skip(1), |name| std::env::var_os(name)) {
        Ok(Command::Run(options)) => run(&options),
        Ok(Command::Help) => say(HELP),
        Ok(Command::Version) => say(concat!("cenote ", env!("CARGO_PKG_VERSION"), "\n")),
        Err(failure) => Err(failure),
    };
    ended.unwrap_or_else(|failure| {
        // There is no other place for an error.
        let _ = writeln!(std::io::stderr(), "cenote: {failure}");
        ExitCode::from(failure.code())
    })
}

/// Prints a text; its reader may leave early (`cenote --help | head -1`).
fn say(text: &str) -> Result<ExitCode, Failure> {
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(ExitCode::SUCCESS)
}

fn run(options: &Options) -> Result<ExitCode, Failure> {
    cenote_bank::silence_planned_panics();
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|error| Failure::other(format!("it cannot start: {error}")))?;
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
