//! The page of a handle with several servers: on a PostgreSQL cluster whose primary is killed. Needs PostgreSQL's programs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod cluster;

use std::time::Duration;

use cenote_bank::cluster::Cluster;
use cenote_dashboard::Dashboard;
use cenote_testkit::Fake;
use http::Request;
use http_body_util::BodyExt;
use serde_json::Value;
use tower_service::Service;

use crate::cluster::{Sharing, handle, with_replicas};

/// The first event of a stream: the present.
async fn now(page: &Dashboard) -> Value {
    let request = Request::builder().uri("/?events").body(()).unwrap();
    let mut body = page.clone().call(request).await.unwrap().into_body();
    let data = body.frame().await.unwrap().unwrap().into_data().unwrap();
    let event = String::from_utf8(data.to_vec()).unwrap();
    let line = event.lines().find_map(|line| line.strip_prefix("data: "));
    serde_json::from_str(line.unwrap()).unwrap()
}

/// Waits until the page shows something. Fails with what it shows instead.
async fn shows<T>(page: &Dashboard, what: &str, find: impl Fn(&Value) -> Option<T>) -> T {
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    let mut last = Value::Null;
    let found = tokio::time::timeout(Duration::from_secs(30), async {
        loop {
            ticks.tick().await;
            last = now(page).await;
            if let Some(found) = find(&last) {
                return found;
            }
        }
    });
    let found = found.await;
    found.unwrap_or_else(|_| panic!("not in time: {what}: {last:#}"))
}

async fn shows_that(page: &Dashboard, what: &str, is_so: impl Fn(&Value) -> bool) {
    shows(page, what, |seen| is_so(seen).then_some(())).await;
}

async fn shows_event(page: &Dashboard, text: &str) {
    let is_it = |event: &Value| event["text"] == text;
    let has = |seen: &Value| seen["events"].as_array().unwrap().iter().any(is_it);
    shows_that(page, text, has).await;
}

/// A field of each server of a list.
fn all<'v>(seen: &'v Value, list: &str, field: &str) -> Vec<&'v Value> {
    let list = seen[list].as_array().into_iter().flatten();
    list.map(|server| &server[field]).collect()
}

fn host(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

#[tokio::test]
async fn page_follows_a_failover() {
    let mut cluster = Cluster::start(60).await.unwrap();
    let db = with_replicas(&cluster).max(3).open().await.unwrap();
    let page = Dashboard::new(&db);
    let present = now(&page).await;
    assert_eq!(all(&present, "hosts", "role"), ["unknown"; 3]);
    assert_eq!(
        all(&present, "replicas", "state"),
        ["no reads: not asked yet"; 3]
    );

    db.exec("CREATE TABLE t (n int8)", ()).await.unwrap();
    let count = "SELECT count(*) FROM t";
    db.reading().query(count, ()).await.unwrap();
    shows_that(&page, "the roles", |seen| {
        all(seen, "hosts", "role") == ["primary", "standby", "standby"]
            && all(seen, "hosts", "mark") == ["ok", "idle", "idle"]
            && all(seen, "replicas", "state") == ["no reads: a primary", "gets reads", "gets reads"]
            && all(seen, "replicas", "mark") == ["idle", "ok", "ok"]
    })
    .await;
    db.reading().query(count, ()).await.unwrap();
    shows_that(&page, "the read, the lag and the connection", |seen| {
        let reads = all(seen, "replicas", "reads");
        let reads = reads.into_iter().filter_map(Value::as_u64).sum::<u64>();
        let told = all(seen, "replicas", "lag")[1..]
            .iter()
            .all(|lag| lag.is_u64());
        reads > 0 && told && seen["hosts"][0]["connections"] != 0
    })
    .await;
    let present = now(&page).await;
    assert_eq!(all(&present, "hosts", "primary"), [true, false, false]);
    assert!(
        all(&present, "hosts", "since")
            .iter()
            .all(|since| since.is_u64())
    );
    assert_eq!(present["shared"], Value::Null);
    let told = present["primaryReads"].as_str().unwrap();
    // The first read came before the first answer.
    assert!(told.contains("no replica 1"), "{told}");
    let events = present["events"].to_string();
    assert!(!events.contains("Host"), "a start is no news: {events}");

    let old = cluster.primary_port();
    cluster.kill_primary().await;
    shows_event(&page, &format!("Host {}: primary → no answer", host(old))).await;
    let missed = |seen: &Value| {
        let sentence = seen["diagnosis"]["text"].as_str().unwrap();
        sentence.contains(&format!("{} no answer", host(old)))
            || sentence.contains("Cannot connect")
    };
    shows_that(&page, "that no host fits", missed).await;
    cluster.promote().await.unwrap();
    db.exec("INSERT INTO t VALUES (1)", ()).await.unwrap();
    let new = cluster.primary_port();
    shows_event(&page, &format!("Host {}: standby → primary", host(new))).await;
    shows_event(&page, &format!("Failover: {} → {}", host(old), host(new))).await;
    let no_reads = format!("Replica {}/postgres gets no reads: no answer", host(old));
    shows_event(&page, &no_reads).await;
    let no_reads = format!("Replica {}/postgres gets no reads: a primary", host(new));
    shows_event(&page, &no_reads).await;
    let incident = page.incident();
    let lines = [
        format!("  {}: no answer for ", host(old)),
        format!("  {}: primary for ", host(new)),
        format!("  {}/postgres: no reads: a primary for ", host(new)),
    ];
    for line in lines {
        assert!(incident.contains(&line), "{line} in {incident}");
    }
    assert!(!incident.contains(cluster.password().expose()));

    cluster.heal().await.unwrap();
    shows_event(&page, &format!("Host {}: no answer → standby", host(old))).await;
    db.reading().query(count, ()).await.unwrap();
    shows_event(&page, &format!("Replica {}/postgres gets reads", host(old))).await;
}

#[tokio::test]
async fn shared_connection_is_held_by_its_reads() {
    let cluster = Cluster::start(60).await.unwrap();
    let primary = [cluster.primary_port()];
    let db = handle(&cluster, &primary).max(1).share_connections(true);
    let db = db.open().await.unwrap();
    let admin = handle(&cluster, &primary).open().await.unwrap();
    let page = Dashboard::new(&db);
    assert_eq!(now(&page).await["shared"]["connections"], 0);
    let sharing = Sharing::begin(&db, &admin).await;
    shows_that(&page, "the reads", |seen| {
        let holder = &seen["holders"][0];
        holder["sharedBy"] == 6 && holder["purpose"] == "shared by 6 reads"
    })
    .await;
    let present = now(&page).await;
    assert_eq!(present["shared"]["inFlight"], 6);
    assert_eq!(present["status"]["active"], 1);
    let incident = page.incident();
    assert!(
        incident.contains(": shared by 6 reads, oldest "),
        "{incident}"
    );
    assert!(
        incident.contains("Shared: 1 connection, 6 reads in flight, "),
        "{incident}"
    );
    sharing.end().await;
    shows_that(&page, "how many have run", |seen| {
        seen["shared"]["reads"].as_u64() > Some(0) && seen["shared"]["connections"] == 0
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn page_of_one_host_has_nothing_of_servers() {
    let db = Fake::new().builder().open().await.unwrap();
    let page = Dashboard::new(&db);
    let present = now(&page).await;
    for part in ["hosts", "replicas", "primaryReads", "shared"] {
        assert!(present.get(part).is_none(), "{part} in {present:#}");
    }
    let incident = page.incident();
    for part in ["Hosts", "Replicas", "Shared"] {
        assert!(!incident.contains(part), "{part} in {incident}");
    }
}
