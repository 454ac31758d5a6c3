//! Asks the replicas and the primary how far they are: twice a second, and a replica at once after a failure. A task per server, so
//! that one that hangs delays no other.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use cenote_pool::{AcquireOptions, Runtime, within};
use tokio::sync::Notify;

use super::op::AskPosition;
use super::{Replica, Replicas};
use crate::call::route;
use crate::driver::{Connection, ReplicaAnswer};
use crate::pooled::handle::Handle;
use crate::{Error, Kind, Result};

/// How often a server is asked.
const INTERVAL: Duration = Duration::from_millis(500);

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often a replica is asked that refused the login: repeated attempts lock accounts.
const AFTER_REFUSAL: Duration = Duration::from_secs(60);

/// The time between two questions to one server, however many failures there are.
const REST: Duration = Duration::from_millis(20);

/// Watches the replicas and the primary of a handle, if it has replicas, until it is closed or dropped.
pub(crate) fn start(handle: &Arc<Handle>) {
    let Some(replicas) = &handle.replicas else {
        return;
    };
    let runtime = &handle.shared.runtime;
    // The watchers must not keep the handle from being dropped.
    let primary = watch_primary(
        Arc::clone(replicas),
        Arc::downgrade(handle),
        Arc::clone(runtime),
    );
    runtime.spawn(Box::pin(primary));
    for index in 0..replicas.all.len() {
        let watcher = Watcher {
            replicas: Arc::clone(replicas),
            index,
            runtime: Arc::clone(runtime),
            connection: None,
        };
        runtime.spawn(Box::pin(watcher.run()));
    }
}

/// Waits for a wake, and at most until a time. Dropped, it loses no wake.
async fn wait(runtime: &Arc<dyn Runtime>, wake: &Notify, until: Option<Instant>) {
    let mut woken = pin!(wake.notified());
    // Not a Tokio timer, which would make every wait for I/O of the program set a timer of the kernel.
    let mut sleep = until.map(|until| runtime.sleep_aside(until));
    poll_fn(|cx| match (woken.as_mut().poll(cx), &mut sleep) {
        (Poll::Ready(()), _) => Poll::Ready(()),
        (Poll::Pending, Some(sleep)) => sleep.as_mut().poll(cx),
        (Poll::Pending, None) => Poll::Pending,
    })
    .await;
}

/// Turns a panic, of a provider of credentials, into an error: the server is asked again later.
async fn contained<T>(asking: impl Future<Output = Result<T>>) -> Result<T> {
    let mut asking = pin!(asking);
    poll_fn(move |cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| asking.as_mut().poll(cx)));
        polled.unwrap_or_else(|_| {
            let message = "asking a server how far it is panicked";
            Poll::Ready(Err(Error::new(Kind::Other, message)))
        })
    })
    .await
}

/// Dropped at any await, it gives a connection of the pool back.
async fn watch_primary(replicas: Arc<Replicas>, handle: Weak<Handle>, runtime: Arc<dyn Runtime>) {
    let mut next = None;
    loop {
        wait(&runtime, &replicas.wake, next).await;
        if replicas.is_closed() {
            return;
        }
        if !replicas.has_begun() {
            continue;
        }
        let Some(handle) = handle.upgrade() else {
            return;
        };
        let asking = contained(ask_primary(&handle));
        match within(&runtime, Some(PATIENCE), asking).await {
            Some(Ok(position)) => {
                let knew_none = replicas.tracker.primary().newest().is_none();
                replicas.tracker.note(position, runtime.now());
                if knew_none {
                    replicas
                        .all
                        .iter()
                        .for_each(|replica| replica.wake.notify_one());
                }
            }
            Some(Err(error)) => tracing::debug!(%error, "the primary does not tell its position"),
            None => {}
        }
        drop(handle);
        let now = runtime.now();
        runtime.sleep_aside(now + REST).await;
        next = Some(now + INTERVAL);
    }
}

async fn ask_primary(handle: &Arc<Handle>) -> Result<super::LogPosition> {
    let site = Location::caller();
    let options = AcquireOptions::new().call_site(site);
    let lease = handle.pool.acquire_with(options).await;
    let mut lease = lease.map_err(|error| route::from_pool(error, None))?;
    // A cancel from here on has the pool settle the connection.
    lease.send(&AskPosition, site).await
}

struct Watcher {
    replicas: Arc<Replicas>,
    index: usize,
    runtime: Arc<dyn Runtime>,
    /// A connection outside of the pool, so that a pool in use does not look like a silent server.
    connection: Option<Box<dyn Connection>>,
}

impl Watcher {
    fn replica(&self) -> &Replica {
        &self.replicas.all[self.index]
    }

    /// Dropped at any await, it leaves at most its own connection, which its drop closes.
    async fn run(mut self) {
        let runtime = Arc::clone(&self.runtime);
        let mut next = None;
        loop {
            wait(&runtime, &self.replica().wake, next).await;
            if self.replicas.is_closed() {
                return;
            }
            if !self.replicas.has_begun() {
                continue;
            }
            let asked = within(&runtime, Some(PATIENCE), contained(self.ask())).await;
            let hangs = asked.is_none();
            let asked =
                asked.unwrap_or_else(|| Err(Error::new(Kind::Timeout, "no answer in time")));
            let mut pause = INTERVAL;
            if let Err(error) = &asked {
                tracing::debug!(replica = self.replica().name(), %error, "a replica does not answer");
                self.connection = None;
                if is_refusal(error) {
                    pause = AFTER_REFUSAL;
                }
            }
            let (now, max_lag) = (runtime.now(), self.replicas.max_lag);
            let primary = self.replicas.tracker.primary().clone();
            self.replica().note(asked.ok(), &primary, max_lag, now);
            if hangs {
                self.replica().gone.notify_waiters();
            }
            runtime.sleep_aside(now + REST).await;
            next = Some(now + pause);
        }
    }

    async fn ask(&mut self) -> Result<ReplicaAnswer> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.replica().handle.pool.manager().open().await?,
        };
        let newest = self.replicas.tracker.primary().newest();
        let beginning = newest.map(|newest| newest.history.beginning());
        let (answer, _) = connection.read_at(beginning, true, None).await?;
        self.connection = Some(connection);
        Ok(answer)
    }
}

/// Returns whether another login would be refused as well.
fn is_refusal(error: &Error) -> bool {
    let is_login = error
        .sql_state()
        .is_some_and(|state| state.starts_with("28"));
    is_login || error.kind() == Kind::Config
}
