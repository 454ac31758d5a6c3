#![allow(
    missing_docs,
    unreachable_pub,
    missing_debug_implementations,
    clippy::unwrap_used,
    dead_code,
    unused
)]
#[path = "it/support.rs"]
mod support;
use cenote_pool::*;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::{Duration, Instant};
use support::*;

struct Lenient;
impl Strategy for Lenient {
    fn report_success(&self, _: &Report<'_>) {}
    fn report_failure(&self, _: &Report<'_>) -> Advice {
        Advice::Stay
    }
    fn probes(&self) -> u32 {
        2
    }
}
struct Probe1;
impl Strategy for Probe1 {
    fn report_success(&self, _: &Report<'_>) {}
    fn report_failure(&self, _: &Report<'_>) -> Advice {
        Advice::Stay
    }
}

/// R1: a probe whose hook refuses leaks a probe place: recovering for ever.
#[test]
fn r01_probe_leak() {
    let (log, m) = (Log::default(), Manual::new());
    let bad = Arc::new(AtomicBool::new(false));
    let b = bad.clone();
    let pool = numbers(&log, &m)
        .max(4)
        .breaker(Lenient)
        .before_acquire(move |_: &mut usize| !b.load(Ordering::SeqCst))
        .build()
        .unwrap();
    let ls: Vec<_> = (0..3).map(|_| now(pool.acquire()).unwrap()).collect();
    drop(ls);
    pool.deactivate();
    pool.recover();
    bad.store(true, Ordering::SeqCst);
    // one acquire: refuses all idle ones, makes a fresh one
    let l = now(pool.acquire());
    drop(l);
    bad.store(false, Ordering::SeqCst);
    for i in 0..6 {
        let got = now(pool.acquire());
        println!(
            "{i} {:?} {}",
            got.as_ref().map(|_| ()).map_err(|e| e.to_string()),
            pool.breaker()
        );
        drop(got);
    }
    assert_eq!(pool.breaker(), BreakerState::Active);
}

/// R1b: one probe only; the acquire was in its hook when the breaker moved.
#[test]
fn r01b_probe_leak_one() {
    let (log, m) = (Log::default(), Manual::new());
    let gate = Arc::new(AtomicBool::new(false));
    let g = gate.clone();
    let pool = numbers(&log, &m)
        .max(4)
        .breaker(Probe1)
        .before_acquire_async(with(g, async |g: &Arc<AtomicBool>, _: &mut usize| {
            std::future::poll_fn(|_| {
                if g.load(Ordering::SeqCst) {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
            .await;
            !g.swap(true, Ordering::SeqCst) || false
        }))
        .build()
        .unwrap();
    drop(now(pool.acquire()).unwrap());
    let mut a = hand(pool.acquire());
    a.waits(); // in the hook
    pool.deactivate();
    pool.recover();
    gate.store(true, Ordering::SeqCst);
    let l = a.done(); // hook refuses -> fresh one
    assert!(l.is_ok());
    drop(l);
    let got = now(pool.acquire());
    println!(
        "{:?} {}",
        got.as_ref().map(|_| ()).map_err(|e| e.to_string()),
        pool.breaker()
    );
    assert!(got.is_ok(), "no probe is out, yet refused for ever");
}

/// R2: a probe's creation error is replaced by Unavailable.
#[test]
fn r02_probe_error() {
    let m = Manual::new();
    let pool: FnPool<usize, Oops> = Pool::from_fn(|| async { Err(Oops("down")) })
        .max(1)
        .no_backoff()
        .runtime(m.clone())
        .breaker(Probe1)
        .build()
        .unwrap();
    pool.deactivate();
    pool.recover();
    let got = now(pool.acquire()).map(|_| ());
    assert!(
        matches!(got, Err(AcquireError::Create(Oops("down")))),
        "{got:?}"
    );
}

/// R3: uncollected place with nobody else waiting is never passed on to one who comes later.
#[test]
fn r03_uncollected_place() {
    let (log, m) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &m, 1);
    let a = now(pool.acquire()).unwrap();
    let mut w1 = hand(pool.acquire());
    w1.waits();
    Lease::discard(a);
    assert!(w1.is_woken());
    m.advance_millis(1500);
    let mut w2 = hand(pool.acquire());
    w2.waits();
    m.advance_millis(30_000);
    assert!(
        w2.is_woken(),
        "W2 was never offered the place: {}",
        pool.status()
    );
}

/// R4: Duration::MAX as a lifetime panics and loses the place.
#[test]
fn r04_lifetime_max() {
    let (log, m) = (Log::default(), Manual::new());
    let pool = numbers(&log, &m)
        .max(1)
        .max_lifetime(Duration::MAX)
        .lifetime_jitter(0.0)
        .build()
        .unwrap();
    let got = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        now(pool.acquire()).map(|_| ())
    }));
    println!("{:?} {}", got.is_ok(), pool.status());
    assert!(got.is_ok(), "panicked");
}

/// R5: error whose Display panics loses the place.
#[derive(Debug)]
struct Nasty;
impl std::fmt::Display for Nasty {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("display")
    }
}
impl std::error::Error for Nasty {}
#[test]
fn r05_display_panics() {
    let m = Manual::new();
    let pool: FnPool<usize, Nasty> = Pool::from_fn(|| async { Err(Nasty) })
        .max(1)
        .no_backoff()
        .runtime(m.clone())
        .build()
        .unwrap();
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = now(pool.acquire());
    }));
    assert_eq!(pool.status().total, 0, "{}", pool.status());
}

/// R6: closed() leaks wakers.
struct Count;
impl Wake for Count {
    fn wake(self: Arc<Self>) {}
}
#[test]
fn r06_closed_leaks_wakers() {
    let (log, m) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &m, 1);
    let mut all = vec![];
    for _ in 0..1000 {
        let c = Arc::new(Count);
        let w = Waker::from(c.clone());
        let mut f = Box::pin(pool.closed());
        assert!(f.as_mut().poll(&mut Context::from_waker(&w)).is_pending());
        drop(f);
        drop(w);
        all.push(c);
    }
    let leaked = all.iter().filter(|c| Arc::strong_count(c) > 1).count();
    assert_eq!(leaked, 0, "wakers kept after the futures were dropped");
}

/// R7: panicking waker loses others' wake-ups and places.
struct Boom;
impl Wake for Boom {
    fn wake(self: Arc<Self>) {
        panic!("waker")
    }
}
#[test]
fn r07_waker_panics_on_close() {
    let (log, m) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &m, 1);
    let l = now(pool.acquire()).unwrap();
    let w = Waker::from(Arc::new(Boom));
    let mut f1 = Box::pin(pool.acquire());
    assert!(f1.as_mut().poll(&mut Context::from_waker(&w)).is_pending());
    let mut w2 = hand(pool.acquire());
    w2.waits();
    let mut w3 = hand(pool.acquire());
    w3.waits();
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = now(pool.close());
    }));
    assert!(w2.is_woken() && w3.is_woken(), "others were not woken");
}
#[test]
fn r07b_waker_panics_on_release() {
    let (log, m) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &m, 1);
    let l = now(pool.acquire()).unwrap();
    let w = Waker::from(Arc::new(Boom));
    let mut f1 = Box::pin(pool.acquire());
    assert!(f1.as_mut().poll(&mut Context::from_waker(&w)).is_pending());
    let r = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(l)));
    println!("drop of a lease panicked: {}", r.is_err());
    let mut w2 = hand(pool.acquire_within(Duration::from_secs(1)));
    w2.waits();
    drop(f1);
    m.advance_millis(5000);
    assert!(w2.is_woken(), "{}", pool.status());
    assert!(r.is_ok(), "Lease::drop panicked");
}
/// R7c: doomed slots lost: resize with a panicking waker
#[test]
fn r07c_keeper_never_started() {
    let (log, m) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &m, 1);
    let l = now(pool.acquire()).unwrap();
    let w = Waker::from(Arc::new(Boom));
    let mut f1 = Box::pin(pool.acquire());
    assert!(f1.as_mut().poll(&mut Context::from_waker(&w)).is_pending());
    println!("before drop: tasks {}", m.tasks());
    // hand-over: wake panics before the keeper is started
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(l)));
    println!("after drop: tasks {}", m.tasks());
    let mut w2 = hand(pool.acquire_within(Duration::from_secs(10)));
    w2.waits();
    println!("tasks {}", m.tasks());
    m.advance_millis(60_000);
    assert!(
        w2.is_woken(),
        "the deadline never fires: the keeper was never started"
    );
}

/// R8: waker clone under the lock.
#[test]
fn r08_waker_clone_under_lock() {
    struct W {
        pool: FnPool<usize, Oops>,
        clones: AtomicUsize,
    }
    fn vt() -> &'static RawWakerVTable {
        static V: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_ref, dropw);
        unsafe fn clone(p: *const ()) -> RawWaker {
            unsafe {
                let w = &*(p as *const W);
                let _ = w.pool.status();
                Arc::increment_strong_count(p as *const W);
                RawWaker::new(p, &V)
            }
        }
        unsafe fn wake(p: *const ()) {
            unsafe { drop(Arc::from_raw(p as *const W)) }
        }
        unsafe fn wake_ref(_: *const ()) {}
        unsafe fn dropw(p: *const ()) {
            unsafe { drop(Arc::from_raw(p as *const W)) }
        }
        &V
    }
    let (log, m) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &m, 1);
    let (tx, rx) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let _l = now(pool.acquire()).unwrap();
        let w = Arc::new(W {
            pool: pool.clone(),
            clones: AtomicUsize::new(0),
        });
        let waker = unsafe { Waker::from_raw(RawWaker::new(Arc::into_raw(w) as *const (), vt())) };
        let mut f = Box::pin(pool.acquire());
        let _ = f.as_mut().poll(&mut Context::from_waker(&waker));
        tx.send(()).unwrap();
        std::mem::forget(f);
    });
    assert!(
        rx.recv_timeout(Duration::from_secs(3)).is_ok(),
        "deadlock: waker.clone() runs under the pool's lock"
    );
}

/// R9: keeper lost while a waiter without deadline waits for the back-off.
#[test]
fn r09_backoff_waiter_without_keeper() {
    let m = Manual::new();
    let n = Arc::new(AtomicUsize::new(0));
    let k = n.clone();
    let pool: FnPool<usize, Oops> = Pool::from_fn(move || {
        let i = k.fetch_add(1, Ordering::SeqCst);
        async move { if i == 0 { Err(Oops("x")) } else { Ok(i) } }
    })
    .max(1)
    .runtime(m.clone())
    .build()
    .unwrap();
    assert!(now(pool.acquire()).is_err());
    let mut w = hand(pool.acquire());
    w.waits();
    m.run();
    m.die();
    m.revive();
    if w.is_woken() {
        w.waits();
    }
    m.advance_millis(60_000);
    assert!(
        w.is_woken(),
        "waiter is stuck although the back-off is long over"
    );
}

/// R10: blocking timeout with a current-thread runtime that nobody drives.
#[test]
fn r10_blocking_timeout_hangs_undriven() {
    let rt = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let pool: FnPool<u32, Infallible> = Pool::from_fn(|| async { Ok(1) }).max(1).build().unwrap();
    let lease = rt.block_on(async { pool.acquire_owned().await.unwrap() });
    let p = pool.clone();
    let (tx, rx) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let r = p
            .acquire_blocking_within(Duration::from_millis(100))
            .map(|_| ())
            .map_err(|e| e.to_string());
        tx.send(r).unwrap();
    });
    let r = rx.recv_timeout(Duration::from_secs(3));
    assert!(
        r.is_ok(),
        "acquire_blocking_within(100ms) still blocks after 3 s"
    );
    drop(lease);
}
/// R10b: same, the runtime is gone.
#[test]
fn r10b_blocking_timeout_hangs_dead() {
    let rt = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let pool: FnPool<u32, Infallible> = Pool::from_fn(|| async {
        tokio::task::yield_now().await;
        Ok(1)
    })
    .max(1)
    .build()
    .unwrap();
    let lease = rt.block_on(async { pool.acquire_owned().await.unwrap() });
    drop(rt);
    let p = pool.clone();
    let (tx, rx) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let r = p
            .acquire_blocking_within(Duration::from_millis(100))
            .map(|_| ())
            .map_err(|e| e.to_string());
        tx.send(r).unwrap();
    });
    let r = rx.recv_timeout(Duration::from_secs(3));
    assert!(
        r.is_ok(),
        "acquire_blocking_within(100ms) still blocks after 3 s"
    );
    drop(lease);
}
/// R10c: keeper on an idle current-thread runtime, waiter on another runtime.
#[test]
fn r10c_timeout_on_other_runtime() {
    let rt1 = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let pool: FnPool<u32, Infallible> = Pool::from_fn(|| async { Ok(1) }).max(1).build().unwrap();
    let lease = rt1.block_on(async {
        let l = pool.acquire_owned().await.unwrap();
        assert!(
            pool.acquire_within(Duration::from_millis(10))
                .await
                .is_err()
        );
        l
    });
    let p = pool.clone();
    let (tx, rx) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let rt2 = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let r = rt2.block_on(async {
            p.acquire_within(Duration::from_millis(100))
                .await
                .map(|_| ())
                .map_err(|e| e.to_string())
        });
        tx.send(r).unwrap();
    });
    let r = rx.recv_timeout(Duration::from_secs(3));
    assert!(
        r.is_ok(),
        "acquire_within(100ms) on a live runtime still waits after 3 s"
    );
    drop(lease);
}

/// R11: acquire_blocking on a plain thread: create has no Tokio context.
#[test]
fn r11_blocking_create_needs_context() {
    let rt = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let pool: FnPool<u32, Infallible> = Pool::from_fn(|| async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(1)
    })
    .max(2)
    .build()
    .unwrap();
    let held = rt.block_on(async { pool.acquire_owned().await.unwrap() });
    let p = pool.clone();
    let r = std::thread::spawn(move || p.acquire_blocking().map(|_| ()).map_err(|e| e.to_string()))
        .join()
        .unwrap();
    assert_eq!(r, Ok(()));
}
/// R11b: a lease dropped on a plain thread, async destructor that uses Tokio.
#[test]
fn r11b_drop_on_plain_thread() {
    let rt = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let ok = Arc::new(AtomicBool::new(false));
    let o = ok.clone();
    let pool: FnPool<u32, Infallible> = Pool::from_fn(|| async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(1)
    })
    .destroy_async(move |_| {
        let o = o.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            o.store(true, Ordering::SeqCst);
        }
    })
    .max(2)
    .build()
    .unwrap();
    let held = rt.block_on(async { pool.acquire_owned().await.unwrap() });
    std::thread::spawn(move || OwnedLease::discard(held))
        .join()
        .unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(
        ok.load(Ordering::SeqCst),
        "the destructor panicked for want of a runtime although the pool knows one"
    );
}

/// R12: Fifo with health checks.
#[test]
fn r12_fifo_healthcheck() {
    let (log, m) = (Log::default(), Manual::new());
    let m2 = m.clone();
    let pool = numbers(&log, &m)
        .max(3)
        .order(Order::Fifo)
        .healthcheck_interval(Duration::from_secs(1))
        .healthcheck_async(with(m2, async |m: &Manual, _: &mut usize| {
            m.sleep_for(Duration::from_millis(100)).await;
            true
        }))
        .build()
        .unwrap();
    let ls: Vec<_> = (0..3).map(|_| now(pool.acquire()).unwrap()).collect();
    drop(ls);
    m.advance_millis(1150); // 1 checked, 2 in check
    let l = now(pool.acquire()).unwrap();
    assert_eq!(*l, 1, "Fifo: the one that came back first");
}
#[test]
fn r12b_lifo_healthcheck() {
    let (log, m) = (Log::default(), Manual::new());
    let m2 = m.clone();
    let pool = numbers(&log, &m)
        .max(3)
        .order(Order::Lifo)
        .healthcheck_interval(Duration::from_secs(1))
        .healthcheck_async(with(m2, async |m: &Manual, _: &mut usize| {
            m.sleep_for(Duration::from_millis(100)).await;
            true
        }))
        .build()
        .unwrap();
    let ls: Vec<_> = (0..3).map(|_| now(pool.acquire()).unwrap()).collect();
    drop(ls);
    m.advance_millis(1150);
    let l = now(pool.acquire()).unwrap();
    assert_eq!(*l, 3, "Lifo: the one that came back last");
}

/// R13: events() on a closed and drained pool never ends.
#[test]
fn r13_events_after_drained() {
    let (log, m) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &m, 1);
    now(pool.close()).unwrap();
    let mut e = pool.events();
    let mut h = hand(e.next());
    assert!(
        matches!(h.poll(), Poll::Ready(None)),
        "`None` after the pool was closed and drained"
    );
}

/// R14: close_and_drain swallows the errors of destructors that ran during the drain.
#[test]
fn r14_drain_errors() {
    let m = Manual::new();
    let pool: FnPool<u32, Oops> = Pool::from_fn(|| async { Ok(1) })
        .destroy(|_| Err(Oops("bye")))
        .runtime(m.clone())
        .max(2)
        .build()
        .unwrap();
    let l = now(pool.acquire()).unwrap();
    let mut d = hand(pool.close_and_drain(Duration::from_secs(5)));
    d.waits();
    drop(l);
    let r = d.done();
    assert!(
        r.is_err(),
        "a destructor failed during the drain and nobody is told"
    );
}

/// R15: Affine: "the one that has not been used for longest".
#[test]
fn r15_affine_oldest() {
    let (log, m) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &m, 2);
    let a = now(pool.acquire_owned()).unwrap();
    m.advance_millis(1000);
    let b = now(pool.acquire_owned()).unwrap();
    drop(b); // 2 idle since 1 s
    m.advance_millis(10_000);
    drop(a); // 1 used until now
    let p = pool.clone();
    let got = std::thread::spawn(move || *now(p.acquire()).unwrap())
        .join()
        .unwrap();
    assert_eq!(got, 2, "the one that has not been used for longest");
}

/// R16: strategies adjust or accept nonsense.
#[test]
fn r16_nonsense_strategy() {
    let _ = FailureRate::new(f64::NAN, Duration::ZERO, 0);
    let _ = ConsecutiveFailures::new(0);
}

/// R17: keeper runs user code: a create that blocks stops deadlines.
#[test]
fn r17_keeper_runs_create() {
    let m = Manual::new();
    // a refill's create is polled inside the keeper
    let bt = Arc::new(Mutex::new(String::new()));
    let b = bt.clone();
    let pool: FnPool<u32, Oops> = Pool::from_fn(move || {
        *b.lock().unwrap() = std::backtrace::Backtrace::force_capture().to_string();
        async { Ok(1) }
    })
    .min(1)
    .runtime(m.clone())
    .build()
    .unwrap();
    let l = now(pool.acquire()).unwrap();
    Lease::discard(l);
    m.advance_millis(1000);
    let bt = bt.lock().unwrap();
    assert!(!bt.contains("Keeper"), "create ran inside the keeper");
}

/// R18 panic payload that panics on drop.
struct Bomb;
impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("payload")
        }
    }
}
#[test]
fn r18_payload_bomb() {
    let (log, m) = (Log::default(), Manual::new());
    let pool = numbers(&log, &m)
        .max(1)
        .before_release(|_: &mut usize| -> bool { std::panic::panic_any(Bomb) })
        .build()
        .unwrap();
    let l = now(pool.acquire()).unwrap();
    let r = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(l)));
    println!("drop ok: {} {}", r.is_ok(), pool.status());
    std::mem::forget(r);
    assert_eq!(pool.status().total, 0, "place lost: {}", pool.status());
}
#[test]
fn r18b_payload_bomb_create() {
    let m = Manual::new();
    let pool: FnPool<usize, Oops> = Pool::from_fn(|| async { std::panic::panic_any(Bomb) })
        .max(1)
        .no_backoff()
        .runtime(m.clone())
        .build()
        .unwrap();
    let r = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = now(pool.acquire());
    }));
    println!("ok: {} {}", r.is_ok(), pool.status());
    std::mem::forget(r);
    assert_eq!(pool.status().total, 0, "place lost: {}", pool.status());
}

/// R7d: doomed place lost
#[test]
fn r07d_doomed_lost() {
    let (log, m) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &m, 1);
    let l = now(pool.acquire()).unwrap();
    let mut w1 = hand(pool.acquire());
    w1.waits();
    let w = Waker::from(Arc::new(Boom));
    let mut f2 = Box::pin(pool.acquire());
    assert!(f2.as_mut().poll(&mut Context::from_waker(&w)).is_pending());
    drop(l); // reserved for w1
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = now(pool.close());
    }));
    drop(w1);
    drop(f2);
    m.advance_millis(10_000);
    assert_eq!(
        (log.gone(), pool.status().total),
        (vec![1], 0),
        "the resource was lost: {}",
        pool.status()
    );
}

/// Re-entrancy: callbacks that look, acquire, close, drop the last handle.
#[test]
fn r20_reentrancy() {
    let (log, m) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &m, 2);
    let slot: Arc<Mutex<Option<FnPool<usize, Oops>>>> = Arc::new(Mutex::new(Some(pool.clone())));
    let s = slot.clone();
    let weak = pool.downgrade();
    pool.on_event(move |e| {
        if let Some(p) = weak.upgrade() {
            let _ = p.status();
            let _ = p.holders();
            let _ = p.counters();
            if matches!(e, Event::Released { .. }) {
                std::mem::forget(p.try_acquire_idle().map(Lease::into_owned));
                drop(p.events());
                p.renew();
                let _ = p.resize(1);
                p.deactivate();
                p.activate();
                let _ = hand(p.close()).poll();
            }
        }
        if matches!(e, Event::Closed) {
            drop(s.lock().unwrap().take());
        }
    })
    .forever();
    let a = now(pool.acquire_owned()).unwrap();
    drop(pool);
    drop(a);
}

/// Hook refusing for ever with factories: an acquire ends.
#[test]
fn r21_try_acquire_idle_refusing() {
    let (log, m) = (Log::default(), Manual::new());
    let pool = numbers(&log, &m)
        .max(3)
        .before_acquire(|_: &mut usize| false)
        .build()
        .unwrap();
    let ls: Vec<_> = (0..3).map(|_| now(pool.acquire()).unwrap()).collect();
    drop(ls);
    assert!(pool.try_acquire_idle().is_none());
    assert_eq!(pool.status().total, 0);
    let _ = now(pool.try_acquire()).unwrap().unwrap();
    let _ = now(pool.acquire()).unwrap();
}

/// try_acquire: the hook refuses the only one, and the place is needed to create.
#[test]
fn r22_try_acquire_refused_at_max() {
    let (log, m) = (Log::default(), Manual::new());
    let m2 = m.clone();
    let pool = numbers(&log, &m)
        .max(1)
        .destroy_async(move |_| {
            let m = m2.clone();
            async move { m.sleep_for(Duration::from_millis(50)).await }
        })
        .before_acquire(|_: &mut usize| false)
        .build()
        .unwrap();
    drop(now(pool.acquire()).unwrap());
    let got = now(pool.try_acquire()).unwrap().map(|l| *l);
    assert_eq!(
        got,
        Some(2),
        "P-008a: destroyed and a new one made within the same call"
    );
}

/// A creation in flight survives renew().
#[test]
fn r23_renew_misses_creations() {
    let m = Manual::new();
    let pass = Arc::new(AtomicUsize::new(1));
    let (p, m2) = (pass.clone(), m.clone());
    let pool: FnPool<usize, Oops> = Pool::from_fn(move || {
        let c = p.load(Ordering::SeqCst);
        let m = m2.clone();
        async move {
            m.sleep_for(Duration::from_millis(100)).await;
            Ok(c)
        }
    })
    .max(1)
    .runtime(m.clone())
    .build()
    .unwrap();
    let mut a = hand(pool.acquire());
    a.waits();
    pass.store(2, Ordering::SeqCst); // credentials rotated
    pool.renew();
    m.advance_millis(200);
    assert_eq!(
        *a.waits_for(&m).unwrap(),
        2,
        "made with the old credentials, and it stays"
    );
}

/// close() of n hung destructors takes n times the cleanup time.
#[test]
fn r24_close_is_serial() {
    let (log, m) = (Log::default(), Manual::new());
    let pool = numbers(&log, &m)
        .max(10)
        .destroy_async(|_| std::future::pending::<()>())
        .build()
        .unwrap();
    let ls: Vec<_> = (0..10).map(|_| now(pool.acquire()).unwrap()).collect();
    drop(ls);
    let mut c = hand(pool.close());
    c.waits();
    let mut secs = 0;
    while c.poll().is_pending() {
        m.advance_millis(1000);
        secs += 1;
        if secs > 100 {
            break;
        }
    }
    println!("close took {secs} s");
    assert!(secs <= 6, "close took {secs} s with a cleanup time of 5 s");
}

/// A hung replacement keeps an expired resource in service for ever.
#[test]
fn r25_hung_replacement() {
    let m = Manual::new();
    let n = Arc::new(AtomicUsize::new(0));
    let k = n.clone();
    let pool: FnPool<usize, Oops> = Pool::from_fn(move || {
        let i = k.fetch_add(1, Ordering::SeqCst);
        async move {
            if i > 0 {
                std::future::pending::<()>().await
            }
            Ok(i)
        }
    })
    .max(2)
    .max_lifetime(Duration::from_secs(10))
    .runtime(m.clone())
    .build()
    .unwrap();
    drop(now(pool.acquire()).unwrap());
    m.advance(Duration::from_secs(3600));
    println!("{}", pool.status());
    assert_eq!(pool.status().idle, 0, "an hour old with a lifetime of 10 s");
}

/// stale reports: Display
#[test]
fn r26_display() {
    let m = Manual::new();
    let pool: FnPool<u32, Oops> = Pool::from_fn(|| async { Ok(1) })
        .destroy(|_| Err(Oops("bye")))
        .runtime(m.clone())
        .max(2)
        .build()
        .unwrap();
    drop(now(pool.acquire()).unwrap());
    println!("{}", now(pool.close()).unwrap_err());
    let p: Result<FnPool<u32, Oops>, _> = now(Pool::from_fn(|| async { Err(Oops("no route")) })
        .min(1)
        .runtime(m.clone())
        .open());
    println!("{}", p.as_ref().unwrap_err());
    let p: Result<FnPool<u32, Oops>, _> = now(Pool::from_fn(|| async { Err(Oops("no route")) })
        .min(20)
        .runtime(m.clone())
        .open());
    println!("{}", p.unwrap_err());
    let pool: FnPool<u32, Oops> = Pool::from_fn(|| async { Err(Oops("no route")) })
        .runtime(m.clone())
        .build()
        .unwrap();
    println!("{}", now(pool.acquire()).map(|_| ()).unwrap_err());
}

/// panicking Drop of an error that nobody collects.
#[derive(Debug)]
struct DropErr;
impl std::fmt::Display for DropErr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("x")
    }
}
impl std::error::Error for DropErr {}
impl Drop for DropErr {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("drop of an error")
        }
    }
}
#[test]
fn r27_error_drop_panics() {
    let m = Manual::new();
    let m2 = m.clone();
    let pool: FnPool<usize, DropErr> = Pool::from_fn(move || {
        let m = m2.clone();
        async move {
            m.sleep_for(Duration::from_millis(10)).await;
            Err(DropErr)
        }
    })
    .max(1)
    .no_backoff()
    .runtime(m.clone())
    .build()
    .unwrap();
    let mut a = hand(pool.acquire());
    a.waits();
    m.advance_millis(20);
    let r = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(a)));
    std::mem::forget(r);
    assert_eq!(pool.status().total, 0);
    let mut a = hand(pool.acquire());
    a.waits();
    drop(a);
    let r = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| m.advance_millis(20)));
    std::mem::forget(r);
    assert_eq!(
        (pool.status().total, pool.status().waiting),
        (0, 0),
        "{}",
        pool.status()
    );
}

/// R30: resize while a lease comes back lock-free: I2 broken, waiter and idle resource side by side.
struct Racing {
    inner: Manual,
    race: Arc<Mutex<Option<OwnedLease<FnManager<usize, Oops>>>>>,
    armed: Arc<AtomicBool>,
}
impl Runtime for Racing {
    fn now(&self) -> Instant {
        if self.armed.load(Ordering::SeqCst) {
            drop(self.race.lock().unwrap().take());
        }
        Runtime::now(&self.inner)
    }
    fn coarse_now(&self) -> u64 {
        self.inner.coarse_now()
    }
    fn sleep(&self, until: Instant) -> Task {
        self.inner.sleep(until)
    }
    fn spawn(&self, task: Task) {
        self.inner.spawn(task)
    }
}
#[test]
fn r30_resize_race() {
    let (log, m) = (Log::default(), Manual::new());
    let race = Arc::new(Mutex::new(None));
    let armed = Arc::new(AtomicBool::new(false));
    let pool = numbers(&log, &m)
        .max(2)
        .runtime(Racing {
            inner: m.clone(),
            race: race.clone(),
            armed: armed.clone(),
        })
        .build()
        .unwrap();
    let a = now(pool.acquire_owned()).unwrap();
    let b = now(pool.acquire_owned()).unwrap();
    let mut w = hand(pool.acquire_within(Duration::from_secs(100)));
    w.waits();
    drop(a); // reserved for w, not collected
    drop(b); // idle
    let b = now(pool.acquire_owned()).unwrap(); // leased without a flag
    *race.lock().unwrap() = Some(b);
    armed.store(true, Ordering::SeqCst);
    // as if another thread gave b back at the moment resize looks at the clock
    let r = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pool.resize(1)));
    armed.store(false, Ordering::SeqCst);
    println!("{:?} {}", r.is_ok(), pool.status());
    m.advance_millis(5000);
    assert!(r.is_ok(), "debug assertion: I2");
    assert!(
        w.poll().is_ready(),
        "w waits for ever beside an idle resource: {}",
        pool.status()
    );
}

/// R31: idle timeout "up to a quarter longer".
#[test]
fn r31_idle_quarter() {
    let (log, m) = (Log::default(), Manual::new());
    let pool = numbers(&log, &m)
        .max(2)
        .idle_timeout(Duration::from_millis(1100))
        .leak_warning(Duration::from_millis(1000))
        .build()
        .unwrap();
    let a = now(pool.acquire()).unwrap();
    m.advance_millis(1001);
    drop(a);
    m.advance_millis(1376);
    assert_eq!(pool.status().idle, 0, "idle for more than 1.25 times 1.1 s");
}

/// R32: reports on a closed pool.
#[test]
fn r32_report_after_close() {
    #[derive(Default)]
    struct C(AtomicUsize);
    struct S(Arc<C>);
    impl Strategy for S {
        fn report_success(&self, _: &Report<'_>) {
            self.0.0.fetch_add(1, Ordering::SeqCst);
        }
        fn report_failure(&self, _: &Report<'_>) -> Advice {
            self.0.0.fetch_add(1, Ordering::SeqCst);
            Advice::Stay
        }
    }
    let (log, m) = (Log::default(), Manual::new());
    let c = Arc::new(C::default());
    let m2 = m.clone();
    let pool = numbers(&log, &m)
        .max(2)
        .breaker(S(c.clone()))
        .before_release_async(with(m2, async |m: &Manual, _: &mut usize| {
            m.sleep_for(Duration::from_millis(10)).await
        }))
        .build()
        .unwrap();
    drop(now(pool.acquire()).unwrap());
    m.run();
    now(pool.close()).unwrap();
    m.advance_millis(20);
    assert_eq!(
        c.0.load(Ordering::SeqCst),
        0,
        "on a closed pool breaker reports are skipped"
    );
}

/// R33: a subscriber that panics in the slow-acquire warning loses a place.
#[test]
fn r33_tracing_panics() {
    use tracing_subscriber::fmt::MakeWriter;
    struct Bad;
    impl std::io::Write for Bad {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            panic!("subscriber")
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let sub = tracing_subscriber::fmt().with_writer(|| Bad).finish();
    let (log, m) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &m, 1);
    let l = now(pool.acquire()).unwrap();
    let mut w = hand(pool.acquire());
    w.waits();
    m.advance_millis(3000);
    drop(l);
    let r = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        tracing::subscriber::with_default(sub, || w.done().map(|_| ()).is_ok())
    }));
    drop(w);
    assert!(r.is_err());
    assert_eq!(pool.status().active, 0, "{}", pool.status());
}

/// R34: r30 with real threads, no trick in the clock: hunts for the race.
#[test]
fn r34_resize_race_threads() {
    let end = Instant::now() + Duration::from_secs(20);
    let mut rounds = 0u64;
    while Instant::now() < end {
        rounds += 1;
        let (log, m) = (Log::default(), Manual::new());
        let pool = number_pool(&log, &m, 2);
        let a = now(pool.acquire_owned()).unwrap();
        let b = now(pool.acquire_owned()).unwrap();
        let mut w = hand(pool.acquire());
        w.waits();
        drop(a);
        drop(b);
        let b = now(pool.acquire_owned()).unwrap();
        let go = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                while !go.load(Ordering::Acquire) {
                    std::hint::spin_loop()
                }
                for _ in 0..(rounds % 60) {
                    std::hint::spin_loop()
                }
                drop(b);
            });
            go.store(true, Ordering::Release);
            pool.resize(1).unwrap();
        });
        m.advance_millis(5000);
        assert!(
            w.poll().is_ready(),
            "round {rounds}: w waits for ever beside an idle resource: {}",
            pool.status()
        );
    }
    println!("{rounds} rounds");
}
