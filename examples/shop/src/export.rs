//! All orders, one JSON document a line, however many there are.

use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use cenote::{Db, Row, RowStream};
use futures_util::TryStreamExt;

use crate::error::Result;
use crate::repository::Order;

/// A body that is read from the database as fast as the client takes it. A client that goes away
/// drops it, and the connection is back in the pool.
pub(crate) async fn orders(State(db): State<Db>) -> Result<impl IntoResponse> {
    // Up to here a failure is an error response; later it can only cut the body off.
    let sql = "SELECT id, customer, total FROM purchase ORDER BY id";
    let rows: RowStream = db.stream(sql, ()).await?;
    let lines = rows.and_then(async |row| line(&row));
    let content_type = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((content_type, Body::from_stream(lines)))
}

fn line(row: &Row) -> cenote::Result<String> {
    let order: Order = cenote::from_row(row)?;
    let mut line = serde_json::to_string(&order).map_err(cenote::Error::other)?;
    line.push('\n');
    Ok(line)
}
