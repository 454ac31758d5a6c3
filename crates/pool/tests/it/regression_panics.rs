//! Guards the places against odd user code: wakers, errors, panic payloads and log
//! subscribers that panic, and callbacks that call the pool.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use cenote_pool::{AcquireError, Event, FnPool, Info, Lease, Manager, Pool};

use crate::tools::*;

/// A waker that panics when it is used.
struct Mined;

impl Wake for Mined {
    fn wake(self: Arc<Self>) {
        panic!("a mined waker");
    }
}

/// Polls a future once, with a waker that panics when it is used.
fn waits_with_mined_waker<F: Future>(future: F) -> Pin<Box<F>> {
    let (mut future, waker) = (Box::pin(future), Waker::from(Arc::new(Mined)));
    let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending(), "the future does not wait");
    future
}

/// Panics when it is dropped, as a panic's payload may.
struct Payload;

impl Drop for Payload {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "a mined payload");
    }
}

/// The panic used to end the round of wake-ups, and to come out of the close.
#[test]
fn panicking_waker_does_not_hide_a_close_from_the_others() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 1);
    let _lease = now(pool.acquire()).unwrap();
    let _mined = waits_with_mined_waker(pool.acquire());
    let mut others = [hand(pool.acquire()), hand(pool.acquire())];
    others.iter_mut().for_each(Hand::waits);
    now(pool.close()).unwrap();
    for other in &mut others {
        assert!(other.is_woken());
        assert!(matches!(other.done(), Err(AcquireError::Closed)));
    }
}

/// The panic used to come out of the lease's drop, and the maintenance task was not told of
/// the reservation, so nobody else ever got the place.
#[test]
fn a_waker_that_panics_costs_neither_the_release_nor_the_place() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 1);
    let lease = now(pool.acquire()).unwrap();
    let mined = waits_with_mined_waker(pool.acquire());
    drop(lease);
    let mut next = hand(pool.acquire_with(at_most(millis(1000))));
    next.waits();
    drop(mined);
    assert!(next.is_woken());
    assert_eq!(*next.done().unwrap(), 1);
    all_places_are_there(&pool, &manual);
}

/// What the close had marked for destruction used to be forgotten in the panic.
#[test]
fn panicking_waker_in_a_close_does_not_save_a_reserved_resource() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 1);
    let lease = now(pool.acquire()).unwrap();
    let mut first = hand(pool.acquire());
    first.waits();
    let mined = waits_with_mined_waker(pool.acquire());
    drop(lease);
    assert_eq!(pool.status().reserved, 1);
    now(pool.close()).unwrap();
    drop(first);
    drop(mined);
    manual.advance_millis(10_000);
    assert_eq!((log.gone(), pool.status().total), (vec![1], 0));
}

/// The hook's panic was caught, its payload dropped, and that panic lost the place.
#[test]
fn release_hook_may_panic_with_a_payload_that_panics_on_drop() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = numbers(&log, &manual)
        .max(1)
        .before_release(|_: &mut usize| -> bool { std::panic::panic_any(Payload) })
        .build()
        .unwrap();
    for number in 1..=2 {
        assert_eq!(*now(pool.acquire()).unwrap(), number);
        assert_eq!(pool.status().total, 0);
    }
    assert_eq!(log.gone(), [1, 2]);
}

/// As with the release hook: the place of the creation was lost.
#[test]
fn a_factory_may_panic_with_a_payload_that_panics_when_dropped() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = numbers(&log, &manual)
        .create(|| async { std::panic::panic_any(Payload) })
        .max(1)
        .no_backoff()
        .build()
        .unwrap();
    for _ in 0..2 {
        let error = now(pool.acquire()).unwrap_err();
        assert!(matches!(error, AcquireError::CreateFailed(_)), "{error:?}");
        assert_eq!(pool.status().total, 0);
    }
}

/// Says yes to everything, and panics when it is dropped, with a payload that does so too.
struct YesAndGone;

impl Future for YesAndGone {
    type Output = Result<bool, Oops>;

    fn poll(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Ok(true))
    }
}

impl Drop for YesAndGone {
    fn drop(&mut self) {
        std::panic::panic_any(Payload);
    }
}

struct MinedHook;

impl Manager for MinedHook {
    type Resource = ();
    type Error = Oops;

    async fn create(&self) -> Result<(), Oops> {
        Ok(())
    }

    fn before_acquire(
        &self,
        _: &mut (),
        _: Info<'_>,
    ) -> impl Future<Output = Result<bool, Oops>> + Send {
        YesAndGone
    }
}

/// The second panic used to come out in the middle of the acquire, which then dropped the hook once
/// more and lost the place.
#[test]
fn acquire_hook_may_panic_on_drop_with_a_payload_that_panics() {
    let pool = Pool::builder(MinedHook)
        .max(1)
        .runtime(Manual::new())
        .build()
        .unwrap();
    for _ in 0..3 {
        drop(now(pool.acquire()).unwrap());
        let status = pool.status();
        assert_eq!((status.idle, status.active), (1, 0));
    }
}

/// An error that cannot be shown.
#[derive(Debug)]
struct Unspeakable;

impl std::fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("unspeakable");
    }
}

impl std::error::Error for Unspeakable {}

/// The pool keeps the text of the last error; the panic in that lost the place.
#[test]
fn an_error_whose_display_panics_gives_its_place_back() {
    let pool: FnPool<usize, _> = Pool::from_fn(|| async { Err(Unspeakable) })
        .max(1)
        .no_backoff()
        .runtime(Manual::new())
        .build()
        .unwrap();
    for _ in 0..2 {
        let error = now(pool.acquire()).unwrap_err();
        assert!(matches!(error, AcquireError::Create(Unspeakable)));
        assert_eq!(pool.status().total, 0);
    }
}

/// An error that panics when it is dropped.
#[derive(Debug)]
struct Grenade;

impl std::fmt::Display for Grenade {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a grenade")
    }
}

impl std::error::Error for Grenade {}

impl Drop for Grenade {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "a grenade went off");
    }
}

/// An error that nobody collects is dropped when the bookkeeping is done. Where its
/// panic comes out is not promised here, only that nothing is lost with it.
#[test]
fn an_error_that_panics_when_dropped_gives_its_place_back() {
    let (manual, gate) = (Manual::new(), Gate::new());
    let wall = gate.clone();
    let pool: FnPool<usize, _> = Pool::from_fn(move || {
        let pass = wall.pass();
        async move {
            pass.await;
            Err(Grenade)
        }
    })
    .max(1)
    .no_backoff()
    .runtime(manual.clone())
    .build()
    .unwrap();
    let nothing_is_left = || {
        let status = pool.status();
        assert_eq!((status.total, status.waiting), (0, 0), "{status}");
    };
    // Cancelled when its error is there already.
    let mut acquire = hand(pool.acquire());
    acquire.waits();
    gate.let_one_pass();
    manual.run();
    let _ = catch_unwind(AssertUnwindSafe(|| drop(acquire)));
    nothing_is_left();
    // Cancelled before its error is there.
    let mut acquire = hand(pool.acquire());
    acquire.waits();
    drop(acquire);
    gate.let_one_pass();
    let _ = catch_unwind(AssertUnwindSafe(|| manual.run()));
    nothing_is_left();
}

/// The slow-acquire warning is written when the place is already ours: a subscriber
/// that panicked there made the acquire panic, and the place was lost.
#[test]
#[cfg(feature = "tracing")]
fn panicking_log_subscriber_fails_no_acquire_and_costs_no_place() {
    struct Mined(Log);

    impl std::io::Write for Mined {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            self.0.line("written");
            panic!("a mined subscriber");
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    let (log, manual) = (Log::default(), Manual::new());
    let sink = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || Mined(sink.clone()))
        .finish();
    let pool = number_pool(&log, &manual, 1);
    let lease = now(pool.acquire()).unwrap();
    let mut waiter = hand(pool.acquire());
    waiter.waits();
    manual.advance_millis(3000);
    drop(lease);
    let lease = with_log(subscriber, || waiter.done().unwrap());
    assert_eq!(log.lines(), ["written"]);
    assert_eq!((*lease, counts(&pool)), (1, (1, 0, 1)));
    drop(lease);
    all_places_are_there(&pool, &manual);
}

/// No lock may be held while a callback runs, or it would wait for itself.
#[test]
fn an_event_callback_may_do_anything_to_its_pool() {
    must_end(|| {
        let (log, manual) = (Log::default(), Manual::new());
        let pool = number_pool(&log, &manual, 2);
        let handle = Arc::new(Mutex::new(Some(pool.clone())));
        let leases = Arc::new(Mutex::new(Vec::new()));
        let (held, taken) = (Arc::clone(&handle), Arc::clone(&leases));
        let (weak, told) = (pool.downgrade(), log.clone());
        pool.on_event(move |event| {
            let Some(pool) = weak.upgrade() else { return };
            let _ = (pool.status(), pool.holders(), pool.counters());
            if let Event::Released { .. } = event {
                told.line("released");
                drop(pool.events());
                let again = pool.try_acquire_idle().map(Lease::into_owned);
                taken.lock().unwrap().extend(again);
                pool.replace_all();
                pool.resize(1).unwrap();
                pool.open_breaker();
                pool.close_breaker();
                let _: Poll<_> = hand(pool.close()).poll();
            }
            if let Event::Closed = event {
                told.line("closed");
                drop(held.lock().unwrap().take());
            }
        })
        .forever();
        let lease = now(pool.acquire_owned()).unwrap();
        drop(pool);
        drop(lease);
        manual.run();
        assert!(handle.lock().unwrap().is_none());
        drop(std::mem::take(&mut *leases.lock().unwrap()));
        assert_eq!(log.lines(), ["released", "closed"]);
        assert_eq!(log.gone(), [1]);
    });
}
