//! A small web service with the page at /db: `cargo run --example page`, then open the address that it prints.
//!
//! Every request to /order?item=N is a transaction. The program also orders by itself, so that there is something to see.

use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State};
use axum::routing::get;
use cenote::Db;
use cenote_dashboard::Dashboard;
use tokio::net::TcpListener;

async fn order(State(db): State<Db>, Query(asked): Query<Vec<(String, i64)>>) -> String {
    let item = asked.first().map_or(1, |(_, item)| *item);
    match buy(&db, item).await {
        Ok(left) => format!("{left} left\n"),
        Err(error) => format!("{error}\n"),
    }
}

async fn buy(db: &Db, item: i64) -> cenote::Result<i64> {
    db.transaction(async || {
        db.exec("UPDATE stock SET left = left - 1 WHERE item = ?", item)
            .await?;
        // A call to a payment service, in the middle of a transaction: the page shows what that costs.
        tokio::time::sleep(Duration::from_millis(4)).await;
        db.query_one("SELECT left FROM stock WHERE item = ?", item)
            .await?
            .get(0)
    })
    .await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("shop.db");
    let db = Db::open(&format!("sqlite:{}", file.display())).await?;
    db.exec(
        "CREATE TABLE stock (item INTEGER PRIMARY KEY, left INTEGER)",
        (),
    )
    .await?;
    db.exec("INSERT INTO stock VALUES (1, 1000000), (2, 1000000)", ())
        .await?;
    for customer in 0..6 {
        let db = db.clone();
        tokio::spawn(async move {
            loop {
                if let Err(error) = buy(&db, customer % 2 + 1).await {
                    eprintln!("{error}");
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
    }

    // Mount it where only those come who may see it; here only this machine can.
    let app = Router::new()
        .route("/order", get(order))
        .nest_service("/db", Dashboard::new(&db))
        .with_state(db);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}/db", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
