//! The future of a request: it runs in the request's coroutine.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use cenote::{Coroutine, Db};
use http::Response;
use http_body::Body;
use pin_project_lite::pin_project;

use crate::body::CoroutineBody;
use crate::position;

pin_project! {
    /// Resolves to the response of a request, in its coroutine. Dropping the future ends the coroutine.
    #[must_use = "futures do nothing unless awaited"]
    pub struct ResponseFuture<F> {
        // `None` after the coroutine has ended or has moved to the response body.
        coroutine: Option<Coroutine>,
        // `None` after the future has completed.
        #[pin]
        future: Option<F>,
        // The header carries the position on this one.
        positions: Option<Db>,
    }

    impl<F> PinnedDrop for ResponseFuture<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            if let Some(coroutine) = this.coroutine.take() {
                // Drops the future in its coroutine, then ends the coroutine.
                coroutine.cancel(|| this.future.set(None));
            }
        }
    }
}

impl<F> ResponseFuture<F> {
    pub(crate) fn new(coroutine: Coroutine, future: F, positions: Option<Db>) -> Self {
        ResponseFuture {
            coroutine: Some(coroutine),
            future: Some(future),
            positions,
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
    /// If the future is polled again after it completed or panicked.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        const POLLED_AGAIN: &str = "a request future must not be polled after it has completed";
        let mut this = self.project();
        // Takes the coroutine during the poll: a panic then drops it, which ends it at once,
        // even if an outer layer catches the panic.
        let coroutine = this.coroutine.take().expect(POLLED_AGAIN);
        let future = this.future.as_mut().as_pin_mut().expect(POLLED_AGAIN);
        let Poll::Ready(answer) = coroutine.enter(|| future.poll(cx)) else {
            *this.coroutine = Some(coroutine);
            return Poll::Pending;
        };
        let answer = coroutine.enter(|| {
            this.future.set(None);
            answer.map(|mut response| {
                if let Some(db) = this.positions {
                    position::add(db, response.headers_mut());
                }
                response
            })
        });
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
