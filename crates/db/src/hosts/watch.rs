//! Asks each host what it is: twice a second where there are several, and at once when an error raises suspicion. A task per
//! host, so that one that hangs delays no other.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use cenote_pool::{Runtime, within};

use super::{HostProbe, HostRole, Hosts};
use crate::driver::Template;
use crate::pooled::handle::Handle;
use crate::pooled::manager::Login;
use crate::{Error, Kind, Result};

/// How often a host is asked.
const INTERVAL: Duration = Duration::from_millis(500);

/// How long a host may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often a host is asked that refused the login: repeated attempts lock accounts.
const AFTER_REFUSAL: Duration = Duration::from_secs(60);

/// The time between two probes of one host, however many errors raise suspicion.
const REST: Duration = Duration::from_millis(100);

/// Watches the hosts of a handle, if it has any, until it is closed or dropped.
pub(crate) fn start(handle: &Arc<Handle>) {
    let manager = handle.pool.manager();
    let Some(hosts) = manager.template.hosts() else {
        return;
    };
    for host in 0..hosts.len() {
        let watcher = Watcher {
            hosts: Arc::clone(hosts),
            host,
            template: Arc::clone(&manager.template),
            login: Arc::clone(&manager.login),
            runtime: Arc::clone(&manager.runtime),
            // It must not keep the handle from being dropped.
            handle: Arc::downgrade(handle),
            probe: None,
            is_refused: false,
        };
        manager.runtime.spawn(Box::pin(watcher.run()));
    }
}

struct Watcher {
    hosts: Arc<Hosts>,
    host: usize,
    template: Arc<dyn Template>,
    login: Arc<Login>,
    runtime: Arc<dyn Runtime>,
    handle: Weak<Handle>,
    probe: Option<Box<dyn HostProbe>>,
    /// The host refused the login.
    is_refused: bool,
}

/// Turns a panic, of a provider of credentials, into an error: the host is asked again later.
async fn contained(asking: impl Future<Output = Result<HostRole>>) -> Result<HostRole> {
    let mut asking = pin!(asking);
    poll_fn(move |cx| {
        // The probe is dropped after an error.
        let polled = catch_unwind(AssertUnwindSafe(|| asking.as_mut().poll(cx)));
        polled.unwrap_or_else(|_| {
            let message = "asking for the role of a host panicked";
            Poll::Ready(Err(Error::new(Kind::Other, message)))
        })
    })
    .await
}

/// Returns whether another login would be refused as well.
fn is_refusal(error: &Error) -> bool {
    let is_login = error
        .sql_state()
        .is_some_and(|state| state.starts_with("28"));
    is_login || error.kind() == Kind::Config
}

impl Watcher {
    /// Dropped at any await, it leaves at most its own connection, which its drop closes.
    async fn run(mut self) {
        let runtime = Arc::clone(&self.runtime);
        let mut asked: Option<Instant> = None;
        loop {
            let now = self.runtime.now();
            let rested = asked.map(|asked| asked + REST).filter(|until| *until > now);
            match rested {
                // A suspicion of this time is kept by the wake.
                Some(until) => self.runtime.sleep_aside(until).await,
                None => self.wait(asked).await,
            }
            if self.hosts.is_closed() {
                return;
            }
            self.act();
            if rested.is_some() || !self.is_due(asked) {
                continue;
            }
            let role = within(&runtime, Some(PATIENCE), contained(self.ask())).await;
            let role = role.unwrap_or_else(|| Err(Error::new(Kind::Timeout, "no answer in time")));
            if let Err(error) = &role {
                tracing::debug!(host = self.hosts.names[self.host], %error, "a host does not answer");
                self.probe = None;
            }
            self.is_refused = role.as_ref().is_err_and(is_refusal);
            if self.hosts.len() == 1 {
                // It is asked rarely, and its name may be another server's then.
                self.probe = None;
            }
            let now = self.runtime.now();
            asked = Some(now);
            self.hosts.observe(self.host, role.ok(), now);
            self.act();
        }
    }

    /// Waits for a suspicion, for the next regular probe, or for the time at which connections are cut.
    async fn wait(&self, asked: Option<Instant>) {
        let regular = match self.hosts.len() {
            // Only a suspicion has a single host asked.
            1 => None,
            _ if self.is_refused => asked.map(|asked| asked + AFTER_REFUSAL),
            _ => asked.map(|asked| asked + INTERVAL),
        };
        let cut = self.hosts.cut_at(self.host);
        let until = regular.into_iter().chain(cut).min();
        let mut woken = pin!(self.hosts.hosts[self.host].wake.notified());
        // Not a Tokio timer, which would make every wait for I/O of the program set a timer of the kernel.
        let mut sleep = until.map(|until| self.runtime.sleep_aside(until));
        poll_fn(|cx| match (woken.as_mut().poll(cx), &mut sleep) {
            (Poll::Ready(()), _) => Poll::Ready(()),
            (Poll::Pending, Some(sleep)) => sleep.as_mut().poll(cx),
            (Poll::Pending, None) => Poll::Pending,
        })
        .await;
    }

    /// Returns whether the host is to be asked: always, but for a wait that only a cut has ended.
    fn is_due(&self, asked: Option<Instant>) -> bool {
        asked.is_none_or(|asked| asked + REST <= self.runtime.now())
    }

    /// Closes what is outdated.
    fn act(&self) {
        if self.hosts.take_retired()
            && let Some(handle) = self.handle.upgrade()
        {
            handle
                .pool
                .retain(|connection, _| !connection.is_outdated());
        }
        self.hosts.cut_due(self.host, self.runtime.now());
    }

    /// Asks the host. A probe that contradicts what was seen last is replaced before it is believed: its name may be another
    /// server's by now.
    async fn ask(&mut self) -> Result<HostRole> {
        let Some(probe) = &mut self.probe else {
            return self.ask_anew().await;
        };
        let told = probe.ask().await?;
        if self.hosts.is_news(self.host, told) {
            self.probe = None;
            // A server that lets nobody in now has answered all the same.
            return self.ask_anew().await.or(Ok(told));
        }
        Ok(told)
    }

    async fn ask_anew(&mut self) -> Result<HostRole> {
        let credentials = self.login.credentials().await?;
        let mut probe = self.template.open_probe(self.host, credentials).await?;
        let told = probe.ask().await?;
        self.probe = Some(probe);
        Ok(told)
    }
}
