//! Requests that do not come to their end: everything is rolled back, and every connection comes back.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::Method;
use axum::routing::post;
use cenote::Db;
use cenote_shop::repository::{self, Line};
use serde_json::json;
use support::{Client, Place, Shop};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// Half of an order, in a transaction that is still open.
async fn half_an_order(db: &Db) -> cenote_shop::Result<()> {
    let line = Line {
        product: 1,
        quantity: 1,
    };
    let order = repository::add_order(db, "nobody").await?;
    let price = repository::take_from_shelf(db, &line).await?;
    repository::add_line(db, order, &line, price).await
}

async fn panics(State(db): State<Db>) -> cenote_shop::Result<()> {
    db.try_transaction(async || {
        half_an_order(&db).await?;
        panic!("a handler that panics")
    })
    .await
}

/// A route that hangs in the middle of an order, and signals that it does.
fn hangs(reached: Arc<Notify>) -> Router<Db> {
    let handler = async move |State(db): State<Db>| {
        let hanging = db.transaction(async || {
            half_an_order(&db).await.map_err(cenote::Error::other)?;
            reached.notify_one();
            pending::<cenote::Result<()>>().await
        });
        hanging.await.unwrap();
    };
    Router::new().route("/hang", post(handler))
}

/// A transaction that only the end of the request's coroutine ends.
async fn forgets(State(db): State<Db>) -> cenote_shop::Result<()> {
    std::mem::forget(db.begin().await?);
    half_an_order(&db).await
}

async fn nothing_happened(shop: &Shop) {
    shop.is_whole().await;
    assert_eq!(shop.stock(1).await, 100);
    let count = shop.db.query_as_one("SELECT count(*) FROM purchase", ());
    let orders: i64 = count.await.unwrap();
    assert_eq!(orders, 0);
    shop.books_balance().await;
}

#[tokio::test]
async fn a_handler_that_panics_is_a_500_and_rolled_back() {
    let shop = Shop::with_routes(Router::new().route("/panic", post(panics))).await;
    let (status, _) = shop.post("/panic", json!(null)).await;
    assert_eq!(status, 500);
    nothing_happened(&shop).await;
}

#[tokio::test]
async fn transaction_a_handler_forgets_rolls_back_with_its_request() {
    let shop = Shop::with_routes(Router::new().route("/forget", post(forgets))).await;
    let (status, _) = shop.post("/forget", json!(null)).await;
    assert_eq!(status, 200);
    nothing_happened(&shop).await;
}

#[tokio::test]
async fn client_that_disconnects_midway_takes_its_order_with_it() {
    let reached = Arc::new(Notify::new());
    let shop = Shop::with_routes(hangs(Arc::clone(&reached))).await;
    let mut client = shop.client().await;
    let request = client.send(Method::POST, "/hang", None);
    tokio::select! {
        answer = request => panic!("answered: {answer:?}"),
        () = reached.notified() => {}
    }
    assert_eq!(shop.db.status().active, 1);
    drop(client);
    nothing_happened(&shop).await;
}

#[tokio::test]
async fn a_request_that_takes_too_long_is_a_504_and_rolled_back() {
    let routes = hangs(Arc::new(Notify::new()));
    let limit = Duration::from_millis(200);
    let shop = Shop::with(Place::sqlite(), routes, |db| db, limit).await;
    let (status, _) = shop.post("/hang", json!(null)).await;
    assert_eq!(status, 504);
    nothing_happened(&shop).await;
}

/// Places an order or delivers, and hangs up after `turns` turns of the scheduler. Returns whether the shop
/// confirmed it.
async fn ask_impatiently(mut client: Client, quantity: i64, delivers: bool, turns: u32) -> bool {
    let (path, body) = match delivers {
        // A transaction by the layer.
        true => ("/products/1/deliveries", json!({ "quantity": quantity })),
        // A transaction of the handler.
        false => {
            let lines =
                json!([{ "product": 1, "quantity": quantity }, { "product": 2, "quantity": 1 }]);
            (
                "/orders",
                json!({ "customer": "somebody impatient", "lines": lines }),
            )
        }
    };
    let answer = client.json(Method::POST, path, Some(body));
    let impatience = async {
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        (status, _) = answer => status.is_success(),
        () = impatience => false,
    }
}

#[tokio::test]
async fn hundred_broken_off_requests_are_each_done_entirely_or_not() {
    let shop = Shop::open().await;
    let mut random = fastrand::Rng::with_seed(5);
    let mut requests = JoinSet::new();
    for n in 0..100 {
        let client = shop.client().await;
        let quantity = random.i64(1..=3);
        let delivers = random.u32(0..4) == 0;
        // From before the first byte to long after the answer, all orders of magnitude alike.
        let turns = match n {
            0 => 0,
            1 => u32::MAX,
            _ => (1 << random.u32(0..14)) + random.u32(0..10),
        };
        requests.spawn(ask_impatiently(client, quantity, delivers, turns));
    }
    let answers = requests.join_all().await;
    let confirmed = answers.iter().filter(|confirmed| **confirmed).count();
    shop.is_whole().await;
    shop.books_balance().await;
    let sql = "SELECT (SELECT count(*) FROM purchase) + (SELECT count(*) FROM delivery)";
    let done: usize = shop.db.query_as_one(sql, ()).await.unwrap();
    // Three deliveries were there when the shop opened.
    assert!(done - 3 >= confirmed, "what was confirmed is there");
    assert!((1..100).contains(&confirmed), "{confirmed} confirmed");
}
