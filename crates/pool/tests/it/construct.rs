//! Building a pool, its numbers, and plain acquire and release.

use std::convert::Infallible;

use cenote_pool::Pool;

use crate::tools::*;

/// P-001
#[test]
fn a_new_pool_holds_nothing_and_is_open() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 10);
    assert_eq!(counts(&pool), (0, 0, 0));
    assert!(!pool.is_closed());
    assert_eq!(log.made(), 0);
}

/// The table of defaults, section 1 of the list.
#[test]
fn defaults_are_min_0_max_10_no_timeout_and_no_health_check() {
    let pool = units().build().unwrap();
    let config = pool.config();
    assert_eq!((config.min, config.max), (0, 10));
    assert_eq!(config.acquire_timeout, None);
    assert_eq!(config.healthcheck_interval, None);
    assert_eq!((pool.status().min, pool.status().max), (0, 10));
}

/// P-002a, P-002b, B-015
#[test]
fn opening_creates_min_resources_one_after_another() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let mut open = hand(gated_numbers(&log, &manual, &gate).min(3).max(5).open());
    for made in 0..3 {
        open.waits();
        // One creation at a time: the next starts when this one is done.
        assert_eq!((gate.arrived(), log.made()), (made + 1, made));
        gate.let_one_pass();
    }
    let pool = open.done().unwrap();
    assert_eq!(log.made(), 3);
    assert_eq!(counts(&pool), (3, 3, 0));
}

/// P-003a
#[test]
fn try_acquire_creates_on_the_spot_while_there_is_room() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 2);
    let first = now(pool.try_acquire()).unwrap().unwrap();
    assert_eq!(pool.status().active, 1);
    let second = now(pool.try_acquire()).unwrap().unwrap();
    assert_eq!(pool.status().active, 2);
    assert_eq!((*first, *second), (1, 2));
}

/// P-003b, P-019
#[test]
fn try_acquire_on_an_exhausted_pool_is_none_and_creates_nothing() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 3);
    let leases: Vec<_> = (0..3).map(|_| now(pool.acquire()).unwrap()).collect();
    assert!(now(pool.try_acquire()).unwrap().is_none());
    assert_eq!((log.made(), leases.len()), (3, 3));
    assert_eq!(pool.status().waiting, 0);
}

/// P-004a, P-004b
#[test]
fn a_released_resource_is_idle_and_comes_back_itself() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 2);
    let lease = now(pool.try_acquire()).unwrap().unwrap();
    assert_eq!(counts(&pool), (1, 0, 1));
    let number = *lease;
    drop(lease);
    assert_eq!(counts(&pool), (1, 1, 0));
    let again = now(pool.try_acquire()).unwrap().unwrap();
    assert_eq!((*again, log.made()), (number, 1));
}

/// P-007a, P-007b
#[test]
fn given_resource_is_used_first_and_destroyed_once_at_close() {
    let log = Log::default();
    let pool = now(numbers(&log, &Manual::new()).min(1).max(2).open()).unwrap();
    let lease = now(pool.acquire()).unwrap();
    assert_eq!((*lease, log.made()), (1, 1));
    drop(lease);
    assert_eq!(log.gone(), []);
    now(pool.close()).unwrap();
    assert_eq!(log.gone(), [1]);
    drop(pool);
    assert_eq!(log.gone(), [1]);
}

/// P-011a
#[test]
fn total_stays_the_same_before_during_and_after_a_lease() {
    let log = Log::default();
    let pool = now(numbers(&log, &Manual::new()).min(2).max(5).open()).unwrap();
    assert_eq!(pool.status().total, 2);
    let lease = now(pool.acquire()).unwrap();
    assert_eq!(pool.status().total, 2);
    drop(lease);
    assert_eq!(pool.status().total, 2);
}

/// P-012a, P-012b
#[test]
fn an_acquire_on_an_empty_pool_creates_without_waiting() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 2);
    assert_eq!(log.made(), 0);
    let task = async { *pool.acquire().await.unwrap() };
    assert_eq!(now(task), 1);
    assert_eq!(counts(&pool), (1, 1, 0));
}

/// P-016a, P-016b
#[test]
fn oldest_idle_resource_is_handed_out_and_close_destroys_all() {
    struct Thing {
        number: usize,
        log: Log,
    }
    impl Drop for Thing {
        fn drop(&mut self) {
            self.log.destroy(self.number);
        }
    }
    let log = Log::default();
    let make = log.clone();
    let builder = Pool::from_fn(move || {
        let log = make.clone();
        let number = log.make();
        async move { Ok::<_, Infallible>(Thing { number, log }) }
    });
    let pool = now(builder.runtime(Manual::new()).min(2).open()).unwrap();
    let lease = now(pool.try_acquire()).unwrap().unwrap();
    let thing: &Thing = &lease;
    assert_eq!(thing.number, 1);
    drop(lease);
    now(pool.close()).unwrap();
    let mut gone = log.gone();
    gone.sort_unstable();
    assert_eq!(gone, [1, 2]);
}

/// P-020
#[test]
fn one_resource_serves_one_acquire_after_the_other() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 2);
    for _ in 0..3 {
        assert_eq!(*now(pool.acquire()).unwrap(), 1);
    }
    assert_eq!(log.made(), 1);
}

/// P-023
#[test]
fn a_resource_of_any_type_comes_out_as_it_went_in() {
    fn through<T: Clone + Send + Sync + 'static>(value: T) -> T {
        let pool = Pool::from_fn(move || {
            let value = value.clone();
            async move { Ok::<_, Infallible>(value) }
        });
        let pool = pool.build().unwrap();
        let lease = now(pool.acquire()).unwrap();
        (*lease).clone()
    }
    assert_eq!(through(42_i32), 42);
    assert_eq!(through("text".to_owned()), "text");
    assert_eq!(through(vec![1, 2, 3]), [1, 2, 3]);
    assert_eq!(through(1.5_f64).to_bits(), 1.5_f64.to_bits());
    assert!(!through(false));
    // "Nothing" is a resource like any other.
    assert_eq!(through(None::<u8>), None);
}

/// P-024
#[test]
fn tasks_that_do_not_wait_with_their_lease_share_one_resource() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 2);
    let mut crew = Crew::new();
    for _ in 0..3 {
        crew.add(async {
            let lease = pool.acquire().await.unwrap();
            log.line(lease.to_string());
        });
    }
    crew.run();
    assert_eq!(log.lines(), ["1", "1", "1"]);
    assert_eq!(log.made(), 1);
}

/// P-026
#[test]
fn idle_and_active_mirror_each_other_as_leases_come_and_go() {
    let log = Log::default();
    let pool = now(numbers(&log, &Manual::new()).min(2).max(2).open()).unwrap();
    assert_eq!(counts(&pool), (2, 2, 0));
    let first = now(pool.try_acquire()).unwrap().unwrap();
    assert_eq!(counts(&pool), (2, 1, 1));
    let second = now(pool.try_acquire()).unwrap().unwrap();
    assert_eq!(counts(&pool), (2, 0, 2));
    assert!(now(pool.try_acquire()).unwrap().is_none());
    let number = *first;
    drop(first);
    assert_eq!(counts(&pool), (2, 1, 1));
    let again = now(pool.try_acquire()).unwrap().unwrap();
    assert_eq!(*again, number);
    assert_ne!(*again, *second);
}

/// P-046
#[test]
fn fifteen_resources_come_back_at_once_and_all_stay() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 15);
    let leases: Vec<_> = (0..15).map(|_| now(pool.acquire()).unwrap()).collect();
    assert_eq!(counts(&pool), (15, 0, 15));
    drop(leases);
    assert_eq!(counts(&pool), (15, 15, 0));
    drop(now(pool.acquire()).unwrap());
    assert_eq!((log.made(), log.gone().len()), (15, 0));
}
