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

mod ending;
mod entries;
mod request;
mod suspend;

use std::cell::{Cell, RefCell};
use std::ptr::null;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Context as TaskContext;

use crate::coroutine::{Coroutine, Kind, State};
use crate::engine::{self, Call, Exception, ExceptionClass, Status};
use crate::fiber::{self, Context, Fiber};
use crate::pdo::Owner;
use crate::scheduler::entries::{Entries, Entry, Task};
use crate::timer::Timers;
use crate::wake::{Id, RunQueue, WakeState};

pub(crate) use crate::scheduler::suspend::{block_on, block_on_external, delay, yield_now};

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
    /// How many coroutines wait for the reactor.
    external: Cell<usize>,
    turns: Cell<u32>,
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
        external: Cell::new(0),
        turns: Cell::new(0),
    }));
    SCHEDULER.set(scheduler);
    scheduler
}

/// Returns the scheduler if this thread has used it.
pub(crate) fn existing_scheduler() -> Option<&'static Scheduler> {
    (!SCHEDULER.get().is_null()).then(scheduler)
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

    /// Returns the owners of connections.
    pub(crate) fn owners(&self) -> Vec<Rc<Owner>> {
        let main = self.main.borrow().clone();
        let all = self.coroutines().into_iter().chain(main);
        all.filter_map(|coroutine| coroutine.existing_owner())
            .collect()
    }

    // ---- starting -----------------------------------------------------------

    fn create(&self, kind: Kind, call: Option<Call>, location: (String, u32)) -> Rc<Coroutine> {
        if !self.registered.replace(true) {
            fiber::run_leftovers_at_end();
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
            context: fiber::current_context(),
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
        unsafe { fiber::switch(fiber.context()) };
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
