//! Coroutines that somebody else drives.

use std::sync::Arc;

use super::current::{Entered, Swapped, surrounding_frame};
use super::frame::{CoroutineId, Frame};

/// A coroutine that a host drives: the runtime of another language, or an executor of
/// one's own.
///
/// The host makes its identity current with [`enter`](Coroutine::enter) whenever the coroutine runs,
/// and says when it has ended. Dropping this ends it too.
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
    /// A new one.
    #[allow(clippy::new_without_default)] // Two are never equal.
    pub fn new() -> Self {
        Coroutine {
            frame: Frame::root(),
        }
    }

    /// Its number.
    pub fn id(&self) -> CoroutineId {
        self.frame.coroutine()
    }

    /// Runs a piece of it on this thread: a poll, or a call from the other language.
    pub fn enter<T>(&self, run: impl FnOnce() -> T) -> T {
        self.frame.note_surrounding(surrounding_frame);
        let _inside = Swapped::with(Some(Entered::now(Arc::clone(&self.frame))));
        run()
    }

    /// Registers a callback that runs when it has ended, after its connections were
    /// given up.
    pub fn on_end(&self, callback: impl FnOnce() + Send + 'static) {
        self.frame.on_end(Box::new(callback));
    }

    /// Ends it: what it still has pinned is rolled back and returned.
    pub fn end(self) {
        drop(self);
    }
}

impl Drop for Coroutine {
    fn drop(&mut self) {
        self.frame.end();
    }
}
