//! The end of the script and of the request.

use std::ptr::null;
use std::rc::Rc;

use crate::coroutine::State;
use crate::engine::{Exception, ExceptionClass};
use crate::fiber::{self, ScriptEnd};
use crate::pdo;
use crate::reactor;
use crate::scheduler::entries::Entry;
use crate::scheduler::{Interrupt, Nested, Phase, Scheduler};

impl Scheduler {
    /// Runs the coroutines that the script has left, to their end.
    pub(crate) fn run_leftovers(&self) {
        // What a shutdown function starts runs after the last one.
        self.registered.set(false);
        match fiber::script_end() {
            _ if self.bailed.get() => return self.abandon(),
            ScriptEnd::Fatal => return self.abandon(),
            ScriptEnd::Failed => self.unwind(),
            ScriptEnd::Clean => {}
        }
        self.phase.set(Phase::Leftovers);
        if self.coroutine_count() > 0 {
            // What the script has left open must not keep them waiting.
            self.main().end_owner();
        }
        self.deadlocks.set(0);
        let mut deadlock = None;
        while self.coroutine_count() > 0 {
            match self.park() {
                Ok(()) => {}
                // The message is out, and PHP goes on with its other shutdown functions.
                Err(Interrupt::Bailout) => {
                    self.phase.set(Phase::Script);
                    return self.abandon();
                }
                Err(Interrupt::Exit) => {
                    self.unwind();
                    fiber::forget_oom();
                }
                Err(Interrupt::Throw(exception)) => self.add_unhandled(exception),
            }
            if self.report_unhandled() {
                self.cancel_all("the program ends because of an exception");
            }
            match self.deadlocks.get() {
                0 => {}
                1 if deadlock.is_none() => {
                    deadlock = Some(self.deadlock_error());
                    self.cancel_all("Deadlock detected");
                }
                1 => {}
                // They wait on, cancelled as they are.
                _ => self.unwind(),
            }
        }
        self.phase.set(Phase::Script);
        self.note_failed();
        self.report_unhandled();
        if let Some(deadlock) = deadlock {
            deadlock.report_uncaught();
        }
    }

    pub(super) fn deadlock_error(&self) -> Exception {
        let waiting = self.coroutine_count();
        let text =
            format!("Deadlock detected: no active coroutines, {waiting} coroutines in waiting");
        Exception::new(ExceptionClass::Deadlock, &text, None)
    }

    /// Cancels all coroutines, so that they can clean up.
    pub(super) fn cancel_all(&self, why: &str) {
        for coroutine in self.coroutines() {
            let cancellation = Exception::new(ExceptionClass::Cancellation, why, None);
            self.cancel(&coroutine, Some(cancellation));
        }
    }

    /// Ends all coroutines as `exit` does, one after the other.
    pub(super) fn unwind(&self) {
        self.exiting.set(true);
        for coroutine in self.coroutines() {
            match coroutine.state.get() {
                State::New => {
                    let entry = self.entries.borrow_mut().remove(coroutine.wake.id);
                    let call = coroutine.call.borrow_mut().take();
                    drop((entry, call));
                }
                State::Suspended => {
                    self.nested.borrow_mut().push(Nested {
                        coroutine: Rc::as_ptr(&coroutine),
                        starter: self.current.get(),
                        context: fiber::current_context(),
                    });
                    self.run(coroutine);
                    if self.bailed.get() {
                        break;
                    }
                }
                State::Running | State::Done => {}
            }
        }
        self.exiting.set(false);
    }

    /// Finds the failed coroutines whose exception nobody has got.
    pub(super) fn note_failed(&self) {
        for coroutine in self.failed.take() {
            let error = coroutine
                .upgrade()
                .and_then(|coroutine| coroutine.completion.unobserved_error());
            if let Some(error) = error {
                self.unhandled.borrow_mut().push(error);
            }
        }
    }

    /// Reports the exceptions that nobody can get any more. Returns whether there were any.
    pub(super) fn report_unhandled(&self) -> bool {
        let unhandled = self.unhandled.take();
        let any = !unhandled.is_empty();
        for exception in unhandled {
            exception.report_uncaught();
        }
        any
    }

    pub(crate) fn begin_request(&self) {
        self.phase.set(Phase::Script);
    }

    /// Forgets everything of this request. No PHP code runs any more.
    pub(crate) fn end_request(&self) {
        self.abandon();
        self.phase.set(Phase::Over);
        pdo::close_all();
        while let Some(call) = self.queue.pop_call() {
            drop(call);
        }
        self.phase.set(Phase::Over);
        self.registered.set(false);
    }

    /// Forgets all coroutines without running any of their code.
    pub(super) fn abandon(&self) {
        self.phase.set(Phase::Over);
        self.bailed.set(false);
        self.exiting.set(false);
        self.deadlocks.set(0);
        self.external.set(0);
        self.current.set(null());
        self.nested.take();
        let entries = self.entries.take();
        // First what refers to others, such as an acquire to its pool; then everything may go.
        for (_, entry) in &entries.slots {
            if let Some(Entry::Coroutine(coroutine)) = entry {
                coroutine.state.set(State::Done);
                coroutine.drop_kept();
                coroutine.end_owner();
            }
        }
        let main = self.main.take();
        if let Some(main) = &main {
            main.drop_kept();
            main.end_owner();
        }
        for (_, entry) in entries.slots {
            if let Some(Entry::Coroutine(coroutine)) = &entry
                && let Some(fiber) = coroutine.fiber.take()
            {
                // SAFETY: its frames are lost; nothing resumes it.
                unsafe { fiber.free(false) };
            }
            drop(entry);
        }
        drop(main);
        drop(self.job.take());
        drop(self.unhandled.take());
        drop(self.failed.take());
        drop(self.timers.take());
        self.queue.clear();
        for fiber in self.idle_fibers.take() {
            // SAFETY: it is idle, and the current stack is the script's.
            unsafe { fiber.free(true) };
        }
        for fiber in self.dead_fibers.take() {
            // SAFETY: it has ended.
            unsafe { fiber.free(false) };
        }
        // Dropping the last values may have made the script current again.
        self.current.set(null());
        drop(self.main.take());
        self.phase.set(Phase::Script);
    }

    /// In the child of a fork: forgets what it shares with its parent.
    pub(crate) fn after_fork(&self) {
        self.queue.forget_event();
        reactor::after_fork();
    }
}
