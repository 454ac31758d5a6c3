//! Values of the PHP thread inside the pool, whose types may be sent to other threads.
//!
//! The runtime of these pools polls everything on the PHP thread. So nothing is ever sent; this checks it.

use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::task::{Context, Poll};

thread_local! {
    static TOKEN: u8 = const { 0 };
}

/// Returns a number that no other living thread has.
fn thread_token() -> usize {
    TOKEN.with(|token| std::ptr::from_ref(token) as usize)
}

/// A value that is used on one thread only. Elsewhere its use panics, and its drop leaks it.
pub(crate) struct Bound<T> {
    value: ManuallyDrop<T>,
    thread: usize,
}

// SAFETY: every access checks that it happens on the thread where the value was made.
unsafe impl<T> Send for Bound<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Bound<T> {}

impl<T> Bound<T> {
    pub(crate) fn new(value: T) -> Self {
        Bound {
            value: ManuallyDrop::new(value),
            thread: thread_token(),
        }
    }

    pub(crate) fn get(&self) -> &T {
        assert!(self.thread == thread_token(), "used on another thread");
        &self.value
    }
}

impl<T> Drop for Bound<T> {
    fn drop(&mut self) {
        if self.thread == thread_token() {
            // SAFETY: the value is dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

impl<F: Future> Future for Bound<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        assert!(self.thread == thread_token(), "polled on another thread");
        // SAFETY: the future is pinned with this struct: it is never moved out of it.
        let future = unsafe { self.map_unchecked_mut(|bound| &mut *bound.value) };
        future.poll(cx)
    }
}
