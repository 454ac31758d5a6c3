//! Replacing everything while the old resources serve.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cenote_pool::{DestroyReason, FnPool};

use crate::tools::*;

#[test]
fn replace_all_takes_idle_ones_now_and_leased_ones_later() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = now(numbers(&log, &manual).min(2).max(3).open()).unwrap();
    let lease = now(pool.acquire()).unwrap();
    assert_eq!(*lease, 1);
    pool.replace_all();
    manual.run();
    assert_eq!((log.gone(), log.made()), (vec![2], 4));
    assert_eq!(counts(&pool), (2, 1, 1));
    // Its replacement is there already.
    drop(lease);
    assert_eq!((log.gone(), log.made()), (vec![2, 1], 4));
    manual.run();
    assert_eq!(counts(&pool), (2, 2, 0));
    let (one, two) = (now(pool.acquire()).unwrap(), now(pool.acquire()).unwrap());
    let mut new = [*one, *two];
    new.sort_unstable();
    assert_eq!(new, [3, 4]);
    // Only once: what was made since stays.
    drop((one, two));
    manual.advance_millis(60_000);
    assert_eq!((log.gone(), log.made()), (vec![2, 1], 4));
    let counters = pool.counters();
    assert_eq!(counters.destroyed_for(DestroyReason::Replaced), 2);
    assert_eq!(counters.created, 4);
}

#[test]
fn a_full_pool_makes_the_new_one_before_the_old_one_goes() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let pool = gated_numbers(&log, &manual, &gate).max(1).build().unwrap();
    gate.let_one_pass();
    drop(now(pool.acquire()).unwrap());
    pool.replace_all();
    manual.run();
    assert_eq!((gate.arrived(), counts(&pool)), (2, (1, 1, 0)));
    assert_eq!(*now(pool.acquire()).unwrap(), 1, "the old one serves");
    assert_eq!(log.gone(), []);
    gate.let_one_pass();
    manual.run();
    assert_eq!((log.gone(), counts(&pool)), (vec![1], (1, 1, 0)));
    assert_eq!(*now(pool.acquire()).unwrap(), 2);
}

/// A pool whose resources cannot be made while the flag is set, and how often that was tried.
fn refusing(
    log: &Log,
    manual: &Manual,
    max: usize,
) -> (FnPool<usize, Oops>, Arc<AtomicBool>, Arc<AtomicUsize>) {
    let (refuses, tries) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let (flag, count, make) = (Arc::clone(&refuses), Arc::clone(&tries), log.clone());
    let pool = numbers(log, manual).create(move || {
        count.fetch_add(1, Ordering::SeqCst);
        let made = match flag.load(Ordering::SeqCst) {
            true => Err(Oops("refused")),
            false => Ok(make.make()),
        };
        std::future::ready(made)
    });
    (pool.max(max).build().unwrap(), refuses, tries)
}

/// All idle ones were destroyed at once, whether or not others could be made.
#[test]
fn h28_old_ones_serve_while_no_new_one_can_be_made() {
    let (log, manual) = (Log::default(), Manual::new());
    let (pool, refuses, tries) = refusing(&log, &manual, 3);
    drop(now(pool.acquire()).unwrap());
    refuses.store(true, Ordering::SeqCst);
    pool.replace_all();
    manual.run();
    for _ in 0..600 {
        assert_eq!(*now(pool.acquire()).unwrap(), 1);
        manual.advance_millis(100);
    }
    // In a minute: seven in the first ten seconds at most, then one every 2.5 to 5.
    let tries = tries.load(Ordering::SeqCst);
    assert!((10..=35).contains(&tries), "{tries}");
    refuses.store(false, Ordering::SeqCst);
    manual.advance_millis(5000);
    assert_eq!(log.gone(), [1]);
    assert_eq!(*now(pool.acquire()).unwrap(), 2);
    assert_eq!(counts(&pool), (1, 1, 0));
}

#[test]
fn a_waiter_gets_the_new_resource_when_the_old_one_returns() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 1);
    let lease = now(pool.acquire()).unwrap();
    pool.replace_all();
    manual.run();
    let mut waiter = hand(pool.acquire());
    let mut next = hand(pool.acquire());
    waiter.waits();
    next.waits();
    drop(lease);
    assert_eq!(*waiter.waits_for(&manual).unwrap(), 2);
    assert_eq!(log.gone(), [1]);
    assert_eq!(*next.waits_for(&manual).unwrap(), 2);
}

#[test]
fn replace_all_reaches_what_is_reserved_for_a_waiter() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 1);
    let lease = now(pool.acquire()).unwrap();
    let mut waiter = hand(pool.acquire());
    waiter.waits();
    drop(lease);
    pool.replace_all();
    manual.run();
    // It gets the old one, and the new one comes after it.
    assert_eq!(*waiter.waits_for(&manual).unwrap(), 1);
    drop(waiter);
    manual.run();
    assert_eq!(log.gone(), [1]);
    assert_eq!(*now(pool.acquire()).unwrap(), 2);
}

/// What was being made during a replacement used to stay, with the old credentials.
#[test]
fn replace_all_replaces_what_is_being_made_at_the_time() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let pool = gated_numbers(&log, &manual, &gate).max(1).build().unwrap();
    let mut waiter = hand(pool.acquire());
    waiter.waits();
    pool.replace_all();
    gate.open();
    assert_eq!(*waiter.waits_for(&manual).unwrap(), 1);
    manual.run();
    assert_eq!(log.gone(), [1]);
    assert_eq!(*now(pool.acquire()).unwrap(), 2);
}

#[test]
fn a_spare_goes_with_the_pool() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 2);
    let lease = now(pool.acquire()).unwrap();
    pool.replace_all();
    manual.run();
    assert_eq!((log.made(), log.gone()), (2, vec![]));
    now(pool.close()).unwrap();
    assert_eq!(log.gone(), [2]);
    drop(lease);
    assert_eq!(log.gone(), [2, 1]);
    assert_eq!(pool.counters().created, pool.counters().destroyed);
}

#[test]
fn an_unneeded_replacement_is_destroyed() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 2);
    let lease = now(pool.acquire()).unwrap();
    pool.replace_all();
    manual.run();
    cenote_pool::Lease::discard(lease);
    manual.run();
    assert_eq!(log.gone(), [1, 2]);
    assert_eq!(*now(pool.acquire()).unwrap(), 3);
    assert_eq!(counts(&pool), (1, 1, 0));
}

#[test]
fn a_replacement_that_the_runtime_drops_is_made_again() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let pool = gated_numbers(&log, &manual, &gate).max(1).build().unwrap();
    gate.let_one_pass();
    drop(now(pool.acquire()).unwrap());
    pool.replace_all();
    manual.run();
    assert_eq!(gate.arrived(), 2);
    manual.die();
    manual.revive();
    gate.open();
    drop(now(pool.acquire()).unwrap());
    pool.replace_all();
    manual.run();
    assert_eq!(*now(pool.acquire()).unwrap(), 2);
    assert_eq!(log.gone(), [1]);
}
