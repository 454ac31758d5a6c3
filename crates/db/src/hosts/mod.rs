//! Several hosts, or one that has to have a role: which of them fits, and what happens to connections of one that no longer
//! does.
//!
//! ```text
//! an error raises suspicion ──wake──> watcher ──asks──> host ──role──> State: retire?
//!                                        │                               │ generation of the host + 1
//!                                        │ idle connections: Pool::retain│ outdated: never used again
//!                                        └─ after 1 s, if a newer primary was seen: sockets of busy ones are shut down
//! ```
//!
//! [`State`] decides and knows no I/O; [`watch`] asks the hosts; [`search`] connects to one that fits, by a driver's
//! [`Connector`](search::Connector), and admits the connection ([`Hosts::admit`]); the driver keeps its [`Place`]. A handle with one host of any role has none of this.

#![cfg_attr(
    not(any(feature = "postgres", feature = "mysql")),
    allow(dead_code, reason = "only the drivers of servers choose among hosts")
)]

#[cfg(any(feature = "postgres", feature = "mysql"))]
mod attrs;
#[cfg_attr(
    not(feature = "mysql"),
    allow(dead_code, reason = "PostgreSQL numbers its promotions itself")
)]
pub(crate) mod promotions;
mod role;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) mod search;
mod state;
pub(crate) mod watch;

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) use self::attrs::{HostOptions, SessionAttrs};
pub use self::role::{History, HostRole, HostState};
pub(crate) use self::state::Seen;
use self::state::{Change, Fits, State};
use crate::driver::BoxFuture;
use crate::{Db, Error, Kind, Result};

/// Asks one host what it is, on a connection of its own: for drivers.
pub trait HostProbe: Send + Sync {
    /// Asks the host.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the probe is not used again.
    ///
    /// # Errors
    ///
    /// The host does not answer. The probe is not used again.
    fn ask(&mut self) -> BoxFuture<'_, Result<HostRole>>;
}

/// Shuts the socket of a connection down, while its owner uses it or waits for it.
pub(crate) type Cut = Box<dyn Fn() + Send + Sync>;

/// The hosts of a handle, and what is known about them.
pub struct Hosts {
    names: Vec<String>,
    hosts: Vec<Shared>,
    state: Mutex<State>,
    /// Only a primary fits.
    pub(crate) writes: bool,
    /// New connections go to the least used host.
    pub(crate) spread: bool,
    /// A connection was tried: before that, nothing is watched.
    has_begun: AtomicBool,
    is_closed: AtomicBool,
    /// A host was retired, and the pool was not told yet.
    has_retired: AtomicBool,
    /// A host fits that did not before.
    fits_now: Notify,
    failure: Mutex<Failure>,
}

/// Why callers wait.
#[derive(Default)]
struct Failure {
    /// The searches under way.
    searches: usize,
    /// Why no host fitted at the last attempt to connect. `None` if one did, or nobody searches.
    why: Option<Error>,
}

/// A search for a host. Without any, no host is missed.
pub(crate) struct Search<'h>(&'h Hosts);

/// The order in which one search tries the hosts. Until it is dropped, others that spread connections know of it.
pub(crate) struct Order<'h> {
    hosts: &'h Hosts,
    indices: Vec<usize>,
}

/// What is shared about one host outside of the lock.
#[derive(Debug, Default)]
struct Shared {
    /// As in the state. Release pairs with the acquire of [`Place::is_outdated`].
    generation: AtomicU64,
    wake: Notify,
    places: Mutex<Vec<Weak<Place>>>,
}

/// A connection's place at its host. Dropped, the connection is counted no more.
pub(crate) struct Place {
    hosts: Arc<Hosts>,
    host: usize,
    generation: u64,
    /// Nothing is lost if it is cut at once.
    at_once: bool,
    cut: Cut,
}

const RETIRED: &str = "its host no longer has the role that target_session_attrs demands";

/// A host of a handle, as [`Db::hosts`](crate::Db::hosts) shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostStatus {
    /// The host and its port, as the DSN names them. A name that the DSN has twice gets a number: `db1:5432 #2`.
    pub name: String,
    /// What the host is at the moment.
    pub state: HostState,
    /// How long it has been that, as the handle has seen it. `None` before it was asked.
    pub unchanged_for: Option<Duration>,
    /// Whether it gets new connections: it answered, has the role that the DSN demands, and no newer primary was seen.
    pub is_usable: bool,
    /// It is the primary, or was it last. `false` for nodes of a Galera cluster, each of which is a primary.
    pub is_primary: bool,
    /// What the host said last. `None` if it has not been asked, or did not answer.
    pub role: Option<HostRole>,
    /// The host did not answer when it was asked last.
    pub is_silent: bool,
    /// The number of open connections to it.
    pub connections: usize,
    /// How often the host has ceased to fit, so that its connections were closed.
    pub retired: u64,
}

impl Hosts {
    pub(crate) fn new(names: Vec<String>, fits: Fits, writes: bool, spread: bool) -> Arc<Self> {
        let count = names.len();
        let names = distinct(names);
        Arc::new(Hosts {
            hosts: names.iter().map(|_| Shared::default()).collect(),
            names,
            writes,
            state: Mutex::new(State::new(count, fits, writes)),
            spread,
            has_begun: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            has_retired: AtomicBool::new(false),
            fits_now: Notify::new(),
            failure: Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// Notes that the handle connects: from now on the hosts are watched.
    pub(crate) fn begin(&self) {
        // Relaxed: the wake synchronises.
        if !self.has_begun.swap(true, Ordering::Relaxed) && self.len() > 1 {
            self.wake_all();
        }
    }

    /// Ends the watchers.
    pub(crate) fn close(&self) {
        // Release pairs with the acquire in `is_closed`.
        self.is_closed.store(true, Ordering::Release);
        self.wake_all();
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    fn wake_all(&self) {
        for host in &self.hosts {
            host.wake.notify_one();
        }
    }

    /// Returns a future that resolves when a host fits that does not now.
    pub(crate) fn fits_now(&self) -> Notified<'_> {
        self.fits_now.notified()
    }

    /// Returns the hosts in the order in which a connection should try them.
    pub(crate) fn order(&self, wanted: impl Fn(HostRole) -> bool) -> Order<'_> {
        let mut state = self.state();
        let indices = state.order(wanted, self.spread);
        state.search_begins(indices[0]);
        Order {
            hosts: self,
            indices,
        }
    }

    /// Admits a new connection, if its host fits. `cut` shuts its socket down; `at_once` says that nothing is lost by that.
    pub(crate) fn admit(
        self: &Arc<Self>,
        host: usize,
        role: Option<HostRole>,
        now: Instant,
        at_once: bool,
        cut: Cut,
    ) -> Option<Arc<Place>> {
        let mut state = self.state();
        let mut change = Change::default();
        if let Some(role) = role {
            change = state.observe(host, Some(role), now);
        }
        let fits = role.is_none_or(|role| state.fits(role));
        let place = fits.then(|| {
            state.opened(host);
            Arc::new(Place {
                hosts: Arc::clone(self),
                host,
                generation: state.generation(host),
                at_once,
                cut,
            })
        });
        if let Some(place) = &place {
            let mut places = self.places(host);
            places.retain(|place| place.strong_count() > 0);
            places.push(Arc::downgrade(place));
        }
        self.publish(&state, &change);
        drop(state);
        self.follow(&change);
        place
    }

    /// Notes what a host said, or that it did not answer.
    pub(crate) fn observe(&self, host: usize, role: Option<HostRole>, now: Instant) {
        let change = {
            let mut state = self.state();
            let change = state.observe(host, role, now);
            self.publish(&state, &change);
            change
        };
        self.follow(&change);
    }

    /// Returns whether a host of this role fits, and did not when it was seen last, or the reverse.
    fn is_news(&self, host: usize, role: HostRole) -> bool {
        let state = self.state();
        matches!(state.seen(host), Seen::Role(seen) if state.fits(seen) != state.fits(role))
    }

    /// Makes the new generations visible, under the lock.
    fn publish(&self, state: &State, change: &Change) {
        for &host in &change.outdated {
            let shared = &self.hosts[host];
            shared
                .generation
                .store(state.generation(host), Ordering::Release);
        }
    }

    /// Logs a change.
    fn log(&self, change: &Change) {
        for &(host, from, to) in &change.states {
            let host = self.names[host].as_str();
            match from {
                HostState::Unknown => tracing::debug!(host, is = %to, "the host was asked"),
                _ => tracing::info!(host, %from, %to, "the host has changed"),
            }
        }
        for &host in &change.retired {
            tracing::info!(
                host = self.names[host],
                "the host no longer fits: its connections are closed"
            );
        }
        if let Some((from, to)) = change.failover {
            let (from, to) = (self.names[from].as_str(), self.names[to].as_str());
            tracing::info!(from, to, "failover: another server is the primary now");
        }
    }

    /// Wakes who has to act on a change, after the lock.
    fn follow(&self, change: &Change) {
        self.log(change);
        for &host in &change.outdated {
            // Release pairs with the acquire in `take_retired`.
            self.has_retired.store(true, Ordering::Release);
            self.hosts[host].wake.notify_one();
        }
        for &host in &change.cut {
            // Its watcher waits until then.
            self.hosts[host].wake.notify_one();
        }
        if change.fits_now {
            self.fits_now.notify_waiters();
        }
    }

    /// Returns whether a host was retired since the last call.
    fn take_retired(&self) -> bool {
        self.has_retired.swap(false, Ordering::AcqRel)
    }

    /// Cuts the outdated connections of a host that lose nothing by it, and the others if their time is over.
    fn cut_due(&self, host: usize, now: Instant) {
        let is_due = self.state().take_cut(host, now);
        let places: Vec<_> = self.places(host).iter().filter_map(Weak::upgrade).collect();
        for place in places {
            if place.is_outdated() && (is_due || place.at_once) {
                (place.cut)();
            }
        }
    }

    fn places(&self, host: usize) -> MutexGuard<'_, Vec<Weak<Place>>> {
        let places = self.hosts[host].places.lock();
        places.unwrap_or_else(PoisonError::into_inner)
    }

    fn cut_at(&self, host: usize) -> Option<Instant> {
        self.state().cut_at(host)
    }

    /// Returns what is known about each host, in the order of the DSN.
    pub(crate) fn status(&self, now: Instant) -> Vec<HostStatus> {
        let state = self.state();
        let names = self.names.iter().enumerate();
        let status = names.map(|(host, name)| HostStatus {
            name: name.clone(),
            state: state.state(host),
            unchanged_for: state
                .since(host)
                .map(|since| now.saturating_duration_since(since)),
            is_usable: state.fits_now(host),
            is_primary: state.primary() == Some(host),
            role: match state.seen(host) {
                Seen::Role(role) => Some(role),
                Seen::Nothing | Seen::NoAnswer => None,
            },
            is_silent: state.seen(host) == Seen::NoAnswer,
            connections: state.connections(host),
            retired: state.retired(host),
        });
        status.collect()
    }

    /// Returns whether a host has answered that does not fit, and none that does.
    pub(crate) fn none_fits(&self) -> bool {
        self.state().none_fits()
    }

    /// Begins a search, which ends when it is dropped.
    pub(crate) fn search(&self) -> Search<'_> {
        self.failure().searches += 1;
        Search(self)
    }

    /// Returns why no host fits, if none does.
    pub(crate) fn why_none(&self) -> Option<Error> {
        self.failure().why.clone()
    }

    fn failure(&self) -> MutexGuard<'_, Failure> {
        // Nothing that can panic runs under this lock.
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Numbers names that occur again, so that each names one server.
pub(crate) fn distinct(mut names: Vec<String>) -> Vec<String> {
    for at in 1..names.len() {
        let (before, name) = (&names[..at], &names[at]);
        let numbered = |number| match number {
            1 => name.clone(),
            _ => format!("{name} #{number}"),
        };
        let free = (1..).map(numbered).find(|name| !before.contains(name));
        names[at] = free.unwrap_or_default();
    }
    names
}

impl Search<'_> {
    /// Notes why no host fitted at the last attempt to connect; `None` if one did.
    pub(crate) fn set_failure(&self, why: Option<Error>) {
        let before = std::mem::replace(&mut self.0.failure().why, why);
        drop(before);
    }
}

impl Deref for Order<'_> {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.indices
    }
}

impl Drop for Order<'_> {
    fn drop(&mut self) {
        self.hosts.state().search_ends(self.indices[0]);
    }
}

impl Drop for Search<'_> {
    fn drop(&mut self) {
        let mut failure = self.0.failure();
        failure.searches -= 1;
        let over = match failure.searches {
            0 => failure.why.take(),
            _ => None,
        };
        drop(failure);
        drop(over);
    }
}

impl Db {
    /// Returns what is known about the hosts of the DSN, in its order. Empty if the DSN names one host and no
    /// `target_session_attrs`, because nothing is watched then.
    pub fn hosts(&self) -> Vec<HostStatus> {
        let manager = self.handle().pool.manager();
        let hosts = manager.template.hosts();
        let status = hosts.map(|hosts| hosts.status(manager.runtime.now()));
        status.unwrap_or_default()
    }
}

impl Place {
    /// Returns whether the host has been retired since the connection was opened.
    #[inline]
    pub(crate) fn is_outdated(&self) -> bool {
        let generation = &self.hosts.hosts[self.host].generation;
        generation.load(Ordering::Acquire) != self.generation
    }

    /// Returns whether only a primary fits.
    pub(crate) fn writes(&self) -> bool {
        self.hosts.writes
    }

    /// Has the host asked what it is.
    #[cold]
    pub(crate) fn suspect(&self) {
        self.hosts.hosts[self.host].wake.notify_one();
    }

    /// Has the host of a lost connection asked, and says in the error if it is the reason.
    #[cold]
    pub(crate) fn explain_lost(&self, lost: Error) -> Error {
        self.suspect();
        if !self.is_outdated() {
            return lost;
        }
        let message = format!("{}; {RETIRED}", lost.message());
        let was_never_sent = lost.was_never_sent();
        let lost = lost.wrapped(Kind::ConnectionLost, message);
        match was_never_sent {
            true => lost.never_sent(),
            false => lost,
        }
    }

    /// Returns the error of a call that was not sent, because the connection was closed when its host was retired.
    #[cold]
    pub(crate) fn why_closed() -> Error {
        let message = format!("the connection was closed before this call; {RETIRED}");
        Error::new(Kind::ConnectionLost, message).never_sent()
    }

    /// Returns the host as the DSN names it.
    fn name(&self) -> &str {
        &self.hosts.names[self.host]
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.hosts.state().closed(self.host);
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Place")
            .field("host", &self.name())
            .field("is_outdated", &self.is_outdated())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Hosts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Hosts")
            .field("names", &self.names)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_names_are_numbered() {
        let names = ["a", "b", "a", "a #2", "a"].map(str::to_owned);
        let all = distinct(names.to_vec());
        assert_eq!(all, ["a", "b", "a #2", "a #2 #2", "a #3"]);
    }

    #[test]
    fn failure_of_a_search_ends_with_the_last_search() {
        let hosts = Hosts::new(vec!["a".into()], Arc::new(|_| false), true, false);
        let (one, other) = (hosts.search(), hosts.search());
        one.set_failure(Some(Error::new(Kind::Connect, "a standby")));
        drop(one);
        assert!(hosts.why_none().is_some(), "the other still searches");
        drop(other);
        assert!(hosts.why_none().is_none(), "it was dropped");
    }
}
