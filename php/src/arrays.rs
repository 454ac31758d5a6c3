//! PHP's arrays and iterables.

use std::ffi::c_void;

use crate::engine::{Value, Zval};

type Visit = extern "C" fn(*mut c_void, *mut Zval, *mut Zval) -> bool;

unsafe extern "C" {
    fn cen_array_init(array: *mut Zval);
    fn cen_array_set(array: *mut Zval, key: *const Zval, value: *mut Zval);
    fn cen_iterate(iterable: *mut Zval, visit: Visit, arg: *mut c_void);
}

/// A PHP array under construction.
pub(crate) struct Array(Zval);

impl Array {
    pub(crate) fn new() -> Self {
        let mut raw = Zval::UNDEF;
        // SAFETY: the place is empty.
        unsafe { cen_array_init(&mut raw) };
        Array(raw)
    }

    /// Sets the element with this key; `None` appends.
    pub(crate) fn set(&mut self, key: Option<&Value>, value: Value) {
        let mut raw = Zval::UNDEF;
        value.write_to(&mut raw);
        let key = key.map_or(&Zval::UNDEF, Value::raw);
        // SAFETY: the array takes the value over, and copies the key.
        unsafe { cen_array_set(&mut self.0, key, &mut raw) };
    }

    pub(crate) fn into_value(self) -> Value {
        Value::from_raw(self.0)
    }
}

/// Calls `visit` for each element of an array or a `Traversable`, until it returns `false` or PHP code
/// throws.
pub(crate) fn iterate<F: FnMut(&Zval, &Zval) -> bool>(iterable: &mut Zval, mut visit: F) {
    extern "C" fn each<F: FnMut(&Zval, &Zval) -> bool>(
        arg: *mut c_void,
        key: *mut Zval,
        value: *mut Zval,
    ) -> bool {
        // SAFETY: `arg` is the closure, and the engine passes valid values.
        let (visit, key, value) = unsafe { (&mut *arg.cast::<F>(), &*key, &*value) };
        visit(key, value)
    }
    // SAFETY: the closure outlives the call.
    unsafe { cen_iterate(iterable, each::<F>, (&raw mut visit).cast()) };
}
