//! The same reads with other clients, each as its documentation says it is used.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use futures_util::future::try_join_all;
use serde::Serialize;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, NoTls, Row, Statement};

use crate::{Outcome, SQL, TWENTY, variable, with_layers};

#[derive(Serialize)]
struct Product {
    id: i64,
    name: String,
    price: i64,
    stock: i64,
}

impl TryFrom<Row> for Product {
    type Error = tokio_postgres::Error;

    fn try_from(row: Row) -> Result<Self, Self::Error> {
        Ok(Product {
            id: row.try_get(0)?,
            name: row.try_get(1)?,
            price: row.try_get(2)?,
            stock: row.try_get(3)?,
        })
    }
}

enum Error {
    NotFound,
    Pool(deadpool_postgres::PoolError),
    Database(tokio_postgres::Error),
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        Error::Database(error)
    }
}

impl From<deadpool_postgres::PoolError> for Error {
    fn from(error: deadpool_postgres::PoolError) -> Self {
        Error::Pool(error)
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let status = match self {
            Error::NotFound => StatusCode::NOT_FOUND,
            Error::Pool(error) => {
                eprintln!("{error}");
                StatusCode::SERVICE_UNAVAILABLE
            }
            Error::Database(error) => {
                eprintln!("{error}");
                StatusCode::INTERNAL_SERVER_ERROR
            }
        };
        status.into_response()
    }
}

fn config() -> Outcome<Config> {
    let mut config = Config::new();
    config
        .host(variable("BENCH_HOST")?)
        .port(variable("BENCH_PORT")?.parse()?)
        .user("cenote")
        .password("cenote-secret")
        .dbname("cenote");
    Ok(config)
}

async fn read(client: &Client, statement: &Statement, id: i64) -> Result<Product, Error> {
    let parameters: [&(dyn ToSql + Sync); 1] = [&id];
    let row = client.query_opt(statement, &parameters).await?;
    Ok(row.ok_or(Error::NotFound)?.try_into()?)
}

async fn read_twenty(client: &Client, statement: &Statement) -> Result<Json<Vec<Product>>, Error> {
    let reads = (1..=TWENTY).map(|id| read(client, statement, id));
    Ok(Json(try_join_all(reads).await?))
}

/// How twenty products are read with deadpool-postgres.
#[derive(Clone, Copy)]
pub enum Twenty {
    /// Twenty futures at once, which the client pipelines.
    Pipelined,
    /// One query after the other.
    InTurn,
}

/// Returns the shop on deadpool-postgres.
pub fn pooled(connections: usize, twenty: Twenty) -> Outcome<Router> {
    // The fastest way to recycle, which is the default.
    let recycling = ManagerConfig {
        recycling_method: RecyclingMethod::Fast,
    };
    let manager = Manager::from_config(config()?, NoTls, recycling);
    let pool = Pool::builder(manager).max_size(connections).build()?;
    let twenty = match twenty {
        Twenty::Pipelined => get(pooled_twenty),
        Twenty::InTurn => get(pooled_twenty_in_turn),
    };
    let routes = Router::new()
        .route("/products/{id}", get(pooled_product))
        .route("/twenty", twenty);
    Ok(with_layers(routes.with_state(pool)))
}

async fn pooled_product(
    State(pool): State<Pool>,
    Path(id): Path<i64>,
) -> Result<Json<Product>, Error> {
    let client = pool.get().await?;
    let statement = client.prepare_cached(SQL).await?;
    Ok(Json(read(&client, &statement, id).await?))
}

async fn pooled_twenty(State(pool): State<Pool>) -> Result<Json<Vec<Product>>, Error> {
    let client = pool.get().await?;
    let statement = client.prepare_cached(SQL).await?;
    read_twenty(&client, &statement).await
}

async fn pooled_twenty_in_turn(State(pool): State<Pool>) -> Result<Json<Vec<Product>>, Error> {
    let client = pool.get().await?;
    let statement = client.prepare_cached(SQL).await?;
    let mut products = Vec::with_capacity(TWENTY as usize);
    for id in 1..=TWENTY {
        products.push(read(&client, &statement, id).await?);
    }
    Ok(Json(products))
}

type Shared = Arc<(Client, Statement)>;

/// Returns the shop on one client, which all requests share.
pub async fn shared() -> Outcome<Router> {
    let (client, connection) = config()?.connect(NoTls).await?;
    tokio::spawn(connection);
    let statement = client.prepare(SQL).await?;
    let routes = Router::new()
        .route("/products/{id}", get(shared_product))
        .route("/twenty", get(shared_twenty));
    Ok(with_layers(
        routes.with_state(Arc::new((client, statement))),
    ))
}

async fn shared_product(
    State(shared): State<Shared>,
    Path(id): Path<i64>,
) -> Result<Json<Product>, Error> {
    Ok(Json(read(&shared.0, &shared.1, id).await?))
}

async fn shared_twenty(State(shared): State<Shared>) -> Result<Json<Vec<Product>>, Error> {
    read_twenty(&shared.0, &shared.1).await
}
