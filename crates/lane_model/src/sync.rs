//! Loom's locks and atomics. The lock counts how many of its kind a thread holds.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::LockResult;
use std::sync::atomic::Ordering;

/// These are figures, on which nothing waits: they need no model.
pub(crate) use std::sync::atomic::{AtomicU8, AtomicU64};

loom::thread_local! {
    static HELD: Cell<usize> = Cell::new(0);
}

/// Fails the model if this thread holds a lock of the lanes.
pub(crate) fn assert_unlocked(what: &str) {
    assert_eq!(HELD.with(Cell::get), 0, "{what} under a lock");
}

#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

pub(crate) struct MutexGuard<'m, T>(loom::sync::MutexGuard<'m, T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Mutex(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        let guard = self.0.lock().unwrap();
        HELD.with(|held| held.set(held.get() + 1));
        Ok(MutexGuard(guard))
    }

    /// A panic ends the model.
    pub(crate) fn is_poisoned(&self) -> bool {
        false
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        HELD.with(|held| held.set(held.get() - 1));
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// A flag: see [`AtomicUsize`].
#[derive(Debug)]
pub(crate) struct AtomicBool(AtomicUsize);

impl AtomicBool {
    pub(crate) fn new(value: bool) -> Self {
        AtomicBool(AtomicUsize::new(usize::from(value)))
    }

    pub(crate) fn load(&self, order: Ordering) -> bool {
        self.0.load(order) > 0
    }

    pub(crate) fn store(&self, value: bool, order: Ordering) {
        self.0.store(usize::from(value), order);
    }
}

/// A counter all of whose accesses are sequentially consistent. Loom takes those for acquire and release, and would let a load
/// return an old value; a read-modify-write returns the newest.
#[derive(Debug)]
pub(crate) struct AtomicUsize(loom::sync::atomic::AtomicUsize);

impl AtomicUsize {
    pub(crate) fn new(value: usize) -> Self {
        AtomicUsize(loom::sync::atomic::AtomicUsize::new(value))
    }

    pub(crate) fn load(&self, order: Ordering) -> usize {
        self.fetch_add(0, order)
    }

    pub(crate) fn store(&self, value: usize, order: Ordering) {
        assert_eq!(order, Ordering::SeqCst);
        self.0.swap(value, Ordering::AcqRel);
    }

    pub(crate) fn fetch_add(&self, by: usize, order: Ordering) -> usize {
        assert_eq!(order, Ordering::SeqCst);
        self.0.fetch_add(by, Ordering::AcqRel)
    }

    pub(crate) fn fetch_sub(&self, by: usize, order: Ordering) -> usize {
        assert_eq!(order, Ordering::SeqCst);
        let before = self.0.fetch_sub(by, Ordering::AcqRel);
        assert!(before >= by, "a counter is below zero");
        before
    }
}
