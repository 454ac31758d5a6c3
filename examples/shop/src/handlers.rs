//! What each route does.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use cenote::Db;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::repository::{self, Line, NewProduct, Order, Product};

pub(crate) async fn list_products(State(db): State<Db>) -> Result<Json<Vec<Product>>> {
    Ok(Json(repository::products(&db).await?))
}

pub(crate) async fn show_product(
    State(db): State<Db>,
    Path(id): Path<i64>,
) -> Result<Json<Product>> {
    Ok(Json(repository::product(&db, id).await?))
}

/// Two writes in one transaction, which the layer around this route opens.
pub(crate) async fn add_product(
    State(db): State<Db>,
    Json(new): Json<NewProduct>,
) -> Result<impl IntoResponse> {
    if new.name.trim().is_empty() {
        return Err(Error::Invalid("a product needs a name"));
    }
    if new.price < 0 || new.stock < 0 {
        return Err(Error::Invalid("price and stock must not be negative"));
    }
    let id = repository::add_product(&db, new.name.trim(), new.price).await?;
    if new.stock > 0 {
        receive(&db, id, new.stock).await?;
    }
    let location = [(header::LOCATION, format!("/products/{id}"))];
    let product = repository::product(&db, id).await?;
    Ok((StatusCode::CREATED, location, Json(product)))
}

#[derive(Deserialize)]
pub(crate) struct Delivery {
    quantity: i64,
}

pub(crate) async fn deliver(
    State(db): State<Db>,
    Path(product): Path<i64>,
    Json(delivery): Json<Delivery>,
) -> Result<Json<Product>> {
    if delivery.quantity <= 0 {
        return Err(Error::Invalid("a delivery has at least one of something"));
    }
    receive(&db, product, delivery.quantity).await?;
    Ok(Json(repository::product(&db, product).await?))
}

async fn receive(db: &Db, product: i64, quantity: i64) -> Result<()> {
    repository::put_on_shelf(db, product, quantity).await?;
    repository::note_delivery(db, product, quantity).await
}

#[derive(Deserialize)]
pub(crate) struct Basket {
    customer: String,
    lines: Vec<Line>,
}

/// Several calls of the repository that happen together or not at all: commits if `check_out` gives
/// `Ok`; an error, a panic, a time-out or a client that hangs up rolls all of it back.
pub(crate) async fn place_order(
    State(db): State<Db>,
    Json(basket): Json<Basket>,
) -> Result<impl IntoResponse> {
    check(&basket)?;
    let order = db
        .try_transaction(async || check_out(&db, basket).await)
        .await?;
    let location = [(header::LOCATION, format!("/orders/{}", order.id))];
    Ok((StatusCode::CREATED, location, Json(order)))
}

async fn check_out(db: &Db, basket: Basket) -> Result<Order> {
    let id = repository::add_order(db, &basket.customer).await?;
    let mut total: i64 = 0;
    for line in &basket.lines {
        let price = repository::take_from_shelf(db, line).await?;
        repository::add_line(db, id, line, price).await?;
        let sum = price.checked_mul(line.quantity);
        let sum = sum.and_then(|sum| total.checked_add(sum));
        total = sum.ok_or(Error::Invalid("that is more than can be counted"))?;
    }
    repository::set_total(db, id, total).await?;
    let customer = basket.customer;
    Ok(Order {
        id,
        customer,
        total,
    })
}

fn check(basket: &Basket) -> Result<()> {
    if basket.customer.trim().is_empty() {
        return Err(Error::Invalid("an order needs a customer"));
    }
    if basket.lines.is_empty() {
        return Err(Error::Invalid("the basket is empty"));
    }
    if basket.lines.iter().any(|line| line.quantity <= 0) {
        return Err(Error::Invalid("every line needs a quantity above 0"));
    }
    let mut products: Vec<_> = basket.lines.iter().map(|line| line.product).collect();
    products.sort_unstable();
    products.dedup();
    match products.len() == basket.lines.len() {
        true => Ok(()),
        false => Err(Error::Invalid("a product is in the basket twice")),
    }
}

pub(crate) async fn show_order(State(db): State<Db>, Path(id): Path<i64>) -> Result<Json<Order>> {
    Ok(Json(repository::order(&db, id).await?))
}

#[derive(Serialize)]
pub(crate) struct Health {
    connections: usize,
    in_use: usize,
    waiting: usize,
}

/// For load balancers: can the database be reached, and how busy are we?
pub(crate) async fn health(State(db): State<Db>) -> Result<Json<Health>> {
    db.ping().await?;
    let status = db.status();
    Ok(Json(Health {
        connections: status.total,
        in_use: status.active,
        waiting: status.waiting,
    }))
}
