//! The last rare events of a pool and of its servers. Equal ones that follow each other are one entry with a count.

use std::collections::VecDeque;
use std::panic::Location;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cenote::pool::{BreakerState, DestroyReason, Event};

use crate::diagnosis::Level;
use crate::servers::Change;
use crate::text::{duration, line};

/// How many entries are kept.
pub(crate) const MOST: usize = 100;

/// An event joins an equal one among this many, if that is not older than [`NEAR`].
const NEIGHBOURS: usize = 6;
const NEAR: Duration = Duration::from_secs(30);

/// The longest text of an entry, in characters.
const LONGEST: usize = 300;

/// An event that is shown.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// When it last happened, since 1970.
    pub(crate) at: Duration,
    pub(crate) count: u64,
    pub(crate) level: Level,
    pub(crate) text: String,
    kind: Kind,
}

/// What makes two events equal.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// What happened, and at which line.
    OfPool(&'static str, Option<&'static Location<'static>>),
    /// The text, which names the server.
    OfServer(String),
}

#[derive(Debug, Default)]
pub(crate) struct EventLog {
    entries: VecDeque<Entry>,
}

impl EventLog {
    /// Adds an event that happens now.
    pub(crate) fn add(&mut self, event: &Event) {
        if let Some((level, (what, line), text)) = describe(event) {
            self.add_at(since_1970(), level, Kind::OfPool(what, line), text);
        }
    }

    /// Adds what happens to a server now.
    pub(crate) fn add_change(&mut self, change: Change) {
        let kind = Kind::OfServer(change.text.clone());
        self.add_at(since_1970(), change.level, kind, change.text);
    }

    fn add_at(&mut self, at: Duration, level: Level, kind: Kind, text: String) {
        let mut near = self.entries.iter_mut().rev().take(NEIGHBOURS);
        let equal = near.find(|entry| entry.kind == kind && at.saturating_sub(entry.at) <= NEAR);
        if let Some(equal) = equal {
            (equal.at, equal.text) = (at, shortened(text));
            equal.count += 1;
            return;
        }
        if self.entries.len() == MOST {
            self.entries.pop_front();
        }
        self.entries.push_back(Entry {
            at,
            count: 1,
            level,
            text: shortened(text),
            kind,
        });
    }

    /// Returns the entries, newest first.
    pub(crate) fn newest_first(&self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = self.entries.iter().cloned().collect();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.at));
        entries
    }
}

fn since_1970() -> Duration {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default()
}

fn shortened(text: String) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

type OfPool = (&'static str, Option<&'static Location<'static>>);

fn describe(event: &Event) -> Option<(Level, OfPool, String)> {
    Some(match event {
        Event::Created { resource, took } => (
            Level::Ok,
            ("opened", None),
            format!("Connection {resource} opened in {}", duration(*took)),
        ),
        Event::CreateFailed { error, .. } => (
            Level::Bad,
            ("connect failed", None),
            format!("Connect failed: {error}"),
        ),
        Event::Destroyed {
            resource,
            reason,
            error,
        } => {
            let (level, kind, why) = closed(*reason);
            let error = error.as_ref().map(|error| format!(" ({error})"));
            let text = format!(
                "Connection {resource} closed: {why}{}",
                error.unwrap_or_default()
            );
            (level, (kind, None), text)
        }
        Event::HookFailed {
            resource, error, ..
        } => (
            Level::Bad,
            ("hook failed", None),
            format!("Connection {resource} failed a check: {error}"),
        ),
        Event::TimedOut { caller, .. } => (
            Level::Bad,
            ("timed out", Some(caller)),
            format!("{} timed out waiting for a connection", line(caller)),
        ),
        Event::LeakSuspected {
            caller, held_for, ..
        } => (
            Level::Warning,
            ("leak", Some(caller)),
            format!(
                "{} has held a connection for {}",
                line(caller),
                duration(*held_for)
            ),
        ),
        Event::BreakerChanged { from, to } => {
            let (level, kind) = match to {
                BreakerState::Open => (Level::Bad, "breaker opened"),
                BreakerState::HalfOpen => (Level::Warning, "breaker half-opened"),
                _ => (Level::Ok, "breaker closed"),
            };
            let text = format!("Circuit breaker: {from} → {to}");
            (level, (kind, None), text)
        }
        Event::StrategyPanicked { error } => (
            Level::Bad,
            ("strategy panicked", None),
            format!("The breaker's strategy panicked: {error}"),
        ),
        Event::Closed => (
            Level::Warning,
            ("closed", None),
            "The pool was closed".to_owned(),
        ),
        Event::Drained => (
            Level::Ok,
            ("drained", None),
            "The last connection of the closed pool is closed".to_owned(),
        ),
        _ => return None,
    })
}

fn closed(reason: DestroyReason) -> (Level, &'static str, &'static str) {
    match reason {
        DestroyReason::AcquireRejected => (
            Level::Warning,
            "a1",
            "it was lost or failed its check before use",
        ),
        DestroyReason::ReleaseRejected => (
            Level::Warning,
            "a2",
            "it was lost or could not be cleaned up after use",
        ),
        DestroyReason::Unhealthy => (Level::Warning, "a3", "it failed a health check"),
        DestroyReason::IdleTimeout => (Level::Ok, "a4", "it was idle for too long"),
        DestroyReason::Lifetime => (Level::Ok, "a5", "it reached its maximum lifetime"),
        DestroyReason::Evicted => (Level::Ok, "a6", "it was evicted"),
        DestroyReason::Replaced => (Level::Ok, "a7", "it was replaced"),
        DestroyReason::Shrunk => (Level::Ok, "a8", "the pool became smaller"),
        DestroyReason::Discarded => (Level::Warning, "a9", "its holder discarded it"),
        DestroyReason::Detached => (Level::Ok, "b1", "its holder detached it"),
        DestroyReason::Abandoned => (Level::Warning, "b2", "a check of it was dropped"),
        DestroyReason::RuntimeGone => (Level::Warning, "b3", "its runtime has shut down"),
        DestroyReason::Closed => (Level::Ok, "b4", "the pool was closed"),
        _ => (Level::Ok, "b5", "it left the pool"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(log: &mut EventLog, seconds: u64, kind: &'static str) {
        let at = Duration::from_secs(seconds);
        let text = format!("{kind} at {seconds}");
        log.add_at(at, Level::Ok, Kind::OfPool(kind, None), text);
    }

    #[test]
    fn equal_events_are_one_entry_with_a_count() {
        let mut log = EventLog::default();
        add(&mut log, 1, "opened");
        add(&mut log, 2, "timed out");
        add(&mut log, 3, "opened");
        add(&mut log, 60, "opened");
        let entries = log.newest_first();
        let shown: Vec<_> = entries.iter().map(|e| (e.text.as_str(), e.count)).collect();
        assert_eq!(
            shown,
            [
                ("opened at 60", 1),
                ("opened at 3", 2),
                ("timed out at 2", 1)
            ]
        );
    }

    #[test]
    fn hosts_that_come_and_go_are_told_apart() {
        let mut log = EventLog::default();
        for (host, to) in [(1, "no answer"), (2, "no answer"), (1, "standby")] {
            let change = Change {
                level: Level::Warning,
                text: format!("Host db{host}: {to}"),
            };
            log.add_change(change.clone());
            log.add_change(change);
        }
        let entries = log.newest_first();
        let shown: Vec<_> = entries.iter().map(|e| (e.text.as_str(), e.count)).collect();
        assert_eq!(
            shown,
            [
                ("Host db1: standby", 2),
                ("Host db2: no answer", 2),
                ("Host db1: no answer", 2)
            ]
        );
    }

    #[test]
    fn flood_of_events_stays_bounded() {
        let mut log = EventLog::default();
        for second in 0..10_000 {
            add(&mut log, second * 40, "opened");
        }
        assert_eq!(log.newest_first().len(), MOST);
        let long = "é".repeat(5000);
        log.add_at(
            Duration::from_secs(u64::from(u32::MAX)),
            Level::Bad,
            Kind::OfPool("x", None),
            long,
        );
        assert_eq!(log.newest_first()[0].text.chars().count(), LONGEST + 1);
    }
}
