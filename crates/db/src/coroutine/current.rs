//! The frame that is being polled on this thread.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use super::frame::{CoroutineId, Frame};

thread_local! {
    static CURRENT: RefCell<Option<Entered>> = const { RefCell::new(None) };

    /// Whether `CURRENT` has a frame. Every call reads this flag first, because there is usually no frame.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };

    /// The frame around a detached future, which is not the future's own.
    static HIDDEN: RefCell<Option<Entered>> = const { RefCell::new(None) };

    /// Whether `HIDDEN` has a frame: every call outside a frame asks.
    static IS_HIDDEN: Cell<bool> = const { Cell::new(false) };
}

fn replace_hidden(hidden: Option<Entered>) -> Option<Entered> {
    let before = HIDDEN.try_with(|current| {
        IS_HIDDEN.set(hidden.is_some());
        current.replace(hidden)
    });
    before.unwrap_or_default()
}

/// Returns whether the running code is detached from a frame that waits for it.
#[inline]
pub(crate) fn is_hidden() -> bool {
    IS_HIDDEN.get()
}

/// Returns the frame that waits for the running code, which is detached from the frame.
pub(crate) fn hidden_frame() -> Option<Arc<Frame>> {
    let found = HIDDEN.try_with(|hidden| {
        let hidden = hidden.borrow();
        let inside = hidden
            .as_ref()
            .filter(|entered| entered.task == tokio::task::try_id());
        inside.map(|entered| Arc::clone(&entered.frame))
    });
    found.unwrap_or_default()
}

/// Returns the frame that waits for the running code: its own, or the one that it is detached from.
pub(super) fn surrounding_frame() -> Option<Arc<Frame>> {
    current_frame().or_else(hidden_frame)
}

fn replace_current(entered: Option<Entered>) -> Option<Entered> {
    // A thread that is ending has no current frame.
    let before = CURRENT.try_with(|current| {
        IS_INSIDE.set(entered.is_some());
        current.replace(entered)
    });
    before.unwrap_or_default()
}

/// A frame that is being polled, and the executor's task that it is polled in.
pub(super) struct Entered {
    frame: Arc<Frame>,
    task: Option<tokio::task::Id>,
}

impl Entered {
    pub(super) fn now(frame: Arc<Frame>) -> Self {
        Entered {
            frame,
            task: tokio::task::try_id(),
        }
    }
}

/// Replaces the current frame until it is dropped, also by a panic.
pub(super) struct Swapped {
    before: Option<Entered>,
}

impl Swapped {
    pub(super) fn with(entered: Option<Entered>) -> Self {
        Swapped {
            before: replace_current(entered),
        }
    }
}

impl Drop for Swapped {
    fn drop(&mut self) {
        let ours = replace_current(self.before.take());
        // Dropped last: the last reference to a frame may run the user's code.
        drop(ours);
    }
}

/// Hides the current frame until it is dropped, as if the code ran outside it.
pub(super) struct Hidden {
    _outside: Swapped,
    before: Option<Entered>,
}

impl Hidden {
    pub(super) fn new(frame: Arc<Frame>) -> Self {
        Hidden {
            before: replace_hidden(Some(Entered::now(frame))),
            _outside: Swapped::with(None),
        }
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        let ours = replace_hidden(self.before.take());
        drop(ours);
    }
}

/// Returns the frame of the running code, if any.
///
/// Another task can run inside the poll of a scope: one of a `LocalSet` that the scope drives. Its task id differs, and
/// it counts as outside.
#[inline]
pub(crate) fn current_frame() -> Option<Arc<Frame>> {
    with_current(|frame| frame.map(Arc::clone))
}

#[inline]
fn with_current<T>(look: impl Fn(Option<&Arc<Frame>>) -> T) -> T {
    match IS_INSIDE.get() {
        false => look(None),
        true => with_entered(look),
    }
}

#[inline(never)]
fn with_entered<T>(look: impl Fn(Option<&Arc<Frame>>) -> T) -> T {
    let looked = CURRENT.try_with(|current| {
        let current = current.borrow();
        let entered = current.as_ref();
        let inside = entered.filter(|entered| entered.task == tokio::task::try_id());
        look(inside.map(|entered| &entered.frame))
    });
    // A thread that is ending has no current frame.
    looked.unwrap_or_else(|_| look(None))
}

/// Returns the identity of the coroutine that the running code is in, if any.
pub fn current() -> Option<CoroutineId> {
    Some(current_frame()?.coroutine())
}

/// The frame of a call, or outside any frame.
#[derive(Clone, Debug)]
pub(crate) struct CallContext(Option<Arc<Frame>>);

/// Returns where the running code is.
#[inline]
pub(crate) fn call_context() -> CallContext {
    CallContext(current_frame())
}

impl CallContext {
    pub(crate) fn frame(&self) -> Option<&Arc<Frame>> {
        self.0.as_ref()
    }

    /// Returns whether the running code is in this place.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        with_current(|now| match (&self.0, now) {
            (None, None) => true,
            (Some(then), Some(now)) => Arc::ptr_eq(then, now),
            _ => false,
        })
    }
}
