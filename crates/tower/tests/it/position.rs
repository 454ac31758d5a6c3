//! The header that carries what a client has written.

use cenote::{Db, Position};
use cenote_testkit::Fake;
use cenote_tower::{CoroutineLayer, POSITION_HEADER, commit_2xx_and_3xx};
use http::{HeaderMap, Request, Response};
use http_body_util::Empty;
use tower::{Layer, Service, ServiceExt};

type Body = Empty<bytes::Bytes>;

/// A database whose replica is never usable: positions are all that matters here.
async fn open(fake: &Fake) -> Db {
    let builder = fake.builder().replica("fake:replica");
    builder.open().await.unwrap()
}

/// A request with these values of the header.
fn request(path: &str, values: &[&str]) -> Request<()> {
    let mut request = Request::get(path);
    for value in values {
        request = request.header(POSITION_HEADER, *value);
    }
    request.body(()).unwrap()
}

fn position(headers: &HeaderMap) -> Option<Position> {
    let value = headers.get(POSITION_HEADER)?;
    Some(value.to_str().unwrap().parse().unwrap())
}

/// Writes where the path says so.
fn service(
    db: &Db,
) -> impl Service<Request<()>, Response = Response<Body>, Error = cenote::Error, Future: Send + 'static>
+ Clone
+ Send
+ 'static
+ use<> {
    let db = db.clone();
    tower::service_fn(move |request: Request<()>| {
        let db = db.clone();
        async move {
            if request.uri().path() == "/write" {
                db.exec("INSERT INTO t VALUES (1)", ()).await?;
            }
            Ok(Response::new(Body::new()))
        }
    })
}

#[tokio::test]
async fn header_carries_what_a_client_has_written() {
    let fake = Fake::new();
    let db = open(&fake).await;
    let service = CoroutineLayer::new()
        .position_header(db.clone())
        .layer(service(&db));
    let ask = async |request| {
        let answer = service.clone().oneshot(request).await.unwrap();
        position(answer.headers())
    };
    assert_eq!(ask(request("/read", &[])).await, None);
    let first = ask(request("/write", &[])).await.unwrap();
    let text = first.to_string();
    assert_eq!(ask(request("/read", &[&text])).await, Some(first));
    let second = ask(request("/write", &[&text])).await.unwrap();
    assert_ne!(second, first);
    // Each request has a coroutine of its own.
    assert_eq!(ask(request("/read", &[])).await, None);
}

#[tokio::test]
async fn damaged_header_sends_reads_to_the_primary() {
    let fake = Fake::new();
    let db = open(&fake).await;
    let service = CoroutineLayer::new()
        .position_header(db.clone())
        .layer(service(&db));
    let long = "f".repeat(5000);
    for values in [&["nonsense"][..], &[""], &[&long], &["1.1.1.1", "1.1.1.2"]] {
        let answer = service.clone().oneshot(request("/read", values)).await;
        let position = position(answer.unwrap().headers()).unwrap();
        assert!(position.is_unknown(), "{values:?}");
    }
}

#[tokio::test]
async fn header_has_the_commit_of_the_request() {
    let fake = Fake::new();
    let db = open(&fake).await;
    let layer = CoroutineLayer::new().transaction(db.clone(), commit_2xx_and_3xx);
    let with = layer.clone().position_header().layer(service(&db));
    let answer = with.oneshot(request("/write", &[])).await.unwrap();
    assert!(!position(answer.headers()).unwrap().is_unknown());
    let without = layer.layer(service(&db));
    let answer = without.oneshot(request("/write", &[])).await.unwrap();
    assert_eq!(position(answer.headers()), None);
}

#[tokio::test]
async fn commit_of_unknown_outcome_leaves_no_known_position() {
    let fake = Fake::new();
    let db = open(&fake).await;
    let layer = CoroutineLayer::new().transaction(db.clone(), commit_2xx_and_3xx);
    fake.break_on("commit");
    let service = layer.position_header().layer(service(&db));
    let answer = service.oneshot(request("/write", &[])).await.unwrap();
    assert!(position(answer.headers()).unwrap().is_unknown());
}
