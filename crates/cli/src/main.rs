//! The `cenote` command: shows a pool at work, on simulated connections.

mod args;
mod simulation;
mod view;

use std::io;
use std::process::ExitCode;

use crate::args::{Command, HELP, Options};
use crate::simulation::{SimulatedPanic, Simulation};
use crate::view::View;

fn main() -> ExitCode {
    let options = match args::parse(std::env::args_os().skip(1)) {
        Ok(Command::Run(options)) => options,
        Ok(Command::Help) => return say(HELP),
        Ok(Command::Version) => return say(concat!("cenote ", env!("CARGO_PKG_VERSION"), "\n")),
        Err(error) => {
            eprintln!("cenote: {error}; see cenote --help");
            return ExitCode::from(2);
        }
    };
    hush_simulated_panics();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("cenote: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run(&options)) {
        Ok(code) => code,
        // Whoever read the output went away before the check: no need to say so.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cenote: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints a text that may be cut short by whoever reads it (`cenote --help | head -1`).
fn say(text: &str) -> ExitCode {
    let _ = io::Write::write_all(&mut io::stdout(), text.as_bytes());
    ExitCode::SUCCESS
}

async fn run(options: &Options) -> io::Result<ExitCode> {
    let simulation = match Simulation::start(options) {
        Ok(simulation) => simulation,
        Err(error) => {
            eprintln!("cenote: {error}");
            return Ok(ExitCode::from(2));
        }
    };
    let mut view = View::new(options);
    let mut frames = tokio::time::interval(view.pace());
    let mut interrupted = std::pin::pin!(async {
        if tokio::signal::ctrl_c().await.is_err() {
            // No signals here: then it runs to its end.
            std::future::pending().await
        }
    });
    loop {
        tokio::select! {
            _ = frames.tick() => {
                let snapshot = simulation.snapshot();
                view.draw(&snapshot)?;
                if snapshot.elapsed >= options.length {
                    break;
                }
            }
            _ = &mut interrupted => break,
        }
    }
    let report = simulation.finish().await;
    view.summary(&report)?;
    Ok(if report.lost.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// A simulated panic is part of the show; any other is reported as usual.
fn hush_simulated_panics() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.payload().is::<SimulatedPanic>() {
            report(info);
        }
    }));
}
