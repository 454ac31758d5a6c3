//! What C calls for functions and for the classes of coroutines, futures and timeouts.

use std::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::rc::Rc;
use std::time::Duration;

use crate::awaiting::{self, Mode};
use crate::channel;
use crate::completion::Completion;
use crate::coroutine::{Coroutine, Kind, State};
use crate::engine::{
    self, Array, Call, Class, Exception, ExceptionClass, Gc, GcBuffer, Object, RawCall, Status,
    Value, ZendObject, Zval,
};
use crate::fiber::Context;
use crate::pool::PhpPool;
use crate::scheduler::{self, Interrupt, existing_scheduler, scheduler};
use crate::timeout::Timeout;

/// Runs the Rust half of a PHP function. A panic becomes an `Error` of PHP.
pub(crate) fn guarded(f: impl FnOnce() -> Status) -> Status {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(status) => status,
        Err(panic) => {
            let said = panic
                .downcast_ref::<&'static str>()
                .map(|said| (*said).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_default();
            let text = format!("cenote failed unexpectedly, please report it: {said}");
            engine::throw(ExceptionClass::Error, &text)
        }
    }
}

/// The same for a function that returns a value of Rust.
pub(crate) fn answer<T>(otherwise: T, f: impl FnOnce() -> T) -> T {
    let mut result = otherwise;
    guarded(|| {
        result = f();
        Status::Ok
    });
    result
}

pub(crate) fn status(result: Result<(), Interrupt>) -> Status {
    match result {
        Ok(()) => Status::Ok,
        Err(interrupt) => interrupt.raise(),
    }
}

/// Gives PHP the result of something awaited.
pub(crate) fn give(result: Result<Result<Value, Exception>, Interrupt>, to: &mut Zval) -> Status {
    match result {
        Ok(Ok(value)) => {
            value.write_to(to);
            Status::Ok
        }
        Ok(Err(exception)) => exception.throw(),
        Err(interrupt) => interrupt.raise(),
    }
}

/// # Safety
///
/// `data` is the value of an object of the class for `T`.
pub(crate) unsafe fn borrow<'a, T>(data: *mut c_void) -> &'a T {
    // SAFETY: as promised; the object keeps it alive during the call.
    unsafe { &*data.cast::<T>().cast_const() }
}

/// # Safety
///
/// `data` is the value of an object of a class that holds an `Rc<T>`.
unsafe fn share<T>(data: *mut c_void) -> Rc<T> {
    let data = data.cast::<T>().cast_const();
    // SAFETY: as promised.
    unsafe { Rc::increment_strong_count(data) };
    // SAFETY: the count was raised for this one.
    unsafe { Rc::from_raw(data) }
}

// ---- the life of a request --------------------------------------------------

#[unsafe(no_mangle)]
extern "C" fn cenote_request_begin() {
    if let Some(scheduler) = existing_scheduler() {
        scheduler.begin_request();
    }
}

#[unsafe(no_mangle)]
extern "C" fn cenote_request_end() {
    answer((), || {
        if let Some(scheduler) = existing_scheduler() {
            scheduler.end_request();
        }
    });
}

#[unsafe(no_mangle)]
extern "C" fn cenote_run_leftovers() {
    answer((), || scheduler().run_leftovers());
}

#[unsafe(no_mangle)]
extern "C" fn cenote_after_fork() {
    if let Some(scheduler) = existing_scheduler() {
        scheduler.after_fork();
    }
}

#[unsafe(no_mangle)]
extern "C" fn cenote_job_begin() -> *mut RawCall {
    scheduler().begin_job()
}

#[unsafe(no_mangle)]
extern "C" fn cenote_job_cleanup() {
    scheduler().clean_up_job();
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_job_end(result: *const Zval, exception: *mut ZendObject) {
    // SAFETY: C hands the ownership of both over.
    let result = Value::from_raw(unsafe { *result });
    let exception = Object::from_raw(exception).map(Exception::from_object);
    scheduler().end_job(result, exception);
}

#[unsafe(no_mangle)]
extern "C" fn cenote_job_bailed() -> Context {
    scheduler().end_bailed()
}

// ---- functions -----------------------------------------------------------------

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_spawn(
    call: *mut RawCall,
    file: *const c_char,
    file_len: usize,
    line: u32,
    to: &mut Zval,
) -> Status {
    guarded(|| {
        // SAFETY: C passes a string of this length.
        let file = unsafe { std::slice::from_raw_parts(file.cast::<u8>(), file_len) };
        let file = String::from_utf8_lossy(file).into_owned();
        let call = Call::from_raw(call).expect("C passes a call");
        let coroutine = scheduler().spawn(Kind::Spawned, call, (file, line));
        Value::from_object(coroutine.object()).write_to(to);
        Status::Ok
    })
}

#[unsafe(no_mangle)]
extern "C" fn cenote_suspend() -> Status {
    guarded(|| status(scheduler::yield_now()))
}

#[unsafe(no_mangle)]
extern "C" fn cenote_delay(microseconds: u64) -> Status {
    guarded(|| status(scheduler::delay(Duration::from_micros(microseconds))))
}

#[unsafe(no_mangle)]
extern "C" fn cenote_should_suspend() -> bool {
    existing_scheduler().is_some_and(|scheduler| scheduler.is_used())
}

#[unsafe(no_mangle)]
extern "C" fn cenote_may_fork() -> bool {
    existing_scheduler().is_none_or(|scheduler| scheduler.coroutine_count() == 0)
}

#[unsafe(no_mangle)]
extern "C" fn cenote_protect_begin() {
    let me = scheduler().current();
    me.protected.set(me.protected.get() + 1);
}

#[unsafe(no_mangle)]
extern "C" fn cenote_protect_end(_: &Zval) -> Status {
    guarded(|| {
        let me = scheduler().current();
        me.protected.set(me.protected.get().saturating_sub(1));
        if engine::has_exception() {
            return Status::Threw;
        }
        match me.take_cancellation() {
            Some(cancellation) => cancellation.throw(),
            None => Status::Ok,
        }
    })
}

/// Calls `f` with what an object can be awaited by.
///
/// # Errors
///
/// The object is of a class that the extension does not know.
pub(crate) fn with_completion<R>(
    object: NonNull<ZendObject>,
    f: impl FnOnce(&Completion) -> R,
) -> Result<R, Exception> {
    let (class, data) = engine::own_object(object);
    if data.is_null() {
        return Err(Exception::new(
            ExceptionClass::Error,
            "this object cannot be awaited; pass a Coroutine, a Future or a Timeout",
            None,
        ));
    }
    // SAFETY: each class has data of its type, which its object keeps alive.
    Ok(unsafe {
        match class {
            Class::Coroutine => f(&borrow::<Coroutine>(data).completion),
            Class::Timeout => f(&borrow::<Timeout>(data).completion),
            _ => f(borrow::<Completion>(data)),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cenote_await(
    awaitable: NonNull<ZendObject>,
    cancellation: *mut ZendObject,
    to: &mut Zval,
) -> Status {
    guarded(|| {
        give(
            awaiting::await_one(awaitable, NonNull::new(cancellation)),
            to,
        )
    })
}

#[unsafe(no_mangle)]
extern "C" fn cenote_await_many(
    mode: i32,
    count: i64,
    triggers: &mut Zval,
    cancellation: *mut ZendObject,
    preserve_key_order: bool,
    fill_null: bool,
    to: &mut Zval,
) -> Status {
    guarded(|| {
        let mode = match mode {
            0 => Mode::AnyOrFail,
            1 => Mode::FirstSuccess,
            2 => Mode::AllOrFail,
            3 => Mode::All,
            4 => Mode::SomeOrFail(count),
            _ => Mode::Some(count),
        };
        let options = awaiting::Options {
            mode,
            preserve_key_order,
            fill_null,
        };
        let cancellation = NonNull::new(cancellation);
        give(awaiting::await_many(options, triggers, cancellation), to)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cenote_timeout(milliseconds: i64, to: &mut Zval) -> Status {
    guarded(|| {
        let milliseconds = milliseconds.unsigned_abs();
        let timeout = Timeout::start(Duration::from_millis(milliseconds));
        let data = Rc::into_raw(timeout).cast_mut().cast();
        Value::from_object(Object::new(Class::Timeout, data)).write_to(to);
        Status::Ok
    })
}

#[unsafe(no_mangle)]
extern "C" fn cenote_current_coroutine(to: &mut Zval) -> Status {
    guarded(|| {
        Value::from_object(scheduler().current_shared().object()).write_to(to);
        Status::Ok
    })
}

#[unsafe(no_mangle)]
extern "C" fn cenote_get_coroutines(to: &mut Zval) {
    answer((), || {
        let mut list = Array::new();
        for coroutine in scheduler().coroutines() {
            if coroutine.kind == Kind::Spawned {
                list.set(None, Value::from_object(coroutine.object()));
            }
        }
        list.into_value().write_to(to);
    });
}

// ---- Coroutine, Timeout, Future ------------------------------------------------------

/// The questions of `cen_question`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(dead_code, reason = "C makes the values")]
enum Question {
    Started,
    Queued,
    Running,
    Suspended,
    Cancelled,
    CancellationRequested,
    Completed,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_coroutine_id(data: *mut c_void) -> i64 {
    // SAFETY: C passes the value of a coroutine's object.
    unsafe { borrow::<Coroutine>(data) }.number
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_coroutine_is(data: *mut c_void, question: Question) -> bool {
    // SAFETY: C passes the value of a coroutine's object.
    let coroutine = unsafe { borrow::<Coroutine>(data) };
    let state = coroutine.state.get();
    match question {
        Question::Started => state != State::New,
        Question::Queued => coroutine.wake.is_queued(),
        Question::Running => state == State::Running,
        Question::Suspended => state == State::Suspended,
        Question::Cancelled => coroutine.cancelled.get(),
        Question::CancellationRequested => coroutine.cancel_requested.get(),
        Question::Completed => coroutine.completion.is_done(),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_coroutine_result(data: *mut c_void, to: &mut Zval) {
    // SAFETY: C passes the value of a coroutine's object.
    let coroutine = unsafe { borrow::<Coroutine>(data) };
    if let Some(Ok(value)) = coroutine.completion.peek() {
        value.write_to(to);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_coroutine_exception(data: *mut c_void, to: &mut Zval) -> Status {
    guarded(|| {
        // SAFETY: C passes the value of a coroutine's object.
        let coroutine = unsafe { borrow::<Coroutine>(data) };
        if let Some(Err(exception)) = coroutine.completion.result() {
            Value::from_object(exception.into_object()).write_to(to);
        }
        Status::Ok
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_coroutine_location(
    data: *mut c_void,
    file: &mut *const c_char,
    file_len: &mut usize,
    line: &mut u32,
) {
    // SAFETY: C passes the value of a coroutine's object.
    let coroutine = unsafe { borrow::<Coroutine>(data) };
    *file = coroutine.file.as_ptr().cast();
    *file_len = coroutine.file.len();
    *line = coroutine.line;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_coroutine_finally(data: *mut c_void, call: *mut RawCall) -> Status {
    guarded(|| {
        // SAFETY: C passes the value of a coroutine's object.
        let coroutine = unsafe { share::<Coroutine>(data) };
        let call = Call::from_raw(call).expect("C passes a call");
        if coroutine.completion.is_done() {
            let object = Value::from_object(coroutine.object());
            let call = call.with(Some(&object));
            scheduler().spawn(Kind::Spawned, call, (String::new(), 0));
        } else {
            coroutine.callbacks.borrow_mut().push(call);
        }
        Status::Ok
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_cancel(
    class: Class,
    data: *mut c_void,
    cancellation: *mut ZendObject,
) -> Status {
    guarded(|| {
        let cancellation = NonNull::new(cancellation)
            .map(|object| Exception::from_object(Object::copy_of(object)));
        if class == Class::Coroutine {
            // SAFETY: C passes the value of an object of this class.
            let coroutine = unsafe { share::<Coroutine>(data) };
            scheduler().cancel(&coroutine, cancellation);
            return Status::Ok;
        }
        let cancellation = cancellation.unwrap_or_else(|| {
            Exception::new(ExceptionClass::Cancellation, "Future cancelled", None)
        });
        // SAFETY: C passes the value of an object of this class.
        let completion = unsafe {
            match class {
                Class::Timeout => {
                    let timeout = borrow::<Timeout>(data);
                    timeout.stop();
                    &timeout.completion
                }
                _ => borrow::<Completion>(data),
            }
        };
        completion.ignore();
        drop(completion.settle(Err(cancellation)));
        Status::Ok
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_completion_is(
    class: Class,
    data: *mut c_void,
    question: Question,
) -> bool {
    if class == Class::Coroutine {
        // SAFETY: as for this function.
        return unsafe { cenote_coroutine_is(data, question) };
    }
    // SAFETY: C passes the value of an object of this class.
    let completion = unsafe {
        match class {
            Class::Timeout => &borrow::<Timeout>(data).completion,
            _ => borrow::<Completion>(data),
        }
    };
    match question {
        Question::Cancelled => match completion.peek() {
            Some(Err(exception)) => exception.is_cancellation(),
            _ => false,
        },
        _ => completion.is_done(),
    }
}

#[unsafe(no_mangle)]
extern "C" fn cenote_future_state_new() -> *mut c_void {
    Rc::into_raw(Rc::new(Completion::new())).cast_mut().cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_future_of(state: *mut c_void) -> *mut c_void {
    // SAFETY: C passes the value of a FutureState's object.
    let completion = unsafe { share::<Completion>(state) };
    Rc::into_raw(completion).cast_mut().cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_future_ignore(data: *mut c_void) {
    // SAFETY: C passes the value of a future's object.
    unsafe { borrow::<Completion>(data) }.ignore();
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_future_state_settle(
    data: *mut c_void,
    result: *const Zval,
    error: *mut ZendObject,
) -> Status {
    guarded(|| {
        // SAFETY: C passes the value of a FutureState's object.
        let completion = unsafe { borrow::<Completion>(data) };
        let outcome = match NonNull::new(error) {
            Some(error) => Err(Exception::from_object(Object::copy_of(error))),
            // SAFETY: without an error there is a result.
            None => Ok(Value::copy_of(unsafe { &*result })),
        };
        match completion.settle(outcome) {
            Ok(()) => Status::Ok,
            Err(unneeded) => {
                drop(unneeded);
                engine::throw(
                    ExceptionClass::Async,
                    "the future is completed already; a result can be set once",
                )
            }
        }
    })
}

// ---- objects ------------------------------------------------------------------------------

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_object_free(class: Class, data: *mut c_void, _: *mut ZendObject) {
    answer((), || {
        // SAFETY: the object owned a reference to a value of its class.
        unsafe {
            match class {
                Class::Coroutine => free_coroutine(&Rc::from_raw(data.cast::<Coroutine>())),
                Class::Timeout => {
                    let timeout = Rc::from_raw(data.cast::<Timeout>());
                    timeout.stop();
                }
                Class::FutureState | Class::Future => {
                    drop(Rc::from_raw(data.cast::<Completion>()));
                }
                Class::Pool => PhpPool::free(Rc::from_raw(data.cast::<PhpPool>())),
                Class::Channel => drop(Rc::from_raw(data.cast::<channel::Channel>())),
                Class::ChannelIterator => drop(Box::from_raw(data.cast::<channel::Iterator>())),
                Class::Other => {}
            }
        }
    });
}

fn free_coroutine(coroutine: &Rc<Coroutine>) {
    coroutine.object_is_gone();
    if coroutine.kind != Kind::Callback && !scheduler().is_over() {
        let unhandled = coroutine
            .completion
            .unobserved_error()
            .filter(|error| !error.is_cancellation());
        if let Some(exception) = unhandled {
            scheduler().add_unhandled(exception);
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_object_gc(class: Class, data: *mut c_void, buffer: *mut GcBuffer) {
    answer((), || {
        // SAFETY: C passes the buffer of this call, and the value of an object of this class.
        unsafe {
            let gc = Gc::new(buffer);
            match class {
                Class::Coroutine => {
                    let coroutine = borrow::<Coroutine>(data);
                    // While it is not done, the scheduler holds it: what it holds is in use.
                    if coroutine.state.get() == State::Done {
                        coroutine.completion.report_to_gc(&gc);
                    }
                }
                Class::Timeout => borrow::<Timeout>(data).completion.report_to_gc(&gc),
                Class::FutureState | Class::Future => {
                    // Two objects share one result; the collector must count it once.
                    let completion = share::<Completion>(data);
                    if Rc::strong_count(&completion) == 2 {
                        completion.report_to_gc(&gc);
                    }
                }
                Class::Pool => borrow::<PhpPool>(data).report_to_gc(&gc),
                Class::Channel => {
                    let channel = share::<channel::Channel>(data);
                    if Rc::strong_count(&channel) == 2 {
                        channel.report_to_gc(&gc);
                    }
                }
                Class::ChannelIterator | Class::Other => {}
            }
        }
    });
}
