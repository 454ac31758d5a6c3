//! What a pool knows of a resource, for the callbacks that are called about it.

use std::cell::Cell;
use std::ffi::c_int;
use std::ptr::null;
use std::time::Duration;

use crate::callbacks::Resource;
use crate::error::{CENOTE_ERR_ARGUMENT, CENOTE_OK, Fault, boundary};
use crate::options::write_sized;

/// What a pool knows of a resource.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cenote_info {
    /// sizeof(cenote_info); set it before the call.
    pub size: usize,
    /// How long ago it was made, in milliseconds.
    pub age_ms: u64,
    /// How often it was acquired. before_release finds the present time counted;
    /// before_acquire does not.
    pub uses: u64,
}

thread_local! {
    /// What the callback that runs on this thread is about.
    static ABOUT: Cell<*const Resource> = const { Cell::new(null()) };
}

/// Runs a callback that is about a resource.
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

/// Says how old the resource is that the present callback is about, and how often it was used:
/// inside of healthcheck, before_acquire, before_release and destroy, and of the function of
/// cenote_pool_retain, on the thread that runs them.
///
/// Returns CENOTE_OK; CENOTE_ERR_ARGUMENT, also outside of such a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_resource_info(info: *mut cenote_info) -> c_int {
    boundary(|| {
        // SAFETY: null, or the resource of the callback that runs inside of `about`.
        let Some(resource) = (unsafe { ABOUT.get().as_ref() }) else {
            let text = "no callback that is about a resource runs on this thread";
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
