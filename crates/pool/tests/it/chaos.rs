//! Many tasks in random order; facts that hold in every order. Each runs with
//! a number of seeds.

use std::cell::Cell;
use std::sync::Arc;

use cenote_pool::{BreakerState, FnPool};

use crate::breaker::Recorder;
use crate::tools::*;

const SEEDS: std::ops::RangeInclusive<u64> = 1..=20;

/// Opens a pool whose factory and acquire hook take a while.
fn busy_pool(log: &Log, manual: &Manual, min: usize, max: usize) -> FnPool<usize, Oops> {
    let make = log.clone();
    let builder = numbers(log, manual).create(move || {
        let make = make.clone();
        async move {
            yield_now().await;
            Ok(make.make())
        }
    });
    let builder = builder.before_acquire_async(async |_: &mut usize| yield_now().await);
    let mut open = hand(builder.min(min).max(max).open());
    loop {
        if let std::task::Poll::Ready(pool) = open.poll() {
            return pool.unwrap();
        }
    }
}

/// Acquires and releases, `rounds` times, giving way in between.
async fn work(pool: &FnPool<usize, Oops>, rounds: usize, acquired: &Cell<usize>) {
    for _ in 0..rounds {
        let lease = pool.acquire().await.unwrap();
        acquired.set(acquired.get() + 1);
        yield_now().await;
        drop(lease);
        yield_now().await;
    }
}

/// Looks at the numbers, which must add up.
async fn inspect(pool: &FnPool<usize, Oops>, max: usize) {
    for _ in 0..20 {
        let (total, ..) = counts(pool);
        assert!(total <= max);
        let status = pool.status();
        assert!(status.reserved <= status.idle);
        yield_now().await;
    }
}

/// F-001, F-002, F-003
#[test]
fn every_acquire_is_balanced_whatever_the_size() {
    for seed in SEEDS {
        for (min, max, tasks) in [(0, 10, 1), (0, 4, 5), (2, 8, 6)] {
            let (log, manual, acquired) = (Log::default(), Manual::new(), Cell::new(0));
            let pool = busy_pool(&log, &manual, min, max);
            let mut crew = Crew::new();
            for _ in 0..tasks {
                crew.add(work(&pool, 1, &acquired));
            }
            crew.add(inspect(&pool, max));
            crew.run_shuffled(seed, &manual);
            assert_eq!(acquired.get(), tasks);
            assert_eq!(pool.counters().acquired, acquired.get() as u64);
            assert_eq!(pool.status().active, 0);
        }
    }
}

/// F-001, F-002, F-004
#[test]
fn tasks_that_contend_for_two_resources_all_get_their_turns() {
    for seed in SEEDS {
        let (log, manual, acquired) = (Log::default(), Manual::new(), Cell::new(0));
        let pool = busy_pool(&log, &manual, 0, 2);
        let mut crew = Crew::new();
        for _ in 0..4 {
            crew.add(work(&pool, 3, &acquired));
        }
        crew.add(inspect(&pool, 2));
        crew.run_shuffled(seed, &manual);
        assert_eq!(acquired.get(), 12);
        let status = pool.status();
        assert_eq!((status.active, status.waiting, status.reserved), (0, 0, 0));
        assert!(log.made() <= 2);
    }
}

/// F-005
#[test]
fn try_acquire_gets_something_or_nothing_and_is_never_queued() {
    for seed in SEEDS {
        let (log, manual) = (Log::default(), Manual::new());
        let pool = busy_pool(&log, &manual, 0, 4);
        let (got, none) = (Cell::new(0), Cell::new(0));
        let mut crew = Crew::new();
        for _ in 0..2 {
            crew.add(async {
                match pool.try_acquire().await.unwrap() {
                    Some(_lease) => got.set(got.get() + 1),
                    None => none.set(none.get() + 1),
                }
            });
            crew.add(async {
                for _ in 0..10 {
                    assert_eq!(pool.status().waiting, 0);
                    yield_now().await;
                }
            });
        }
        crew.run_shuffled(seed, &manual);
        assert_eq!(got.get() + none.get(), 2);
        assert_eq!(pool.status().active, 0);
    }
}

/// F-001, F-006
#[test]
fn inspectors_see_numbers_that_add_up() {
    for seed in SEEDS {
        let (log, manual, acquired) = (Log::default(), Manual::new(), Cell::new(0));
        let pool = busy_pool(&log, &manual, 3, 6);
        let mut crew = Crew::new();
        crew.add(work(&pool, 4, &acquired));
        for _ in 0..3 {
            crew.add(inspect(&pool, 6));
        }
        crew.run_shuffled(seed, &manual);
        assert_eq!(acquired.get(), 4);
    }
}

/// F-007, F-008
#[test]
fn tasks_that_cycle_the_breaker_see_their_own_moves() {
    for seed in SEEDS {
        let (log, manual) = (Log::default(), Manual::new());
        let pool = busy_pool(&log, &manual, 0, 2);
        let cycles = Cell::new(0);
        let mut crew = Crew::new();
        for _ in 0..3 {
            crew.add(async {
                yield_now().await;
                let mut seen = vec![pool.breaker()];
                for step in [
                    FnPool::open_breaker,
                    FnPool::half_open_breaker,
                    FnPool::close_breaker,
                ] {
                    step(&pool);
                    seen.push(pool.breaker());
                }
                use BreakerState::{Closed, HalfOpen, Open};
                assert_eq!(seen, [Closed, Open, HalfOpen, Closed]);
                cycles.set(cycles.get() + 1);
            });
        }
        crew.run_shuffled(seed, &manual);
        assert_eq!((cycles.get(), pool.breaker()), (3, BreakerState::Closed));
    }
}

/// F-009
#[test]
fn the_strategy_of_the_moment_of_release_gets_the_report() {
    for seed in SEEDS {
        let (log, manual) = (Log::default(), Manual::new());
        let pool = busy_pool(&log, &manual, 1, 4);
        let recorder = Arc::new(Recorder::default());
        let attached = Gate::new();
        let mut crew = Crew::new();
        for _ in 0..3 {
            crew.add(async {
                // Taken before there is a strategy, given back after.
                let lease = pool.acquire().await.unwrap();
                attached.pass().await;
                drop(lease);
            });
        }
        crew.add(async {
            for _ in 0..5 {
                yield_now().await;
            }
            pool.set_strategy(Some(recorder.clone()));
            attached.open();
        });
        crew.run_shuffled(seed, &manual);
        assert_eq!(recorder.counts(), (3, 0));
    }
}

/// F-010
#[test]
fn a_pool_that_refuses_every_release_reports_failures_only() {
    for seed in SEEDS {
        let (log, manual) = (Log::default(), Manual::new());
        let recorder = Arc::new(Recorder::default());
        let builder = numbers(&log, &manual).min(1).max(10);
        let pool = now(builder.before_release(|_: &mut usize| false).open()).unwrap();
        pool.set_strategy(Some(recorder.clone()));
        let acquired = Cell::new(0);
        let mut crew = Crew::new();
        for _ in 0..2 {
            crew.add(work(&pool, 1, &acquired));
        }
        crew.run_shuffled(seed, &manual);
        assert_eq!(recorder.counts(), (0, 2));
    }
}

/// F-002, F-011
#[test]
fn a_strategy_set_and_removed_leaves_no_waiter_behind() {
    for seed in SEEDS {
        let (log, manual, acquired) = (Log::default(), Manual::new(), Cell::new(0));
        let pool = busy_pool(&log, &manual, 0, 2);
        let recorder = Arc::new(Recorder::default());
        let mut crew = Crew::new();
        for _ in 0..4 {
            crew.add(work(&pool, 3, &acquired));
        }
        crew.add(async {
            pool.set_strategy(Some(recorder.clone()));
            yield_now().await;
            pool.set_strategy(None);
        });
        crew.run_shuffled(seed, &manual);
        assert_eq!((acquired.get(), pool.status().active), (12, 0));
        assert_eq!(Arc::strong_count(&recorder), 1);
    }
}

/// F-001, F-002 with acquires that are cancelled, factories that fail and
/// releases that are refused.
#[test]
fn cancelled_failed_and_refused_work_leaves_every_place_free() {
    for seed in SEEDS {
        let (log, manual) = (Log::default(), Manual::new());
        let make = log.clone();
        let builder = numbers(&log, &manual).max(3).no_backoff();
        let pool = builder
            .create(move || {
                let number = make.make();
                async move {
                    yield_now().await;
                    if number % 3 == 0 {
                        return Err(Oops("every third"));
                    }
                    Ok(number)
                }
            })
            .before_release(|number: &mut usize| *number % 4 != 1)
            .build()
            .unwrap();
        let mut crew = Crew::new();
        for task in 0..8 {
            let (pool, manual) = (&pool, &manual);
            crew.add(async move {
                for round in 0..4 {
                    if (task + round) % 3 == 0 {
                        let mut cancelled = hand(pool.acquire());
                        for _ in 0..round {
                            if cancelled.poll().is_ready() {
                                break;
                            }
                            yield_now().await;
                        }
                        continue;
                    }
                    let lease = pool.acquire().await;
                    manual.sleep_for(millis(1)).await;
                    drop(lease);
                }
            });
        }
        crew.add(inspect(&pool, 3));
        crew.run_shuffled(seed, &manual);
        manual.run();
        let status = pool.status();
        assert_eq!((status.active, status.creating), (0, 0));
        assert_eq!((status.waiting, status.reserved), (0, 0));
        // All three places can still be acquired.
        let leases = [(); 3].map(|()| {
            std::iter::repeat_with(|| {
                let mut acquire = hand(pool.acquire());
                acquire.waits_for(&manual).ok()
            })
            .flatten()
            .next()
        });
        assert!(leases.iter().all(Option::is_some));
    }
}
