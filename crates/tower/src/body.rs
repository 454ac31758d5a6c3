//! The response body: it runs in the coroutine of its request and ends it.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use cenote::Coroutine;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// A response body that runs in the coroutine of its request.
    ///
    /// The coroutine ends when the body returns its last frame, fails or is dropped.
    pub struct CoroutineBody<B> {
        // `None` after the coroutine has ended.
        coroutine: Option<Coroutine>,
        // `None` after the body has ended, except when it ended by a panic.
        #[pin]
        body: Option<B>,
    }

    impl<B> PinnedDrop for CoroutineBody<B> {
        fn drop(this: Pin<&mut Self>) {
            this.end();
        }
    }
}

/// Returns an empty body that belongs to no request, for layers that respond in place of the service.
impl<B> Default for CoroutineBody<B> {
    fn default() -> Self {
        CoroutineBody {
            coroutine: None,
            body: None,
        }
    }
}

impl<B> CoroutineBody<B> {
    /// Drops the body in its coroutine, then ends the coroutine. Further calls do nothing.
    fn end(self: Pin<&mut Self>) {
        let mut this = self.project();
        if let Some(coroutine) = this.coroutine.take() {
            coroutine.enter(|| this.body.set(None));
        }
    }
}

impl<B: Body> CoroutineBody<B> {
    pub(crate) fn new(coroutine: Coroutine, body: B) -> Self {
        if body.is_end_stream() {
            coroutine.enter(|| drop(body));
            return CoroutineBody::default();
        }
        CoroutineBody {
            coroutine: Some(coroutine),
            body: Some(body),
        }
    }
}

impl<B: Body> Body for CoroutineBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.as_mut().project();
        // Takes the coroutine during the poll: a panic then drops it, which ends it at once.
        let (Some(coroutine), Some(mut body)) = (this.coroutine.take(), this.body.as_pin_mut())
        else {
            return Poll::Ready(None);
        };
        let (polled, is_last) = coroutine.enter(|| {
            let polled = body.as_mut().poll_frame(cx);
            let is_last = match &polled {
                Poll::Pending => false,
                // Trailers are the last frame of a body.
                Poll::Ready(Some(Ok(frame))) => frame.is_trailers() || body.is_end_stream(),
                Poll::Ready(Some(Err(_)) | None) => true,
            };
            (polled, is_last)
        });
        *this.coroutine = Some(coroutine);
        if is_last {
            self.end();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let ended = || SizeHint::with_exact(0);
        self.body.as_ref().map_or_else(ended, Body::size_hint)
    }
}

impl<B> fmt::Debug for CoroutineBody<B> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("CoroutineBody")
            .field("coroutine", &self.coroutine)
            .finish_non_exhaustive()
    }
}
