//! The end of something that can be awaited: a coroutine, a future or a timeout.

use std::cell::{Cell, RefCell};
use std::task::Waker;

use crate::engine::{Exception, Gc, Value};

/// A result that arrives once.
pub(crate) struct Completion {
    outcome: RefCell<Option<Result<Value, Exception>>>,
    waiters: RefCell<Vec<(u64, Waker)>>,
    next_key: Cell<u64>,
    /// Somebody has got the result, or will.
    observed: Cell<bool>,
}

impl Completion {
    pub(crate) fn new() -> Self {
        Completion {
            outcome: RefCell::new(None),
            waiters: RefCell::new(Vec::new()),
            next_key: Cell::new(0),
            observed: Cell::new(false),
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.outcome.borrow().is_some()
    }

    /// Returns the result, if it has arrived, and notes that somebody has it.
    pub(crate) fn result(&self) -> Option<Result<Value, Exception>> {
        let result = self.peek();
        if result.is_some() {
            self.observed.set(true);
        }
        result
    }

    /// Returns the result, if it has arrived.
    pub(crate) fn peek(&self) -> Option<Result<Value, Exception>> {
        let outcome = self.outcome.borrow();
        Some(match outcome.as_ref()? {
            Ok(value) => Ok(Value::copy_of(value.raw())),
            Err(exception) => Err(exception.clone()),
        })
    }

    /// Sets the result and wakes all waiters. Returns it back if there is one already.
    pub(crate) fn settle(&self, result: Result<Value, Exception>) -> Result<(), Unneeded> {
        if self.is_done() {
            return Err(Unneeded(result));
        }
        *self.outcome.borrow_mut() = Some(result);
        for (_, waker) in self.waiters.take() {
            waker.wake();
        }
        Ok(())
    }

    /// Wakes this waker when the result arrives. Returns a key for [`leave`](Completion::leave).
    pub(crate) fn wait(&self, waker: Waker) -> u64 {
        let key = self.next_key.get();
        self.next_key.set(key + 1);
        self.waiters.borrow_mut().push((key, waker));
        key
    }

    pub(crate) fn leave(&self, key: u64) {
        self.waiters.borrow_mut().retain(|(other, _)| *other != key);
    }

    pub(crate) fn has_waiters(&self) -> bool {
        !self.waiters.borrow().is_empty()
    }

    pub(crate) fn ignore(&self) {
        self.observed.set(true);
    }

    /// Returns the error that nobody has got.
    pub(crate) fn unobserved_error(&self) -> Option<Exception> {
        if self.observed.get() {
            return None;
        }
        self.outcome.borrow().as_ref()?.as_ref().err().cloned()
    }

    pub(crate) fn report_to_gc(&self, gc: &Gc) {
        match self.outcome.borrow().as_ref() {
            Some(Ok(value)) => gc.value(value),
            Some(Err(exception)) => gc.object(exception.object()),
            None => {}
        }
    }
}

/// A result that came too late. Its drop may run PHP code.
#[must_use]
pub(crate) struct Unneeded(
    #[allow(dead_code, reason = "dropped by its receiver")] Result<Value, Exception>,
);
