//! What the page gets, as JSON, and the text of an incident.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cenote::pool::Histogram;

use crate::diagnosis::{Picture, diagnose, oldest};
use crate::history::{History, Second};
use crate::json::{Object, object};
use crate::recorder::{Recorder, Seen, lock};
use crate::sizing::{Size, Verdict, judge};
use crate::text::{count, duration, thousands};

/// How many groups of holders and of waiting calls are shown.
const MOST_GROUPS: usize = 12;
/// How many lines and statements are shown.
const MOST_NAMES: usize = 10;
/// How many events are shown.
const MOST_EVENTS: usize = 40;
/// The verdict about the size is about this many seconds.
const SIZED_SECONDS: usize = 5 * 60;

/// Writes the state of the handle and the seconds from number `since` on. Returns the number of the next second.
pub(crate) fn write(recorder: &Recorder, since: u64, out: &mut String) -> u64 {
    // Copied, so that no sample waits for the formatting of what is not history.
    let seen = recorder.look(|_, seen| seen.clone());
    let picture = recorder.picture(&seen);
    recorder.look(|history, _| {
        object(out, |o| {
            write_handle(recorder, o);
            write_now(recorder, &picture, &seen, o);
            write_past(recorder, history, &picture, o);
            o.flag("full", since == 0);
            o.list("seconds", history.since(since), |out, second| {
                second.write(out)
            });
        });
        history.next()
    })
}

fn write_handle(recorder: &Recorder, o: &mut Object<'_>) {
    let db = &recorder.db;
    o.text("name", &db.metrics_name());
    o.text("driver", db.driver_name());
    o.whole("uptime", recorder.uptime().as_secs());
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    o.whole("now", millis(now.unwrap_or_default()));
}

fn write_now(recorder: &Recorder, picture: &Picture, seen: &Seen, o: &mut Object<'_>) {
    let diagnosis = diagnose(picture);
    o.object("diagnosis", |o| {
        o.text("level", diagnosis.level.name());
        o.text("text", &diagnosis.text);
    });
    let status = &seen.status;
    o.object("status", |o| {
        for (name, number) in [
            ("max", status.max),
            ("active", status.active),
            ("idle", status.idle),
            ("creating", status.creating),
            ("waiting", status.waiting),
        ] {
            o.whole(name, whole(number));
        }
        o.text("breaker", &status.breaker.to_string());
        o.flag("closed", status.closed);
        o.whole("oldest", millis(oldest(picture)));
    });
    let groups = &picture.holders;
    o.list("holders", groups.iter().take(MOST_GROUPS), |out, group| {
        object(out, |o| {
            o.text("line", &group.line);
            o.whole("count", whole(group.count));
            o.maybe("pin", group.pin.map(|pin| pin.to_string()).as_deref());
            o.text("purpose", &group.purpose());
            if group.shared_by > 0 {
                o.whole("sharedBy", whole(group.shared_by));
            }
            o.whole("oldest", millis(group.oldest));
            o.flag("stuck", group.stuck > 0);
            if let Some(statement) = &group.statement {
                o.text("statement", summary_or_other(&statement.summary));
                let text = recorder.shows_statements.then_some(statement.text.as_str());
                o.maybe("text", text);
                o.flag("running", statement.running);
                o.whole("age", millis(statement.age));
            }
        });
    });
    o.whole("moreHolders", more(groups.iter().map(|group| group.count)));
    let groups = &picture.queue;
    o.list("queue", groups.iter().take(MOST_GROUPS), |out, group| {
        object(out, |o| {
            o.text("line", &group.line);
            o.whole("count", whole(group.count));
            o.text("reason", &group.reason.to_string());
            o.whole("oldest", millis(group.oldest));
        });
    });
    o.whole("moreQueued", more(groups.iter().map(|group| group.count)));
    seen.servers.write(o);
}

fn write_past(recorder: &Recorder, history: &History, picture: &Picture, o: &mut Object<'_>) {
    let lines = history.top_lines(MOST_NAMES);
    o.list("lines", &lines.first, |out, (line, held)| {
        object(out, |o| {
            o.text("line", line);
            o.whole("ms", millis(*held));
        });
    });
    o.whole("otherLines", millis(lines.other));
    let statements = history.top_statements(MOST_NAMES);
    o.list(
        "statements",
        &statements.first,
        |out, ((summary, text), ran)| {
            object(out, |o| {
                o.text("summary", summary_or_other(summary));
                o.maybe("text", recorder.shows_statements.then_some(text));
                o.whole("ms", millis(*ran));
            });
        },
    );
    o.whole("otherStatements", millis(statements.other));
    let timings = &history.totals().timings;
    o.object("timings", |o| {
        for (name, histogram) in [
            ("statements", &timings.statements),
            ("failed", &timings.failed_statements),
            ("waitQueue", &timings.pool.wait_queue),
            ("waitConnect", &timings.pool.wait_create),
            ("waitCheck", &timings.pool.wait_check),
            ("connect", &timings.pool.create),
            ("hold", &timings.pool.usage),
        ] {
            o.object(name, |o| write_histogram(histogram, o));
        }
    });
    o.list("errors", errors(history), |out, error| {
        object(out, |o| {
            o.text("what", error.0);
            o.whole("recent", error.1);
            o.whole("total", error.2);
        });
    });
    o.maybe("connectError", picture.connect_error.as_deref());
    let events = lock(&recorder.events).newest_first();
    o.list("events", events.iter().take(MOST_EVENTS), |out, event| {
        object(out, |o| {
            o.whole("at", millis(event.at));
            o.whole("count", event.count);
            o.text("level", event.level.name());
            o.text("text", &event.text);
        });
    });
    let verdict = verdict(history, picture);
    o.object("sizing", |o| {
        o.text(
            "level",
            match verdict.size {
                Size::TooSmall | Size::NotTheProblem => "warning",
                _ => "ok",
            },
        );
        o.text("text", &verdict.text);
        o.text("arithmetic", &verdict.arithmetic);
    });
}

fn write_histogram(histogram: &Histogram, o: &mut Object<'_>) {
    o.whole("count", histogram.count());
    for (name, share) in [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)] {
        o.number(name, histogram.quantile(share).as_secs_f64() * 1e3);
    }
    o.number("max", histogram.max().as_secs_f64() * 1e3);
}

/// What failed: the name, how often in the kept time, how often since the handle was opened.
fn errors(history: &History) -> [(&'static str, u64, u64); 4] {
    let totals = history.totals();
    let counters = &totals.counters;
    let recent = |count: fn(&Second) -> u64| history.sum(count);
    [
        (
            "Statements failed",
            recent(|second| second.failed),
            totals.timings.failed_statements.count(),
        ),
        (
            "Waits timed out",
            recent(|second| second.timed_out),
            counters.timed_out,
        ),
        (
            "Calls refused, queue full",
            recent(|second| second.rejected),
            counters.rejected,
        ),
        (
            "Connects failed",
            recent(|second| second.connects_failed),
            counters.create_failed,
        ),
    ]
}

fn verdict(history: &History, picture: &Picture) -> Verdict {
    let stuck = picture.holders.iter().map(|group| group.stuck).sum();
    judge(&history.load(SIZED_SECONDS, picture.max, stuck))
}

/// Returns a text about this moment that can be pasted into a ticket. It contains no statement text, no parameter and no
/// credential.
pub(crate) fn incident(recorder: &Recorder) -> String {
    let seen = recorder.look(|_, seen| seen.clone());
    let picture = recorder.picture(&seen);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let mut text = String::new();
    // Writing into a string cannot fail.
    let mut put = |line: String| {
        let _ = writeln!(text, "{line}");
    };
    put(format!(
        "{} ({}), unix time {}",
        recorder.db.metrics_name(),
        recorder.db.driver_name(),
        now.as_secs()
    ));
    put(format!("{}.", diagnose(&picture).text));
    put(format!("Pool: {}", seen.status));
    put(String::new());
    put(format!(
        "Held ({})",
        count(seen.status.active, "connection")
    ));
    for group in picture.holders.iter().take(MOST_GROUPS) {
        let purpose = group.purpose();
        let statement = group.statement.as_ref().map(|it| {
            let does = if it.running { "runs" } else { "last ran" };
            format!(
                ", {does} {} since {}",
                summary_or_other(&it.summary),
                duration(it.age)
            )
        });
        put(format!(
            "  {} × {}: {purpose}, oldest {}{}",
            group.count,
            group.line,
            duration(group.oldest),
            statement.unwrap_or_default()
        ));
    }
    if let more @ 1.. = more(picture.holders.iter().map(|group| group.count)) {
        put(format!("  and {} at other lines", thousands(more)));
    }
    put(format!("Waiting ({})", count(seen.status.waiting, "call")));
    for group in picture.queue.iter().take(MOST_GROUPS) {
        put(format!(
            "  {} × {}: {}, oldest {}",
            group.count,
            group.line,
            group.reason,
            duration(group.oldest)
        ));
    }
    if let more @ 1.. = more(picture.queue.iter().map(|group| group.count)) {
        put(format!("  and {} at other lines", thousands(more)));
    }
    seen.servers.tell(&mut put);
    recorder.look(|history, _| {
        put("Held time by line, 15 minutes, sampled".to_owned());
        for (line, held) in history.top_lines(MOST_NAMES).first {
            put(format!("  {line}: {}", duration(held)));
        }
        put("Statements by time, 15 minutes, sampled".to_owned());
        for ((summary, _), ran) in history.top_statements(MOST_NAMES).first {
            put(format!(
                "  {}: {}",
                summary_or_other(&summary),
                duration(ran)
            ));
        }
        put("Errors in 15 minutes".to_owned());
        for (what, recent, _) in errors(history) {
            put(format!("  {what}: {}", thousands(recent)));
        }
        let verdict = verdict(history, &picture);
        put(format!("Size: {} ({})", verdict.text, verdict.arithmetic));
    });
    put("Events, newest first".to_owned());
    for event in lock(&recorder.events)
        .newest_first()
        .iter()
        .take(MOST_EVENTS)
    {
        let ago = duration(now.saturating_sub(event.at));
        let times = match event.count {
            1 => String::new(),
            times => format!(" (× {})", thousands(times)),
        };
        put(format!("  {ago} ago: {}{times}", event.text));
    }
    text
}

/// Returns how many members the groups have that are not shown.
fn more(counts: impl Iterator<Item = usize>) -> u64 {
    whole(counts.skip(MOST_GROUPS).sum())
}

fn summary_or_other(summary: &str) -> &str {
    match summary {
        "" => "other statement",
        summary => summary,
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn whole(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
