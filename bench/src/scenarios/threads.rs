//! Threads that share a pool with more than enough resources, so that nobody
//! waits. Every thread has a Tokio runtime of its own, so that no task moves and
//! what a pool spawns runs on the thread that spawned it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::Barrier;

use super::one::checkout;
use super::{GRACE, end, runtime};
use crate::pools::{self, Subject};
use crate::stats::Sample;

/// Checkouts between two looks at the clock or the gate.
pub const BATCH: u64 = 128;
/// Checkouts of every thread before anything is measured.
pub const WARM_UP: u64 = 1000;

/// Starts and stops the threads of a run.
pub struct Gate {
    /// They start together. Waiting there is async, because some pools return a
    /// lease in a task of the thread that dropped it, which must go on meanwhile.
    start: Barrier,
    started: Sender<()>,
    shut: AtomicBool,
}

impl Gate {
    /// Waits until all threads are warm.
    pub async fn enter(&self) {
        self.start.wait().await;
        let _ = self.started.send(());
    }

    pub fn is_shut(&self) -> bool {
        self.shut.load(Ordering::Relaxed)
    }
}

/// What one thread did after the start.
pub struct Span {
    pub begin: Instant,
    pub end: Instant,
    pub count: u64,
}

pub fn run<P: Subject>(threads: usize, time: Duration) -> Sample {
    // Some pools spawn when they are opened, and expect that to outlive them.
    let home = runtime(1);
    let pool = home.block_on(pools::open::<P>(2 * threads));
    let sample = drive(threads, time, move |gate| {
        own_runtime().block_on(checkouts(pool, gate))
    });
    let stuck = sample.ns.is_none();
    if !stuck {
        // A pool with a leased resource would wait for it.
        let closed = async { tokio::time::timeout(GRACE, pool.close()).await };
        let _ = home.block_on(closed);
    }
    end(home, stuck);
    sample
}

/// The runtime of one thread.
pub fn own_runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime")
}

async fn checkouts<P: Subject>(pool: &'static P, gate: &Gate) -> Span {
    for _ in 0..WARM_UP {
        checkout(pool).await;
    }
    gate.enter().await;
    let begin = Instant::now();
    let mut count = 0;
    while !gate.is_shut() {
        for _ in 0..BATCH {
            checkout(pool).await;
        }
        count += BATCH;
    }
    Span {
        begin,
        end: Instant::now(),
        count,
    }
}

/// Runs the body on `threads` threads for the given time.
pub fn drive(
    threads: usize,
    time: Duration,
    body: impl Fn(&Gate) -> Span + Send + Sync + 'static,
) -> Sample {
    let (started, starts) = mpsc::channel();
    let (done, spans) = mpsc::channel();
    let gate = Arc::new(Gate {
        start: Barrier::new(threads),
        started,
        shut: AtomicBool::new(false),
    });
    let body = Arc::new(body);
    let handles: Vec<_> = (0..threads)
        .map(|_| {
            let (gate, body, done) = (Arc::clone(&gate), Arc::clone(&body), done.clone());
            thread::spawn(move || {
                let _ = done.send(body(&gate));
            })
        })
        .collect();
    // Hung threads cannot be stopped: they are leaked and reported.
    for _ in 0..threads {
        if starts.recv_timeout(GRACE).is_err() {
            gate.shut.store(true, Ordering::Relaxed);
            return Sample::hung();
        }
    }
    thread::sleep(time);
    gate.shut.store(true, Ordering::Relaxed);
    let mut all = Vec::new();
    for _ in 0..threads {
        match spans.recv_timeout(GRACE) {
            Ok(span) => all.push(span),
            Err(_) => return Sample::hung(),
        }
    }
    // The next measurement begins when the threads of this one have ended.
    for handle in handles {
        let _ = handle.join();
    }
    let begin = all.iter().map(|span| span.begin).min();
    let end = all.iter().map(|span| span.end).max();
    let (Some(begin), Some(end)) = (begin, end) else {
        return Sample::hung();
    };
    Sample::new(end - begin, all.iter().map(|span| span.count).sum())
}
