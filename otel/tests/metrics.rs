//! The metrics as an exporter of the SDK gets them, against the table of the semantic conventions.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::{Command, Stdio};

use cenote::{Db, Result};
use cenote_testkit::Fake;
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, Metric, MetricData};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};

/// Name, instrument, unit and required attribute, as the conventions have them.
const TABLE: &[(&str, &str, &str, &str)] = &[
    (
        "db.client.connection.count",
        "up-down counter",
        "{connection}",
        "db.client.connection.state",
    ),
    (
        "db.client.connection.idle.max",
        "up-down counter",
        "{connection}",
        POOL,
    ),
    (
        "db.client.connection.idle.min",
        "up-down counter",
        "{connection}",
        POOL,
    ),
    (
        "db.client.connection.max",
        "up-down counter",
        "{connection}",
        POOL,
    ),
    (
        "db.client.connection.pending_requests",
        "up-down counter",
        "{request}",
        POOL,
    ),
    (
        "db.client.connection.timeouts",
        "counter",
        "{timeout}",
        POOL,
    ),
    ("db.client.connection.create_time", "histogram", "s", POOL),
    ("db.client.connection.wait_time", "histogram", "s", POOL),
    ("db.client.connection.use_time", "histogram", "s", POOL),
    (
        "db.client.operation.duration",
        "histogram",
        "s",
        "db.system.name",
    ),
    (
        "db.client.response.returned_rows",
        "histogram",
        "{row}",
        "db.system.name",
    ),
];
const POOL: &str = "db.client.connection.pool.name";

/// The same of hosts, replicas and shared connections, which the conventions do not name.
const SERVERS: &[(&str, &str, &str, &str)] = &[
    ("cenote.host.role", "gauge", "", "cenote.role"),
    ("cenote.host.usable", "gauge", "", HOST),
    (
        "cenote.host.connections",
        "up-down counter",
        "{connection}",
        HOST,
    ),
    ("cenote.host.retired", "counter", "{retirement}", HOST),
    ("cenote.replica.usable", "gauge", "", REPLICA),
    (
        "cenote.replica.connections",
        "up-down counter",
        "{connection}",
        REPLICA,
    ),
    ("cenote.replica.reads", "counter", "{read}", REPLICA),
    ("cenote.primary.reads", "counter", "{read}", "reason"),
    (
        "cenote.shared.connections",
        "up-down counter",
        "{connection}",
        POOL,
    ),
    (
        "cenote.shared.reads_in_flight",
        "up-down counter",
        "{read}",
        POOL,
    ),
    ("cenote.shared.reads", "counter", "{read}", POOL),
];
const HOST: &str = "cenote.host";
const REPLICA: &str = "cenote.replica";

/// Opens a handle with hosts, a replica and shared connections. Nothing connects.
async fn with_servers() -> Result<Db> {
    let db = Db::builder("pgsql:host=a,b,b;target_session_attrs=read-write;user=app");
    db.name("cluster")
        .replica("pgsql:host=b;dbname=shop;user=app")
        .share_connections(true)
        .open()
        .await
}

struct Exported {
    exporter: InMemoryMetricExporter,
    provider: SdkMeterProvider,
}

/// A series: its attributes, and its value or count.
type Series = (BTreeMap<String, String>, f64);

#[derive(Clone, Debug)]
struct Seen {
    instrument: &'static str,
    unit: String,
    series: Vec<Series>,
    bounds: Vec<f64>,
}

impl Exported {
    fn new() -> Self {
        let exporter = InMemoryMetricExporter::default();
        let reader = PeriodicReader::builder(exporter.clone()).build();
        let provider = SdkMeterProvider::builder().with_reader(reader).build();
        Exported { exporter, provider }
    }

    /// Collects all metrics now.
    fn collect(&self) -> BTreeMap<String, Seen> {
        self.exporter.reset();
        self.provider.force_flush().unwrap();
        let batches = self.exporter.get_finished_metrics().unwrap();
        let mut all = BTreeMap::new();
        for scope in batches.iter().flat_map(|batch| batch.scope_metrics()) {
            for metric in scope.metrics() {
                all.insert(metric.name().to_owned(), seen(metric));
            }
        }
        all
    }
}

fn seen(metric: &Metric) -> Seen {
    let mut seen = Seen {
        instrument: "",
        unit: metric.unit().to_owned(),
        series: Vec::new(),
        bounds: Vec::new(),
    };
    match metric.data() {
        AggregatedMetrics::I64(MetricData::Sum(sum)) => {
            seen.instrument = if sum.is_monotonic() {
                "counter"
            } else {
                "up-down counter"
            };
            for point in sum.data_points() {
                let value = i32::try_from(point.value()).unwrap();
                seen.series
                    .push((text_of(point.attributes()), value.into()));
            }
        }
        AggregatedMetrics::U64(MetricData::Sum(sum)) => {
            seen.instrument = if sum.is_monotonic() {
                "counter"
            } else {
                "up-down counter"
            };
            for point in sum.data_points() {
                let value = u32::try_from(point.value()).unwrap();
                seen.series
                    .push((text_of(point.attributes()), value.into()));
            }
        }
        AggregatedMetrics::I64(MetricData::Gauge(gauge)) => {
            seen.instrument = "gauge";
            for point in gauge.data_points() {
                let value = i32::try_from(point.value()).unwrap();
                seen.series
                    .push((text_of(point.attributes()), value.into()));
            }
        }
        AggregatedMetrics::F64(MetricData::Histogram(histogram)) => {
            seen.instrument = "histogram";
            for point in histogram.data_points() {
                let count = u32::try_from(point.count()).unwrap();
                seen.series
                    .push((text_of(point.attributes()), count.into()));
                seen.bounds = point.bounds().collect();
            }
        }
        AggregatedMetrics::U64(MetricData::Histogram(histogram)) => {
            seen.instrument = "histogram";
            for point in histogram.data_points() {
                let count = u32::try_from(point.count()).unwrap();
                seen.series
                    .push((text_of(point.attributes()), count.into()));
            }
        }
        other => panic!("{} is {other:?}", metric.name()),
    }
    seen
}

fn text_of<'a>(
    attributes: impl Iterator<Item = &'a opentelemetry::KeyValue>,
) -> BTreeMap<String, String> {
    attributes
        .map(|pair| (pair.key.to_string(), pair.value.to_string()))
        .collect()
}

#[tokio::test]
async fn names_units_and_attributes_are_those_of_the_table() -> Result<()> {
    let (fake, exported) = (Fake::new(), Exported::new());
    let db = fake.builder().name("shop").max(3).open().await?;
    let _metrics = cenote_otel::install(&db, &exported.provider.meter("cenote"));
    db.query("SELECT 1", ()).await?;
    let all = exported.collect();
    let expected: BTreeSet<_> = TABLE.iter().map(|row| row.0.to_owned()).collect();
    assert_eq!(all.keys().cloned().collect::<BTreeSet<_>>(), expected);
    for (name, instrument, unit, attribute) in TABLE {
        let seen = &all[*name];
        assert_eq!(
            (seen.instrument, &*seen.unit),
            (*instrument, *unit),
            "{name}"
        );
        assert!(!seen.series.is_empty(), "{name}");
        for (attributes, _) in &seen.series {
            assert!(
                attributes.contains_key(*attribute),
                "{name}: {attributes:?}"
            );
            if name.starts_with("db.client.connection.") {
                assert_eq!(attributes[POOL], "shop", "{name}");
            }
        }
    }
    assert_eq!(all["db.client.connection.max"].series[0].1, 3.0);
    let seconds = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0];
    assert_eq!(all["db.client.operation.duration"].bounds, seconds);
    Ok(())
}

#[tokio::test]
async fn servers_and_shared_connections_have_metrics() -> Result<()> {
    let exported = Exported::new();
    let db = with_servers().await?;
    let metrics = cenote_otel::counts(&db, &exported.provider.meter("cenote"));
    let all = exported.collect();
    for (name, instrument, unit, attribute) in SERVERS {
        let seen = &all[*name];
        let kind = (seen.instrument, &*seen.unit);
        assert_eq!(kind, (*instrument, *unit), "{name}");
        for (attributes, _) in &seen.series {
            assert!(attributes.contains_key(*attribute), "{name}: {seen:?}");
            assert_eq!(attributes[POOL], "cluster", "{name}");
        }
    }
    let own = all.keys().filter(|name| name.starts_with("cenote."));
    assert_eq!(own.count(), SERVERS.len(), "the lag is unknown: {all:?}");
    let hosts: BTreeSet<_> = all["cenote.host.role"]
        .series
        .iter()
        .map(|(of, value)| {
            assert_eq!(*value, 1.0);
            (&*of[HOST], &*of["cenote.role"])
        })
        .collect();
    let unknown = |host| (host, "unknown");
    let all_of_them = ["a:5432", "b:5432", "b:5432 #2"].map(unknown);
    assert_eq!(hosts, all_of_them.into());
    drop(metrics);
    assert!(exported.collect().is_empty());
    Ok(())
}

/// The names for Prometheus are those that its exporter makes of these: one dashboard works with both.
#[tokio::test]
async fn names_of_servers_are_those_of_the_text() -> Result<()> {
    let text = cenote::prometheus::text([&with_servers().await?]);
    for (name, instrument, _, attribute) in SERVERS {
        let name = name.replace('.', "_");
        let total = if *instrument == "counter" {
            "_total"
        } else {
            ""
        };
        let attribute = attribute.replace('.', "_");
        let series = text
            .lines()
            .find(|line| line.starts_with(&format!("{name}{total}{{")));
        assert!(series.unwrap_or("").contains(&attribute), "{name}: {text}");
    }
    Ok(())
}

#[tokio::test]
async fn connections_are_counted_by_their_state() -> Result<()> {
    let (fake, exported) = (Fake::new(), Exported::new());
    let db = fake.builder().max(3).open().await?;
    let _metrics = cenote_otel::counts(&db, &exported.provider.meter("cenote"));
    let held = (db.connection().await?, db.connection().await?);
    drop(held.0);
    let states: BTreeMap<_, _> = exported.collect()["db.client.connection.count"]
        .series
        .iter()
        .map(|(attributes, count)| (attributes["db.client.connection.state"].clone(), *count))
        .collect();
    assert_eq!((states["used"], states["idle"]), (1.0, 1.0));
    drop(held.1);
    Ok(())
}

#[tokio::test]
async fn statements_are_recorded_by_operation_and_error() -> Result<()> {
    let (fake, exported) = (Fake::new(), Exported::new());
    let db = fake.builder().max(1).open().await?;
    let metrics = cenote_otel::install(&db, &exported.provider.meter("cenote"));
    db.exec("INSERT INTO t VALUES (1), (2)", ()).await?;
    db.exec("INSERT INTO t VALUES (3)", ()).await?;
    fake.fail_on("SELECT", "42P01");
    db.query("SELECT n FROM t", ()).await.unwrap_err();
    let all = exported.collect();
    let of = |operation: &str| {
        let series = &all["db.client.operation.duration"].series;
        let found = series
            .iter()
            .find(|(of, _)| of["db.operation.name"] == operation);
        found.unwrap().clone()
    };
    assert_eq!(of("INSERT").1, 2.0);
    let failed = of("SELECT").0;
    assert_eq!(failed["error.type"], "Database");
    assert_eq!(failed["db.response.status_code"], "42P01");
    for name in ["create_time", "wait_time", "use_time"] {
        let counted = all[&format!("db.client.connection.{name}")].series[0].1;
        assert_eq!(
            counted,
            if name == "create_time" { 1.0 } else { 3.0 },
            "{name}"
        );
    }
    drop(metrics);
    db.exec("INSERT INTO t VALUES (4)", ()).await?;
    let all = exported.collect();
    let inserts = all.get("db.client.operation.duration").map_or(0.0, |seen| {
        let inserts = seen
            .series
            .iter()
            .find(|(of, _)| of["db.operation.name"] == "INSERT");
        inserts.map_or(0.0, |(_, count)| *count)
    });
    assert!(inserts <= 2.0, "recorded after its end");
    Ok(())
}

#[tokio::test]
async fn codes_of_errors_are_bounded() -> Result<()> {
    let (fake, exported) = (Fake::new(), Exported::new());
    let db = fake.builder().max(1).open().await?;
    let _metrics = cenote_otel::install(&db, &exported.provider.meter("cenote"));
    for code in 0..200 {
        fake.fail_on("SELECT", &format!("U{code:04}"));
        db.query(&format!("SELECT n{code} FROM t{code}"), ())
            .await
            .unwrap_err();
    }
    let all = exported.collect();
    let series = &all["db.client.operation.duration"].series;
    assert_eq!(series.len(), 65);
    let other = series
        .iter()
        .find(|(of, _)| of["db.response.status_code"] == "_OTHER");
    assert_eq!(other.unwrap().1, 136.0);
    assert!(
        !format!("{all:?}").contains("t17"),
        "a table's name is a label"
    );
    Ok(())
}

/// The test needs `promtool` of Debian's package `prometheus`. Without it the test is skipped, but not where
/// `CENOTE_NEED_PROMTOOL` is set, as in `ci/test.sh metrics`.
#[tokio::test]
async fn promtool_accepts_the_text() -> Result<()> {
    let db = Db::builder("sqlite:file:promtool?mode=memory&cache=shared");
    let db = db.name("a \"hostile\" \\ name").open().await?;
    let other = Db::builder("sqlite:file:promtool-2?mode=memory&cache=shared")
        .open()
        .await?;
    for n in 0..100 {
        db.query("SELECT ?", (n,)).await?;
    }
    db.query("SELECT nope", ()).await.unwrap_err();
    let servers = with_servers().await?;
    let text = cenote::prometheus::text([&db, &other, &servers]);
    let checker = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut checker = match checker {
        Ok(checker) => checker,
        Err(error) if std::env::var_os("CENOTE_NEED_PROMTOOL").is_none() => {
            println!("SKIPPED: cannot run promtool ({error}); install Debian's package prometheus");
            return Ok(());
        }
        Err(error) => panic!("cannot run promtool: {error}"),
    };
    checker
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let checked = checker.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{said}\n{text}");
    Ok(())
}
