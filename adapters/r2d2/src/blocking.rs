//! Blocking connections, and the threads on which they may block.

use std::any::Any;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// A blocking connection in a pool. It derefs to the connection.
///
/// Async code must not use it directly: [`run`](crate::run) moves it to a blocking thread. A dropped
/// connection is closed on a blocking thread if a Tokio runtime is there.
pub struct Blocking<C: Send + 'static> {
    /// `None` only while a check has the connection.
    connection: Option<C>,
}

impl<C: Send + 'static> Blocking<C> {
    pub(crate) fn new(connection: C) -> Self {
        let connection = Some(connection);
        Blocking { connection }
    }

    pub(crate) fn take(&mut self) -> Option<C> {
        self.connection.take()
    }
}

impl<C: Send + 'static> Deref for Blocking<C> {
    type Target = C;

    fn deref(&self) -> &C {
        let connection = self.connection.as_ref();
        connection.expect("a leased connection is never in a check")
    }
}

impl<C: Send + 'static> DerefMut for Blocking<C> {
    fn deref_mut(&mut self) -> &mut C {
        let connection = self.connection.as_mut();
        connection.expect("a leased connection is never in a check")
    }
}

impl<C: Send + 'static> Drop for Blocking<C> {
    fn drop(&mut self) {
        if let Some(connection) = self.take()
            && let Ok(runtime) = Handle::try_current()
        {
            // Some clients panic if they are closed on a thread of an async runtime.
            runtime.spawn_blocking(move || drop(connection));
        }
    }
}

impl<C: Send + fmt::Debug + 'static> fmt::Debug for Blocking<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Blocking").field(&self.connection).finish()
    }
}

/// Runs `work` on a thread that may block, to its end even if the future is dropped. Returns its result,
/// or the payload of its panic.
pub(crate) async fn run_aside<R: Send + 'static>(
    work: impl FnOnce() -> R + Send + 'static,
) -> Result<R, Box<dyn Any + Send>> {
    let (sender, result) = oneshot::channel();
    let work = move || {
        let done = catch_unwind(AssertUnwindSafe(work));
        // Nobody listens if the future was dropped.
        drop(sender.send(done));
    };
    match Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn_blocking(work)),
        Err(_) => drop(std::thread::spawn(work)),
    }
    match result.await {
        Ok(done) => done,
        Err(_) => Err(Box::new("the runtime shut down before the work ran")),
    }
}
