//! Each request a coroutine.

use std::task::{Context, Poll};

use cenote::{Coroutine, Db};
use http::{Request, Response, response};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use crate::body::CoroutineBody;
use crate::future::ResponseFuture;
use crate::transaction::{TransactionLayer, Verdict};

/// Makes each HTTP request a coroutine of cenote's, until its response body has ended or is
/// dropped.
///
/// The service inside, its future and its response body run and are dropped in the coroutine.
/// What any of them has pinned (a transaction that was begun and not committed, a live
/// statement, a touched session) is rolled back and returned when the coroutine ends:
///
/// - the response body has given its last frame, failed, or was dropped;
/// - the response has no body to send: when its head is there;
/// - the future was dropped before there was a response: the client is gone, or a time-out
///   outside of this layer struck;
/// - the service failed or panicked.
///
/// Tasks that a handler spawns are no part of it, nor is what becomes of a connection after
/// an upgrade (WebSockets): use [`cenote::spawn`] for these.
///
/// # Examples
///
/// ```
/// use axum::{Router, extract::State, routing::post};
/// use cenote::Db;
/// use cenote_tower::CoroutineLayer;
///
/// // Outside of a coroutine `begin` would be an error.
/// async fn reserve(State(db): State<Db>) -> Result<(), &'static str> {
///     let reserving = async {
///         let tx = db.begin().await?;
///         db.exec("UPDATE seat SET free = free - 1", ()).await?;
///         tx.commit().await
///     };
///     reserving.await.map_err(|_: cenote::Error| "not reserved")
/// }
///
/// fn app(db: Db) -> Router {
///     Router::new()
///         .route("/reserve", post(reserve))
///         .layer(CoroutineLayer::new())
///         .with_state(db)
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use tower::ServiceExt;
/// # let db = Db::open("sqlite:file:layer-doc?mode=memory&cache=shared").await?;
/// # db.exec("CREATE TABLE seat (free INTEGER)", ()).await?;
/// # db.exec("INSERT INTO seat VALUES (2)", ()).await?;
/// # let request = http::Request::post("/reserve").body(axum::body::Body::empty())?;
/// # assert!(app(db.clone()).oneshot(request).await?.status().is_success());
/// # let free: i64 = db.query_as_one("SELECT free FROM seat", ()).await?;
/// # assert_eq!(free, 1);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct CoroutineLayer {}

impl CoroutineLayer {
    /// A layer that makes each request a coroutine, and nothing else.
    pub fn new() -> Self {
        CoroutineLayer {}
    }

    /// A layer that also runs each request in a transaction of this `Db`, which is committed or
    /// rolled back by what `rule` says to the head of the response: see [`TransactionLayer`].
    ///
    /// [`commit_2xx_and_3xx`](crate::commit_2xx_and_3xx) is a rule for most.
    pub fn transaction<B>(
        self,
        db: Db,
        rule: impl Fn(&response::Parts) -> Verdict + Send + Sync + 'static,
    ) -> TransactionLayer<B>
    where
        B: Default + 'static,
    {
        TransactionLayer::new(db, rule)
    }
}

impl<S> Layer<S> for CoroutineLayer {
    type Service = CoroutineService<S>;

    fn layer(&self, inner: S) -> CoroutineService<S> {
        CoroutineService { inner }
    }
}

/// A service whose requests are coroutines: see [`CoroutineLayer`].
#[derive(Clone, Debug)]
pub struct CoroutineService<S> {
    pub(crate) inner: S,
}

impl<S, Q, B> Service<Request<Q>> for CoroutineService<S>
where
    S: Service<Request<Q>, Response = Response<B>>,
    B: Body,
{
    type Response = Response<CoroutineBody<B>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        // No request is there yet, so no coroutine either.
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Q>) -> ResponseFuture<S::Future> {
        let coroutine = Coroutine::new();
        // Calls that are made here already belong to the coroutine.
        let future = coroutine.enter(|| self.inner.call(request));
        ResponseFuture::new(coroutine, future)
    }
}
