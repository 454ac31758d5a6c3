//! The layer that runs each request in a transaction.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use cenote::{Db, Error, Kind, TransactionOptions};
use http::{Request, Response, StatusCode, request, response};
use tower_layer::Layer;
use tower_service::Service;

use crate::coroutine::CoroutineService;

/// Decides whether the transaction of a request is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Commits. The client gets the response only after the database has confirmed the commit.
    Commit,
    /// Rolls back. The client gets the handler's response unchanged.
    RollBack,
}

/// Commits if the status is 2xx or 3xx, else rolls back: a rule for [`CoroutineLayer::transaction`].
///
/// [`CoroutineLayer::transaction`]: crate::CoroutineLayer::transaction
pub fn commit_2xx_and_3xx(response: &response::Parts) -> Verdict {
    match response.status.is_success() || response.status.is_redirection() {
        true => Verdict::Commit,
        false => Verdict::RollBack,
    }
}

/// Runs each HTTP request in a coroutine, like [`CoroutineLayer`], and in a transaction.
///
/// [`CoroutineLayer::transaction`] creates it. This layer includes `CoroutineLayer`; do not add
/// both. Nested in another layer, a request gets its own coroutine and does not see the outer
/// transaction.
///
/// - **The transaction begins with the handler's first statement.** A client that sends its body
///   slowly holds no connection and no lock until then, and a handler without statements does not
///   use the database. If the acquire times out or BEGIN fails, the client gets the response of
///   [`on_error`] (by default 503), whatever the handler returns. [`begin_eagerly`] begins before
///   the handler runs.
/// - **The transaction may idle for 10 s** between two statements, for example while the rest of a
///   body arrives. Then Cenote rolls it back and the client gets an error response. See
///   [`idle_in_transaction`].
/// - [`begin_with`] makes the transaction read-only, or disables the transaction.
/// - **The transaction ends when the head of the response is ready, before it is sent.** The rule
///   passed to `transaction` decides between commit and rollback. If the commit fails, an error
///   response replaces the handler's response, so the client never sees success for a failed commit.
/// - **The body is sent after the transaction ends.** A streamed body therefore reads outside of
///   the transaction. A body must not keep the transaction open: a row stream that the handler
///   opens and moves into the body prevents the commit, and the client gets an error response.
/// - If the service fails or panics, or the client disconnects, Cenote rolls back.
/// - [`Db::transaction`] in a handler sets a savepoint. [`Db::begin`] in a handler returns an error,
///   as it does in every transaction.
///
/// `B` is the type of the service's response bodies.
///
/// # Examples
///
/// ```
/// use axum::{Router, extract::State, http::StatusCode, routing::post};
/// use cenote::{Db, TransactionOptions};
/// use cenote_tower::{CoroutineLayer, commit_2xx_and_3xx};
///
/// // The handler does not mention transactions: the layer begins and ends them.
/// async fn book(State(db): State<Db>) -> StatusCode {
///     let booked = async {
///         db.exec("INSERT INTO booking VALUES (1)", ()).await?;
///         db.exec("UPDATE seat SET free = free - 1", ()).await
///     };
///     match booked.await {
///         Ok(_) => StatusCode::CREATED,
///         Err(error) if error.is_check_violation() => StatusCode::CONFLICT, // rolls back
///         Err(_) => StatusCode::INTERNAL_SERVER_ERROR,                     // this, too
///     }
/// }
///
/// fn app(db: Db) -> Router {
///     let layer = CoroutineLayer::new()
///         .transaction(db.clone(), commit_2xx_and_3xx)
///         .begin_with(|request| match request.method.is_safe() {
///             true => Some(TransactionOptions::new().read_only()),
///             false => Some(TransactionOptions::new()),
///         });
///     Router::new().route("/book", post(book)).layer(layer).with_state(db)
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use tower::ServiceExt;
/// # let db = Db::open("sqlite:file:transaction-doc?mode=memory&cache=shared").await?;
/// # db.exec("CREATE TABLE seat (free INTEGER CHECK (free >= 0))", ()).await?;
/// # db.exec("CREATE TABLE booking (seat INTEGER)", ()).await?;
/// # db.exec("INSERT INTO seat VALUES (1)", ()).await?;
/// # for status in [201, 409] {
/// #     let request = http::Request::post("/book").body(axum::body::Body::empty())?;
/// #     assert_eq!(app(db.clone()).oneshot(request).await?.status(), status);
/// #     let booked: i64 = db.query_as_one("SELECT count(*) FROM booking", ()).await?;
/// #     assert_eq!(booked, 1);
/// # }
/// # Ok(()) }
/// ```
///
/// [`CoroutineLayer`]: crate::CoroutineLayer
/// [`CoroutineLayer::transaction`]: crate::CoroutineLayer::transaction
/// [`begin_with`]: TransactionLayer::begin_with
/// [`begin_eagerly`]: TransactionLayer::begin_eagerly
/// [`idle_in_transaction`]: TransactionLayer::idle_in_transaction
/// [`on_error`]: TransactionLayer::on_error
pub struct TransactionLayer<B> {
    db: Db,
    eagerly: bool,
    has_position: bool,
    idle: Option<Duration>,
    rule: Arc<Rule>,
    options: Arc<Options>,
    on_error: Arc<OnError<B>>,
}

type Rule = dyn Fn(&response::Parts) -> Verdict + Send + Sync;
type Options = dyn Fn(&request::Parts) -> Option<TransactionOptions> + Send + Sync;
type OnError<B> = dyn Fn(&Error) -> Response<B> + Send + Sync;

impl<B> TransactionLayer<B> {
    pub(crate) fn new(
        db: Db,
        rule: impl Fn(&response::Parts) -> Verdict + Send + Sync + 'static,
    ) -> Self
    where
        B: Default + 'static,
    {
        TransactionLayer {
            db,
            eagerly: false,
            has_position: false,
            idle: Some(Duration::from_secs(10)),
            rule: Arc::new(rule),
            options: Arc::new(|_| Some(TransactionOptions::new())),
            on_error: Arc::new(bare_status),
        }
    }

    /// Chooses the transaction options of each request, such as isolation or read-only, by its head.
    /// `None` runs the request without a transaction, in its coroutine.
    /// Default: [`TransactionOptions::new`] for every request.
    ///
    /// A database such as SQLite has one writer at a time. There, make the requests that only read
    /// read-only: all others queue for the writer at their first statement.
    #[must_use]
    pub fn begin_with(
        mut self,
        options: impl Fn(&request::Parts) -> Option<TransactionOptions> + Send + Sync + 'static,
    ) -> Self {
        self.options = Arc::new(options);
        self
    }

    /// Begins each transaction before the handler runs, so that no handler runs while the database
    /// is unavailable. A slow client then holds a connection, and on SQLite the only writer.
    /// Default: the first statement begins the transaction.
    #[must_use]
    pub fn begin_eagerly(mut self) -> Self {
        self.eagerly = true;
        self
    }

    /// Carries what a client has written from a response to its next requests, in a header: see
    /// [`PositionLayer`](crate::PositionLayer). Default: no.
    #[must_use]
    pub fn position_header(mut self) -> Self {
        self.has_position = true;
        self
    }

    /// Limits the time that a transaction may be open without a call before Cenote rolls it back.
    /// `None` applies the limit of the `Db`. A limit in the options of
    /// [`begin_with`](Self::begin_with) takes precedence. Default: 10 s.
    #[must_use]
    pub fn idle_in_transaction(mut self, time: impl Into<Option<Duration>>) -> Self {
        self.idle = time.into();
        self
    }

    /// Returns the options of a request, completed with the settings of this layer.
    fn completed(&self, mut options: TransactionOptions) -> TransactionOptions {
        if !self.eagerly {
            options = options.begin_lazily();
        }
        let idle = options.idle_limit().or(self.idle);
        options.idle_in_transaction(idle)
    }

    /// Chooses the response if BEGIN or COMMIT fails. Default: a 503 without a body if no
    /// connection or lock was available, a limit was exceeded or a retry may succeed; else a 500
    /// without a body.
    ///
    /// The layer logs the error and adds it to the extensions of the response, for outer layers.
    #[must_use]
    pub fn on_error(
        mut self,
        answer: impl Fn(&Error) -> Response<B> + Send + Sync + 'static,
    ) -> Self {
        self.on_error = Arc::new(answer);
        self
    }

    fn failed(&self, error: Error) -> Response<B> {
        tracing::error!(%error, "could not begin or commit the transaction of a request");
        let mut response = (self.on_error)(&error);
        response.extensions_mut().insert(error);
        response
    }
}

fn bare_status<B: Default>(error: &Error) -> Response<B> {
    let mut response = Response::new(B::default());
    *response.status_mut() = match error.kind() {
        Kind::Timeout
        | Kind::Unavailable
        | Kind::Connect
        | Kind::ConnectionLost
        | Kind::SelfDeadlock
        | Kind::Closed => StatusCode::SERVICE_UNAVAILABLE,
        // BEGIN timed out on a lock, a limit was exceeded, or two commits conflicted.
        _ if error.is_timeout() || error.is_retryable() => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    response
}

impl<S, B> Layer<S> for TransactionLayer<B> {
    type Service = CoroutineService<TransactionService<S, B>>;

    fn layer(&self, inner: S) -> Self::Service {
        CoroutineService {
            inner: TransactionService {
                inner,
                layer: self.clone(),
            },
            positions: self.has_position.then(|| self.db.clone()),
        }
    }
}

// A derive would require `B: Clone`, but bodies need not be `Clone`.
impl<B> Clone for TransactionLayer<B> {
    fn clone(&self) -> Self {
        TransactionLayer {
            db: self.db.clone(),
            eagerly: self.eagerly,
            has_position: self.has_position,
            idle: self.idle,
            rule: Arc::clone(&self.rule),
            options: Arc::clone(&self.options),
            on_error: Arc::clone(&self.on_error),
        }
    }
}

impl<B> fmt::Debug for TransactionLayer<B> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("TransactionLayer")
            .field("db", &self.db)
            .finish_non_exhaustive()
    }
}

/// The service that [`TransactionLayer`] creates: it runs each request in a transaction.
#[derive(Debug)]
pub struct TransactionService<S, B> {
    inner: S,
    layer: TransactionLayer<B>,
}

impl<S: Clone, B> Clone for TransactionService<S, B> {
    fn clone(&self) -> Self {
        TransactionService {
            inner: self.inner.clone(),
            layer: self.layer.clone(),
        }
    }
}

/// The future of a request in its transaction.
pub type TransactionFuture<B, E> = Pin<Box<dyn Future<Output = Result<Response<B>, E>> + Send>>;

impl<S, Q, B> Service<Request<Q>> for TransactionService<S, B>
where
    S: Service<Request<Q>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    Q: Send + 'static,
    B: Send + 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = TransactionFuture<B, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        // `poll_ready` prepared this service, not its clone: so this one serves the request.
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        let (head, body) = request.into_parts();
        let options = (self.layer.options)(&head);
        let options = options.map(|options| self.layer.completed(options));
        let request = Request::from_parts(head, body);
        match options {
            Some(options) => {
                let layer = self.layer.clone();
                Box::pin(in_transaction(layer, options, async move || {
                    inner.call(request).await
                }))
            }
            None => Box::pin(inner.call(request)),
        }
    }
}

/// Why a transaction was not committed.
enum Undone<B, E> {
    /// The rule returned `RollBack`.
    Refused(Response<B>),
    /// The service returned an error instead of a response.
    Failed(E),
    /// BEGIN or COMMIT failed.
    Database(Error),
}

impl<B, E> From<Error> for Undone<B, E> {
    fn from(error: Error) -> Self {
        Undone::Database(error)
    }
}

async fn in_transaction<B, E>(
    layer: TransactionLayer<B>,
    options: TransactionOptions,
    answer: impl AsyncFnOnce() -> Result<Response<B>, E>,
) -> Result<Response<B>, E> {
    // Cancelled here, the transaction is rolled back before the connection is used again.
    let done = options
        .on(&layer.db)
        .try_run(async || {
            let response = answer().await.map_err(Undone::Failed)?;
            let (head, body) = response.into_parts();
            let verdict = (layer.rule)(&head);
            let response = Response::from_parts(head, body);
            match verdict {
                Verdict::Commit => Ok(response),
                Verdict::RollBack => Err(Undone::Refused(response)),
            }
        })
        .await;
    match done {
        Ok(response) | Err(Undone::Refused(response)) => Ok(response),
        Err(Undone::Failed(error)) => Err(error),
        Err(Undone::Database(error)) => Ok(layer.failed(error)),
    }
}
