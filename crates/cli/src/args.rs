//! The command line.

use std::ffi::OsString;
use std::time::Duration;

use lexopt::prelude::*;

/// What `--help` prints.
pub(crate) const HELP: &str = "\
cenote: shows a resource pool at work

Many tasks share a few simulated connections. Some tasks are cancelled, some
panic, some connections break, and half-way the server is gone for a while.
At the end the command checks that nothing was lost.

Usage: cenote [options]

  --tasks N      how many tasks share the pool (200)
  --max N        how many connections the pool may have (8)
  --seconds N    for how long (6)
  --json         no live view; the summary as one line of JSON
  -h, --help     this text
  -V, --version  the version

Ctrl-C stops early and still prints the summary.
Exit code: 0 if nothing was lost, 1 if something was, 2 for wrong arguments.
";

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Run(Options),
    Help,
    Version,
}

/// How to run the simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) tasks: usize,
    pub(crate) max: usize,
    pub(crate) length: Duration,
    pub(crate) json: bool,
}

/// Reads the arguments, without the program's name.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command, lexopt::Error> {
    let mut options = Options {
        tasks: 200,
        max: 8,
        length: Duration::from_secs(6),
        json: false,
    };
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("tasks") => options.tasks = number(&mut parser, "--tasks", 100_000)?,
            Long("max") => options.max = number(&mut parser, "--max", 10_000)?,
            Long("seconds") => {
                let seconds = number(&mut parser, "--seconds", 86_400)?;
                options.length = Duration::from_secs(seconds as u64);
            }
            Long("json") => options.json = true,
            Short('h') | Long("help") => return Ok(Command::Help),
            Short('V') | Long("version") => return Ok(Command::Version),
            _ => return Err(arg.unexpected()),
        }
    }
    Ok(Command::Run(options))
}

fn number(parser: &mut lexopt::Parser, name: &str, most: usize) -> Result<usize, lexopt::Error> {
    let value = parser.value()?;
    let number = value.to_str().and_then(|text| text.parse().ok());
    match number {
        Some(number) if (1..=most).contains(&number) => Ok(number),
        _ => {
            let value = value.display();
            Err(format!("{name} takes a number from 1 to {most}, not '{value}'").into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(OsString::from)).map_err(|error| error.to_string())
    }

    #[test]
    fn every_option_has_a_default_and_can_be_set_in_both_spellings() {
        let Ok(Command::Run(defaults)) = read("") else {
            panic!("no arguments are fine");
        };
        assert_eq!((defaults.tasks, defaults.max), (200, 8));
        let expected = Command::Run(Options {
            tasks: 5,
            max: 2,
            length: Duration::from_secs(1),
            json: true,
        });
        let read = read("--tasks 5 --max=2 --seconds 1 --json");
        assert_eq!(read, Ok(expected));
    }

    #[test]
    fn a_wrong_argument_is_named() {
        for (line, named) in [
            ("--tasks", "--tasks"),
            ("--tasks 0", "'0'"),
            ("--max -1", "'-1'"),
            ("--seconds soon", "'soon'"),
            ("--json=yes", "yes"),
            ("--fast", "--fast"),
            ("faster", "faster"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(named), "{line}: {error}");
            assert!(!error.contains('\n'), "{line}: {error}");
        }
    }
}
