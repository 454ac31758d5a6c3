//! One run, from an empty database to the summary.

use std::time::Duration;

use cenote::Db;
use tokio::time::interval;

use crate::args::Options;
use crate::failure::Failure;
use crate::shift::{Closed, Desk, Shift};
use crate::signals::Signals;
use crate::source::Source;
use crate::summary::{Circumstances, Summary};
use crate::tables;
use crate::view::View;

/// How long closing the connections may take.
const CLOSING: Duration = Duration::from_secs(5);

/// Runs the bank. `Ok` says whether every cent is there.
pub(crate) async fn run(options: &Options, view: &mut View) -> Result<bool, Failure> {
    let mut signals = Signals::listen()
        .map_err(|error| Failure::other(format!("signals cannot be listened to: {error}")))?;
    let mut source = Source::new(&options.database)?;
    let opened = signals.unless(open(options, &source)).await;
    let (db, office) = opened.ok_or_else(Failure::interrupted)??;

    view.begin(source.shown());
    let shift = Shift::open(
        db.clone(),
        office.clone(),
        options.accounts,
        options.tasks,
        options.seed,
    );
    let desk = shift.desk();
    let interrupted = watch(&desk, options.length, view, &mut signals).await;
    let closed = close(shift, &desk, view, &mut signals).await?;

    let around = Circumstances {
        database: source.shown().to_owned(),
        driver: db.driver_name(),
        interrupted,
    };
    let mut summary = Summary::new(options, around, closed);
    // Who wants to know where the money went needs the tables.
    let keep = options.keep || !summary.ok;
    if keep {
        summary.kept = Some(source.keep());
    }
    let left = signals.unless(leave(&db, &office, keep)).await;
    view.end(&summary);
    left.ok_or_else(Failure::interrupted)??;
    Ok(summary.ok)
}

/// The handle that all tasks share, and the one that makes the tables and reads the books.
async fn open(options: &Options, source: &Source) -> Result<(Db, Db), Failure> {
    let office = source.open(1).await?;
    let db = source.open(options.max).await?;
    tables::create(&office, options.accounts, options.force).await?;
    Ok((db, office))
}

/// Shows the shift until its time is over, and says whether that came early.
async fn watch(desk: &Desk, length: Duration, view: &mut View, signals: &mut Signals) -> bool {
    let mut frames = interval(view.pace());
    // The first comes at once, when there is nothing to be seen.
    frames.tick().await;
    let mut over = std::pin::pin!(tokio::time::sleep_until(desk.started() + length));
    loop {
        tokio::select! {
            _ = frames.tick() => view.draw(&desk.snapshot()),
            () = &mut over => return false,
            () = signals.next() => {
                view.interrupt();
                return true;
            }
        }
        if view.is_deaf() {
            return true;
        }
    }
}

/// Closes the shift, and goes on showing it meanwhile.
async fn close(
    shift: Shift,
    desk: &Desk,
    view: &mut View,
    signals: &mut Signals,
) -> Result<Closed, Failure> {
    let mut frames = interval(view.pace());
    frames.tick().await;
    let mut closing = std::pin::pin!(shift.close());
    loop {
        tokio::select! {
            closed = &mut closing => {
                return closed.map_err(|error| {
                    Failure::database(format!("the accounts cannot be checked: {error}"))
                });
            }
            _ = frames.tick() => view.draw(&desk.snapshot()),
            () = signals.next() => return Err(Failure::interrupted()),
        }
    }
}

/// Closes the connections, and takes the tables away unless they are to stay.
async fn leave(db: &Db, office: &Db, keep: bool) -> Result<(), Failure> {
    let trouble = |what: &str, error: cenote::Error| Failure::database(format!("{what}: {error}"));
    let closed = db.close_and_drain(CLOSING).await;
    let tables = match keep {
        true => tables::keep(office).await,
        false => tables::drop_all(office).await,
    };
    tables.map_err(|error| trouble("the tables could not be put away", error))?;
    closed.map_err(|error| trouble("the connections could not be closed", error))?;
    office
        .close_and_drain(CLOSING)
        .await
        .map_err(|error| trouble("the auditor's connection could not be closed", error))
}
