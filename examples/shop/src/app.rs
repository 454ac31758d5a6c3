//! Routes and layers.

use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::{get, post};
use cenote::Db;
use cenote_tower::{CoroutineLayer, commit_2xx_and_3xx};
use tower::ServiceBuilder;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::timeout::TimeoutLayer;

use crate::error::Error;
use crate::{export, handlers};

/// Returns the shop: all routes in all layers. `time_limit` is the longest time until a response begins.
pub fn app(db: Db, time_limit: Duration) -> Router {
    with_layers(routes(&db), time_limit).with_state(db)
}

/// The routes alone.
pub fn routes(db: &Db) -> Router<Db> {
    // A transaction for each request, so the handlers need none of their own.
    let transaction = CoroutineLayer::new()
        .transaction(db.clone(), commit_2xx_and_3xx)
        .on_error(|error| axum::response::IntoResponse::into_response(Error::from(error.clone())));
    let back_office = Router::new()
        .route("/products", post(handlers::add_product))
        .route("/products/{id}/deliveries", post(handlers::deliver))
        .layer(transaction);
    Router::new()
        .route("/products", get(handlers::list_products))
        .route("/products/{id}", get(handlers::show_product))
        .route("/orders", post(handlers::place_order))
        .route("/orders/{id}", get(handlers::show_order))
        .route("/orders.ndjson", get(export::orders))
        .route("/health", get(handlers::health))
        .merge(back_office)
}

/// What every request goes through, outermost first. The coroutine is innermost: a time-out or a panic
/// ends it together with the request, and what it had open is rolled back.
pub fn with_layers(routes: Router<Db>, time_limit: Duration) -> Router<Db> {
    routes.layer(
        ServiceBuilder::new()
            .layer(CatchPanicLayer::new())
            .layer(TimeoutLayer::with_status_code(
                StatusCode::GATEWAY_TIMEOUT,
                time_limit,
            ))
            .layer(CoroutineLayer::new()),
    )
}
