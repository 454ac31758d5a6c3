//! Guards the breaker's bookkeeping: no probe is ever lost, a probe's own error is
//! what its caller gets, and a closed pool reports nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cenote_pool::{AcquireError, Advice, BreakerState, Report, Strategy, with};

use crate::tools::*;

/// Never opens by itself, admits this number of probes, and counts its reports.
#[derive(Default)]
struct Lenient {
    probes: u32,
    reports: Arc<AtomicUsize>,
}

impl Lenient {
    fn with_probes(probes: u32) -> Self {
        Lenient {
            probes,
            ..Lenient::default()
        }
    }
}

impl Strategy for Lenient {
    fn report_success(&self, _: &Report<'_>) {
        self.reports.fetch_add(1, Ordering::SeqCst);
    }

    fn report_failure(&self, _: &Report<'_>) -> Advice {
        self.reports.fetch_add(1, Ordering::SeqCst);
        Advice::Stay
    }

    fn probes(&self) -> u32 {
        self.probes.max(1)
    }
}

/// Every resource that the hook refused to a probe used to keep a probe's place,
/// so that the breaker was recovering for ever.
#[test]
fn a_probe_whose_hook_refuses_gives_its_probe_back() {
    for queues in [true, false] {
        let (log, manual) = (Log::default(), Manual::new());
        let sick = Arc::new(AtomicBool::new(false));
        let refuses = Arc::clone(&sick);
        let pool = numbers(&log, &manual)
            .max(4)
            .breaker(Lenient::with_probes(2))
            .before_acquire(move |_: &mut usize| !refuses.load(Ordering::SeqCst))
            .build()
            .unwrap();
        let leases: Vec<_> = (0..3).map(|_| now(pool.acquire()).unwrap()).collect();
        drop(leases);
        pool.open_breaker();
        pool.half_open_breaker();
        // One acquire: the hook refuses all three, then it gets a new one.
        sick.store(true, Ordering::SeqCst);
        let lease = match queues {
            true => now(pool.acquire()).unwrap(),
            false => now(pool.try_acquire()).unwrap().unwrap(),
        };
        assert_eq!((*lease, log.gone().len()), (4, 3));
        drop(lease);
        assert_eq!(pool.breaker(), BreakerState::HalfOpen);
        // That was no verdict: both probes are still free, and close the breaker.
        sick.store(false, Ordering::SeqCst);
        let probes = [now(pool.acquire()).unwrap(), now(pool.acquire()).unwrap()];
        let third = now(pool.acquire()).map(drop);
        assert!(matches!(third, Err(AcquireError::Unavailable(_))));
        drop(probes);
        assert_eq!(pool.breaker(), BreakerState::Closed);
    }
}

/// An acquire that was admitted before the breaker moved used to take a probe's
/// place when it came back from its hook, and never gave it back.
#[test]
fn acquire_in_its_hook_while_the_breaker_moves_takes_no_probe() {
    for queues in [true, false] {
        let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
        let pool = numbers(&log, &manual)
            .max(4)
            .breaker(Lenient::with_probes(1))
            .before_acquire_async(with(gate.clone(), async |gate: &Gate, _: &mut usize| {
                gate.pass().await;
                // Refuses the first time.
                gate.arrived() > 1
            }))
            .build()
            .unwrap();
        drop(now(pool.acquire()).unwrap());
        let mut acquire = hand(async {
            match queues {
                true => pool.acquire().await.map(Some),
                false => pool.try_acquire().await,
            }
        });
        acquire.waits();
        assert_eq!(gate.arrived(), 1);
        pool.open_breaker();
        pool.half_open_breaker();
        gate.open();
        // The hook refuses, and the acquire gets a new one.
        assert_eq!(acquire.done().unwrap().as_deref(), Some(&2));
        // No probe is out, so the next one is admitted.
        drop(now(pool.acquire()).unwrap());
        assert_eq!(pool.breaker(), BreakerState::Closed);
    }
}

/// The failed probe opens the breaker; the caller used to be told of that, and
/// never of the error itself.
#[test]
fn a_probe_whose_creation_fails_gets_the_error_of_the_creation() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = numbers(&log, &manual)
        .create(|| async { Err(Oops("down")) })
        .max(1)
        .no_backoff()
        .breaker(Lenient::with_probes(1))
        .build()
        .unwrap();
    pool.open_breaker();
    pool.half_open_breaker();
    let error = now(pool.acquire()).unwrap_err();
    assert!(
        matches!(error, AcquireError::Create(Oops("down"))),
        "{error:?}"
    );
    assert_eq!(pool.breaker(), BreakerState::Open);
}

/// A release hook that outlived the close used to report its end to the strategy.
#[test]
fn a_closed_pool_reports_nothing_to_its_strategy() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let strategy = Lenient::with_probes(1);
    let reports = Arc::clone(&strategy.reports);
    let pool = numbers(&log, &manual)
        .max(2)
        .breaker(strategy)
        .before_release_async(with(gate.clone(), async |gate: &Gate, _: &mut usize| {
            gate.pass().await;
        }))
        .build()
        .unwrap();
    drop(now(pool.acquire()).unwrap());
    manual.run();
    assert_eq!(gate.arrived(), 1);
    now(pool.close()).unwrap();
    gate.open();
    manual.run();
    assert_eq!((log.gone(), pool.status().total), (vec![1], 0));
    assert_eq!(reports.load(Ordering::SeqCst), 0);
}
