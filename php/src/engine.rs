//! PHP's engine as the extension sees it: values, calls and exceptions.
//!
//! Everything here belongs to the PHP thread; the types are neither `Send` nor `Sync`.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::{NonNull, null_mut};

pub(crate) use crate::arrays::{Array, iterate};
pub(crate) use crate::gc::Gc;

/// An object of PHP, only ever behind a pointer.
#[repr(C)]
pub(crate) struct ZendObject {
    _opaque: [u8; 0],
    _local: PhantomData<*mut u8>,
}

/// A stored callable with its arguments, only ever behind a pointer.
#[repr(C)]
pub(crate) struct RawCall {
    _opaque: [u8; 0],
    _local: PhantomData<*mut u8>,
}

/// The buffer that a garbage collection fills, only ever behind a pointer.
#[repr(C)]
pub(crate) struct GcBuffer {
    _opaque: [u8; 0],
    _local: PhantomData<*mut u8>,
}

/// A `zval`. Its layout is part of PHP's binary interface.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Zval {
    value: usize,
    type_info: u32,
    extra: u32,
    _local: PhantomData<*mut u8>,
}

const TYPE_NULL: u32 = 1;
const TYPE_LONG: u32 = 4;
const TYPE_DOUBLE: u32 = 5;
const TYPE_OBJECT: u8 = 8;

impl Zval {
    /// A value of no type, as PHP marks an empty place.
    pub(crate) const UNDEF: Zval = Zval {
        value: 0,
        type_info: 0,
        extra: 0,
        _local: PhantomData,
    };

    pub(crate) const NULL: Zval = Zval {
        type_info: TYPE_NULL,
        ..Zval::UNDEF
    };

    /// Returns a whole number.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "PHP is a 64-bit program here"
    )]
    pub(crate) fn int(number: i64) -> Zval {
        Zval {
            value: number.cast_unsigned() as usize,
            type_info: TYPE_LONG,
            ..Zval::UNDEF
        }
    }

    /// Returns a floating-point number.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "PHP is a 64-bit program here"
    )]
    pub(crate) fn double(number: f64) -> Zval {
        Zval {
            value: number.to_bits() as usize,
            type_info: TYPE_DOUBLE,
            ..Zval::UNDEF
        }
    }

    /// Returns a value that borrows an object.
    pub(crate) fn borrowing(object: &Object) -> Zval {
        let mut raw = Zval::UNDEF;
        // SAFETY: the object is alive; the value is not released.
        unsafe { cen_zval_object(&mut raw, object.as_ptr()) };
        raw
    }

    /// Returns the object that this value is, if it is one.
    pub(crate) fn object(&self) -> Option<NonNull<ZendObject>> {
        match self.type_info.to_le_bytes()[0] {
            TYPE_OBJECT => NonNull::new(self.value as *mut ZendObject),
            _ => None,
        }
    }

    /// Returns whether the value is a reference, which hides another value.
    fn is_reference(&self) -> bool {
        self.type_info.to_le_bytes()[0] == 10
    }

    fn is_refcounted(&self) -> bool {
        self.type_info & 0xff00 != 0
    }
}

/// The result of a function that C calls; see `cen_status`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Ok = 0,
    Threw = 1,
    Bailout = 2,
    /// The database reports an error.
    Failed = 3,
}

/// The classes of the extension; see `cen_class`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "C makes the values")]
pub(crate) enum Class {
    Coroutine,
    Timeout,
    FutureState,
    Future,
    Pool,
    Channel,
    ChannelIterator,
    Other,
}

/// The classes of exceptions; see `cen_exception`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(
    dead_code,
    reason = "the order is that of C, which uses the other ones"
)]
pub(crate) enum ExceptionClass {
    Error,
    ValueError,
    Exception,
    Async,
    Cancellation,
    OperationCanceled,
    Timeout,
    Deadlock,
    Unavailable,
    Pool,
    Channel,
    Composite,
}

#[repr(C)]
pub(crate) struct Aside([usize; 4]);

unsafe extern "C" {
    fn cen_zval_copy(to: *mut Zval, from: *const Zval);
    fn cen_zval_release(value: *mut Zval);
    fn cen_zval_release_guarded(value: *mut Zval) -> bool;
    safe fn cen_zval_is_identical(a: &Zval, b: &Zval) -> bool;
    safe fn cen_zval_is_true(value: &Zval) -> bool;
    fn cen_zval_object(to: *mut Zval, object: *mut ZendObject);
    fn cen_object_addref(object: *mut ZendObject);
    fn cen_object_release(object: *mut ZendObject);

    fn cen_zval_string(to: *mut Zval, text: *const u8, len: usize);
    fn cen_zval_scalar(
        value: *mut Zval,
        int: *mut i64,
        double: *mut f64,
        len: *mut usize,
    ) -> ScalarKind;
    fn cen_zval_text(value: *const Zval) -> *const u8;
    fn cen_call_with_all(hook: *const RawCall, argv: *const Zval, argc: u32) -> *mut RawCall;
    safe fn cen_switch_block();
    safe fn cen_switch_unblock();

    fn cen_call_with(hook: *const RawCall, argument: *const Zval) -> *mut RawCall;
    fn cen_call_method(
        object: *mut ZendObject,
        name: *const u8,
        name_len: usize,
        argv: *const Zval,
        argc: u32,
    ) -> *mut RawCall;
    fn cen_call_free(call: *mut RawCall);
    fn cen_call_run_guarded(call: *mut RawCall, result: *mut Zval) -> bool;

    fn cen_exception_new(
        class: ExceptionClass,
        message: *const u8,
        len: usize,
        previous: *mut ZendObject,
    ) -> *mut ZendObject;
    fn cen_throw(exception: *mut ZendObject);
    safe fn cen_has_exception() -> bool;
    fn cen_exception_take() -> *mut ZendObject;
    fn cen_exception_set_aside(aside: *mut Aside);
    fn cen_exception_restore(aside: *const Aside);
    fn cen_is_exit(exception: *mut ZendObject) -> bool;
    fn cen_is_cancellation(exception: *mut ZendObject) -> bool;
    safe fn cen_throw_exit();
    fn cen_report_uncaught(exception: *mut ZendObject);
    fn cen_log_exception(exception: *mut ZendObject, what: *const u8, len: usize);

    fn cen_object_new(class: Class, data: *mut c_void) -> *mut ZendObject;
    fn cen_object_data(object: *mut ZendObject) -> *mut c_void;
    fn cen_object_set_data(object: *mut ZendObject, data: *mut c_void);
    fn cen_object_class(object: *mut ZendObject) -> Class;

}

/// What a value of PHP is for SQLite; see `cen_zval_scalar`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "C makes the values")]
enum ScalarKind {
    Null,
    Int,
    Double,
    String,
}

/// A value of PHP without its object or array.
pub(crate) enum Scalar {
    Null,
    Int(i64),
    Double(f64),
    String(Vec<u8>),
}

/// An owned PHP value.
#[repr(transparent)]
pub(crate) struct Value(Zval);

impl Value {
    pub(crate) fn null() -> Self {
        Value(Zval::NULL)
    }

    /// Takes over a value that the caller owned.
    pub(crate) fn from_raw(raw: Zval) -> Self {
        Value(raw)
    }

    /// Returns another reference to a value. A PHP reference is followed.
    pub(crate) fn copy_of(raw: &Zval) -> Self {
        if raw.is_refcounted() || raw.is_reference() {
            let mut copy = Zval::UNDEF;
            // SAFETY: both point to values.
            unsafe { cen_zval_copy(&mut copy, raw) };
            return Value(copy);
        }
        Value(*raw)
    }

    pub(crate) fn from_object(object: Object) -> Self {
        let mut raw = Zval::UNDEF;
        // SAFETY: the value takes the reference over.
        unsafe { cen_zval_object(&mut raw, object.into_raw()) };
        Value(raw)
    }

    pub(crate) fn raw(&self) -> &Zval {
        &self.0
    }

    pub(crate) fn string(bytes: &[u8]) -> Self {
        let mut raw = Zval::UNDEF;
        // SAFETY: the bytes are copied.
        unsafe { cen_zval_string(&mut raw, bytes.as_ptr(), bytes.len()) };
        Value(raw)
    }

    /// Returns the value as a database takes it. An object becomes its text.
    pub(crate) fn scalar(&self) -> Scalar {
        let (mut copy, mut int, mut double, mut len) = (Value::copy_of(&self.0), 0, 0.0, 0);
        // SAFETY: the copy is converted in place, and the others are places for the result.
        match unsafe { cen_zval_scalar(&mut copy.0, &mut int, &mut double, &mut len) } {
            ScalarKind::Null => Scalar::Null,
            ScalarKind::Int => Scalar::Int(int),
            ScalarKind::Double => Scalar::Double(double),
            ScalarKind::String => {
                // SAFETY: the copy is a string of this length.
                let bytes = unsafe { std::slice::from_raw_parts(cen_zval_text(&copy.0), len) };
                Scalar::String(bytes.to_vec())
            }
        }
    }

    /// Gives the value to PHP.
    pub(crate) fn write_to(self, target: &mut Zval) {
        *target = ManuallyDrop::new(self).0;
    }

    pub(crate) fn is_true(&self) -> bool {
        cen_zval_is_true(&self.0)
    }

    /// Returns whether PHP's `===` holds.
    pub(crate) fn is_identical(&self, other: &Zval) -> bool {
        cen_zval_is_identical(&self.0, other)
    }

    /// Releases the value where a fatal error in its destructor must not jump over the caller.
    ///
    /// # Errors
    ///
    /// There was a fatal error.
    pub(crate) fn release_guarded(self) -> Result<(), Bailout> {
        let mut raw = ManuallyDrop::new(self).0;
        if !raw.is_refcounted() {
            return Ok(());
        }
        // SAFETY: the value is owned, and not used again.
        match unsafe { cen_zval_release_guarded(&mut raw) } {
            true => Err(Bailout),
            false => Ok(()),
        }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        if self.0.is_refcounted() {
            // SAFETY: the value is owned, and not used again.
            unsafe { cen_zval_release(&mut self.0) };
        }
    }
}

/// A fatal error has ended a stack: the request is over.
#[derive(Clone, Copy)]
pub(crate) struct Bailout;

/// An owned reference to a PHP object.
pub(crate) struct Object(NonNull<ZendObject>);

impl Object {
    /// Takes over a reference that the caller owned.
    pub(crate) fn from_raw(raw: *mut ZendObject) -> Option<Self> {
        NonNull::new(raw).map(Object)
    }

    /// Returns another reference to an object.
    pub(crate) fn copy_of(object: NonNull<ZendObject>) -> Self {
        // SAFETY: the object is alive.
        unsafe { cen_object_addref(object.as_ptr()) };
        Object(object)
    }

    /// Creates an object of one of our classes, which owns `data`.
    pub(crate) fn new(class: Class, data: *mut c_void) -> Self {
        // SAFETY: the class takes data of this type.
        let raw = unsafe { cen_object_new(class, data) };
        Object::from_raw(raw).expect("PHP ends the request if there is no memory")
    }

    pub(crate) fn as_ptr(&self) -> *mut ZendObject {
        self.0.as_ptr()
    }

    pub(crate) fn into_raw(self) -> *mut ZendObject {
        ManuallyDrop::new(self).0.as_ptr()
    }
}

impl Clone for Object {
    fn clone(&self) -> Self {
        Object::copy_of(self.0)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: the reference is owned, and not used again.
        unsafe { cen_object_release(self.0.as_ptr()) };
    }
}

/// Returns the class of an object, and the Rust value that it owns.
pub(crate) fn own_object(object: NonNull<ZendObject>) -> (Class, *mut c_void) {
    // SAFETY: the object is alive.
    let class = unsafe { cen_object_class(object.as_ptr()) };
    if class == Class::Other {
        return (class, null_mut());
    }
    // SAFETY: the object is one of ours.
    (class, unsafe { cen_object_data(object.as_ptr()) })
}

/// Gives an object its Rust value.
pub(crate) fn set_object_data(object: NonNull<ZendObject>, data: *mut c_void) {
    // SAFETY: the object is one of ours, and its class takes data of this type.
    unsafe { cen_object_set_data(object.as_ptr(), data) };
}

/// An exception, or the way in which `exit` unwinds the stack.
#[derive(Clone)]
pub(crate) struct Exception(Object);

impl Exception {
    pub(crate) fn new(class: ExceptionClass, message: &str, previous: Option<&Exception>) -> Self {
        let previous = previous.map_or(null_mut(), |previous| previous.0.as_ptr());
        // SAFETY: the message is copied, and `previous` gets a reference of its own.
        let raw = unsafe { cen_exception_new(class, message.as_ptr(), message.len(), previous) };
        Exception(Object::from_raw(raw).expect("PHP ends the request if there is no memory"))
    }

    pub(crate) fn from_object(object: Object) -> Self {
        Exception(object)
    }

    /// Takes the exception that is being thrown, if there is one.
    pub(crate) fn take() -> Option<Self> {
        // SAFETY: the function returns a reference that the caller owns.
        let raw = unsafe { cen_exception_take() };
        Object::from_raw(raw).map(Exception)
    }

    /// Makes PHP throw it when the current function returns.
    pub(crate) fn throw(self) -> Status {
        if self.is_exit() {
            drop(self);
            return throw_exit();
        }
        // SAFETY: PHP takes the reference over.
        unsafe { cen_throw(self.0.into_raw()) };
        Status::Threw
    }

    pub(crate) fn is_exit(&self) -> bool {
        // SAFETY: the object is alive.
        unsafe { cen_is_exit(self.0.as_ptr()) }
    }

    pub(crate) fn is_cancellation(&self) -> bool {
        // SAFETY: the object is alive.
        unsafe { cen_is_cancellation(self.0.as_ptr()) }
    }

    /// Reports it as PHP reports an exception that no code has caught.
    pub(crate) fn report_uncaught(self) {
        // SAFETY: PHP takes the reference over.
        unsafe { cen_report_uncaught(self.0.into_raw()) };
    }

    /// Writes it to PHP's error log, after a text that says where it comes from.
    pub(crate) fn log(&self, what: &str) {
        // SAFETY: the object is alive, and the text is copied.
        unsafe { cen_log_exception(self.0.as_ptr(), what.as_ptr(), what.len()) };
    }

    pub(crate) fn object(&self) -> &Object {
        &self.0
    }

    pub(crate) fn into_object(self) -> Object {
        self.0
    }
}

/// Throws a new exception.
pub(crate) fn throw(class: ExceptionClass, message: &str) -> Status {
    Exception::new(class, message, None).throw()
}

/// Unwinds the current stack as `exit` does.
pub(crate) fn throw_exit() -> Status {
    cen_throw_exit();
    Status::Threw
}

pub(crate) fn has_exception() -> bool {
    cen_has_exception()
}

/// Runs `f` with the exception that is being thrown set aside.
pub(crate) fn with_exception_aside<R>(f: impl FnOnce() -> R) -> R {
    if !has_exception() {
        return f();
    }
    let mut aside = MaybeUninit::<Aside>::uninit();
    // SAFETY: the function writes the whole struct.
    unsafe { cen_exception_set_aside(aside.as_mut_ptr()) };
    let result = f();
    // SAFETY: the struct was written above.
    unsafe { cen_exception_restore(aside.as_ptr()) };
    result
}

/// An owned callable with the arguments of a call.
pub(crate) struct Call(NonNull<RawCall>);

impl Call {
    /// Takes over a call that the caller owned.
    pub(crate) fn from_raw(raw: *mut RawCall) -> Option<Self> {
        NonNull::new(raw).map(Call)
    }

    /// Returns a call of the same callable with this argument.
    pub(crate) fn with(&self, argument: Option<&Value>) -> Self {
        let argument = argument.map_or(null_mut(), |value| (&raw const value.0).cast_mut());
        // SAFETY: the argument is copied.
        let raw = unsafe { cen_call_with(self.0.as_ptr(), argument) };
        Call::from_raw(raw).expect("PHP ends the request if there is no memory")
    }

    /// Returns a call of the same callable with these arguments.
    pub(crate) fn with_all(&self, arguments: &[Value]) -> Self {
        let argc = u32::try_from(arguments.len()).expect("an SQL function has few arguments");
        // SAFETY: `Value` is a `Zval`; the arguments are copied.
        let raw = unsafe { cen_call_with_all(self.0.as_ptr(), arguments.as_ptr().cast(), argc) };
        Call::from_raw(raw).expect("PHP ends the request if there is no memory")
    }

    /// Runs the call on the current stack, where it cannot switch to another coroutine.
    ///
    /// # Errors
    ///
    /// There was a fatal error.
    pub(crate) fn run_blocked(&self) -> Result<Result<Value, Exception>, Bailout> {
        cen_switch_block();
        let done = self.run_guarded();
        cen_switch_unblock();
        done
    }

    /// Returns a call of a method.
    pub(crate) fn method(object: &Object, name: &str, arguments: &[Value]) -> Self {
        let argc = u32::try_from(arguments.len()).expect("a method has few arguments");
        // SAFETY: `Value` is a `Zval`; object, name and arguments are copied.
        let raw = unsafe {
            cen_call_method(
                object.as_ptr(),
                name.as_ptr(),
                name.len(),
                arguments.as_ptr().cast(),
                argc,
            )
        };
        Call::from_raw(raw).expect("PHP ends the request if there is no memory")
    }

    pub(crate) fn as_ptr(&self) -> *mut RawCall {
        self.0.as_ptr()
    }

    /// Runs the call on the current stack.
    ///
    /// # Errors
    ///
    /// There was a fatal error.
    pub(crate) fn run_guarded(&self) -> Result<Result<Value, Exception>, Bailout> {
        let mut result = Zval::UNDEF;
        // SAFETY: the call is owned by `self`, and `result` is a place for a value.
        if unsafe { cen_call_run_guarded(self.0.as_ptr(), &mut result) } {
            return Err(Bailout);
        }
        Ok(match Exception::take() {
            Some(exception) => Err(exception),
            None => Ok(Value::from_raw(result)),
        })
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // SAFETY: the call is owned, and not used again.
        unsafe { cen_call_free(self.0.as_ptr()) };
    }
}
