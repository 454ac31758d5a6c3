//! Each request a transaction.

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

/// What becomes of the transaction of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Commit; the response is sent if the database has confirmed it.
    Commit,
    /// Undo what the handler did; its response is sent as it is.
    RollBack,
}

/// Commits if the status is 2xx or 3xx, and rolls back otherwise: a rule for [`CoroutineLayer::transaction`].
///
/// [`CoroutineLayer::transaction`]: crate::CoroutineLayer::transaction
pub fn commit_2xx_and_3xx(response: &response::Parts) -> Verdict {
    match response.status.is_success() || response.status.is_redirection() {
        true => Verdict::Commit,
        false => Verdict::RollBack,
    }
}

/// Makes each HTTP request a coroutine, like [`CoroutineLayer`], and runs it in a transaction.
///
/// Made by [`CoroutineLayer::transaction`]; it is the coroutine's layer, too, so one of them is enough. Inside of
/// another one, as on a few routes of a service, its requests are coroutines of their own: they see nothing of what
/// was pinned further out.
///
/// - **It begins with the first statement of the handler.** A client that sends its body slowly
///   holds no connection and no lock before that, and a handler that never asks the database costs
///   it nothing. If no connection can be had then, or the BEGIN fails, the answer is 503, whatever the
///   handler makes of the error. [`begin_eagerly`] begins before the handler runs.
/// - **It may idle for 10 s** between two statements, as while the rest of a body arrives; then it
///   is rolled back, and the answer is an error. See [`idle_in_transaction`].
/// - [`begin_with`] lets it be read-only, or leaves it out.
/// - **It ends when the head of the response is known and before it is sent.** The rule says how. A
///   commit that fails is an error response in place of the handler's; the client never reads of
///   a success that was none.
/// - **The body is sent after that**, so what a streamed body reads is outside of the transaction.
///   A body must not hold on to it: a row stream that was opened in the handler and goes
///   into the body keeps the commit from being made, and that is an error response.
/// - An error or a panic of the service, and a client that has gone away, roll back.
/// - [`Db::transaction`] in a handler is a savepoint in it. [`Db::begin`] is an error there, as
///   everywhere in a transaction.
///
/// `B` is the body of the service's responses.
///
/// # Examples
///
/// ```
/// use axum::{Router, extract::State, http::StatusCode, routing::post};
/// use cenote::{Db, TransactionOptions};
/// use cenote_tower::{CoroutineLayer, commit_2xx_and_3xx};
///
/// // Knows nothing of transactions.
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
pub struct TransactionLayer<B> {
    db: Db,
    eagerly: bool,
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
            idle: Some(Duration::from_secs(10)),
            rule: Arc::new(rule),
            options: Arc::new(|_| Some(TransactionOptions::new())),
            on_error: Arc::new(bare_status),
        }
    }

    /// Chooses the transaction of each request by its head: its isolation, or read-only; `None` for none, then
    /// the request is a coroutine and nothing more. Default: [`TransactionOptions::new`] for all.
    ///
    /// Where a database has one writer at a time, as SQLite has, requests that only read should
    /// say so: all others queue for the writer at their first statement.
    #[must_use]
    pub fn begin_with(
        mut self,
        options: impl Fn(&request::Parts) -> Option<TransactionOptions> + Send + Sync + 'static,
    ) -> Self {
        self.options = Arc::new(options);
        self
    }

    /// Begins each transaction before the handler runs: a handler never runs if the database is not
    /// available. A slow client holds a connection meanwhile, and the writer of a database that
    /// has one. Default: the first statement begins it.
    #[must_use]
    pub fn begin_eagerly(mut self) -> Self {
        self.eagerly = true;
        self
    }

    /// How long a transaction may be open without a call before it is rolled back; `None` for as long
    /// as the handle allows. A limit in the options of [`begin_with`](Self::begin_with) counts instead.
    /// Default: 10 s.
    #[must_use]
    pub fn idle_in_transaction(mut self, time: impl Into<Option<Duration>>) -> Self {
        self.idle = time.into();
        self
    }

    /// The options of a request, with what this layer adds.
    fn completed(&self, mut options: TransactionOptions) -> TransactionOptions {
        if !self.eagerly {
            options = options.begin_lazily();
        }
        let idle = options.idle_limit().or(self.idle);
        options.idle_in_transaction(idle)
    }

    /// Chooses the response if the transaction could not be begun or committed. Default: a bare
    /// 503 if no connection or lock was available, a limit was exceeded, or the same request may
    /// succeed when repeated; else a bare 500.
    ///
    /// The error is logged, and stands in the extensions of the response for layers further out.
    #[must_use]
    pub fn on_error(
        mut self,
        answer: impl Fn(&Error) -> Response<B> + Send + Sync + 'static,
    ) -> Self {
        self.on_error = Arc::new(answer);
        self
    }

    fn failed(&self, error: Error) -> Response<B> {
        tracing::error!(%error, "the transaction of a request could not be begun or committed");
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
        // A lock that the BEGIN did not get, a limit that was exceeded, a clash of two commits.
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
        }
    }
}

// Written out: a body need not be `Clone`.
impl<B> Clone for TransactionLayer<B> {
    fn clone(&self) -> Self {
        TransactionLayer {
            db: self.db.clone(),
            eagerly: self.eagerly,
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

/// A service whose requests are transactions: see [`TransactionLayer`].
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
        // The one that is ready serves this request; its clone has yet to become ready.
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
    /// The rule said so.
    Refused(Response<B>),
    /// The service gave no response.
    Failed(E),
    /// It could not be begun or committed.
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
    // Dropped here, everything is rolled back before the connection is used again.
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
