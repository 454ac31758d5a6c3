//! The settings of a pool, and their rules.

use std::time::Duration;

use crate::core::slot::MOST_SLOTS;
use crate::error::ConfigError;

/// Which idle resource is handed out next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Order {
    /// The resource that this thread used last, if it is idle; otherwise the least recently leased one.
    /// This is the fastest order and the default.
    #[default]
    Affine,
    /// The resource that was released first. The load spreads evenly.
    Fifo,
    /// The resource that was released last. With an idle timeout the pool shrinks to what is needed.
    Lifo,
}

/// The settings of a pool. The [`Builder`](crate::Builder) sets and documents them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// See [`Builder::name`](crate::Builder::name).
    pub name: Option<String>,
    /// See [`Builder::min`](crate::Builder::min).
    pub min: usize,
    /// See [`Builder::max`](crate::Builder::max).
    pub max: usize,
    /// See [`Builder::order`](crate::Builder::order).
    pub order: Order,
    /// See [`Builder::acquire_timeout`](crate::Builder::acquire_timeout).
    pub acquire_timeout: Option<Duration>,
    /// See [`Builder::create_timeout`](crate::Builder::create_timeout).
    pub create_timeout: Option<Duration>,
    /// See [`Builder::before_acquire_timeout`](crate::Builder::before_acquire_timeout).
    pub before_acquire_timeout: Option<Duration>,
    /// See [`Builder::cleanup_timeout`](crate::Builder::cleanup_timeout).
    pub cleanup_timeout: Duration,
    /// See [`Builder::healthcheck_interval`](crate::Builder::healthcheck_interval).
    pub healthcheck_interval: Option<Duration>,
    /// See [`Builder::idle_timeout`](crate::Builder::idle_timeout).
    pub idle_timeout: Option<Duration>,
    /// See [`Builder::max_lifetime`](crate::Builder::max_lifetime).
    pub max_lifetime: Option<Duration>,
    /// See [`Builder::lifetime_jitter`](crate::Builder::lifetime_jitter).
    pub lifetime_jitter: f64,
    /// See [`Builder::max_waiting`](crate::Builder::max_waiting).
    pub max_waiting: Option<usize>,
    /// See [`Builder::concurrent_creations`](crate::Builder::concurrent_creations).
    pub concurrent_creations: Option<usize>,
    /// See [`Builder::retry_creations`](crate::Builder::retry_creations).
    pub retry_creations: bool,
    /// See [`Builder::backoff`](crate::Builder::backoff).
    pub backoff: Option<(Duration, Duration)>,
    /// See [`Builder::slow_acquire_warning`](crate::Builder::slow_acquire_warning).
    pub slow_acquire_warning: Option<Duration>,
    /// See [`Builder::leak_warning`](crate::Builder::leak_warning).
    pub leak_warning: Option<Duration>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            name: None,
            min: 0,
            max: 10,
            order: Order::Affine,
            acquire_timeout: None,
            create_timeout: Some(Duration::from_secs(30)),
            before_acquire_timeout: None,
            cleanup_timeout: Duration::from_secs(5),
            healthcheck_interval: None,
            idle_timeout: None,
            max_lifetime: None,
            lifetime_jitter: 0.1,
            max_waiting: None,
            concurrent_creations: None,
            retry_creations: false,
            backoff: Some((Duration::from_millis(100), Duration::from_secs(5))),
            slow_acquire_warning: Some(Duration::from_secs(1)),
            leak_warning: None,
        }
    }
}

impl Config {
    /// Checks the settings.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        check_max(self.max)?;
        check_min(self.min, self.max)?;
        let durations = [
            ("acquire_timeout", self.acquire_timeout),
            ("create_timeout", self.create_timeout),
            ("before_acquire_timeout", self.before_acquire_timeout),
            ("cleanup_timeout", Some(self.cleanup_timeout)),
            ("healthcheck_interval", self.healthcheck_interval),
            ("idle_timeout", self.idle_timeout),
            ("max_lifetime", self.max_lifetime),
            ("slow_acquire_warning", self.slow_acquire_warning),
            ("leak_warning", self.leak_warning),
        ];
        for (field, duration) in durations {
            if duration == Some(Duration::ZERO) {
                let rule = "it must be longer than zero; leave it out to switch it off";
                return Err(wrong(field, "0s", rule));
            }
        }
        if !(0.0..1.0).contains(&self.lifetime_jitter) {
            let rule = "it must be at least 0.0 and less than 1.0";
            return Err(wrong("lifetime_jitter", self.lifetime_jitter, rule));
        }
        if self.concurrent_creations == Some(0) {
            let rule = "it must be at least 1, or nothing could ever be created";
            return Err(wrong("concurrent_creations", 0, rule));
        }
        if self.retry_creations && self.backoff.is_none() {
            let rule = "it needs a back-off between the attempts, which no_backoff switches off";
            return Err(wrong("retry_creations", true, rule));
        }
        if let Some((first, longest)) = self.backoff
            && (first.is_zero() || first > longest)
        {
            let rule = "its first pause must be longer than zero and no longer than its longest";
            let value = format!("{first:?} to {longest:?}");
            return Err(wrong("backoff", value, rule));
        }
        Ok(())
    }

    /// Returns whether maintenance has periodic work, even if nobody waits.
    pub(crate) fn needs_maintenance(&self) -> bool {
        self.min > 0 || self.healthcheck_interval.is_some() || self.sweep_interval().is_some()
    }

    /// Returns how often maintenance sweeps over all resources: eight times within the shortest limit. It
    /// may notice a change one sweep late, and its age another one, so no limit is exceeded by more than a
    /// quarter.
    pub(crate) fn sweep_interval(&self) -> Option<Duration> {
        [self.idle_timeout, self.max_lifetime, self.leak_warning]
            .into_iter()
            .flatten()
            .min()
            .map(|shortest| (shortest / 8).max(Duration::from_millis(1)))
    }
}

/// Checks a minimum.
pub(crate) fn check_min(min: usize, max: usize) -> Result<(), ConfigError> {
    if min > max {
        let rule = format!("it cannot be more than max, which is {max}");
        return Err(wrong("min", min, rule));
    }
    Ok(())
}

/// Checks a maximum.
pub(crate) fn check_max(max: usize) -> Result<(), ConfigError> {
    if max == 0 {
        return Err(wrong("max", max, "it must be at least 1"));
    }
    if max > MOST_SLOTS {
        return Err(wrong(
            "max",
            max,
            format!("it must be at most {MOST_SLOTS}"),
        ));
    }
    Ok(())
}

pub(crate) fn wrong(
    field: &'static str,
    value: impl ToString,
    rule: impl Into<String>,
) -> ConfigError {
    ConfigError {
        field,
        value: value.to_string(),
        rule: rule.into(),
    }
}
