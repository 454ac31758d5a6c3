//! One sentence that says how a pool is.

use std::time::Duration;

use cenote::pool::BreakerState;
use cenote::{PinReason, QueueReason};

use crate::text::{count, duration};

/// A connection that is held for longer than this, while its statement does not run, is probably not used.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// A queue that lasts longer than this is a problem.
const PATIENCE: Duration = Duration::from_millis(500);

/// Connections that the same line holds in the same way.
#[derive(Clone, Debug)]
pub(crate) struct HolderGroup {
    pub(crate) line: String,
    pub(crate) pin: Option<PinReason>,
    pub(crate) count: usize,
    /// How many reads of several tasks are in flight on them.
    pub(crate) shared_by: usize,
    pub(crate) oldest: Duration,
    /// How many of them are held for long and run no statement.
    pub(crate) stuck: usize,
    /// The statement of the oldest: summary, masked text, whether it runs, and its age.
    pub(crate) statement: Option<GroupStatement>,
}

impl HolderGroup {
    /// Returns what the connections are held for.
    pub(crate) fn purpose(&self) -> String {
        match (self.pin, self.shared_by) {
            (Some(pin), _) => pin.to_string(),
            (None, 0) => "one call".to_owned(),
            (None, reads) => format!("shared by {}", count(reads, "read")),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct GroupStatement {
    pub(crate) summary: String,
    pub(crate) text: String,
    pub(crate) running: bool,
    pub(crate) age: Duration,
}

/// Calls of the same line that wait for the same thing.
#[derive(Clone, Debug)]
pub(crate) struct QueueGroup {
    pub(crate) line: String,
    pub(crate) reason: QueueReason,
    pub(crate) count: usize,
    pub(crate) oldest: Duration,
}

/// The state of a handle at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Picture {
    pub(crate) max: usize,
    pub(crate) active: usize,
    pub(crate) creating: usize,
    pub(crate) waiting: usize,
    pub(crate) breaker: BreakerState,
    pub(crate) closed: bool,
    pub(crate) holders: Vec<HolderGroup>,
    pub(crate) queue: Vec<QueueGroup>,
    /// The last failed connect, if none has succeeded since.
    pub(crate) connect_error: Option<String>,
    /// Why no host gets connections.
    pub(crate) no_host: Option<String>,
    /// Why no replica gets reads.
    pub(crate) no_replica: Option<String>,
}

/// How urgent a diagnosis is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Level {
    Ok,
    Warning,
    Bad,
}

impl Level {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Bad => "bad",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Diagnosis {
    pub(crate) level: Level,
    pub(crate) text: String,
}

/// Returns the most important thing about a handle. The first rule that applies decides.
pub(crate) fn diagnose(picture: &Picture) -> Diagnosis {
    let (level, text) = sentence(picture);
    Diagnosis { level, text }
}

fn sentence(picture: &Picture) -> (Level, String) {
    let Picture { max, active, .. } = *picture;
    if picture.closed {
        return (
            Level::Bad,
            "The handle is closed: every call fails".to_owned(),
        );
    }
    let failed = picture.connect_error.as_deref();
    match picture.breaker {
        BreakerState::Open => {
            let why = failed.map(|why| format!(". The last connect failed: {why}"));
            let text = format!(
                "The circuit breaker is open: calls fail at once{}",
                why.unwrap_or_default()
            );
            return (Level::Bad, text);
        }
        BreakerState::HalfOpen => {
            let text = "The circuit breaker is half-open: a few calls probe the database";
            return (Level::Warning, text.to_owned());
        }
        _ => {}
    }
    let waiting = waiting(picture);
    if let Some(why) = failed {
        let text = match picture.waiting {
            0 => format!("Cannot connect: {why}"),
            _ => format!("Cannot connect, {waiting}: {why}"),
        };
        return (Level::Bad, text);
    }
    if let Some(why) = &picture.no_host {
        return match picture.waiting {
            0 => (Level::Warning, format!("No host fits: {why}")),
            _ => (Level::Bad, format!("No host fits, {waiting}: {why}")),
        };
    }
    let holds = holds(picture);
    let oldest = oldest(picture);
    if picture.waiting > 0 {
        let level = match oldest >= PATIENCE {
            true => Level::Bad,
            false => Level::Warning,
        };
        let reason = picture.queue.first().map(|group| group.reason);
        let text = match reason {
            Some(QueueReason::Writers) => {
                format!(
                    "{} waiting to write (one writer at a time), oldest {}; {holds}",
                    picture.waiting,
                    duration(oldest)
                )
            }
            Some(QueueReason::Connecting) => {
                format!(
                    "{} being opened, {waiting}",
                    count(picture.creating, "connection")
                )
            }
            _ => format!("{holds}, {waiting}"),
        };
        return (level, text);
    }
    let stuck: usize = picture.holders.iter().map(|group| group.stuck).sum();
    if let Some(worst) = picture.holders.iter().max_by_key(|group| group.stuck)
        && worst.stuck > 0
    {
        let level = match stuck * 2 >= max {
            true => Level::Bad,
            false => Level::Warning,
        };
        let text = format!(
            "{} of {max} held by {} for up to {} without running a statement",
            worst.stuck,
            worst.line,
            duration(worst.oldest)
        );
        return (level, text);
    }
    if active >= max {
        return (Level::Warning, format!("{holds}, nobody waits yet"));
    }
    if let Some(why) = &picture.no_replica {
        let text = format!("No replica gets reads, the primary serves them: {why}");
        return (Level::Warning, text);
    }
    (
        Level::Ok,
        format!("Healthy: {active} of {max} connections in use, nobody waits"),
    )
}

/// "9 of 10 held by src/x.rs:41", or how many lines share the connections.
fn holds(picture: &Picture) -> String {
    let Picture { max, active, .. } = *picture;
    let mut lines: Vec<(&str, usize)> = Vec::new();
    for group in &picture.holders {
        match lines.iter_mut().find(|(line, _)| *line == group.line) {
            Some((_, held)) => *held += group.count,
            None => lines.push((&group.line, group.count)),
        }
    }
    lines.sort_by_key(|&(_, held)| std::cmp::Reverse(held));
    match lines.as_slice() {
        [] => format!("{active} of {max} in use"),
        [(line, held), ..] if *held * 2 >= active || lines.len() == 1 => {
            format!("{held} of {max} held by {line}")
        }
        [(line, held), ..] => format!(
            "{active} of {max} held by {}, most of them ({held}) by {line}",
            count(lines.len(), "line")
        ),
    }
}

/// "37 waiting, oldest 4.2 s".
fn waiting(picture: &Picture) -> String {
    let oldest = duration(oldest(picture));
    format!("{} waiting, oldest {oldest}", picture.waiting)
}

pub(crate) fn oldest(picture: &Picture) -> Duration {
    let ages = picture.queue.iter().map(|group| group.oldest);
    ages.max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(line: &str, count: usize, seconds: u64, stuck: usize) -> HolderGroup {
        HolderGroup {
            line: line.to_owned(),
            pin: Some(PinReason::Transaction),
            count,
            shared_by: 0,
            oldest: Duration::from_secs(seconds),
            stuck,
            statement: None,
        }
    }

    fn queued(reason: QueueReason, count: usize, millis: u64) -> QueueGroup {
        QueueGroup {
            line: "src/api.rs:7".to_owned(),
            reason,
            count,
            oldest: Duration::from_millis(millis),
        }
    }

    fn healthy() -> Picture {
        Picture {
            max: 10,
            active: 3,
            creating: 0,
            waiting: 0,
            breaker: BreakerState::Closed,
            closed: false,
            holders: vec![held("src/x.rs:41", 2, 1, 0), held("src/y.rs:2", 1, 1, 0)],
            queue: Vec::new(),
            connect_error: None,
            no_host: None,
            no_replica: None,
        }
    }

    #[track_caller]
    fn says(picture: &Picture, level: Level, text: &str) {
        let diagnosis = diagnose(picture);
        assert_eq!((diagnosis.level, diagnosis.text.as_str()), (level, text));
    }

    #[test]
    fn healthy_pool_is_called_healthy() {
        let text = "Healthy: 3 of 10 connections in use, nobody waits";
        says(&healthy(), Level::Ok, text);
    }

    #[test]
    fn full_pool_names_the_line_that_holds_most() {
        let mut picture = Picture {
            active: 10,
            waiting: 37,
            holders: vec![held("src/x.rs:41", 9, 60, 9), held("src/y.rs:2", 1, 1, 0)],
            queue: vec![queued(QueueReason::Full, 37, 4200)],
            ..healthy()
        };
        let text = "9 of 10 held by src/x.rs:41, 37 waiting, oldest 4.2 s";
        says(&picture, Level::Bad, text);
        picture.queue = vec![queued(QueueReason::Full, 37, 20)];
        assert_eq!(diagnose(&picture).level, Level::Warning, "a short wait");
        picture.holders = (0..10)
            .map(|n| held(&format!("src/{n}.rs:1"), 1, 1, 0))
            .collect();
        let text =
            "10 of 10 held by 10 lines, most of them (1) by src/0.rs:1, 37 waiting, oldest 20 ms";
        says(&picture, Level::Warning, text);
    }

    #[test]
    fn two_pins_of_one_line_count_together() {
        let picture = Picture {
            active: 10,
            waiting: 1,
            holders: vec![
                held("src/y.rs:2", 4, 1, 0),
                held("src/x.rs:41", 3, 1, 0),
                HolderGroup {
                    pin: None,
                    ..held("src/x.rs:41", 3, 1, 0)
                },
            ],
            queue: vec![queued(QueueReason::Full, 1, 900)],
            ..healthy()
        };
        let text = "6 of 10 held by src/x.rs:41, 1 waiting, oldest 900 ms";
        says(&picture, Level::Bad, text);
    }

    #[test]
    fn leak_is_named_while_nobody_waits() {
        let mut picture = Picture {
            active: 4,
            holders: vec![held("src/x.rs:41", 4, 95, 4)],
            ..healthy()
        };
        let text = "4 of 10 held by src/x.rs:41 for up to 1 min 35 s without running a statement";
        says(&picture, Level::Warning, text);
        picture.holders = vec![held("src/x.rs:41", 9, 95, 9)];
        assert_eq!(diagnose(&picture).level, Level::Bad);
    }

    #[test]
    fn each_reason_of_a_wait_has_its_sentence() {
        let picture = Picture {
            waiting: 5,
            creating: 2,
            queue: vec![queued(QueueReason::Connecting, 5, 80)],
            ..healthy()
        };
        let text = "2 connections being opened, 5 waiting, oldest 80 ms";
        says(&picture, Level::Warning, text);
        let picture = Picture {
            queue: vec![queued(QueueReason::Writers, 5, 900)],
            ..picture
        };
        let text =
            "5 waiting to write (one writer at a time), oldest 900 ms; 2 of 10 held by src/x.rs:41";
        says(&picture, Level::Bad, text);
        let picture = Picture {
            connect_error: Some("connection refused (3 failures in a row)".to_owned()),
            queue: vec![queued(QueueReason::BackingOff, 5, 900)],
            ..picture
        };
        let text =
            "Cannot connect, 5 waiting, oldest 900 ms: connection refused (3 failures in a row)";
        says(&picture, Level::Bad, text);
    }

    #[test]
    fn missing_host_and_missing_replica_are_told() {
        let mut picture = Picture {
            no_replica: Some("db2 too far behind".to_owned()),
            ..healthy()
        };
        let text = "No replica gets reads, the primary serves them: db2 too far behind";
        says(&picture, Level::Warning, text);
        picture.no_host = Some("db1 no answer, db2 standby".to_owned());
        let text = "No host fits: db1 no answer, db2 standby";
        says(&picture, Level::Warning, text);
        picture.waiting = 5;
        picture.queue = vec![queued(QueueReason::Connecting, 5, 80)];
        let text = "No host fits, 5 waiting, oldest 80 ms: db1 no answer, db2 standby";
        says(&picture, Level::Bad, text);
    }

    #[test]
    fn shared_connections_are_held_by_their_reads() {
        let mut group = held("src/x.rs:41", 2, 1, 0);
        assert_eq!(group.purpose(), "transaction");
        (group.pin, group.shared_by) = (None, 14);
        assert_eq!(group.purpose(), "shared by 14 reads");
        group.shared_by = 0;
        assert_eq!(group.purpose(), "one call");
    }

    #[test]
    fn breaker_and_close_come_before_everything() {
        let mut picture = healthy();
        picture.breaker = BreakerState::HalfOpen;
        assert_eq!(diagnose(&picture).level, Level::Warning);
        picture.breaker = BreakerState::Open;
        let text = "The circuit breaker is open: calls fail at once";
        says(&picture, Level::Bad, text);
        picture.closed = true;
        says(
            &picture,
            Level::Bad,
            "The handle is closed: every call fails",
        );
    }

    #[test]
    fn full_pool_without_a_queue_is_a_warning() {
        let picture = Picture {
            active: 10,
            holders: vec![held("src/x.rs:41", 10, 1, 0)],
            ..healthy()
        };
        let text = "10 of 10 held by src/x.rs:41, nobody waits yet";
        says(&picture, Level::Warning, text);
    }
}
