//! The stacks of PHP's engine, and what a request's life asks of it.

use std::ffi::c_void;
use std::ptr::NonNull;

unsafe extern "C" {
    safe fn cen_current_context() -> *mut c_void;
    fn cen_fiber_new() -> *mut c_void;
    fn cen_switch(to: *mut c_void);
    fn cen_fiber_free(fiber: *mut c_void, idle: bool);
    safe fn cen_switch_blocked() -> bool;
    safe fn cen_interrupt_pending() -> bool;
    safe fn cen_run_leftovers_at_end();
    safe fn cen_script_end() -> ScriptEnd;
    safe fn cen_forget_oom();
}

/// A stack of the engine that can be switched to.
pub(crate) type Context = *mut c_void;

pub(crate) fn current_context() -> Context {
    cen_current_context()
}

/// A stack of our own.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fiber(NonNull<c_void>);

impl Fiber {
    /// Returns `None` if there is no memory for a stack; PHP throws then.
    pub(crate) fn new() -> Option<Self> {
        // SAFETY: fibers may be created at any time during a request.
        NonNull::new(unsafe { cen_fiber_new() }).map(Fiber)
    }

    /// A fiber begins with its context.
    pub(crate) fn context(self) -> Context {
        self.0.as_ptr()
    }

    /// Returns the fiber whose context this is.
    ///
    /// # Safety
    ///
    /// The context is that of one of our fibers.
    pub(crate) unsafe fn of(context: Context) -> Self {
        Fiber(NonNull::new(context).expect("a context is not null"))
    }

    /// Frees the stack.
    ///
    /// # Safety
    ///
    /// The fiber is idle, or nothing will ever resume it; it is not the current one.
    pub(crate) unsafe fn free(self, idle: bool) {
        // SAFETY: as promised.
        unsafe { cen_fiber_free(self.0.as_ptr(), idle) };
    }
}

/// Runs another stack until something switches back here.
///
/// # Safety
///
/// The context is alive, suspended and not the current one.
pub(crate) unsafe fn switch(to: Context) {
    // SAFETY: as promised.
    unsafe { cen_switch(to) };
}

/// Returns whether PHP forbids switching now, because it runs a destructor.
pub(crate) fn is_switch_blocked() -> bool {
    cen_switch_blocked()
}

/// Returns whether a signal handler of PHP code, or PHP's time limit, waits for its turn.
pub(crate) fn is_interrupt_pending() -> bool {
    cen_interrupt_pending()
}

/// Makes PHP run the coroutines that are left when the script ends.
pub(crate) fn run_leftovers_at_end() {
    cen_run_leftovers_at_end();
}

/// How the script has ended; see `cen_script_end`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "C makes the values")]
pub(crate) enum ScriptEnd {
    Clean = 0,
    /// With an exception, or with an exit status.
    Failed = 1,
    /// With a fatal error.
    Fatal = 2,
}

pub(crate) fn script_end() -> ScriptEnd {
    cen_script_end()
}

/// Lets PHP code run again after a coroutine ran out of memory.
pub(crate) fn forget_oom() {
    cen_forget_oom();
}
