//! The age and use count of a resource, for its callbacks.

use std::cell::Cell;
use std::ffi::c_int;
use std::ptr::null;
use std::time::Duration;

use crate::callbacks::Resource;
use crate::error::{CENOTE_ERR_ARGUMENT, CENOTE_OK, Fault, boundary};
use crate::options::write_sized;

/// The age and use count of a resource.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cenote_info {
    /// sizeof(cenote_info); set it before the call.
    pub size: usize,
    /// The time since the resource was created, in milliseconds.
    pub age_ms: u64,
    /// The number of times the resource was acquired. before_release counts the current
    /// acquire; before_acquire does not.
    pub uses: u64,
}

thread_local! {
    /// The resource of the callback that runs on this thread.
    static ABOUT: Cell<*const Resource> = const { Cell::new(null()) };
}

/// Runs a callback for a resource.
#[inline]
pub(crate) fn about<T>(resource: &Resource, callback: impl FnOnce() -> T) -> T {
    struct Back(*const Resource);

    impl Drop for Back {
        fn drop(&mut self) {
            ABOUT.set(self.0);
        }
    }

    let _back = Back(ABOUT.replace(resource));
    callback()
}

/// Writes the age and use count of the resource of the running callback. Call it inside
/// healthcheck, before_acquire, before_release, destroy or the function of
/// cenote_pool_retain, on the thread that runs them.
///
/// Returns CENOTE_OK, or CENOTE_ERR_ARGUMENT, also outside of these callbacks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_resource_info(info: *mut cenote_info) -> c_int {
    boundary(|| {
        // SAFETY: null, or the resource of the callback that runs inside of `about`.
        let Some(resource) = (unsafe { ABOUT.get().as_ref() }) else {
            let text = "no resource callback is running on this thread; call cenote_resource_info inside one";
            return Err(Fault::new(CENOTE_ERR_ARGUMENT, text));
        };
        if info.is_null() {
            return Err(Fault::null("info"));
        }
        // SAFETY: not NULL, and C's promise on its size.
        let size = unsafe { (*info).size };
        let found = cenote_info {
            size,
            age_ms: millis(resource.age()),
            uses: resource.uses(),
        };
        // SAFETY: as above.
        unsafe { write_sized(info, "info", size, found) }?;
        Ok(CENOTE_OK)
    })
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
