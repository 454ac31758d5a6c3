//! What coroutines have written, for reads on replicas.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::current::current_frame;
use super::frame::{Frame, MOST_NESTED};
use crate::pooled::shared::DbId;
use crate::replicas::Own;

impl Frame {
    /// Returns the frame of a new coroutine, which begins with what the running one has written.
    pub(crate) fn inheriting_root() -> Arc<Self> {
        let frame = Frame::root();
        if let Some(parent) = current_frame() {
            let parent = parent.root_of();
            // Relaxed: a coroutine sees its own writes.
            if parent.has_written.load(Ordering::Relaxed) {
                let inherited = |(db, own): &(DbId, Own)| (*db, own.inherited());
                let written = parent.state().written.iter().map(inherited).collect();
                frame.state().written = written;
                frame.has_written.store(true, Ordering::Relaxed);
            }
        }
        frame
    }

    /// Notes what the coroutine that polls this one for the first time has written, perhaps since it made this one.
    pub(super) fn see_written(&self, surrounding: &Arc<Frame>) {
        let root = surrounding.root_of();
        if !root.has_written.load(Ordering::Relaxed) {
            return;
        }
        let inherited = |(db, own): &(DbId, Own)| (*db, own.inherited());
        let theirs: Vec<_> = root.state().written.iter().map(inherited).collect();
        let mut state = self.state();
        for (db, theirs) in theirs {
            match state.written.iter_mut().find(|(of, _)| *of == db) {
                Some((_, own)) => own.see(&theirs),
                None => state.written.push((db, theirs)),
            }
        }
        self.has_written.store(true, Ordering::Relaxed);
    }

    /// Calls a function with what this coroutine has written on a `Db`. It runs under the lock of the frame.
    pub(crate) fn with_own<T>(self: &Arc<Self>, db: DbId, change: impl FnOnce(&mut Own) -> T) -> T {
        let root = self.root_of();
        let mut state = root.state();
        root.has_written.store(true, Ordering::Relaxed);
        let written = &mut state.written;
        let at = match written.iter().position(|(of, _)| *of == db) {
            Some(at) => at,
            None => {
                written.push((db, Own::default()));
                written.len() - 1
            }
        };
        change(&mut written[at].1)
    }

    /// Returns what this coroutine has written on a `Db`.
    pub(crate) fn own(self: &Arc<Self>, db: DbId) -> Own {
        let root = self.root_of();
        if !root.has_written.load(Ordering::Relaxed) {
            return Own::default();
        }
        let state = root.state();
        let own = state.written.iter().find(|(of, _)| *of == db);
        own.map_or(Own::default(), |(_, own)| *own)
    }

    /// Returns the frame of this coroutine, and of those that poll it and wait for it, outwards.
    pub(crate) fn with_surrounding(self: &Arc<Self>) -> impl Iterator<Item = Arc<Frame>> {
        let root = Arc::clone(self.root_of());
        let outwards = std::iter::successors(Some(root), |frame| {
            Some(Arc::clone(frame.surrounding()?.root_of()))
        });
        outwards.take(MOST_NESTED)
    }
}
