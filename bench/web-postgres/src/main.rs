//! The reads of `examples/shop` on PostgreSQL. Prints its address, and serves until it is killed.
//!
//!     cenote-bench-web-postgres PEER CONNECTIONS
//!     cenote-bench-web-postgres setup            creates the tables of the shop
//!
//! | PEER | |
//! |---|---|
//! | `cenote` | the unchanged shop |
//! | `lanes` | the same with shared connections |
//! | `deadpool` | the same statements and layers on deadpool-postgres; twenty products with twenty futures on one client |
//! | `deadpool-in-turn` | the same; twenty products one after the other |
//! | `threads` | the same on tokio-postgres: CONNECTIONS threads, each with a runtime and a client that all of its requests share |
//!
//! `/products/{id}` reads one product. `/twenty` reads twenty of them, each with a query of its own: Cenote with `db.batch()`. The server's address is in `BENCH_HOST` and `BENCH_PORT`.

mod cenote;
mod peers;

use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use tokio::runtime::Builder;
use tower::ServiceBuilder;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::timeout::TimeoutLayer;

use self::peers::Twenty;

pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The statement of the shop, with PostgreSQL's placeholder.
pub const SQL: &str = "SELECT id, name, price, stock FROM product WHERE id = $1";

/// How many products `/twenty` reads.
pub const TWENTY: i64 = 20;

const TIME_LIMIT: Duration = Duration::from_secs(10);

fn main() -> Outcome<()> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = given.iter().map(String::as_str).collect();
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let [peer, connections] = words[..] else {
        return match words[..] {
            ["setup"] => runtime.block_on(cenote::set_up()),
            _ => Err("PEER CONNECTIONS, or setup".into()),
        };
    };
    let connections = connections.parse()?;
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    println!("{}", listener.local_addr()?);
    let app = async {
        match peer {
            "cenote" => cenote::app(connections, false).await,
            "lanes" => cenote::app(connections, true).await,
            "deadpool" => peers::pooled(connections, Twenty::Pipelined),
            "deadpool-in-turn" => peers::pooled(connections, Twenty::InTurn),
            _ => Err("PEER is cenote, lanes, deadpool, deadpool-in-turn or threads".into()),
        }
    };
    match peer {
        "threads" => serve_on_threads(listener, connections),
        _ => runtime.block_on(async { serve(listener, app.await?).await }),
    }
}

async fn serve(listener: std::net::TcpListener, app: Router) -> Outcome<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    Ok(axum::serve(listener, app).await?)
}

/// Serves on threads that share nothing but the listener.
fn serve_on_threads(listener: std::net::TcpListener, count: usize) -> Outcome<()> {
    let threads: Vec<_> = (0..count)
        .map(|_| {
            let listener = listener.try_clone()?;
            Ok(std::thread::spawn(move || {
                let runtime = Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(async { serve(listener, peers::shared().await?).await })
            }))
        })
        .collect::<Outcome<_>>()?;
    for thread in threads {
        thread.join().map_err(|_| "a thread has panicked")??;
    }
    Ok(())
}

/// The layers of the shop without the coroutine.
pub fn with_layers(routes: Router) -> Router {
    let layers = ServiceBuilder::new().layer(CatchPanicLayer::new());
    routes.layer(layers.layer(TimeoutLayer::with_status_code(
        StatusCode::GATEWAY_TIMEOUT,
        TIME_LIMIT,
    )))
}

/// Returns a variable of the environment.
pub fn variable(name: &str) -> Outcome<String> {
    std::env::var(name).map_err(|error| format!("{name}: {error}").into())
}
