//! What can be done with a lease, and with handles.

use cenote_pool::{AcquireOptions, DestroyReason, Lease, OwnedLease, with};

use crate::tools::*;

#[test]
fn a_lease_lends_its_resource_for_reading_and_writing() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 1);
    let mut lease = now(pool.acquire()).unwrap();
    *lease += 41;
    assert_eq!((*lease, format!("{lease:?}")), (42, "Lease(42)".to_owned()));
    assert_eq!(Lease::id(&lease).get(), 1);
    drop(lease);
    assert_eq!(*now(pool.acquire()).unwrap(), 42);
}

#[test]
fn owned_lease_outlives_the_pool_and_destroys_its_resource() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 2);
    let owned = now(pool.acquire_owned()).unwrap();
    let lifted = Lease::into_owned(now(pool.acquire()).unwrap());
    assert_eq!((*owned, *lifted), (1, 2));
    let weak = pool.downgrade();
    drop(pool);
    assert!(weak.upgrade().is_none());
    let thread = std::thread::spawn(move || *lifted);
    assert_eq!(thread.join().unwrap(), 2);
    assert_eq!((log.gone(), *owned), (vec![2], 1));
    drop(owned);
    assert_eq!(log.gone(), [2, 1]);
}

#[test]
fn an_owned_lease_goes_back_like_any_other() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 1);
    let owned = now(pool.acquire_owned()).unwrap();
    let mut waiter = hand(pool.acquire_owned());
    waiter.waits();
    drop(owned);
    let owned = waiter.done().unwrap();
    assert_eq!(counts(&pool), (1, 0, 1));
    now(OwnedLease::release(owned));
    assert_eq!(counts(&pool), (1, 1, 0));
    OwnedLease::discard(now(pool.acquire_owned()).unwrap());
    assert_eq!((counts(&pool), log.gone()), ((0, 0, 0), vec![1]));
}

#[test]
fn release_waits_for_the_async_half() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let pool = numbers(&log, &manual)
        .before_release_async(with(gate.clone(), async |gate: &Gate, _: &mut usize| {
            gate.pass().await;
        }))
        .build()
        .unwrap();
    let mut release = hand(Lease::release(now(pool.acquire()).unwrap()));
    release.waits();
    assert_eq!(counts(&pool), (1, 0, 1));
    gate.let_one_pass();
    release.done();
    assert_eq!(counts(&pool), (1, 1, 0));
    // Cancelled half-way, nobody knows the resource's state.
    let mut release = hand(Lease::release(now(pool.acquire()).unwrap()));
    release.waits();
    drop(release);
    assert_eq!((counts(&pool), log.gone()), ((0, 0, 0), vec![1]));
    assert_eq!(pool.counters().destroyed_for(DestroyReason::Abandoned), 1);
}

#[test]
fn async_half_past_the_cleanup_timeout_costs_only_the_resource() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let pool = numbers(&log, &manual)
        .max(1)
        .cleanup_timeout(millis(50))
        .before_release_async(with(gate.clone(), async |gate: &Gate, _: &mut usize| {
            gate.pass().await;
        }))
        .build()
        .unwrap();
    drop(now(pool.acquire()).unwrap());
    let mut waiter = hand(pool.acquire());
    waiter.waits();
    manual.advance_millis(50);
    assert_eq!(log.gone(), [1]);
    assert_eq!(*waiter.done().unwrap(), 2);
}

#[test]
fn a_destructor_that_outlasts_the_cleanup_time_frees_its_place() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let wait = gate.clone();
    let builder = numbers(&log, &manual).max(1);
    let pool = builder
        .cleanup_timeout(millis(50))
        .destroy_async(move |_| wait.pass())
        .build()
        .unwrap();
    Lease::discard(now(pool.acquire()).unwrap());
    let mut waiter = hand(pool.acquire());
    waiter.waits();
    assert_eq!(counts(&pool), (1, 0, 1));
    manual.advance_millis(50);
    assert_eq!(*waiter.done().unwrap(), 2);
}

#[test]
fn detached_resource_keeps_its_place_until_the_place_is_dropped() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 1);
    let (number, place) = Lease::detach(now(pool.acquire()).unwrap());
    assert_eq!((number, counts(&pool)), (1, (1, 0, 1)));
    assert!(now(pool.try_acquire()).unwrap().is_none());
    let mut waiter = hand(pool.acquire());
    waiter.waits();
    drop(place);
    assert!(waiter.is_woken());
    assert_eq!(*waiter.done().unwrap(), 2);
    // It is its carrier's own now: no destructor ran.
    assert_eq!(log.gone(), []);
    assert_eq!(pool.counters().destroyed_for(DestroyReason::Detached), 1);
}

#[test]
fn an_attached_resource_is_a_lease_again() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 1);
    let (number, place) = Lease::detach(now(pool.acquire()).unwrap());
    let lease = place.attach(number + 10);
    assert_eq!((*lease, counts(&pool)), (11, (1, 0, 1)));
    let mut waiter = hand(pool.acquire());
    waiter.waits();
    drop(lease);
    assert_eq!(*waiter.done().unwrap(), 11);
    // Also when the pool has gone meanwhile.
    let owned = now(pool.acquire_owned()).unwrap();
    let (number, place) = OwnedLease::detach(owned);
    drop(waiter);
    drop(pool);
    drop(place.attach(number));
    assert_eq!(log.gone(), [11]);
}

#[test]
fn try_acquire_idle_takes_what_is_there_and_makes_nothing() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 2);
    assert!(pool.try_acquire_idle().is_none());
    drop(now(pool.acquire()).unwrap());
    let lease = pool.try_acquire_idle().unwrap();
    assert_eq!(*lease, 1);
    assert!(pool.try_acquire_idle().is_none());
    assert_eq!(log.made(), 1);
    drop(lease);
    assert_eq!(counts(&pool), (1, 1, 0));
}

#[test]
fn try_acquire_idle_with_shows_the_line_of_its_caller() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 2);
    let site = std::panic::Location::caller();
    let options = AcquireOptions::new().call_site(site);
    assert!(pool.try_acquire_idle_with(options).is_none());
    drop(now(pool.acquire()).unwrap());
    let lease = pool.try_acquire_idle_with(options).unwrap();
    assert_eq!(pool.holders()[0].caller, site);
    assert!(pool.try_acquire_idle_with(options).is_none());
    drop(lease);
    now(pool.close()).unwrap();
    assert!(pool.try_acquire_idle_with(options).is_none());
}

#[test]
fn lease_is_wanted_when_more_wait_than_expected() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 1);
    let lease = now(pool.acquire_owned()).unwrap();
    assert!(!OwnedLease::is_wanted(&lease, 0));
    let (mut first, mut second) = (hand(pool.acquire()), hand(pool.acquire()));
    first.waits();
    assert!(OwnedLease::is_wanted(&lease, 0) && !OwnedLease::is_wanted(&lease, 1));
    second.waits();
    assert!(OwnedLease::is_wanted(&lease, 1) && !OwnedLease::is_wanted(&lease, 2));
    drop((first, second));
    assert!(!OwnedLease::is_wanted(&lease, 0));
}

#[test]
fn lease_is_wanted_when_it_would_not_be_kept() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 2);
    let leases = [
        now(pool.acquire_owned()).unwrap(),
        now(pool.acquire_owned()).unwrap(),
    ];
    let wanted = || {
        leases
            .iter()
            .filter(|lease| OwnedLease::is_wanted(lease, 9))
            .count()
    };
    assert_eq!(wanted(), 0);
    pool.resize(1).unwrap();
    assert_eq!(wanted(), 2, "either of them");
    pool.resize(2).unwrap();
    assert_eq!(wanted(), 0);
    pool.open_breaker();
    assert_eq!(wanted(), 2);
    pool.close_breaker();
    assert_eq!(wanted(), 0);
    let mut closing = hand(pool.close());
    let _ = closing.poll();
    assert_eq!(wanted(), 2);
}

#[test]
fn lease_is_wanted_when_its_replacement_is_there() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 1);
    let lease = now(pool.acquire_owned()).unwrap();
    pool.replace_all();
    manual.run();
    assert!(OwnedLease::is_wanted(&lease, 9));
}

#[test]
fn try_acquire_idle_leaves_a_hook_that_waits_to_the_background() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let pool = numbers(&log, &manual)
        .max(1)
        .before_acquire_async(with(gate.clone(), async |gate: &Gate, _: &mut usize| {
            gate.pass().await;
        }))
        .build()
        .unwrap();
    drop(now(pool.acquire()).unwrap());
    assert!(pool.try_acquire_idle().is_none());
    assert_eq!(counts(&pool), (1, 0, 1));
    gate.open();
    manual.run();
    assert_eq!((counts(&pool), log.gone()), ((1, 1, 0), vec![]));
    assert_eq!(*pool.try_acquire_idle().unwrap(), 1);
}

#[test]
fn weak_handle_keeps_nothing_open_and_upgrades_while_it_can() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 1);
    drop(now(pool.acquire()).unwrap());
    let weak = pool.downgrade();
    let strong = weak.upgrade().unwrap();
    assert_eq!(strong.id(), pool.id());
    drop(pool);
    assert!(!strong.is_closed());
    drop(strong);
    assert_eq!(log.gone(), [1]);
    assert!(weak.clone().upgrade().is_none());
}

#[test]
fn every_lease_is_counted_once_whatever_way_it_took() {
    let (log, manual) = (Log::default(), Manual::new());
    let builder = numbers(&log, &manual).max(1);
    let refused = log.clone();
    let pool = builder
        .acquire_timeout(millis(1000))
        .before_acquire_async(with(refused, async |refused: &Log, number: &mut usize| {
            yield_now().await;
            refused.line("asked");
            *number != 1
        }))
        .build()
        .unwrap();
    // Fresh; then refused, and fresh again; then checked and handed out.
    for acquired in 1..=3 {
        drop(hand(pool.acquire()).waits_for(&manual).unwrap());
        assert_eq!(pool.counters().acquired, acquired);
    }
    assert_eq!((log.lines().len(), log.gone()), (2, vec![1]));
    let counters = pool.counters();
    assert_eq!((counters.created, counters.destroyed), (2, 1));
}
