//! The path of one acquire: an idle slot without the lock (`idle.rs`), else the queue (`wait.rs`);
//! then the acquire hook (`check.rs`). `create.rs` creates a resource.

pub(crate) mod check;
pub(crate) mod create;
pub(crate) mod idle;
pub(crate) mod wait;

use std::future::Future;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::acquire::check::{Checking, Unchecked};
use crate::acquire::create::Creation;
use crate::acquire::wait::Wait;
use crate::core::slot::Slot;
use crate::core::state::{AcquireMode, Arrival, PolledWaker, Progress};
use crate::core::waiters::WaiterKey;
use crate::core::{Core, CreateFailure, Filled, signal};
use crate::error::{AcquireError, Phase};
use crate::hooks::{BoxFuture, Refusal};
use crate::info::Info;
use crate::lease::Handout;
use crate::manager::{Manager, Verdict};
use crate::observe::histogram::WaitCause;
use crate::runtime::Task;
use crate::user_code::{Caught, Contained};

/// Options of one acquire, for [`Pool::acquire_with`](crate::Pool::acquire_with) and
/// [`Pool::acquire_blocking_with`](crate::Pool::acquire_blocking_with).
///
/// # Examples
///
/// ```
/// # use cenote_pool::{AcquireOptions, Lease, Pool};
/// # use std::{convert::Infallible, time::Duration};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let pool = Pool::from_fn(|| async { Ok::<_, Infallible>(()) }).build()?;
/// let options = AcquireOptions::new().timeout(Duration::from_millis(200));
/// let lease = Lease::into_owned(pool.acquire_with(options).await?);
/// # drop(lease);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[must_use = "options do nothing until they are passed to an acquire"]
pub struct AcquireOptions {
    pub(crate) timeout: Option<Duration>,
    pub(crate) call_site: Option<&'static Location<'static>>,
}

impl AcquireOptions {
    /// Returns options that change nothing.
    #[inline]
    pub const fn new() -> Self {
        AcquireOptions {
            timeout: None,
            call_site: None,
        }
    }

    /// Limits how long the acquire may take, instead of the pool's
    /// [`acquire_timeout`](crate::Builder::acquire_timeout).
    #[inline]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Shows another line of the program as the holder in [`holders`](crate::Pool::holders), events,
    /// warnings and errors. For libraries that want their users' lines shown.
    #[inline]
    pub const fn call_site(mut self, call_site: &'static Location<'static>) -> Self {
        self.call_site = Some(call_site);
        self
    }
}

impl<M: Manager> Core<M> {
    /// Acquires a lease of any kind.
    ///
    /// # Cancel safety
    ///
    /// Dropped in the queue, the future passes its reservation on. Dropped in the acquire hook, it
    /// destroys the resource.
    #[inline]
    pub(crate) fn acquire<'p, L: Handout<'p, M> + 'p>(
        self: &'p Arc<Self>,
        caller: &'static Location<'static>,
        timeout: Option<Duration>,
    ) -> impl Future<Output = Acquired<L, M>> + Send + 'p {
        Acquire {
            core: self,
            wait: Wait::new(caller, timeout),
            serial: None,
            refused: false,
            stage: ManuallyDrop::new(Stage::Start),
            make_hook: |manager: &'p M, resource: &'p mut M::Resource, info: Info<'p>| {
                manager.before_acquire(resource, info)
            },
            _hands_out: PhantomData::<fn() -> L>,
        }
    }
}

/// The result of an acquire.
pub(crate) type Acquired<T, M> = Result<T, AcquireError<<M as Manager>::Error>>;

/// The future of an acquire. It is written by hand because every waiting task contains one, and an
/// `async` block with the same steps is several times as large.
///
/// ```text
/// Start ──idle──> Checking ──yes──> lease
///   │ ^             │ │ ^
///   │ └──refused────┘ │ │ reserved
///   └─────> Queued ───┼─┘
///              └fresh─┴──> lease
/// ```
struct Acquire<'p, M: Manager, F, H, L> {
    core: &'p Arc<Core<M>>,
    wait: Wait,
    /// Its number in the order of arrival, if it has been in the queue.
    serial: Option<u32>,
    /// The acquire hook refused the resource that the acquire was served with before.
    refused: bool,
    /// Dropped by hand: nearly always there is nothing to drop, and the compiler would check for it
    /// in every acquire.
    stage: ManuallyDrop<Stage<'p, M, H>>,
    make_hook: F,
    _hands_out: PhantomData<fn() -> L>,
}

/// How far an acquire has come.
enum Stage<'p, M: Manager, H> {
    Start,
    Queued(WaiterKey),
    /// The manager's own hook runs; it is pinned here.
    Checking(Checking<'p, M, Caught<H>>),
    /// An async closure that overrides the hook runs.
    CheckingBoxed(Checking<'p, M, Caught<BoxFuture<'p, Answered>>>),
    /// An acquire that never queues waits for the slot of its refused resource.
    Destroying(Task),
    Done,
}

type Answered = Result<Verdict, Refusal>;

impl<'p, M, F, H, L> Future for Acquire<'p, M, F, H, L>
where
    M: Manager,
    F: Fn(&'p M, &'p mut M::Resource, Info<'p>) -> H,
    H: Future<Output = Result<bool, M::Error>>,
    L: Handout<'p, M>,
{
    type Output = Acquired<L, M>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Acquired<L, M>> {
        // SAFETY: the hook inside `stage` is pinned with this struct: it is
        // polled and dropped in place, and never moved.
        let this = unsafe { self.get_unchecked_mut() };
        let taken = match *this.stage {
            Stage::Start => this.core.take_unlocked(),
            Stage::Queued(key) => this.take_reserved(key),
            _ => None,
        };
        if let Some(slot) = taken {
            if let Some(slot) = this.check_at_once(slot, cx) {
                return Poll::Ready(Ok(this.serve(slot, None)));
            }
            if this.is_checking()
                && let Some(polled) = this.hook_waits(cx)
            {
                return polled;
            }
        } else if this.may_join() && this.join_queue(cx) {
            return Poll::Pending;
        }
        this.poll_slowly(cx)
    }
}

impl<'p, M, F, H, L> Acquire<'p, M, F, H, L>
where
    M: Manager,
    F: Fn(&'p M, &'p mut M::Resource, Info<'p>) -> H,
    H: Future<Output = Result<bool, M::Error>>,
    L: Handout<'p, M>,
{
    /// Collects the acquire's reservation, if that is possible without the lock.
    #[inline]
    fn take_reserved(&mut self, key: WaiterKey) -> Option<&'p Slot<Filled<M>>> {
        let slot = self.core.collect(key)?;
        self.serial = Some(key.serial());
        // The pool drops the entry later.
        self.go_to(Stage::Start);
        Some(slot)
    }

    /// Does everything that takes the lock or waits.
    #[inline(never)]
    fn poll_slowly(&mut self, cx: &mut Context<'_>) -> Poll<Acquired<L, M>> {
        loop {
            let progress = match &*self.stage {
                Stage::Start => {
                    self.wait.begin(self.core);
                    self.core.consider_recovery();
                    let mut waker = PolledWaker::new(cx.waker(), true);
                    let arrival = self.arrival();
                    self.core
                        .locked(|locked| locked.enter(&arrival, &mut waker))
                }
                &Stage::Queued(key) => self.poll_waiter(key, cx),
                Stage::Checking(_) | Stage::CheckingBoxed(_) => {
                    let passed = self.poll_hook(cx);
                    let unchecked = passed.map(|slot| Unchecked::new(self.core, slot));
                    if let Some(slot) = unchecked.and_then(|it| self.pass_if_open(it)) {
                        return Poll::Ready(Ok(self.serve(slot, Some(WaitCause::Check))));
                    }
                    if self.is_checking()
                        && let Some(polled) = self.wait_in_hook(cx)
                    {
                        return polled;
                    }
                    // The hook refused the resource: try the next one.
                    continue;
                }
                Stage::Destroying(_) => {
                    if let Stage::Destroying(end) = &mut *self.stage
                        && end.as_mut().poll(cx).is_pending()
                    {
                        return Poll::Pending;
                    }
                    drop(std::mem::replace(&mut *self.stage, Stage::Start));
                    continue;
                }
                Stage::Done => panic!("an acquire is not polled again when it is done"),
            };
            let end = match progress {
                Progress::Waiting(key) | Progress::WakerNeeded(key) => {
                    self.go_to(Stage::Queued(key));
                    return Poll::Pending;
                }
                Progress::Create(key, claim) => {
                    self.go_to(Stage::Queued(key));
                    // From here on the creation owns its slot.
                    Creation::new(self.core, claim, Some(key)).start();
                    continue;
                }
                Progress::Taken {
                    slot,
                    fresh,
                    serial,
                } => {
                    self.serial = serial.or(self.serial);
                    self.go_to(Stage::Start);
                    let slot = self.core.slots.at(slot);
                    let checked = match fresh {
                        true => Some(slot),
                        false => self.check_at_once(slot, cx),
                    };
                    if let Some(slot) = checked {
                        let cause = fresh.then_some(WaitCause::Creation);
                        return Poll::Ready(Ok(self.serve(slot, cause)));
                    }
                    if self.is_checking()
                        && let Some(polled) = self.wait_in_hook(cx)
                    {
                        return polled;
                    }
                    // The hook refused the resource: try the next one.
                    continue;
                }
                Progress::Exhausted => {
                    Ok(L::nothing().expect("an acquire that queues is never told that"))
                }
                Progress::Unavailable(why) => Self::nothing(AcquireError::Unavailable(why)),
                Progress::Closed if self.core.is_inherited() => Self::nothing(AcquireError::Forked),
                Progress::Closed => Self::nothing(AcquireError::Closed),
                Progress::QueueFull { waiting, limit } => {
                    Err(AcquireError::QueueFull { waiting, limit })
                }
                Progress::Failed(failure) => Err(failure.into_error()),
                Progress::TimedOut { creating: true } => {
                    Err(self.wait.timed_out(self.core, Phase::Creating))
                }
                Progress::TimedOut { creating: false } => {
                    Err(self.wait.timed_out(self.core, Phase::Waiting))
                }
            };
            self.go_to(Stage::Done);
            return Poll::Ready(end);
        }
    }

    /// Returns whether the short path into the queue may apply.
    #[inline]
    fn may_join(&self) -> bool {
        let queued = signal::QUEUED | signal::REPORTS;
        matches!(*self.stage, Stage::Start)
            && L::MODE == AcquireMode::Queue
            // A strategy has to be asked first.
            && self.core.signals() & queued == signal::QUEUED
            // An acquire that was in the queue before resumes its position.
            && self.serial.is_none()
            && !self.refused
    }

    /// Joins a queue that exists already by the short path, if that is all there is to do.
    #[inline(never)]
    fn join_queue(&mut self, cx: &mut Context<'_>) -> bool {
        self.wait.begin(self.core);
        let mut waker = Contained::new(Some(cx.waker().clone()));
        let Some(key) = self.core.join_queue(&self.wait, &mut waker) else {
            return false;
        };
        self.go_to(Stage::Queued(key));
        true
    }

    /// Moves on from a stage that has nothing to drop.
    #[inline]
    fn go_to(&mut self, next: Stage<'p, M, H>) {
        debug_assert!(matches!(
            *self.stage,
            Stage::Start | Stage::Queued(_) | Stage::Done
        ));
        self.stage = ManuallyDrop::new(next);
    }

    fn poll_waiter(&self, key: WaiterKey, cx: &Context<'_>) -> Progress<CreateFailure<M::Error>> {
        let poll = |cloned| {
            let mut waker = PolledWaker::new(cx.waker(), cloned);
            self.core
                .locked(|locked| locked.poll_waiter(key, self.wait.caller, &mut waker))
        };
        match poll(false) {
            Progress::WakerNeeded(_) => poll(true),
            progress => progress,
        }
    }

    fn arrival(&self) -> Arrival {
        Arrival {
            caller: self.wait.caller,
            began: self.wait.began(),
            deadline: self.wait.deadline(),
            hint: idle::last_slot(self.core).map(Slot::index),
            mode: L::MODE,
            refused: self.refused,
            serial: self.serial,
        }
    }

    /// Ends without a resource: with the error, or with nothing where that is no error.
    fn nothing(error: AcquireError<M::Error>) -> Acquired<L, M> {
        L::nothing().ok_or(error)
    }

    /// Ends with a lease. `cause` is what the acquire waited for, if that was not the queue.
    #[inline]
    fn serve(&mut self, slot: &'p Slot<Filled<M>>, cause: Option<WaitCause>) -> L {
        self.go_to(Stage::Done);
        if slot.count_lease() {
            self.core.begin_sample(slot);
        }
        let lease = L::of(self.core, slot);
        if self.wait.has_begun() {
            let cause = match (cause, self.serial) {
                (None | Some(WaitCause::Check), Some(_)) => Some(WaitCause::Queue),
                _ => cause,
            };
            self.wait.served(self.core, slot, cause);
        } else {
            slot.note_holder(self.wait.caller, self.core.runtime.coarse_now());
        }
        lease
    }
}

impl<M: Manager, F, H, L> Drop for Acquire<'_, M, F, H, L> {
    #[inline]
    fn drop(&mut self) {
        if !matches!(*self.stage, Stage::Start | Stage::Done) {
            self.cancel();
        }
    }
}

impl<M: Manager, F, H, L> Acquire<'_, M, F, H, L> {
    /// Gives everything back, because the future is dropped before it is done.
    #[cold]
    fn cancel(&mut self) {
        let (key, checking) = match &*self.stage {
            Stage::Queued(key) => (Some(*key), false),
            Stage::Checking(checking) => (checking.key, true),
            Stage::CheckingBoxed(checking) => (checking.key, true),
            Stage::Destroying(_) => {
                if let Stage::Destroying(end) = std::mem::replace(&mut *self.stage, Stage::Done) {
                    // The destructor goes on.
                    self.core.spawn(end);
                }
                return;
            }
            Stage::Start | Stage::Done => return,
        };
        if let Some(key) = key {
            self.core.locked(|locked| {
                locked.state.counters.cancelled += u64::from(!checking);
                locked.leave(key);
            });
        }
        // A resource in its hook is destroyed with the stage.
        // SAFETY: pinned, so dropped in place; this is called once, by `drop`.
        unsafe { ManuallyDrop::drop(&mut self.stage) };
    }
}
