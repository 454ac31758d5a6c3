//! Who listens to what, and what the server has acknowledged.
//!
//! The hub holds what is wanted; the [task](super::task) makes the server agree. A channel is wanted while some listener
//! has it. Nothing in here waits: changes happen under one lock, and wakers run after it.
//!
//! A listener receives from the moment at which the server has acknowledged all its channels. If the connection is lost
//! then, the hub owes the listener a Gap and delivers nothing to it, until a new connection has
//! acknowledged the channels again. Then the Gap comes first.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cenote_pool::{Runtime, within};
use tokio::sync::Notify;

use super::listener::Listener;
use super::mailbox::{Limits, Mailbox, Wakes};
use super::{Event, GapCause, ListenStatus, task};
use crate::call::route::closed;
use crate::driver::Template;
use crate::pooled::manager::Login;
use crate::{Error, Kind, Result};

/// What the hub takes over from the handle.
pub(crate) struct Setup {
    pub(crate) template: Arc<dyn Template>,
    pub(crate) login: Arc<Login>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) connect_timeout: Duration,
    pub(crate) cleanup_timeout: Duration,
    /// How long the server may be silent before it is asked for an answer.
    pub(crate) ping_after: Option<Duration>,
    /// How long `listen` may take.
    pub(crate) join_timeout: Option<Duration>,
}

/// The handle's end of the hub. Dropped, it ends all listeners.
pub(crate) struct Hub(Arc<Shared>);

/// What the handle, the listeners and the task share.
pub(crate) struct Shared {
    pub(super) setup: Setup,
    state: Mutex<State>,
    /// Wakes the task, which looks at the state again.
    pub(super) changed: Notify,
    /// Wakes those who wait for the end of the task.
    ended: Notify,
}

#[derive(Default)]
struct State {
    closed: bool,
    /// The number of the running task.
    task: Option<u64>,
    last_task: u64,
    last_listener: u64,
    listeners: HashMap<u64, Member>,
    /// Who listens to each wanted channel.
    channels: HashMap<Arc<str>, Vec<u64>>,
    /// The channels that the server listens to, as far as it has acknowledged.
    acknowledged: HashSet<Arc<str>>,
    /// The channels to compare with what is acknowledged.
    unsettled: HashSet<Arc<str>>,
    /// The listeners that wait for an acknowledgement.
    waiting: Vec<u64>,
    /// `Db::replace_all` asks for a new connection.
    replace: bool,
    connected: bool,
    /// When `connected` last changed.
    since: Option<Instant>,
    process: Option<i32>,
    reconnects: u64,
    last_error: Option<Error>,
}

/// A listener, as the hub sees it.
struct Member {
    mailbox: Arc<Mailbox>,
    channels: Vec<Arc<str>>,
    is_ready: bool,
    /// The Gap that comes before anything else, when the channels are acknowledged again.
    owed: Option<GapCause>,
}

/// What the server should be asked for.
#[derive(Debug, Default)]
pub(super) struct Request {
    pub(super) listen: Vec<Arc<str>>,
    pub(super) unlisten: Vec<Arc<str>>,
}

/// What the task does next with an open connection.
#[derive(Debug)]
pub(super) enum Plan {
    /// Closes the connection: there is no listener, or the handle is closed.
    End,
    /// Opens another one.
    Replace,
    Send(Request),
    Wait,
}

impl Hub {
    pub(crate) fn new(setup: Setup) -> Self {
        Hub(Arc::new(Shared {
            setup,
            state: Mutex::default(),
            changed: Notify::new(),
            ended: Notify::new(),
        }))
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }

    /// Ends all listeners, and the task.
    pub(crate) fn close(&self) {
        let mut wakes = Wakes::new();
        let mut state = self.0.lock();
        state.closed = true;
        state.end_all(&closed(), &mut wakes);
        self.0.apply(state, wakes);
    }

    /// Waits until the task has closed its connection, at most for the time of a cleanup: the runtime that runs the task
    /// may not be driven.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing changes.
    pub(crate) async fn ended(&self) {
        let ended = async {
            loop {
                // Created before the look, so that no end is missed in between.
                let ended = self.0.ended.notified();
                if self.0.lock().task.is_none() {
                    return;
                }
                ended.await;
            }
        };
        let Setup {
            runtime,
            cleanup_timeout,
            ..
        } = &self.0.setup;
        // The task has that time to close the connection.
        let limit = cleanup_timeout.saturating_add(Duration::from_secs(1));
        let _ = within(runtime, Some(limit), ended).await;
    }

    /// Has the connection replaced, if there is one.
    pub(crate) fn replace(&self) {
        let mut state = self.0.lock();
        state.replace = state.connected;
        self.0.apply(state, Wakes::new());
    }

    /// Returns the status; `None` if nobody listens and no connection is left.
    pub(crate) fn status(&self) -> Option<ListenStatus> {
        let state = self.0.lock();
        state.task?;
        let mut channels: Vec<_> = state.channels.keys().cloned().collect();
        channels.sort_unstable();
        let now = self.0.setup.runtime.now();
        Some(ListenStatus {
            connected: state.connected,
            unchanged_for: state
                .since
                .map_or(Duration::ZERO, |since| now.saturating_duration_since(since)),
            process_id: state.process,
            listeners: state.listeners.len(),
            channels,
            reconnects: state.reconnects,
            last_error: state.last_error.clone(),
        })
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.status().fmt(out)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a change: unlocks, and wakes the listeners and the task.
    fn apply(&self, state: MutexGuard<'_, State>, wakes: Wakes) {
        drop(state);
        self.changed.notify_one();
        wakes.into_iter().for_each(|waker| waker.wake());
    }

    /// Adds a listener, and starts the task if none runs.
    pub(super) fn join(
        self: &Arc<Self>,
        channels: Vec<Arc<str>>,
        limits: Limits,
    ) -> Result<Listener> {
        let mailbox = Arc::new(Mailbox::new(limits));
        let mut state = self.lock();
        if state.closed {
            return Err(closed());
        }
        let id = state.add(&mailbox, &channels);
        let starts = state.task.is_none().then(|| {
            state.last_task += 1;
            state.task = Some(state.last_task);
            state.since = Some(self.setup.runtime.now());
            state.last_task
        });
        self.apply(state, Wakes::new());
        let listener = Listener::new(Arc::clone(self), id, channels, mailbox);
        if let Some(number) = starts {
            let running = Running {
                shared: Arc::clone(self),
                number,
            };
            self.setup.runtime.spawn(Box::pin(task::run(running)));
        }
        Ok(listener)
    }

    /// Removes a listener.
    pub(super) fn leave(&self, id: u64) {
        let mut state = self.lock();
        let left = state.remove(id);
        self.apply(state, Wakes::new());
        drop(left);
    }

    /// Whether the task has something to do.
    pub(super) fn is_wanted(&self) -> bool {
        self.lock().is_wanted()
    }

    /// Compares what is wanted with what the server has acknowledged. Channels to be left count as left from now on,
    /// those to listen to when the server has [answered](Shared::note_answer).
    pub(super) fn plan(&self) -> Plan {
        let mut wakes = Wakes::new();
        let mut state = self.lock();
        if !state.is_wanted() {
            return Plan::End;
        }
        if std::mem::take(&mut state.replace) {
            return Plan::Replace;
        }
        let mut request = Request::default();
        for channel in std::mem::take(&mut state.unsettled) {
            match state.channels.contains_key(&channel) {
                true if !state.acknowledged.contains(&channel) => request.listen.push(channel),
                false if state.acknowledged.remove(&channel) => request.unlisten.push(channel),
                _ => {}
            }
        }
        state.admit(&mut wakes);
        drop(state);
        wakes.into_iter().for_each(|waker| waker.wake());
        match request.listen.is_empty() && request.unlisten.is_empty() {
            true => Plan::Wait,
            false => Plan::Send(request),
        }
    }

    /// Notes that the server has accepted a request.
    pub(super) fn note_answer(&self, request: Request, process: Option<i32>) {
        let mut wakes = Wakes::new();
        let mut state = self.lock();
        for channel in request.listen {
            if !state.channels.contains_key(&channel) {
                // The last listener has left meanwhile.
                state.unsettled.insert(Arc::clone(&channel));
            }
            state.acknowledged.insert(channel);
        }
        if !state.connected {
            let is_back = state.listeners.values().any(|member| member.owed.is_some());
            state.reconnects += u64::from(is_back);
            state.set_connected(true, self.setup.runtime.now());
            state.process = process;
        }
        state.admit(&mut wakes);
        self.apply(state, wakes);
    }

    /// Delivers a notification to those who listen to its channel.
    pub(super) fn deliver(&self, channel: &str, payload: Option<Arc<str>>, pid: i32) {
        let mut wakes = Wakes::new();
        let state = self.lock();
        let Some((channel, ids)) = state.channels.get_key_value(channel) else {
            return;
        };
        let members = ids.iter().filter_map(|id| state.listeners.get(id));
        for member in members.filter(|member| member.is_ready && member.owed.is_none()) {
            match &payload {
                Some(payload) => member.mailbox.push(
                    Event::Notification {
                        channel: Arc::clone(channel),
                        payload: Arc::clone(payload),
                        pid,
                    },
                    &mut wakes,
                ),
                None => member.mailbox.push_gap(GapCause::NotText, &mut wakes),
            }
        }
        drop(state);
        wakes.into_iter().for_each(|waker| waker.wake());
    }

    /// Notes that the connection was lost: every listener that was ready gets a Gap later.
    pub(super) fn note_loss(&self, cause: &GapCause) {
        let mut state = self.lock();
        if let GapCause::ConnectionLost(error) = cause {
            state.last_error = Some(error.clone());
        }
        state.replace = false;
        state.set_connected(false, self.setup.runtime.now());
        state.process = None;
        state.acknowledged.clear();
        state.unsettled = state.channels.keys().cloned().collect();
        let State {
            listeners, waiting, ..
        } = &mut *state;
        for (id, member) in listeners.iter_mut() {
            if member.is_ready && member.owed.is_none() {
                member.owed = Some(cause.clone());
                waiting.push(*id);
            }
        }
    }

    /// Notes that a connection could not be opened, or that the server has refused to listen: those who are not ready yet
    /// get the error, the others wait for the next attempt.
    pub(super) fn note_failure(&self, error: &Error) {
        let mut wakes = Wakes::new();
        let mut state = self.lock();
        state.last_error = Some(error.clone());
        let failed: Vec<_> = state
            .listeners
            .iter()
            .filter(|(_, member)| !member.is_ready)
            .map(|(id, _)| *id)
            .collect();
        let failed: Vec<_> = failed.iter().filter_map(|id| state.remove(*id)).collect();
        for member in &failed {
            member.mailbox.end(error.clone(), &mut wakes);
        }
        self.apply(state, wakes);
    }

    /// Ends the task if nobody needs it. A listener that joins later starts another one.
    pub(super) fn end_if_unwanted(&self, number: u64) -> bool {
        let mut state = self.lock();
        if state.is_wanted() {
            return false;
        }
        state.end_task(number);
        drop(state);
        self.ended.notify_waiters();
        true
    }

    /// Ends the listeners if the task is gone that served them.
    fn task_is_gone(&self, number: u64) {
        let mut wakes = Wakes::new();
        let mut state = self.lock();
        if !state.end_task(number) {
            return;
        }
        let message = "the task that receives the notifications is gone: its runtime was shut down, \
                       or the credential provider has panicked; call Db::listen again";
        let error = Error::new(Kind::ConnectionLost, message);
        state.end_all(&error, &mut wakes);
        state.last_error = Some(error);
        self.apply(state, wakes);
        self.ended.notify_waiters();
    }
}

impl State {
    fn is_wanted(&self) -> bool {
        !self.closed && !self.listeners.is_empty()
    }

    fn set_connected(&mut self, connected: bool, now: Instant) {
        if self.connected != connected {
            self.connected = connected;
            self.since = Some(now);
        }
    }

    fn add(&mut self, mailbox: &Arc<Mailbox>, channels: &[Arc<str>]) -> u64 {
        self.last_listener += 1;
        let id = self.last_listener;
        for channel in channels {
            let ids = self.channels.entry(Arc::clone(channel)).or_default();
            ids.push(id);
            self.unsettled.insert(Arc::clone(channel));
        }
        let member = Member {
            mailbox: Arc::clone(mailbox),
            channels: channels.to_vec(),
            is_ready: false,
            owed: None,
        };
        self.listeners.insert(id, member);
        self.waiting.push(id);
        id
    }

    fn remove(&mut self, id: u64) -> Option<Member> {
        let member = self.listeners.remove(&id)?;
        for channel in &member.channels {
            let Some(ids) = self.channels.get_mut(channel) else {
                continue;
            };
            ids.retain(|of| *of != id);
            if !ids.is_empty() {
                continue;
            }
            self.channels.remove(channel);
            // A LISTEN that is under way is undone when the server has answered it.
            match self.acknowledged.contains(channel) {
                true => self.unsettled.insert(Arc::clone(channel)),
                false => self.unsettled.remove(channel),
            };
        }
        self.waiting.retain(|of| *of != id);
        Some(member)
    }

    /// Makes those ready whose channels the server has acknowledged, and pays them their Gaps.
    fn admit(&mut self, wakes: &mut Wakes) {
        let State {
            listeners,
            waiting,
            acknowledged,
            ..
        } = self;
        waiting.retain(|id| {
            let Some(member) = listeners.get_mut(id) else {
                return false;
            };
            let is_heard = |channel: &Arc<str>| acknowledged.contains(channel);
            if !member.channels.iter().all(is_heard) {
                return true;
            }
            member.is_ready = true;
            member.mailbox.set_ready(wakes);
            if let Some(cause) = member.owed.take() {
                member.mailbox.push_gap(cause, wakes);
            }
            false
        });
    }

    fn end_all(&mut self, error: &Error, wakes: &mut Wakes) {
        for (_, member) in self.listeners.drain() {
            member.mailbox.end(error.clone(), wakes);
        }
        self.channels.clear();
        self.waiting.clear();
    }

    /// Forgets a task and its connection. Returns whether that task was the running one.
    fn end_task(&mut self, number: u64) -> bool {
        if self.task != Some(number) {
            return false;
        }
        self.task = None;
        self.connected = false;
        self.since = None;
        self.process = None;
        self.replace = false;
        self.acknowledged.clear();
        self.unsettled.clear();
        true
    }
}

/// Exists as long as the task does. Dropped with the task by a runtime that shuts down, it ends the listeners.
pub(super) struct Running {
    pub(super) shared: Arc<Shared>,
    pub(super) number: u64,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.task_is_gone(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_that_fail_in_an_outage_leave_nothing_behind() {
        let mut state = State::default();
        let mailbox = Arc::new(Mailbox::new(Limits::default()));
        let stays = state.add(&mailbox, &["a".into(), "b".into()]);
        for n in 0..10 {
            let id = state.add(&mailbox, &["a".into(), format!("own {n}").into()]);
            assert!(state.remove(id).is_some());
            assert!(state.remove(id).is_none());
        }
        assert_eq!(state.waiting, [stays]);
        assert_eq!(state.unsettled, HashSet::from(["a".into(), "b".into()]));
        assert_eq!(state.channels.len(), 2);
        state.remove(stays);
        assert!(state.channels.is_empty() && state.unsettled.is_empty());
        assert!(state.waiting.is_empty() && !state.is_wanted());
    }

    #[test]
    fn acknowledged_channel_is_left_with_its_last_listener() {
        let mut state = State::default();
        let mailbox = Arc::new(Mailbox::new(Limits::default()));
        let [one, two] = [(); 2].map(|()| state.add(&mailbox, &["a".into()]));
        state.unsettled.clear();
        state.acknowledged.insert("a".into());
        state.admit(&mut Wakes::new());
        assert!(state.waiting.is_empty());
        state.remove(one);
        assert!(state.unsettled.is_empty(), "the other one still listens");
        state.remove(two);
        assert_eq!(state.unsettled, HashSet::from(["a".into()]));
    }
}
