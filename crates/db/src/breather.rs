//! Statements that run in place keep their thread from other tasks. This is how they let them run, now and
//! then: between two statements, and where it can be without a connection in hand, which others may need.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

/// A task that runs statements in place lets others run after so much time in them.
const YIELD_AFTER: Duration = Duration::from_micros(150);

thread_local! {
    static RUN_IN_PLACE: Cell<Run> = const { Cell::new(Run { of: None, time: Duration::ZERO }) };
}

/// How long statements have run in place for the task that last ran one on this thread, since it last yielded for
/// that. When another task runs one, the first has long let others run.
#[derive(Clone, Copy, Default)]
struct Run {
    /// None outside of the executor's tasks.
    of: Option<tokio::task::Id>,
    time: Duration,
}

/// A statement has been run in place.
pub(crate) fn note(took: Duration) {
    let of = tokio::task::try_id();
    // A thread that is ending yields no more.
    let _ = RUN_IN_PLACE.try_with(|run| {
        let before = run.get();
        let time = match before.of == of {
            true => before.time.saturating_add(took),
            false => took,
        };
        run.set(Run { of, time });
    });
}

/// Others should run before the next statement does: statements have kept this thread for long
/// enough, or have used up the task's budget.
pub(crate) fn is_due() -> bool {
    let run = RUN_IN_PLACE.try_with(Cell::get).unwrap_or_default();
    if run.time >= YIELD_AFTER && run.of == tokio::task::try_id() {
        return true;
    }
    !run.time.is_zero() && !tokio::task::coop::has_budget_remaining()
}

/// Lets others run.
///
/// # Cancel safety
///
/// Dropped, nothing has happened.
pub(crate) async fn take() {
    rest();
    tokio::task::yield_now().await;
}

/// The task goes to sleep, so that others run anyway.
pub(crate) fn rest() {
    let _ = RUN_IN_PLACE.try_with(|run| run.take());
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

    #[tokio::test(flavor = "current_thread")]
    async fn a_breath_is_due_after_a_tasks_own_statements_and_not_after_those_of_others() {
        note(YIELD_AFTER / 2);
        assert!(!is_due());
        note(YIELD_AFTER / 2);
        assert!(is_due());
        let is_due_there = async || tokio::spawn(async { is_due() }).await.unwrap();
        assert!(!is_due_there().await);
        assert!(is_due(), "nobody else has run a statement since");
        take().await;
        assert!(!is_due());
        note(YIELD_AFTER);
        rest();
        assert!(!is_due(), "it waits for something else");
        note(YIELD_AFTER);
        let other = async {
            note(YIELD_AFTER / 2);
            is_due()
        };
        assert!(!tokio::spawn(other).await.unwrap());
        assert!(!is_due(), "the other task had its turn");
    }
}
