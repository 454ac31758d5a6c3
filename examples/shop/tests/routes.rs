//! What the shop answers, over HTTP.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::time::Duration;

use axum::Router;
use axum::http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use support::{AGES, Shop};

#[tokio::test]
async fn products_are_listed_shown_and_added() {
    let shop = Shop::open().await;
    let (status, all) = shop.get("/products").await;
    assert_eq!((status.as_u16(), all.as_array().unwrap().len()), (200, 3));
    let lamp = json!({ "name": "lantern", "price": 700, "stock": 5 });
    let (status, added) = shop.post("/products", lamp.clone()).await;
    assert_eq!(status, 201);
    assert_eq!(added["stock"], 5);
    let (status, shown) = shop.get(&format!("/products/{}", added["id"])).await;
    assert_eq!((status.as_u16(), &shown), (200, &added));
    let (status, _) = shop.post("/products", lamp).await;
    assert_eq!(status, 409);
    shop.books_balance().await;
    shop.is_whole().await;
}

#[tokio::test]
async fn delivery_of_an_unknown_product_is_not_found() {
    let shop = Shop::open().await;
    let (status, product) = shop
        .post("/products/1/deliveries", json!({ "quantity": 7 }))
        .await;
    assert_eq!((status.as_u16(), &product["stock"]), (200, &json!(107)));
    let (status, _) = shop
        .post("/products/99/deliveries", json!({ "quantity": 7 }))
        .await;
    assert_eq!(status, 404);
    shop.books_balance().await;
}

#[tokio::test]
async fn order_takes_its_products_from_stock_and_can_be_looked_up() {
    let shop = Shop::open().await;
    let basket = json!({
        "customer": "a diver",
        "lines": [{ "product": 1, "quantity": 2 }, { "product": 2, "quantity": 10 }],
    });
    let (status, order) = shop.post("/orders", basket).await;
    assert_eq!(status, 201);
    assert_eq!(order["total"], 2 * 4900 + 10 * 1250);
    let (status, found) = shop.get(&format!("/orders/{}", order["id"])).await;
    assert_eq!((status.as_u16(), &found), (200, &order));
    assert_eq!((shop.stock(1).await, shop.stock(2).await), (98, 90));
    shop.books_balance().await;
    shop.is_whole().await;
}

#[tokio::test]
async fn order_above_stock_is_a_conflict_and_takes_nothing() {
    let shop = Shop::open().await;
    let basket = json!({
        "customer": "a whole crew",
        "lines": [{ "product": 1, "quantity": 2 }, { "product": 2, "quantity": 101 }],
    });
    let (status, problem) = shop.post("/orders", basket).await;
    assert_eq!(status, 409);
    assert_eq!(problem["error"], "there are not enough of product 2");
    assert_eq!((shop.stock(1).await, shop.stock(2).await), (100, 100));
    shop.books_balance().await;
    shop.is_whole().await;
}

#[tokio::test]
async fn invalid_input_is_unprocessable_and_missing_items_not_found() {
    let shop = Shop::open().await;
    let line = json!({ "product": 1, "quantity": 1 });
    let baskets = [
        json!({ "customer": "a diver", "lines": [] }),
        json!({ "customer": " ", "lines": [line] }),
        json!({ "customer": "a diver", "lines": [{ "product": 1, "quantity": 0 }] }),
        json!({ "customer": "a diver", "lines": [line, line] }),
        json!({ "lines": [line] }),
    ];
    for basket in baskets {
        let (status, _) = shop.post("/orders", basket.clone()).await;
        assert_eq!(status, 422, "{basket}");
    }
    let nameless = json!({ "name": "", "price": 1, "stock": 1 });
    assert_eq!(shop.post("/products", nameless).await.0, 422);
    let unknown = json!({ "customer": "a diver", "lines": [{ "product": 99, "quantity": 1 }] });
    assert_eq!(shop.post("/orders", unknown).await.0, 404);
    assert_eq!(shop.get("/orders/99").await.0, 404);
    assert_eq!(shop.get("/products/99").await.0, 404);
    shop.books_balance().await;
}

#[tokio::test]
async fn shop_without_a_free_connection_answers_503_with_retry_after() {
    let second = Duration::from_secs(1);
    let shop = Shop::with(Router::new(), |db| db.max(1).acquire_timeout(second), AGES).await;
    let (status, health) = shop.get("/health").await;
    assert_eq!((status.as_u16(), &health["connections"]), (200, &json!(1)));
    let only_one = shop.db.connection().await.unwrap();
    let new = json!({ "name": "lantern", "price": 700, "stock": 5 });
    let mut client = shop.client().await;
    for (method, path, body) in [
        (Method::GET, "/products/1", None),
        (Method::POST, "/products", Some(new)),
    ] {
        let response = client.send(method, path, body).await.unwrap();
        assert_eq!(response.status(), 503, "{path}");
        assert_eq!(response.headers()["retry-after"], "1");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let problem: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(problem["error"], "busy, please try again");
    }
    drop(only_one);
    assert_eq!(shop.get("/products/1").await.0, 200);
    shop.is_whole().await;
}

async fn fill(shop: &Shop, orders: i64) {
    // A name of 1 KB: more than fits into the buffers of a socket when there are thousands.
    let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT ?)
               INSERT INTO purchase SELECT i, hex(zeroblob(500)), i FROM n";
    shop.db.exec(sql, (orders,)).await.unwrap();
}

#[tokio::test]
async fn all_orders_are_exported_one_a_line() {
    let shop = Shop::open().await;
    fill(&shop, 3000).await;
    let mut client = shop.client().await;
    let response = client.send(Method::GET, "/orders.ndjson", None).await;
    let response = response.unwrap();
    assert_eq!(response.headers()["content-type"], "application/x-ndjson");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let lines = std::str::from_utf8(&body).unwrap().lines();
    let orders: Vec<Value> = lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(orders.len(), 3000);
    assert!((1..).zip(&orders).all(|(n, order)| order["id"] == n));
    shop.is_whole().await;
}

#[tokio::test]
async fn export_broken_off_half_way_returns_its_connection() {
    let shop = Shop::open().await;
    fill(&shop, 20_000).await;
    let mut client = shop.client().await;
    let response = client.send(Method::GET, "/orders.ndjson", None).await;
    let mut body = response.unwrap().into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(first.starts_with(br#"{"id":1,"#));
    assert_eq!(shop.db.status().active, 1, "it is still reading");
    drop((body, client));
    shop.is_whole().await;
    assert_eq!(shop.get("/products/1").await.0, 200);
}
