//! Sends requests to the shop, in this process and by a stopped clock, to count instructions under callgrind: of ten
//! requests nine read a product, one places an order. After every 100 requests a tenth of a second passes, as at 1,000
//! requests a second. Five connections are held meanwhile.
//!
//!     cenote-bench-page plain|mounted|open REQUESTS
//!
//! `mounted` has the page and nobody looks at it; with `open` one viewer reads every event.

use std::future::{Future, poll_fn};
use std::path::Path;
use std::pin::pin;
use std::sync::mpsc::RecvTimeoutError;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use cenote::Db;
use cenote_dashboard::Dashboard;
use http_body_util::BodyExt;
use tower_service::Service;

/// How many requests come between two samples of the page.
const REQUESTS_A_SAMPLE: usize = 100;

/// What a customer orders.
const ORDER: &str = r#"{"customer":"a diver","lines":[{"product":1,"quantity":1}]}"#;

type Failure = Box<dyn std::error::Error>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let (mode, requests) = match given.as_slice() {
        [mode, requests] if ["plain", "mounted", "open"].contains(&mode.as_str()) => {
            (mode.as_str(), requests.parse()?)
        }
        _ => return Err("usage: cenote-bench-page plain|mounted|open REQUESTS".into()),
    };
    let folder = tempfile::tempdir()?;
    let db = open(folder.path()).await?;
    let mut shop = cenote_shop::app(db.clone(), Duration::from_secs(10));
    for at in 0..200 {
        send(&mut shop, at).await?;
    }
    // Samples see the connections of a busy program.
    let mut held = Vec::new();
    for _ in 0..5 {
        let connection = db.connection().await?;
        connection.query("SELECT count(*) FROM product", ()).await?;
        held.push(connection);
    }
    // From here on time passes only where this program says so: Tokio's stopped clock does not jump while a blocking task
    // runs.
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let (tick, mut ticks) = tokio::sync::mpsc::channel(1);
    tokio::task::spawn_blocking(move || {
        while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(Duration::from_millis(50)) {
            let _ = tick.try_send(());
        }
    });
    // Some waits of the driver end by the clock: it must not stand still for ever.
    tokio::spawn(async move {
        while ticks.recv().await.is_some() {
            tokio::time::advance(Duration::from_millis(1)).await;
        }
    });
    tokio::time::pause();
    let page = (mode != "plain").then(|| Dashboard::new(&db));
    let mut viewer = match (&page, mode) {
        (Some(page), "open") => {
            let request = Request::get("/?events").body(Body::empty())?;
            Some(page.clone().call(request).await?.into_body())
        }
        _ => None,
    };
    let mut seen = 0;
    for at in 0..requests {
        send(&mut shop, at).await?;
        if at % REQUESTS_A_SAMPLE == REQUESTS_A_SAMPLE - 1 {
            tokio::time::advance(Duration::from_millis(100)).await;
            tokio::task::yield_now().await;
            if let Some(viewer) = &mut viewer {
                // What is ready is read; the stream itself is never awaited.
                let frame = poll_fn(|cx| match pin!(viewer.frame()).poll(cx) {
                    Poll::Ready(frame) => Poll::Ready(frame),
                    Poll::Pending => Poll::Ready(None),
                });
                if let Some(frame) = frame.await {
                    seen += frame?.into_data().map_or(0, |data| data.len());
                }
            }
        }
    }
    let expected = mode == "open" && requests >= 2000;
    if expected && seen < 1000 {
        return Err(format!("the viewer has read {seen} bytes only").into());
    }
    drop((end, held));
    println!("{mode}: {requests} requests, {seen} bytes read");
    Ok(())
}

async fn open(folder: &Path) -> Result<Db, Failure> {
    let db = Db::builder(&format!("sqlite:{}", folder.join("shop.db").display()))
        .option("synchronous", "normal")
        .open()
        .await?;
    cenote_shop::set_up(&db).await?;
    db.exec("UPDATE product SET stock = 1000000000", ()).await?;
    Ok(db)
}

async fn send(shop: &mut Router, at: usize) -> Result<(), Failure> {
    let request = match at % 10 {
        9 => Request::post("/orders")
            .header("content-type", "application/json")
            .body(Body::from(ORDER))?,
        _ => Request::get("/products/2").body(Body::empty())?,
    };
    let response = shop.call(request).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    match status {
        StatusCode::OK | StatusCode::CREATED => Ok(()),
        other => Err(format!("{other}: {}", String::from_utf8_lossy(&body)).into()),
    }
}
