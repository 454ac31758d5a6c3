//! Every public async function, cancelled after 0, 1, 2, … polls until it
//! completes: afterwards the pool is whole, and nothing was lost or left over.
#![cfg(not(loom))]
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "tests")]

#[path = "it/support.rs"]
#[allow(dead_code, reason = "shared with the other tests")]
mod support;

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use cenote_pool::{FnManager, FnPool, Lease, OwnedLease, Pool};

use self::support::{Log, Manual, Oops, at_most, hand, now};

/// Waits for two polls, as anything that talks to a server would.
async fn pause() {
    for _ in 0..2 {
        let mut waited = false;
        std::future::poll_fn(|cx| {
            if waited {
                return Poll::Ready(());
            }
            waited = true;
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}

/// A pool all of whose hooks wait.
struct World {
    pool: FnPool<usize, Oops>,
    manual: Manual,
    log: Log,
}

fn builder(log: &Log, manual: &Manual) -> cenote_pool::Builder<FnManager<usize, Oops>> {
    let (make, gone) = (log.clone(), log.clone());
    Pool::from_fn(move || {
        let log = make.clone();
        async move {
            pause().await;
            let number = log.make();
            pause().await;
            Ok(number)
        }
    })
    .destroy_async(move |number| {
        let log = gone.clone();
        async move {
            pause().await;
            log.destroy(number);
        }
    })
    .before_acquire_async(async |_: &mut usize| pause().await)
    .before_release_async(async |_: &mut usize| pause().await)
    .healthcheck_async(async |_: &mut usize| pause().await)
    .max(2)
    .runtime(manual.clone())
}

impl World {
    /// With so many idle resources.
    fn new(idle: usize) -> World {
        let (log, manual) = (Log::default(), Manual::new());
        let pool = builder(&log, &manual).build().unwrap();
        World { pool, manual, log }.warm(idle)
    }

    /// With one idle resource, which the acquire hook will refuse.
    fn refusing() -> World {
        let (log, manual) = (Log::default(), Manual::new());
        let pool = builder(&log, &manual)
            .before_acquire_async(async |number: &mut usize| {
                pause().await;
                *number != 1
            })
            .build()
            .unwrap();
        World { pool, manual, log }.warm(1)
    }

    fn warm(self, idle: usize) -> World {
        let world = self;
        let leases: Vec<_> = (0..idle).map(|_| world.lease()).collect();
        drop(leases);
        world.rest();
        world
    }

    /// Runs an acquire to its end.
    fn lease(&self) -> OwnedLease<FnManager<usize, Oops>> {
        let mut acquire = hand(self.pool.acquire_owned());
        loop {
            if let Poll::Ready(lease) = acquire.poll() {
                return lease.unwrap();
            }
            self.manual.run();
        }
    }

    /// Lets all background work come to its end.
    fn rest(&self) {
        self.manual.advance(Duration::from_secs(1));
    }

    /// Nothing is missing and nothing is left over.
    fn assert_whole(&self) {
        self.rest();
        let status = self.pool.status();
        assert_eq!(status.total, status.idle, "{status}");
        assert_eq!((status.waiting, status.reserved), (0, 0), "{status}");
        assert_eq!(self.pool.holders().len(), 0);
        let counters = self.pool.counters();
        let total = u64::try_from(status.total).unwrap();
        assert_eq!(counters.created, counters.destroyed + total);
        if !self.pool.is_closed() {
            let leases = [self.lease(), self.lease()];
            assert_eq!(self.pool.status().active, 2);
            drop(leases);
            self.rest();
        }
    }
}

type Act<'w> = Pin<Box<dyn Future<Output = ()> + 'w>>;

/// Cancels what `act` starts after every number of polls, up to its end.
#[track_caller]
fn cancel_after_every_poll(
    idle: usize,
    act: impl for<'w> Fn(&'w World) -> Act<'w>,
    after: impl Fn(&World),
) -> usize {
    cancel_after_every_poll_in(|| World::new(idle), act, after)
}

#[track_caller]
fn cancel_after_every_poll_in(
    world: impl Fn() -> World,
    act: impl for<'w> Fn(&'w World) -> Act<'w>,
    after: impl Fn(&World),
) -> usize {
    for polls in 0..100 {
        let world = world();
        let mut future = hand(act(&world));
        let mut done = false;
        for _ in 0..polls {
            done = future.poll().is_ready();
            if done {
                break;
            }
            world.manual.run();
        }
        drop(future);
        after(&world);
        world.assert_whole();
        if done {
            return polls;
        }
    }
    panic!("never completes");
}

#[test]
fn acquire_that_creates_may_be_cancelled_at_any_poll() {
    let polls = cancel_after_every_poll(
        0,
        |world| Box::pin(async { drop(world.pool.acquire().await.unwrap()) }),
        |world| {
            world.rest();
            // Once begun, the creation goes on and its result is kept.
            assert_eq!(world.pool.status().idle, world.log.made());
        },
    );
    assert!(polls >= 2, "it waits");
}

#[test]
fn acquire_with_a_slow_hook_may_be_cancelled_at_any_poll() {
    let polls = cancel_after_every_poll(
        1,
        |world| Box::pin(async { drop(world.pool.acquire().await.unwrap()) }),
        |world| world.rest(),
    );
    assert!(polls >= 3, "the hook waits twice");
}

#[test]
fn acquire_within_a_time_may_be_cancelled_at_any_poll() {
    let time = Duration::from_secs(60);
    cancel_after_every_poll(
        1,
        |world| {
            Box::pin(async move { drop(world.pool.acquire_with(at_most(time)).await.unwrap()) })
        },
        |_| {},
    );
}

#[test]
fn acquire_owned_may_be_cancelled_at_any_poll() {
    cancel_after_every_poll(
        0,
        |world| Box::pin(async { drop(world.pool.acquire_owned().await.unwrap()) }),
        |_| {},
    );
}

#[test]
fn queued_acquire_of_a_returned_resource_may_cancel_at_any_poll() {
    cancel_after_every_poll(
        0,
        |world| {
            Box::pin(async {
                let held = [
                    world.pool.acquire_owned().await.unwrap(),
                    world.pool.acquire_owned().await.unwrap(),
                ];
                let mut waiting = Box::pin(world.pool.acquire());
                let polled =
                    std::future::poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx))).await;
                assert!(polled.is_pending());
                let [one, two] = held;
                drop(one);
                drop(waiting.await.unwrap());
                drop(two);
            })
        },
        |_| {},
    );
}

#[test]
fn try_acquire_that_creates_may_be_cancelled_at_any_poll() {
    cancel_after_every_poll(
        0,
        |world| Box::pin(async { drop(world.pool.try_acquire().await.unwrap().unwrap()) }),
        |_| {},
    );
}

#[test]
fn try_acquire_of_an_idle_resource_may_be_cancelled_at_any_poll() {
    cancel_after_every_poll(
        2,
        |world| Box::pin(async { drop(world.pool.try_acquire().await.unwrap().unwrap()) }),
        |_| {},
    );
}

#[test]
fn acquire_of_a_refused_resource_may_be_cancelled_at_any_poll() {
    let polls = cancel_after_every_poll_in(
        World::refusing,
        |world| Box::pin(async { drop(world.pool.acquire().await.unwrap()) }),
        |_| {},
    );
    assert!(polls >= 4, "it checks, then creates");
}

#[test]
fn try_acquire_of_a_refused_resource_may_cancel_at_any_poll() {
    let polls = cancel_after_every_poll_in(
        World::refusing,
        |world| Box::pin(async { drop(world.pool.try_acquire().await.unwrap().unwrap()) }),
        |world| {
            world.rest();
            // Its destructor runs to the end, with or without a waiter.
            let destroyed = world.pool.counters().destroyed;
            assert_eq!(destroyed, world.log.gone().len() as u64);
        },
    );
    assert!(polls >= 6, "it checks, destroys, then creates");
}

#[test]
fn release_of_a_lease_may_be_cancelled_at_any_poll() {
    let polls = cancel_after_every_poll(
        1,
        |world| {
            let lease = world.lease();
            Box::pin(OwnedLease::release(lease))
        },
        |_| {},
    );
    assert!(polls >= 3, "its async half waits twice");
}

#[test]
fn release_of_a_borrowed_lease_may_be_cancelled_at_any_poll() {
    cancel_after_every_poll(
        1,
        |world| {
            Box::pin(async {
                let lease = world.pool.acquire().await.unwrap();
                Lease::release(lease).await;
            })
        },
        |_| {},
    );
}

#[test]
fn close_with_slow_destructors_may_be_cancelled_at_any_poll() {
    let polls = cancel_after_every_poll(
        2,
        |world| Box::pin(async { world.pool.close().await.unwrap() }),
        |world| {
            world.rest();
            if world.pool.is_closed() {
                // Those it had not come to are destroyed in the background; the
                // one it was at, if it was cut off, was dropped.
                assert_eq!(world.pool.status().total, 0);
                assert!(!world.log.gone().is_empty());
            }
        },
    );
    assert!(polls >= 3, "its destructors wait");
}

#[test]
fn close_and_drain_with_a_lease_out_may_cancel_at_any_poll() {
    cancel_after_every_poll(
        2,
        |world| {
            let lease = world.lease();
            Box::pin(async move {
                let drain = world.pool.close_and_drain(Duration::from_secs(60));
                let mut drain = Box::pin(drain);
                let mut lease = Some(lease);
                std::future::poll_fn(|cx| {
                    let polled = drain.as_mut().poll(cx);
                    lease.take();
                    polled
                })
                .await
                .unwrap();
            })
        },
        |_| {},
    );
}

#[test]
fn closed_may_be_cancelled_at_any_poll() {
    cancel_after_every_poll(
        1,
        |world| {
            Box::pin(async {
                let mut closed = Box::pin(world.pool.closed());
                let polled = std::future::poll_fn(|cx| Poll::Ready(closed.as_mut().poll(cx))).await;
                assert!(polled.is_pending());
                world.pool.close().await.unwrap();
                closed.await;
            })
        },
        |_| {},
    );
}

#[test]
fn events_next_may_be_cancelled_at_any_poll() {
    cancel_after_every_poll(
        1,
        |world| {
            Box::pin(async {
                let mut events = world.pool.events();
                let mut next = Box::pin(events.next());
                let polled = std::future::poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx))).await;
                assert!(polled.is_pending());
                drop(world.pool.acquire().await.unwrap());
                next.await.unwrap();
            })
        },
        |_| {},
    );
}

#[test]
fn open_with_resources_to_make_may_be_cancelled_at_any_poll() {
    for polls in 0..100 {
        let (log, manual) = (Log::default(), Manual::new());
        let mut open = hand(builder(&log, &manual).min(2).open());
        let mut opened = None;
        for _ in 0..polls {
            if let Poll::Ready(pool) = open.poll() {
                opened = Some(pool.unwrap());
                break;
            }
            manual.run();
        }
        drop(open);
        if let Some(pool) = opened {
            assert_eq!((pool.status().idle, log.made()), (2, 2));
            assert!(polls >= 5, "both creations wait");
            now(async { drop(pool) });
            return;
        }
        manual.advance(Duration::from_secs(1));
        // What had been made before the cancel is destroyed; a number that was
        // drawn by a creation cut off half-way never became a resource.
        assert!(log.made() - log.gone().len() <= 1);
    }
    panic!("never opens");
}
