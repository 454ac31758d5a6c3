//! Runs the bank, shows it meanwhile, and stops it on a signal.

use std::io::{self, Write};

use cenote_bank::{Checked, Monitor, Recorder, Run};
use tokio::time::interval;

use crate::args::Options;
use crate::failure::Failure;
use crate::page::Page;
use crate::view::View;

/// Runs the bank. `Ok` says whether every check passed.
pub(crate) async fn run(options: &Options, view: &mut View) -> Result<bool, Failure> {
    let mut signals = Signals::listen()?;
    let started = signals.unless(Run::start(options.bank.clone())).await;
    let mut run = started.ok_or_else(Failure::interrupted)??;
    let page = match options.page {
        true => Some(Page::serve(run.db()).await?),
        false => None,
    };
    if let Some(page) = &page {
        // Standard output is for the figures. Without standard error there is no other place.
        let _ = writeln!(io::stderr(), "page: {}", page.address());
    }
    view.begin(run.database());
    let monitor = run.monitor();
    let mut recorder = options.report.as_ref().map(|_| Recorder::default());
    let worked = {
        let recorder = recorder.as_mut();
        show(run.work(), &monitor, view, recorder, &mut signals, true).await
    };
    let interrupted = worked.is_none();
    if interrupted && !view.is_deaf() {
        view.interrupt();
    }
    let checked = {
        let recorder = recorder.as_mut();
        show(
            run.check(interrupted),
            &monitor,
            view,
            recorder,
            &mut signals,
            false,
        )
        .await
    };
    let mut checked: Checked = checked.ok_or_else(Failure::interrupted)??;
    let cleaned_up = signals.unless(checked.clean_up()).await;
    view.end(&checked.summary);
    if let (Some(file), Some(recorder)) = (&options.report, &recorder) {
        let page = recorder.html(&monitor.phases(), &checked.summary);
        std::fs::write(file, page)
            .map_err(|error| Failure::other(format!("cannot write {}: {error}", file.display())))?;
    }
    cleaned_up.ok_or_else(Failure::interrupted)??;
    Ok(checked.summary.ok)
}

/// Awaits a part of the run and draws the view meanwhile. Returns `None` if a signal comes, or
/// if nobody reads the output and that ends the part, too.
async fn show<T>(
    part: impl Future<Output = T>,
    monitor: &Monitor,
    view: &mut View,
    mut recorder: Option<&mut Recorder>,
    signals: &mut Signals,
    deaf_ends: bool,
) -> Option<T> {
    let mut frames = interval(view.interval());
    let mut samples = interval(Recorder::INTERVAL);
    // The first tick comes at once, when there is nothing to see.
    frames.tick().await;
    let mut part = std::pin::pin!(part);
    loop {
        tokio::select! {
            done = &mut part => return Some(done),
            _ = frames.tick() => view.draw(&monitor.snapshot()),
            _ = samples.tick(), if recorder.is_some() => {
                if let Some(recorder) = &mut recorder {
                    recorder.push(&monitor.snapshot());
                }
            }
            () = signals.next() => return None,
        }
        if deaf_ends && view.is_deaf() {
            return None;
        }
    }
}

/// Ctrl-C, and the signals that mean the same.
#[derive(Debug)]
pub(crate) struct Signals {
    #[cfg(unix)]
    kinds: [tokio::signal::unix::Signal; 3],
}

impl Signals {
    /// Listens from now on, so that none of them ends the process. Needs Tokio.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let listening = Signals::install();
        listening.map_err(|error| Failure::other(format!("signals cannot be listened to: {error}")))
    }

    #[cfg(unix)]
    fn install() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Signals {
            kinds: [
                signal(SignalKind::interrupt())?,
                signal(SignalKind::terminate())?,
                signal(SignalKind::hangup())?,
            ],
        })
    }

    #[cfg(not(unix))]
    fn install() -> io::Result<Self> {
        Ok(Signals {})
    }

    /// Waits for the next signal.
    #[cfg(unix)]
    pub(crate) async fn next(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.kinds;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }

    /// Waits for the next signal.
    #[cfg(not(unix))]
    pub(crate) async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            // Without signals it runs to its end.
            std::future::pending().await
        }
    }

    /// Awaits `work`; drops it and returns `None` if a signal comes first.
    pub(crate) async fn unless<F: Future>(&mut self, work: F) -> Option<F::Output> {
        tokio::select! {
            done = work => Some(done),
            () = self.next() => None,
        }
    }
}
