//! `cenote migrate`: applies migrations, or shows them.

use std::process::ExitCode;

use cenote::migrate::{Applied, Entry, Migrations, State, Status};
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
    let mut applied = Vec::new();
    let done = signals.unless(work(options, &mut applied)).await;
    match done.ok_or_else(Failure::interrupted_migration)? {
        Ok(shown) => {
            say(&shown)?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) if options.json => {
            let failure = failure(&error);
            let error = explained(&error);
            let text = json!({ "applied": as_json(&applied), "migrations": [], "error": error });
            say(&format!("{text}\n"))?;
            Ok(ExitCode::from(failure.code()))
        }
        Err(error) => {
            say(&lines(&applied))?;
            Err(failure(&error))
        }
    }
}

fn failure(error: &Error) -> Failure {
    match error.kind() {
        Kind::Migration => Failure::migration(explained(error)),
        _ => Failure::database(explained(error)),
    }
}

async fn work(options: &MigrateOptions, applied: &mut Vec<Applied>) -> Result<String, Error> {
    let mut migrations = Migrations::from_dir(&options.folder)?;
    if let Some(table) = &options.table {
        migrations = migrations.table(table)?;
    }
    let access = match options.mode {
        MigrateMode::Apply => Access::Write,
        MigrateMode::DryRun | MigrateMode::Status => Access::Read,
    };
    let wal = connect::wal_file(&options.database);
    let (db, shown) = match connect::missing_file(&options.database) {
        // An empty database stands for a file that does not exist: nothing is applied there.
        Some(shown) if access == Access::Read => (
            Db::open("sqlite:file:missing?mode=memory&cache=shared").await?,
            shown,
        ),
        _ => connect::open(&options.database, access).await?,
    };
    let text = show(options, &migrations, &db, &shown, applied).await;
    connect::close(&db, wal).await;
    text
}

async fn show(
    options: &MigrateOptions,
    migrations: &Migrations,
    db: &Db,
    shown: &str,
    applied: &mut Vec<Applied>,
) -> Result<String, Error> {
    Ok(match (options.mode, options.json) {
        (MigrateMode::Apply, in_json) => {
            let done = db.migrate_each(migrations, |one| applied.push(one));
            done.await?;
            match in_json {
                false => summary(applied, shown),
                true => {
                    let list = as_json(applied);
                    let text = json!({ "applied": list, "migrations": [], "error": null });
                    format!("{text}\n")
                }
            }
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

fn as_json(applied: &[Applied]) -> Vec<Value> {
    let list = applied.iter();
    list.map(|it| json!({ "file": it.file, "ms": it.took.as_secs_f64() * 1_000.0 }))
        .collect()
}

/// A line for each migration that was applied.
fn lines(applied: &[Applied]) -> String {
    let mut text = String::new();
    for one in applied {
        let took = one.took.as_secs_f64() * 1_000.0;
        text.push_str(&format!("applied  {}  in {took:.1} ms\n", one.file));
    }
    text
}

fn summary(applied: &[Applied], shown: &str) -> String {
    lines(applied)
        + &match applied.len() {
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
