//! Dropping a future at a chosen point.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// Polls a future so many times and drops it then, wherever it happens to be: `None`.
/// Any number of polls reaches another of its awaits, which a timer does not.
pub(crate) async fn give_up_after<F: Future>(polls: u32, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_future_is_polled_so_often_and_no_more() {
        let yields = || async {
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            7
        };
        assert_eq!(give_up_after(0, yields()).await, None);
        assert_eq!(give_up_after(2, yields()).await, None);
        assert_eq!(give_up_after(3, yields()).await, Some(7));
    }
}
