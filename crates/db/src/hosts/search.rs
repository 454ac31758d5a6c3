//! Connects to the first suitable server of a list.
//!
//! ```text
//! server ──lookup──> addresses ──TCP, TLS──> socket ──login──> session ──> target_session_attrs?
//!   next <───────────── next <─────────────── failed              no: the next server
//! ```
//!
//! Servers are tried in the order of the options, but those first that are known to fit; the addresses of a name in the order
//! of the lookup, which is made for every connect. Where the order does not matter, a server that takes its time is not
//! waited for: the next one is tried beside it. As in libpq a refused login ends the search: another server would refuse it
//! too, and repeated attempts lock accounts. The servers that are being tried go on.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use cenote_pool::{Runtime, TokioRuntime, within};

use super::{Cut, HostRole, Hosts, Place, SessionAttrs};
use crate::driver::BoxFuture;
use crate::driver::time_limit::attempt_within;
use crate::{Error, Kind, Result};

/// The time limit of each address but the last, without `connect_timeout`: an address that does not answer
/// must leave time for the others.
const DEFAULT_ADDRESS_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a server may take before the next one is tried beside it, where the order does not matter.
const STAGGER: Duration = Duration::from_millis(200);

/// One driver's way to connect, with what is the same for all attempts of one connect.
///
/// # Cancel safety
///
/// If a future is dropped, nothing stays open.
pub(crate) trait Connector: Sync {
    /// An address of a server, and how to log in there.
    type Address: fmt::Display + Send + Sync;
    /// A session. Dropped, its socket is closed.
    type Session: Send;

    /// Returns the number of servers.
    fn servers(&self) -> usize;

    /// Returns the server as the DSN names it.
    fn name(&self, server: usize) -> String;

    /// Returns the limit for each address, if the options name one.
    fn connect_timeout(&self) -> Option<Duration>;

    /// Looks the addresses of a server up, in the order in which they are tried.
    fn addresses(&self, server: usize) -> impl Future<Output = Result<Vec<Self::Address>>> + Send;

    /// Logs in. An error [without a host](Error::without_host) says that the server lets nobody in at present.
    fn log_in<'a>(
        &'a self,
        server: usize,
        address: &'a Self::Address,
    ) -> impl Future<Output = Result<Self::Session>> + Send + 'a;

    /// Asks the server what it is; with the history if only a primary fits. Returns `None` if any role fits.
    fn role<'a>(
        &'a self,
        session: &'a mut Self::Session,
        wanted: SessionAttrs,
        choice: Option<&'a Arc<Hosts>>,
    ) -> impl Future<Output = Result<Option<HostRole>>> + Send + 'a;

    /// Sets the session up, on a server that fits.
    fn set_up<'a>(
        &'a self,
        session: &'a mut Self::Session,
    ) -> impl Future<Output = Result<()>> + Send + 'a;

    /// Returns what cuts the session.
    fn cutter(&self, session: &mut Self::Session) -> Result<Cut>;

    /// Whether every other server would fail with the same error: a refused login, or a mistake in the configuration.
    fn is_final(error: &Error) -> bool;
}

/// A session with a server that fits.
pub(crate) struct Connected<S> {
    pub(crate) session: S,
    /// `None` where there is no choice of hosts.
    pub(crate) place: Option<Arc<Place>>,
}

/// What is the same for all attempts of one round.
struct Round<'c, C> {
    connector: &'c C,
    choice: Option<&'c Arc<Hosts>>,
    wanted: SessionAttrs,
    /// Nothing is lost if the session is cut at once.
    at_once: bool,
}

/// How a server was tried.
enum Tried<S> {
    Connected(Box<Connected<S>>),
    /// The errors of its addresses, the last of which may end the search.
    Failed(Vec<(String, Error)>),
}

/// Connects to the first server that accepts the login and matches `target_session_attrs`. `at_once` says that nothing is lost
/// if the session is cut at once.
///
/// # Cancel safety
///
/// If dropped, nothing stays open.
///
/// # Errors
///
/// [`Kind::Connect`], with the error of each server and what the last one reported that reported any;
/// [`Kind::Timeout`] if every attempt timed out; [`Kind::Config`] for a mistake in the configuration.
pub(crate) async fn connect<C: Connector>(
    connector: &C,
    attrs: SessionAttrs,
    choice: Option<&Arc<Hosts>>,
    at_once: bool,
) -> Result<Connected<C::Session>> {
    if let Some(hosts) = choice {
        hosts.begin();
    }
    let mut failures = Failures::default();
    for wanted in attrs.rounds() {
        let round = Round {
            connector,
            choice,
            wanted,
            at_once,
        };
        loop {
            failures.has_appeared = false;
            if let Some(connected) = round.side_by_side(&mut failures).await {
                return Ok(*connected);
            }
            // The next search begins with the host that has appeared.
            if !failures.has_appeared {
                break;
            }
        }
        if failures.are_final {
            break;
        }
    }
    let is_without_host = choice.is_some() && failures.has_unfit && !failures.are_final;
    let error = failures.into_error();
    Err(match is_without_host {
        true => error.without_host(),
        false => error,
    })
}

/// Logs in to the first address of a server that answers, whatever it is.
///
/// # Cancel safety
///
/// If dropped, nothing stays open.
pub(crate) async fn log_in_to<C: Connector>(connector: &C, server: usize) -> Result<C::Session> {
    let mut failures = Failures::default();
    for address in connector.addresses(server).await? {
        match connector.log_in(server, &address).await {
            Ok(session) => return Ok(session),
            Err(error) => failures.note(&address.to_string(), error, C::is_final),
        }
    }
    Err(failures.into_error())
}

impl<C: Connector> Round<'_, C> {
    /// Tries the servers in order: the next one when one has failed. Where the order does not matter, also when one has not
    /// answered for [`STAGGER`]: the caller has asked for any of equal servers, or for the primary, which usually is one
    /// server.
    ///
    /// # Cancel safety
    ///
    /// If dropped, nothing stays open.
    async fn side_by_side(&self, failures: &mut Failures) -> Option<Box<Connected<C::Session>>> {
        let runtime = TokioRuntime::new();
        let mut appeared = pin!(self.choice.map(|hosts| hosts.fits_now()));
        if let Some(appeared) = appeared.as_mut().as_pin_mut() {
            // A host that fits from now on is not missed.
            appeared.enable();
        }
        // It lives until the connection is counted.
        let chosen = self
            .choice
            .map(|hosts| hosts.order(|role| self.wanted.fits(role)));
        let order: Vec<usize> = match &chosen {
            None => (0..self.connector.servers()).collect(),
            Some(chosen) => chosen.to_vec(),
        };
        let in_turn = self
            .choice
            .is_none_or(|hosts| !hosts.writes && !hosts.spread);
        let mut left = order.iter().enumerate();
        let mut trying: Vec<BoxFuture<'_, Tried<C::Session>>> = Vec::new();
        loop {
            // After a refused login those that are being tried go on: they may have let us in already.
            if failures.are_final {
                left = [].iter().enumerate();
            }
            if let Some((nth, &server)) = left.next() {
                let is_last = nth + 1 == order.len();
                trying.push(Box::pin(self.try_server(server, is_last)));
            } else if trying.is_empty() {
                return None;
            }
            let limit = (left.len() > 0 && !in_turn).then_some(STAGGER);
            let next = poll_fn(|cx| {
                for nth in 0..trying.len() {
                    if let Poll::Ready(tried) = trying[nth].as_mut().poll(cx) {
                        drop(trying.swap_remove(nth));
                        return Poll::Ready(Some(tried));
                    }
                }
                // A server that hangs need not be waited for.
                match appeared.as_mut().as_pin_mut() {
                    Some(appeared) if failures.has_unfit && !failures.are_final => {
                        appeared.poll(cx).map(|()| None)
                    }
                    _ => Poll::Pending,
                }
            });
            match within(&runtime, limit, next).await {
                // The next server is tried beside those that have not answered.
                None => {}
                Some(None) => {
                    failures.has_appeared = true;
                    return None;
                }
                Some(Some(Tried::Connected(connected))) => return Some(connected),
                Some(Some(Tried::Failed(errors))) => {
                    for (whom, error) in errors {
                        failures.note(&whom, error, C::is_final);
                    }
                }
            }
        }
    }

    /// Tries the addresses of a server, one after the other.
    async fn try_server(&self, server: usize, is_last_server: bool) -> Tried<C::Session> {
        let addresses = match self.connector.addresses(server).await {
            Ok(addresses) => addresses,
            Err(error) => return Tried::Failed(vec![(self.connector.name(server), error)]),
        };
        let mut errors = Vec::new();
        for (nth, address) in addresses.iter().enumerate() {
            let is_last = is_last_server && nth + 1 == addresses.len();
            let limit = match self.connector.connect_timeout() {
                None if is_last => None,
                limit => Some(limit.unwrap_or(DEFAULT_ADDRESS_TIMEOUT)),
            };
            match attempt_within(limit, self.attempt(server, address)).await {
                Ok(Ok(connected)) => return Tried::Connected(Box::new(connected)),
                Ok(Err(unfit)) => {
                    errors.push((address.to_string(), unfit));
                    break;
                }
                Err(error) => {
                    let is_final = C::is_final(&error);
                    errors.push((address.to_string(), error));
                    if is_final {
                        break;
                    }
                }
            }
        }
        Tried::Failed(errors)
    }

    /// Opens a session. The inner error says why the server does not fit.
    async fn attempt(
        &self,
        server: usize,
        address: &C::Address,
    ) -> Result<Result<Connected<C::Session>>> {
        let mut session = self.connector.log_in(server, address).await?;
        // Dropping an unsuitable session closes its socket; no transaction is open.
        let asked = self.connector.role(&mut session, self.wanted, self.choice);
        let role = asked.await?;
        if let Some(role) = role
            && !self.wanted.fits(role)
        {
            if let Some(hosts) = self.choice {
                hosts.observe(server, Some(role), TokioRuntime::new().now());
            }
            return Ok(Err(self.wanted.refuse(role)));
        }
        self.connector.set_up(&mut session).await?;
        let mut place = None;
        if let Some(hosts) = self.choice {
            let cut = self.connector.cutter(&mut session)?;
            let now = TokioRuntime::new().now();
            place = hosts.admit(server, role, now, self.at_once, cut);
            if place.is_none() {
                let message =
                    "the server is a primary of an older timeline: another one was promoted";
                return Ok(Err(Error::new(Kind::Connect, message).without_host()));
            }
        }
        Ok(Ok(Connected { session, place }))
    }
}

/// The errors of all attempts.
#[derive(Default)]
struct Failures {
    said: Vec<String>,
    /// A server answered that does not fit, or does not let anybody in yet.
    has_unfit: bool,
    /// The search ended because a host fits that did not before.
    has_appeared: bool,
    /// Every other server would fail with the last error.
    are_final: bool,
    all_too_slow: Option<bool>,
    last: Option<Error>,
}

impl Failures {
    fn note(&mut self, whom: &str, error: Error, is_final: impl Fn(&Error) -> bool) {
        self.are_final |= is_final(&error);
        self.has_unfit |= error.is_without_host();
        let line = match error.kind() {
            Kind::Config => error.message().to_owned(),
            _ => format!("{whom}: {}", error.message()),
        };
        // The second round of prefer-standby repeats the errors of the first.
        if !self.said.contains(&line) {
            self.said.push(line);
        }
        let too_slow = error.kind() == Kind::Timeout;
        self.all_too_slow = Some(self.all_too_slow.unwrap_or(true) && too_slow);
        let says_more = error.sql_state().is_some() || error.kind() == Kind::Config;
        if says_more
            || self
                .last
                .as_ref()
                .is_none_or(|last| last.sql_state().is_none())
        {
            self.last = Some(error);
        }
    }

    fn into_error(self) -> Error {
        let last = self.last.expect("there is at least one server to fail");
        let kind = match last.kind() {
            Kind::Config => return last,
            _ if self.all_too_slow == Some(true) => Kind::Timeout,
            _ => Kind::Connect,
        };
        let message = match self.said.len() {
            1 => format!("cannot connect to {}", self.said[0]),
            _ => format!("cannot connect to any server: {}", self.said.join("; ")),
        };
        last.wrapped(kind, message)
    }
}
