//! The end of a coroutine: its result, its callbacks, and its stack for the next one.

use std::ptr::{null, null_mut};
use std::rc::Rc;

use crate::coroutine::{Coroutine, Kind, State};
use crate::engine::{self, Bailout, Call, Exception, Value};
use crate::fiber::{self, Context, Fiber};
use crate::scheduler::suspend::Next;
use crate::scheduler::{IDLE_FIBERS, Phase, Scheduler};

impl Scheduler {
    /// Takes the job that this fiber was resumed for.
    pub(crate) fn begin_job(&self) -> *mut engine::RawCall {
        let job = self.job.borrow_mut().take();
        let coroutine = job.expect("a fiber is resumed with a job");
        // SAFETY: this runs on the fiber.
        let fiber = unsafe { Fiber::of(fiber::current_context()) };
        coroutine.fiber.set(Some(fiber));
        coroutine.state.set(State::Running);
        self.current.set(Rc::as_ptr(&coroutine));
        let call = coroutine.call.borrow();
        call.as_ref().map_or(null_mut(), Call::as_ptr)
    }

    /// Frees the callable and the arguments of the job that has returned.
    pub(crate) fn clean_up_job(&self) {
        let call = self.current().call.borrow_mut().take();
        drop(call);
    }

    /// Ends the current coroutine. Returns when its fiber has another job.
    pub(crate) fn end_job(&self, result: Value, exception: Option<Exception>) {
        let me: *const Coroutine = self.current.get();
        let starter = self.end_current(result, exception);
        // SAFETY: this runs on the fiber.
        let fiber = unsafe { Fiber::of(fiber::current_context()) };
        let starter = starter.or_else(|| self.leave_nested(me));
        if let Some(starter) = starter {
            self.idle_fibers.borrow_mut().push(fiber);
            // SAFETY: the starter waits in `start_now` or `unwind`; the script in `park`.
            unsafe { fiber::switch(starter) };
            return;
        }
        loop {
            match self.next() {
                Next::Task(id) => {
                    self.current.set(null());
                    self.run_task(id);
                    if self.must_stop() {
                        self.idle_fibers.borrow_mut().push(fiber);
                        return self.go_to_main();
                    }
                }
                Next::Coroutine(next) if self.end_unstarted(&next) => {}
                // A new coroutine runs on this stack, without a switch.
                Next::Coroutine(next) if next.state.get() == State::New => {
                    *self.job.borrow_mut() = Some(next);
                    return;
                }
                Next::Coroutine(next) if next.state.get() == State::Suspended => {
                    self.idle_fibers.borrow_mut().push(fiber);
                    self.run(next);
                    return;
                }
                Next::Coroutine(_) => {}
            }
        }
    }

    /// Notes the end of the current coroutine. Returns where to go on if that is the script at once.
    pub(super) fn end_current(
        &self,
        result: Value,
        exception: Option<Exception>,
    ) -> Option<Context> {
        let me = self.current_shared();
        let is_exit = exception.as_ref().is_some_and(Exception::is_exit);
        let is_nested = self
            .nested
            .borrow()
            .last()
            .is_some_and(|nested| std::ptr::eq(nested.coroutine, Rc::as_ptr(&me)));
        if is_exit {
            drop(exception);
            self.exiting.set(true);
            me.state.set(State::Done);
            me.end_owner();
            let entry = self.entries.borrow_mut().remove(me.wake.id);
            drop((entry, me, result));
            if is_nested {
                return None;
            }
            let main = self.main();
            self.current.set(Rc::as_ptr(&main));
            return Some(main.context.get());
        }
        let outcome = match exception {
            Some(exception) => Err(exception),
            None => Ok(result),
        };
        self.finish(&me, outcome);
        None
    }

    /// Gives a coroutine its result, and calls its completion callbacks.
    pub(crate) fn finish(&self, me: &Rc<Coroutine>, outcome: Result<Value, Exception>) {
        me.state.set(State::Done);
        me.end_owner();
        let entry = self.entries.borrow_mut().remove(me.wake.id);
        drop(entry);
        let call = me.call.borrow_mut().take();
        drop(call);
        let failed = match &outcome {
            Err(exception) if exception.is_cancellation() => {
                me.cancelled.set(true);
                None
            }
            Err(exception) => Some(exception.clone()),
            Ok(_) => None,
        };
        if self.phase.get() == Phase::Leftovers && self.coroutine_count() == 0 {
            self.main().wake.waker().wake();
        }
        let is_awaited = me.completion.has_waiters();
        if me.completion.settle(outcome).is_err() {
            return;
        }
        for callback in me.callbacks.take() {
            let object = Value::from_object(me.object());
            let call = callback.with(Some(&object));
            self.spawn(Kind::Spawned, call, (String::new(), 0));
        }
        let Some(exception) = failed.filter(|_| !is_awaited) else {
            return;
        };
        match me.kind {
            // The pool has its own ways to report the errors of its hooks.
            Kind::Callback => {}
            _ if me.has_object() => self.failed.borrow_mut().push(Rc::downgrade(me)),
            _ => self.add_unhandled(exception),
        }
    }

    /// Throws an exception into the script where it waits, because nobody else can get it.
    pub(crate) fn add_unhandled(&self, exception: Exception) {
        self.unhandled.borrow_mut().push(exception);
        self.main().wake.waker().wake();
    }

    /// Cancels a coroutine.
    pub(crate) fn cancel(&self, coroutine: &Rc<Coroutine>, exception: Option<Exception>) {
        coroutine.request_cancel(exception);
        match coroutine.state.get() {
            State::Suspended if coroutine.protected.get() == 0 => coroutine.wake.waker().wake(),
            _ => {}
        }
    }

    /// A fatal error has ended the current stack. Returns where to go on.
    pub(crate) fn end_bailed(&self) -> Context {
        self.bailed.set(true);
        // SAFETY: this runs on the fiber.
        let fiber = unsafe { Fiber::of(fiber::current_context()) };
        self.dead_fibers.borrow_mut().push(fiber);
        let me = self.current.get();
        if !me.is_null() {
            // SAFETY: the scheduler owns the coroutine.
            let me = unsafe { &*me };
            me.fiber.set(None);
            me.state.set(State::Done);
        }
        self.leave_nested(me).unwrap_or_else(|| {
            let main = self.main();
            self.current.set(Rc::as_ptr(&main));
            main.context.get()
        })
    }

    pub(crate) fn note_bailout(&self, _: Bailout) {
        self.bailed.set(true);
    }

    pub(super) fn trim_fibers(&self) {
        while self.idle_fibers.borrow().len() > IDLE_FIBERS {
            let Some(fiber) = self.idle_fibers.borrow_mut().pop() else {
                break;
            };
            // SAFETY: it is idle, and the current stack is another one.
            unsafe { fiber.free(true) };
        }
    }
}
