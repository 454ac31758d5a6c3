//! What objects hold, for PHP's garbage collector.

use crate::engine::{Call, GcBuffer, Object, RawCall, Value, Zval};

unsafe extern "C" {
    fn cen_gc_add(buffer: *mut GcBuffer, value: *const Zval);
    fn cen_gc_add_call(buffer: *mut GcBuffer, call: *mut RawCall);
}

/// Reports what an object holds to PHP's garbage collector.
pub(crate) struct Gc(*mut GcBuffer);

impl Gc {
    /// # Safety
    ///
    /// The buffer is that of the current call of `get_gc`.
    pub(crate) unsafe fn new(buffer: *mut GcBuffer) -> Self {
        Gc(buffer)
    }

    pub(crate) fn value(&self, value: &Value) {
        // SAFETY: the buffer is valid, and copies the value without a reference.
        unsafe { cen_gc_add(self.0, value.raw()) };
    }

    pub(crate) fn object(&self, object: &Object) {
        // SAFETY: as in `value`; the object is alive.
        unsafe { cen_gc_add(self.0, &Zval::borrowing(object)) };
    }

    pub(crate) fn call(&self, call: &Call) {
        // SAFETY: the buffer is valid, and the call is alive.
        unsafe { cen_gc_add_call(self.0, call.as_ptr()) };
    }
}
