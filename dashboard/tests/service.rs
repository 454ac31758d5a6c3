//! The service without a browser: its answers, its streams, and what it never says.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::panic::Location;
use std::time::Duration;

use cenote::Db;
use cenote::pool::AcquireOptions;
use cenote_dashboard::{Body, Dashboard};
use cenote_testkit::Fake;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use lines::LINES;
use tokio::task::JoinSet;
use tower_service::Service;

/// Everything that can be asked for.
const PARTS: [&str; 7] = [
    "/",
    "/?page.css",
    "/?page.js",
    "/?icon.svg",
    "/?events",
    "/?incident.txt",
    "/?nothing",
];

async fn sqlite(name: &str) -> Db {
    let dsn = format!("sqlite:file:{name}?mode=memory&cache=shared");
    Db::builder(&dsn).name(name).open().await.unwrap()
}

async fn ask(
    page: &Dashboard,
    method: Method,
    uri: &str,
    headers: &[(&str, &str)],
) -> Response<Body> {
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    page.clone().call(request.body(()).unwrap()).await.unwrap()
}

async fn get(page: &Dashboard, uri: &str) -> Response<Body> {
    ask(page, Method::GET, uri, &[]).await
}

async fn text(response: Response<Body>) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The next event of a stream, or `None` at its end.
async fn next(body: &mut Body) -> Option<String> {
    let frame = tokio::time::timeout(Duration::from_secs(30), body.frame()).await;
    let data = frame.unwrap()?.unwrap().into_data().unwrap();
    Some(String::from_utf8(data.to_vec()).unwrap())
}

/// The JSON of an event.
fn data(event: &str) -> serde_json::Value {
    let line = event.lines().find_map(|line| line.strip_prefix("data: "));
    serde_json::from_str(line.unwrap()).unwrap()
}

#[tokio::test]
async fn every_answer_forbids_foreign_content() {
    let page = Dashboard::new(&sqlite("headers").await);
    for part in PARTS {
        let response = get(&page, part).await;
        let header = |name| response.headers()[name].to_str().unwrap().to_owned();
        let policy = header(header::CONTENT_SECURITY_POLICY);
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self';"),
            "{part}"
        );
        assert!(!policy.contains("unsafe"), "{part}");
        assert!(policy.contains("frame-ancestors 'none'"), "{part}");
        assert_eq!(header(header::X_CONTENT_TYPE_OPTIONS), "nosniff", "{part}");
        assert_eq!(header(header::CACHE_CONTROL), "no-store", "{part}");
        let expected = match part {
            "/?nothing" => StatusCode::NOT_FOUND,
            _ => StatusCode::OK,
        };
        assert_eq!(response.status(), expected, "{part}");
    }
}

#[tokio::test]
async fn page_can_only_be_read() {
    let page = Dashboard::new(&sqlite("methods").await);
    for part in PARTS {
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
            let response = ask(&page, method, part, &[]).await;
            assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
            assert_eq!(response.headers()[header::ALLOW], "GET, HEAD");
        }
        let head = ask(&page, Method::HEAD, part, &[]).await;
        assert_eq!(text(head).await, "", "{part}");
    }
    assert_eq!(page.open_pages(), 0);
}

#[test]
fn assets_load_nothing_from_elsewhere_and_set_no_markup() {
    for asset in [
        include_str!("../assets/page.html"),
        include_str!("../assets/page.css"),
        include_str!("../assets/page.js"),
        include_str!("../assets/icon.svg"),
    ] {
        let own = asset.replace("http://www.w3.org/2000/svg", "");
        for wrong in [
            "http:",
            "https:",
            "//www",
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "onclick=",
            "onload=",
            "style=",
            "javascript:",
            "@import",
            "url(",
        ] {
            assert!(!own.contains(wrong), "{wrong}");
        }
    }
}

#[tokio::test]
async fn path_of_the_request_does_not_matter() {
    let page = Dashboard::new(&sqlite("paths").await);
    for path in ["/", "/admin/db", "/admin/db/"] {
        let html = text(get(&page, path).await).await;
        assert!(html.contains("<title>Cenote</title>"), "{path}");
        let script = text(get(&page, &format!("{path}?page.js")).await).await;
        assert!(script.contains("EventSource"), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn stream_sends_the_past_first_and_then_every_second() {
    let db = Fake::new().builder().name("stream").open().await.unwrap();
    let page = Dashboard::new(&db);
    db.query("SELECT 1", ()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(5050)).await;
    let mut body = get(&page, "/?events").await.into_body();
    let first = next(&mut body).await.unwrap();
    assert!(first.starts_with("retry: 1000\nid: "), "{first}");
    let first = data(&first);
    assert_eq!(first["full"], true);
    assert_eq!(first["seconds"].as_array().unwrap().len(), 5);
    assert_eq!(first["name"], "stream");
    assert_eq!(first["status"]["max"], 10);
    assert_eq!(first["timings"]["statements"]["count"], 1);
    let event = next(&mut body).await.unwrap();
    let second = data(&event);
    assert_eq!(second["full"], false);
    assert_eq!(second["seconds"].as_array().unwrap().len(), 1);

    // A page that was away for three seconds gets those three.
    let id = event.lines().find_map(|line| line.strip_prefix("id: "));
    drop(body);
    assert_eq!(page.open_pages(), 0);
    tokio::time::sleep(Duration::from_millis(3050)).await;
    let again = ask(
        &page,
        Method::GET,
        "/?events",
        &[("last-event-id", id.unwrap())],
    )
    .await;
    let mut body = again.into_body();
    let event = data(&next(&mut body).await.unwrap());
    assert_eq!(event["seconds"].as_array().unwrap().len(), 3);
    // The page of another program gets everything.
    let other = ask(&page, Method::GET, "/?events", &[("last-event-id", "12-6")]).await;
    let event = data(&next(&mut other.into_body()).await.unwrap());
    assert_eq!(event["full"], true);
}

#[tokio::test(start_paused = true)]
async fn history_keeps_fifteen_minutes() {
    let db = sqlite("history").await;
    let page = Dashboard::new(&db);
    tokio::time::sleep(Duration::from_secs(1000)).await;
    let mut body = get(&page, "/?events").await.into_body();
    let event = data(&next(&mut body).await.unwrap());
    assert_eq!(event["seconds"].as_array().unwrap().len(), 900);
}

/// Every second sample sees 500 lines and 500 statements that no sample has seen before.
#[tokio::test(start_paused = true)]
async fn ten_thousand_lines_and_statements_stay_bounded() {
    let fake = Fake::new();
    let db = fake.builder().max(1000).open().await.unwrap();
    let page = Dashboard::with_statement_texts(&db);
    let mut body = get(&page, "/?events").await.into_body();
    next(&mut body).await.unwrap();
    // Between two samples.
    tokio::time::sleep(Duration::from_millis(50)).await;
    for lines in LINES.chunks(500) {
        let (mut leases, mut statements) = (Vec::new(), JoinSet::new());
        for line in lines {
            let here = AcquireOptions::new().call_site(line);
            leases.push(db.pool().unwrap().acquire_with(here).await.unwrap());
            let sql = format!("SELECT a FROM table_{}_<b>", line.line());
            fake.hold(&sql);
            let db = db.clone();
            statements.spawn(async move { db.query(&sql, ()).await.map(drop) });
        }
        while fake.held().len() < lines.len() {
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        let incident = page.incident();
        let shown = |line: &&Location| incident.contains(&format!("lines.rs:{}:", line.line()));
        assert!(lines.iter().any(shown), "{incident}");
        assert!(incident.lines().count() < 100, "{incident}");
        fake.release();
        while let Some(statement) = statements.join_next().await {
            statement.unwrap().unwrap();
        }
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let event = next(&mut body).await.unwrap();
    assert!(event.len() < 32 * 1024, "{} bytes", event.len());
    let event = data(&event);
    let sampled = |list: &str, others: &str| {
        let list = event[list].as_array().unwrap();
        assert_eq!(list.len(), 10);
        let shown: u64 = list.iter().map(|it| it["ms"].as_u64().unwrap()).sum();
        shown + event[others].as_u64().unwrap()
    };
    // Nothing is lost: what is not shown is added up.
    let each = 10_000 * 200;
    assert_eq!(
        sampled("lines", "otherLines"),
        2 * each,
        "leases and connections"
    );
    assert_eq!(sampled("statements", "otherStatements"), each);
}

#[tokio::test(start_paused = true)]
async fn slow_reader_gets_everything_in_one_event() {
    let page = Dashboard::new(&sqlite("slow").await);
    let mut body = get(&page, "/?events").await.into_body();
    next(&mut body).await.unwrap();
    tokio::time::sleep(Duration::from_millis(30_050)).await;
    let event = data(&next(&mut body).await.unwrap());
    assert_eq!(event["seconds"].as_array().unwrap().len(), 30);
}

#[tokio::test(start_paused = true)]
async fn stream_ends_after_a_minute_and_with_the_page() {
    let page = Dashboard::new(&sqlite("ends").await);
    let mut body = get(&page, "/?events").await.into_body();
    let mut events = 0;
    while next(&mut body).await.is_some() {
        events += 1;
    }
    assert!((59..=61).contains(&events), "{events}");

    let mut body = get(&page, "/?events").await.into_body();
    next(&mut body).await.unwrap();
    page.close();
    assert_eq!(next(&mut body).await, None);
    let mut late = get(&page, "/?events").await.into_body();
    assert_eq!(next(&mut late).await, None);
}

#[tokio::test(start_paused = true)]
async fn open_page_keeps_neither_page_nor_database() {
    let fake = Fake::new();
    let db = fake.builder().open().await.unwrap();
    db.query("SELECT 1", ()).await.unwrap();
    let pool = db.pool().unwrap().downgrade();
    let page = Dashboard::new(&db);
    let mut body = get(&page, "/?events").await.into_body();
    next(&mut body).await.unwrap();
    drop(page);
    drop(db);
    assert!(pool.upgrade().is_none(), "the handle was dropped");
    assert_eq!(next(&mut body).await, None);
}

#[tokio::test(start_paused = true)]
async fn seventeenth_viewer_replaces_the_one_that_reads_least() {
    let page = Dashboard::new(&sqlite("viewers").await);
    let mut bodies = Vec::new();
    for _ in 0..16 {
        let mut body = get(&page, "/?events").await.into_body();
        next(&mut body).await.unwrap();
        bodies.push(body);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // All but one read on.
    tokio::time::sleep(Duration::from_secs(2)).await;
    for (at, body) in bodies.iter_mut().enumerate() {
        if at != 7 {
            next(body).await.unwrap();
        }
    }
    let mut late = get(&page, "/?events").await.into_body();
    assert!(next(&mut late).await.is_some());
    assert_eq!(page.open_pages(), 16);
    tokio::time::sleep(Duration::from_secs(2)).await;
    for (at, body) in bodies.iter_mut().enumerate() {
        assert_eq!(next(body).await.is_none(), at == 7, "stream {at}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_answer_contains_a_secret() {
    let fake = Fake::new();
    let db = fake
        .builder()
        .user("app")
        .password("hush-password")
        .max(2)
        .open()
        .await
        .unwrap();
    for page in [Dashboard::new(&db), Dashboard::with_statement_texts(&db)] {
        let connection = db.connection().await.unwrap();
        let sql = "UPDATE account SET pin = 'hush-literal', n = 77665544 WHERE id = ?";
        connection.exec(sql, "hush-parameter").await.unwrap();
        fake.fail_on("SELECT", "42P01");
        let _ = connection.query("SELECT 'hush-literal'", ()).await;
        // The page shows a sample, and a second that has ended.
        let mut body = get(&page, "/?events").await.into_body();
        let mut all = String::new();
        for _ in 0..3 {
            all.push_str(&next(&mut body).await.unwrap());
        }
        all.push_str(&text(get(&page, "/?incident.txt").await).await);
        all.push_str(&page.incident());
        all.push_str(&format!("{page:?}"));
        assert!(all.contains("tests/service.rs"), "{all}");
        for secret in ["hush", "77665544"] {
            assert!(!all.contains(secret), "{secret} in {all}");
        }
        drop(connection);
    }
}

#[tokio::test(start_paused = true)]
async fn incident_text_names_holders_and_waiters() {
    let fake = Fake::new();
    let db = fake.builder().max(1).name("shop").open().await.unwrap();
    let page = Dashboard::new(&db);
    let line = line!() + 1;
    let connection = db.connection().await.unwrap();
    let waiting = tokio::spawn({
        let db = db.clone();
        async move { db.query("SELECT 1", ()).await.map(drop) }
    });
    let shown = async {
        loop {
            let text = page.incident();
            if text.contains("1 waiting") {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    // By the stopped clock.
    let text = tokio::time::timeout(Duration::from_secs(30), shown)
        .await
        .unwrap();
    assert!(
        text.contains(&format!("1 of 1 held by tests/service.rs:{line}")),
        "{text}"
    );
    assert!(text.contains("connection() or pin(), oldest"), "{text}");
    assert!(text.contains("all in use, oldest"), "{text}");
    drop(connection);
    waiting.await.unwrap().unwrap();
}
