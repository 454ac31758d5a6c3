//! The shop as it is, with more on the shelf than can be sold. Takes a folder for its data, says
//! where it listens, and serves until it is killed.

use std::path::Path;
use std::time::Duration;

use cenote::Db;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args()
        .nth(1)
        .ok_or("usage: cenote-bench-web FOLDER")?;
    // The builder's defaults: WAL, foreign keys, SQLite's own `synchronous` (full), ten connections.
    let db = Db::open(&format!(
        "sqlite:{}",
        Path::new(&folder).join("shop.db").display()
    ))
    .await?;
    cenote_shop::set_up(&db).await?;
    db.exec("UPDATE product SET stock = 1000000000", ()).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    axum::serve(listener, cenote_shop::app(db, Duration::from_secs(10))).await?;
    Ok(())
}
