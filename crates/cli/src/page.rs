//! The live page of a run (`--page`): on loopback, at an address that nobody can guess.

use std::convert::Infallible;
use std::net::SocketAddr;

use cenote::Db;
use cenote_dashboard::{Body, Dashboard};
use hyper::body::Incoming;
use hyper::header::HOST;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tower_service::Service;

use crate::failure::Failure;

/// A page that is served. Dropped, its address answers no more.
#[derive(Debug)]
pub(crate) struct Page {
    address: String,
    serving: JoinHandle<()>,
}

#[allow(
    clippy::disallowed_methods,
    reason = "a server of its own beside the pool"
)]
impl Page {
    /// Serves the page of a handle. Needs Tokio.
    pub(crate) async fn serve(db: &Db) -> Result<Self, Failure> {
        let failed = |what, error: &dyn std::fmt::Display| {
            Failure::other(format!("the page cannot {what}: {error}"))
        };
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| failed("get a random address", &error))?;
        let path = format!("/{:032x}", u128::from_ne_bytes(random));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await;
        let listener = listener.map_err(|error| failed("listen on loopback", &error))?;
        let local = listener.local_addr();
        let local = local.map_err(|error| failed("listen on loopback", &error))?;
        let address = format!("http://{local}{path}");
        let dashboard = Dashboard::with_statement_texts(db);
        Ok(Page {
            address,
            serving: tokio::spawn(accept(listener, local, path, dashboard)),
        })
    }

    /// Returns where the page is.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "a server of its own beside the pool"
)]
async fn accept(listener: TcpListener, local: SocketAddr, path: String, dashboard: Dashboard) {
    loop {
        // A connection that could not be accepted concerns nobody else.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::task::yield_now().await;
            continue;
        };
        let (path, dashboard) = (path.clone(), dashboard.clone());
        tokio::spawn(async move {
            let answer = service_fn(move |request| {
                let mut dashboard = dashboard.clone();
                let is_known = is_for_us(&request, local, &path);
                async move {
                    match is_known {
                        true => dashboard.call(request).await,
                        false => Ok::<_, Infallible>(unknown()),
                    }
                }
            });
            let connection = hyper::server::conn::http1::Builder::new();
            // A viewer that goes away is no failure.
            let _ = connection
                .serve_connection(TokioIo::new(stream), answer)
                .await;
        });
    }
}

/// Returns whether a request knows the path, and was sent to this address: a foreign page that makes its own name point
/// here has another host.
fn is_for_us(request: &Request<Incoming>, local: SocketAddr, path: &str) -> bool {
    let host = request.headers().get(HOST).map(|host| host.as_bytes());
    let by_name = format!("localhost:{}", local.port());
    let is_host = host == Some(local.to_string().as_bytes()) || host == Some(by_name.as_bytes());
    is_host && request.uri().path().trim_end_matches('/') == path
}

fn unknown() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}
