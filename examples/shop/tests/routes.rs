//! What the shop answers, over HTTP.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::cell::RefCell;
use std::io::Write;
use std::sync::Once;
use std::time::Duration;

use axum::Router;
use axum::http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use support::{AGES, Place, Shop};

/// Writes each promise as a test on SQLite and on PostgreSQL.
macro_rules! on_both_databases {
    ($($promise:ident,)*) => {
        mod on_sqlite {
            $(#[tokio::test]
            async fn $promise() {
                super::$promise(crate::support::Place::sqlite()).await;
            })*
        }

        mod on_postgres {
            $(#[tokio::test]
            async fn $promise() {
                super::$promise(crate::support::Place::postgres().await).await;
            })*
        }
    };
}

on_both_databases! {
    products_are_listed_shown_and_added,
    delivery_of_an_unknown_product_is_not_found,
    order_takes_its_products_from_stock_and_can_be_looked_up,
    order_above_stock_is_a_conflict_and_takes_nothing,
    invalid_input_is_unprocessable_and_missing_items_not_found,
    shop_without_a_free_connection_answers_503_with_retry_after,
    all_orders_are_exported_one_a_line,
    export_broken_off_half_way_returns_its_connection,
    instances_that_start_together_migrate_once,
    slow_statements_are_logged_with_their_line,
}

async fn products_are_listed_shown_and_added(place: Place) {
    let shop = Shop::at(place).await;
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

async fn delivery_of_an_unknown_product_is_not_found(place: Place) {
    let shop = Shop::at(place).await;
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

async fn order_takes_its_products_from_stock_and_can_be_looked_up(place: Place) {
    let shop = Shop::at(place).await;
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

async fn order_above_stock_is_a_conflict_and_takes_nothing(place: Place) {
    let shop = Shop::at(place).await;
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

async fn invalid_input_is_unprocessable_and_missing_items_not_found(place: Place) {
    let shop = Shop::at(place).await;
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

async fn shop_without_a_free_connection_answers_503_with_retry_after(place: Place) {
    let second = Duration::from_secs(1);
    let shop = Shop::with(
        place,
        Router::new(),
        |db| db.max(1).acquire_timeout(second),
        AGES,
    )
    .await;
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
    let name = "0".repeat(1000);
    let sql = "INSERT INTO purchase (customer, total) VALUES (?, ?)";
    let all: Vec<_> = (1..=orders).map(|n| (name.clone(), n)).collect();
    shop.db.exec_many(sql, all).await.unwrap();
}

async fn all_orders_are_exported_one_a_line(place: Place) {
    let shop = Shop::at(place).await;
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

async fn export_broken_off_half_way_returns_its_connection(place: Place) {
    let shop = Shop::at(place).await;
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

async fn instances_that_start_together_migrate_once(place: Place) {
    let mut instances = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let dsn = place.dsn.clone();
        instances.spawn(async move { cenote_shop::open(&dsn).await });
    }
    for opened in instances.join_all().await {
        let sql = "SELECT count(*) FROM product";
        let products: i64 = opened.unwrap().query_as_one(sql, ()).await.unwrap();
        assert_eq!(products, 3);
    }
    let shop = Shop::at(place).await;
    shop.books_balance().await;
}

thread_local! {
    /// What was logged on this thread.
    static LOGGED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOGGED.with_borrow_mut(|logged| logged.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn slow_statements_are_logged_with_their_line(place: Place) {
    static INSTALLED: Once = Once::new();
    // One for the whole program: subscribers of single threads race for the cache of `tracing`.
    INSTALLED.call_once(|| {
        tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(|| Log)
            .init()
    });
    let slow = |db: cenote::Builder| db.slow_statements(Duration::from_nanos(1));
    let shop = Shop::with(place, Router::new(), slow, AGES).await;
    assert_eq!(shop.get("/products/1").await.0, 200);
    let said = String::from_utf8(LOGGED.take()).unwrap();
    let line = said
        .lines()
        .find(|line| line.contains("FROM product WHERE id = ?"));
    let line = line.expect("the statement is logged as it was written");
    assert!(
        line.contains("WARN cenote::statement: slow statement:"),
        "{line}"
    );
    assert!(line.contains("repository.rs:"), "{line}");
}
