//! Opens the database, serves, and ends in order.

use std::time::Duration;

use tokio::net::TcpListener;
use tokio::signal;

/// How long a request may take until its response begins.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// How long the server waits for open requests when it shuts down.
const GRACE: Duration = Duration::from_secs(15);

const USAGE: &str = "usage: cenote-shop [DSN]

DSN     where the database is, such as sqlite:shop.db or postgres://user@host/shop;
        default: the variable SHOP_DSN, or sqlite:shop.db
The variable SHOP_LISTEN says where to listen; default: 127.0.0.1:3000";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let Some(dsn) = dsn() else {
        println!("{USAGE}");
        return Ok(());
    };
    let listen = std::env::var("SHOP_LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());

    // Slow statements, failed requests and migrations go to the log.
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let db = cenote_shop::open(&dsn).await?;
    let listener = TcpListener::bind(&listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let app = cenote_shop::app(db.clone(), TIME_LIMIT);
    cenote_shop::serve(listener, app, db, asked_to_end(), GRACE).await?;
    println!("closed");
    Ok(())
}

/// `None` if help is wanted.
fn dsn() -> Option<String> {
    match std::env::args().nth(1) {
        Some(option) if option.starts_with('-') => None,
        Some(dsn) => Some(dsn),
        None => Some(std::env::var("SHOP_DSN").unwrap_or_else(|_| "sqlite:shop.db".to_owned())),
    }
}

/// Waits for Ctrl-C, or for what a service manager sends.
async fn asked_to_end() {
    let interrupted = signal::ctrl_c();
    #[cfg(unix)]
    {
        use signal::unix::{SignalKind, signal};
        let mut terminated = signal(SignalKind::terminate()).expect("a signal can be waited for");
        tokio::select! {
            // If the signal cannot be awaited, end as well.
            _ = interrupted => {}
            _ = terminated.recv() => {}
        }
    }
    #[cfg(not(unix))]
    let _ = interrupted.await;
}
