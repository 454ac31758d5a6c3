//! A pool for tokio-console: 20 tasks share 4 resources. Connect with `tokio-console`, and press `r` for the resources.
//!
//! ```text
//! RUSTFLAGS="--cfg tokio_unstable" cargo run --manifest-path otel/console/Cargo.toml
//! ```

use std::convert::Infallible;
use std::time::Duration;

use cenote_pool::Pool;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    console_subscriber::init(); // before the pool is built
    let pool = Pool::from_fn(async || Ok::<_, Infallible>(()))
        .name("orders")
        .max(4)
        .build()?;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..20 {
        let pool = pool.clone();
        tasks.spawn(async move {
            loop {
                let _lease = pool.acquire().await;
                tokio::time::sleep(Duration::from_millis(100 + number)).await;
            }
        });
    }
    tokio::signal::ctrl_c().await?;
    Ok(())
}
