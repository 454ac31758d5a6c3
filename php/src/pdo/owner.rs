//! Who owns connections: a PHP coroutine, or a handle without a pool.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use cenote::{Coroutine, Pinned, Transaction};

use crate::pdo::error::DbError;
use crate::reactor::existing_reactor;

thread_local! {
    static NEXT_ID: Cell<u64> = const { Cell::new(1) };
}

/// The connections of one coroutine on all handles, and what PDO asks for afterwards.
pub(crate) struct Owner {
    pub(crate) id: u64,
    /// `None` when the coroutine has ended.
    coroutine: RefCell<Option<Rc<Coroutine>>>,
    sessions: RefCell<Vec<(u64, Session)>>,
    /// A call was given up half-way.
    pub(crate) is_interrupted: Cell<bool>,
    /// Connections that it keeps for a moment longer.
    pub(crate) held: RefCell<Vec<Pinned>>,
    /// It ends when it has given these back.
    ends_later: Cell<bool>,
}

/// What a coroutine has on one handle.
#[derive(Default)]
pub(crate) struct Session {
    pub(crate) transaction: Option<Transaction<'static>>,
    pub(crate) last_id: Option<i64>,
    pub(crate) error: Option<DbError>,
    /// A call was made.
    pub(crate) is_used: bool,
    /// How many statements pin the connection.
    pub(crate) pins: usize,
}

impl Owner {
    pub(crate) fn new() -> Rc<Self> {
        let id = NEXT_ID.get();
        NEXT_ID.set(id + 1);
        Rc::new(Owner {
            id,
            coroutine: RefCell::new(Some(Rc::new(Coroutine::new()))),
            sessions: RefCell::default(),
            is_interrupted: Cell::new(false),
            held: RefCell::default(),
            ends_later: Cell::new(false),
        })
    }

    /// Runs something as code of the coroutine.
    pub(crate) fn enter<T>(&self, run: impl FnOnce() -> T) -> T {
        let _runtime = existing_reactor().map(|reactor| reactor.enter());
        let coroutine = self.coroutine.borrow().clone();
        match coroutine {
            Some(coroutine) => coroutine.enter(run),
            None => run(),
        }
    }

    /// Runs something with the session on this handle.
    pub(crate) fn session<T>(&self, handle: u64, run: impl FnOnce(&mut Session) -> T) -> T {
        let mut sessions = self.sessions.borrow_mut();
        let at = match sessions.iter().position(|(of, _)| *of == handle) {
            Some(at) => at,
            None => {
                sessions.push((handle, Session::default()));
                sessions.len() - 1
            }
        };
        run(&mut sessions[at].1)
    }

    /// Rolls back what is open on a handle that goes away.
    pub(crate) fn leave(&self, handle: u64) {
        let mut sessions = self.sessions.borrow_mut();
        let left = sessions
            .iter()
            .position(|(of, _)| *of == handle)
            .map(|at| sessions.swap_remove(at));
        drop(sessions);
        self.enter(|| drop(left));
    }

    /// Ends the coroutine, at once or when it has given back what it holds for a moment. An open transaction does not wait.
    pub(crate) fn finish(&self) {
        let has_transaction = |(_, session): &(u64, Session)| session.transaction.is_some();
        let is_open = self.sessions.borrow().iter().any(has_transaction);
        if self.held.borrow().is_empty() || is_open {
            return self.end();
        }
        self.ends_later.set(true);
    }

    /// Gives back what it has held.
    pub(crate) fn release_held(&self) {
        let held = self.held.take();
        self.enter(|| drop(held));
        if self.ends_later.take() {
            self.end();
        }
    }

    /// Ends the coroutine: rolls back what is open, and gives its connections back.
    pub(crate) fn end(&self) {
        let held = self.held.take();
        self.enter(|| drop(held));
        let sessions = self.sessions.take();
        self.enter(|| drop(sessions));
        let coroutine = self.coroutine.borrow_mut().take();
        let reactor = existing_reactor();
        let runtime = reactor.map(|reactor| reactor.enter());
        drop(coroutine);
        drop(runtime);
        if let Some(reactor) = reactor.filter(|_| self.is_interrupted.take()) {
            // The broken connection leaves the pool.
            reactor.turn();
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.end();
    }
}

/// A future that runs, and is dropped, as code of an owner.
pub(crate) struct Owned<F> {
    owner: Rc<Owner>,
    future: Option<F>,
}

impl<F> Owned<F> {
    pub(crate) fn new(owner: Rc<Owner>, future: F) -> Self {
        Owned {
            owner,
            future: Some(future),
        }
    }
}

impl<F: Future> Future for Owned<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the future is pinned with this struct: it is dropped in place, and never moved.
        let (owner, future) = unsafe {
            let this = self.get_unchecked_mut();
            let future = this
                .future
                .as_mut()
                .expect("it is not polled after its drop");
            (&this.owner, Pin::new_unchecked(future))
        };
        owner.enter(|| future.poll(cx))
    }
}

impl<F> Drop for Owned<F> {
    fn drop(&mut self) {
        let Owned { owner, future } = self;
        owner.enter(|| *future = None);
    }
}
