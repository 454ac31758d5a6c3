//! The unchanged shop with unlimited stock, on a file in the working directory. Takes SQLite's `synchronous`, prints its
//! address, and serves until it is killed.

use std::time::Duration;

use cenote::Db;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let [synchronous] = given.as_slice() else {
        return Err("usage: cenote-bench-web SYNCHRONOUS".into());
    };
    // The builder's defaults besides: WAL, foreign keys, ten connections.
    let db = Db::builder("sqlite:shop.db")
        .option("synchronous", synchronous.as_str())
        .open()
        .await?;
    cenote_shop::set_up(&db).await?;
    db.exec("UPDATE product SET stock = 1000000000", ()).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    axum::serve(listener, cenote_shop::app(db, Duration::from_secs(10))).await?;
    Ok(())
}
