//! Evicts resources by a predicate of C's.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::acquire::elsewhere;
use crate::callbacks::{Disposal, Resource, UserData, cenote_dispose_fn};
use crate::error::{CENOTE_OK, Fault, boundary};
use crate::handle::{self, cenote_pool};
use crate::host::Host;
use crate::info;

/// Returns whether the pool keeps a resource: anything but 0 is yes.
pub type cenote_keep_fn =
    Option<unsafe extern "C" fn(data: *mut c_void, resource: *mut c_void) -> c_int>;

/// Evicts the resources for which `keep` returns 0, and refills to the minimum. `keep` runs for
/// idle resources before this returns, and for the others when they are released, on the releasing
/// thread or on the host's. cenote_resource_info gives `keep` their age and use count. `dispose` is
/// called with `data` after the last call of `keep`; NULL: no call.
///
/// Returns CENOTE_OK; CENOTE_ERR_ARGUMENT, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED, and then `dispose` is
/// not called; CENOTE_ERR_CANCELLED if the host's event loop accepts no more work.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_pool_retain(
    pool: *mut cenote_pool,
    keep: cenote_keep_fn,
    data: *mut c_void,
    dispose: cenote_dispose_fn,
) -> c_int {
    boundary(|| {
        let keep = keep.ok_or_else(|| Fault::null("keep"))?;
        let body = handle::open(pool)?;
        if body.host().is_some() {
            // A release on another thread then goes through the host's thread.
            body.set_watched(true);
        }
        let predicate = Predicate {
            keep,
            data: UserData(data),
            dispose,
            host: body.host().cloned(),
        };
        let judge = move |resource: &Resource, _: rust_pool::Info<'_>| predicate.keeps(resource);
        let pool = body.pool().clone();
        match body.elsewhere() {
            Some(host) => elsewhere(host, None, async move { pool.retain(judge) })?,
            None => pool.retain(judge),
        }
        Ok(CENOTE_OK)
    })
}

struct Predicate {
    keep: unsafe extern "C" fn(data: *mut c_void, resource: *mut c_void) -> c_int,
    data: UserData,
    dispose: cenote_dispose_fn,
    host: Option<Arc<Host>>,
}

impl Predicate {
    fn keeps(&self, resource: &Resource) -> bool {
        let made = resource.get();
        // SAFETY: C's function with C's data, and a resource that C made.
        info::about(resource, || unsafe { (self.keep)(self.data.0, made) != 0 })
    }
}

impl Drop for Predicate {
    fn drop(&mut self) {
        let disposal = Disposal {
            dispose: self.dispose,
            data: self.data,
        };
        disposal.at(self.host.take());
    }
}
