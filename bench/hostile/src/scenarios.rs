//! The scenarios. Each says in a few words how it ended.

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use tokio::runtime::{Builder, Runtime};

use crate::pools::{Lease, Setup, Subject, make};

/// Each scenario, and what the table calls it.
pub const ALL: [(&str, &str); 8] = [
    (
        "creation",
        "H1: the first `create` hangs, max 10; then 20 acquires, 2 s each",
    ),
    (
        "unpolled",
        "H2: one queued future is never polled again, max 1; then 20 acquires",
    ),
    ("crowd", "H2: three such futures, max 2; then 20 acquires"),
    (
        "stream",
        "H2: `buffer_unordered(2)` over uses of the pool, an acquire in the loop body, max 1",
    ),
    (
        "guard",
        "H5: 100 ms deadline, polled by `futures_lite`, nobody drives the Tokio runtime",
    ),
    ("dropped", "H5: the same after the runtime was dropped"),
    ("child", "H4: a pool made in the child of a fork"),
    ("inherited", "H4: a pool that the child inherits"),
];

pub fn run(scenario: &str, pool: &str) -> String {
    match scenario {
        "creation" => creation(pool),
        "unpolled" => unpolled(pool, 1, 1),
        "crowd" => unpolled(pool, 2, 3),
        "stream" => acquires_in_a_stream(pool),
        "guard" => outside(pool, false),
        "dropped" => outside(pool, true),
        "child" => {
            works(pool);
            in_child(|| works(pool))
        }
        "inherited" => inherited(pool),
        _ => panic!("no such scenario: {scenario}"),
    }
}

fn tokio() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_time().build().expect("it can be built")
}

const LONG: Duration = Duration::from_secs(60);

/// A number of acquires, one after the other; says how many were served, and how long the slowest one took.
async fn served(pool: &Arc<dyn Subject>, acquires: usize) -> String {
    let (mut count, mut slowest) = (0, Duration::ZERO);
    let begun = Instant::now();
    for _ in 0..acquires {
        let began = Instant::now();
        if pool.get().await.is_ok() {
            count += 1;
        }
        slowest = slowest.max(began.elapsed());
        if begun.elapsed() > Duration::from_secs(8) {
            break;
        }
    }
    match count {
        0 => format!(
            "**starves**: none served in {} s",
            begun.elapsed().as_secs()
        ),
        _ => format!("serves {count}, slowest {} ms", slowest.as_millis()),
    }
}

fn creation(pool: &str) -> String {
    tokio().block_on(async {
        let mut setup = Setup::new(10, Duration::from_secs(2));
        setup.hangs = 0..1;
        let pool = make(pool, setup);
        // The one whose creation hangs gives up early.
        let _ = tokio::time::timeout(Duration::from_millis(100), pool.get()).await;
        served(&pool, 20).await
    })
}

/// Futures that are queued and then not polled, as in a `select!` whose other arm runs for long.
fn unpolled(pool: &str, max: usize, futures: usize) -> String {
    tokio().block_on(async {
        let pool = make(pool, Setup::new(max, LONG));
        let mut leases: Vec<Lease> = Vec::new();
        for _ in 0..max {
            leases.push(pool.get().await.expect("there is room"));
        }
        let mut waiting: Vec<_> = (0..futures).map(|_| pool.get()).collect();
        for future in &mut waiting {
            let polled = future
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending());
        }
        drop(leases);
        let end = served(&pool, 20).await;
        drop(waiting);
        end
    })
}

fn acquires_in_a_stream(pool: &str) -> String {
    tokio().block_on(async {
        let pool = make(pool, Setup::new(1, LONG));
        let began = Instant::now();
        let uses = stream::iter(0..10).map(|_| async {
            let lease = pool.get().await;
            tokio::time::sleep(Duration::from_millis(5)).await;
            drop(lease);
        });
        let mut uses = std::pin::pin!(uses.buffer_unordered(2));
        while let Some(()) = uses.next().await {
            // By now the other acquire has the resource, and is not polled.
            drop(pool.get().await);
        }
        format!("ends after {} ms", began.elapsed().as_millis())
    })
}

/// A deadline where nobody drives the runtime that the pool knows.
fn outside(pool: &str, dropped: bool) -> String {
    let first = tokio();
    let pool = {
        let _guard = first.enter();
        make(pool, Setup::new(1, Duration::from_millis(100)))
    };
    let lease = first.block_on(pool.get());
    // The first deadline has started what the pool needs for deadlines.
    let _ = first.block_on(pool.get());
    let _guard;
    let first = match dropped {
        true => {
            drop(first);
            None
        }
        false => Some(first),
    };
    if let Some(first) = &first {
        _guard = first.enter();
    }
    let began = Instant::now();
    let late = futures_lite::future::block_on(pool.get());
    let end = match late {
        Ok(_) => "is served".to_owned(),
        Err(_) => format!("times out after {} ms", began.elapsed().as_millis()),
    };
    drop(lease);
    end
}

/// Runs a closure in a child process and returns its output. If the child hangs, so does its parent.
fn in_child(run: impl FnOnce() -> String) -> String {
    let mut ends = [0; 2];
    // SAFETY: there is room for two.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    // SAFETY: the child runs only what it is given, and ends without unwinding further.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: takes no memory. It ends a child whose parent was killed.
        unsafe { libc::alarm(15) };
        let said = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        let said = said.unwrap_or_else(|_| "**panics**".to_owned());
        // SAFETY: the text has so many bytes.
        unsafe { libc::write(ends[1], said.as_ptr().cast(), said.len()) };
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(0) };
    }
    // SAFETY: the parent does not write.
    unsafe { libc::close(ends[1]) };
    let mut said = vec![0; 1000];
    // SAFETY: there is so much room.
    let read = unsafe { libc::read(ends[0], said.as_mut_ptr().cast(), said.len()) };
    said.truncate(usize::try_from(read).unwrap_or(0));
    String::from_utf8_lossy(&said).into_owned()
}

/// A pool does its work on a runtime of its own.
fn works(pool: &str) -> String {
    tokio().block_on(async {
        let pool = make(pool, Setup::new(1, Duration::from_secs(1)));
        let lease = pool.get().await;
        let late = pool.get().await;
        drop(lease);
        match (late, pool.get().await) {
            (Err(_), Ok(_)) => "works".to_owned(),
            (_, Err(error)) => error,
            (Ok(_), _) => "**serves two from one place**".to_owned(),
        }
    })
}

fn inherited(pool: &str) -> String {
    let first = tokio();
    let pool = {
        let _guard = first.enter();
        make(pool, Setup::new(1, Duration::from_millis(100)))
    };
    drop(first.block_on(pool.get()));
    in_child(|| {
        let _guard = first.enter();
        match futures_lite::future::block_on(pool.get()) {
            Ok(_) => "**hands out the parent's connection**".to_owned(),
            Err(_) => "refuses, with an error that says why".to_owned(),
        }
    })
}
