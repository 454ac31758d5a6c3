//! OpenTelemetry metrics of a [`cenote::Db`], by the names, units and attributes of the semantic conventions for
//! databases (v1.44).
//!
//! | metric | instrument | unit | attributes besides the pool's name |
//! |---|---|---|---|
//! | `db.client.connection.count` | observable up-down counter | `{connection}` | `db.client.connection.state` |
//! | `db.client.connection.idle.max`, `.idle.min`, `.max` | observable up-down counter | `{connection}` | |
//! | `db.client.connection.pending_requests` | observable up-down counter | `{request}` | |
//! | `db.client.connection.timeouts` | observable counter | `{timeout}` | |
//! | `db.client.connection.create_time`, `.wait_time`, `.use_time` | histogram | `s` | |
//! | `db.client.operation.duration` | histogram | `s` | `db.system.name`, `db.operation.name`, `error.type`, `db.response.status_code`, `server.address`, `server.port` |
//! | `db.client.response.returned_rows` | histogram | `{row}` | as before |
//! | `cenote.host.role`, `.usable` | observable gauge, 0 or 1 | | `cenote.host`; the first also `cenote.role` |
//! | `cenote.host.connections` | observable up-down counter | `{connection}` | `cenote.host` |
//! | `cenote.host.retired` | observable counter | `{retirement}` | `cenote.host` |
//! | `cenote.replica.usable` | observable gauge, 0 or 1 | | `cenote.replica` |
//! | `cenote.replica.lag` | observable gauge | `s` | `cenote.replica` |
//! | `cenote.replica.connections` | observable up-down counter | `{connection}` | `cenote.replica` |
//! | `cenote.replica.reads` | observable counter | `{read}` | `cenote.replica` |
//! | `cenote.primary.reads` | observable counter | `{read}` | `reason` |
//! | `cenote.shared.connections` | observable up-down counter | `{connection}` | |
//! | `cenote.shared.reads_in_flight` | observable up-down counter | `{read}` | |
//! | `cenote.shared.reads` | observable counter | `{read}` | |
//!
//! The conventions do not name those that begin with `cenote.`. A handle has those of hosts if its DSN names several or demands a
//! role ([`Db::hosts`]), those of replicas if it has any ([`Db::replicas`], [`Db::primary_reads`]), and those of shared connections
//! with `share_connections` ([`Db::shared_connections`]).
//!
//! All metrics but those of operations and rows have the attribute `db.client.connection.pool.name`: [`Db::metrics_name`].
//!
//! # Cost
//!
//! Counts cost nothing between two collections. Durations are recorded as they happen, only while [`Metrics`] lives. They
//! need a listener of the pool's events, so that every acquire and release takes the pool's lock meanwhile: in a program
//! with many short calls on many cores, use [`counts`] and the text of `cenote::prometheus` instead.
//!
//! # Cardinality
//!
//! No attribute contains SQL. Hosts and replicas are those of the configuration. `db.operation.name` is one of 36 words, `error.type` the name of a [`cenote::Kind`] or
//! `dropped`. A handle reports at most 64 different codes of errors; further ones are `_OTHER`.

mod servers;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use cenote::pool::{Event, Status, Subscription};
use cenote::{Db, StatementEvent, StatementSubscription};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Histogram, Meter};

/// The bounds that the conventions recommend for durations, in seconds.
const SECONDS: [f64; 9] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0];

/// The bounds that the conventions recommend for numbers of rows.
const ROWS: [f64; 12] = [
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0,
];

/// The most codes of errors that a handle reports.
const MOST_CODES: usize = 64;

/// The metrics of a handle while this lives. Dropped, nothing more is recorded, and the counts are no longer reported.
#[must_use = "metrics end when this is dropped"]
pub struct Metrics {
    _counts: Arc<Counts>,
    _statements: Option<StatementSubscription>,
    _connections: Option<Subscription>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// Reports counts and durations of a handle.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> cenote::Result<()> {
/// use opentelemetry::metrics::MeterProvider as _;
/// use opentelemetry_sdk::metrics::SdkMeterProvider;
///
/// let provider = SdkMeterProvider::builder().build(); // with a reader and an exporter
/// let db = cenote::Db::builder("sqlite:file:otel-doc?mode=memory&cache=shared").name("shop").open().await?;
/// let _metrics = cenote_otel::install(&db, &provider.meter("cenote"));
/// db.query("SELECT 1", ()).await?;
/// # Ok(()) }
/// ```
pub fn install(db: &Db, meter: &Meter) -> Metrics {
    let connections = ConnectionTimes::new(db, meter);
    let statements = StatementTimes::new(db, meter);
    Metrics {
        _statements: Some(db.on_statement(move |event| statements.record(event))),
        _connections: db
            .pool()
            .map(|pool| pool.on_event(move |event| connections.record(event))),
        ..counts(db, meter)
    }
}

/// Reports the counts of a handle without durations. Costs nothing between two collections.
pub fn counts(db: &Db, meter: &Meter) -> Metrics {
    let counts = Arc::new(Counts {
        db: db.clone(),
        attributes: vec![pool_name(db)],
    });
    counts.register(meter);
    counts.register_servers(meter);
    Metrics {
        _counts: counts,
        _statements: None,
        _connections: None,
    }
}

fn pool_name(db: &Db) -> KeyValue {
    KeyValue::new("db.client.connection.pool.name", db.metrics_name())
}

/// What observable instruments report. They hold it weakly: a callback cannot be removed from a meter.
struct Counts {
    db: Db,
    attributes: Vec<KeyValue>,
}

impl Counts {
    fn register(self: &Arc<Self>, meter: &Meter) {
        let weak = Arc::downgrade(self);
        let states = Weak::clone(&weak);
        meter
            .i64_observable_up_down_counter("db.client.connection.count")
            .with_unit("{connection}")
            .with_description("The number of connections that are in the state.")
            .with_callback(move |observer| {
                let Some(counts) = states.upgrade() else {
                    return;
                };
                let status = counts.db.status();
                for (state, count) in [
                    ("idle", status.idle),
                    ("used", status.active),
                    ("connecting", status.creating),
                ] {
                    let mut attributes = counts.attributes.clone();
                    attributes.push(KeyValue::new("db.client.connection.state", state));
                    observer.observe(number(count), &attributes);
                }
            })
            .build();
        type Gauge = (
            &'static str,
            &'static str,
            &'static str,
            fn(&Status) -> usize,
        );
        let gauges: [Gauge; 4] = [
            (
                "db.client.connection.idle.max",
                "{connection}",
                "The maximum number of idle open connections allowed.",
                |status| status.max,
            ),
            (
                "db.client.connection.idle.min",
                "{connection}",
                "The minimum number of idle open connections.",
                |status| status.min,
            ),
            (
                "db.client.connection.max",
                "{connection}",
                "The maximum number of open connections allowed.",
                |status| status.max,
            ),
            (
                "db.client.connection.pending_requests",
                "{request}",
                "The number of calls that wait for a connection.",
                |status| status.waiting,
            ),
        ];
        for (name, unit, description, value) in gauges {
            let weak = Weak::clone(&weak);
            meter
                .i64_observable_up_down_counter(name)
                .with_unit(unit)
                .with_description(description)
                .with_callback(move |observer| {
                    if let Some(counts) = weak.upgrade() {
                        let status = counts.db.status();
                        observer.observe(number(value(&status)), &counts.attributes);
                    }
                })
                .build();
        }
        meter
            .u64_observable_counter("db.client.connection.timeouts")
            .with_unit("{timeout}")
            .with_description("The number of calls that timed out waiting for a connection.")
            .with_callback(move |observer| {
                if let Some(counts) = weak.upgrade() {
                    observer.observe(counts.db.counters().timed_out, &counts.attributes);
                }
            })
            .build();
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn seconds(meter: &Meter, name: &'static str, description: &'static str) -> Histogram<f64> {
    meter
        .f64_histogram(name)
        .with_unit("s")
        .with_description(description)
        .with_boundaries(SECONDS.to_vec())
        .build()
}

/// The durations of a pool's connections.
struct ConnectionTimes {
    create: Histogram<f64>,
    wait: Histogram<f64>,
    usage: Histogram<f64>,
    attributes: Vec<KeyValue>,
    /// When each connection in use was taken: one entry for a connection, so bounded by the size of the pool.
    taken: Mutex<HashMap<u64, Instant>>,
}

impl ConnectionTimes {
    fn new(db: &Db, meter: &Meter) -> Self {
        ConnectionTimes {
            create: seconds(
                meter,
                "db.client.connection.create_time",
                "The time it took to create a new connection.",
            ),
            wait: seconds(
                meter,
                "db.client.connection.wait_time",
                "The time it took to obtain an open connection from the pool.",
            ),
            usage: seconds(
                meter,
                "db.client.connection.use_time",
                "The time between taking a connection and giving it back to the pool.",
            ),
            attributes: vec![pool_name(db)],
            taken: Mutex::default(),
        }
    }

    fn record(&self, event: &Event) {
        let attributes = &self.attributes;
        match event {
            Event::Created { took, .. } => self.create.record(took.as_secs_f64(), attributes),
            Event::Acquired {
                resource, waited, ..
            } => {
                self.wait.record(waited.as_secs_f64(), attributes);
                #[allow(
                    clippy::disallowed_methods,
                    reason = "OpenTelemetry has the machine's clock, too"
                )]
                let now = Instant::now();
                self.taken().insert(resource.get(), now);
            }
            Event::Released { resource } | Event::Destroyed { resource, .. } => {
                let taken = self.taken().remove(&resource.get());
                if let Some(taken) = taken {
                    self.usage.record(taken.elapsed().as_secs_f64(), attributes);
                }
            }
            _ => {}
        }
    }

    fn taken(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Instant>> {
        // Nothing that can panic runs under this lock.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The durations of a handle's statements.
struct StatementTimes {
    duration: Histogram<f64>,
    rows: Histogram<u64>,
    attributes: Vec<KeyValue>,
    codes: Mutex<HashSet<String>>,
}

impl StatementTimes {
    fn new(db: &Db, meter: &Meter) -> Self {
        let mut attributes = vec![KeyValue::new("db.system.name", db.system_name())];
        if let Some((address, port)) = db.server() {
            attributes.push(KeyValue::new("server.address", address.to_owned()));
            attributes.extend(port.map(|port| KeyValue::new("server.port", i64::from(port))));
        }
        StatementTimes {
            duration: seconds(
                meter,
                "db.client.operation.duration",
                "Duration of database client operations.",
            ),
            rows: meter
                .u64_histogram("db.client.response.returned_rows")
                .with_unit("{row}")
                .with_description(
                    "The actual number of records returned by the database operation.",
                )
                .with_boundaries(ROWS.to_vec())
                .build(),
            attributes,
            codes: Mutex::default(),
        }
    }

    fn record(&self, event: &StatementEvent<'_>) {
        let mut attributes = self.attributes.clone();
        if let Some(operation) = event.operation() {
            attributes.push(KeyValue::new("db.operation.name", operation));
        }
        if let Some(error) = event.error {
            attributes.push(KeyValue::new("error.type", format!("{:?}", error.kind())));
            let code = error.sql_state().map(str::to_owned);
            let code = code.or_else(|| error.code().map(|code| code.to_string()));
            attributes.extend(code.map(|code| {
                let code = self.bounded(code);
                KeyValue::new("db.response.status_code", code)
            }));
        }
        if event.dropped {
            attributes.push(KeyValue::new("error.type", "dropped"));
        }
        self.duration.record(event.took.as_secs_f64(), &attributes);
        if let Some(rows) = event.returned_rows {
            self.rows.record(rows, &attributes);
        }
    }

    /// Returns the code, or `_OTHER` if the handle has reported too many different ones: functions of an
    /// application can raise errors with codes of their own.
    fn bounded(&self, code: String) -> String {
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        if codes.contains(&code) {
            return code;
        }
        if codes.len() >= MOST_CODES {
            return "_OTHER".to_owned();
        }
        codes.insert(code.clone());
        code
    }
}
