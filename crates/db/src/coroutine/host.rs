//! Coroutines that a host drives.

use std::sync::Arc;

use super::current::{Entered, Swapped, surrounding_frame};
use super::frame::{CoroutineId, Frame};

/// A coroutine that a host drives: the runtime of another language, or an executor of your own.
///
/// The host calls [`enter`](Coroutine::enter) whenever the coroutine runs, and [`end`](Coroutine::end) when it has ended.
/// Dropping the value also ends the coroutine.
///
/// # Examples
///
/// ```
/// let coroutine = cenote::Coroutine::new();
/// let id = coroutine.id();
/// coroutine.enter(|| assert_eq!(cenote::current(), Some(id)));
/// assert_eq!(cenote::current(), None);
/// coroutine.end();
/// ```
#[derive(Debug)]
pub struct Coroutine {
    frame: Arc<Frame>,
}

impl Coroutine {
    /// Returns a new coroutine.
    #[allow(clippy::new_without_default)] // A default would suggest that two are equal.
    pub fn new() -> Self {
        Coroutine {
            frame: Frame::inheriting_root(),
        }
    }

    /// Returns the coroutine's number.
    pub fn id(&self) -> CoroutineId {
        self.frame.coroutine()
    }

    /// Runs a part of the coroutine on this thread: a poll, or a call from the other language.
    pub fn enter<T>(&self, run: impl FnOnce() -> T) -> T {
        self.frame.note_surrounding(surrounding_frame);
        let _inside = Swapped::with(Some(Entered::now(Arc::clone(&self.frame))));
        run()
    }

    /// Registers a callback that runs when the coroutine has ended, after its connections were released.
    pub fn on_end(&self, callback: impl FnOnce() + Send + 'static) {
        self.frame.on_end(Box::new(callback));
    }

    /// Ends the coroutine before it has returned. `drop_it` drops what is left of it, and runs as a part of the coroutine.
    ///
    /// A transaction that is dropped so was not forgotten: it is rolled back without a warning in the log.
    pub fn cancel(self, drop_it: impl FnOnce()) {
        self.frame.cancel();
        self.enter(drop_it);
    }

    /// Ends the coroutine: rolls back what is open on its connections, and returns them to the pool.
    pub fn end(self) {
        drop(self);
    }
}

impl Drop for Coroutine {
    fn drop(&mut self) {
        self.frame.end();
    }
}
