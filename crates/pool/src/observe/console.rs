//! The pool as a resource of tokio-console.
//!
//! The span and the events have the names and fields that Tokio's own resources have, and exist under the same
//! condition, `--cfg tokio_unstable`. If nobody subscribes to the span when the pool is built, the pool is not
//! shown. While it is shown, every acquire and release takes the lock, so that the console sees each change.

#[cfg(not(all(tokio_unstable, feature = "tracing")))]
pub(crate) use not_shown::Console;
#[cfg(all(tokio_unstable, feature = "tracing"))]
pub(crate) use shown::Console;

#[cfg(not(all(tokio_unstable, feature = "tracing")))]
mod not_shown {
    use std::panic::Location;

    use crate::observe::status::Status;

    /// Without Tokio's instrumentation no pool is shown: this type has no value and no size.
    pub(crate) enum Console {}

    impl Console {
        pub(crate) fn new(_: Option<&str>, _: &'static Location<'static>) -> Option<Self> {
            None
        }

        pub(crate) fn update(&self, _: impl Fn() -> Status) {
            match *self {}
        }
    }
}

#[cfg(all(tokio_unstable, feature = "tracing"))]
mod shown {
    use std::panic::Location;
    use std::sync::atomic::Ordering;

    use tracing::{Span, trace, trace_span};

    use crate::observe::status::Status;
    use crate::sync::{AtomicUsize, Mutex};
    use crate::user_code::{Contained, contained};

    /// How many times one caller updates the console for others before it leaves that to the next change.
    const MOST_ROUNDS: usize = 16;

    /// The span that stands for the pool. The subscriber is user code: its panics are contained, and it is never
    /// called under a lock.
    pub(crate) struct Console {
        span: Contained<Span>,
        /// The number of changes since the caller that updates the console now has begun; 0 if nobody does.
        due: AtomicUsize,
        last: Mutex<Option<Status>>,
    }

    impl Console {
        /// Returns `None` if no subscriber wants the span.
        pub(crate) fn new(name: Option<&str>, place: &'static Location<'static>) -> Option<Self> {
            let mut span = Span::none();
            contained(|| {
                span = trace_span!(
                    target: "cenote_pool",
                    parent: None,
                    "runtime.resource",
                    concrete_type = "Pool",
                    kind = "Pool",
                    loc.file = place.file(),
                    loc.line = place.line(),
                    loc.col = place.column(),
                );
                if let Some(name) = name {
                    span.in_scope(|| trace!(target: "runtime::resource::state_update", name));
                }
            });
            (!span.is_disabled()).then(|| Console {
                span: Contained::new(span),
                due: AtomicUsize::new(0),
                last: Mutex::new(None),
            })
        }

        /// Sends what has changed. One caller at a time sends, for all of them, so that an older status never
        /// follows a newer one.
        pub(crate) fn update(&self, status: impl Fn() -> Status) {
            // AcqRel, here and below: the caller that sends reads the status after every change that it has counted.
            if self.due.fetch_add(1, Ordering::AcqRel) > 0 {
                return;
            }
            for _ in 0..MOST_ROUNDS {
                let seen = self.due.load(Ordering::Acquire);
                contained(|| self.send(status()));
                let sent = self
                    .due
                    .compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Acquire);
                if sent.is_ok() {
                    return;
                }
            }
            self.due.store(0, Ordering::Release);
        }

        fn send(&self, now: Status) {
            let last = self.last.lock().replace(now);
            let changed = |field: fn(&Status) -> usize| {
                let (value, before) = (field(&now), last.as_ref().map(field));
                (before != Some(value)).then_some(value as u64)
            };
            self.span.in_scope(|| {
                // An event can carry one attribute.
                macro_rules! number {
                    ($($attribute:ident),+) => {$(
                        if let Some($attribute) = changed(|status| status.$attribute) {
                            trace!(
                                target: "runtime::resource::state_update",
                                $attribute,
                                $attribute.op = "override",
                            );
                        }
                    )+};
                }
                number!(max, active, idle, creating, waiting);
                if last.is_none_or(|last| last.breaker != now.breaker) {
                    let breaker = now.breaker.to_string();
                    trace!(target: "runtime::resource::state_update", breaker);
                }
                if last.is_none_or(|last| last.closed != now.closed) {
                    trace!(target: "runtime::resource::state_update", closed = now.closed);
                }
            });
        }
    }
}
