#![doc = include_str!("../README.md")]

mod diagnosis;
mod event_log;
mod history;
mod json;
mod recorder;
mod servers;
pub mod sizing;
mod snapshot;
mod text;
mod viewers;

use std::convert::Infallible;
use std::fmt;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use cenote::Db;
use http::header::{self, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use tower_service::Service;

use crate::recorder::Recorder;
pub use crate::viewers::Body;
use crate::viewers::Viewers;

const PAGE: &str = include_str!("../assets/page.html");
const STYLE: &str = include_str!("../assets/page.css");
const SCRIPT: &str = include_str!("../assets/page.js");
const ICON: &str = include_str!("../assets/icon.svg");

/// A stream of events ends after this time, and the page connects again: so an open page delays the shutdown of a server
/// that waits for open requests by no more than this.
const LONGEST_STREAM: Duration = Duration::from_secs(60);

/// The headers of every response. The page loads and connects to nothing but itself, and runs no script but its own.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// A live page about a [`Db`], as a Tower service. Clones serve the same page.
///
/// It samples the handle ten times a second from [`new`](Dashboard::new) on, also while no page is open, until the last
/// clone is dropped. It reads only: no request changes anything.
///
/// The service does not look at the path of a request, so that it works wherever it is mounted. It asks for no password:
/// mount it where only those come who may see it.
///
/// # Examples
///
/// ```no_run
/// # async fn example(db: cenote::Db) -> std::io::Result<()> {
/// use cenote_dashboard::Dashboard;
///
/// let app = axum::Router::new().nest_service("/db", Dashboard::new(&db));
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
/// axum::serve(listener, app).await
/// # }
/// ```
#[derive(Clone)]
pub struct Dashboard {
    recorder: Arc<Recorder>,
    viewers: Arc<Viewers>,
    /// Distinguishes the seconds of this program from those of an earlier one.
    boot: u64,
}

impl Dashboard {
    /// Begins to sample a handle. Statements are shown by what they do (`SELECT orders`), not by their text.
    ///
    /// # Panics
    ///
    /// There is no Tokio runtime.
    pub fn new(db: &Db) -> Self {
        Dashboard::start(db, false)
    }

    /// Begins to sample a handle, as [`new`](Dashboard::new), and shows the texts of statements to everybody who sees the
    /// page: one line, with `***` in place of every string and number. Parameters are never shown.
    ///
    /// # Panics
    ///
    /// There is no Tokio runtime.
    pub fn with_statement_texts(db: &Db) -> Self {
        Dashboard::start(db, true)
    }

    fn start(db: &Db, shows_statements: bool) -> Self {
        let recorder = Recorder::new(db, shows_statements);
        tokio::spawn(Recorder::run(Arc::downgrade(&recorder)));
        let boot = SystemTime::now().duration_since(UNIX_EPOCH);
        let boot = u64::try_from(boot.unwrap_or_default().as_nanos()).unwrap_or(0);
        Dashboard {
            recorder,
            viewers: Arc::default(),
            boot,
        }
    }

    /// Ends the streams of all open pages, now and later, so that a server can shut down at once. The page shows that
    /// the program is gone.
    pub fn close(&self) {
        self.viewers.close();
    }

    /// Returns the number of open pages.
    pub fn open_pages(&self) -> usize {
        self.viewers.count()
    }

    /// Returns a text about this moment, as the page offers it for a ticket: the diagnosis, who holds connections, who
    /// waits, errors and events. It contains no statement text, no parameter and no credential.
    pub fn incident(&self) -> String {
        snapshot::incident(&self.recorder)
    }

    fn answer<B>(&self, request: &Request<B>) -> Response<Body> {
        let is_head = request.method() == Method::HEAD;
        if request.method() != Method::GET && !is_head {
            let mut refused = response(
                StatusCode::METHOD_NOT_ALLOWED,
                TEXT,
                "the page can only be read\n",
            );
            let allowed = HeaderValue::from_static("GET, HEAD");
            refused.headers_mut().insert(header::ALLOW, allowed);
            return refused;
        }
        let mut answer = match request.uri().query() {
            None | Some("") => response(StatusCode::OK, "text/html; charset=utf-8", PAGE),
            Some("page.css") => response(StatusCode::OK, "text/css; charset=utf-8", STYLE),
            Some("page.js") => response(StatusCode::OK, "text/javascript; charset=utf-8", SCRIPT),
            Some("icon.svg") => response(StatusCode::OK, "image/svg+xml", ICON),
            Some("incident.txt") => response(StatusCode::OK, TEXT, self.incident()),
            Some("events") if is_head => response(StatusCode::OK, "text/event-stream", ""),
            Some("events") => {
                let since = self.since(request);
                let body = Body::stream(&self.recorder, &self.viewers, self.boot, since);
                with_headers(StatusCode::OK, "text/event-stream", body)
            }
            Some(_) => response(
                StatusCode::NOT_FOUND,
                TEXT,
                "there is no such part of the page\n",
            ),
        };
        if is_head {
            *answer.body_mut() = Body::empty();
        }
        answer
    }

    /// Returns the number of the first second that the page lacks.
    fn since<B>(&self, request: &Request<B>) -> u64 {
        let last = request.headers().get("last-event-id");
        let last = last.and_then(|last| last.to_str().ok());
        let seconds = last.and_then(|last| {
            let (boot, second) = last.split_once('-')?;
            let is_ours = u64::from_str_radix(boot, 16) == Ok(self.boot);
            second.parse().ok().filter(|_| is_ours)
        });
        seconds.unwrap_or(0)
    }
}

const TEXT: &str = "text/plain; charset=utf-8";

fn response(status: StatusCode, kind: &'static str, content: impl Into<Bytes>) -> Response<Body> {
    with_headers(status, kind, Body::whole(content))
}

fn with_headers(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

impl<B> Service<Request<B>> for Dashboard {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        ready(Ok(self.answer(&request)))
    }
}

impl fmt::Debug for Dashboard {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Dashboard")
            .field("db", &self.recorder.db)
            .field("open_pages", &self.open_pages())
            .finish_non_exhaustive()
    }
}
