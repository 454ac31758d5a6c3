//! Containment of user code: a panic in it becomes an ordinary failure, and never leaves a drop, a lock
//! or a guard half-way.
//!
//! Most hooks are called here. The acquire hook is called in `acquire/check.rs`, predicates in
//! `upkeep/retain.rs`, strategies in `breaker/report.rs` and listeners in `observe/events.rs`; all of them use
//! the helpers of this file or catch panics themselves. No hook is called under the pool's lock. Values of
//! the user are dropped by [`Contained`] or [`drop_contained`]; [`Core::spawn`] and its neighbours call the
//! runtime.

use std::future::Future;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::core::{Core, CreateFailure};
use crate::error::{DestroyError, chain, panic_message};
use crate::hooks::{Check, Refusal};
use crate::info::Info;
use crate::manager::{Manager, Verdict};
use crate::observe::text::human;
use crate::runtime::{Task, within};

/// Makes and runs a future of the user. A panic becomes its message.
async fn caught<F: Future>(make: impl FnOnce() -> F) -> Result<F::Output, Arc<str>> {
    Caught::new(make)?.await
}

/// A value of the user, whose drop may panic: the panic is contained.
#[derive(Debug)]
pub(crate) struct Contained<T>(ManuallyDrop<T>);

impl<T> Contained<T> {
    #[inline]
    pub(crate) fn new(value: T) -> Self {
        Contained(ManuallyDrop::new(value))
    }

    pub(crate) fn into_inner(self) -> T {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is neither dropped nor used again.
        unsafe { ManuallyDrop::take(&mut this.0) }
    }
}

impl<T> Deref for Contained<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Contained<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> Drop for Contained<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: nothing uses the value after this.
        contained(|| unsafe { ManuallyDrop::drop(&mut self.0) });
    }
}

/// Drops a value of the user, and contains a panic of its drop.
pub(crate) fn drop_contained<T>(value: T) {
    drop(Contained::new(value));
}

/// A future of the user. A panic in its poll becomes its output; a panic in its drop is contained.
pub(crate) struct Caught<F> {
    future: Contained<F>,
}

impl<F> Caught<F> {
    /// Makes the future. A panic becomes its message.
    #[inline]
    pub(crate) fn new(make: impl FnOnce() -> F) -> Result<Self, Arc<str>> {
        match catch_unwind(AssertUnwindSafe(make)) {
            Ok(future) => Ok(Caught {
                future: Contained::new(future),
            }),
            Err(panic) => Err(panic_message(panic)),
        }
    }
}

impl<F: Future> Future for Caught<F> {
    type Output = Result<F::Output, Arc<str>>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: the field is pinned with the struct: it is never moved out, and
        // `Contained` drops it in place.
        let future = unsafe { self.map_unchecked_mut(|this| &mut *this.future) };
        // The caller destroys the resource that a panic leaves behind.
        match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(panic_message(panic))),
        }
    }
}

/// Calls user code, and contains its panic and a panic in the drop of that panic's payload.
#[inline]
pub(crate) fn contained(call: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(call)) {
        drop(panic_message(panic));
    }
}

/// Drops a value of the user, and returns the message of a panic.
pub(crate) fn drop_caught<T>(value: T) -> Result<(), Arc<str>> {
    catch_unwind(AssertUnwindSafe(|| drop(value))).map_err(panic_message)
}

impl<M: Manager> Core<M> {
    /// Spawns a task on the runtime. If `spawn` panics, the task is dropped and gives back what it holds.
    pub(crate) fn spawn(&self, task: Task) {
        contained(|| self.runtime.spawn(task));
    }

    /// Calls `f` at most once inside the runtime. Returns `false` if the runtime did not call it. A panic
    /// of `f` itself is a bug of the pool and reaches the caller.
    pub(crate) fn enter(&self, f: impl FnOnce()) -> bool {
        let (mut f, mut ended) = (Some(f), None);
        contained(|| {
            self.runtime.enter(&mut || {
                if let Some(f) = f.take() {
                    ended = Some(catch_unwind(AssertUnwindSafe(f)));
                }
            });
        });
        match ended {
            Some(Ok(())) => true,
            Some(Err(panic)) => resume_unwind(panic),
            None => false,
        }
    }

    /// Returns the executor that a resource created now depends on; `None` if the runtime panics.
    pub(crate) fn domain(&self) -> Option<u64> {
        let mut domain = None;
        contained(|| domain = self.runtime.domain());
        domain
    }

    /// Returns whether the runtime needs a thread that drives it; `true` if the runtime panics.
    pub(crate) fn needs_driving(&self) -> bool {
        let mut needs = true;
        contained(|| needs = self.runtime.needs_driving());
        needs
    }

    pub(crate) async fn call_create(&self) -> Result<M::Resource, CreateFailure<M::Error>> {
        let create = caught(|| async {
            match &self.hooks.create {
                Some(create) => create().await,
                None => self.manager.create().await,
            }
        });
        match within(&**self.runtime, self.config.create_timeout, create).await {
            Some(Ok(Ok(resource))) => Ok(resource),
            Some(Ok(Err(error))) => Err(CreateFailure::Error(error)),
            Some(Err(panic)) => Err(CreateFailure::Broken(panic)),
            None => Err(self.creation_is_late()),
        }
    }

    /// Returns whether an acquire may create again after this failure.
    pub(crate) fn may_retry(&self, failure: &CreateFailure<M::Error>) -> bool {
        let CreateFailure::Error(error) = failure else {
            return self.config.retry_creations;
        };
        let is_permanent = || match &self.hooks.is_permanent {
            Some(is_permanent) => is_permanent(error),
            None => self.manager.is_permanent(error),
        };
        self.config.retry_creations
            && !catch_unwind(AssertUnwindSafe(is_permanent)).unwrap_or_else(|panic| {
                drop(panic_message(panic));
                true
            })
    }

    /// Returns the failure of a creation that exceeds the create timeout.
    pub(crate) fn creation_is_late(&self) -> CreateFailure<M::Error> {
        let limit = self.config.create_timeout.unwrap_or_default();
        CreateFailure::Broken(
            format!("took longer than the create timeout of {}", human(limit)).into(),
        )
    }

    pub(crate) async fn call_destroy(
        &self,
        resource: M::Resource,
    ) -> Result<(), DestroyError<M::Error>> {
        let destroy = caught(|| async {
            match &self.hooks.destroy {
                Some(destroy) => destroy(resource).await,
                None => self.manager.destroy(resource).await,
            }
        });
        let limit = self.config.cleanup_timeout;
        match within(&**self.runtime, Some(limit), destroy).await {
            Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(error))) => Err(DestroyError::Failed(error)),
            Some(Err(panic)) => Err(DestroyError::Broken(panic)),
            None => Err(DestroyError::Broken(late(limit))),
        }
    }

    pub(crate) async fn call_healthcheck(
        &self,
        resource: &mut M::Resource,
        info: Info<'_>,
    ) -> Result<(), Refusal> {
        let limit = self.config.cleanup_timeout;
        let check = async {
            match &self.hooks.healthcheck {
                Some(Check::Sync(check)) => caught_check(|| check(resource)),
                Some(Check::Async(check)) => flat(caught(|| check(resource, info)).await),
                None => into_answer(caught(|| self.manager.healthcheck(resource, info)).await),
            }
        };
        match within(&**self.runtime, Some(limit), check).await {
            Some(answer) => answer.map(drop),
            None => Err(Some(late(limit))),
        }
    }

    /// Calls the synchronous half of the release hook.
    #[inline]
    pub(crate) fn call_before_release(
        &self,
        resource: &mut M::Resource,
        info: Info<'_>,
    ) -> Result<Verdict, Refusal> {
        match &self.hooks.before_release {
            Some(Check::Sync(check)) => caught_check(|| check(resource)),
            Some(Check::Async(_)) => Ok(Verdict::Later),
            None => caught_check(|| match self.manager.before_release(resource, info) {
                Verdict::Discard => Err(None),
                verdict => Ok(verdict),
            }),
        }
    }

    /// Runs the async half of the release hook.
    pub(crate) async fn call_recycle(
        &self,
        resource: &mut M::Resource,
        info: Info<'_>,
    ) -> Result<(), Refusal> {
        let limit = self.config.cleanup_timeout;
        let recycle = async {
            match &self.hooks.before_release {
                Some(Check::Async(check)) => flat(caught(|| check(resource, info)).await),
                _ => into_answer(caught(|| self.manager.recycle(resource, info)).await),
            }
        };
        match within(&**self.runtime, Some(limit), recycle).await {
            Some(answer) => answer.map(drop),
            None => Err(Some(late(limit))),
        }
    }
}

/// Calls a synchronous hook. A panic becomes a refusal.
#[inline]
pub(crate) fn caught_check(
    check: impl FnOnce() -> Result<Verdict, Refusal>,
) -> Result<Verdict, Refusal> {
    match catch_unwind(AssertUnwindSafe(check)) {
        Ok(answer) => answer,
        Err(panic) => Err(Some(panic_message(panic))),
    }
}

fn flat(answer: Result<Result<Verdict, Refusal>, Arc<str>>) -> Result<Verdict, Refusal> {
    answer.unwrap_or_else(|panic| Err(Some(panic)))
}

/// Converts the answer of a manager's hook.
#[inline]
pub(crate) fn into_answer<E: std::error::Error + 'static>(
    answer: Result<Result<bool, E>, Arc<str>>,
) -> Result<Verdict, Refusal> {
    match answer {
        Ok(Ok(true)) => Ok(Verdict::Keep),
        Ok(Ok(false)) => Err(None),
        Ok(Err(error)) => {
            let error = Contained::new(error);
            Err(Some(chain(&*error)))
        }
        Err(panic) => Err(Some(panic)),
    }
}

fn late(limit: std::time::Duration) -> Arc<str> {
    format!("took longer than the cleanup timeout of {}", human(limit)).into()
}
