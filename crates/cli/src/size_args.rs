//! The command line of `cenote size`.

use std::path::PathBuf;

use cenote_bank::Database;
use lexopt::prelude::*;

use crate::args::{
    Command, Environment, needs_dsn, number, seconds, seed, text, unknown_flag, wrong,
};
use crate::failure::Failure;
use crate::help;

/// What to measure, and how to show it.
#[derive(Debug)]
pub(crate) struct SizeOptions {
    /// Without the workload, which is read from its file later.
    pub(crate) measured: cenote_size::Options,
    pub(crate) workload: Option<PathBuf>,
    pub(crate) report: Option<PathBuf>,
    pub(crate) json: bool,
}

/// Reads the arguments behind the word `size`.
pub(crate) fn size(
    mut parser: lexopt::Parser,
    environment: &Environment<'_>,
) -> Result<Command, Failure> {
    const FLAGS: [&str; 13] = [
        "dsn",
        "seed",
        "workload",
        "allow-writes",
        "max",
        "clients",
        "seconds",
        "instances",
        "replicas",
        "report",
        "json",
        "force",
        "help",
    ];
    let (mut dsn, mut workload, mut report, mut json) = (None, None, None, false);
    let mut measured = cenote_size::Options::new(Database::Temporary);
    while let Some(arg) = parser.next().map_err(wrong)? {
        match arg {
            Long("dsn") => dsn = Some(text(&mut parser, "--dsn")?),
            Long("workload") => workload = Some(PathBuf::from(text(&mut parser, "--workload")?)),
            Long("allow-writes") => measured.allow_writes = true,
            Long("max") => measured.most = Some(number(&mut parser, "--max", 1, 1_000)?),
            Long("clients") => {
                measured.clients = Some(number(&mut parser, "--clients", 1, 10_000)?);
            }
            Long("seconds") => measured.length = seconds(&mut parser)?,
            Long("instances") => {
                measured.instances = number(&mut parser, "--instances", 1, 10_000)?;
            }
            Long("replicas") => measured.replicas = number(&mut parser, "--replicas", 1, 1_000)?,
            Long("report") => report = Some(PathBuf::from(text(&mut parser, "--report")?)),
            Long("json") => json = true,
            Long("force") => measured.force = true,
            Long("seed") => measured.seed = seed(&mut parser)?,
            Short('h') | Long("help") => return Ok(Command::Help(help::SIZE)),
            Long(unknown) => return Err(unknown_flag(unknown, &FLAGS)),
            other => return Err(wrong(other.unexpected())),
        }
    }
    let dsn = match dsn {
        None => environment.dsn()?,
        given => given,
    };
    match dsn {
        Some(dsn) => measured.database = environment.database(dsn)?,
        None if workload.is_some() => return Err(needs_dsn("--workload")),
        None if measured.force => return Err(needs_dsn("--force")),
        None => {}
    }
    Ok(Command::Size(Box::new(SizeOptions {
        measured,
        workload,
        report,
        json,
    })))
}
