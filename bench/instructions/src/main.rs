//! Makes a number of checkouts of one case and nothing else, to count instructions
//! under callgrind. Futures are polled by hand, because the timing of a runtime
//! would make the counts vary.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::process::ExitCode;
use std::task::{Context, Poll, Waker};

use cenote::Db;
use cenote_pool::{Info, Manager, Pool, ThreadRuntime, Verdict};

#[path = "../../layer/src/null.rs"]
mod null;

const CASES: &str = "one-borrowed one-owned one-hooks queued db-call deadpool-one deadpool-queued";

/// The number of waiters in the cases with a queue.
const QUEUE: usize = 8;

/// The manager of case `N`. With one type for all, what the compiler inlines in one
/// case would depend on the others.
struct Plain<const CASE: usize>;

impl<const CASE: usize> Manager for Plain<CASE> {
    type Resource = u64;
    type Error = Infallible;

    async fn create(&self) -> Result<u64, Infallible> {
        Ok(0)
    }
}

struct Hooked;

impl Manager for Hooked {
    type Resource = u64;
    type Error = Infallible;

    async fn create(&self) -> Result<u64, Infallible> {
        Ok(0)
    }

    async fn destroy(&self, resource: u64) -> Result<(), Infallible> {
        black_box(resource);
        Ok(())
    }

    async fn healthcheck(&self, resource: &mut u64, _: Info<'_>) -> Result<bool, Infallible> {
        Ok(black_box(*resource) < u64::MAX)
    }

    async fn before_acquire(&self, resource: &mut u64, _: Info<'_>) -> Result<bool, Infallible> {
        Ok(black_box(*resource) < u64::MAX)
    }

    fn before_release(&self, resource: &mut u64, _: Info<'_>) -> Verdict {
        black_box(*resource);
        Verdict::Keep
    }

    async fn recycle(&self, resource: &mut u64, _: Info<'_>) -> Result<bool, Infallible> {
        Ok(black_box(*resource) < u64::MAX)
    }
}

impl deadpool::managed::Manager for Plain<2> {
    type Type = u64;
    type Error = Infallible;

    async fn create(&self) -> Result<u64, Infallible> {
        Ok(0)
    }

    async fn recycle(
        &self,
        _: &mut u64,
        _: &deadpool::managed::Metrics,
    ) -> deadpool::managed::RecycleResult<Infallible> {
        Ok(())
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [case, count] = &words[..] else {
        return usage();
    };
    let Ok(count) = count.parse::<u64>() else {
        return usage();
    };
    match case.as_str() {
        "one-borrowed" => {
            let pool = Pool::builder(Plain::<0>).build().expect("valid");
            repeat(count, || use_it(&mut now(pool.acquire()).expect("idle")));
        }
        "one-owned" => {
            let pool = Pool::builder(Plain::<1>).build().expect("valid");
            repeat(count, || {
                use_it(&mut now(pool.acquire_owned()).expect("idle"))
            });
        }
        "one-hooks" => {
            let pool = Pool::builder(Hooked).build().expect("valid");
            repeat(count, || use_it(&mut now(pool.acquire()).expect("idle")));
        }
        "queued" => {
            let pool = Pool::builder(Plain::<3>).max(1).build().expect("valid");
            queue(count, || pool.acquire());
        }
        // A statement through `Db` on a driver that answers at once: histograms, counters and spans
        // are compiled in, and nobody listens.
        "db-call" => {
            let db = Db::builder_with(null::Null, "null:").runtime(ThreadRuntime::new());
            let db = now(db.open()).expect("valid");
            repeat(count, || drop(black_box(now(db.exec("SELECT 1", ())).expect("it runs"))));
        }
        "deadpool-queued" => {
            let pool = deadpool::managed::Pool::<Plain<2>>::builder(Plain).max_size(1);
            let pool = pool.build().expect("valid");
            queue(count, || pool.get());
        }
        "deadpool-one" => {
            let pool = deadpool::managed::Pool::<Plain<2>>::builder(Plain).build();
            let pool = pool.expect("valid");
            repeat(count, || use_it(&mut now(pool.get()).expect("idle")));
        }
        _ => return usage(),
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("usage: instructions CASE CHECKOUTS\ncases: {CASES}");
    ExitCode::FAILURE
}

#[inline]
fn repeat(count: u64, mut checkout: impl FnMut()) {
    for _ in 0..count {
        checkout();
    }
}

/// A queue that is never empty: a released resource goes to the oldest waiter, which
/// uses and releases it, and a new waiter joins.
fn queue<L, E: std::fmt::Debug, F: Future<Output = Result<L, E>>>(
    count: u64,
    acquire: impl Fn() -> F,
) where
    L: std::ops::DerefMut<Target = u64>,
{
    let mut context = Context::from_waker(Waker::noop());
    let mut lease = now(acquire()).expect("idle");
    let mut waiting = VecDeque::new();
    for _ in 0..QUEUE {
        let mut waiter = Box::pin(acquire());
        assert!(waiter.as_mut().poll(&mut context).is_pending());
        waiting.push_back(waiter);
    }
    for _ in 0..count {
        use_it(&mut lease);
        drop(lease);
        let mut first = waiting.pop_front().expect("a queue");
        let Poll::Ready(served) = first.as_mut().poll(&mut context) else {
            panic!("the first in the queue is not served");
        };
        lease = served.expect("a resource");
        first.set(acquire());
        assert!(first.as_mut().poll(&mut context).is_pending());
        waiting.push_back(first);
    }
}

#[inline]
fn use_it(resource: &mut u64) {
    *resource = resource.wrapping_add(1);
    black_box(resource);
}

/// The output of a future that is ready at once.
#[inline]
fn now<F: Future>(future: F) -> F::Output {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits, though nobody else uses the pool"),
    }
}
