//! Futures that are coroutines.

use std::future::Future;
#[cfg(debug_assertions)]
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tracing::Span;

use super::current::{Entered, Hidden, Swapped, current_frame, surrounding_frame};
use super::frame::{CoroutineId, Frame};

/// Makes a future a coroutine of its own.
///
/// While the future runs, an open transaction, a live statement or changed session state pins a connection to it. When
/// the future returns, panics or is dropped, Cenote rolls back what is open and returns the connections. Works on
/// any executor.
///
/// # Cancel safety
///
/// Dropped, the coroutine ends.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> cenote::Result<()> {
/// # let db = cenote::Db::open("sqlite:file:scope-doc?mode=memory&cache=shared").await?;
/// db.exec("CREATE TABLE t (n INTEGER)", ()).await?;
/// cenote::scope(async {
///     let _tx = db.begin().await?;
///     db.exec("INSERT INTO t VALUES (?)", (1,)).await
///     // Never committed.
/// })
/// .await?;
/// let n: i64 = db.query_as_one("SELECT count(*) FROM t", ()).await?;
/// assert_eq!(n, 0);
/// # Ok(()) }
/// ```
pub fn scope<F: Future>(future: F) -> Scope<F> {
    Scope {
        inner: InFrame::new(Frame::inheriting_root(), future),
    }
}

/// Spawns a future on Tokio, as a coroutine of its own.
///
/// The new coroutine is in no transaction, even if the calling code is in one. Debug builds log a warning if a coroutine
/// that was spawned inside a transaction uses the `Db` of that transaction: its calls run outside the transaction, and
/// may wait for it.
///
/// # Panics
///
/// Outside a Tokio runtime, like [`tokio::spawn`].
#[track_caller]
pub fn spawn<F>(future: F) -> tokio::task::JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let scope = scope(future);
    #[cfg(debug_assertions)]
    if let Some(frame) = current_frame() {
        scope
            .inner
            .frame
            .note_spawned_in(&frame, Location::caller());
    }
    tokio::runtime::Handle::current().spawn(scope)
}

/// Runs a future as if outside the coroutine that awaits it.
///
/// Its calls join no transaction of that coroutine.
pub fn detached<F: Future>(future: F) -> Detached<F> {
    Detached { future }
}

pin_project! {
    /// A future that is a coroutine: see [`scope`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless awaited"]
    pub struct Scope<F> {
        #[pin]
        inner: InFrame<F>,
    }
}

impl<F> Scope<F> {
    /// Returns the coroutine's number.
    pub fn id(&self) -> CoroutineId {
        self.inner.frame.coroutine()
    }

    /// Registers a callback that runs when the coroutine has ended, for any reason, after its connections were released.
    pub fn on_end(self, callback: impl FnOnce() + Send + 'static) -> Self {
        self.inner.frame.on_end(Box::new(callback));
        self
    }
}

impl<F: Future> Future for Scope<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.project().inner.poll(cx)
    }
}

pin_project! {
    /// A future that runs in a frame. The frame ends with the future.
    #[derive(Debug)]
    struct InFrame<F> {
        frame: Arc<Frame>,
        // `None` when the future has ended.
        #[pin]
        future: Option<F>,
    }

    impl<F> PinnedDrop for InFrame<F> {
        fn drop(this: Pin<&mut Self>) {
            this.frame.cancel();
            this.finish();
        }
    }
}

impl<F> InFrame<F> {
    fn new(frame: Arc<Frame>, future: F) -> Self {
        InFrame {
            frame,
            future: Some(future),
        }
    }

    /// Drops the future inside its frame, then ends the frame. The second call does nothing.
    fn finish(self: Pin<&mut Self>) {
        let mut this = self.project();
        if this.future.is_none() {
            return;
        }
        this.frame.end_after(|| this.future.set(None));
    }
}

impl Frame {
    /// Runs a function as code of this frame.
    pub(crate) fn enter<R>(self: &Arc<Self>, run: impl FnOnce() -> R) -> R {
        let _inside = Swapped::with(Some(Entered::now(Arc::clone(self))));
        run()
    }

    fn poll<F: Future>(
        self: &Arc<Self>,
        future: Pin<&mut F>,
        cx: &mut Context<'_>,
    ) -> Poll<F::Output> {
        self.note_surrounding(surrounding_frame);
        self.enter(|| future.poll(cx))
    }

    /// Runs a function as code of this frame, then ends the frame, also after a panic.
    pub(crate) fn end_after(self: &Arc<Self>, last: impl FnOnce()) {
        let _ending = Ending(self);
        self.enter(last);
    }
}

struct Ending<'f>(&'f Arc<Frame>);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl<F: Future> Future for InFrame<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.as_mut().project();
        let future = this.future.as_pin_mut();
        let future = future.expect("a coroutine is not polled again when it has ended");
        let polled = this.frame.poll(future, cx);
        if polled.is_ready() {
            self.finish();
        }
        polled
    }
}

pin_project! {
    /// A future that runs in a frame which outlives it, and in a span.
    // The future is no `Option`: see `Attempt` on the depth of its type.
    pub(crate) struct Inside<F> {
        #[pin]
        future: F,
        // The future has returned, so that nothing of the user's is left in it.
        ended: bool,
        // Set by `drop`. Fields are dropped in order, so the future is dropped inside the frame.
        inside: Option<Swapped>,
        frame: Arc<Frame>,
        // Entered while the future is polled. A wrapper of the future would make its type deeper.
        span: Span,
    }

    impl<F> PinnedDrop for Inside<F> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            if !*this.ended {
                let entered = Entered::now(Arc::clone(this.frame));
                *this.inside = Some(Swapped::with(Some(entered)));
            }
        }
    }
}

impl<F> Inside<F> {
    pub(crate) fn new(frame: &Arc<Frame>, span: &Span, future: F) -> Self {
        Inside {
            future,
            ended: false,
            inside: None,
            frame: Arc::clone(frame),
            span: span.clone(),
        }
    }
}

impl<F: Future> Future for Inside<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _entered = this.span.enter();
        let polled = this.frame.poll(this.future, cx);
        *this.ended = polled.is_ready();
        polled
    }
}

pin_project! {
    /// A future that runs as if outside the coroutine around it: see [`detached`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless awaited"]
    pub struct Detached<F> {
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for Detached<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let _outside = current_frame().map(Hidden::new);
        self.project().future.poll(cx)
    }
}
