//! Diagnostics: what a timeout tells, who holds what, leaks and slow acquires.

#[cfg(feature = "tracing")]
use std::sync::{Arc, Mutex};

#[cfg(feature = "tracing")]
use cenote_pool::{AcquireError, AcquireOptions, Event, Lease, Phase, Timeout, with};

use crate::tools::*;

#[track_caller]
fn timeout<T>(result: Result<T, AcquireError<Oops>>) -> Timeout {
    match result {
        Err(AcquireError::Timeout(timeout)) => *timeout,
        Err(error) => panic!("not a timeout: {error:?}"),
        Ok(_) => panic!("not a timeout"),
    }
}

#[test]
fn a_timeout_while_waiting_lists_the_holders() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 4);
    let line = line!();
    let _first = now(pool.acquire()).unwrap();
    manual.advance_millis(10);
    let _second = now(pool.acquire()).unwrap();
    manual.advance_millis(10);
    let _third = now(pool.acquire()).unwrap();
    let _fourth = now(pool.acquire()).unwrap();
    let mut waiter = hand(pool.acquire_with(at_most(millis(50))));
    waiter.waits();
    manual.advance_millis(50);
    let timeout = timeout(waiter.done());
    assert_eq!(
        (timeout.phase, timeout.waited),
        (Phase::Waiting, millis(50))
    );
    assert_eq!((timeout.status.active, timeout.status.max), (4, 4));
    assert!(timeout.last_creation_error.is_none());
    // The three oldest, the longest first, each with its line here.
    let oldest: Vec<_> = timeout
        .oldest_holders
        .iter()
        .map(|holder| (holder.resource.get(), holder.held_for))
        .collect();
    assert_eq!(oldest[..2], [(1, millis(70)), (2, millis(60))]);
    assert_eq!(oldest.len(), 3);
    let first = timeout.oldest_holders[0].caller;
    assert!(first.file().ends_with("diagnostics.rs"));
    assert_eq!(first.line(), line + 1);
    let text = timeout.to_string();
    let start =
        "timed out after 50 ms waiting for a resource (4 of 4 in use); #1 held for 70 ms by ";
    assert!(text.starts_with(start), "{text}");
    assert!(
        text.contains(&format!("diagnostics.rs:{}", line + 1)),
        "{text}"
    );
}

#[test]
fn a_timeout_while_creating_names_that_phase() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let pool = gated_numbers(&log, &manual, &gate).max(2);
    let pool = pool.acquire_timeout(millis(50)).build().unwrap();
    let (mut acquire, mut attempt) = (hand(pool.acquire()), hand(pool.try_acquire()));
    acquire.waits();
    attempt.waits();
    manual.advance_millis(50);
    for timeout in [
        timeout(acquire.done()),
        timeout(attempt.done().map(|lease| lease.map(drop))),
    ] {
        assert_eq!(timeout.phase, Phase::Creating);
        assert_eq!(timeout.status.creating, 2);
        assert!(timeout.oldest_holders.is_empty());
    }
    // The creations go on, and what they make stays.
    gate.open();
    manual.run();
    assert_eq!(counts(&pool), (2, 2, 0));
}

#[test]
fn a_timeout_while_checking_names_that_phase() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let pool = numbers(&log, &manual)
        .max(1)
        .before_acquire_async(with(gate.clone(), async |gate: &Gate, _: &mut usize| {
            gate.pass().await;
        }))
        .build()
        .unwrap();
    drop(now(pool.acquire()).unwrap());
    let mut acquire = hand(pool.acquire_with(at_most(millis(50))));
    acquire.waits();
    manual.advance_millis(50);
    assert!(acquire.is_woken());
    let timeout = timeout(acquire.done());
    assert_eq!(
        (timeout.phase, timeout.waited),
        (Phase::Checking, millis(50))
    );
    assert_eq!(log.gone(), [1]);
    assert_eq!(counts(&pool), (0, 0, 0));
}

#[test]
fn a_timeout_during_back_off_has_the_last_creation_error() {
    let (log, manual) = (Log::default(), Manual::new());
    let builder = numbers(&log, &manual).create(|| async { Err(Oops("no route")) });
    let pool = builder.backoff(millis(1000), millis(1000)).build().unwrap();
    assert!(now(pool.acquire()).is_err());
    let mut waiter = hand(pool.acquire_with(at_most(millis(50))));
    waiter.waits();
    manual.advance_millis(50);
    let timeout = timeout(waiter.done());
    assert_eq!(timeout.phase, Phase::Waiting);
    let last = timeout.last_creation_error.as_ref().unwrap();
    assert_eq!((&*last.message, last.in_a_row), ("no route", 1));
    assert!(
        timeout
            .to_string()
            .contains("no route (1 failure in a row)")
    );
}

#[test]
fn holders_are_listed_longest_first_while_they_hold() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 3);
    assert!(pool.holders().is_empty());
    let first = now(pool.acquire()).unwrap();
    manual.advance_millis(30);
    let line = line!() + 1;
    let second = now(pool.acquire_owned()).unwrap();
    manual.advance_millis(5);
    let holders = pool.holders();
    let ages: Vec<_> = holders.iter().map(|holder| holder.held_for).collect();
    assert_eq!(ages, [millis(35), millis(5)]);
    assert_eq!(holders[1].caller.line(), line);
    assert_eq!(holders[1].resource, cenote_pool::OwnedLease::id(&second));
    drop(first);
    assert_eq!(pool.holders().len(), 1);
    drop(second);
    assert!(pool.holders().is_empty());
    // One that is reused has a new holder, with an age of its own.
    let _again = now(pool.acquire()).unwrap();
    assert_eq!(pool.holders()[0].held_for, millis(0));
}

#[test]
fn lease_taken_on_behalf_of_another_line_shows_that_line() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 2);
    let user = std::panic::Location::caller();
    let options = AcquireOptions::new().call_site(user);
    let _borrowed = now(pool.acquire_with(options)).unwrap();
    let _owned = Lease::into_owned(now(pool.acquire_with(options)).unwrap());
    let callers: Vec<_> = pool.holders().iter().map(|holder| holder.caller).collect();
    assert_eq!(callers, [user, user]);
}

/// Keeps what is logged.
#[cfg(feature = "tracing")]
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

#[cfg(feature = "tracing")]
impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What this thread logs meanwhile.
#[cfg(feature = "tracing")]
fn logged(work: impl FnOnce()) -> Vec<String> {
    let lines = Lines::default();
    let sink = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || sink.clone())
        .finish();
    with_log(subscriber, work);
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
#[cfg(feature = "tracing")]
fn slow_acquire_is_logged_with_its_line_and_a_quick_one_is_not() {
    let (log, manual) = (Log::default(), Manual::new());
    let builder = numbers(&log, &manual).max(1).name("things");
    let pool = builder.build().unwrap();
    let mut line = 0;
    let lines = logged(|| {
        for wait in [999, 1000] {
            let lease = now(pool.acquire()).unwrap();
            line = line!() + 1;
            let mut waiter = hand(pool.acquire());
            waiter.waits();
            manual.advance_millis(wait);
            drop(lease);
            drop(waiter.done().unwrap());
        }
    });
    let [waiting, served] = &lines[..] else {
        panic!("{lines:?}");
    };
    assert!(waiting.contains("an acquire is still waiting"), "{waiting}");
    for part in ["WARN", "an acquire was slow", "pool=things", "waited=1 s"] {
        assert!(served.contains(part), "{part}: {served}");
    }
    assert!(
        served.contains(&format!("diagnostics.rs:{line}")),
        "{served}"
    );
}

/// Also if the warning is the only trace: an outer time-out cancels the acquire.
#[test]
#[cfg(feature = "tracing")]
fn acquire_is_reported_as_slow_while_it_waits() {
    let (log, manual) = (Log::default(), Manual::new());
    let builder = numbers(&log, &manual).max(1).name("things");
    let pool = builder.build().unwrap();
    let holder = line!() + 1;
    let _lease = now(pool.acquire()).unwrap();
    let line = line!() + 1;
    let mut waiters = [hand(pool.acquire()), hand(pool.acquire())];
    let lines = logged(|| {
        waiters[0].waits();
        manual.advance_millis(400);
        waiters[1].waits();
        manual.advance_millis(599);
    });
    assert!(lines.is_empty(), "{lines:?}");
    let lines = logged(|| manual.advance_millis(1));
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in [
        "WARN".to_owned(),
        "an acquire is still waiting".to_owned(),
        "pool=things waited=1 s".to_owned(),
        format!("diagnostics.rs:{line}"),
        "status=1 of 1 open: 0 idle, 1 busy, 0 opening; 2 waiting".to_owned(),
        "holders=#1 held for 1 s by ".to_owned(),
        format!("diagnostics.rs:{holder}"),
    ] {
        assert!(lines[0].contains(&part), "{part}: {}", lines[0]);
    }
    let lines = logged(|| manual.advance_millis(399));
    assert!(lines.is_empty(), "each acquire is reported once: {lines:?}");
    let lines = logged(|| manual.advance_millis(1));
    assert_eq!(lines.len(), 1, "the second one joined later: {lines:?}");
    let lines = logged(|| {
        drop(waiters);
        manual.advance(std::time::Duration::from_secs(60));
    });
    assert!(lines.is_empty(), "{lines:?}");
}

#[test]
#[cfg(feature = "tracing")]
fn crowd_of_slow_acquires_is_summed_up() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = numbers(&log, &manual).max(1).build().unwrap();
    let _lease = now(pool.acquire()).unwrap();
    let mut waiters: Vec<_> = (0..50).map(|_| hand(pool.acquire())).collect();
    let lines = logged(|| {
        waiters.iter_mut().for_each(|waiter| waiter.waits());
        manual.advance_millis(1000);
    });
    assert_eq!(lines.len(), 11, "{lines:?}");
    assert!(lines[10].contains("more acquires are still waiting"));
    assert!(lines[10].contains("acquires=40"), "{}", lines[10]);
}

#[test]
#[cfg(feature = "tracing")]
fn slow_acquires_are_not_logged_when_that_is_switched_off() {
    let (log, manual) = (Log::default(), Manual::new());
    let builder = numbers(&log, &manual).max(1).no_slow_acquire_warning();
    let pool = builder.build().unwrap();
    let lines = logged(|| {
        let lease = now(pool.acquire()).unwrap();
        let mut waiter = hand(pool.acquire());
        waiter.waits();
        manual.advance_millis(10_000);
        drop(lease);
        drop(waiter.done().unwrap());
    });
    assert!(lines.is_empty(), "{lines:?}");
}

#[test]
#[cfg(feature = "tracing")]
fn errors_without_an_address_are_logged() {
    let (log, manual) = (Log::default(), Manual::new());
    let builder = numbers(&log, &manual).max(1);
    let pool = builder
        .before_release(|_: &mut usize| Err::<(), _>("dirty"))
        .destroy(|_| Err(Oops("stuck")))
        .build()
        .unwrap();
    let lines = logged(|| drop(now(pool.acquire()).unwrap()));
    let text = lines.join("\n");
    assert!(
        text.contains("checking or cleaning up a resource failed") && text.contains("dirty"),
        "{text}"
    );
    assert!(text.contains("destroying a resource failed") && text.contains("stuck"));
}

#[test]
#[cfg(feature = "tracing")]
fn a_lease_that_is_out_for_too_long_is_warned_of_once() {
    let (log, manual) = (Log::default(), Manual::new());
    let builder = numbers(&log, &manual).max(2);
    let pool = builder.leak_warning(millis(100)).build().unwrap();
    let told = log.clone();
    pool.on_event(move |event| {
        if let Event::LeakSuspected {
            resource,
            caller,
            held_for,
        } = event
        {
            told.line(format!("{resource} {}", caller.line()));
            assert!(*held_for >= millis(100) && *held_for <= millis(125));
        }
    })
    .forever();
    let line = line!() + 1;
    let lease = now(pool.acquire()).unwrap();
    // One that comes back in time is none.
    let good = now(pool.acquire()).unwrap();
    manual.advance_millis(90);
    drop(good);
    assert!(log.lines().is_empty());
    let lines = logged(|| manual.advance_millis(500));
    assert_eq!(log.lines(), [format!("#1 {line}")]);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("may have leaked"), "{}", lines[0]);
    // The next lease of the same resource is another one.
    drop(lease);
    let _lease = now(pool.acquire()).unwrap();
    manual.advance_millis(200);
    assert_eq!(log.lines().len(), 2);
}

#[test]
fn queued_acquires_come_oldest_first_with_their_lines() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 1);
    assert!(pool.queued(10).is_empty());
    let lease = now(pool.acquire()).unwrap();
    let line = line!();
    let mut first = hand(pool.acquire());
    first.waits();
    manual.advance_millis(30);
    let mut second = hand(pool.acquire());
    second.waits();
    manual.advance_millis(10);
    let queued = pool.queued(10);
    let shown: Vec<_> = queued.iter().map(|q| (q.waited, q.reason)).collect();
    let full = cenote_pool::WaitReason::Full;
    assert_eq!(shown, [(millis(40), full), (millis(10), full)]);
    assert!(queued[0].caller.file().ends_with("diagnostics.rs"));
    assert_eq!(queued[0].caller.line(), line + 1);
    assert_eq!(pool.queued(1), queued[..1]);
    // The first one leaves, the second one is served.
    drop(first);
    assert_eq!(pool.queued(10).len(), 1);
    drop(lease);
    assert!(pool.queued(10).is_empty());
    drop(second.done());
}

#[test]
fn queued_acquire_says_that_it_waits_for_a_creation() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let pool = gated_numbers(&log, &manual, &gate).max(1).build().unwrap();
    let (mut first, mut second) = (hand(pool.acquire()), hand(pool.acquire()));
    first.waits();
    second.waits();
    let reasons: Vec<_> = pool.queued(10).iter().map(|q| q.reason).collect();
    assert!(!reasons.is_empty());
    assert!(
        reasons
            .iter()
            .all(|reason| *reason == cenote_pool::WaitReason::Creating),
        "{reasons:?}"
    );
}

#[test]
fn queued_acquire_says_that_the_pool_backs_off() {
    let manual = Manual::new();
    let pool = cenote_pool::Pool::from_fn(|| async { Err::<usize, _>(Oops("refused")) })
        .max(2)
        .retry_creations()
        .acquire_timeout(millis(1000))
        .backoff(millis(100), millis(100))
        .runtime(manual.clone())
        .build()
        .unwrap();
    let mut waiter = hand(pool.acquire());
    waiter.waits();
    let reasons: Vec<_> = pool.queued(10).iter().map(|q| q.reason).collect();
    assert_eq!(reasons, [cenote_pool::WaitReason::BackingOff]);
}
