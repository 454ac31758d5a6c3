//! Frames: coroutines, and the transaction closures inside them.

use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::current::hidden_frame;
#[cfg(debug_assertions)]
use super::spawned::SpawnedIn;
use crate::Error;
use crate::api::lazy::Lazy;
use crate::binding::Bound;
use crate::pooled::shared::DbId;
use crate::replicas::Own;

/// The number of a coroutine. Numbers increase and are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoroutineId(u64);

impl CoroutineId {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // Relaxed: the number only has to be unique.
        CoroutineId(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for CoroutineId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "coroutine {}", self.0)
    }
}

/// The search outwards through nested coroutines stops after this many.
pub(super) const MOST_NESTED: usize = 64;

/// The result of binding a connection to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bind {
    Done,
    /// The frame has a connection of that `Db` already.
    Taken,
    /// The frame has ended.
    Ended,
}

/// A coroutine, or a transaction closure inside one. It owns the bindings made in it.
pub(crate) struct Frame {
    coroutine: CoroutineId,
    parent: Option<Arc<Frame>>,
    /// Set for the transaction of an outside handle of this `Db`, which does not see outer bindings.
    outside_of: Option<DbId>,
    /// The transaction of the closure, if it begins with the first statement.
    pub(super) lazy: Option<Arc<Lazy>>,
    /// There are errors to remember or to forget; for root frames only. Written under the lock. Relaxed: a coroutine
    /// sees its own writes.
    has_errors: AtomicBool,
    /// `lost` is not empty.
    has_lost: AtomicBool,
    /// `written` is not empty; for root frames only. Relaxed: a coroutine sees its own writes.
    pub(super) has_written: AtomicBool,
    /// It has run before; for root frames only. Relaxed: a coroutine sees its own writes.
    has_run: AtomicBool,
    /// Another coroutine polls this one, and waits for it. Relaxed: a coroutine sees its own writes.
    is_surrounded: AtomicBool,
    /// The coroutine was dropped before it had returned. Relaxed: a coroutine sees its own writes.
    cancelled: AtomicBool,
    /// The frame takes no more bindings. Written under the lock.
    ended: AtomicBool,
    state: Mutex<FrameState>,
}

#[derive(Default)]
pub(super) struct FrameState {
    pub(super) bindings: Vec<(DbId, Arc<Bound>)>,
    /// The frames inside, which end with this one at the latest.
    inner: Vec<Weak<Frame>>,
    /// Connections on which guards opened levels in this frame.
    levels_on: Vec<Weak<Bound>>,
    /// The frame of another coroutine that last polled this one; for root frames only.
    surrounding: Option<Weak<Frame>>,
    /// The `Db`s whose transaction in this frame was ended from outside.
    lost: Vec<DbId>,
    /// Callbacks for the end of the coroutine; for root frames only.
    callbacks: Vec<Callback>,
    /// The last error of each `Db`; for root frames only.
    last_errors: HashMap<DbId, Error>,
    /// The open transactions around the code that spawned the coroutine; for root frames only.
    #[cfg(debug_assertions)]
    pub(super) spawned_in: Vec<SpawnedIn>,
    /// The `Db`s with a call in this frame that failed with a retryable error, and none that has succeeded since.
    retryable: Vec<DbId>,
    /// What the coroutine has written on each `Db` with replicas; for root frames only.
    pub(super) written: Vec<(DbId, Own)>,
}

type Callback = Box<dyn FnOnce() + Send>;

impl Frame {
    /// Returns the frame of a new coroutine.
    pub(crate) fn root() -> Arc<Self> {
        Frame::inside(None, None)
    }

    /// Returns a frame inside `outer`, or of a new coroutine without one.
    pub(crate) fn inside(outer: Option<&Arc<Self>>, outside_of: Option<DbId>) -> Arc<Self> {
        Frame::new(outer, outside_of, None)
    }

    /// As [`inside`](Frame::inside), for a closure whose transaction begins with its first statement.
    pub(crate) fn lazily_inside(
        outer: Option<&Arc<Self>>,
        outside_of: Option<DbId>,
        lazy: Arc<Lazy>,
    ) -> Arc<Self> {
        Frame::new(outer, outside_of, Some(lazy))
    }

    fn new(
        outer: Option<&Arc<Self>>,
        outside_of: Option<DbId>,
        lazy: Option<Arc<Lazy>>,
    ) -> Arc<Self> {
        let frame = Arc::new(Frame {
            coroutine: outer.map_or_else(CoroutineId::next, |outer| outer.coroutine),
            parent: outer.map(Arc::clone),
            outside_of,
            lazy,
            has_errors: AtomicBool::new(false),
            has_lost: AtomicBool::new(false),
            has_written: AtomicBool::new(false),
            has_run: AtomicBool::new(false),
            is_surrounded: AtomicBool::new(false),
            cancelled: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            state: Mutex::default(),
        });
        if let Some(outer) = outer {
            outer.state().inner.push(Arc::downgrade(&frame));
        }
        frame
    }

    pub(crate) fn coroutine(&self) -> CoroutineId {
        self.coroutine
    }

    pub(super) fn state(&self) -> MutexGuard<'_, FrameState> {
        // Nothing that can panic runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns this frame and those around it, outwards.
    pub(super) fn outwards(self: &Arc<Self>) -> impl Iterator<Item = &Arc<Frame>> {
        std::iter::successors(Some(self), |frame| frame.parent.as_ref())
    }

    pub(crate) fn is_within(self: &Arc<Self>, outer: &Arc<Frame>) -> bool {
        self.outwards().any(|frame| Arc::ptr_eq(frame, outer))
    }

    /// Notes in which coroutine this one is about to be polled.
    pub(super) fn note_surrounding(&self, look: impl FnOnce() -> Option<Arc<Frame>>) {
        if self.parent.is_some() {
            return;
        }
        let surrounding = look();
        if !self.has_run.load(Ordering::Relaxed) {
            self.has_run.store(true, Ordering::Relaxed);
            if let Some(surrounding) = &surrounding {
                self.see_written(surrounding);
            }
        }
        let is_surrounded = surrounding.is_some();
        if is_surrounded || self.is_surrounded.load(Ordering::Relaxed) {
            self.state().surrounding = surrounding.map(|frame| Arc::downgrade(&frame));
            self.is_surrounded.store(is_surrounded, Ordering::Relaxed);
        }
    }

    /// Returns whether `outer` waits for this frame: this frame is within it, or in a coroutine that is polled within it.
    pub(crate) fn is_inside(self: &Arc<Self>, outer: &Arc<Frame>) -> bool {
        let mut frame = Arc::clone(self);
        // The notes on the last poll may be out of date, and so form a cycle.
        for _ in 0..MOST_NESTED {
            if frame.is_within(outer) {
                return true;
            }
            match frame.surrounding() {
                Some(next) => frame = next,
                None => return false,
            }
        }
        false
    }

    /// Returns the frame of another coroutine that last polled this frame's coroutine.
    pub(super) fn surrounding(self: &Arc<Self>) -> Option<Arc<Frame>> {
        self.root_of().state().surrounding.as_ref()?.upgrade()
    }

    /// Returns where a closure of another coroutine, which waits for this one, began a transaction that may write, on
    /// another connection. The search goes outwards from this frame, or from the one that the running code is detached
    /// from.
    pub(crate) fn surrounding_writer(
        inside: Option<&Arc<Self>>,
        db: DbId,
        own: Option<&Arc<Bound>>,
    ) -> Option<&'static Location<'static>> {
        let mut next = match inside {
            Some(frame) => frame.surrounding(),
            None => hidden_frame(),
        };
        for _ in 0..MOST_NESTED {
            let frame = next?;
            let bound = frame.lookup(db);
            let bound = bound.filter(|bound| !own.is_some_and(|own| Arc::ptr_eq(own, bound)));
            let writer = bound.and_then(|bound| bound.closure_that_writes(&frame));
            if writer.is_some() {
                return writer;
            }
            next = frame.surrounding();
        }
        None
    }

    pub(super) fn root_of(self: &Arc<Self>) -> &Arc<Frame> {
        self.outwards().last().expect("a frame is its own first")
    }

    /// Returns the binding of this `Db` that code in this frame uses: the nearest, outwards.
    pub(crate) fn lookup(self: &Arc<Self>, db: DbId) -> Option<Arc<Bound>> {
        for frame in self.outwards() {
            let bound = frame.bound(db);
            if bound.is_some() || frame.outside_of == Some(db) {
                return bound;
            }
        }
        None
    }

    /// Returns the binding that an outside handle of this `Db` uses in this frame: that of its own transaction.
    pub(crate) fn lookup_outside(self: &Arc<Self>, db: DbId) -> Option<Arc<Bound>> {
        let mut outwards = self.outwards();
        let own = outwards.find(|frame| frame.outside_of == Some(db))?;
        own.bound(db)
    }

    /// Returns the innermost lazy transaction of this `Db` around code in this frame, with its frame.
    pub(crate) fn lazy(self: &Arc<Self>, db: DbId) -> Option<(&Arc<Frame>, &Arc<Lazy>)> {
        for frame in self.outwards() {
            let lazy = frame.lazy.as_ref().filter(|lazy| lazy.is_of(db));
            if lazy.is_some() || frame.outside_of == Some(db) {
                return lazy.map(|lazy| (frame, lazy));
            }
        }
        None
    }

    /// Returns the lazy transaction of an outside handle of this `Db` in this frame.
    pub(crate) fn lazy_outside(self: &Arc<Self>, db: DbId) -> Option<(&Arc<Frame>, &Arc<Lazy>)> {
        let mut outwards = self.outwards();
        let own = outwards.find(|frame| frame.outside_of == Some(db))?;
        let lazy = own.lazy.as_ref().filter(|lazy| lazy.is_of(db));
        lazy.map(|lazy| (own, lazy))
    }

    /// Returns whether the frame is a running coroutine without bindings: a call that pins nothing can run as if outside
    /// it.
    pub(crate) fn is_free(&self) -> bool {
        // Acquire pairs with the release in `end`, and with that in `lose`.
        self.parent.is_none()
            && !self.is_surrounded.load(Ordering::Relaxed)
            && self.lazy.is_none()
            && !self.ended.load(Ordering::Acquire)
            && !self.has_lost.load(Ordering::Acquire)
            && self.state().bindings.is_empty()
    }

    fn bound(&self, db: DbId) -> Option<Arc<Bound>> {
        let state = self.state();
        let (_, bound) = state.bindings.iter().find(|(of, _)| *of == db)?;
        Some(Arc::clone(bound))
    }

    /// Binds a connection to this frame, unless the frame has ended or has one already.
    pub(crate) fn bind(self: &Arc<Self>, db: DbId, bound: &Arc<Bound>) -> Bind {
        let mut state = self.state();
        if self.is_over() {
            return Bind::Ended;
        }
        if state.bindings.iter().any(|(of, _)| *of == db) {
            return Bind::Taken;
        }
        state.bindings.push((db, Arc::clone(bound)));
        Bind::Done
    }

    /// Returns whether this frame, or one around it, has ended: code that still runs in it was carried out of it.
    pub(crate) fn is_over(self: &Arc<Self>) -> bool {
        // Acquire pairs with the release in `end`.
        self.outwards()
            .any(|frame| frame.ended.load(Ordering::Acquire))
    }

    /// Notes that the coroutine is dropped before it has returned.
    pub(super) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Returns whether this coroutine was dropped before it had returned.
    pub(crate) fn is_cancelled(self: &Arc<Self>) -> bool {
        let mut outwards = self.outwards();
        outwards.any(|frame| frame.cancelled.load(Ordering::Relaxed))
    }

    pub(crate) fn unbind(&self, bound: &Arc<Bound>) {
        let mut state = self.state();
        let found = state
            .bindings
            .iter()
            .position(|(_, of)| Arc::ptr_eq(of, bound));
        let gone = found.map(|at| state.bindings.swap_remove(at));
        drop(state);
        // After the lock.
        drop(gone);
    }

    /// Unbinds a connection from this frame or the one around that has it.
    pub(crate) fn unbind_around(self: &Arc<Self>, bound: &Arc<Bound>) {
        for frame in self.outwards() {
            frame.unbind(bound);
        }
    }

    /// Notes that a level was opened in this frame, on a connection that an outer frame may have.
    pub(crate) fn note_levels_on(&self, bound: &Arc<Bound>) {
        self.state().levels_on.push(Arc::downgrade(bound));
    }

    /// Notes that the transaction of this frame's closure was ended from outside.
    pub(crate) fn lose(&self, db: DbId) {
        self.state().lost.push(db);
        self.has_lost.store(true, Ordering::Release);
    }

    /// Returns whether a transaction around code in this frame was ended from outside.
    pub(crate) fn has_lost(self: &Arc<Self>, db: DbId) -> bool {
        self.outwards().any(|frame| {
            // Acquire pairs with the release in `lose`.
            frame.has_lost.load(Ordering::Acquire) && frame.state().lost.contains(&db)
        })
    }

    /// Registers a callback for the end of the coroutine.
    pub(crate) fn on_end(self: &Arc<Self>, callback: Callback) {
        let root = self.root_of();
        let mut state = root.state();
        if root.ended.load(Ordering::Acquire) {
            drop(state);
            run(callback);
        } else {
            state.callbacks.push(callback);
        }
    }

    /// Ends the frame of a closure or of a coroutine. A binding that is pinned for the whole coroutine moves to the outer
    /// frame; all others end: their transactions are rolled back and their connections go back.
    pub(crate) fn end(self: &Arc<Self>) {
        let mut state = self.state();
        self.ended.store(true, Ordering::Release);
        let bindings = std::mem::take(&mut state.bindings);
        let callbacks = std::mem::take(&mut state.callbacks);
        let levels_on = std::mem::take(&mut state.levels_on);
        let errors = std::mem::take(&mut state.last_errors);
        let inner = std::mem::take(&mut state.inner);
        drop(state);
        drop(errors);
        // Closures that were carried out of this frame end with it.
        for frame in inner.iter().filter_map(Weak::upgrade) {
            frame.end();
        }
        if let Some(outer) = &self.parent {
            let own = Arc::as_ptr(self);
            outer.state().inner.retain(|inner| inner.as_ptr() != own);
        }
        if let Some(outer) = &self.parent {
            // Guards may live on outside: then their levels belong to the outer frame.
            for bound in levels_on.iter().filter_map(Weak::upgrade) {
                bound.move_levels(self, outer);
                outer.note_levels_on(&bound);
            }
        }
        for (db, bound) in bindings {
            let outer = self.parent.as_ref();
            let outer = outer.filter(|_| self.outside_of != Some(db));
            // A user's waker that panics must not stop the end of the other bindings.
            let ended = catch_unwind(AssertUnwindSafe(|| bound.frame_ended(db, self, outer)));
            drop(ended);
        }
        callbacks.into_iter().for_each(run);
    }

    pub(crate) fn note_error(self: &Arc<Self>, db: DbId, error: Option<&Error>) {
        let root = self.root_of();
        if error.is_none() && !root.has_errors.load(Ordering::Relaxed) {
            return;
        }
        if error.is_none_or(Error::is_retryable) {
            for frame in self.outwards() {
                let mut state = frame.state();
                state.retryable.retain(|noted| *noted != db);
                state.retryable.extend(error.map(|_| db));
            }
        }
        let mut state = root.state();
        let before = match error {
            Some(error) => state.last_errors.insert(db, error.clone()),
            None => state.last_errors.remove(&db),
        };
        let any = !state.last_errors.is_empty();
        root.has_errors.store(any, Ordering::Relaxed);
        drop(state);
        drop(before);
    }

    /// Returns whether a call in this frame failed with a retryable error, and no call on the same `Db` has succeeded since.
    pub(crate) fn has_failed_retryably(&self) -> bool {
        !self.state().retryable.is_empty()
    }

    pub(crate) fn last_error(self: &Arc<Self>, db: DbId) -> Option<Error> {
        self.root_of().state().last_errors.get(&db).cloned()
    }
}

/// Runs a callback, and contains its panic, so that the next one runs.
fn run(callback: Callback) {
    let _ = catch_unwind(AssertUnwindSafe(callback));
}

impl fmt::Debug for Frame {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Frame")
            .field("coroutine", &self.coroutine)
            .field("depth", &self.parent.iter().count())
            .finish_non_exhaustive()
    }
}
