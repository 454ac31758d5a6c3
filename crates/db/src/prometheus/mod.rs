//! The metrics of handles as text for Prometheus, from the histograms and counters that a handle always keeps.
//!
//! The names are those of OpenTelemetry's semantic conventions, as Prometheus spells them, so that a dashboard works with
//! this text and with the metrics of `cenote-otel`. What the conventions do not name begins with `cenote_`, and so does
//! `cenote_connections`: Prometheus keeps the end of `db_client_connection_count` for histograms.
//!
//! Every series has the label `db_client_connection_pool_name` ([`Db::metrics_name`]); no label has a value that comes from
//! SQL, so the number of series of a handle is bounded. A handle with several hosts has series for each of them, with the label
//! `cenote_host`, and each replica with `cenote_replica`; one with shared connections has theirs. Others have none of these. The bounds of histograms are ends of [buckets](crate::pool::Bucket),
//! so the counts are exact. `db_client_connection_use_time_seconds` is a sample of one use in 64.
//!
//! # Examples
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> cenote::Result<()> {
//! let db = cenote::Db::builder("sqlite:file:prometheus-doc?mode=memory&cache=shared").name("shop").open().await?;
//! db.query("SELECT 1", ()).await?;
//! let text = cenote::prometheus::text([&db]);
//! assert!(text.contains(r#"db_client_connection_max{db_client_connection_pool_name="shop"} 10"#));
//! # Ok(()) }
//! ```

mod servers;

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::time::Duration;

use cenote_pool::{BreakerState, Counters, DestroyReason, Histogram, Status};

use crate::{Db, DbTimings, HostStatus, PrimaryReads, ReplicaStatus, SharedConnections};

/// The content type of the text, for the header of an HTTP response.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The upper bounds of histograms: 16 µs, and four times as much each, to 17 s. Each is the end of a bucket: a nanosecond
/// before a power of two.
const BOUNDS: [u32; 11] = [14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34];

/// Returns the metrics of these handles. Give each handle a [name](crate::Builder::name) if two of them have the same
/// address: of handles with the same name only the first is shown, because Prometheus refuses a series that occurs
/// twice.
pub fn text<'d>(handles: impl IntoIterator<Item = &'d Db>) -> String {
    let mut seen: Vec<Snapshot> = Vec::new();
    for db in handles {
        let snapshot = Snapshot::of(db);
        if seen.iter().all(|other| other.name != snapshot.name) {
            seen.push(snapshot);
        }
    }
    let mut text = String::new();
    for metric in METRICS.iter().chain(servers::METRICS) {
        metric.write(&mut text, &seen);
    }
    text
}

/// The numbers of one handle.
struct Snapshot {
    name: String,
    status: Status,
    counters: Counters,
    timings: DbTimings,
    hosts: Vec<HostStatus>,
    replicas: Vec<ReplicaStatus>,
    primary_reads: PrimaryReads,
    shared: Option<SharedConnections>,
}

impl Snapshot {
    fn of(db: &Db) -> Self {
        Snapshot {
            name: db.metrics_name(),
            status: db.status(),
            counters: db.counters(),
            timings: db.timings(),
            hosts: db.hosts(),
            replicas: db.replicas(),
            primary_reads: db.primary_reads(),
            shared: db.shared_connections(),
        }
    }
}

/// One metric: its name, its help text, and what it shows of a handle.
struct Metric {
    name: &'static str,
    help: &'static str,
    values: Values,
}

/// A series has labels besides the name of the pool, and a value.
enum Values {
    Gauge(fn(&Snapshot) -> Vec<(Labels<'_>, u64)>),
    /// A gauge in seconds.
    Seconds(fn(&Snapshot) -> Vec<(Labels<'_>, Duration)>),
    Counter(fn(&Snapshot) -> Vec<(Labels<'_>, u64)>),
    Histogram(fn(&Snapshot) -> Vec<(Labels<'_>, &Histogram)>),
}

type Labels<'s> = Vec<(&'static str, Cow<'s, str>)>;

fn no_label() -> Labels<'static> {
    Vec::new()
}

fn label<'s>(name: &'static str, value: impl Into<Cow<'s, str>>) -> Labels<'s> {
    vec![(name, value.into())]
}

const METRICS: &[Metric] = &[
    Metric {
        name: "cenote_connections",
        help: "Connections by what they do.",
        values: Values::Gauge(|of| {
            let state = |state| label("db_client_connection_state", state);
            vec![
                (state("idle"), number(of.status.idle)),
                (state("used"), number(of.status.active)),
                (state("connecting"), number(of.status.creating)),
            ]
        }),
    },
    Metric {
        name: "db_client_connection_max",
        help: "The most connections that may be open.",
        values: Values::Gauge(|of| vec![(no_label(), number(of.status.max))]),
    },
    Metric {
        name: "db_client_connection_idle_min",
        help: "The connections that stay open while they are idle.",
        values: Values::Gauge(|of| vec![(no_label(), number(of.status.min))]),
    },
    Metric {
        name: "db_client_connection_idle_max",
        help: "The most connections that may be idle.",
        values: Values::Gauge(|of| vec![(no_label(), number(of.status.max))]),
    },
    Metric {
        name: "db_client_connection_pending_requests",
        help: "Calls that wait for a connection, or to write.",
        values: Values::Gauge(|of| vec![(no_label(), number(of.status.waiting))]),
    },
    Metric {
        name: "cenote_breaker_open",
        help: "1 unless the circuit breaker is closed.",
        values: Values::Gauge(|of| {
            let is_open = of.status.breaker != BreakerState::Closed;
            vec![(no_label(), u64::from(is_open))]
        }),
    },
    Metric {
        name: "db_client_connection_timeouts_total",
        help: "Calls that timed out waiting for a connection.",
        values: Values::Counter(|of| vec![(no_label(), of.counters.timed_out)]),
    },
    Metric {
        name: "cenote_acquires_total",
        help: "Connections handed to calls.",
        values: Values::Counter(|of| vec![(no_label(), of.counters.acquired)]),
    },
    Metric {
        name: "cenote_acquires_cancelled_total",
        help: "Calls that were dropped while they waited for a connection.",
        values: Values::Counter(|of| vec![(no_label(), of.counters.cancelled)]),
    },
    Metric {
        name: "cenote_connects_failed_total",
        help: "Connections that could not be opened.",
        values: Values::Counter(|of| vec![(no_label(), of.counters.create_failed)]),
    },
    Metric {
        name: "cenote_connections_closed_total",
        help: "Connections that left the pool, by the reason.",
        values: Values::Counter(|of| {
            let closed = |(reason, text)| {
                let count = of.counters.destroyed_for(reason);
                (label("reason", text), count)
            };
            REASONS.iter().copied().map(closed).collect()
        }),
    },
    Metric {
        name: "db_client_connection_wait_time_seconds",
        help: "The wait of calls that got a connection. A free connection counts as no wait.",
        values: Values::Histogram(|of| vec![(no_label(), &of.timings.pool.wait)]),
    },
    Metric {
        name: "cenote_waits_seconds",
        help: "Of these: calls that had to wait, by what they waited for.",
        values: Values::Histogram(|of| {
            let pool = &of.timings.pool;
            vec![
                (label("cause", "queue"), &pool.wait_queue),
                (label("cause", "connect"), &pool.wait_create),
                (label("cause", "check"), &pool.wait_check),
            ]
        }),
    },
    Metric {
        name: "db_client_connection_create_time_seconds",
        help: "The time that opening a connection took.",
        values: Values::Histogram(|of| vec![(no_label(), &of.timings.pool.create)]),
    },
    Metric {
        name: "db_client_connection_use_time_seconds",
        help: "The time between taking a connection and giving it back: a sample of one use in 64.",
        values: Values::Histogram(|of| vec![(no_label(), &of.timings.pool.usage)]),
    },
    Metric {
        name: "db_client_operation_duration_seconds",
        help: "The time from sending a statement to its answer.",
        values: Values::Histogram(|of| {
            vec![
                (label("outcome", "ok"), &of.timings.statements),
                (label("outcome", "failed"), &of.timings.failed_statements),
            ]
        }),
    },
];

const REASONS: &[(DestroyReason, &str)] = &[
    (DestroyReason::AcquireRejected, "acquire_rejected"),
    (DestroyReason::ReleaseRejected, "release_rejected"),
    (DestroyReason::Unhealthy, "unhealthy"),
    (DestroyReason::IdleTimeout, "idle_timeout"),
    (DestroyReason::Lifetime, "lifetime"),
    (DestroyReason::Evicted, "evicted"),
    (DestroyReason::Replaced, "replaced"),
    (DestroyReason::Shrunk, "shrunk"),
    (DestroyReason::Discarded, "discarded"),
    (DestroyReason::Detached, "detached"),
    (DestroyReason::Abandoned, "abandoned"),
    (DestroyReason::RuntimeGone, "runtime_gone"),
    (DestroyReason::Closed, "closed"),
];

impl Metric {
    /// Writes the series of all handles; nothing if no handle has any.
    fn write(&self, text: &mut String, handles: &[Snapshot]) {
        let kind = match self.values {
            Values::Gauge(_) | Values::Seconds(_) => "gauge",
            Values::Counter(_) => "counter",
            Values::Histogram(_) => "histogram",
        };
        let name = self.name;
        let before = text.len();
        put(text, format_args!("# HELP {name} {}\n", self.help));
        put(text, format_args!("# TYPE {name} {kind}\n"));
        let head = text.len();
        for handle in handles {
            match self.values {
                Values::Gauge(values) | Values::Counter(values) => {
                    for (labels, value) in values(handle) {
                        let labels = Written(handle, &labels, None);
                        put(text, format_args!("{name}{labels} {value}\n"));
                    }
                }
                Values::Seconds(values) => {
                    for (labels, value) in values(handle) {
                        let (labels, value) = (Written(handle, &labels, None), exact(value));
                        put(text, format_args!("{name}{labels} {value}\n"));
                    }
                }
                Values::Histogram(values) => {
                    for (labels, histogram) in values(handle) {
                        write_histogram(text, name, handle, &labels, histogram);
                    }
                }
            }
        }
        if text.len() == head {
            text.truncate(before);
        }
    }
}

fn write_histogram(
    text: &mut String,
    name: &str,
    of: &Snapshot,
    labels: &Labels<'_>,
    shown: &Histogram,
) {
    let mut buckets = shown.buckets().peekable();
    let mut below = 0;
    for power in BOUNDS {
        let bound = (1u64 << power) - 1;
        while let Some(bucket) = buckets.next_if(|bucket| bucket.end.as_nanos() <= bound.into()) {
            below += bucket.count;
        }
        let le = seconds(bound);
        let labels = Written(of, labels, Some(&le));
        put(text, format_args!("{name}_bucket{labels} {below}\n"));
    }
    let count = below + buckets.map(|bucket| bucket.count).sum::<u64>();
    let with_bound = Written(of, labels, Some("+Inf"));
    put(text, format_args!("{name}_bucket{with_bound} {count}\n"));
    let (labels, sum) = (Written(of, labels, None), exact(shown.sum()));
    put(
        text,
        format_args!("{name}_sum{labels} {sum}\n{name}_count{labels} {count}\n"),
    );
}

/// Returns a time in seconds, exactly.
fn exact(time: Duration) -> String {
    seconds(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// Returns nanoseconds as seconds, exactly.
fn seconds(nanos: u64) -> String {
    format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn put(text: &mut String, line: fmt::Arguments<'_>) {
    // Writing into a string cannot fail.
    let _ = text.write_fmt(line);
}

/// The labels of a series as text: the name of the pool, those of the series, and the bound of a bucket.
struct Written<'a>(&'a Snapshot, &'a Labels<'a>, Option<&'a str>);

impl fmt::Display for Written<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Written(handle, labels, bound) = self;
        out.write_str("{db_client_connection_pool_name=\"")?;
        write_value(out, &handle.name)?;
        for (name, value) in *labels {
            write!(out, "\",{name}=\"")?;
            write_value(out, value)?;
        }
        if let Some(bound) = bound {
            write!(out, "\",le=\"{bound}")?;
        }
        out.write_str("\"}")
    }
}

fn write_value(out: &mut fmt::Formatter<'_>, value: &str) -> fmt::Result {
    for letter in value.chars() {
        match letter {
            '"' => out.write_str("\\\"")?,
            '\\' => out.write_str("\\\\")?,
            '\n' => out.write_str("\\n")?,
            letter => out.write_char(letter)?,
        }
    }
    Ok(())
}
