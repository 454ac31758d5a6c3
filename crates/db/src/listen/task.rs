//! The background task: owns the connection that listens.
//!
//! It runs while anybody listens. It connects, makes the server listen to what the [hub](super::hub) wants, delivers
//! notifications, pings a silent server, and connects again after a loss, with growing pauses.

use std::collections::hash_map::RandomState;
use std::future::poll_fn;
use std::hash::{BuildHasher, Hasher};
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use cenote_pool::{Runtime, within};

use super::GapCause;
use super::hub::{Plan, Request, Running, Shared};
use crate::driver::{Heard, Listening};
use crate::error::rounded;
use crate::pooled::manager::connect_timed_out;
use crate::{Error, Kind, Result};

/// The pause before the first attempt to connect again, doubled with each failure up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A connection that lasted this long, or delivered anything, was a success: the next pause is the first again.
const LASTED: Duration = Duration::from_secs(1);

/// Why the task stopped using a connection.
enum Ended {
    /// There is no listener, or the handle is closed.
    Unwanted,
    Lost(GapCause),
}

/// Runs until there is no listener.
///
/// # Cancel safety
///
/// Dropped, the connection is closed and the listeners end with an error.
pub(super) async fn run(running: Running) {
    let hub = &*running.shared;
    let runtime = &hub.setup.runtime;
    let mut failures = 0;
    while !hub.end_if_unwanted(running.number) {
        if let Some(pause) = pause(failures) {
            let until = runtime.now().checked_add(pause);
            let sleep = async {
                if let Some(until) = until {
                    runtime.sleep(until).await;
                }
            };
            if while_wanted(hub, sleep).await.is_none() {
                continue;
            }
        }
        let mut connection = match while_wanted(hub, connect(hub)).await {
            None => continue,
            Some(Ok(connection)) => connection,
            Some(Err(error)) => {
                tracing::warn!(%error, "cannot connect to listen for notifications");
                hub.note_failure(&error);
                failures += 1;
                continue;
            }
        };
        let opened = runtime.now();
        let mut delivered = false;
        let ended = serve(hub, &mut *connection, &mut delivered).await;
        let is_lost = matches!(ended, Ended::Lost(GapCause::ConnectionLost(_)));
        let cause = match ended {
            Ended::Unwanted => GapCause::Replaced,
            Ended::Lost(cause) => cause,
        };
        // Before the close: what the server sends from now on is lost.
        hub.note_loss(&cause);
        if !is_lost {
            failures = 0;
            let closing = within(runtime, Some(hub.setup.cleanup_timeout), connection.close());
            if let Some(Err(error)) = closing.await {
                tracing::debug!(%error, "closing the connection that listened failed");
            }
            continue;
        }
        tracing::warn!(%cause, "lost the connection that listens for notifications");
        let lasted = runtime.now().saturating_duration_since(opened);
        failures = match delivered || lasted >= LASTED {
            true => 1,
            false => failures + 1,
        };
    }
}

/// Returns the pause after this many failures in a row: from half of it to the whole, so that many programs do not come
/// back at the same time.
fn pause(failures: u32) -> Option<Duration> {
    let doublings = failures.checked_sub(1)?.min(20);
    let whole = FIRST_PAUSE
        .saturating_mul(1 << doublings)
        .min(LONGEST_PAUSE);
    let random = RandomState::new().build_hasher().finish() % 1024;
    let share = u32::try_from(1024 + random).unwrap_or(1024);
    Some(whole.saturating_mul(share) / 2048)
}

/// Runs a future for as long as the task is needed.
async fn while_wanted<T>(hub: &Shared, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    loop {
        let mut changed = pin!(hub.changed.notified());
        if !hub.is_wanted() {
            return None;
        }
        let done = poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => changed.as_mut().poll(cx).map(|()| None),
        });
        if let Some(done) = done.await {
            return Some(done);
        }
    }
}

/// Opens a connection, in the same way as every other connection of the handle, without hooks and defaults.
async fn connect(hub: &Shared) -> Result<Box<dyn Listening>> {
    let setup = &hub.setup;
    let connecting = async {
        let credentials = setup.login.credentials().await?;
        setup.template.connect_listening(credentials).await
    };
    let limit = setup.connect_timeout;
    let connected = within(&setup.runtime, Some(limit), connecting).await;
    connected.unwrap_or_else(|| Err(connect_timed_out(limit, &*setup.template)))
}

/// What a wait for the connection ended with.
enum Woken {
    /// The hub has changed.
    Changed,
    Heard(Result<Heard>),
    /// The server has been silent for too long.
    Silent,
}

/// Uses a connection until it is lost or not needed.
async fn serve(hub: &Shared, connection: &mut dyn Listening, delivered: &mut bool) -> Ended {
    let setup = &hub.setup;
    let lost = |error| Ended::Lost(GapCause::ConnectionLost(error));
    // The request that the server has not answered yet. One without channels is a ping.
    let mut pending: Option<Request> = None;
    let mut heard_at = setup.runtime.now();
    let mut alarm = Alarm::default();
    loop {
        if pending.is_none() {
            match hub.plan() {
                Plan::End => return Ended::Unwanted,
                Plan::Replace => return Ended::Lost(GapCause::Replaced),
                Plan::Wait => {}
                Plan::Send(request) => {
                    if let Err(error) = connection.request(&request.listen, &request.unlisten) {
                        hub.note_failure(&error);
                        return lost(error);
                    }
                    heard_at = setup.runtime.now();
                    pending = Some(request);
                }
            }
        } else if !hub.is_wanted() {
            return Ended::Unwanted;
        }
        let limit = match pending {
            Some(_) => Some(setup.connect_timeout),
            None => setup.ping_after,
        };
        let due = limit.and_then(|limit| heard_at.checked_add(limit));
        alarm.set(due, &*setup.runtime);
        let woken = {
            let mut changed = pin!(hub.changed.notified());
            // The changes come first: there is a bounded number of them, but a flood of messages may never end.
            poll_fn(|cx| {
                if changed.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Woken::Changed);
                }
                if let Poll::Ready(heard) = connection.poll_heard(cx) {
                    return Poll::Ready(Woken::Heard(heard));
                }
                alarm.poll(cx).map(|()| Woken::Silent)
            })
            .await
        };
        match woken {
            Woken::Changed => {}
            Woken::Heard(Ok(Heard::Notification {
                channel,
                payload,
                pid,
            })) => {
                heard_at = setup.runtime.now();
                *delivered = true;
                hub.deliver(&channel, payload, pid);
                // A flood must not keep the other tasks of the runtime from running. A cancel loses the connection.
                tokio::task::coop::consume_budget().await;
            }
            Woken::Heard(Ok(Heard::Answer(answer))) => {
                heard_at = setup.runtime.now();
                match (pending.take(), answer) {
                    (Some(request), Ok(())) => hub.note_answer(request, connection.process_id()),
                    (_, Err(error)) => {
                        // The others are served by the next connection, without the request that failed.
                        hub.note_failure(&error);
                        return lost(error);
                    }
                    (None, Ok(())) => {}
                }
            }
            Woken::Heard(Err(error)) => return lost(error),
            Woken::Silent if due.is_none_or(|due| setup.runtime.now() < due) => {}
            Woken::Silent if pending.is_some() => {
                let message = format!(
                    "the server has not answered for {} (connect_timeout)",
                    rounded(setup.connect_timeout)
                );
                return lost(Error::new(Kind::ConnectionLost, message));
            }
            Woken::Silent => {
                if let Err(error) = connection.request(&[], &[]) {
                    return lost(error);
                }
                heard_at = setup.runtime.now();
                pending = Some(Request::default());
            }
        }
    }
}

/// A timer that is set again only if it would ring too late: each notification moves the time, and an early alarm costs
/// less than a new timer for each.
#[derive(Default)]
struct Alarm {
    set: Option<(Instant, cenote_pool::Task)>,
}

impl Alarm {
    fn set(&mut self, due: Option<Instant>, runtime: &dyn Runtime) {
        match (&self.set, due) {
            (_, None) => self.set = None,
            (Some((until, _)), Some(due)) if *until <= due => {}
            (_, Some(due)) => self.set = Some((due, runtime.sleep_aside(due))),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some((_, timer)) = &mut self.set else {
            return Poll::Pending;
        };
        let rung = timer.as_mut().poll(cx);
        if rung.is_ready() {
            self.set = None;
        }
        rung
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        assert_eq!(pause(0), None);
        for (failures, whole) in [(1, 50), (2, 100), (4, 400), (9, 5000), (u32::MAX, 5000)] {
            let whole = Duration::from_millis(whole);
            let pause = pause(failures).unwrap();
            assert!(
                pause >= whole / 2 && pause <= whole,
                "{failures}: {pause:?}"
            );
        }
    }
}
