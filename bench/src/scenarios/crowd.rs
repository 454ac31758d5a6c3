//! Many tasks on few resources, each held across a yield, on two worker
//! threads: every task waits nearly all the time.
//!
//! Every measurement is two passes: one without a clock, for the time of a
//! checkout, and one that times every wait.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use tokio::task::yield_now;

use super::{GRACE, end, runtime};
use crate::pools::{self, Subject};
use crate::stats::{Sample, Waits};

/// What the crowd does.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub tasks: usize,
    pub max: usize,
    /// Every other acquire is dropped after one poll if it is not ready then.
    pub cancel_half: bool,
}

pub fn run<P: Subject>(load: Load, time: Duration) -> Sample {
    let Some(untimed) = pass::<P, false>(load, time) else {
        return Sample::hung();
    };
    let Some(timed) = pass::<P, true>(load, time) else {
        return Sample::hung();
    };
    Sample {
        waits: Waits::of(timed.waits),
        starved: untimed.starved.max(timed.starved),
        ..Sample::new(untimed.wall, untimed.checkouts)
    }
}

/// What all tasks of a pass did together.
#[derive(Default)]
struct Pass {
    wall: Duration,
    checkouts: u64,
    waits: Vec<u64>,
    starved: usize,
}

/// What one task did.
struct Turn {
    checkouts: u64,
    /// In ns.
    waits: Vec<u64>,
    /// This task was never served while the others were.
    starved: bool,
}

/// `None` if it hangs.
fn pass<P: Subject, const TIMED: bool>(load: Load, time: Duration) -> Option<Pass> {
    let runtime = runtime(2);
    let stop = Arc::new(AtomicBool::new(false));
    let (done, result) = mpsc::channel();
    let stopped = Arc::clone(&stop);
    runtime.spawn(async move {
        let pool = pools::open::<P>(load.max).await;
        let begin = Instant::now();
        let tasks: Vec<_> = (0..load.tasks)
            .map(|_| tokio::spawn(turn::<P, TIMED>(pool, load, Arc::clone(&stopped))))
            .collect();
        let mut turns = Vec::with_capacity(load.tasks);
        for task in tasks {
            turns.push(task.await.expect("a task that does not panic"));
        }
        let wall = begin.elapsed();
        pool.close().await;
        let mut pass = Pass {
            wall,
            ..Pass::default()
        };
        for turn in turns {
            pass.checkouts += turn.checkouts;
            pass.waits.extend(turn.waits);
            pass.starved += usize::from(turn.starved);
        }
        let _ = done.send(pass);
    });
    thread::sleep(time);
    stop.store(true, Ordering::Relaxed);
    // On a plain thread, because the runtime may hang.
    let pass = result.recv_timeout(GRACE);
    end(runtime, pass.is_err());
    pass.ok()
}

async fn turn<P: Subject, const TIMED: bool>(
    pool: &'static P,
    load: Load,
    stop: Arc<AtomicBool>,
) -> Turn {
    let mut turn = Turn {
        checkouts: 0,
        waits: Vec::new(),
        starved: false,
    };
    let mut patient = true;
    while !stop.load(Ordering::Relaxed) {
        if load.cancel_half {
            patient = !patient;
        }
        let begin = TIMED.then(Instant::now);
        let lease = if patient {
            Some(pool.acquire().await)
        } else {
            once(pool.acquire()).await
        };
        // A cancelled wait does not count.
        let Some(lease) = lease else { continue };
        if let Some(begin) = begin {
            turn.waits
                .push(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
        if turn.checkouts == 0 && stop.load(Ordering::Relaxed) {
            turn.starved = true;
        }
        let mut lease = lease.expect("a resource");
        P::touch(&mut lease);
        yield_now().await;
        drop(lease);
        turn.checkouts += 1;
    }
    turn
}

/// Polls a future once and drops it.
async fn once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| {
        Poll::Ready(match future.as_mut().poll(cx) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}
