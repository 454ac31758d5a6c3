//! A request is a transaction, which ends before the head of its response is sent.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use cenote::{Db, Error, Kind, TransactionOptions};
use cenote_testkit::poll::drop_after;
use cenote_tower::{CoroutineLayer, TransactionLayer, Verdict, commit_2xx_and_3xx};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};
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

#[test]
fn the_rule_commits_2xx_and_3xx_and_nothing_else() {
    for status in 100..=999 {
        let (head, _) = answer(status).into_parts();
        let expected = match status {
            200..=399 => Verdict::Commit,
            _ => Verdict::RollBack,
        };
        assert_eq!(commit_2xx_and_3xx(&head), expected, "{status}");
    }
}

#[tokio::test]
async fn the_rule_decides_by_the_head_and_the_response_stays_as_it_is() {
    for (status, rows) in [(200, 2), (303, 2), (404, 0), (500, 0)] {
        let store = Store::new().await;
        let db = store.db.clone();
        let service = layer(&store).layer(service_fn(move |_| {
            let db = db.clone();
            async move {
                insert(&db, 1).await?;
                insert(&db, 2).await?;
                Ok::<_, Error>(answer(status))
            }
        }));
        let response = ask(service).await.unwrap();
        assert_eq!(response.status(), status);
        store.is_whole().await;
        assert_eq!(store.rows().await, rows, "{status}");
    }
}

#[tokio::test]
async fn a_rule_of_ones_own_sees_the_headers() {
    let store = Store::new().await;
    let by_header = CoroutineLayer::new().transaction(store.db.clone(), |response| match response
        .headers
        .contains_key("x-keep")
    {
        true => Verdict::Commit,
        false => Verdict::RollBack,
    });
    for keep in [false, true] {
        let db = store.db.clone();
        let service = by_header.layer(service_fn(move |_| {
            let db = db.clone();
            async move {
                insert(&db, 1).await?;
                let mut response = answer(200);
                if keep {
                    response
                        .headers_mut()
                        .insert("x-keep", "1".parse().unwrap());
                }
                Ok::<_, Error>(response)
            }
        }));
        ask(service).await.unwrap();
        assert_eq!(store.rows().await, i64::from(keep));
    }
}

#[tokio::test]
async fn commit_happens_after_the_head_and_before_the_body_is_read() {
    let store = Store::new().await;
    let db = store.db.clone();
    let layer = CoroutineLayer::new().transaction(store.db.clone(), commit_2xx_and_3xx);
    let service = layer.layer(service_fn(move |_| {
        let db = db.clone();
        async move {
            insert(&db, 1).await?;
            assert!(db.in_transaction());
            let reading = db.clone();
            let body = axum::body::Body::from_stream(Once(Some(Box::pin(async move {
                assert!(cenote::current().is_some());
                Ok(format!("in a transaction: {}", reading.in_transaction()))
            }))));
            Ok::<_, Error>(Response::new(body))
        }
    }));
    let response = ask(service).await.unwrap();
    assert_eq!(store.rows().await, 1);
    assert_eq!(store.in_use(), 0);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "in a transaction: false");
}

type Making = std::pin::Pin<Box<dyn Future<Output = cenote::Result<String>> + Send>>;

/// A stream of one thing, made when it is asked for.
struct Once(Option<Making>);

impl futures_core::Stream for Once {
    type Item = cenote::Result<String>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        let Some(making) = &mut self.0 else {
            return std::task::Poll::Ready(None);
        };
        let made = std::task::ready!(making.as_mut().poll(cx));
        self.0 = None;
        std::task::Poll::Ready(Some(made))
    }
}

/// A row whose reference is checked by the commit, and wrong.
async fn insert_orphan(db: &Db) -> cenote::Result<()> {
    db.exec("INSERT INTO child VALUES (7)", ()).await?;
    insert(db, 1).await
}

async fn with_children() -> Store {
    let store = Store::new().await;
    let script = "CREATE TABLE parent (id INTEGER PRIMARY KEY);
        CREATE TABLE child (of INTEGER REFERENCES parent DEFERRABLE INITIALLY DEFERRED)";
    store.db.exec(script, ()).await.unwrap();
    store
}

#[tokio::test]
async fn a_commit_that_fails_is_a_500_and_nothing_is_committed() {
    let store = with_children().await;
    let db = store.db.clone();
    let service = layer(&store).layer(service_fn(move |_| {
        let db = db.clone();
        async move { insert_orphan(&db).await.map(|()| answer(201)) }
    }));
    let response = ask(service).await.unwrap();
    assert_eq!(response.status(), 500);
    let error = response.extensions().get::<Error>().unwrap();
    assert!(error.is_foreign_key_violation(), "{error}");
    store.is_whole().await;
    assert_eq!(store.rows().await, 0);
}

#[tokio::test]
async fn the_answer_to_a_failed_commit_can_be_chosen() {
    let store = with_children().await;
    let db = store.db.clone();
    let layer = layer(&store).on_error(|error| {
        assert!(error.is_foreign_key_violation(), "{error}");
        answer(409)
    });
    let service = layer.layer(service_fn(move |_| {
        let db = db.clone();
        async move { insert_orphan(&db).await.map(|()| answer(201)) }
    }));
    assert_eq!(ask(service).await.unwrap().status(), 409);
    assert_eq!(store.rows().await, 0);
}

#[tokio::test]
async fn begun_eagerly_no_connection_is_a_503_and_no_handler_runs() {
    let store = Store::new().await;
    store.db.close().await.unwrap();
    let ran = Arc::new(AtomicBool::new(false));
    let running = Arc::clone(&ran);
    let service = layer(&store).begin_eagerly().layer(service_fn(move |_| {
        running.store(true, Ordering::SeqCst);
        async { Ok::<_, Infallible>(answer(200)) }
    }));
    let response = ask(service).await.unwrap();
    assert_eq!(response.status(), 503);
    let error = response.extensions().get::<Error>().unwrap();
    assert_eq!(error.kind(), Kind::Closed);
    assert!(!ran.load(Ordering::SeqCst));
}

#[tokio::test]
async fn transaction_in_the_handler_is_a_savepoint_of_the_request() {
    let store = Store::new().await;
    let db = store.db.clone();
    let service = layer(&store).layer(service_fn(move |_| {
        let db = db.clone();
        async move {
            insert(&db, 1).await?;
            db.transaction(async || insert(&db, 2).await).await?;
            let refused = db.transaction(async || {
                insert(&db, 3).await?;
                assert_eq!(db.peek().unwrap().savepoints, 1);
                Err::<(), _>(Error::other("no"))
            });
            refused.await.unwrap_err();
            Ok::<_, Error>(answer(200))
        }
    }));
    ask(service).await.unwrap();
    let kept: Vec<i64> = store
        .db
        .query_as("SELECT n FROM t ORDER BY n", ())
        .await
        .unwrap();
    assert_eq!(kept, [1, 2]);
}

#[tokio::test]
async fn begin_in_a_handler_is_an_error_that_says_how_to_nest() {
    let store = Store::new().await;
    let db = store.db.clone();
    let service = layer(&store).layer(service_fn(move |_| {
        let db = db.clone();
        async move {
            drop(db.begin().await?);
            Ok::<_, Error>(answer(200))
        }
    }));
    let error = ask(service).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NestedBegin);
    assert!(error.message().contains("db.transaction"), "{error}");
    store.is_whole().await;
}

#[tokio::test]
async fn an_error_of_the_service_rolls_back_and_comes_out_as_it_was() {
    let store = Store::new().await;
    let db = store.db.clone();
    let service = layer(&store).layer(service_fn(move |_| {
        let db = db.clone();
        async move {
            insert(&db, 1).await.unwrap();
            Err::<Response<Plain>, _>(Broken)
        }
    }));
    assert_eq!(ask(service).await.unwrap_err(), Broken);
    store.is_whole().await;
    assert_eq!(store.rows().await, 0);
}

#[tokio::test]
async fn a_panic_in_the_handler_or_in_the_rule_rolls_back() {
    for in_rule in [false, true] {
        let store = Store::new().await;
        let db = store.db.clone();
        let layer = CoroutineLayer::new().transaction(store.db.clone(), move |_| {
            assert!(!in_rule, "a rule that panics");
            Verdict::Commit
        });
        let service = layer.layer(service_fn(move |_| {
            let db = db.clone();
            async move {
                insert(&db, 1).await?;
                assert!(in_rule, "a handler that panics");
                Ok::<_, Error>(answer(200))
            }
        }));
        let task = cenote::spawn(ask(service));
        assert!(task.await.unwrap_err().is_panic());
        store.is_whole().await;
        assert_eq!(store.rows().await, 0);
    }
}

#[tokio::test]
async fn request_dropped_at_any_point_is_done_entirely_or_not_at_all() {
    let mut polls = 0;
    loop {
        let store = Store::new().await;
        let db = store.db.clone();
        let service = layer(&store).layer(service_fn(move |_| {
            let db = db.clone();
            async move {
                insert(&db, 1).await?;
                insert(&db, 2).await?;
                Ok::<_, Error>(answer(200))
            }
        }));
        let done = drop_after(polls, ask(service)).await;
        store.is_whole().await;
        let rows = store.rows().await;
        if done.is_some() {
            assert_eq!(rows, 2);
            break;
        }
        // It may be dropped while the commit is made.
        assert!([0, 2].contains(&rows), "{rows} after {polls} polls");
        polls += 1;
    }
}

#[tokio::test]
async fn the_head_of_the_request_chooses_the_transaction() {
    let store = Store::new().await;
    let db = store.db.clone();
    let layer = layer(&store).begin_with(|request| match request.uri.path() {
        "/read" => Some(TransactionOptions::new().read_only()),
        "/none" => None,
        _ => Some(TransactionOptions::new()),
    });
    let mut service = layer.layer(service_fn(move |_| {
        let db = db.clone();
        async move {
            let inside = db.in_transaction();
            let written = insert(&db, 1).await;
            Ok::<_, Infallible>(match (inside, written.is_ok()) {
                (true, true) => answer(200),
                (true, false) => answer(403),
                (false, true) => answer(500),
                (false, false) => answer(501),
            })
        }
    }));
    for (path, status, rows) in [("/write", 200, 1), ("/read", 403, 1), ("/none", 500, 2)] {
        let request = http::Request::builder().uri(path).body(()).unwrap();
        let response = tower::Service::call(&mut service, request).await.unwrap();
        assert_eq!(response.status(), status, "{path}");
        assert_eq!(store.rows().await, rows, "{path}");
    }
    store.is_whole().await;
}

#[tokio::test]
async fn body_that_holds_rows_of_the_transaction_is_an_error_response() {
    let store = Store::new().await;
    let db = store.db.clone();
    let layer = CoroutineLayer::new().transaction(store.db.clone(), commit_2xx_and_3xx);
    let service = layer.layer(service_fn(move |_| {
        let db = db.clone();
        async move {
            insert(&db, 1).await?;
            let mut rows = db.stream("SELECT n FROM t UNION ALL SELECT 2", ()).await?;
            let body = std::future::poll_fn(move |cx| {
                let row = futures_core::Stream::poll_next(std::pin::Pin::new(&mut rows), cx);
                row.map(|row| row.transpose().map(|row| format!("{row:?}")))
            });
            let body = axum::body::Body::from_stream(Once(Some(Box::pin(body))));
            Ok::<_, Error>(Response::new(body))
        }
    }));
    let response = ask(service).await.unwrap();
    assert_eq!(response.status(), 500);
    let error = response.extensions().get::<Error>().unwrap();
    assert_eq!(error.kind(), Kind::Busy);
    store.is_whole().await;
    assert_eq!(store.rows().await, 0);
}

#[tokio::test]
async fn inside_another_layer_a_request_is_a_coroutine_of_its_own() {
    let store = Store::new().await;
    let db = store.db.clone();
    let log = Log::default();
    let inner = {
        let log = log.clone();
        layer(&store).layer(service_fn(move |_| {
            let (db, log) = (db.clone(), log.clone());
            async move {
                log.note("inside");
                insert(&db, 1).await?;
                Ok::<_, Error>(answer(201))
            }
        }))
    };
    let outer = CoroutineLayer::new().layer(service_fn(|_| {
        log.note("outside");
        ask(inner.clone())
    }));
    assert_eq!(ask(outer).await.unwrap().status(), 201);
    let coroutines = log.coroutines();
    assert!(
        matches!(coroutines[..], [Some(outside), Some(inside)] if outside != inside),
        "{coroutines:?}"
    );
    assert_eq!(store.rows().await, 1);
    store.is_whole().await;
}
