//! Statements that run in place keep their thread from other tasks. This is how they let them run, now and
//! then: between two statements, and where it can be without a connection in hand, which others may need.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

/// Tasks of a thread that run statements in place let others run after so much time in them.
const YIELD_AFTER: Duration = Duration::from_micros(150);

/// After so much time at the latest.
const YIELD_AT_LAST: Duration = Duration::from_micros(400);

thread_local! {
    /// How long statements have run in place on this thread since it last yielded for that.
    static RUN_IN_PLACE: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// A statement has been run in place.
pub(crate) fn note(took: Duration) {
    // A thread that is ending yields no more.
    let _ = RUN_IN_PLACE.try_with(|run| run.set(run.get().saturating_add(took)));
}

/// Others should run before the next statement does: statements have kept this thread for long
/// enough, or have used up the task's budget.
pub(crate) fn is_due() -> bool {
    is_due_after(YIELD_AFTER)
}

/// They should, even if some would have to wait for the one that lets them.
pub(crate) fn is_overdue() -> bool {
    is_due_after(YIELD_AT_LAST)
}

fn is_due_after(long_enough: Duration) -> bool {
    let run = RUN_IN_PLACE.try_with(Cell::get).unwrap_or_default();
    run >= long_enough || (!run.is_zero() && !tokio::task::coop::has_budget_remaining())
}

/// Lets others run.
///
/// # Cancel safety
///
/// Dropped, nothing has happened.
pub(crate) async fn take() {
    let _ = RUN_IN_PLACE.try_with(|run| run.set(Duration::ZERO));
    tokio::task::yield_now().await;
}

/// Lets the task run that was just woken here.
///
/// # Cancel safety
///
/// Dropped, nothing has happened.
pub(crate) async fn let_run() {
    let mut has_been_asked = false;
    poll_fn(|cx| match std::mem::replace(&mut has_been_asked, true) {
        true => Poll::Ready(()),
        false => {
            // Not Tokio's own way to yield, which lets all others run that are ready.
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_breath_is_due_after_a_while_and_overdue_later_and_then_all_begins_anew() {
        note(YIELD_AFTER / 2);
        assert!(!is_due());
        note(YIELD_AFTER / 2);
        assert!(is_due() && !is_overdue());
        note(YIELD_AT_LAST - YIELD_AFTER);
        assert!(is_overdue());
        take().await;
        assert!(!is_due());
    }
}
