//! One coroutine: its state, its result, and what it keeps alive while it is suspended.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};
use std::rc::Rc;
use std::sync::Arc;

use crate::completion::Completion;
use crate::engine::{Call, Class, Exception, ExceptionClass, Object, ZendObject};
use crate::fiber::{Context, Fiber};
use crate::pdo::Owner;
use crate::wake::WakeState;

/// What runs in a coroutine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// The script itself.
    Main,
    /// A function that the program spawned, or a completion callback.
    Spawned,
    /// A callback of the extension: a hook or the strategy of a pool.
    Callback,
    /// A signal handler of the program.
    Signal,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// It has no stack yet.
    New,
    Running,
    /// It waits; its stack is at `context`.
    Suspended,
    Done,
}

/// A coroutine. The scheduler owns it until it is done, its PHP object for as long as that lives.
pub(crate) struct Coroutine {
    pub(crate) kind: Kind,
    /// Its number, as PHP code sees it.
    pub(crate) number: i64,
    pub(crate) wake: Arc<WakeState>,
    pub(crate) state: Cell<State>,
    pub(crate) context: Cell<Context>,
    /// Its stack, once it has started.
    pub(crate) fiber: Cell<Option<Fiber>>,
    pub(crate) call: RefCell<Option<Call>>,
    pub(crate) completion: Completion,
    /// It ended because it was cancelled.
    pub(crate) cancelled: Cell<bool>,
    pub(crate) cancel_requested: Cell<bool>,
    /// The exception to throw where it waits.
    pub(crate) cancellation: RefCell<Option<Exception>>,
    /// How many `protect` calls it is in.
    pub(crate) protected: Cell<u32>,
    pub(crate) callbacks: RefCell<Vec<Call>>,
    /// Its PHP object, if there is one. Not owned.
    object: Cell<*mut ZendObject>,
    pub(crate) file: String,
    pub(crate) line: u32,
    kept: RefCell<Vec<KeptRaw>>,
    /// Its connections of PDO handles.
    owner: RefCell<Option<Rc<Owner>>>,
}

impl Coroutine {
    pub(crate) fn new(
        kind: Kind,
        number: i64,
        wake: Arc<WakeState>,
        call: Option<Call>,
        (file, line): (String, u32),
    ) -> Rc<Self> {
        Rc::new(Coroutine {
            kind,
            number,
            wake,
            state: Cell::new(State::New),
            context: Cell::new(null_mut()),
            fiber: Cell::new(None),
            call: RefCell::new(call),
            completion: Completion::new(),
            cancelled: Cell::new(false),
            cancel_requested: Cell::new(false),
            cancellation: RefCell::new(None),
            protected: Cell::new(0),
            callbacks: RefCell::new(Vec::new()),
            object: Cell::new(null_mut()),
            file,
            line,
            kept: RefCell::new(Vec::new()),
            owner: RefCell::new(None),
        })
    }

    /// Returns the PHP object of the coroutine.
    pub(crate) fn object(self: &Rc<Self>) -> Object {
        match NonNull::new(self.object.get()) {
            Some(object) => Object::copy_of(object),
            None => {
                let data = Rc::into_raw(Rc::clone(self)).cast_mut().cast();
                let object = Object::new(Class::Coroutine, data);
                self.object.set(object.as_ptr());
                object
            }
        }
    }

    /// Returns what owns its connections.
    pub(crate) fn owner(&self) -> Rc<Owner> {
        Rc::clone(self.owner.borrow_mut().get_or_insert_with(Owner::new))
    }

    pub(crate) fn existing_owner(&self) -> Option<Rc<Owner>> {
        self.owner.borrow().clone()
    }

    /// Rolls back what it has left open, and gives its connections back.
    pub(crate) fn end_owner(&self) {
        let owner = self.owner.borrow_mut().take();
        if let Some(owner) = owner {
            owner.finish();
        }
    }

    pub(crate) fn has_object(&self) -> bool {
        !self.object.get().is_null()
    }

    /// PHP frees the object.
    pub(crate) fn object_is_gone(&self) {
        self.object.set(null_mut());
    }

    /// Returns the cancellation that is to be thrown now, if there is one.
    pub(crate) fn take_cancellation(&self) -> Option<Exception> {
        match self.protected.get() {
            0 => self.cancellation.borrow_mut().take(),
            _ => None,
        }
    }

    /// Asks the coroutine to end where it waits, with this exception. The first request counts.
    pub(crate) fn request_cancel(&self, exception: Option<Exception>) {
        if self.state.get() == State::Done || self.cancel_requested.replace(true) {
            return;
        }
        let exception = exception.unwrap_or_else(|| {
            Exception::new(ExceptionClass::Cancellation, "Coroutine cancelled", None)
        });
        *self.cancellation.borrow_mut() = Some(exception);
    }

    /// Keeps a value for as long as the returned guard lives. If a fatal error throws the coroutine's
    /// stack away, where no destructor runs, the scheduler drops the value instead.
    pub(crate) fn keep<T>(&self, value: T) -> Kept<'_, T> {
        let raw = Box::into_raw(Box::new(value));
        self.kept.borrow_mut().push(KeptRaw {
            data: raw.cast(),
            drop: drop_kept::<T>,
        });
        Kept {
            coroutine: self,
            value: raw,
        }
    }

    /// Drops what the lost stack kept, the newest first.
    pub(crate) fn drop_kept(&self) {
        loop {
            let kept = self.kept.borrow_mut().pop();
            let Some(kept) = kept else { break };
            // SAFETY: the value was boxed by `keep`, and its guard is on a stack that never runs again.
            unsafe { (kept.drop)(kept.data) };
        }
    }
}

struct KeptRaw {
    data: *mut c_void,
    drop: unsafe fn(*mut c_void),
}

/// # Safety
///
/// `data` is a `Box<T>` that nobody else uses.
unsafe fn drop_kept<T>(data: *mut c_void) {
    // SAFETY: as promised.
    drop(unsafe { Box::from_raw(data.cast::<T>()) });
}

/// A value that a suspended coroutine keeps; see [`Coroutine::keep`].
pub(crate) struct Kept<'a, T> {
    coroutine: &'a Coroutine,
    value: *mut T,
}

impl<T> Deref for Kept<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the value lives as long as this guard, which alone gives access to it.
        unsafe { &*self.value }
    }
}

impl<T> DerefMut for Kept<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`.
        unsafe { &mut *self.value }
    }
}

impl<T> Drop for Kept<'_, T> {
    fn drop(&mut self) {
        let data: *mut c_void = self.value.cast();
        self.coroutine
            .kept
            .borrow_mut()
            .retain(|kept| kept.data != data);
        // SAFETY: the value was boxed by `keep`, and the list of kept values has forgotten it.
        drop(unsafe { Box::from_raw(self.value) });
    }
}
