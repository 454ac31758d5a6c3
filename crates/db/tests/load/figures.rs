//! What is measured.

use std::fmt;
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};

/// For how long, unless the environment says otherwise.
pub(crate) fn length(default: Duration) -> Duration {
    match std::env::var("CENOTE_LOAD_SECONDS") {
        Ok(seconds) => Duration::from_secs_f64(seconds.parse().unwrap()),
        Err(_) => default,
    }
}

/// Has the machine to itself, as far as this program goes: what is measured is not to be the other
/// tests.
pub(crate) async fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::const_new(());
    ALONE.lock().await
}

/// How long things took.
pub(crate) struct Latencies(Vec<Duration>);

impl Latencies {
    pub(crate) fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Latencies(times)
    }

    /// So many of a thousand took no longer.
    pub(crate) fn per_mille(&self, rank: usize) -> Duration {
        let last = self.0.len().saturating_sub(1);
        let at = (self.0.len() * rank / 1_000).min(last);
        self.0.get(at).copied().unwrap_or_default()
    }
}

impl fmt::Display for Latencies {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = |rank| self.per_mille(rank).as_secs_f64() * 1_000.0;
        write!(
            out,
            "{} served: {:.1} ms p50, {:.1} ms p99, {:.1} ms p99.9, {:.1} ms longest",
            self.0.len(),
            millis(500),
            millis(990),
            millis(999),
            millis(1_000)
        )
    }
}

/// What this process has in memory, in bytes; `None` where the system does not tell.
pub(crate) fn memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// What the memory grew by; nothing where the system does not tell.
pub(crate) fn growth(before: Option<u64>, after: Option<u64>) -> u64 {
    before
        .zip(after)
        .map_or(0, |(before, after)| after.saturating_sub(before))
}

pub(crate) const MEGABYTE: u64 = 1024 * 1024;
