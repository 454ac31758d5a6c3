//! The callbacks of a pool, as the manager that `cenote-pool` asks for: function
//! pointers of C, and the rule on which threads they run.

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

/// Makes a resource: stores it and returns 0, or returns a code of its own.
pub type cenote_create_fn =
    Option<unsafe extern "C" fn(data: *mut c_void, resource: *mut *mut c_void) -> c_int>;

/// Does something with a resource: returns 0 if all is well, else a code of its own.
pub type cenote_resource_fn =
    Option<unsafe extern "C" fn(data: *mut c_void, resource: *mut c_void) -> c_int>;

/// Says of a code that create returned whether it is of no use to try again: anything but 0 is yes.
pub type cenote_permanent_fn =
    Option<unsafe extern "C" fn(data: *mut c_void, code: c_int) -> c_int>;

/// Is called when `data` is not used any more.
pub type cenote_dispose_fn = Option<unsafe extern "C" fn(data: *mut c_void)>;

/// A pointer of C's that we only hand back to its callbacks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserData(pub(crate) *mut c_void);

// SAFETY: never dereferenced here. That callbacks may run on any thread, and so what
// `data` points to must allow for that, is the header's contract.
unsafe impl Send for UserData {}
// SAFETY: as above.
unsafe impl Sync for UserData {}

/// A `dispose` that is due, once; a guard, so that a host that takes no more work does not
/// keep it from happening.
pub(crate) struct Disposal {
    pub(crate) dispose: cenote_dispose_fn,
    pub(crate) data: UserData,
}

impl Disposal {
    /// Calls it where callbacks run.
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
        // What an earlier callback said and then did not fail is not about this one.
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

/// A callback that did not return 0. Small, because every acquire has room for one.
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

    /// What the callback returned.
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
    /// Callbacks must not run inside the call that this thread makes.
    static DEFERRED: Cell<bool> = const { Cell::new(false) };
}

/// Runs something that must not call back on this thread, without a host: a callback
/// that would, runs on the background thread later.
pub(crate) fn deferred<T>(run: impl FnOnce() -> T) -> T {
    with_deferred(true, run)
}

/// Runs something that may call back on this thread, even inside of [`deferred`]: a
/// strategy, which is asked there, may acquire from another pool.
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

/// What the pool manages: knows the pool's body, and asks C.
pub(crate) struct Callbacks {
    pub(crate) body: Arc<Body>,
}

impl Body {
    /// Whether callbacks may run on this thread, now.
    pub(crate) fn may_call_here(&self) -> bool {
        match self.host() {
            Some(host) => host.is_here(),
            None => !DEFERRED.get(),
        }
    }

    /// Waits until it is polled where callbacks may run. Whoever polls a callback in
    /// the wrong place hands it to the runtime next, which polls it in the right one.
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
        // A cancel here loses nothing: nothing is made yet.
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
        // A cancel here drops the resource, which destroys it where that happens.
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

    /// Where there is a host. Without one, a closure stands in for this, because that
    /// can say why.
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

/// The acquire callback. By hand, because a future of two words is all that an acquire
/// has to carry around if there is nothing to call.
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

/// A resource of C's in the pool, and the slot by which C's leases name it.
pub(crate) struct Resource {
    body: Arc<Body>,
    loan: NonNull<Loan>,
    slot: u32,
    destroyed: bool,
    made: Instant,
    /// The ticket of its loan when it was made.
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
        let loan = loans.get(slot).expect("it was just added");
        Resource {
            loan: NonNull::from(loan),
            made: body.now(),
            first_ticket: loan.ticket(),
            slot,
            body: Arc::clone(body),
            destroyed: false,
        }
    }

    /// The number of its slot.
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

    /// Asks whether it may stay.
    pub(crate) fn before_release(&self) -> Result<bool, CallbackError> {
        self.body.table().before_release(self)
    }

    /// Returns how long ago it was made, by the clock of its pool.
    pub(crate) fn age(&self) -> Duration {
        self.body.now().saturating_duration_since(self.made)
    }

    /// Returns how often it was lent. Each lease and each return is a ticket of its loan.
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
        // Only if the pool could not destroy it in order, because its runtime took no
        // more work. Then any thread is better than none; nobody is left to be told.
        let _ = self.destroy_here();
    }
}
