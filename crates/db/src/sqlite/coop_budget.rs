//! How long statements may run inline on one executor thread before their task yields to the others.

use std::cell::Cell;
use std::time::Duration;

/// Tasks yield after this much time in inline statements.
const YIELD_AFTER: Duration = Duration::from_micros(150);

/// The task that holds the write permit yields after this much.
const WRITER_YIELDS_AFTER: Duration = Duration::from_micros(400);

thread_local! {
    /// How long statements have run inline on this thread since a task last yielded for them.
    static RUN_INLINE: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Notes that a statement has run inline for this long.
pub(super) fn note(took: Duration) {
    // A thread that is ending needs no budget.
    let _ = RUN_INLINE.try_with(|run| run.set(run.get().saturating_add(took)));
}

/// Returns whether the task has to yield before its next inline statement.
pub(super) fn is_due() -> bool {
    is_due_after(YIELD_AFTER)
}

/// Returns whether a task that holds the write permit has to yield before its next inline statement.
pub(super) fn is_due_for_writer() -> bool {
    is_due_after(WRITER_YIELDS_AFTER)
}

fn is_due_after(limit: Duration) -> bool {
    let run = RUN_INLINE.try_with(Cell::get).unwrap_or_default();
    run >= limit || (!run.is_zero() && !tokio::task::coop::has_budget_remaining())
}

/// Lets other tasks run.
///
/// # Cancel safety
///
/// Dropped, nothing has happened.
pub(super) async fn yield_now() {
    let _ = RUN_INLINE.try_with(|run| run.set(Duration::ZERO));
    tokio::task::yield_now().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_yield_is_due_after_the_limit_and_resets_it() {
        note(YIELD_AFTER / 2);
        assert!(!is_due());
        note(YIELD_AFTER / 2);
        assert!(is_due() && !is_due_for_writer());
        note(WRITER_YIELDS_AFTER - YIELD_AFTER);
        assert!(is_due_for_writer());
        yield_now().await;
        assert!(!is_due());
    }
}
