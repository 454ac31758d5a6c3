//! Runs the bank, and shows it meanwhile.

use cenote_bank::{Checked, Monitor, Run};
use tokio::time::interval;

use crate::args::Options;
use crate::failure::Failure;
use crate::signals::Signals;
use crate::view::View;

/// Runs the bank. `Ok` says whether every check passed.
pub(crate) async fn run(options: &Options, view: &mut View) -> Result<bool, Failure> {
    let mut signals = Signals::listen()
        .map_err(|error| Failure::other(format!("signals cannot be listened to: {error}")))?;
    let started = signals.unless(Run::start(options.bank.clone())).await;
    let mut run = started.ok_or_else(Failure::interrupted)??;
    view.begin(run.database());
    let monitor = run.monitor();
    let worked = show(run.work(), &monitor, view, &mut signals, true).await;
    let interrupted = worked.is_none();
    if interrupted && !view.is_deaf() {
        view.interrupt();
    }
    let checked = show(run.check(interrupted), &monitor, view, &mut signals, false).await;
    let mut checked: Checked = checked.ok_or_else(Failure::interrupted)??;
    let cleaned_up = signals.unless(checked.clean_up()).await;
    view.end(&checked.summary);
    cleaned_up.ok_or_else(Failure::interrupted)??;
    Ok(checked.summary.ok)
}

/// Awaits a part of the run and draws the view meanwhile. Returns `None` if a signal comes, or
/// if nobody reads the output and that ends the part, too.
async fn show<T>(
    part: impl Future<Output = T>,
    monitor: &Monitor,
    view: &mut View,
    signals: &mut Signals,
    deaf_ends: bool,
) -> Option<T> {
    let mut frames = interval(view.interval());
    // The first tick comes at once, when there is nothing to see.
    frames.tick().await;
    let mut part = std::pin::pin!(part);
    loop {
        tokio::select! {
            done = &mut part => return Some(done),
            _ = frames.tick() => view.draw(&monitor.snapshot()),
            () = signals.next() => return None,
        }
        if deaf_ends && view.is_deaf() {
            return None;
        }
    }
}
