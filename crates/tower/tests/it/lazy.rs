//! The transaction of a request begins with its first statement.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cenote::{Error, Kind};
use cenote_tower::{CoroutineLayer, TransactionLayer, commit_2xx_and_3xx};
use http::{Response, StatusCode};
use http_body_util::Full;
use tokio::sync::Notify;
use tower::{Layer, service_fn};

use crate::support::*;

type Plain = Full<Bytes>;

fn layer(store: &Store) -> TransactionLayer<Plain> {
    CoroutineLayer::new().transaction(store.db.clone(), commit_2xx_and_3xx)
}

fn answer(status: u16) -> Response<Plain> {
    let mut response = Response::new(Plain::default());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let so = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    let so = tokio::time::timeout(Duration::from_secs(30), so).await;
    so.unwrap_or_else(|_| panic!("never: {what}"));
}

/// Each held the only writer, and a place of the pool, while its body was on its way.
#[tokio::test]
async fn h32_slow_bodies_block_no_other_request() {
    let store = Store::new().await;
    let db = store.db.clone();
    let (body, reading) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let (arrives, begun) = (Arc::clone(&body), Arc::clone(&reading));
    let service = layer(&store).layer(service_fn(move |_| {
        let (db, body, begun) = (db.clone(), Arc::clone(&arrives), Arc::clone(&begun));
        async move {
            let arrived = body.notified();
            begun.fetch_add(1, Ordering::SeqCst);
            assert!(db.in_transaction());
            arrived.await;
            insert(&db, 1).await?;
            Ok::<_, Error>(answer(201))
        }
    }));
    // More than the pool has connections.
    let slow: Vec<_> = (0..5)
        .map(|_| cenote::spawn(ask(service.clone())))
        .collect();
    until("all read", || reading.load(Ordering::SeqCst) == 5).await;
    assert_eq!(store.in_use(), 0);
    insert(&store.db, 2).await.unwrap();
    body.notify_waiters();
    for request in slow {
        assert_eq!(request.await.unwrap().unwrap().status(), 201);
    }
    assert_eq!(store.rows().await, 6);
    store.is_whole().await;
}

#[tokio::test]
async fn h32_untouched_request_needs_no_database() {
    let store = Store::new().await;
    store.db.close().await.unwrap();
    let (db, ran) = (store.db.clone(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&ran);
    let service = layer(&store).layer(service_fn(move |_| {
        let (db, ran) = (db.clone(), Arc::clone(&counted));
        async move {
            let noted = Arc::clone(&ran);
            db.after_commit(move || {
                noted.fetch_add(1, Ordering::SeqCst);
            });
            assert_eq!(ran.load(Ordering::SeqCst), 0, "not before the end");
            Ok::<_, Error>(answer(200))
        }
    }));
    assert_eq!(ask(service).await.unwrap().status(), 200);
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn h32_failed_begin_is_a_503_whatever_the_handler_answers() {
    let store = Store::new().await;
    store.db.close().await.unwrap();
    for status in [200, 404, 0] {
        let db = store.db.clone();
        let service = layer(&store).layer(service_fn(move |_| {
            let db = db.clone();
            async move {
                for _ in 0..2 {
                    let failed = insert(&db, 1).await.unwrap_err();
                    assert_eq!(failed.kind(), Kind::Closed);
                }
                match status {
                    0 => Err(Error::other("the service failed")),
                    status => Ok(answer(status)),
                }
            }
        }));
        let response = ask(service).await.unwrap();
        assert_eq!(response.status(), 503, "instead of {status}");
        let error = response.extensions().get::<Error>().unwrap();
        assert_eq!(error.kind(), Kind::Closed);
    }
}

/// What follows the first write is as slow as the client likes.
#[tokio::test]
async fn h32_idle_transaction_gives_the_writer_back() {
    let store = Store::new().await;
    let (db, rest) = (store.db.clone(), Arc::new(Notify::new()));
    let arrives = Arc::clone(&rest);
    let layer = layer(&store).idle_in_transaction(Duration::from_millis(50));
    let service = layer.layer(service_fn(move |_| {
        let (db, rest) = (db.clone(), Arc::clone(&arrives));
        async move {
            insert(&db, 1).await?;
            rest.notified().await;
            Ok::<_, Error>(answer(201))
        }
    }));
    let slow = cenote::spawn(ask(service));
    until("it writes", || store.in_use() == 1).await;
    // Waits for the writer, until the limit is over.
    insert(&store.db, 2).await.unwrap();
    rest.notify_one();
    let response = slow.await.unwrap().unwrap();
    assert_eq!(response.status(), 503);
    let error = response.extensions().get::<Error>().unwrap();
    assert_eq!(error.kind(), Kind::TransactionTimeout);
    assert_eq!(store.rows().await, 1);
    store.is_whole().await;
}

#[tokio::test]
async fn h32_first_statements_in_parallel_share_a_transaction() {
    for (status, rows) in [(201, 3), (404, 0)] {
        let store = Store::new().await;
        let db = store.db.clone();
        let service = layer(&store).layer(service_fn(move |_| {
            let db = db.clone();
            async move {
                let nested = db.transaction(async || insert(&db, 3).await);
                let (one, two, three) = tokio::join!(insert(&db, 1), insert(&db, 2), nested);
                one.and(two).and(three)?;
                Ok::<_, Error>(answer(status))
            }
        }));
        assert_eq!(ask(service).await.unwrap().status(), status);
        assert_eq!(store.rows().await, rows, "{status}");
        store.is_whole().await;
    }
}
