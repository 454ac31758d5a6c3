//! The hot routes of `examples/shop` on sqlx's SQLite pool: the same statements, the same checks, the
//! same layers but for the coroutine, the same pragmas, defaults for all else. The file is in the
//! working directory. Takes SQLite's `synchronous`, prints its address, and serves until it is killed.

use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Sqlite, SqlitePool, Transaction};
use tokio::net::TcpListener;
use tower::ServiceBuilder;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::timeout::TimeoutLayer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let [synchronous] = given.as_slice() else {
        return Err("usage: cenote-bench-web-sqlx SYNCHRONOUS".into());
    };
    let synchronous: SqliteSynchronous = synchronous.parse()?;
    let options = SqliteConnectOptions::new()
        .filename("shop.db")
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(synchronous);
    let pool = SqlitePoolOptions::new().connect_with(options).await?;
    set_up(&pool).await?;
    let app = Router::new()
        .route("/products/{id}", get(show_product))
        .route("/orders", post(place_order))
        .layer(ServiceBuilder::new().layer(CatchPanicLayer::new()).layer(
            TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_secs(10)),
        ))
        .with_state(pool);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}

async fn set_up(pool: &SqlitePool) -> sqlx::Result<()> {
    for sql in [
        "CREATE TABLE product (
             id    INTEGER PRIMARY KEY,
             name  TEXT    NOT NULL UNIQUE,
             price INTEGER NOT NULL CHECK (price >= 0),
             stock INTEGER NOT NULL CHECK (stock >= 0)
         )",
        "CREATE TABLE purchase (
             id       INTEGER PRIMARY KEY,
             customer TEXT    NOT NULL,
             total    INTEGER NOT NULL
         )",
        "CREATE TABLE purchase_line (
             purchase INTEGER NOT NULL REFERENCES purchase,
             product  INTEGER NOT NULL REFERENCES product,
             quantity INTEGER NOT NULL CHECK (quantity > 0),
             price    INTEGER NOT NULL,
             PRIMARY KEY (purchase, product)
         ) WITHOUT ROWID",
        "INSERT INTO product VALUES
             (1, 'lamp', 4900, 1000000000), (2, 'rope', 1250, 1000000000), (3, 'map', 800, 1000000000)",
    ] {
        sqlx::query(sql).execute(pool).await?;
    }
    Ok(())
}

enum Error {
    NotFound,
    OutOfStock,
    Invalid,
    Database(sqlx::Error),
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        Error::Database(error)
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let status = match self {
            Error::NotFound => StatusCode::NOT_FOUND,
            Error::OutOfStock => StatusCode::CONFLICT,
            Error::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            Error::Database(error) => {
                eprintln!("{error}");
                StatusCode::INTERNAL_SERVER_ERROR
            }
        };
        status.into_response()
    }
}

#[derive(Serialize)]
struct Product {
    id: i64,
    name: String,
    price: i64,
    stock: i64,
}

async fn show_product(
    State(pool): State<SqlitePool>,
    Path(id): Path<i64>,
) -> Result<Json<Product>, Error> {
    let product = sqlx::query_as("SELECT id, name, price, stock FROM product WHERE id = ?")
        .bind(id)
        .fetch_optional(&pool)
        .await?;
    let (id, name, price, stock) = product.ok_or(Error::NotFound)?;
    Ok(Json(Product {
        id,
        name,
        price,
        stock,
    }))
}

#[derive(Deserialize)]
struct Line {
    product: i64,
    quantity: i64,
}

#[derive(Deserialize)]
struct Basket {
    customer: String,
    lines: Vec<Line>,
}

#[derive(Serialize)]
struct Order {
    id: i64,
    customer: String,
    total: i64,
}

async fn place_order(
    State(pool): State<SqlitePool>,
    Json(basket): Json<Basket>,
) -> Result<impl IntoResponse, Error> {
    if basket.customer.trim().is_empty() || basket.lines.is_empty() {
        return Err(Error::Invalid);
    }
    if basket.lines.iter().any(|line| line.quantity <= 0) {
        return Err(Error::Invalid);
    }
    // BEGIN IMMEDIATE as in Cenote: otherwise two transactions that have read cannot both write.
    let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await?;
    let order = check_out(&mut transaction, basket).await?;
    transaction.commit().await?;
    let location = [(header::LOCATION, format!("/orders/{}", order.id))];
    Ok((StatusCode::CREATED, location, Json(order)))
}

async fn check_out(
    transaction: &mut Transaction<'_, Sqlite>,
    basket: Basket,
) -> Result<Order, Error> {
    let id: i64 =
        sqlx::query_scalar("INSERT INTO purchase (customer, total) VALUES (?, 0) RETURNING id")
            .bind(&basket.customer)
            .fetch_one(&mut **transaction)
            .await?;
    let mut total: i64 = 0;
    for line in &basket.lines {
        let price: Option<i64> = sqlx::query_scalar(
            "UPDATE product SET stock = stock - ?1
             WHERE id = ?2 AND stock >= ?1 RETURNING price",
        )
        .bind(line.quantity)
        .bind(line.product)
        .fetch_optional(&mut **transaction)
        .await?;
        let price = price.ok_or(Error::OutOfStock)?;
        sqlx::query(
            "INSERT INTO purchase_line (purchase, product, quantity, price) VALUES (?, ?, ?, ?)",
        )
        .bind(id)
        .bind(line.product)
        .bind(line.quantity)
        .bind(price)
        .execute(&mut **transaction)
        .await?;
        let sum = price.checked_mul(line.quantity);
        let sum = sum.and_then(|sum| total.checked_add(sum));
        total = sum.ok_or(Error::Invalid)?;
    }
    sqlx::query("UPDATE purchase SET total = ? WHERE id = ?")
        .bind(total)
        .bind(id)
        .execute(&mut **transaction)
        .await?;
    let customer = basket.customer;
    Ok(Order {
        id,
        customer,
        total,
    })
}
