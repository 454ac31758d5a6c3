//! The scheduler: it runs coroutines and tasks on the PHP thread, one at a time, first come first served.
//!
//! There is no loop that everything returns to. A coroutine that suspends picks what runs next, on its
//! own stack, and switches there directly. A coroutine that ends leaves its stack to the next new one.
//!
//! Two rules keep this safe:
//!
//! - No PHP code runs, and no PHP value is dropped, while a `RefCell` is borrowed: PHP code calls back.
//! - A fatal error throws stacks away without running their destructors. So a stack that may be suspended
//!   owns nothing that must be dropped, except through [`Coroutine::keep`].

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::ptr::{null, null_mut};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use crate::coroutine::{Coroutine, Kind, State};
use crate::engine::{
    self, Bailout, Call, Context, Exception, ExceptionClass, Fiber, ScriptEnd, Status, Value,
};
use crate::timer::Timers;
use crate::wake::{Id, RunQueue, WakeState};

/// How many stacks wait for the next coroutine; the rest is freed.
const IDLE_FIBERS: usize = 256;

/// Why a coroutine cannot go on where it waited.
pub(crate) enum Interrupt {
    /// This is to be thrown.
    Throw(Exception),
    /// The program has called `exit`.
    Exit,
    /// The request is over.
    Bailout,
}

impl Interrupt {
    /// Throws what is to be thrown, and returns what C has to do.
    pub(crate) fn raise(self) -> Status {
        match self {
            Interrupt::Throw(exception) => exception.throw(),
            Interrupt::Exit => engine::throw_exit(),
            Interrupt::Bailout => Status::Bailout,
        }
    }
}

enum Entry {
    Coroutine(Rc<Coroutine>),
    Task(Arc<WakeState>, Option<Task>),
}

pub(crate) type Task = Pin<Box<dyn Future<Output = ()>>>;

#[derive(Default)]
struct Entries {
    slots: Vec<(u32, Option<Entry>)>,
    free: Vec<u32>,
    coroutines: usize,
}

impl Entries {
    fn insert(&mut self, make: impl FnOnce(Id) -> Entry) -> Id {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            u32::try_from(self.slots.len() - 1).expect("there are fewer than 2^32 coroutines")
        });
        let slot = &mut self.slots[index as usize];
        let id = Id {
            index,
            generation: slot.0,
        };
        let entry = make(id);
        self.coroutines += usize::from(matches!(entry, Entry::Coroutine(_)));
        slot.1 = Some(entry);
        id
    }

    fn get(&mut self, id: Id) -> Option<&mut Entry> {
        let slot = self.slots.get_mut(id.index as usize)?;
        slot.1.as_mut().filter(|_| slot.0 == id.generation)
    }

    fn remove(&mut self, id: Id) -> Option<Entry> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.0 != id.generation {
            return None;
        }
        let entry = slot.1.take()?;
        slot.0 = slot.0.wrapping_add(1);
        self.free.push(id.index);
        self.coroutines -= usize::from(matches!(entry, Entry::Coroutine(_)));
        Some(entry)
    }
}

/// A coroutine that was started at once, and the stack that waits for it to suspend or to end.
struct Nested {
    coroutine: *const Coroutine,
    starter: *const Coroutine,
    context: Context,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Script,
    /// The script has ended; its coroutines run on.
    Leftovers,
    /// The request has ended: no PHP code runs any more.
    Over,
}

/// The scheduler of the PHP thread.
pub(crate) struct Scheduler {
    queue: Arc<RunQueue>,
    entries: RefCell<Entries>,
    pub(crate) timers: RefCell<Timers>,
    current: Cell<*const Coroutine>,
    main: RefCell<Option<Rc<Coroutine>>>,
    nested: RefCell<Vec<Nested>>,
    idle_fibers: RefCell<Vec<Fiber>>,
    /// Fibers that a fatal error has ended. The engine reads them after their end.
    dead_fibers: RefCell<Vec<Fiber>>,
    /// What the fiber that is about to run has to do.
    job: RefCell<Option<Rc<Coroutine>>>,
    /// Exceptions of coroutines that nobody can await any more.
    unhandled: RefCell<Vec<Exception>>,
    failed: RefCell<Vec<std::rc::Weak<Coroutine>>>,
    bailed: Cell<bool>,
    exiting: Cell<bool>,
    phase: Cell<Phase>,
    deadlocks: Cell<u32>,
    registered: Cell<bool>,
    next_number: Cell<i64>,
}

thread_local! {
    static SCHEDULER: Cell<*const Scheduler> = const { Cell::new(null()) };
}

/// Returns the scheduler of this thread. It lives as long as the process.
pub(crate) fn scheduler() -> &'static Scheduler {
    let existing = SCHEDULER.get();
    if !existing.is_null() {
        // SAFETY: it was leaked below.
        return unsafe { &*existing };
    }
    let scheduler: &'static Scheduler = Box::leak(Box::new(Scheduler {
        queue: RunQueue::new(),
        entries: RefCell::default(),
        timers: RefCell::default(),
        current: Cell::new(null()),
        main: RefCell::new(None),
        nested: RefCell::default(),
        idle_fibers: RefCell::default(),
        dead_fibers: RefCell::default(),
        job: RefCell::new(None),
        unhandled: RefCell::default(),
        failed: RefCell::default(),
        bailed: Cell::new(false),
        exiting: Cell::new(false),
        phase: Cell::new(Phase::Script),
        deadlocks: Cell::new(0),
        registered: Cell::new(false),
        next_number: Cell::new(1),
    }));
    SCHEDULER.set(scheduler);
    scheduler
}

/// Returns the scheduler if this thread has used it.
pub(crate) fn existing_scheduler() -> Option<&'static Scheduler> {
    (!SCHEDULER.get().is_null()).then(scheduler)
}

/// What is next in the queue.
enum Next {
    Coroutine(Rc<Coroutine>),
    Task(Id),
}

impl Scheduler {
    // ---- who runs -----------------------------------------------------------

    /// Returns the coroutine that runs now: the script itself if nothing else does.
    pub(crate) fn current(&self) -> &'static Coroutine {
        if self.current.get().is_null() {
            let main = self.main();
            main.state.set(State::Running);
            self.current.set(Rc::as_ptr(&main));
        }
        // SAFETY: the scheduler owns a running coroutine until it is done.
        unsafe { &*self.current.get() }
    }

    /// Returns the coroutine that runs now as a shared reference.
    pub(crate) fn current_shared(&self) -> Rc<Coroutine> {
        let current = self.current();
        if current.kind == Kind::Main {
            return self.main();
        }
        match self.entries.borrow_mut().get(current.wake.id) {
            Some(Entry::Coroutine(coroutine)) => Rc::clone(coroutine),
            _ => unreachable!("a running coroutine has an entry"),
        }
    }

    fn main(&self) -> Rc<Coroutine> {
        let mut main = self.main.borrow_mut();
        Rc::clone(main.get_or_insert_with(|| {
            // The script has no entry: it is neither spawned nor removed.
            let id = Id {
                index: u32::MAX,
                generation: 0,
            };
            let wake = WakeState::new(id, &self.queue);
            Coroutine::new(Kind::Main, 0, wake, None, (String::new(), 0))
        }))
    }

    /// Returns whether a coroutine runs, and not a task.
    pub(crate) fn has_current(&self) -> bool {
        !self.current.get().is_null()
    }

    /// Returns whether there is anything to run besides the current coroutine.
    pub(crate) fn is_used(&self) -> bool {
        self.entries.borrow().coroutines > 0 || !self.timers.borrow().is_empty()
    }

    /// Returns whether the request has ended, so that no PHP code may run.
    pub(crate) fn is_over(&self) -> bool {
        self.phase.get() == Phase::Over
    }

    /// Returns how many coroutines exist besides the script.
    pub(crate) fn coroutine_count(&self) -> usize {
        self.entries.borrow().coroutines
    }

    pub(crate) fn coroutines(&self) -> Vec<Rc<Coroutine>> {
        let entries = self.entries.borrow();
        let slots = entries.slots.iter().filter_map(|slot| slot.1.as_ref());
        slots
            .filter_map(|entry| match entry {
                Entry::Coroutine(coroutine) => Some(Rc::clone(coroutine)),
                Entry::Task(..) => None,
            })
            .collect()
    }

    // ---- starting -----------------------------------------------------------

    fn create(&self, kind: Kind, call: Option<Call>, location: (String, u32)) -> Rc<Coroutine> {
        if !self.registered.replace(true) {
            engine::run_leftovers_at_end();
        }
        let number = self.next_number.get();
        self.next_number.set(number + 1);
        let mut created = None;
        self.entries.borrow_mut().insert(|id| {
            let wake = WakeState::new(id, &self.queue);
            let coroutine = Coroutine::new(kind, number, wake, call, location);
            created = Some(Rc::clone(&coroutine));
            Entry::Coroutine(coroutine)
        });
        created.expect("insert calls its closure")
    }

    /// Makes a coroutine that runs when its turn comes.
    pub(crate) fn spawn(&self, kind: Kind, call: Call, location: (String, u32)) -> Rc<Coroutine> {
        let coroutine = self.create(kind, Some(call), location);
        coroutine.wake.waker().wake();
        coroutine
    }

    /// Runs a callback in a coroutine of its own, at once, until it suspends or ends.
    ///
    /// # Errors
    ///
    /// There is no memory for a stack.
    pub(crate) fn start_now(&self, call: Call) -> Result<Rc<Coroutine>, Exception> {
        let coroutine = self.create(Kind::Callback, Some(call), (String::new(), 0));
        let Some(fiber) = self.take_fiber() else {
            drop(self.entries.borrow_mut().remove(coroutine.wake.id));
            return Err(no_stack());
        };
        self.nested.borrow_mut().push(Nested {
            coroutine: Rc::as_ptr(&coroutine),
            starter: self.current.get(),
            context: engine::current_context(),
        });
        self.enter_fiber(&coroutine, fiber);
        Ok(coroutine)
    }

    fn take_fiber(&self) -> Option<Fiber> {
        let idle = self.idle_fibers.borrow_mut().pop();
        idle.or_else(Fiber::new)
    }

    /// Switches to a fiber with a new coroutine. Returns when something switches back.
    fn enter_fiber(&self, coroutine: &Rc<Coroutine>, fiber: Fiber) {
        *self.job.borrow_mut() = Some(Rc::clone(coroutine));
        // SAFETY: the fiber is new or idle, so suspended.
        unsafe { engine::switch(fiber.context()) };
    }

    /// Adds a task: a future that the scheduler polls between coroutines.
    pub(crate) fn add_task(&self, task: Task) -> Id {
        let mut wake = None;
        let id = self.entries.borrow_mut().insert(|id| {
            let state = WakeState::new(id, &self.queue);
            wake = Some(state.waker());
            Entry::Task(state, Some(task))
        });
        if let Some(waker) = wake {
            waker.wake();
        }
        id
    }

    /// Drops a task, if it is not done.
    pub(crate) fn drop_task(&self, id: Id) {
        let entry = self.entries.borrow_mut().remove(id);
        drop(entry);
    }

    fn run_task(&self, id: Id) {
        let taken = match self.entries.borrow_mut().get(id) {
            Some(Entry::Task(wake, task)) => task.take().map(|task| (wake.waker(), task)),
            _ => None,
        };
        let Some((waker, mut task)) = taken else {
            return;
        };
        let polled = task.as_mut().poll(&mut TaskContext::from_waker(&waker));
        let done = polled.is_ready();
        let left = match self.entries.borrow_mut().get(id) {
            Some(Entry::Task(_, place)) if !done => place.replace(task),
            // It is done, or was dropped while it ran.
            _ => Some(task),
        };
        drop(left);
        if done {
            self.drop_task(id);
        }
    }

    // ---- suspending -----------------------------------------------------------

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
        if engine::is_switch_blocked() {
            return Err(Interrupt::Throw(Exception::new(
                ExceptionClass::Error,
                "cannot wait in a destructor: PHP blocks the switch to another coroutine there; close or \
                 await before the object is destroyed",
                None,
            )));
        }
        me.state.set(State::Suspended);
        me.context.set(engine::current_context());
        match self.leave_nested(me) {
            // SAFETY: the starter waits in `start_now`.
            Some(starter) => unsafe { engine::switch(starter) },
            None => self.run_others(me),
        }
        me.state.set(State::Running);
        self.current.set(me);
        self.trim_fibers();
        self.check(me)
    }

    /// Ends the nesting of this coroutine, if it was started at once and has not suspended before.
    fn leave_nested(&self, me: *const Coroutine) -> Option<Context> {
        let mut nested = self.nested.borrow_mut();
        if nested.last()?.coroutine != me {
            return None;
        }
        let starter = nested.pop()?;
        self.current.set(starter.starter);
        Some(starter.context)
    }

    /// Runs what is ready until it is this coroutine's turn.
    fn run_others(&self, me: &Coroutine) {
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
    fn end_unstarted(&self, next: &Rc<Coroutine>) -> bool {
        let is_new = next.state.get() == State::New;
        let cancellation = is_new.then(|| next.take_cancellation()).flatten();
        let is_cancelled = cancellation.is_some();
        if let Some(cancellation) = cancellation {
            self.finish(next, Err(cancellation));
        }
        is_cancelled
    }

    /// Switches to another coroutine. Returns whether it did; if so, this one has been resumed.
    fn run(&self, next: Rc<Coroutine>) -> bool {
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
                unsafe { engine::switch(fiber.context()) };
                true
            }
            State::Suspended => {
                self.current.set(Rc::as_ptr(&next));
                let context = next.context.get();
                drop(next);
                // SAFETY: the coroutine is suspended there.
                unsafe { engine::switch(context) };
                true
            }
            State::Running | State::Done => false,
        }
    }

    fn must_stop(&self) -> bool {
        self.bailed.get() || self.exiting.get()
    }

    /// Leaves this stack for the script's own. Returns if the script resumes this stack.
    fn go_to_main(&self) {
        let context = {
            let main = self.main();
            self.current.set(Rc::as_ptr(&main));
            main.context.get()
        };
        // SAFETY: another stack runs, and was not started by the script directly: so the script waits.
        unsafe { engine::switch(context) };
    }

    /// Waits until something is ready, and takes it.
    fn next(&self) -> Next {
        loop {
            self.fire_timers();
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

    fn fire_timers(&self) {
        if self.timers.borrow().is_empty() {
            return;
        }
        let now = Instant::now();
        loop {
            let due = self.timers.borrow_mut().pop_due(now);
            match due {
                Some(waker) => waker.wake(),
                None => break,
            }
        }
    }

    /// Nothing is ready: waits for a timer, a signal or another thread.
    fn idle(&self) {
        if engine::is_interrupt_pending() {
            let coroutine = self.create(Kind::Signal, None, (String::new(), 0));
            coroutine.wake.waker().wake();
            return;
        }
        let (due, is_awaited) = {
            let timers = self.timers.borrow();
            (timers.next_due(), timers.has_awaited())
        };
        if !is_awaited {
            return self.deadlock();
        }
        let limit = due.map(|due| due.saturating_duration_since(Instant::now()));
        self.queue.sleep(limit, engine::is_interrupt_pending);
    }

    /// Nothing can ever become ready: the script gets an error where it waits.
    fn deadlock(&self) {
        self.deadlocks.set(self.deadlocks.get() + 1);
        if self.phase.get() == Phase::Script {
            let error = self.deadlock_error();
            self.unhandled.borrow_mut().push(error);
        }
        self.main().wake.waker().wake();
    }

    /// Waits for a moment without switching, where PHP blocks it.
    pub(crate) fn sleep_blocking(&self, until: Instant) {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left);
        }
    }

    // ---- ending ---------------------------------------------------------------

    /// Takes the job that this fiber was resumed for.
    pub(crate) fn begin_job(&self) -> *mut engine::RawCall {
        let job = self.job.borrow_mut().take();
        let coroutine = job.expect("a fiber is resumed with a job");
        // SAFETY: this runs on the fiber.
        let fiber = unsafe { Fiber::of(engine::current_context()) };
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
        let fiber = unsafe { Fiber::of(engine::current_context()) };
        let starter = starter.or_else(|| self.leave_nested(me));
        if let Some(starter) = starter {
            self.idle_fibers.borrow_mut().push(fiber);
            // SAFETY: the starter waits in `start_now` or `unwind`; the script in `park`.
            unsafe { engine::switch(starter) };
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
    fn end_current(&self, result: Value, exception: Option<Exception>) -> Option<Context> {
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
            self.spawn(Kind::Callback, call, (String::new(), 0));
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
        let fiber = unsafe { Fiber::of(engine::current_context()) };
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

    fn trim_fibers(&self) {
        while self.idle_fibers.borrow().len() > IDLE_FIBERS {
            let Some(fiber) = self.idle_fibers.borrow_mut().pop() else {
                break;
            };
            // SAFETY: it is idle, and the current stack is another one.
            unsafe { fiber.free(true) };
        }
    }

    // ---- the end of the request ---------------------------------------------------

    /// Runs the coroutines that the script has left, to their end.
    pub(crate) fn run_leftovers(&self) {
        // What a shutdown function starts runs after the last one.
        self.registered.set(false);
        match engine::script_end() {
            _ if self.bailed.get() => return self.abandon(),
            ScriptEnd::Fatal => return self.abandon(),
            ScriptEnd::Failed => self.unwind(),
            ScriptEnd::Clean => {}
        }
        self.phase.set(Phase::Leftovers);
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
                    engine::forget_oom();
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

    fn deadlock_error(&self) -> Exception {
        let waiting = self.coroutine_count();
        let text =
            format!("Deadlock detected: no active coroutines, {waiting} coroutines in waiting");
        Exception::new(ExceptionClass::Deadlock, &text, None)
    }

    /// Cancels all coroutines, so that they can clean up.
    fn cancel_all(&self, why: &str) {
        for coroutine in self.coroutines() {
            let cancellation = Exception::new(ExceptionClass::Cancellation, why, None);
            self.cancel(&coroutine, Some(cancellation));
        }
    }

    /// Ends all coroutines as `exit` does, one after the other.
    fn unwind(&self) {
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
                        context: engine::current_context(),
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
    fn note_failed(&self) {
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
    fn report_unhandled(&self) -> bool {
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
        self.registered.set(false);
    }

    /// Forgets all coroutines without running any of their code.
    fn abandon(&self) {
        self.phase.set(Phase::Over);
        self.bailed.set(false);
        self.exiting.set(false);
        self.deadlocks.set(0);
        self.current.set(null());
        self.nested.take();
        let entries = self.entries.take();
        for (_, entry) in entries.slots {
            match entry {
                Some(Entry::Coroutine(coroutine)) => {
                    coroutine.drop_kept();
                    coroutine.state.set(State::Done);
                    if let Some(fiber) = coroutine.fiber.take() {
                        // SAFETY: its frames are lost; nothing resumes it.
                        unsafe { fiber.free(false) };
                    }
                }
                Some(Entry::Task(_, task)) => drop(task),
                None => {}
            }
        }
        if let Some(main) = self.main.take() {
            main.drop_kept();
        }
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
        self.phase.set(Phase::Script);
    }

    /// In the child of a fork: forgets what it shares with its parent.
    pub(crate) fn after_fork(&self) {
        self.queue.forget_event();
    }
}

fn no_stack() -> Exception {
    Exception::take().unwrap_or_else(|| {
        Exception::new(
            ExceptionClass::Error,
            "no memory for the stack of a coroutine; lower fiber.stack_size, or start fewer at once",
            None,
        )
    })
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
    let Some(until) = Instant::now().checked_add(duration) else {
        return delay(Duration::from_secs(u32::MAX.into()));
    };
    if engine::is_switch_blocked() {
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
        if Instant::now() >= until {
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
    if engine::is_switch_blocked() {
        return Ok(());
    }
    scheduler.current().wake.requeue();
    scheduler.park()
}
