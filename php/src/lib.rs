//! A PHP extension: coroutines, `Async\Pool` and pooled PDO on stock PHP. See README.md.
//!
//! The C files in `shim/` parse arguments and register classes; everything else is here.

#![allow(
    improper_ctypes_definitions,
    reason = "the types of both halves are declared in shim/shim.h"
)]

mod api;
mod arrays;
mod awaiting;
mod callback;
mod channel;
mod completion;
mod coroutine;
mod engine;
mod fiber;
mod gc;
mod pdo;
mod pool;
mod reactor;
mod scheduler;
mod timeout;
mod timer;
mod wake;

use std::ffi::c_void;

unsafe extern "C" {
    safe fn cen_module() -> *mut c_void;
}

/// PHP calls this when it loads the extension.
#[unsafe(no_mangle)]
pub extern "C" fn get_module() -> *mut c_void {
    cen_module()
}
