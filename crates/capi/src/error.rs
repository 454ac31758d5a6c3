//! Result codes, and the last error of each thread.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rust_pool::{AcquireError, Timeout};

use crate::callbacks::CallbackError;

/// Success.
pub const CENOTE_OK: c_int = 0;
/// Not an error: no resource is available without waiting (cenote_try_acquire).
pub const CENOTE_EMPTY: c_int = 1;
/// An argument is NULL or invalid; the text says which.
pub const CENOTE_ERR_ARGUMENT: c_int = -1;
/// The handle names no pool: the pool is destroyed, or this library never created it.
pub const CENOTE_ERR_HANDLE: c_int = -2;
/// An option is invalid; the text names the option and its value.
pub const CENOTE_ERR_CONFIG: c_int = -3;
/// The pool is closed.
pub const CENOTE_ERR_CLOSED: c_int = -4;
/// The circuit breaker is open.
pub const CENOTE_ERR_UNAVAILABLE: c_int = -5;
/// The call timed out. The pool stays usable.
pub const CENOTE_ERR_TIMEOUT: c_int = -6;
/// The create callback failed; cenote_last_error_detail returns its code.
pub const CENOTE_ERR_CREATE: c_int = -7;
/// The pool is closed, but a destroy callback failed; cenote_last_error_detail returns its code.
pub const CENOTE_ERR_DESTROY: c_int = -8;
/// The lease was already released, or was never acquired.
pub const CENOTE_ERR_NOT_ACQUIRED: c_int = -9;
/// The lease belongs to another pool.
pub const CENOTE_ERR_FOREIGN: c_int = -10;
/// The call would block the thread that callbacks run on, so it could never complete.
pub const CENOTE_ERR_WOULD_BLOCK: c_int = -11;
/// The waiter was cancelled, or the host's event loop accepts no more work.
pub const CENOTE_ERR_CANCELLED: c_int = -12;
/// Too late to cancel: the waiter's callback has been called or is about to be.
pub const CENOTE_ERR_NOT_WAITING: c_int = -13;
/// The pool is closed, but not every lease was released in time.
pub const CENOTE_ERR_IN_USE: c_int = -14;
/// The queue is full: max_waiting acquires are waiting.
pub const CENOTE_ERR_QUEUE_FULL: c_int = -16;
/// A bug in this library; the text is for its maintainers. The pool stays usable.
pub const CENOTE_ERR_INTERNAL: c_int = -15;

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) code: c_int,
    /// The code of the callback that failed, if one did.
    pub(crate) detail: c_int,
    pub(crate) text: String,
}

impl Fault {
    #[cold]
    pub(crate) fn new(code: c_int, text: impl Into<String>) -> Self {
        Fault {
            code,
            detail: 0,
            text: text.into(),
        }
    }

    #[cold]
    pub(crate) fn null(argument: &str) -> Self {
        Fault::new(CENOTE_ERR_ARGUMENT, format!("{argument} is NULL"))
    }

    /// Converts an acquire error to the codes of the C API.
    #[cold]
    pub(crate) fn of_acquire(error: &AcquireError<CallbackError>) -> Self {
        let code = match error {
            AcquireError::Closed | AcquireError::Forked => CENOTE_ERR_CLOSED,
            AcquireError::Unavailable(_) => CENOTE_ERR_UNAVAILABLE,
            AcquireError::QueueFull { .. } => CENOTE_ERR_QUEUE_FULL,
            AcquireError::Timeout(timeout) => {
                return Fault::new(CENOTE_ERR_TIMEOUT, timeout_text(timeout));
            }
            AcquireError::Create(error) => {
                return Fault {
                    code: CENOTE_ERR_CREATE,
                    detail: error.code(),
                    text: format!("creating a resource failed: {error}"),
                };
            }
            AcquireError::CreateFailed(_) => CENOTE_ERR_CREATE,
            _ => CENOTE_ERR_INTERNAL,
        };
        Fault::new(code, error.to_string())
    }

    /// The call would block the thread that callbacks run on.
    #[cold]
    pub(crate) fn would_block() -> Self {
        Fault::new(
            CENOTE_ERR_WOULD_BLOCK,
            "the call would block the thread that callbacks run on; use cenote_acquire_async here",
        )
    }
}

/// Returns the text of a time-out, without the Rust source lines of the holders: they mean
/// nothing to a C program.
fn timeout_text(timeout: &Timeout) -> String {
    let mut plain = timeout.clone();
    let holders = std::mem::take(&mut plain.oldest_holders);
    let mut text = plain.to_string();
    for holder in holders {
        let holder = holder.to_string();
        let held = holder
            .rsplit_once(" by ")
            .map_or(&*holder, |(held, _)| held);
        text.push_str(&format!("; {held}"));
    }
    text
}

/// The last error of a thread, and the text that a callback set for its failure.
struct Last {
    code: c_int,
    detail: c_int,
    text: Option<CString>,
    callback: Option<CString>,
}

thread_local! {
    static LAST: RefCell<Last> = const {
        RefCell::new(Last { code: CENOTE_OK, detail: 0, text: None, callback: None })
    };
}

/// Changes the last error of this thread. Does nothing on a thread whose thread-local
/// storage is already destroyed.
fn with_last<T>(change: impl FnOnce(&mut Last) -> T) -> Option<T> {
    LAST.try_with(|last| change(&mut last.borrow_mut())).ok()
}

/// Converts a text for C; cuts it at its first zero byte.
pub(crate) fn c_text(text: &str) -> CString {
    let end = text.find('\0').unwrap_or(text.len());
    CString::new(&text[..end]).unwrap_or_default()
}

/// Converts a text from C; `None` for NULL. Replaces invalid UTF-8.
///
/// # Safety
///
/// `text` is NULL or points to a text that ends with a zero byte.
pub(crate) unsafe fn rust_text(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}

/// Stores the last error of this thread.
#[cold]
pub(crate) fn remember(fault: &Fault) {
    let text = c_text(&fault.text);
    with_last(|last| {
        last.code = fault.code;
        last.detail = fault.detail;
        last.text = Some(text);
    });
}

/// Takes the text that the callback which just failed on this thread has set.
pub(crate) fn take_callback_text() -> Option<String> {
    let text = with_last(|last| last.callback.take()).flatten()?;
    Some(text.to_string_lossy().into_owned())
}

/// Runs the body of an exported function. An error or a panic becomes its return code and
/// the last error of this thread.
#[inline]
pub(crate) fn boundary(call: impl FnOnce() -> Result<c_int, Fault>) -> c_int {
    let fault = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(code)) => return code,
        Ok(Err(fault)) => fault,
        Err(panic) => {
            let said = panic
                .downcast_ref::<&'static str>()
                .copied()
                .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
                .unwrap_or("no message");
            Fault::new(CENOTE_ERR_INTERNAL, format!("the library panicked: {said}"))
        }
    };
    remember(&fault);
    fault.code
}

/// Returns the code of the last call on this thread that failed; CENOTE_OK if none
/// did. A successful call does not change it. In the destructors of thread-specific keys
/// the last error is gone: use the return value of the call there.
#[unsafe(no_mangle)]
pub extern "C" fn cenote_last_error_code() -> c_int {
    with_last(|last| last.code).unwrap_or(CENOTE_OK)
}

/// Returns the code of the callback that caused the last error of this thread; 0 if no
/// callback caused it.
#[unsafe(no_mangle)]
pub extern "C" fn cenote_last_error_detail() -> c_int {
    with_last(|last| last.detail).unwrap_or(0)
}

/// Returns the text of the last error of this thread, never NULL. The text is valid until
/// the next call of this library on this thread.
#[unsafe(no_mangle)]
pub extern "C" fn cenote_last_error_text() -> *const c_char {
    let text = with_last(|last| last.text.as_ref().map(|text| text.as_ptr()));
    text.flatten().unwrap_or(c"".as_ptr())
}

/// Clears the last error of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn cenote_clear_error() {
    with_last(|last| {
        last.code = CENOTE_OK;
        last.detail = 0;
        last.text = None;
    });
}

/// Sets the text of a callback's failure. Call it only inside a callback that is about to
/// return a failure. The text is copied; errors and events show it with the callback's code.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_set_error_text(text: *const c_char) {
    if text.is_null() {
        return;
    }
    // SAFETY: not NULL, and C's promise is that it ends with a zero byte.
    let text = unsafe { CStr::from_ptr(text) }.to_owned();
    with_last(|last| last.callback = Some(text));
}

/// Returns the description of a code: a constant text, never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn cenote_code_text(code: c_int) -> *const c_char {
    let text = match code {
        CENOTE_OK => c"all is well",
        CENOTE_EMPTY => c"no resource is available without waiting",
        CENOTE_ERR_ARGUMENT => c"an argument is NULL or invalid",
        CENOTE_ERR_HANDLE => c"the handle names no pool",
        CENOTE_ERR_CONFIG => c"an option is invalid",
        CENOTE_ERR_CLOSED => c"the pool is closed",
        CENOTE_ERR_UNAVAILABLE => c"the circuit breaker is open",
        CENOTE_ERR_TIMEOUT => c"the call timed out",
        CENOTE_ERR_CREATE => c"the create callback failed",
        CENOTE_ERR_DESTROY => c"a destroy callback failed",
        CENOTE_ERR_NOT_ACQUIRED => c"the lease was already released, or never acquired",
        CENOTE_ERR_FOREIGN => c"the lease belongs to another pool",
        CENOTE_ERR_WOULD_BLOCK => c"the call would block the thread that callbacks run on",
        CENOTE_ERR_CANCELLED => c"the waiter was cancelled",
        CENOTE_ERR_NOT_WAITING => c"too late to cancel",
        CENOTE_ERR_IN_USE => c"not every lease was released in time",
        CENOTE_ERR_QUEUE_FULL => c"the queue is full",
        CENOTE_ERR_INTERNAL => c"a bug in the library",
        _ => c"not a code of this library",
    };
    text.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_text() -> String {
        // SAFETY: never NULL, and valid until the next call on this thread.
        let text = unsafe { CStr::from_ptr(cenote_last_error_text()) };
        text.to_string_lossy().into_owned()
    }

    #[test]
    fn a_panic_ends_at_the_boundary_as_an_error_with_its_message() {
        assert_eq!(
            boundary(|| panic!("out of {}", "luck")),
            CENOTE_ERR_INTERNAL
        );
        assert_eq!(cenote_last_error_code(), CENOTE_ERR_INTERNAL);
        assert!(last_text().ends_with("out of luck"), "{}", last_text());
    }

    #[test]
    fn a_text_is_cut_at_its_first_zero_byte() {
        remember(&Fault::new(CENOTE_ERR_CONFIG, "before\0after"));
        assert_eq!(last_text(), "before");
    }
}
