//! The queue of what is ready to run. Any thread may add to it and wakes the PHP thread.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::time::Duration;

/// Names an entry of the scheduler: a coroutine or a task. A number is not reused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Id {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// The ready queue.
pub(crate) struct RunQueue {
    ready: Mutex<VecDeque<(Arc<WakeState>, u64)>>,
    /// The PHP thread sleeps, or is about to.
    sleeping: AtomicBool,
    event: Mutex<Option<OwnedFd>>,
    /// Wakes the PHP thread while it drives the reactor.
    driver: Mutex<Option<Waker>>,
    /// Calls of PHP functions that threads of SQLite wait for.
    calls: Mutex<VecDeque<ForeignCall>>,
}

/// What another thread wants the PHP thread to run.
pub(crate) type ForeignCall = Box<dyn FnOnce() + Send>;

/// What a waker knows of its entry.
pub(crate) struct WakeState {
    pub(crate) id: Id,
    /// The entry is in the queue: it must not be there twice, or it would take two turns.
    queued: AtomicBool,
    /// The number of its place in the queue that counts.
    turn: AtomicU64,
    queue: Arc<RunQueue>,
}

impl WakeState {
    pub(crate) fn new(id: Id, queue: &Arc<RunQueue>) -> Arc<Self> {
        Arc::new(WakeState {
            id,
            queued: AtomicBool::new(false),
            turn: AtomicU64::new(0),
            queue: Arc::clone(queue),
        })
    }

    pub(crate) fn is_queued(&self) -> bool {
        // Relaxed: the PHP thread asks about what it has queued itself.
        self.queued.load(Ordering::Relaxed)
    }

    pub(crate) fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }

    /// Queues the entry behind everything else that is ready, even if it is in the queue already.
    pub(crate) fn requeue(self: &Arc<Self>) {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) + 1;
        self.queued.store(true, Ordering::Release);
        self.queue.lock().push_back((Arc::clone(self), turn));
    }
}

impl Wake for WakeState {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The lock of the queue orders everything else.
        if self.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        // Relaxed: only the PHP thread changes it, and a place that no longer counts is passed over.
        let turn = self.turn.load(Ordering::Relaxed);
        self.queue.lock().push_back((Arc::clone(self), turn));
        // SeqCst pairs with `sleep`: either it finds the entry, or this finds it asleep.
        if self.queue.sleeping.load(Ordering::SeqCst) {
            self.queue.ring();
        }
    }
}

impl RunQueue {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(RunQueue {
            ready: Mutex::new(VecDeque::new()),
            sleeping: AtomicBool::new(false),
            event: Mutex::new(None),
            driver: Mutex::new(None),
            calls: Mutex::new(VecDeque::new()),
        })
    }

    /// Sets what wakes the PHP thread while it drives the reactor.
    pub(crate) fn set_driver(&self, waker: Option<Waker>) {
        let is_driven = waker.is_some();
        *self.driver.lock().unwrap_or_else(PoisonError::into_inner) = waker;
        // SeqCst as in `sleep`.
        self.sleeping.store(is_driven, Ordering::SeqCst);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty() && !self.has_calls()
    }

    /// Has the PHP thread run something. Any thread may ask for it.
    pub(crate) fn push_call(&self, call: ForeignCall) {
        self.calls
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_back(call);
        // SeqCst pairs with `sleep` and `set_driver`.
        if self.sleeping.load(Ordering::SeqCst) {
            self.ring();
        }
    }

    pub(crate) fn pop_call(&self) -> Option<ForeignCall> {
        self.calls
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front()
    }

    pub(crate) fn has_calls(&self) -> bool {
        !self
            .calls
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(Arc<WakeState>, u64)>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the entry whose turn it is.
    pub(crate) fn pop(&self) -> Option<Id> {
        loop {
            let (state, turn) = self.lock().pop_front()?;
            if turn == state.turn.load(Ordering::Relaxed) {
                state.queued.store(false, Ordering::Release);
                return Some(state.id);
            }
        }
    }

    pub(crate) fn clear(&self) {
        for (state, _) in self.lock().drain(..) {
            state.queued.store(false, Ordering::Release);
        }
    }

    fn ring(&self) {
        let driver = self.driver.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(driver) = &*driver {
            return driver.wake_by_ref();
        }
        drop(driver);
        let event = self.event.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(event) = &*event {
            let one = 1u64.to_ne_bytes();
            // SAFETY: the descriptor is open, and the buffer has eight bytes. A full counter rings too.
            unsafe { libc::write(event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        }
    }

    /// Forgets the event of the parent process, which the child of a fork shares with it.
    pub(crate) fn forget_event(&self) {
        *self.event.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn event(&self) -> Option<RawFd> {
        let mut event = self.event.lock().unwrap_or_else(PoisonError::into_inner);
        if event.is_none() {
            // SAFETY: the call takes no pointers.
            let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
            if fd >= 0 {
                // SAFETY: the descriptor is new, so nobody else owns it.
                *event = Some(unsafe { OwnedFd::from_raw_fd(fd) });
            }
        }
        event.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Sleeps until another thread wakes an entry, a signal arrives or the time has passed. A signal that
    /// arrives just before ends the sleep as well: `is_interrupted` is asked with signals blocked.
    pub(crate) fn sleep(&self, limit: Option<Duration>, is_interrupted: impl Fn() -> bool) {
        self.sleeping.store(true, Ordering::SeqCst);
        if self.is_empty() {
            self.sleep_on_event(limit, is_interrupted);
        }
        self.sleeping.store(false, Ordering::SeqCst);
    }

    fn sleep_on_event(&self, limit: Option<Duration>, is_interrupted: impl Fn() -> bool) {
        let fd = self.event().unwrap_or(-1);
        let mut poll = libc::pollfd {
            // A negative descriptor is ignored: then only time and signals end the sleep.
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let limit = limit.map(|limit| libc::timespec {
            tv_sec: limit.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        });
        let limit = limit
            .as_ref()
            .map_or(std::ptr::null(), |limit| limit as *const _);
        // SAFETY: zeroes are a valid signal set, and all pointers are to locals.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            if !is_interrupted() {
                libc::ppoll(&mut poll, 1, limit, &before);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        }
        if poll.revents != 0 {
            let mut count = [0u8; 8];
            // SAFETY: the descriptor is open and does not block, and the buffer has eight bytes.
            unsafe { libc::read(fd, count.as_mut_ptr().cast(), count.len()) };
        }
    }
}
