//! Running futures without Tokio, and in a coroutine of a host.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use cenote::Coroutine;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end on this thread, with no executor around it.
pub(crate) fn block_on_plain_thread<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Runs a future as a piece of a host's coroutine.
pub(crate) async fn run_in<F: Future>(coroutine: &Coroutine, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| coroutine.enter(|| future.as_mut().poll(cx))).await
}
