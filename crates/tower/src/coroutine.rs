//! The layer that runs each request in a coroutine.

use std::task::{Context, Poll};

use cenote::{Coroutine, Db};
use http::{Request, Response, response};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use crate::body::CoroutineBody;
use crate::future::ResponseFuture;
use crate::position::{self, PositionLayer};
use crate::transaction::{TransactionLayer, Verdict};

/// Runs each HTTP request in a coroutine of its own, which ends with the response body.
///
/// The inner service, its future and its response body run, and are dropped, in the coroutine.
/// They may leave a connection pinned: by an uncommitted transaction, a live statement or changed
/// session state. When the coroutine ends, Cenote rolls back, resets the session and releases the
/// connection. The coroutine ends when:
///
/// - the response body has returned its last frame, has failed or is dropped;
/// - the response has no body: when its head is ready;
/// - the response future is dropped early, because the client disconnected or an outer layer
///   timed out;
/// - the service returns an error or panics.
///
/// The coroutine does not include tasks that a handler spawns, or an upgraded connection
/// (WebSockets): use [`cenote::spawn`] for these.
///
/// # Examples
///
/// ```
/// use axum::{Router, extract::State, routing::post};
/// use cenote::Db;
/// use cenote_tower::CoroutineLayer;
///
/// // `begin` needs a coroutine: without the layer it would return an error.
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
    /// Creates a layer that runs each request in a coroutine, without a transaction.
    pub fn new() -> Self {
        CoroutineLayer {}
    }

    /// Creates a layer that also runs each request in a transaction of `db`: see
    /// [`TransactionLayer`].
    ///
    /// `rule` reads the head of the response and decides between commit and rollback.
    /// [`commit_2xx_and_3xx`](crate::commit_2xx_and_3xx) suits most services.
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

    /// Creates a layer that also carries what a client has written on `db` from a response to its next requests, in a header: see
    /// [`PositionLayer`]. For a `Db` with [replicas](cenote::Builder::replica); without them there is no header.
    ///
    /// With a transaction for each request, use
    /// [`TransactionLayer::position_header`] instead.
    pub fn position_header(self, db: Db) -> PositionLayer {
        PositionLayer::new(db)
    }
}

impl<S> Layer<S> for CoroutineLayer {
    type Service = CoroutineService<S>;

    fn layer(&self, inner: S) -> CoroutineService<S> {
        CoroutineService {
            inner,
            positions: None,
        }
    }
}

/// The service that [`CoroutineLayer`] creates: it runs each request in a coroutine.
#[derive(Clone, Debug)]
pub struct CoroutineService<S> {
    pub(crate) inner: S,
    /// The header carries the positions on this one.
    pub(crate) positions: Option<Db>,
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
        // There is no request yet, so there is no coroutine to enter.
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Q>) -> ResponseFuture<S::Future> {
        let coroutine = Coroutine::new();
        // Database calls that the service makes before its first poll belong to the coroutine.
        let future = coroutine.enter(|| {
            if let Some(db) = &self.positions {
                position::take(db, request.headers());
            }
            self.inner.call(request)
        });
        ResponseFuture::new(coroutine, future, self.positions.clone())
    }
}
