//! The text for Prometheus.

use std::collections::BTreeMap;

use cenote::{Db, Result, prometheus};
use cenote_testkit::Fake;
use cenote_testkit::poll::{Hand, now};

/// Reads the text: each series with its value. Fails for a series that occurs twice, or has no type.
fn series(text: &str) -> BTreeMap<String, f64> {
    let (mut types, mut series) = (BTreeMap::new(), BTreeMap::new());
    for line in text.lines() {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert_eq!(
                types.insert(name.to_owned(), kind.to_owned()),
                None,
                "{name}"
            );
        } else if !line.starts_with("# HELP ") {
            let (labelled, value) = line.rsplit_once(' ').unwrap();
            let name = labelled.split('{').next().unwrap();
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| {
                let base = name.strip_suffix(end)?;
                (types.get(base)? == "histogram").then_some(base)
            });
            assert!(types.contains_key(base.unwrap_or(name)), "{line}");
            let before = series.insert(labelled.to_owned(), value.parse().unwrap());
            assert_eq!(before, None, "{line} occurs twice");
        }
    }
    series
}

#[test]
fn the_text_shows_connections_waits_and_statements() {
    let fake = Fake::new();
    let db = now(fake.builder().name("shop").max(1).open()).unwrap();
    fake.fail_on("SELECT 2", "42P01");
    now(db.query("SELECT 1", ())).unwrap();
    now(db.query("SELECT 2", ())).unwrap_err();
    let held = now(db.connection()).unwrap();
    let mut waiter = Hand::new(db.query("SELECT 3", ()));
    waiter.waits();
    let shown = series(&prometheus::text([&db]));
    let value = |name: &str, labels: &str| {
        let pool = r#"db_client_connection_pool_name="shop""#;
        shown[&format!("{name}{{{pool}{labels}}}")]
    };
    let state = |state| {
        let label = format!(",db_client_connection_state=\"{state}\"");
        value("cenote_connections", &label)
    };
    assert_eq!((state("used"), state("idle")), (1.0, 0.0));
    assert_eq!(value("db_client_connection_max", ""), 1.0);
    assert_eq!(value("db_client_connection_pending_requests", ""), 1.0);
    assert_eq!(value("cenote_acquires_total", ""), 3.0);
    let statements = "db_client_operation_duration_seconds_count";
    assert_eq!(value(statements, ",outcome=\"ok\""), 1.0);
    assert_eq!(value(statements, ",outcome=\"failed\""), 1.0);
    assert_eq!(
        value("db_client_connection_create_time_seconds_count", ""),
        1.0
    );
    drop(held);
    waiter.finish().unwrap();
}

#[tokio::test]
async fn buckets_are_cumulative_and_end_with_the_count() -> Result<()> {
    let db = Db::builder("sqlite:file:prometheus-buckets?mode=memory&cache=shared");
    let db = db.open().await?;
    for _ in 0..50 {
        db.query("SELECT 1", ()).await?;
    }
    let text = prometheus::text([&db]);
    let bucket = "db_client_operation_duration_seconds_bucket";
    let counts: Vec<f64> = text
        .lines()
        .filter(|line| line.starts_with(bucket) && line.contains("outcome=\"ok\""))
        .map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
        .collect();
    assert_eq!(counts.len(), 12);
    assert!(counts.is_sorted(), "{counts:?}");
    assert_eq!(counts[11], 50.0);
    Ok(())
}

#[test]
fn names_are_escaped_and_the_same_name_is_shown_once() {
    let fake = Fake::new();
    let hostile = now(fake.builder().name("a\"b\\c\nd 1").open()).unwrap();
    let clone = hostile.clone();
    let shown = series(&prometheus::text([&hostile, &clone]));
    let name = r#"db_client_connection_max{db_client_connection_pool_name="a\"b\\c\nd 1"}"#;
    assert_eq!(shown[name], 10.0);
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn each_host_and_replica_has_series_of_its_own() {
    // Nothing connects. The second host is named twice.
    let dsn = "pgsql:host=a,b,b;target_session_attrs=read-write;user=app";
    let db = Db::builder(dsn)
        .name("shop")
        .replica("pgsql:host=b;dbname=shop;user=app")
        .replica("pgsql:host=b;dbname=shop;user=app")
        .share_connections(true)
        .open()
        .await
        .unwrap();
    let text = prometheus::text([&db]);
    let shown = series(&text);
    let value = |name: &str, labels: &str| {
        shown[&format!(r#"{name}{{db_client_connection_pool_name="shop"{labels}}}"#)]
    };
    for host in ["a:5432", "b:5432", "b:5432 #2"] {
        let host = format!(r#",cenote_host="{host}""#);
        let role = format!(r#"{host},cenote_role="unknown""#);
        assert_eq!(value("cenote_host_role", &role), 1.0);
        for name in ["usable", "connections", "retired_total"] {
            assert_eq!(value(&format!("cenote_host_{name}"), &host), 0.0);
        }
    }
    for replica in ["b:5432/shop", "b:5432/shop #2"] {
        let replica = format!(r#",cenote_replica="{replica}""#);
        for name in ["usable", "connections", "reads_total"] {
            assert_eq!(value(&format!("cenote_replica_{name}"), &replica), 0.0);
        }
    }
    let reasons = ["unknown_position", "no_replica", "behind", "busy", "failed"];
    for reason in reasons {
        let reason = format!(r#",reason="{reason}""#);
        assert_eq!(value("cenote_primary_reads_total", &reason), 0.0);
    }
    for name in ["connections", "reads_in_flight", "reads_total"] {
        assert_eq!(value(&format!("cenote_shared_{name}"), ""), 0.0);
    }
    assert!(!text.contains("lag"), "no replica has answered: {text}");
}

#[test]
fn handle_with_one_host_has_no_series_of_servers() {
    let db = now(Fake::new().builder().open()).unwrap();
    let text = prometheus::text([&db]);
    for of in ["cenote_host", "replica", "primary", "shared"] {
        assert!(!text.contains(of), "{of} in {text}");
    }
}
