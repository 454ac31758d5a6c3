//! `cenote migrate`: applies migrations, or shows them.

use std::process::ExitCode;

use cenote::migrate::{Entry, Migrations, Report, State, Status};
use cenote::{Db, Error, Kind};
use serde_json::{Value, json};

use crate::args::{MigrateMode, MigrateOptions};
use crate::connect::{self, Access, explained};
use crate::failure::Failure;
use crate::run::Signals;
use crate::say;

/// Runs the command.
pub(crate) async fn run(options: &MigrateOptions) -> Result<ExitCode, Failure> {
    let mut signals = Signals::listen()?;
    let done = signals.unless(work(options)).await;
    match done.ok_or_else(Failure::interrupted_migration)? {
        Ok(shown) => {
            say(&shown)?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) if options.json => {
            let failure = failure(&error);
            let text = json!({ "applied": [], "migrations": [], "error": explained(&error) });
            say(&format!("{text}\n"))?;
            Ok(ExitCode::from(failure.code()))
        }
        Err(error) => Err(failure(&error)),
    }
}

fn failure(error: &Error) -> Failure {
    match error.kind() {
        Kind::Migration => Failure::migration(explained(error)),
        _ => Failure::database(explained(error)),
    }
}

async fn work(options: &MigrateOptions) -> Result<String, Error> {
    let mut migrations = Migrations::from_dir(&options.folder)?;
    if let Some(table) = &options.table {
        migrations = migrations.table(table)?;
    }
    let (db, shown) = connect::open(&options.database, Access::Write).await?;
    let text = show(options, &migrations, &db, &shown).await;
    // What was done is done, whether or not the connection says goodbye.
    let _ = db.close().await;
    text
}

async fn show(
    options: &MigrateOptions,
    migrations: &Migrations,
    db: &Db,
    shown: &str,
) -> Result<String, Error> {
    Ok(match (options.mode, options.json) {
        (MigrateMode::Apply, false) => applied(&db.migrate(migrations).await?, shown),
        (MigrateMode::Apply, true) => {
            let report = db.migrate(migrations).await?;
            let list = report
                .applied
                .iter()
                .map(|it| json!({ "file": it.file, "ms": it.took.as_secs_f64() * 1_000.0 }));
            let list: Vec<Value> = list.collect();
            format!(
                "{}\n",
                json!({ "applied": list, "migrations": [], "error": null })
            )
        }
        (MigrateMode::DryRun, as_json) => {
            let status = migrations.status(db).await?;
            let pending = status.pending()?;
            match as_json {
                true => entries_as_json(&pending),
                false => would_apply(&pending, shown),
            }
        }
        (MigrateMode::Status, as_json) => {
            let status = migrations.status(db).await?;
            match as_json {
                true => entries_as_json(&status.entries.iter().collect::<Vec<_>>()),
                false => listed(&status, shown),
            }
        }
    })
}

fn applied(report: &Report, shown: &str) -> String {
    let mut text = String::new();
    for one in &report.applied {
        let took = one.took.as_secs_f64() * 1_000.0;
        text.push_str(&format!("applied  {}  in {took:.1} ms\n", one.file));
    }
    text + &match report.applied.len() {
        0 => format!("nothing to apply: {shown} is up to date\n"),
        1 => format!("1 migration applied to {shown}\n"),
        some => format!("{some} migrations applied to {shown}\n"),
    }
}

fn would_apply(pending: &[&Entry], shown: &str) -> String {
    let mut text = String::new();
    for entry in pending {
        text.push_str(&format!("would apply  {}\n", entry.file));
    }
    text + &match pending.len() {
        0 => format!("nothing to apply: {shown} is up to date\n"),
        1 => format!("1 migration is pending on {shown}; nothing was changed\n"),
        some => format!("{some} migrations are pending on {shown}; nothing was changed\n"),
    }
}

fn listed(status: &Status, shown: &str) -> String {
    let mut text = String::new();
    for entry in &status.entries {
        let (state, on) = described(&entry.state);
        let state = state.replace('_', " ");
        let line = format!("{state:<12}  {:<20}  {}", on.unwrap_or(""), entry.file);
        text.push_str(line.trim_end());
        text.push('\n');
    }
    let of = |wanted: &str| {
        let states = status.entries.iter().map(|entry| described(&entry.state).0);
        states.filter(|state| *state == wanted).count()
    };
    text.push_str(&format!(
        "{} applied, {} pending on {shown}\n",
        of("applied"),
        of("pending")
    ));
    if let Err(contradiction) = status.pending() {
        text.push_str(&format!("the next migration fails: {contradiction}\n"));
    }
    text
}

fn entries_as_json(entries: &[&Entry]) -> String {
    let entries = entries.iter().map(|entry| {
        let (state, on) = described(&entry.state);
        json!({
            "file": entry.file, "version": entry.version, "state": state, "applied_on": on,
        })
    });
    let entries: Vec<Value> = entries.collect();
    format!(
        "{}\n",
        json!({ "applied": [], "migrations": entries, "error": null })
    )
}

/// The name of a state, and when the migration was applied.
fn described(state: &State) -> (&'static str, Option<&str>) {
    match state {
        State::Applied { on } => ("applied", Some(on)),
        State::Pending => ("pending", None),
        State::Changed { on, .. } => ("changed", Some(on)),
        State::Renamed { on, .. } => ("renamed", Some(on)),
        State::Missing { on } => ("missing", Some(on)),
        State::OutOfOrder { .. } => ("out_of_order", None),
        _ => ("unknown", None),
    }
}
