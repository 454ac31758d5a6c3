//! More of what the tests share: gates, tasks in a known order, and a few short
//! names.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use cenote_pool::{Builder, FnManager, FnPool, Manager, Pool};

pub use crate::support::*;

/// A gate at which futures wait until it opens.
#[derive(Clone, Default)]
pub struct Gate {
    shared: Arc<Mutex<GateState>>,
}

#[derive(Default)]
struct GateState {
    /// How many may still pass; `None` if all may.
    tickets: Option<usize>,
    open: bool,
    waiting: Vec<Waker>,
    arrived: usize,
}

impl Gate {
    /// A closed one.
    pub fn new() -> Self {
        Gate::default()
    }

    /// Waits until the gate is open or has a ticket left.
    pub fn pass(&self) -> impl Future<Output = ()> + Send + use<> {
        let shared = Arc::clone(&self.shared);
        let mut counted = false;
        std::future::poll_fn(move |cx| {
            let mut state = shared.lock().unwrap();
            if !std::mem::replace(&mut counted, true) {
                state.arrived += 1;
            }
            if state.open {
                return Poll::Ready(());
            }
            if let Some(tickets) = state.tickets.filter(|&tickets| tickets > 0) {
                state.tickets = Some(tickets - 1);
                return Poll::Ready(());
            }
            state.waiting.push(cx.waker().clone());
            Poll::Pending
        })
    }

    /// Opens the gate for all futures.
    pub fn open(&self) {
        let waiting = {
            let mut state = self.shared.lock().unwrap();
            state.open = true;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Lets one through.
    pub fn let_one_pass(&self) {
        let waiting = {
            let mut state = self.shared.lock().unwrap();
            state.tickets = Some(state.tickets.unwrap_or(0) + 1);
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Returns how many futures have reached the gate.
    pub fn arrived(&self) -> usize {
        self.shared.lock().unwrap().arrived
    }
}

/// Yields once.
pub fn yield_now() -> impl Future<Output = ()> + Send {
    let mut yielded = false;
    std::future::poll_fn(move |cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
}

/// Tasks run by hand on one thread, in the order in which they were woken, or in
/// one that a seed decides.
#[derive(Default)]
pub struct Crew<'a> {
    tasks: Vec<Option<Pin<Box<dyn Future<Output = ()> + 'a>>>>,
    ready: Arc<Mutex<VecDeque<usize>>>,
}

struct CrewWaker {
    index: usize,
    ready: Arc<Mutex<VecDeque<usize>>>,
}

impl Wake for CrewWaker {
    fn wake(self: Arc<Self>) {
        let mut ready = self.ready.lock().unwrap();
        if !ready.contains(&self.index) {
            ready.push_back(self.index);
        }
    }
}

impl<'a> Crew<'a> {
    pub fn new() -> Self {
        Crew::default()
    }

    /// Adds a task, which is ready to run.
    pub fn add(&mut self, task: impl Future<Output = ()> + 'a) {
        self.ready.lock().unwrap().push_back(self.tasks.len());
        self.tasks.push(Some(Box::pin(task)));
    }

    /// How many tasks are not done.
    pub fn left(&self) -> usize {
        self.tasks.iter().flatten().count()
    }

    /// Runs what is ready until nothing is, in the order of waking.
    pub fn run(&mut self) {
        self.run_picking(|_| 0);
    }

    /// Runs everything to its end in a random order that the seed decides. The
    /// clock moves when nothing else can.
    #[track_caller]
    pub fn run_shuffled(&mut self, mut seed: u64, manual: &Manual) {
        seed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        for _ in 0..100_000 {
            self.run_picking(|ready| {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                usize::try_from(seed % u64::try_from(ready).unwrap()).unwrap()
            });
            if self.left() == 0 {
                return;
            }
            manual.advance_millis(1);
        }
        panic!("{} tasks are stuck", self.left());
    }

    fn run_picking(&mut self, mut pick: impl FnMut(usize) -> usize) {
        loop {
            let index = {
                let mut ready = self.ready.lock().unwrap();
                if ready.is_empty() {
                    return;
                }
                let at = pick(ready.len());
                ready.remove(at).unwrap()
            };
            let Some(task) = self.tasks[index].as_mut() else {
                continue;
            };
            let waker = Waker::from(Arc::new(CrewWaker {
                index,
                ready: Arc::clone(&self.ready),
            }));
            if task
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_ready()
            {
                self.tasks[index] = None;
            }
        }
    }
}

/// A builder whose resources are the numbers 1, 2, 3 …, each made when the gate
/// lets it through.
pub fn gated_numbers(log: &Log, manual: &Manual, gate: &Gate) -> Builder<FnManager<usize, Oops>> {
    let (make, gate) = (log.clone(), gate.clone());
    numbers(log, manual).create(move || {
        let (make, pass) = (make.clone(), gate.pass());
        async move {
            pass.await;
            Ok(make.make())
        }
    })
}

/// What a status says, as `(total, idle, active)`.
pub fn counts<M: Manager>(pool: &Pool<M>) -> (usize, usize, usize) {
    let status = pool.status();
    assert_eq!(status.total, status.idle + status.active + status.creating);
    (status.total, status.idle, status.active)
}

/// A short way to write a duration.
pub fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Takes every place, which shows that none was lost, and nothing more.
#[track_caller]
pub fn all_places_are_there(pool: &FnPool<usize, Oops>, manual: &Manual) {
    let max = pool.status().max;
    let leases: Vec<_> = (0..max)
        .map(|_| hand(pool.acquire()).waits_for(manual).unwrap())
        .collect();
    assert_eq!(counts(pool), (max, 0, max));
    assert!(now(pool.try_acquire()).unwrap().is_none());
    drop(leases);
}

/// Runs this on a thread of its own, so that a deadlock fails the test instead of
/// hanging it. The limit is only there for that.
#[track_caller]
pub fn must_end<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = std::sync::mpsc::channel();
    let worker = std::thread::spawn(move || {
        // After the time limit there is no receiver.
        let _ = send.send(work());
    });
    match receive.recv_timeout(Duration::from_secs(10)) {
        Ok(output) => output,
        Err(RecvTimeoutError::Timeout) => panic!("it does not end"),
        // It panicked: that is what the test fails with.
        Err(RecvTimeoutError::Disconnected) => match worker.join() {
            Ok(()) => unreachable!("it has sent something then"),
            Err(panic) => std::panic::resume_unwind(panic),
        },
    }
}
