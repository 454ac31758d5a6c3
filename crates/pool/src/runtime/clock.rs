//! The machine's clocks: a coarse one, exact to a few milliseconds and cheap to read, and a precise one.

use std::time::Duration;

/// Returns the nanoseconds since some fixed moment.
#[cfg(all(any(target_os = "linux", target_os = "android"), not(miri)))]
#[inline]
pub(crate) fn coarse_nanos() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for writing, and this clock exists since Linux 2.6.32;
    // on failure the zeros stay, and ages read as zero.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    // Neither is ever negative, and 584 years fit. The types differ between systems.
    #[allow(
        clippy::cast_sign_loss,
        clippy::unnecessary_cast,
        reason = "never negative"
    )]
    let (seconds, nanos) = (time.tv_sec as u64, time.tv_nsec as u64);
    seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos)
}

/// Returns the nanoseconds since some fixed moment.
#[cfg(not(all(any(target_os = "linux", target_os = "android"), not(miri))))]
pub(crate) fn coarse_nanos() -> u64 {
    nanos_since_start(precise())
}

/// Returns the precise time. The library reads the clock nowhere else.
#[allow(
    clippy::disallowed_methods,
    reason = "runtimes are where time comes from"
)]
pub(crate) fn precise() -> std::time::Instant {
    std::time::Instant::now()
}

/// Returns the nanoseconds since the first instant that was passed here.
#[allow(
    dead_code,
    reason = "used by some of the feature combinations and systems"
)]
pub(crate) fn nanos_since_start(now: std::time::Instant) -> u64 {
    use std::sync::OnceLock;
    static START: OnceLock<std::time::Instant> = OnceLock::new();
    let start = START.get_or_init(|| now);
    nanos_of(now.saturating_duration_since(*start))
}

fn nanos_of(time: Duration) -> u64 {
    // Good for 584 years.
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
