//! Serves, and shuts down gracefully.

use std::future::{Future, IntoFuture, pending};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use cenote::Db;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::time::timeout;

/// Serves until it is asked to end. Then it takes no new requests, answers those it has, and closes
/// the database.
///
/// Clients have `grace` to read their responses; then the database has `grace` to finish its calls. What is still
/// open after that is rolled back when the program ends.
///
/// # Errors
///
/// Connections to the database were still in use at the end; the message names the lines that hold them.
pub async fn serve(
    listener: TcpListener,
    app: Router,
    db: Db,
    asked_to_end: impl Future<Output = ()> + Send + 'static,
    grace: Duration,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let ending = Arc::new(Notify::new());
    let asked = {
        let ending = Arc::clone(&ending);
        async move {
            asked_to_end.await;
            ending.notify_one();
        }
    };
    let overdue = async {
        ending.notified().await;
        let _over = timeout(grace, pending::<()>()).await;
    };
    tokio::select! {
        served = axum::serve(listener, app).with_graceful_shutdown(asked).into_future() => served?,
        () = overdue => tracing::warn!("some clients have not taken their answers in time"),
    }
    Ok(db.close_and_drain(grace).await?)
}
