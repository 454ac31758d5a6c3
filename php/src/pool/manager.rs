//! The hooks of a pool, in PHP code, and the runtime that polls everything on the PHP thread.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use cenote_pool::{Advice, Failure, Info, Manager, Report, Runtime, Strategy, Task, Verdict};

use crate::callback::Callback;
use crate::engine::{Call, Exception, ExceptionClass, Object, Value};
use crate::pool::PhpPool;
use crate::pool::bound::Bound;
use crate::scheduler::scheduler;
use crate::timer::{Sleep, now};

/// A resource in the pool: its place in the table of [`PhpPool`], where the garbage collector sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key(pub(crate) usize);

/// An exception of a hook.
pub(crate) struct Thrown(Bound<Exception>);

impl Thrown {
    pub(crate) fn new(exception: Exception) -> Self {
        Thrown(Bound::new(exception))
    }

    pub(crate) fn exception(&self) -> &Exception {
        self.0.get()
    }
}

impl fmt::Debug for Thrown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thrown").finish_non_exhaustive()
    }
}

impl fmt::Display for Thrown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a hook threw an exception")
    }
}

impl Error for Thrown {}

pub(crate) struct PhpManager {
    pool: Bound<Weak<PhpPool>>,
}

impl PhpManager {
    pub(crate) fn new(pool: Weak<PhpPool>) -> Self {
        PhpManager {
            pool: Bound::new(pool),
        }
    }

    /// Returns the pool, unless PHP has freed its object or the request is over: then no hook runs.
    fn pool(&self) -> Option<Rc<PhpPool>> {
        match scheduler().is_over() {
            true => None,
            false => self.pool.get().upgrade(),
        }
    }
}

/// Runs a checking hook with the resource as its argument.
async fn check(pool: Rc<PhpPool>, hook: Call) -> Result<bool, Thrown> {
    match Callback::new(hook).await {
        Ok(answer) => Ok(answer.is_true()),
        Err(exception) => {
            pool.note_refusal(exception.clone());
            Err(Thrown::new(exception))
        }
    }
}

impl Manager for PhpManager {
    type Resource = Key;
    type Error = Thrown;

    fn create(&self) -> impl Future<Output = Result<Key, Thrown>> + Send {
        let pool = self.pool();
        let is_waited_for = scheduler().has_current();
        Bound::new(async move {
            let gone = || Exception::new(ExceptionClass::Pool, "Pool is closed", None);
            let Some(pool) = pool else {
                return Err(Thrown::new(gone()));
            };
            // The destructor of a refused resource threw: the acquire ends with that (P-051).
            if let Some(exception) = pool.destroy_error().filter(|_| is_waited_for) {
                return Err(Thrown::new(exception));
            }
            let Some(factory) = &pool.hooks.factory else {
                return Err(Thrown::new(gone()));
            };
            let call = factory.with(None);
            match Callback::new(call).await {
                Ok(value) => Ok(pool.insert(value)),
                Err(exception) => {
                    pool.note_refusal(exception.clone());
                    Err(Thrown::new(exception))
                }
            }
        })
    }

    fn destroy(&self, key: Key) -> impl Future<Output = Result<(), Thrown>> + Send {
        let pool = self.pool.get().upgrade();
        let hooks_run = !scheduler().is_over();
        let is_waited_for = scheduler().has_current();
        Bound::new(async move {
            let Some(pool) = pool else { return Ok(()) };
            let Some(value) = pool.remove(key) else {
                return Ok(());
            };
            let mut result = Ok(());
            if let Some(hook) = pool.hooks.destructor.as_ref().filter(|_| hooks_run) {
                let call = hook.with(Some(&value));
                if let Err(exception) = Callback::new(call).await {
                    pool.note_destroy_error(&exception, is_waited_for);
                    result = Err(Thrown::new(exception));
                }
            }
            if let Err(bailout) = value.release_guarded() {
                scheduler().note_bailout(bailout);
            }
            result
        })
    }

    fn healthcheck(
        &self,
        key: &mut Key,
        _: Info<'_>,
    ) -> impl Future<Output = Result<bool, Thrown>> + Send {
        self.hook(*key, |pool| pool.hooks.healthcheck.as_ref())
    }

    fn before_acquire(
        &self,
        key: &mut Key,
        _: Info<'_>,
    ) -> impl Future<Output = Result<bool, Thrown>> + Send {
        self.hook(*key, |pool| pool.hooks.before_acquire.as_ref())
    }

    fn before_release(&self, _: &mut Key, _: Info<'_>) -> Verdict {
        match self.pool() {
            Some(pool) if pool.hooks.before_release.is_some() => Verdict::Later,
            _ => Verdict::Keep,
        }
    }

    fn recycle(
        &self,
        key: &mut Key,
        _: Info<'_>,
    ) -> impl Future<Output = Result<bool, Thrown>> + Send {
        self.hook(*key, |pool| pool.hooks.before_release.as_ref())
    }
}

impl PhpManager {
    fn hook(
        &self,
        key: Key,
        hook: fn(&PhpPool) -> Option<&Call>,
    ) -> impl Future<Output = Result<bool, Thrown>> + Send + use<> {
        let hook = self.pool().and_then(|pool| {
            let value = pool.resource(key)?;
            let call = hook(&pool)?.with(Some(&value));
            Some((pool, call))
        });
        Bound::new(async move {
            match hook {
                Some((pool, call)) => check(pool, call).await,
                None => Ok(true),
            }
        })
    }
}

/// The strategy of a circuit breaker, in PHP code.
pub(crate) struct PhpStrategy {
    pool: Bound<Weak<PhpPool>>,
}

impl PhpStrategy {
    pub(crate) fn new(pool: Weak<PhpPool>) -> Self {
        PhpStrategy {
            pool: Bound::new(pool),
        }
    }

    /// Calls a method of the strategy with the pool as its source.
    fn call(&self, name: &str, error: Option<Object>) -> Option<Result<Value, Exception>> {
        let pool = self
            .pool
            .get()
            .upgrade()
            .filter(|_| !scheduler().is_over())?;
        let strategy = pool.strategy()?;
        let mut arguments = Vec::new();
        if name != "shouldRecover" {
            arguments.push(Value::from_object(pool.object()?));
        }
        arguments.extend(error.map(Value::from_object));
        let call = Call::method(&strategy, name, &arguments);
        drop(arguments);
        let answer = Callback::run_now(call);
        if let Some(Err(exception)) = &answer {
            pool.note_destroy_error(exception, scheduler().has_current());
        }
        answer
    }
}

impl Strategy for PhpStrategy {
    fn report_success(&self, _: &Report<'_>) {
        drop(self.call("reportSuccess", None));
    }

    fn report_failure(&self, report: &Report<'_>) -> Advice {
        let Some(pool) = self.pool.get().upgrade() else {
            return Advice::Stay;
        };
        let error = pool.take_refusal().unwrap_or_else(|| {
            let text = match report.failure {
                Some(Failure::Create(error)) => error.to_string(),
                _ => "Resource validation failed".to_owned(),
            };
            Exception::new(ExceptionClass::Exception, &text, None)
        });
        // `deactivate()` inside the report is the strategy's own advice, which it may take back when it
        // is asked whether to recover.
        pool.begin_report();
        drop(self.call("reportFailure", Some(error.into_object())));
        match pool.end_report() {
            true => Advice::Open,
            false => Advice::Stay,
        }
    }

    fn should_recover(&self, _: Instant) -> bool {
        matches!(self.call("shouldRecover", None), Some(Ok(answer)) if answer.is_true())
    }

    fn cool_down(&self) -> Duration {
        Duration::from_secs(1)
    }
}

/// Clock, timers and tasks of the PHP thread. It starts no thread.
pub(crate) struct PhpRuntime;

impl Runtime for PhpRuntime {
    fn now(&self) -> Instant {
        now()
    }

    fn coarse_now(&self) -> u64 {
        let mut now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the pointer is to a local.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut now) };
        now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
    }

    fn sleep(&self, until: Instant) -> Task {
        Box::pin(Sleep::new(until, true))
    }

    fn sleep_aside(&self, until: Instant) -> Task {
        Box::pin(Sleep::new(until, false))
    }

    fn spawn(&self, task: Task) {
        scheduler().add_task(task);
    }
}
