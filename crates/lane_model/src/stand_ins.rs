//! What the lanes use of the other modules of `cenote` and of the pool, as little as they need of it.

use std::collections::VecDeque;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use loom::sync::Notify;
use loom::thread::JoinHandle;

use crate::sync::assert_unlocked;

pub(crate) mod binding {
    pub(crate) use super::Lease;
}

pub(crate) mod driver {
    pub(crate) use super::{Request, SharedAnswer};
}

pub(crate) mod pooled {
    pub(crate) mod handle {
        pub(crate) use crate::stand_ins::Handle;
    }
}

pub(crate) type Result<T> = std::result::Result<T, Error>;
pub(crate) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Debug)]
pub(crate) struct Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResourceId(u64);

pub(crate) trait Runtime: Send + Sync {
    fn now(&self) -> Instant;
    fn sleep(&self, until: Instant) -> Task;
    fn spawn(&self, task: Task);
    fn domain(&self) -> Option<u64> {
        None
    }
}

/// A read, by its number.
#[derive(Clone, Copy)]
pub(crate) struct Request<'r>(pub(crate) &'r u32);

/// An answer, which must not be dropped under a lock.
#[derive(Debug)]
pub(crate) struct Answer(pub(crate) u32);

impl Drop for Answer {
    fn drop(&mut self) {
        assert_unlocked("an answer was dropped");
    }
}

#[derive(Debug)]
pub(crate) enum SharedAnswer {
    Answered(Result<Answer>),
    Again,
}

pub(crate) struct Handle;

impl Handle {
    pub(crate) fn may_share(&self, _: &Lease) -> bool {
        true
    }
}

/// A waker that no lane may use or drop under a lock. Each poll gets one of its own.
struct Bell(Arc<Notify>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        assert_unlocked("a task was woken");
        self.0.notify();
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        assert_unlocked("a waker was dropped");
    }
}

/// Drives a future. A wake-up that is lost is a deadlock, which loom reports.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let (mut future, notify) = (std::pin::pin!(future), Arc::new(Notify::new()));
    loop {
        let waker = Waker::from(Arc::new(Bell(Arc::clone(&notify))));
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => notify.wait(),
        }
    }
}

/// Polls a future so many times, and drops it.
pub(crate) fn poll_and_drop<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    (0..polls).find_map(|_| poll_once(&mut future))
}

pub(crate) fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    let waker = Waker::from(Arc::new(Bell(Arc::new(Notify::new()))));
    match Pin::new(future).poll(&mut Context::from_waker(&waker)) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// An executor with a thread for each task, and a clock that the model moves. Its own state is in plain locks: it is a witness,
/// and nothing waits under them.
#[derive(Default)]
pub(crate) struct Executor {
    passed: AtomicU64,
    sleepers: Mutex<Vec<Waker>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    spawning: Spawning,
    kept: Mutex<Option<Task>>,
}

/// What the executor does with a task.
#[derive(Clone, Copy, Default)]
pub(crate) enum Spawning {
    #[default]
    Runs,
    /// The model takes it.
    Keeps,
    /// It shuts down.
    Drops,
}

impl Executor {
    pub(crate) fn new(spawning: Spawning) -> Self {
        Executor {
            spawning,
            ..Executor::default()
        }
    }

    pub(crate) fn take_kept(&self) -> Task {
        self.kept.lock().unwrap().take().unwrap()
    }

    pub(crate) fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_millis()).unwrap();
        self.passed.fetch_add(by, Ordering::SeqCst);
        let woken = std::mem::take(&mut *self.sleepers.lock().unwrap());
        woken.into_iter().for_each(Waker::wake);
    }

    /// Waits until all tasks have ended.
    pub(crate) fn join(&self) {
        loop {
            let Some(task) = self.tasks.lock().unwrap().pop() else {
                return;
            };
            task.join().unwrap();
        }
    }
}

fn beginning() -> Instant {
    static NOW: OnceLock<Instant> = OnceLock::new();
    #[allow(clippy::disallowed_methods, reason = "all times are relative to it")]
    *NOW.get_or_init(Instant::now)
}

/// The executor as the lanes see it.
pub(crate) struct Spawner(pub(crate) Arc<Executor>);

impl Runtime for Spawner {
    fn now(&self) -> Instant {
        beginning() + Duration::from_millis(self.0.passed.load(Ordering::SeqCst))
    }

    fn sleep(&self, until: Instant) -> Task {
        let executor = Arc::clone(&self.0);
        Box::pin(std::future::poll_fn(move |cx| {
            if Spawner(Arc::clone(&executor)).now() >= until {
                return Poll::Ready(());
            }
            executor.sleepers.lock().unwrap().push(cx.waker().clone());
            Poll::Pending
        }))
    }

    fn spawn(&self, task: Task) {
        assert_unlocked("a task was spawned");
        match self.0.spawning {
            Spawning::Runs => {
                let task = loom::thread::spawn(move || block_on(task));
                self.0.tasks.lock().unwrap().push(task);
            }
            Spawning::Keeps => *self.0.kept.lock().unwrap() = Some(task),
            Spawning::Drops => drop(task),
        }
    }
}

/// What the server does.
#[derive(Default)]
pub(crate) struct Server {
    /// How many reads it answers; all if `None`.
    answers: Option<usize>,
    /// The connection is lost.
    is_lost: bool,
    /// The drainer, which waits for an answer.
    reader: Option<Waker>,
    /// Its former wakers: the driver runs under the lane's lock, and so drops them there.
    dropped: Vec<Waker>,
}

/// A pool of one connection with a queue.
#[derive(Default)]
pub(crate) struct Pool {
    state: loom::sync::Mutex<PoolState>,
    server: loom::sync::Mutex<Server>,
    /// The read after which the session has changed.
    changes: Option<u32>,
    leases: AtomicUsize,
}

#[derive(Default)]
struct PoolState {
    is_out: bool,
    waiters: VecDeque<(usize, Waker)>,
    /// The waiter that gets the connection.
    granted: Option<usize>,
    tickets: usize,
}

impl Pool {
    pub(crate) fn of_a_session_changed_by(read: u32) -> Self {
        Pool {
            changes: Some(read),
            ..Pool::default()
        }
    }

    pub(crate) fn lease(self: &Arc<Self>) -> Option<Lease> {
        let mut state = self.state.lock().unwrap();
        let is_free = !state.is_out && state.granted.is_none();
        is_free.then(|| {
            state.is_out = true;
            self.take()
        })
    }

    fn take(self: &Arc<Self>) -> Lease {
        self.leases.fetch_add(1, Ordering::SeqCst);
        Lease {
            pool: Arc::clone(self),
            sent: VecDeque::new(),
            is_broken: false,
            has_changed: false,
        }
    }

    fn give_back(&self) {
        let before = self.leases.fetch_sub(1, Ordering::SeqCst);
        assert_eq!(before, 1, "the connection was given back twice");
        let mut state = self.state.lock().unwrap();
        assert!(state.is_out && state.granted.is_none());
        state.is_out = false;
        let woken = state.serve();
        drop(state);
        if let Some(waker) = woken {
            waker.wake();
        }
    }

    pub(crate) fn acquire(self: &Arc<Self>) -> Acquire {
        Acquire {
            pool: Arc::clone(self),
            ticket: None,
        }
    }

    pub(crate) fn waiters(&self) -> usize {
        self.state.lock().unwrap().waiters.len()
    }

    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state.lock().unwrap();
        !state.is_out && state.granted.is_none() && state.waiters.is_empty()
    }

    pub(crate) fn hold_answers(&self) {
        self.server.lock().unwrap().answers = Some(0);
    }

    pub(crate) fn answer(&self) {
        self.change(|server| server.answers = None);
    }

    pub(crate) fn answer_only(&self, reads: usize) {
        self.change(|server| server.answers = Some(reads));
    }

    pub(crate) fn lose(&self) {
        self.change(|server| server.is_lost = true);
    }

    fn change(&self, change: impl FnOnce(&mut Server)) {
        let mut server = self.server.lock().unwrap();
        change(&mut server);
        let reader = server.reader.take();
        let dropped = std::mem::take(&mut server.dropped);
        drop((server, dropped));
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl PoolState {
    fn serve(&mut self) -> Option<Waker> {
        let (ticket, waker) = self.waiters.pop_front()?;
        self.granted = Some(ticket);
        Some(waker)
    }
}

/// Waits for the connection.
pub(crate) struct Acquire {
    pool: Arc<Pool>,
    ticket: Option<usize>,
}

impl Future for Acquire {
    type Output = Lease;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Lease> {
        let pool = Arc::clone(&self.pool);
        let mut state = pool.state.lock().unwrap();
        let is_next = match self.ticket {
            Some(ticket) => state.granted == Some(ticket),
            None => !state.is_out && state.granted.is_none(),
        };
        if is_next {
            state.granted = None;
            state.is_out = true;
            self.ticket = None;
            return Poll::Ready(pool.take());
        }
        let ticket = *self.ticket.get_or_insert_with(|| {
            state.tickets += 1;
            state.tickets
        });
        let waker = cx.waker().clone();
        match state.waiters.iter_mut().find(|(it, _)| *it == ticket) {
            Some((_, old)) => *old = waker,
            None => state.waiters.push_back((ticket, waker)),
        }
        Poll::Pending
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let mut state = self.pool.state.lock().unwrap();
        state.waiters.retain(|(it, _)| *it != ticket);
        let woken = match state.granted == Some(ticket) {
            true => {
                state.granted = None;
                state.serve()
            }
            false => None,
        };
        drop(state);
        if let Some(waker) = woken {
            waker.wake();
        }
    }
}

/// The connection. Dropped, it goes back to the pool, which settles what is in flight.
pub(crate) struct Lease {
    pool: Arc<Pool>,
    sent: VecDeque<u32>,
    is_broken: bool,
    has_changed: bool,
}

impl Lease {
    pub(crate) fn push_shared(&mut self, read: &Request<'_>, _: &Location<'_>) -> Result<bool> {
        assert!(!self.is_broken && !self.has_changed);
        self.sent.push_back(*read.0);
        Ok(true)
    }

    pub(crate) fn poll_shared(&mut self, cx: &Context<'_>) -> Poll<SharedAnswer> {
        let mut server = self.pool.server.lock().unwrap();
        if server.is_lost {
            self.is_broken = true;
            self.sent.clear();
            return Poll::Ready(SharedAnswer::Answered(Err(Error)));
        }
        if server.answers == Some(0) {
            let old = server.reader.replace(cx.waker().clone());
            server.dropped.extend(old);
            return Poll::Pending;
        }
        server.answers = server.answers.map(|left| left - 1);
        let read = self.sent.pop_front().unwrap();
        self.has_changed |= self.pool.changes == Some(read);
        Poll::Ready(SharedAnswer::Answered(Ok(Answer(read))))
    }

    pub(crate) fn note_shared(&self) -> bool {
        self.has_changed
    }

    pub(crate) fn end_shared(&self) {
        assert!(self.sent.is_empty(), "a read is in flight");
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
    }

    pub(crate) fn is_outdated(&self) -> bool {
        false
    }

    pub(crate) fn timings_shard(&self) -> usize {
        0
    }

    pub(crate) fn id(_: &Self) -> ResourceId {
        ResourceId(1)
    }

    pub(crate) fn is_wanted(lease: &Self, expected: usize) -> bool {
        lease.pool.waiters() > expected
    }

    pub(crate) fn discard(lease: Self) {
        drop(lease);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        assert_unlocked("a connection was given back");
        self.pool.give_back();
    }
}
