//! Ctrl-C, and the signals that mean the same.

use std::future::Future;
use std::io;

/// Whoever wants this process to end.
#[derive(Debug)]
pub(crate) struct Signals {
    #[cfg(unix)]
    kinds: [tokio::signal::unix::Signal; 3],
}

impl Signals {
    /// Listens from now on: nothing ends the process by itself any more. Needs Tokio.
    #[cfg(unix)]
    pub(crate) fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Signals {
            kinds: [
                signal(SignalKind::interrupt())?,
                signal(SignalKind::terminate())?,
                signal(SignalKind::hangup())?,
            ],
        })
    }

    /// Listens from now on: nothing ends the process by itself any more. Needs Tokio.
    #[cfg(not(unix))]
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Signals {})
    }

    /// Waits for the next one.
    #[cfg(unix)]
    pub(crate) async fn next(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.kinds;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }

    /// Waits for the next one.
    #[cfg(not(unix))]
    pub(crate) async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            // There are none here: then it runs to its end.
            std::future::pending().await
        }
    }

    /// Does something, unless one comes: `None`. What was begun is dropped then.
    pub(crate) async fn unless<F: Future>(&mut self, work: F) -> Option<F::Output> {
        tokio::select! {
            done = work => Some(done),
            () = self.next() => None,
        }
    }
}
