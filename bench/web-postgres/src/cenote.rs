//! The shop itself.

use std::time::Duration;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use cenote::Db;
use cenote_shop::repository::Product;

use crate::{Outcome, SQL, TIME_LIMIT, TWENTY, variable};

async fn open(connections: usize, share: bool) -> Outcome<Db> {
    let (host, port) = (variable("BENCH_HOST")?, variable("BENCH_PORT")?);
    let dsn = format!("pgsql:host={host};port={port};dbname=cenote;sslmode=disable");
    let builder = Db::builder(&dsn).user("cenote").password("cenote-secret");
    // As `cenote_shop::open` has it.
    let builder = builder.slow_statements(Duration::from_millis(200));
    let builder = builder.statement_timeout(Duration::from_secs(8));
    Ok(builder
        .max(connections)
        .share_connections(share)
        .open()
        .await?)
}

/// Creates the tables, with twenty products.
pub async fn set_up() -> Outcome<()> {
    let db = open(1, false).await?;
    cenote_shop::set_up(&db).await?;
    let sql = "INSERT INTO product (name, price, stock) \
               SELECT 'product ' || n, 100 * n, 100 FROM generate_series(4, ?) n ON CONFLICT DO NOTHING";
    db.exec(sql, (TWENTY,)).await?;
    db.exec("VACUUM ANALYZE product", ()).await?;
    Ok(())
}

/// Returns the shop, and one more route.
pub async fn app(connections: usize, share: bool) -> Outcome<Router> {
    let db = open(connections, share).await?;
    let routes = cenote_shop::routes(&db).route("/twenty", get(twenty));
    Ok(cenote_shop::with_layers(routes, TIME_LIMIT).with_state(db))
}

async fn twenty(State(db): State<Db>) -> cenote_shop::Result<Json<Vec<Product>>> {
    let mut batch = db.batch();
    let entries: Vec<_> = (1..=TWENTY).map(|id| batch.query_one(SQL, (id,))).collect();
    let mut results = batch.run().await?;
    let mut products = Vec::with_capacity(entries.len());
    for entry in entries {
        products.push(cenote::from_row(&results.take(entry)?)?);
    }
    Ok(Json(products))
}
