//! A request on its way to its response.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use cenote::Coroutine;
use http::Response;
use http_body::Body;
use pin_project_lite::pin_project;

use crate::body::CoroutineBody;

pin_project! {
    /// The future of a request that is a coroutine. Dropping it ends the coroutine.
    #[must_use = "futures do nothing unless awaited"]
    pub struct ResponseFuture<F> {
        // `None` when it has ended or has gone to the response's body.
        coroutine: Option<Coroutine>,
        // `None` when it is done.
        #[pin]
        future: Option<F>,
    }

    impl<F> PinnedDrop for ResponseFuture<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            if let Some(coroutine) = this.coroutine.take() {
                // Dropped where it ran; then the coroutine ends.
                coroutine.enter(|| this.future.set(None));
            }
        }
    }
}

impl<F> ResponseFuture<F> {
    pub(crate) fn new(coroutine: Coroutine, future: F) -> Self {
        ResponseFuture {
            coroutine: Some(coroutine),
            future: Some(future),
        }
    }
}

impl<F, B, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body,
{
    type Output = Result<Response<CoroutineBody<B>>, E>;

    /// # Panics
    ///
    /// If it is polled again after it was ready or has panicked.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        const POLLED_AGAIN: &str = "a request is not polled again when it is done";
        let mut this = self.project();
        // Taken while it is polled: a panic drops it here, which ends the coroutine
        // at once, whoever catches the panic.
        let coroutine = this.coroutine.take().expect(POLLED_AGAIN);
        let future = this.future.as_mut().as_pin_mut().expect(POLLED_AGAIN);
        let Poll::Ready(answer) = coroutine.enter(|| future.poll(cx)) else {
            *this.coroutine = Some(coroutine);
            return Poll::Pending;
        };
        coroutine.enter(|| this.future.set(None));
        let answer =
            answer.map(|response| response.map(|body| CoroutineBody::new(coroutine, body)));
        Poll::Ready(answer)
    }
}

impl<F> fmt::Debug for ResponseFuture<F> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ResponseFuture")
            .field("coroutine", &self.coroutine)
            .finish_non_exhaustive()
    }
}
