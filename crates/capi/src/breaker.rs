//! The circuit breaker: its state, manual transitions and strategies.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rust_pool::{Advice, BreakerState, ConsecutiveFailures, FailureRate, Pool, Report, Strategy};

use crate::callbacks::{Callbacks, Disposal, UserData, cenote_dispose_fn};
use crate::error::{CENOTE_ERR_ARGUMENT, CENOTE_OK, Fault, boundary, c_text};
use crate::handle::{self, Handle, cenote_pool};
use crate::host::Host;
use crate::options::read_sized;

/// The breaker admits every acquire.
pub const CENOTE_BREAKER_ACTIVE: u32 = 0;
/// Every acquire fails with CENOTE_ERR_UNAVAILABLE.
pub const CENOTE_BREAKER_INACTIVE: u32 = 1;
/// With a strategy the breaker admits only probes; without one, every acquire.
pub const CENOTE_BREAKER_RECOVERING: u32 = 2;

/// Decides when a breaker opens and when it admits probes. Its functions must not block; each
/// may be NULL. They run on the thread that releases, creates or acquires, or on the host's
/// thread if there is one. The struct is copied.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cenote_strategy {
    /// sizeof(cenote_strategy).
    pub size: usize,
    /// Passed to the functions below.
    pub data: *mut c_void,
    /// A resource was released and kept. `state` is one of CENOTE_BREAKER_*.
    pub report_success:
        Option<unsafe extern "C" fn(data: *mut c_void, pool: *mut cenote_pool, state: u32)>,
    /// A creation failed, or before_release rejected a resource; `why` says which.
    /// Returns 1 to open the breaker, 0 to leave its state.
    pub report_failure: Option<
        unsafe extern "C" fn(
            data: *mut c_void,
            pool: *mut cenote_pool,
            state: u32,
            why: *const c_char,
        ) -> c_int,
    >,
    /// The cool-down of an open breaker is over. Returns 1 to admit probes, 0 for another
    /// cool-down. NULL: always 1.
    pub should_recover:
        Option<unsafe extern "C" fn(data: *mut c_void, pool: *mut cenote_pool) -> c_int>,
    /// Called when the pool no longer uses the strategy.
    pub dispose: cenote_dispose_fn,
    /// The cool-down of an open breaker. 0: five seconds.
    pub cool_down_ms: u64,
    /// How many probes may run at once, and how many must succeed to close the breaker. 0: one.
    pub probes: u32,
}

/// Returns the breaker's state, one of CENOTE_BREAKER_*, or CENOTE_ERR_HANDLE or
/// CENOTE_ERR_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_breaker_state(pool: *mut cenote_pool) -> c_int {
    boundary(|| {
        let body = handle::open(pool)?;
        Ok(match body.pool().breaker() {
            BreakerState::Closed => 0,
            BreakerState::Open => 1,
            _ => 2,
        })
    })
}

/// Closes the breaker: it admits every acquire.
///
/// Returns CENOTE_OK, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_breaker_activate(pool: *mut cenote_pool) -> c_int {
    transition(pool, Pool::close_breaker)
}

/// Opens the breaker: every waiting acquire fails with CENOTE_ERR_UNAVAILABLE at once, and
/// the strategy does not close the breaker again.
///
/// Returns CENOTE_OK, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_breaker_deactivate(pool: *mut cenote_pool) -> c_int {
    transition(pool, Pool::open_breaker)
}

/// Sets the breaker to half-open: it admits probes; without a strategy it admits every
/// acquire.
///
/// Returns CENOTE_OK, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_breaker_recover(pool: *mut cenote_pool) -> c_int {
    transition(pool, Pool::half_open_breaker)
}

fn transition(pool: *mut cenote_pool, to: fn(&Pool<Callbacks>)) -> c_int {
    boundary(|| {
        let body = handle::open(pool)?;
        to(body.pool());
        Ok(CENOTE_OK)
    })
}

/// Sets the breaker's strategy, or removes it if `strategy` is NULL. The breaker's state
/// does not change, and there is no event.
///
/// Returns CENOTE_OK, CENOTE_ERR_ARGUMENT, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED;
/// if not CENOTE_OK, `dispose` is not called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_breaker_set_strategy(
    pool: *mut cenote_pool,
    strategy: *const cenote_strategy,
) -> c_int {
    boundary(|| {
        let body = handle::open(pool)?;
        if strategy.is_null() {
            body.set_watched(false);
            body.pool().set_strategy(None);
            return Ok(CENOTE_OK);
        }
        // SAFETY: not NULL, and C's promise on its size.
        let table = unsafe { read_sized(strategy, "strategy", NO_STRATEGY) }?;
        let strategy = CStrategy {
            table,
            handle: body.handle(),
            host: body.host().cloned(),
        };
        body.set_watched(true);
        body.pool().set_strategy(Some(Arc::new(strategy)));
        Ok(CENOTE_OK)
    })
}

/// Sets a strategy that opens the breaker after `limit` consecutive failures,
/// for `cool_down_ms` milliseconds.
///
/// Returns CENOTE_OK, CENOTE_ERR_ARGUMENT, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_breaker_open_after(
    pool: *mut cenote_pool,
    limit: u32,
    cool_down_ms: u64,
) -> c_int {
    boundary(|| {
        let body = handle::open(pool)?;
        let strategy = ConsecutiveFailures::new(positive("limit", limit)?)
            .with_cool_down(Duration::from_millis(cool_down_ms));
        body.set_watched(false);
        body.pool().set_strategy(Some(Arc::new(strategy)));
        Ok(CENOTE_OK)
    })
}

/// Sets a strategy that opens the breaker when at least `rate` (above 0.0, at most 1.0) of
/// the reports within `window_ms` milliseconds are failures, but not before there are
/// `at_least` reports, for `cool_down_ms` milliseconds.
///
/// Returns CENOTE_OK, CENOTE_ERR_ARGUMENT, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_breaker_open_at_rate(
    pool: *mut cenote_pool,
    rate: f64,
    window_ms: u64,
    at_least: u32,
    cool_down_ms: u64,
) -> c_int {
    boundary(|| {
        let body = handle::open(pool)?;
        if !(rate > 0.0 && rate <= 1.0) {
            let text = format!("rate is {rate}, but it must be above 0.0 and at most 1.0");
            return Err(Fault::new(CENOTE_ERR_ARGUMENT, text));
        }
        let at_least = usize::try_from(positive("at_least", at_least)?).unwrap_or(usize::MAX);
        let strategy = FailureRate::new(rate, Duration::from_millis(window_ms), at_least)
            .with_cool_down(Duration::from_millis(cool_down_ms));
        body.set_watched(false);
        body.pool().set_strategy(Some(Arc::new(strategy)));
        Ok(CENOTE_OK)
    })
}

fn positive(name: &str, value: u32) -> Result<u32, Fault> {
    match value {
        0 => Err(Fault::new(
            CENOTE_ERR_ARGUMENT,
            format!("{name} is 0, but it must be at least 1"),
        )),
        value => Ok(value),
    }
}

/// Converts a state to CENOTE_BREAKER_*.
pub(crate) fn number(state: BreakerState) -> u32 {
    match state {
        BreakerState::Closed => CENOTE_BREAKER_ACTIVE,
        BreakerState::Open => CENOTE_BREAKER_INACTIVE,
        _ => CENOTE_BREAKER_RECOVERING,
    }
}

/// A strategy that does nothing.
pub(crate) const NO_STRATEGY: cenote_strategy = cenote_strategy {
    size: std::mem::size_of::<cenote_strategy>(),
    data: std::ptr::null_mut(),
    report_success: None,
    report_failure: None,
    should_recover: None,
    dispose: None,
    cool_down_ms: 0,
    probes: 0,
};

/// A strategy of C's.
pub(crate) struct CStrategy {
    pub(crate) table: cenote_strategy,
    pub(crate) handle: Handle,
    pub(crate) host: Option<Arc<Host>>,
}

// SAFETY: C's functions and data; on which threads they are called is in the header.
unsafe impl Send for CStrategy {}
// SAFETY: as above.
unsafe impl Sync for CStrategy {}

impl Strategy for CStrategy {
    fn report_success(&self, report: &Report<'_>) {
        if let Some(report_success) = self.table.report_success {
            let (pool, state) = (self.handle.to_c(), number(report.state));
            // SAFETY: C's function with C's data.
            unsafe { report_success(self.table.data, pool, state) };
        }
    }

    fn report_failure(&self, report: &Report<'_>) -> Advice {
        let Some(report_failure) = self.table.report_failure else {
            return Advice::Stay;
        };
        let why = report.failure.map(ToString::to_string).unwrap_or_default();
        let why = c_text(&why);
        let (pool, state) = (self.handle.to_c(), number(report.state));
        // SAFETY: C's function with C's data, and a text that lives through the call.
        match unsafe { report_failure(self.table.data, pool, state, why.as_ptr()) } {
            0 => Advice::Stay,
            _ => Advice::Open,
        }
    }

    fn should_recover(&self, _: Instant) -> bool {
        match self.table.should_recover {
            // SAFETY: C's function with C's data.
            Some(ask) => unsafe { ask(self.table.data, self.handle.to_c()) != 0 },
            None => true,
        }
    }

    fn cool_down(&self) -> Duration {
        match self.table.cool_down_ms {
            0 => Duration::from_secs(5),
            cool_down => Duration::from_millis(cool_down),
        }
    }

    fn probes(&self) -> u32 {
        self.table.probes.max(1)
    }
}

impl Drop for CStrategy {
    fn drop(&mut self) {
        let disposal = Disposal {
            dispose: self.table.dispose,
            data: UserData(self.table.data),
        };
        disposal.at(self.host.take());
    }
}
