//! One run, from an empty database to the summary.

use std::sync::Arc;
use std::time::Duration;

use cenote::Db;
use tokio::time::{Instant, interval};

use crate::args::Options;
use crate::chaos::{Actor, Sessions, Stage, Trial, Work};
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
    let Opened { db, office, stage } = opened.ok_or_else(Failure::interrupted)??;

    view.begin(source.shown());
    let trial = stage.as_ref().map(|stage| Trial {
        ledger: Arc::default(),
        sessions: Sessions::new(stage.dialect),
    });
    let shift = Shift::open(db.clone(), office.clone(), options, trial);
    let desk = shift.desk();
    let mut actor = stage.map(|stage| Actor::new(stage, Arc::clone(&desk), options.seed));
    let over = desk.started() + options.length;
    let interrupted = watch(&desk, over, view, &mut signals, &mut actor).await;
    let work = match actor {
        None => None,
        Some(actor) => Some(end(actor, &desk, view, &mut signals).await?),
    };
    let closed = close(shift, &desk, view, &mut signals).await?;
    let (chaos, _server) = match work {
        None => (None, None),
        Some(work) => {
            let told = signals.unless(work.report()).await;
            let (report, stage) = told.ok_or_else(Failure::interrupted)?;
            (Some(report), Some(stage))
        }
    };

    let around = Circumstances {
        database: source.shown().to_owned(),
        driver: db.driver_name(),
        interrupted,
    };
    let mut summary = Summary::new(options, around, closed, chaos);
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

/// What a run needs.
struct Opened {
    /// The handle that all tasks share,
    db: Db,
    /// and the one that makes the tables and reads the books.
    office: Db,
    /// Where things go wrong on purpose.
    stage: Option<Stage>,
}

async fn open(options: &Options, source: &Source) -> Result<Opened, Failure> {
    if !options.chaos {
        let office = source.open(1).await?;
        let db = source.open(options.max).await?;
        tables::create(&office, options.accounts, options.force).await?;
        return Ok(Opened {
            db,
            office,
            stage: None,
        });
    }
    let mut stage = Stage::set(source, options).await?;
    let office = stage.open_office(source).await?;
    let db = stage.open(source, options.max).await?;
    tables::create(&office, options.accounts, options.force).await?;
    tables::create_ledger(&office).await?;
    Ok(Opened {
        db,
        office,
        stage: Some(stage),
    })
}

/// Lets the actor heal what it has done, and goes on showing the shift meanwhile.
async fn end(
    actor: Actor,
    desk: &Desk,
    view: &mut View,
    signals: &mut Signals,
) -> Result<Work, Failure> {
    let mut frames = interval(view.pace());
    frames.tick().await;
    let mut ending = std::pin::pin!(actor.end());
    loop {
        tokio::select! {
            work = &mut ending => return Ok(work),
            _ = frames.tick() => view.draw(&desk.snapshot()),
            () = signals.next() => return Err(Failure::interrupted()),
        }
    }
}

/// Shows the shift until its time is over, and says whether that came early.
async fn watch(
    desk: &Desk,
    over: Instant,
    view: &mut View,
    signals: &mut Signals,
    actor: &mut Option<Actor>,
) -> bool {
    let mut frames = interval(view.pace());
    // The first comes at once, when there is nothing to be seen.
    frames.tick().await;
    let mut over = std::pin::pin!(tokio::time::sleep_until(over));
    let mut acting = std::pin::pin!(async {
        match actor {
            Some(actor) => actor.work().await,
            None => std::future::pending().await,
        }
    });
    loop {
        tokio::select! {
            // It has found something.
            () = &mut acting => return false,
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
