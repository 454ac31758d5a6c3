//! The circuit breaker: while the service behind the pool is down, acquires fail at once.
//!
//! ```text
//!          strategy advises to open             cool-down over, strategy agrees
//!  Closed ──────────────────────────> Open ─────────────────────────────────> HalfOpen
//!    ^                                 ^                                        │   │
//!    │                                 └────────────── one failure ─────────────┘   │
//!    └───────────────────────────── N successes of probes ──────────────────────────┘
//! ```
//!
//! [`Breaker`] is a state machine inside the pool's locked state. A [`Strategy`] is user code, so the
//! pool asks it outside the lock. Its advice counts only if the breaker has not moved meanwhile (the
//! epoch shows that), so manual transitions always win.

pub(crate) mod report;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::Unavailable;
use crate::sync::Mutex;

/// The state of a pool's circuit breaker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BreakerState {
    /// Acquires are served.
    Closed,
    /// Every acquire fails with [`AcquireError::Unavailable`](crate::AcquireError::Unavailable).
    Open,
    /// The breaker tests whether the service has recovered. With a strategy the breaker admits only probes;
    /// without one, every acquire.
    HalfOpen,
}

impl fmt::Display for BreakerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BreakerState::Closed => "closed",
            BreakerState::Open => "open",
            BreakerState::HalfOpen => "half-open",
        })
    }
}

/// Identifies one pool among all pools of the process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PoolId(pub(crate) u64);

/// A success or a failure, as reported to a strategy.
#[derive(Debug)]
#[non_exhaustive]
pub struct Report<'a> {
    /// The pool that reports; compare it with [`Pool::id`](crate::Pool::id).
    pub pool: PoolId,
    /// The breaker's state at that moment.
    pub state: BreakerState,
    /// The time by the pool's own clock.
    pub now: Instant,
    /// What failed; `None` for a success.
    pub failure: Option<&'a Failure>,
}

/// What failed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Failure {
    /// A creation failed, with the error as text.
    Create(Arc<str>),
    /// The release hook refused a resource, with the error as text if there was one.
    Rejected(Option<Arc<str>>),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Create(error) => write!(f, "a resource could not be created: {error}"),
            Failure::Rejected(None) => f.write_str("a resource failed validation on release"),
            Failure::Rejected(Some(error)) => {
                write!(f, "a resource failed validation on release: {error}")
            }
        }
    }
}

/// What a strategy advises after a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// Leave the breaker as it is.
    Stay,
    /// Open it. The advice counts only if the breaker has not moved since the report began.
    Open,
}

/// Decides when a breaker opens and when it may try again.
///
/// The pool calls all methods outside every lock, on the thread that released, created or acquired.
/// They must not block. A panic is reported
/// ([`Event::StrategyPanicked`](crate::Event::StrategyPanicked)) and otherwise ignored.
pub trait Strategy: Send + Sync + 'static {
    /// Receives a success: a resource came back and passed the release hook.
    fn report_success(&self, report: &Report<'_>);

    /// Receives a failure: a creation failed, or the release hook refused a resource.
    fn report_failure(&self, report: &Report<'_>) -> Advice;

    /// Returns whether an open breaker may admit probes. The next acquire and the pool's maintenance
    /// ask when the cool-down is over; after a no, they ask again after another cool-down of at least
    /// 100 ms. Default: yes.
    fn should_recover(&self, now: Instant) -> bool {
        let _ = now;
        true
    }

    /// Returns how long an open breaker stays open before it may admit probes. Default: 5 s.
    fn cool_down(&self) -> Duration {
        Duration::from_secs(5)
    }

    /// Returns how many probes a half-open breaker admits at once, and how many of them must succeed
    /// to close it. A probe that takes longer than the cool-down makes room for another one; its
    /// result still counts. Default: 1.
    fn probes(&self) -> u32 {
        1
    }
}

/// Opens the breaker after a number of failures in a row.
#[derive(Debug)]
pub struct ConsecutiveFailures {
    limit: u32,
    cool_down: Duration,
    in_a_row: Mutex<u32>,
}

impl ConsecutiveFailures {
    /// Opens after `limit` failures with no success between them; 0 counts as 1.
    pub fn new(limit: u32) -> Self {
        ConsecutiveFailures {
            limit: limit.max(1),
            cool_down: Duration::from_secs(5),
            in_a_row: Mutex::new(0),
        }
    }

    /// Sets how long the breaker stays open before it admits probes. Default: 5 s.
    #[must_use]
    pub fn with_cool_down(mut self, cool_down: Duration) -> Self {
        self.cool_down = cool_down;
        self
    }
}

impl Strategy for ConsecutiveFailures {
    fn report_success(&self, _: &Report<'_>) {
        *self.in_a_row.lock() = 0;
    }

    fn report_failure(&self, _: &Report<'_>) -> Advice {
        let mut in_a_row = self.in_a_row.lock();
        *in_a_row += 1;
        if *in_a_row < self.limit {
            return Advice::Stay;
        }
        *in_a_row = 0;
        Advice::Open
    }

    fn cool_down(&self) -> Duration {
        self.cool_down
    }
}

/// Opens the breaker when the share of failures among the reports in a window of time is too large.
#[derive(Debug)]
pub struct FailureRate {
    rate: f64,
    window: Duration,
    at_least: usize,
    cool_down: Duration,
    reports: Mutex<Window>,
}

/// The reports within the window, in at most [`BUCKETS`] + 1 buckets.
#[derive(Debug, Default)]
struct Window {
    buckets: VecDeque<Bucket>,
    reports: u64,
    failures: u64,
}

/// The reports of one part of the window.
#[derive(Debug)]
struct Bucket {
    from: Instant,
    reports: u64,
    failures: u64,
}

/// The number of parts that a window is divided into.
const BUCKETS: u32 = 64;

impl FailureRate {
    /// Opens when at least `rate` (0.0 to 1.0) of the reports within `window`
    /// are failures, once there are `at_least` reports. Reports are counted in buckets of a 64th of the
    /// window: older reports never count, and reports of the oldest 64th may be left out.
    pub fn new(rate: f64, window: Duration, at_least: usize) -> Self {
        FailureRate {
            rate,
            window,
            at_least: at_least.max(1),
            cool_down: Duration::from_secs(5),
            reports: Mutex::new(Window::default()),
        }
    }

    /// Sets how long the breaker stays open before it admits probes. Default: 5 s.
    #[must_use]
    pub fn with_cool_down(mut self, cool_down: Duration) -> Self {
        self.cool_down = cool_down;
        self
    }

    fn note(&self, now: Instant, failed: bool) -> Advice {
        let mut window = self.reports.lock();
        window.add(now, failed, self.window / BUCKETS);
        while let Some(oldest) = window.buckets.front()
            && now.saturating_duration_since(oldest.from) > self.window
        {
            window.drop_oldest();
        }
        // Counts below 2^52, so nothing is lost.
        #[allow(clippy::cast_precision_loss, reason = "a count of reports")]
        let share = window.failures as f64 / window.reports as f64;
        if !failed || window.reports < self.at_least as u64 || share < self.rate {
            return Advice::Stay;
        }
        *window = Window::default();
        Advice::Open
    }
}

impl Window {
    fn add(&mut self, now: Instant, failed: bool, width: Duration) {
        let newest = self.buckets.back_mut();
        // Reports of several threads may arrive slightly out of order.
        let bucket = newest.filter(|bucket| now.saturating_duration_since(bucket.from) <= width);
        let failures = u64::from(failed);
        match bucket {
            Some(bucket) => {
                bucket.reports += 1;
                bucket.failures += failures;
            }
            None => self.buckets.push_back(Bucket {
                from: now,
                reports: 1,
                failures,
            }),
        }
        self.reports += 1;
        self.failures += failures;
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.buckets.pop_front() {
            self.reports -= oldest.reports;
            self.failures -= oldest.failures;
        }
    }
}

impl Strategy for FailureRate {
    fn report_success(&self, report: &Report<'_>) {
        self.note(report.now, false);
    }

    fn report_failure(&self, report: &Report<'_>) -> Advice {
        self.note(report.now, true)
    }

    fn cool_down(&self) -> Duration {
        self.cool_down
    }
}

/// Whether the breaker admits an acquire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    Free,
    /// As the probe with this number, which has to be ended.
    Probe(u64),
    Refused,
}

/// The shortest pause between two questions to the strategy, and before a probe makes room.
const SHORTEST_COOL_DOWN: Duration = Duration::from_millis(100);

pub(crate) struct Breaker {
    state: BreakerState,
    /// Grows with every transition, so that stale advice is recognised.
    epoch: u64,
    /// The last transition was manual: no strategy moves the breaker out of `Open`.
    by_hand: bool,
    /// When the strategy may be asked whether to admit probes.
    ask_at: Option<Instant>,
    /// The failures reported since the last success.
    failures: u32,
    /// The probes that count against the limit, and when they were admitted.
    probes_out: VecDeque<(u64, Instant)>,
    /// The number of the next probe.
    next_probe: u64,
    /// The number of the first probe since the last transition. Older probes are stale.
    first_probe: u64,
    probes_good: u32,
    strategy: Option<Arc<dyn Strategy>>,
    /// The strategy's settings, asked for outside the lock when it was set.
    probes: u32,
    cool_down: Duration,
}

impl Breaker {
    pub(crate) fn new() -> Self {
        Breaker {
            state: BreakerState::Closed,
            epoch: 1,
            by_hand: false,
            ask_at: None,
            failures: 0,
            probes_out: VecDeque::new(),
            next_probe: 1,
            first_probe: 1,
            probes_good: 0,
            strategy: None,
            probes: 1,
            cool_down: Duration::ZERO,
        }
    }

    pub(crate) fn state(&self) -> BreakerState {
        self.state
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(crate) fn strategy(&self) -> Option<&Arc<dyn Strategy>> {
        self.strategy.as_ref()
    }

    /// Installs a strategy with its settings. Returns the old one.
    pub(crate) fn set_strategy(
        &mut self,
        strategy: Option<Arc<dyn Strategy>>,
        probes: u32,
        cool_down: Duration,
    ) -> Option<Arc<dyn Strategy>> {
        self.probes = probes.max(1);
        self.cool_down = cool_down;
        std::mem::replace(&mut self.strategy, strategy)
    }

    /// Returns whether acquires and releases have to take the lock.
    pub(crate) fn needs_lock(&self) -> bool {
        self.strategy.is_some() || self.state != BreakerState::Closed
    }

    /// Counts a report to the strategy.
    pub(crate) fn count_report(&mut self, failed: bool) {
        self.failures = match failed {
            true => self.failures.saturating_add(1),
            false => 0,
        };
    }

    /// Returns why an acquire is refused.
    pub(crate) fn unavailable(&self, now: impl FnOnce() -> Instant) -> Unavailable {
        Unavailable {
            breaker: self.state,
            by_hand: self.by_hand,
            failures: self.failures,
            retry_in: self.ask_at.map(|at| at.saturating_duration_since(now())),
        }
    }

    /// Decides whether an acquire may go on.
    pub(crate) fn admit(&mut self, now: impl FnOnce() -> Instant) -> Admission {
        match self.state {
            BreakerState::Closed => Admission::Free,
            BreakerState::Open => Admission::Refused,
            BreakerState::HalfOpen if self.strategy.is_none() => Admission::Free,
            BreakerState::HalfOpen => self.admit_probe(now()),
        }
    }

    fn admit_probe(&mut self, now: Instant) -> Admission {
        let limit = self.cool_down.max(SHORTEST_COOL_DOWN);
        while let Some(&(_, since)) = self.probes_out.front()
            && now.saturating_duration_since(since) >= limit
        {
            // It takes too long: another probe may answer earlier.
            self.probes_out.pop_front();
        }
        if self.probes_out.len() >= self.probes as usize {
            return Admission::Refused;
        }
        let probe = self.next_probe;
        self.next_probe += 1;
        self.probes_out.push_back((probe, now));
        Admission::Probe(probe)
    }

    /// Ends a probe. Returns the state to move to, if any.
    pub(crate) fn probe_ended(&mut self, probe: u64, good: Option<bool>) -> Option<BreakerState> {
        if probe < self.first_probe || self.state != BreakerState::HalfOpen {
            return None;
        }
        self.probes_out.retain(|&(out, _)| out != probe);
        match good? {
            false => Some(BreakerState::Open),
            true => {
                self.probes_good += 1;
                (self.probes_good >= self.probes).then_some(BreakerState::Closed)
            }
        }
    }

    /// Moves to another state. Returns whether that is a change.
    pub(crate) fn transition(&mut self, to: BreakerState, now: Instant, by_hand: bool) -> bool {
        let changed = self.state != to;
        self.state = to;
        self.epoch += 1;
        self.by_hand = by_hand;
        self.probes_out.clear();
        self.first_probe = self.next_probe;
        self.probes_good = 0;
        self.ask_at = None;
        if to == BreakerState::Closed {
            self.failures = 0;
        }
        if to == BreakerState::Open && !by_hand {
            self.ask_at = now.checked_add(self.cool_down);
        }
        changed
    }

    /// Returns the strategy to ask about probes, if that is due.
    pub(crate) fn due_question(&self, now: Instant) -> Option<(Arc<dyn Strategy>, u64)> {
        let strategy = self.strategy.as_ref()?;
        (self.ask_at? <= now).then(|| (Arc::clone(strategy), self.epoch))
    }

    /// Notes a no: the strategy is asked again after another cool-down.
    pub(crate) fn ask_again(&mut self, now: Instant) {
        self.ask_at = now.checked_add(self.cool_down.max(SHORTEST_COOL_DOWN));
    }

    /// Returns when maintenance has to ask the strategy.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.strategy.as_ref().and(self.ask_at)
    }
}

impl fmt::Debug for Breaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Breaker")
            .field("state", &self.state)
            .field("epoch", &self.epoch)
            .field("by_hand", &self.by_hand)
            .field("probes_out", &self.probes_out.len())
            .finish_non_exhaustive()
    }
}
