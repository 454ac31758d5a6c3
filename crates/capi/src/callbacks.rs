//! The callbacks of a pool, as a manager for `cenote-pool`: C's function pointers, and the
//! rule on which threads they run.

use std::cell::Cell;
use std::error::Error;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rust_pool::{Info, Manager, Verdict};

use crate::body::Body;
use crate::error::take_callback_text;
use crate::host::Host;
use crate::info;
use crate::loans::Loan;

/// Creates a resource: stores it and returns 0, or returns a code of its own.
pub type cenote_create_fn =
    Option<unsafe extern "C" fn(data: *mut c_void, resource: *mut *mut c_void) -> c_int>;

/// Checks or destroys a resource: returns 0 for success, else a code of its own.
pub type cenote_resource_fn =
    Option<unsafe extern "C" fn(data: *mut c_void, resource: *mut c_void) -> c_int>;

/// Returns whether a code of create is permanent, so that a retry is useless: anything but 0 is
/// yes.
pub type cenote_permanent_fn =
    Option<unsafe extern "C" fn(data: *mut c_void, code: c_int) -> c_int>;

/// Called when the library no longer uses `data`.
pub type cenote_dispose_fn = Option<unsafe extern "C" fn(data: *mut c_void)>;

/// A pointer of C's that the library only passes to C's callbacks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserData(pub(crate) *mut c_void);

// SAFETY: never dereferenced here. That callbacks may run on any thread, and so what
// `data` points to must allow for that, is the header's contract.
unsafe impl Send for UserData {}
// SAFETY: as above.
unsafe impl Sync for UserData {}

/// Calls `dispose` once, when it is dropped. A guard, so that the call happens even if the host
/// accepts no more work.
pub(crate) struct Disposal {
    pub(crate) dispose: cenote_dispose_fn,
    pub(crate) data: UserData,
}

impl Disposal {
    /// Calls `dispose` on the thread that callbacks run on.
    pub(crate) fn at(self, host: Option<Arc<Host>>) {
        match host.filter(|host| !host.is_here()) {
            Some(host) if self.dispose.is_some() => {
                host.spawn(Box::pin(async move { drop(self) }));
            }
            _ => drop(self),
        }
    }
}

impl Drop for Disposal {
    fn drop(&mut self) {
        if let Some(dispose) = self.dispose {
            // SAFETY: C's function with C's data, which nothing uses any more.
            unsafe { dispose(self.data.0) };
        }
    }
}

/// The callbacks of a pool.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) data: UserData,
    pub(crate) create: cenote_create_fn,
    pub(crate) destroy: cenote_resource_fn,
    pub(crate) healthcheck: cenote_resource_fn,
    pub(crate) before_acquire: cenote_resource_fn,
    pub(crate) before_release: cenote_resource_fn,
    pub(crate) is_permanent: cenote_permanent_fn,
}

impl Table {
    fn create(&self) -> Result<*mut c_void, CallbackError> {
        let Some(create) = self.create else {
            return Err(CallbackError::of("create", -1));
        };
        // Clears the text of an earlier callback that set one and then succeeded.
        take_callback_text();
        let mut resource = null_mut();
        // SAFETY: C's function with C's data, as the header says it is called.
        match unsafe { create(self.data.0, &raw mut resource) } {
            0 => Ok(resource),
            code => Err(CallbackError::of("create", code)),
        }
    }

    #[inline]
    fn ask(
        &self,
        name: &'static str,
        callback: cenote_resource_fn,
        resource: &Resource,
    ) -> Result<bool, CallbackError> {
        let Some(callback) = callback else {
            return Ok(true);
        };
        let made = resource.get();
        // SAFETY: C's function with C's data, and a resource that C made.
        match info::about(resource, || unsafe { callback(self.data.0, made) }) {
            0 => Ok(true),
            code => Err(CallbackError::of(name, code)),
        }
    }

    fn before_release(&self, resource: &Resource) -> Result<bool, CallbackError> {
        self.ask("before_release", self.before_release, resource)
    }
}

/// The failure of a callback. Small, because every acquire reserves space for one.
#[derive(Debug)]
pub(crate) struct CallbackError(Box<Failure>);

#[derive(Debug)]
struct Failure {
    name: &'static str,
    code: c_int,
    said: Option<String>,
}

impl CallbackError {
    #[cold]
    fn of(name: &'static str, code: c_int) -> Self {
        CallbackError(Box::new(Failure {
            name,
            code,
            said: take_callback_text(),
        }))
    }

    /// The code that the callback returned.
    pub(crate) fn code(&self) -> c_int {
        self.0.code
    }
}

impl fmt::Display for CallbackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { name, code, said } = &*self.0;
        write!(f, "the {name} callback returned {code}")?;
        match said {
            Some(said) => write!(f, ": {said}"),
            None => Ok(()),
        }
    }
}

impl Error for CallbackError {}

thread_local! {
    /// Callbacks must not run inside the current call on this thread.
    static DEFERRED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `run` without callbacks on this thread, if there is no host: the background thread runs
/// them later.
pub(crate) fn deferred<T>(run: impl FnOnce() -> T) -> T {
    with_deferred(true, run)
}

/// Runs `run` with callbacks allowed on this thread, even inside [`deferred`]: a strategy may
/// acquire from another pool.
pub(crate) fn not_deferred<T>(run: impl FnOnce() -> T) -> T {
    with_deferred(false, run)
}

fn with_deferred<T>(deferred: bool, run: impl FnOnce() -> T) -> T {
    struct Back(bool);

    impl Drop for Back {
        fn drop(&mut self) {
            DEFERRED.set(self.0);
        }
    }

    let _back = Back(DEFERRED.replace(deferred));
    run()
}

/// The manager of the pool: it calls C's callbacks.
pub(crate) struct Callbacks {
    pub(crate) body: Arc<Body>,
}

impl Body {
    /// Whether callbacks may run on this thread now.
    pub(crate) fn may_call_here(&self) -> bool {
        match self.host() {
            Some(host) => host.is_here(),
            None => !DEFERRED.get(),
        }
    }

    /// Waits until it is polled where callbacks may run. After a poll in the wrong place the
    /// future goes to the runtime, which polls it in the right place.
    async fn right_place(&self) {
        poll_fn(|cx| {
            if self.may_call_here() {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}

impl Manager for Callbacks {
    type Resource = Resource;
    type Error = CallbackError;

    async fn create(&self) -> Result<Resource, CallbackError> {
        // A cancel here loses nothing: no resource exists yet.
        self.body.right_place().await;
        let made = self.body.table().create()?;
        Ok(Resource::new(&self.body, made))
    }

    fn is_permanent(&self, error: &CallbackError) -> bool {
        let table = self.body.table();
        match table.is_permanent {
            // SAFETY: C's function with C's data, where create has just run.
            Some(is_permanent) => unsafe { is_permanent(table.data.0, error.code()) != 0 },
            None => false,
        }
    }

    async fn destroy(&self, resource: Resource) -> Result<(), CallbackError> {
        // A cancel here drops the resource, which destroys it on the dropping thread.
        self.body.right_place().await;
        resource.destroy()
    }

    async fn healthcheck(
        &self,
        resource: &mut Resource,
        _: Info<'_>,
    ) -> Result<bool, CallbackError> {
        // A cancel here gives the resource to the pool, which destroys it.
        self.body.right_place().await;
        let table = self.body.table();
        table.ask("healthcheck", table.healthcheck, resource)
    }

    #[inline]
    fn before_acquire(
        &self,
        resource: &mut Resource,
        _: Info<'_>,
    ) -> impl Future<Output = Result<bool, CallbackError>> + Send {
        // A cancel here gives the resource to the pool, which destroys it.
        BeforeAcquire {
            body: &self.body,
            resource,
        }
    }

    /// Used only with a host. Without one the pool calls a closure, which can report why.
    #[inline]
    fn before_release(&self, resource: &mut Resource, _: Info<'_>) -> Verdict {
        let table = self.body.table();
        let nothing_to_call = table.before_release.is_none() && !self.body.is_watched();
        if nothing_to_call {
            return Verdict::Keep;
        }
        if !self.body.may_call_here() {
            return Verdict::Later;
        }
        match table.before_release(resource) {
            Ok(_) => Verdict::Keep,
            Err(_) => Verdict::Discard,
        }
    }

    async fn recycle(&self, resource: &mut Resource, _: Info<'_>) -> Result<bool, CallbackError> {
        // A cancel here gives the resource to the pool, which destroys it.
        self.body.right_place().await;
        self.body.table().before_release(resource)
    }
}

/// The future of the before_acquire callback. Hand-written, so that an acquire without the
/// callback stores only two words.
struct BeforeAcquire<'a, 'r> {
    body: &'a Body,
    resource: &'r Resource,
}

impl Future for BeforeAcquire<'_, '_> {
    type Output = Result<bool, CallbackError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let table = self.body.table();
        if table.before_acquire.is_none() {
            return Poll::Ready(Ok(true));
        }
        if !self.body.may_call_here() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let answer = table.ask("before_acquire", table.before_acquire, self.resource);
        Poll::Ready(answer)
    }
}

/// A resource of C's in the pool, and the slot that C's leases refer to.
pub(crate) struct Resource {
    body: Arc<Body>,
    loan: NonNull<Loan>,
    slot: u32,
    destroyed: bool,
    made: Instant,
    /// The ticket of its loan when the resource was created.
    first_ticket: u64,
}

// SAFETY: the loan belongs to `body`, and is `Sync`.
unsafe impl Send for Resource {}
// SAFETY: as above.
unsafe impl Sync for Resource {}

impl Resource {
    fn new(body: &Arc<Body>, made: *mut c_void) -> Self {
        let loans = body.loans();
        let slot = loans.add(made).expect("a pool has fewer places than slots");
        let loan = loans.get(slot).expect("the slot was just added");
        Resource {
            loan: NonNull::from(loan),
            made: body.now(),
            first_ticket: loan.ticket(),
            slot,
            body: Arc::clone(body),
            destroyed: false,
        }
    }

    /// Returns the number of its slot.
    #[inline]
    pub(crate) fn number(&self) -> u32 {
        self.slot
    }

    #[inline]
    pub(crate) fn loan(&self) -> &Loan {
        // SAFETY: loans live as long as the body, which this keeps alive.
        unsafe { self.loan.as_ref() }
    }

    #[inline]
    pub(crate) fn get(&self) -> *mut c_void {
        self.loan().resource()
    }

    /// Calls before_release, which decides whether the pool keeps the resource.
    pub(crate) fn before_release(&self) -> Result<bool, CallbackError> {
        self.body.table().before_release(self)
    }

    /// Returns the age of the resource, by the clock of its pool.
    pub(crate) fn age(&self) -> Duration {
        self.body.now().saturating_duration_since(self.made)
    }

    /// Returns how often the resource was acquired. Each acquire and each release adds 1 to the ticket.
    pub(crate) fn uses(&self) -> u64 {
        let tickets = self.loan().ticket().wrapping_sub(self.first_ticket);
        tickets.div_ceil(2)
    }

    fn destroy(mut self) -> Result<(), CallbackError> {
        self.destroy_here()
    }

    fn destroy_here(&mut self) -> Result<(), CallbackError> {
        if std::mem::replace(&mut self.destroyed, true) {
            return Ok(());
        }
        let body = &self.body;
        body.loans().hide(self.slot);
        take_callback_text();
        let table = body.table();
        let result = table.ask("destroy", table.destroy, self);
        body.loans().remove(self.slot);
        result.map(drop)
    }
}

impl Drop for Resource {
    fn drop(&mut self) {
        // Reached only if the pool could not destroy the resource because its runtime accepts no
        // more work. Then this thread destroys it, and no listener is left for an error.
        let _ = self.destroy_here();
    }
}
