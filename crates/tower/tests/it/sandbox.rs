//! Tests of services in a sandbox: requests commit as in production, and nothing is left.

use std::convert::Infallible;

use axum::extract::State;
use axum::routing::post;
use axum::{Router, body::Body};
use cenote::{Db, Kind};
use cenote_tower::{CoroutineLayer, commit_2xx_and_3xx};
use http::{Request, StatusCode};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::*;

/// Needs a coroutine, and commits by itself.
async fn add(State(db): State<Db>) -> StatusCode {
    let adding = async {
        let tx = db.begin().await?;
        insert(&db, 1).await?;
        tx.commit().await
    };
    match adding.await {
        Ok(()) => StatusCode::CREATED,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

async fn count(db: &Db) -> i64 {
    let count = db.query_as_one("SELECT count(*) FROM t", ());
    count.await.unwrap()
}

async fn post_to(app: &Router, path: &str) -> StatusCode {
    let request = Request::post(path).body(Body::empty()).unwrap();
    app.clone().oneshot(request).await.unwrap().status()
}

fn app(db: &Db) -> Router {
    Router::new()
        .route("/add", post(add))
        .layer(CoroutineLayer::new())
        .with_state(db.clone())
}

#[tokio::test]
async fn requests_of_a_rolled_back_test_leave_no_rows() {
    let store = Store::new().await;
    let sandbox = store.sandbox().await;
    let app = app(sandbox.db());
    // The test itself is in a coroutine, too.
    cenote::scope(async {
        insert(sandbox.db(), 0).await.unwrap();
        assert_eq!(post_to(&app, "/add").await, StatusCode::CREATED);
        assert_eq!(post_to(&app, "/add").await, StatusCode::CREATED);
        assert_eq!(count(sandbox.db()).await, 3);
    })
    .await;
    sandbox.finish().await.unwrap();
    assert_eq!(store.rows().await, 0);
}

#[tokio::test]
async fn transaction_of_a_request_commits_into_the_sandbox() {
    let store = Store::new().await;
    let sandbox = store.sandbox().await;
    let db = sandbox.db().clone();
    async fn fail(State(db): State<Db>) -> StatusCode {
        insert(&db, 2).await.unwrap();
        StatusCode::CONFLICT
    }
    async fn succeed(State(db): State<Db>) -> StatusCode {
        insert(&db, 1).await.unwrap();
        StatusCode::OK
    }
    let app = Router::new()
        .route("/fail", post(fail))
        .route("/succeed", post(succeed))
        .layer(CoroutineLayer::new().transaction(db.clone(), commit_2xx_and_3xx))
        .with_state(db.clone());
    assert_eq!(post_to(&app, "/fail").await, StatusCode::CONFLICT);
    assert_eq!(count(&db).await, 0);
    assert_eq!(post_to(&app, "/succeed").await, StatusCode::OK);
    assert_eq!(count(&db).await, 1);
    sandbox.finish().await.unwrap();
    assert_eq!(store.rows().await, 0);
}

#[tokio::test]
async fn request_inside_a_transaction_of_the_test_is_an_error() {
    let store = Store::new().await;
    let sandbox = store.sandbox().await;
    let db = sandbox.db();
    let inner = db.clone();
    let service = CoroutineLayer::new().layer(service_fn(move |_| {
        let db = inner.clone();
        async move {
            let error = insert(&db, 1).await.unwrap_err();
            assert_eq!(error.kind(), Kind::SelfDeadlock);
            Ok::<_, Infallible>(http::Response::new(Body::empty()))
        }
    }));
    let body = db.transaction(async || {
        insert(db, 0).await?;
        ask(service).await.unwrap();
        Ok(())
    });
    body.await.unwrap();
    assert_eq!(count(db).await, 1);
    sandbox.finish().await.unwrap();
}

#[tokio::test]
#[expect(
    clippy::disallowed_methods,
    reason = "the test is about tasks that Cenote does not spawn"
)]
async fn spawned_server_needs_permission() {
    let store = Store::new().await;
    let sandbox = store.sandbox().await;
    let app = app(sandbox.db());
    let spawned = || {
        let app = app.clone();
        tokio::spawn(async move { post_to(&app, "/add").await })
    };
    let refused = spawned().await.unwrap();
    assert_eq!(refused, StatusCode::INTERNAL_SERVER_ERROR);
    sandbox.allow_spawned();
    assert_eq!(spawned().await.unwrap(), StatusCode::CREATED);
    sandbox.finish().await.unwrap();
    assert_eq!(store.rows().await, 0);
}

/// What a sandbox is for: outside of it, the commit of a request is a commit.
#[tokio::test]
async fn request_outside_of_a_sandbox_commits_as_before() {
    let store = Store::new().await;
    assert_eq!(post_to(&app(&store.db), "/add").await, StatusCode::CREATED);
    assert_eq!(store.rows().await, 1);
}
