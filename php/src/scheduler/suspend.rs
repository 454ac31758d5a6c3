//! Suspending: who runs next, timers, and waiting for a future.

use std::future::Future;
use std::ptr::null;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use crate::coroutine::{Coroutine, Kind, State};
use crate::engine::{Exception, ExceptionClass};
use crate::fiber::{self, Context};
use crate::reactor::{Flag, existing_reactor};
use crate::scheduler::entries::Entry;
use crate::scheduler::{Interrupt, Phase, Scheduler, no_stack, scheduler};
use crate::timer::now;
use crate::wake::{Id, RunQueue};

/// How many turns of coroutines pass before the sockets are looked at in between.
const TURNS_BETWEEN_LOOKS: u32 = 16;

/// What is next in the queue.
pub(super) enum Next {
    Coroutine(Rc<Coroutine>),
    Task(Id),
}

impl Scheduler {
    /// Returns why the current coroutine must not go on, if it must not.
    pub(crate) fn check(&self, me: &Coroutine) -> Result<(), Interrupt> {
        self.check_stop()?;
        if me.kind == Kind::Main && self.phase.get() == Phase::Script {
            let unhandled = self.unhandled.borrow_mut().pop();
            if let Some(exception) = unhandled {
                return Err(Interrupt::Throw(exception));
            }
        }
        match me.take_cancellation() {
            Some(cancellation) => Err(Interrupt::Throw(cancellation)),
            None => Ok(()),
        }
    }

    /// Returns why nothing may go on: a fatal error, or `exit`.
    pub(crate) fn check_stop(&self) -> Result<(), Interrupt> {
        match (self.bailed.get(), self.exiting.get()) {
            (true, _) => Err(Interrupt::Bailout),
            (_, true) => Err(Interrupt::Exit),
            _ => Ok(()),
        }
    }

    /// Suspends the current coroutine until it is woken.
    ///
    /// # Errors
    ///
    /// It was cancelled, or must end for another reason.
    pub(crate) fn park(&self) -> Result<(), Interrupt> {
        let me = self.current();
        self.check(me)?;
        if fiber::is_switch_blocked() {
            return Err(Interrupt::Throw(Exception::new(
                ExceptionClass::Error,
                "cannot wait in a destructor: PHP blocks the switch to another coroutine there; close or \
                 await before the object is destroyed",
                None,
            )));
        }
        me.state.set(State::Suspended);
        me.context.set(fiber::current_context());
        match self.leave_nested(me) {
            // SAFETY: the starter waits in `start_now`.
            Some(starter) => unsafe { fiber::switch(starter) },
            None => self.run_others(me),
        }
        me.state.set(State::Running);
        self.current.set(me);
        self.trim_fibers();
        self.check(me)
    }

    /// Ends the nesting of this coroutine, if it was started at once and has not suspended before.
    pub(super) fn leave_nested(&self, me: *const Coroutine) -> Option<Context> {
        let mut nested = self.nested.borrow_mut();
        if nested.last()?.coroutine != me {
            return None;
        }
        let starter = nested.pop()?;
        self.current.set(starter.starter);
        Some(starter.context)
    }

    /// Runs what is ready until it is this coroutine's turn.
    pub(super) fn run_others(&self, me: &Coroutine) {
        loop {
            match self.next() {
                Next::Task(id) => {
                    self.current.set(null());
                    self.run_task(id);
                    if self.must_stop() {
                        if me.kind != Kind::Main {
                            self.go_to_main();
                        }
                        return;
                    }
                }
                Next::Coroutine(next) if std::ptr::eq(Rc::as_ptr(&next), me) => return,
                Next::Coroutine(next) => {
                    if self.run(next) {
                        return;
                    }
                }
            }
        }
    }

    /// Ends a coroutine that was cancelled before it started. Returns whether it was.
    pub(super) fn end_unstarted(&self, next: &Rc<Coroutine>) -> bool {
        let is_new = next.state.get() == State::New;
        let cancellation = is_new.then(|| next.take_cancellation()).flatten();
        let is_cancelled = cancellation.is_some();
        if let Some(cancellation) = cancellation {
            self.finish(next, Err(cancellation));
        }
        is_cancelled
    }

    /// Switches to another coroutine. Returns whether it did; if so, this one has been resumed.
    pub(super) fn run(&self, next: Rc<Coroutine>) -> bool {
        if self.end_unstarted(&next) {
            return false;
        }
        match next.state.get() {
            State::New => {
                let Some(fiber) = self.take_fiber() else {
                    self.finish(&next, Err(no_stack()));
                    return false;
                };
                *self.job.borrow_mut() = Some(next);
                // SAFETY: the fiber is new or idle, so suspended. Nothing is owned here meanwhile.
                unsafe { fiber::switch(fiber.context()) };
                true
            }
            State::Suspended => {
                self.current.set(Rc::as_ptr(&next));
                let context = next.context.get();
                drop(next);
                // SAFETY: the coroutine is suspended there.
                unsafe { fiber::switch(context) };
                true
            }
            State::Running | State::Done => false,
        }
    }

    pub(super) fn must_stop(&self) -> bool {
        self.bailed.get() || self.exiting.get()
    }

    /// Leaves this stack for the script's own. Returns if the script resumes this stack.
    pub(super) fn go_to_main(&self) {
        let context = {
            let main = self.main();
            self.current.set(Rc::as_ptr(&main));
            main.context.get()
        };
        // SAFETY: another stack runs, and was not started by the script directly: so the script waits.
        unsafe { fiber::switch(context) };
    }

    /// Waits until something is ready, and takes it.
    pub(super) fn next(&self) -> Next {
        loop {
            self.serve_calls();
            self.fire_timers();
            self.look_at_sockets();
            while let Some(id) = self.queue.pop() {
                if id.index == u32::MAX {
                    return Next::Coroutine(self.main());
                }
                match self.entries.borrow_mut().get(id) {
                    Some(Entry::Coroutine(coroutine)) => {
                        return Next::Coroutine(Rc::clone(coroutine));
                    }
                    Some(Entry::Task(..)) => return Next::Task(id),
                    None => {}
                }
            }
            self.idle();
        }
    }

    /// Serves the reactor now and then, also if there is always something to run.
    fn look_at_sockets(&self) {
        let turns = self.turns.get().wrapping_add(1);
        self.turns.set(turns);
        if turns.is_multiple_of(TURNS_BETWEEN_LOOKS)
            && self.external.get() > 0
            && let Some(reactor) = existing_reactor()
        {
            reactor.turn();
        }
    }

    /// Runs what threads of SQLite want of PHP. They wait for it, with their connection.
    pub(crate) fn serve_calls(&self) {
        while let Some(call) = self.queue.pop_call() {
            call();
        }
    }

    /// Returns the queue, for threads that have the PHP thread run something.
    pub(crate) fn queue(&self) -> Arc<RunQueue> {
        Arc::clone(&self.queue)
    }

    pub(super) fn fire_timers(&self) {
        if self.timers.borrow().is_empty() {
            return;
        }
        let now = now();
        loop {
            let due = self.timers.borrow_mut().pop_due(now);
            match due {
                Some(waker) => waker.wake(),
                None => break,
            }
        }
    }

    /// Nothing is ready: waits for a timer, a signal or another thread.
    pub(super) fn idle(&self) {
        if fiber::is_interrupt_pending() {
            let coroutine = self.create(Kind::Signal, None, (String::new(), 0));
            coroutine.wake.waker().wake();
            return;
        }
        let (due, is_awaited) = {
            let timers = self.timers.borrow();
            (timers.next_due(), timers.has_awaited())
        };
        if !is_awaited && self.external.get() == 0 {
            return self.deadlock();
        }
        let limit = due.map(|due| due.saturating_duration_since(now()));
        match existing_reactor() {
            Some(reactor) => reactor.drive(&self.queue, limit),
            None => self.queue.sleep(limit, fiber::is_interrupt_pending),
        }
    }

    /// Nothing can ever become ready: the script gets an error where it waits.
    pub(super) fn deadlock(&self) {
        self.deadlocks.set(self.deadlocks.get() + 1);
        if self.phase.get() == Phase::Script {
            let error = self.deadlock_error();
            self.unhandled.borrow_mut().push(error);
        }
        self.main().wake.waker().wake();
    }

    /// Waits for a moment without switching, where PHP blocks it.
    #[allow(clippy::disallowed_methods, reason = "nothing else may run meanwhile")]
    pub(crate) fn sleep_blocking(&self, until: Instant) {
        loop {
            let left = until.saturating_duration_since(now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left);
        }
    }
}

/// Waits for a future in the current coroutine.
///
/// # Errors
///
/// The coroutine was cancelled, or must end for another reason. The future is dropped.
pub(crate) fn block_on<F: Future>(future: F) -> Result<F::Output, Interrupt> {
    let scheduler = scheduler();
    let me = scheduler.current();
    let waker = me.wake.waker();
    let mut context = TaskContext::from_waker(&waker);
    let mut future = Box::pin(future);
    // Most futures are ready at once, and need no place outside this stack.
    if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
        return Ok(output);
    }
    drop(waker);
    let mut future = me.keep(future);
    loop {
        scheduler.park()?;
        // A waker of its own each time: a stack that is thrown away would never drop it.
        let waker = me.wake.waker();
        let polled = future.as_mut().poll(&mut TaskContext::from_waker(&waker));
        if let Poll::Ready(output) = polled {
            return Ok(output);
        }
    }
}

/// Waits for a future that needs the reactor. Where PHP blocks the switch to another coroutine, the whole script waits.
///
/// # Errors
///
/// As [`block_on`].
pub(crate) fn block_on_external<F: Future>(future: F) -> Result<F::Output, Interrupt> {
    let scheduler = scheduler();
    if fiber::is_switch_blocked() {
        return Ok(scheduler.wait_blocking(future));
    }
    let waiting = scheduler.external.get();
    scheduler.external.set(waiting + 1);
    let done = block_on(future);
    // After a fatal error the count begins anew: nothing waits then.
    scheduler
        .external
        .set(scheduler.external.get().saturating_sub(1));
    done
}

impl Scheduler {
    /// Waits for a future on this stack, without running other coroutines.
    pub(crate) fn wait_blocking<F: Future>(&self, future: F) -> F::Output {
        let flag = Arc::new(Flag::default());
        let waker = std::task::Waker::from(Arc::clone(&flag));
        let mut future = Box::pin(future);
        loop {
            if let Poll::Ready(done) = future.as_mut().poll(&mut TaskContext::from_waker(&waker)) {
                return done;
            }
            self.serve_calls();
            match existing_reactor() {
                Some(reactor) => reactor.drive_for(&flag, &self.queue),
                None => std::thread::yield_now(),
            }
        }
    }
}

/// Suspends the current coroutine for a time.
///
/// # Errors
///
/// As [`Scheduler::park`].
pub(crate) fn delay(duration: Duration) -> Result<(), Interrupt> {
    let scheduler = scheduler();
    let me = scheduler.current();
    if duration.is_zero() {
        return yield_now();
    }
    let Some(until) = now().checked_add(duration) else {
        return delay(Duration::from_secs(u32::MAX.into()));
    };
    if fiber::is_switch_blocked() {
        scheduler.sleep_blocking(until);
        return Ok(());
    }
    loop {
        let key = scheduler
            .timers
            .borrow_mut()
            .set(until, me.wake.waker(), true);
        let parked = scheduler.park();
        scheduler.timers.borrow_mut().remove(key);
        parked?;
        if now() >= until {
            return Ok(());
        }
    }
}

/// Lets everything else that is ready run first.
///
/// # Errors
///
/// As [`Scheduler::park`].
pub(crate) fn yield_now() -> Result<(), Interrupt> {
    let scheduler = scheduler();
    if fiber::is_switch_blocked() {
        return Ok(());
    }
    scheduler.current().wake.requeue();
    scheduler.park()
}
