//! Settings that cannot work, and factories that fail.

use std::convert::Infallible;

use cenote_pool::{AcquireError, Builder, FnManager, OpenError};

use crate::tools::*;

/// A factory that fails on its `nth` call; every call is noted.
fn failing_on(log: &Log, nth: usize) -> Builder<FnManager<usize, Oops>> {
    let make = log.clone();
    numbers(log, &Manual::new()).create(move || {
        let number = make.make();
        async move {
            if number == nth {
                return Err(Oops("no"));
            }
            Ok(number)
        }
    })
}

/// P-010b
#[test]
fn a_max_of_zero_is_an_error_that_names_max() {
    let error = units().max(0).build().unwrap_err();
    assert_eq!((error.field, error.value.as_str()), ("max", "0"));
    assert_eq!(error.to_string(), "max is 0, but it must be at least 1");
}

/// P-010c
#[test]
fn a_min_above_max_is_an_error_that_names_min() {
    let error = units().min(10).max(5).build().unwrap_err();
    assert_eq!((error.field, error.value.as_str()), ("min", "10"));
    assert!(error.to_string().contains("max, which is 5"), "{error}");
    let OpenError::Config(error) = now(units().min(10).max(5).open()).unwrap_err() else {
        panic!("not a configuration error");
    };
    assert_eq!(error.field, "min");
}

#[test]
fn every_impossible_setting_is_named() {
    type Units = Builder<FnManager<(), Infallible>>;
    type Change = fn(Units) -> Units;
    let cases: [(&str, Change); 13] = [
        ("acquire_timeout", |b| b.acquire_timeout(millis(0))),
        ("create_timeout", |b| b.create_timeout(millis(0))),
        ("cleanup_timeout", |b| b.cleanup_timeout(millis(0))),
        ("healthcheck_interval", |b| {
            b.healthcheck_interval(millis(0))
        }),
        ("idle_timeout", |b| b.idle_timeout(millis(0))),
        ("max_lifetime", |b| b.max_lifetime(millis(0))),
        ("slow_acquire_warning", |b| {
            b.slow_acquire_warning(millis(0))
        }),
        ("leak_warning", |b| b.leak_warning(millis(0))),
        ("lifetime_jitter", |b| b.lifetime_jitter(1.0)),
        ("lifetime_jitter", |b| b.lifetime_jitter(f64::NAN)),
        ("concurrent_creations", |b| b.concurrent_creations(0)),
        ("backoff", |b| b.backoff(millis(0), millis(1))),
        ("backoff", |b| b.backoff(millis(2), millis(1))),
    ];
    for (field, change) in cases {
        assert_eq!(change(units()).build().unwrap_err().field, field);
    }
}

#[test]
fn resize_to_zero_or_below_min_is_an_error_and_changes_nothing() {
    let pool = units().min(2).max(4).build().unwrap();
    assert_eq!(pool.resize(0).unwrap_err().field, "max");
    assert_eq!(pool.resize(1).unwrap_err().field, "max");
    assert_eq!(pool.status().max, 4);
    pool.resize(2).unwrap();
    assert_eq!(pool.status().max, 2);
}

/// P-017
#[test]
fn try_acquire_gives_the_factorys_own_error() {
    let log = Log::default();
    let pool = failing_on(&log, 1).build().unwrap();
    let error = now(pool.try_acquire()).unwrap_err();
    assert!(matches!(error, AcquireError::Create(Oops("no"))));
    assert_eq!(counts(&pool), (0, 0, 0));
}

/// P-025, P-050, B-015
#[test]
fn opening_stops_at_the_first_failure_and_destroys_the_others() {
    for (min, max) in [(5, 10), (3, 5)] {
        let log = Log::default();
        let error = now(failing_on(&log, 2).min(min).max(max).open()).unwrap_err();
        let OpenError::Warmup(AcquireError::Create(error)) = error else {
            panic!("not the factory's error: {error:?}");
        };
        assert_eq!(error, Oops("no"));
        assert_eq!(log.made(), 2);
        assert_eq!(log.gone(), [1]);
    }
}

#[test]
fn cancelling_an_open_destroys_what_was_made() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let mut open = hand(gated_numbers(&log, &manual, &gate).min(3).max(5).open());
    open.waits();
    gate.let_one_pass();
    open.waits();
    assert_eq!(log.made(), 1);
    drop(open);
    manual.run();
    assert_eq!(log.gone(), [1]);
    assert_eq!(manual.tasks(), 0);
}
