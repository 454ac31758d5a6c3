//! `Async\await` and its relatives.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

use crate::api::with_completion;
use crate::completion::Completion;
use crate::engine::{self, Array, Exception, ExceptionClass, Object, Value, ZendObject, Zval};
use crate::scheduler::{Interrupt, scheduler};

type Awaited = Result<Result<Value, Exception>, Interrupt>;

/// The exception of an operation whose cancellation token has tripped.
fn canceled(token: NonNull<ZendObject>) -> Interrupt {
    let cause = match with_completion(token, Completion::result) {
        Ok(Some(Err(cause))) => Some(cause),
        _ => None,
    };
    Interrupt::Throw(Exception::new(
        ExceptionClass::OperationCanceled,
        "Operation has been cancelled",
        cause.as_ref(),
    ))
}

/// Something that wakes the current coroutine when it completes, until this is dropped.
struct Watch {
    object: NonNull<ZendObject>,
    key: u64,
}

impl Watch {
    fn new(object: NonNull<ZendObject>, waker: Waker) -> Result<Self, Interrupt> {
        let key = with_completion(object, |completion| completion.wait(waker));
        Ok(Watch {
            object,
            key: key.map_err(Interrupt::Throw)?,
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // The arguments of the PHP function that waits keep the object alive.
        drop(with_completion(self.object, |completion| {
            completion.leave(self.key)
        }));
    }
}

/// Suspends the current coroutine until `ready` has an answer or the token trips.
///
/// # Errors
///
/// The token has tripped, or the coroutine must end.
pub(crate) fn wait_for<T>(
    token: Option<NonNull<ZendObject>>,
    mut ready: impl FnMut() -> Option<T>,
) -> Result<T, Interrupt> {
    let scheduler = scheduler();
    let me = scheduler.current();
    let is_tripped = |token| with_completion(token, Completion::is_done).unwrap_or(false);
    if let Some(token) = token
        && is_tripped(token)
    {
        return Err(canceled(token));
    }
    let watch = match token {
        Some(token) => Some(Watch::new(token, me.wake.waker())?),
        None => None,
    };
    let outcome = loop {
        if let Err(interrupt) = scheduler.park() {
            break Err(interrupt);
        }
        if let Some(answer) = ready() {
            break Ok(answer);
        }
        if let Some(token) = token
            && is_tripped(token)
        {
            break Err(canceled(token));
        }
    };
    drop(watch);
    outcome
}

/// Waits for one result.
pub(crate) fn await_one(
    object: NonNull<ZendObject>,
    token: Option<NonNull<ZendObject>>,
) -> Awaited {
    let result = || with_completion(object, Completion::result).unwrap_or(None);
    if let Some(done) = with_completion(object, Completion::result).map_err(Interrupt::Throw)? {
        return Ok(done);
    }
    let me = scheduler().current();
    let watch = Watch::new(object, me.wake.waker())?;
    let outcome = wait_for(token, result);
    drop(watch);
    outcome
}

/// What a call waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    AnyOrFail,
    FirstSuccess,
    AllOrFail,
    All,
    SomeOrFail(i64),
    Some(i64),
}

pub(crate) struct Options {
    pub(crate) mode: Mode,
    pub(crate) preserve_key_order: bool,
    pub(crate) fill_null: bool,
}

/// What a call with several awaitables has got so far.
struct Progress {
    items: Vec<(Value, Object, u64)>,
    /// The indexes of completed items, in that order, for the coroutine to collect.
    arrived: Arc<Mutex<Vec<usize>>>,
    results: Vec<(usize, Value)>,
    errors: Vec<(usize, Exception)>,
}

/// Notes which item has completed, and wakes the coroutine.
struct ItemWaker {
    index: usize,
    arrived: Arc<Mutex<Vec<usize>>>,
    waker: Waker,
}

impl Wake for ItemWaker {
    fn wake(self: Arc<Self>) {
        let mut arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        arrived.push(self.index);
        drop(arrived);
        self.waker.wake_by_ref();
    }
}

impl Progress {
    fn add(&mut self, key: &Zval, value: &Zval, waker: &Waker) -> Result<(), Exception> {
        let Some(object) = value.object() else {
            return Err(Exception::new(
                ExceptionClass::Error,
                "Expected item to be an Async\\Awaitable object",
                None,
            ));
        };
        let item_waker = Waker::from(Arc::new(ItemWaker {
            index: self.items.len(),
            arrived: Arc::clone(&self.arrived),
            waker: waker.clone(),
        }));
        let wait = |completion: &Completion| match completion.is_done() {
            true => {
                item_waker.wake_by_ref();
                u64::MAX
            }
            false => completion.wait(item_waker.clone()),
        };
        let place = with_completion(object, wait)?;
        self.items
            .push((Value::copy_of(key), Object::copy_of(object), place));
        Ok(())
    }

    /// Collects what has completed since.
    fn collect(&mut self) {
        let arrived = {
            let mut arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *arrived)
        };
        for index in arrived {
            let object = &self.items[index].1;
            let object = NonNull::new(object.as_ptr()).expect("an object is not null");
            match with_completion(object, Completion::result) {
                Ok(Some(Ok(value))) => self.results.push((index, value)),
                Ok(Some(Err(error))) => self.errors.push((index, error)),
                _ => {}
            }
        }
    }

    fn is_done(&self, mode: Mode) -> bool {
        let enough = |count: i64| i64::try_from(self.results.len()).unwrap_or(i64::MAX) >= count;
        let all = self.results.len() + self.errors.len() >= self.items.len();
        all || match mode {
            Mode::AnyOrFail => !self.results.is_empty() || !self.errors.is_empty(),
            Mode::FirstSuccess => !self.results.is_empty(),
            Mode::AllOrFail => !self.errors.is_empty(),
            Mode::All => false,
            Mode::SomeOrFail(count) => enough(count) || !self.errors.is_empty(),
            Mode::Some(count) => enough(count),
        }
    }

    fn leave(&mut self) {
        for (_, object, place) in &self.items {
            if let Some(object) = NonNull::new(object.as_ptr()) {
                drop(with_completion(object, |completion| {
                    completion.leave(*place)
                }));
            }
        }
    }

    /// Returns the arrays of results and of errors.
    fn arrays(&mut self, options: &Options) -> (Value, Value) {
        let mut results = std::mem::take(&mut self.results);
        let mut errors = std::mem::take(&mut self.errors);
        if let Mode::Some(count) | Mode::SomeOrFail(count) = options.mode {
            results.truncate(usize::try_from(count).unwrap_or(0));
        }
        if options.fill_null {
            let failed = errors.iter().map(|(index, _)| (*index, Value::null()));
            results.extend(failed);
        }
        if options.preserve_key_order {
            results.sort_by_key(|(index, _)| *index);
            errors.sort_by_key(|(index, _)| *index);
        }
        let (mut values, mut exceptions) = (Array::new(), Array::new());
        for (index, value) in results {
            values.set(Some(&self.items[index].0), value);
        }
        for (index, error) in errors {
            let error = Value::from_object(error.into_object());
            exceptions.set(Some(&self.items[index].0), error);
        }
        (values.into_value(), exceptions.into_value())
    }

    fn finish(&mut self, options: &Options) -> Result<Value, Exception> {
        let or_fail = matches!(
            options.mode,
            Mode::AnyOrFail | Mode::AllOrFail | Mode::SomeOrFail(_)
        );
        if or_fail && !self.errors.is_empty() {
            return Err(self.errors.swap_remove(0).1);
        }
        let pair = |first: Value, second: Value| {
            let mut pair = Array::new();
            pair.set(None, first);
            pair.set(None, second);
            pair.into_value()
        };
        Ok(match options.mode {
            Mode::AnyOrFail => match self.results.is_empty() {
                true => Value::null(),
                false => self.results.swap_remove(0).1,
            },
            Mode::FirstSuccess => {
                let first = match self.results.is_empty() {
                    true => Value::null(),
                    false => self.results.swap_remove(0).1,
                };
                pair(first, self.arrays(options).1)
            }
            Mode::AllOrFail | Mode::SomeOrFail(_) => self.arrays(options).0,
            Mode::All | Mode::Some(_) => {
                let (values, errors) = self.arrays(options);
                pair(values, errors)
            }
        })
    }
}

/// Waits for several results.
pub(crate) fn await_many(
    options: Options,
    triggers: &mut Zval,
    token: Option<NonNull<ZendObject>>,
) -> Awaited {
    let me = scheduler().current();
    let mut progress = me.keep(Progress {
        items: Vec::new(),
        arrived: Arc::default(),
        results: Vec::new(),
        errors: Vec::new(),
    });
    let waker = me.wake.waker();
    let mut failure = None;
    engine::iterate(triggers, |key, value| {
        match progress.add(key, value, &waker) {
            Ok(()) => true,
            Err(exception) => {
                failure = Some(exception);
                false
            }
        }
    });
    drop(waker);
    if let Some(exception) = Exception::take().or(failure) {
        progress.leave();
        return Err(Interrupt::Throw(exception));
    }
    progress.collect();
    let waited = match progress.is_done(options.mode) {
        true => Ok(()),
        false => wait_for(token, || {
            progress.collect();
            progress.is_done(options.mode).then_some(())
        }),
    };
    progress.leave();
    waited?;
    Ok(progress.finish(&options))
}
