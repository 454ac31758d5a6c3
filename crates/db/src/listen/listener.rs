//! What the program holds: a listener, and the options of one.

use std::fmt;
use std::future::{IntoFuture, poll_fn};
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use cenote_pool::within;
use futures_core::Stream;

use super::Event;
use super::hub::{Hub, Shared};
use super::mailbox::{Limits, Mailbox};
use crate::driver::BoxFuture;
use crate::error::rounded;
use crate::{Error, Kind, Result};

/// PostgreSQL's limit for an identifier, in bytes. The server would cut a longer name off without an error.
const LONGEST_NAME: usize = 63;

/// A listener that is not ready yet: await it. [`Db::listen`](crate::Db::listen) returns it.
#[must_use = "nothing listens before this is awaited"]
pub struct Listen<'d> {
    hub: &'d Hub,
    channels: Vec<String>,
    limits: Limits,
    site: &'static Location<'static>,
}

impl<'d> Listen<'d> {
    pub(crate) fn new(
        hub: &'d Hub,
        channels: Vec<String>,
        site: &'static Location<'static>,
    ) -> Self {
        Listen {
            hub,
            channels,
            limits: Limits::default(),
            site,
        }
    }

    /// Sets how many events wait for the program at most, not counting one Gap. What does not fit is
    /// dropped, and a [`Gap`](Event::Gap) is at its place. Default: 1024. 0 counts as 1.
    pub fn buffer(mut self, events: usize) -> Self {
        self.limits.events = events.max(1);
        self
    }

    /// Sets how many bytes the waiting events take at most; one event fits always. Default: 4 MiB.
    pub fn buffer_bytes(mut self, bytes: usize) -> Self {
        self.limits.bytes = bytes;
        self
    }

    async fn start(self) -> Result<Listener> {
        let channels = checked(self.channels)?;
        let shared = self.hub.shared();
        // Dropped at the await, the listener leaves the hub.
        let listener = shared.join(channels, self.limits)?;
        let limit = shared.setup.join_timeout;
        let ready = poll_fn(|cx| listener.mailbox.poll_ready(cx));
        match within(&shared.setup.runtime, limit, ready).await {
            Some(ready) => ready.map(|()| listener),
            None => {
                let message = format!(
                    "timed out after {} waiting until the server listens (acquire_timeout)",
                    rounded(limit.unwrap_or_default())
                );
                Err(Error::new(Kind::Timeout, message))
            }
        }
    }
}

impl<'d> IntoFuture for Listen<'d> {
    type Output = Result<Listener>;
    type IntoFuture = BoxFuture<'d, Result<Listener>>;

    fn into_future(self) -> Self::IntoFuture {
        let site = self.site;
        Box::pin(async move {
            let started = self.start().await;
            started.map_err(|error| error.in_call(site, None))
        })
    }
}

impl fmt::Debug for Listen<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Listen")
            .field("channels", &self.channels)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Returns the channels without repetitions, or why one of them cannot be listened to.
fn checked(channels: Vec<String>) -> Result<Vec<Arc<str>>> {
    let wrong = |message: String| Err(Error::new(Kind::Parameters, message));
    if channels.is_empty() {
        return wrong("no channel is given to listen to".to_owned());
    }
    let mut checked: Vec<Arc<str>> = Vec::with_capacity(channels.len());
    for name in channels {
        if name.is_empty() || name.contains('\0') {
            return wrong(format!(
                "the channel {name:?} is empty or has a NUL character in it"
            ));
        }
        if name.len() > LONGEST_NAME {
            return wrong(format!(
                "the channel {name:?} has {} bytes, but the server cuts names off after {LONGEST_NAME}",
                name.len()
            ));
        }
        checked.push(name.into());
    }
    checked.sort_unstable();
    checked.dedup();
    Ok(checked)
}

/// Receives the notifications of some channels, and learns where any may be missing.
///
/// A [`Stream`] of `Result<Event>`; [`try_next`](Listener::try_next) reads it without a stream library. It receives
/// the notifications of its own channels only, in the order in which the server sends them.
///
/// It does not keep the [`Db`](crate::Db) open. When the `Db` is closed, or its last clone is dropped, the listener
/// returns the events that have arrived, then one error ([`Kind::Closed`](crate::Kind::Closed)), then `None`. It ends in
/// the same way with [`Kind::ConnectionLost`](crate::Kind::ConnectionLost) if the Tokio runtime that the first `listen` was
/// called on shuts down. After a `fork`, the child must not use it. No other loss ends it: it reconnects, and a [`Gap`](Event::Gap) follows.
#[must_use = "a listener that is dropped receives nothing"]
pub struct Listener {
    shared: Arc<Shared>,
    id: u64,
    channels: Vec<Arc<str>>,
    mailbox: Arc<Mailbox>,
}

impl Listener {
    pub(super) fn new(
        shared: Arc<Shared>,
        id: u64,
        channels: Vec<Arc<str>>,
        mailbox: Arc<Mailbox>,
    ) -> Self {
        Listener {
            shared,
            id,
            channels,
            mailbox,
        }
    }

    /// Returns the next event; `None` after the error that ended the listener.
    ///
    /// # Cancel safety
    ///
    /// Dropped, no event is lost.
    ///
    /// # Errors
    ///
    /// The listener has ended: see [`Listener`].
    pub async fn try_next(&mut self) -> Result<Option<Event>> {
        let next = poll_fn(|cx| self.mailbox.poll_next(cx)).await;
        next.transpose()
    }

    /// Returns the channels, in alphabetical order.
    pub fn channels(&self) -> impl ExactSizeIterator<Item = &str> {
        self.channels.iter().map(|channel| &**channel)
    }
}

impl Stream for Listener {
    type Item = Result<Event, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.mailbox.poll_next(cx)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.leave(self.id);
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Listener")
            .field("channels", &self.channels)
            .field("waiting", &self.mailbox.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(names: &[&str]) -> Result<Vec<Arc<str>>> {
        checked(names.iter().map(|&name| name.to_owned()).collect())
    }

    #[test]
    fn name_that_the_server_would_change_is_refused() {
        let longest = "ü".repeat(31) + "x";
        assert_eq!(longest.len(), LONGEST_NAME);
        assert!(check(&[&longest]).is_ok());
        let too_long = longest + "x";
        for wrong in [&[][..], &[""], &["a\0b"], &["fine", &too_long]] {
            let error = check(wrong).unwrap_err();
            assert_eq!(error.kind(), Kind::Parameters, "{wrong:?}");
        }
        let names: Vec<_> = check(&["b", "A", "b", "a"]).unwrap();
        assert_eq!(names, ["A", "a", "b"].map(Arc::from), "case is kept");
    }
}
