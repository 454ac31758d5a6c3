//! Events, counters and histograms.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cenote_pool::{BreakerState, DestroyReason, Event, FnPool, Lease, Phase};

use crate::tools::*;

/// Notes every event in a short form.
fn note_all(pool: &FnPool<usize, Oops>, log: &Log) -> cenote_pool::Subscription {
    let log = log.clone();
    pool.on_event(move |event| log.line(short(event)))
}

fn short(event: &Event) -> String {
    match event {
        Event::Created { resource, took } => format!("created {resource} {took:?}"),
        Event::CreateFailed { error, delivered } => format!("failed {error} {delivered}"),
        Event::Acquired {
            resource, waited, ..
        } => format!("acquired {resource} {waited:?}"),
        Event::Released { resource } => format!("released {resource}"),
        Event::Destroyed {
            resource, reason, ..
        } => format!("destroyed {resource} {reason:?}"),
        Event::HookFailed { hook, error, .. } => format!("hook {hook:?} {error}"),
        Event::Waiting { .. } => "waiting".to_owned(),
        Event::TimedOut { phase, .. } => format!("timed out {phase:?}"),
        Event::LeakSuspected { resource, .. } => format!("leak {resource}"),
        Event::BreakerChanged { from, to } => format!("breaker {from} {to}"),
        Event::StrategyPanicked { error } => format!("strategy {error}"),
        Event::Closed => "closed".to_owned(),
        Event::Drained => "drained".to_owned(),
        Event::Lagged { missed } => format!("lagged {missed}"),
        other => panic!("an event without a test: {other:?}"),
    }
}

#[test]
fn a_callback_hears_the_life_of_a_resource_in_order() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let pool = gated_numbers(&log, &manual, &gate).max(1).build().unwrap();
    let listener = note_all(&pool, &log);
    let mut first = hand(pool.acquire());
    first.waits();
    manual.advance_millis(20);
    gate.open();
    manual.run();
    let lease = first.done().unwrap();
    let mut late = hand(pool.acquire_with(at_most(millis(30))));
    late.waits();
    manual.advance_millis(30);
    assert!(late.done().is_err());
    drop(lease);
    now(pool.close()).unwrap();
    drop(listener);
    let lines = log.lines();
    let mut lines: Vec<_> = lines.iter().map(String::as_str).collect();
    // Whether one that creates for itself "waits" is not promised.
    assert_eq!(lines.iter().filter(|line| **line == "waiting").count(), 2);
    lines.retain(|line| *line != "waiting");
    assert_eq!(
        lines,
        [
            "created #1 20ms",
            "acquired #1 20ms",
            &format!("timed out {:?}", Phase::Waiting),
            "released #1",
            "closed",
            "destroyed #1 Closed",
            "drained",
        ]
    );
}

#[test]
fn each_breaker_move_is_one_event() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 1);
    note_all(&pool, &log).forever();
    pool.open_breaker();
    pool.open_breaker();
    pool.half_open_breaker();
    pool.close_breaker();
    assert_eq!(
        log.lines(),
        [
            "breaker closed open",
            "breaker open half-open",
            "breaker half-open closed"
        ]
    );
    assert_eq!(pool.breaker(), BreakerState::Closed);
}

#[test]
fn a_listener_gets_events_while_it_is_registered() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 1);
    drop(now(pool.acquire()).unwrap());
    let lease = now(pool.acquire()).unwrap();
    let listener = note_all(&pool, &log);
    // Taken before anybody listened, it is heard of all the same.
    drop(lease);
    drop(now(pool.acquire()).unwrap());
    drop(listener);
    drop(now(pool.acquire()).unwrap());
    assert_eq!(
        log.lines(),
        ["released #1", "acquired #1 0ns", "released #1"]
    );
}

#[test]
fn listeners_run_in_registration_order_and_may_use_the_pool() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 2);
    let (one, two, weak) = (log.clone(), log.clone(), pool.downgrade());
    pool.on_event(move |event| {
        one.line(format!("one {}", short(event)));
        // Outside every lock: this would deadlock under one.
        assert!(weak.upgrade().unwrap().status().total <= 2);
    })
    .forever();
    pool.on_event(move |event| two.line(format!("two {}", short(event))))
        .forever();
    pool.open_breaker();
    let move_ = "breaker closed open";
    assert_eq!(
        log.lines(),
        [format!("one {move_}"), format!("two {move_}")]
    );
}

#[test]
fn event_stream_has_all_events_since_its_start_and_wakes() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 1);
    drop(now(pool.acquire()).unwrap());
    let mut events = pool.events();
    let mut next = hand(events.next());
    next.waits();
    let line = line!() + 1;
    let lease = now(pool.acquire()).unwrap();
    assert!(next.is_woken());
    let Some(Event::Acquired {
        resource, caller, ..
    }) = next.done()
    else {
        panic!("something else happened");
    };
    assert_eq!((resource, caller.line()), (Lease::id(&lease), line));
}

#[test]
fn slow_event_stream_loses_the_oldest_and_says_how_many() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 1);
    drop(now(pool.acquire()).unwrap());
    let mut events = pool.events();
    // Two events a round; 1024 are kept.
    for _ in 0..600 {
        drop(now(pool.acquire()).unwrap());
    }
    let first = now(events.next()).unwrap();
    assert!(matches!(first, Event::Lagged { missed: 176 }), "{first:?}");
    let mut kept = 0;
    while let std::task::Poll::Ready(Some(event)) = hand(events.next()).poll() {
        assert!(!matches!(event, Event::Lagged { .. }));
        kept += 1;
    }
    assert_eq!(kept, 1024);
}

#[test]
fn dropping_a_stream_ends_the_listening() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 1);
    let calls = Arc::new(AtomicUsize::new(0));
    let (events, count) = (pool.events(), Arc::clone(&calls));
    let listener = pool.on_event(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    drop(events);
    pool.open_breaker();
    drop(listener);
    pool.close_breaker();
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[test]
fn counters_add_up_what_has_happened() {
    let (log, manual) = (Log::default(), Manual::new());
    let make = log.clone();
    let builder = numbers(&log, &manual).max(1).no_backoff();
    let pool = builder
        .create(move || {
            let number = make.make();
            async move {
                match number {
                    2 => Err(Oops("down")),
                    _ => Ok(number),
                }
            }
        })
        .build()
        .unwrap();
    let lease = now(pool.acquire()).unwrap();
    let mut cancelled = hand(pool.acquire());
    cancelled.waits();
    drop(cancelled);
    let mut late = hand(pool.acquire_with(at_most(millis(1))));
    late.waits();
    manual.advance_millis(1);
    assert!(late.done().is_err());
    Lease::discard(lease);
    assert!(now(pool.acquire()).is_err());
    drop(now(pool.acquire()).unwrap());
    drop(now(pool.acquire()).unwrap());
    let counters = pool.counters();
    assert_eq!((counters.acquired, counters.created), (3, 2));
    assert_eq!((counters.create_failed, counters.destroyed), (1, 1));
    assert_eq!((counters.timed_out, counters.cancelled), (1, 1));
    assert_eq!(counters.destroyed_for(DestroyReason::Discarded), 1);
    assert_eq!(counters.destroyed_for(DestroyReason::Closed), 0);
}

#[test]
fn timings_split_a_wait_by_its_cause() {
    let (log, manual) = (Log::default(), Manual::new());
    let (make, clock) = (log.clone(), manual.clone());
    let builder = numbers(&log, &manual).max(1);
    let pool = builder
        .create(move || {
            let (make, slow) = (make.clone(), clock.sleep_for(millis(40)));
            async move {
                slow.await;
                Ok(make.make())
            }
        })
        .before_acquire_async(cenote_pool::with(
            manual.clone(),
            async |manual: &Manual, _: &mut usize| manual.sleep_for(millis(10)).await,
        ))
        .build()
        .unwrap();
    let mut first = hand(pool.acquire());
    first.waits();
    manual.advance_millis(40);
    let lease = first.done().unwrap();
    let mut second = hand(pool.acquire());
    second.waits();
    manual.advance_millis(20);
    drop(lease);
    second.waits();
    manual.advance_millis(10);
    drop(second.done().unwrap());
    let mut third = hand(pool.acquire());
    third.waits();
    manual.advance_millis(10);
    drop(third.done().unwrap());
    let timings = pool.timings();
    let whole = |histogram: &cenote_pool::Histogram| (histogram.count(), histogram.sum());
    assert_eq!(whole(&timings.create), (1, millis(40)));
    assert_eq!(whole(&timings.wait_create), (1, millis(40)));
    // 20 ms in the queue and 10 ms in the hook.
    assert_eq!(whole(&timings.wait_queue), (1, millis(30)));
    assert_eq!(whole(&timings.wait_check), (1, millis(10)));
    assert_eq!(whole(&timings.wait), (3, millis(80)));
    assert_eq!(timings.wait.max(), millis(40));
    // The first lease of the slot is measured, the others are not.
    assert_eq!(whole(&timings.usage), (1, millis(20)));
}

#[test]
fn acquire_of_an_idle_resource_counts_as_a_wait_of_zero() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 2);
    drop(now(pool.acquire()).unwrap());
    for _ in 0..9 {
        let lease = now(pool.acquire()).unwrap();
        manual.advance_millis(1);
        drop(lease);
    }
    let wait = pool.timings().wait;
    assert_eq!((wait.count(), wait.max()), (10, millis(0)));
    let first = wait.buckets().next().unwrap();
    assert_eq!((first.end, first.count), (millis(0), 10));
}

#[test]
fn one_lease_in_64_is_measured() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 1);
    for lease in 0u64..129 {
        let held = now(pool.acquire()).unwrap();
        manual.advance_millis(1 + lease);
        drop(held);
    }
    let usage = pool.timings().usage;
    assert_eq!((usage.count(), usage.sum()), (3, millis(1 + 65 + 129)));
    // A discarded lease is not measured, and its successor in the slot is not mistaken for it.
    for _ in 129..192 {
        drop(now(pool.acquire()).unwrap());
    }
    Lease::discard(now(pool.acquire()).unwrap());
    drop(now(pool.acquire()).unwrap());
    assert_eq!(pool.timings().usage.count(), 3);
    // Neither is a detached one.
    for _ in 194..256 {
        drop(now(pool.acquire()).unwrap());
    }
    drop(Lease::detach(now(pool.acquire()).unwrap()));
    drop(now(pool.acquire()).unwrap());
    assert_eq!(pool.timings().usage.count(), 3);
}

#[test]
fn rare_events_come_without_those_of_leases() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 1);
    let heard = log.clone();
    let listener = pool.on_rare_event(move |event| heard.line(short(event)));
    let lease = now(pool.acquire()).unwrap();
    let mut late = hand(pool.acquire_with(at_most(millis(30))));
    late.waits();
    manual.advance_millis(30);
    assert!(late.done().is_err());
    drop(lease);
    pool.open_breaker();
    drop(listener);
    pool.close_breaker();
    assert_eq!(
        log.lines(),
        ["created #1 0ns", "timed out Waiting", "breaker closed open"]
    );
}

#[test]
fn rare_and_full_listeners_get_their_own_events() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 1);
    let (rare, all) = (Log::default(), Log::default());
    let heard = rare.clone();
    let _rare = pool.on_rare_event(move |event| heard.line(short(event)));
    let listener = note_all(&pool, &all);
    drop(now(pool.acquire()).unwrap());
    drop(listener);
    drop(now(pool.acquire()).unwrap());
    pool.open_breaker();
    assert_eq!(rare.lines(), ["created #1 0ns", "breaker closed open"]);
    let lines = all.lines();
    assert_eq!(lines.last().map(String::as_str), Some("released #1"));
    assert_eq!(lines.len(), 3, "{lines:?}");
}
