//! Runs each connection on a thread of its own, for databases whose client library blocks.
//!
//! ```text
//! Worker ──job: the session, and a program──> thread
//!        <──────────home: the session────────
//! ```
//!
//! The [`Worker`] owns the [session](Session) and lends it to the thread, by value, while a program runs on it. So the
//! session is in one place: with the worker, which can read its status, or with the thread. A dropped future leaves
//! it with the thread; [`settle`](Worker::settle) waits until it is back.
//!
//! Calls are numbered, and the session's [`Control`] knows which one runs: a late cancel never hits the next call.

pub(crate) mod stream;

use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, ready};
use std::thread::JoinHandle;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use crate::{Error, Kind, Result};

/// An open connection of a library that blocks, which the worker lends to the thread.
pub(crate) trait Session: fmt::Debug + Send + Sized + 'static {
    /// The state that worker and thread share.
    type Control: Control;

    /// The name of the threads.
    const THREAD: &'static str;

    /// Cleans up after a program, successful or not, before the session goes back to the worker.
    fn tidy(&mut self) {}

    /// Closes the connection.
    fn close(self) -> Result<()>;

    /// Takes the thread of a dropped worker. The thread ends when its program has ended and the session is closed.
    fn leave(_control: &Self::Control, _thread: JoinHandle<()>) {}
}

/// Knows which call runs, and cancels it. Calls are numbered from 1.
pub(crate) trait Control: fmt::Debug + Send + Sync + 'static {
    /// Begins a call. Returns `false` if the call was cancelled before.
    fn begin(&self, call: u64) -> bool;

    /// Ends the running call, or makes the rest of it uncancellable.
    fn end(&self);

    /// Cancels a call that has not ended: one that waits for the thread never begins. Does not block.
    fn cancel(&self, call: u64);
}

/// A program that the thread runs on the session.
type Program<S> = Box<dyn FnOnce(&mut S) + Send>;

enum Job<S> {
    Run {
        call: u64,
        session: Box<S>,
        program: Program<S>,
    },
    Close {
        session: Box<S>,
        /// `None` if nobody waits for the end.
        answer: Option<oneshot::Sender<Result<()>>>,
    },
}

/// The handle of a connection's thread. See the [module](self).
#[derive(Debug)]
pub(crate) struct Worker<S: Session> {
    /// `None` while the thread has it.
    session: Option<Box<S>>,
    jobs: mpsc::Sender<Job<S>>,
    home: UnboundedReceiver<Box<S>>,
    control: Arc<S::Control>,
    /// The number of the last call.
    call: u64,
    /// The thread has ended, and with it the session.
    lost: bool,
    thread: Option<JoinHandle<()>>,
}

/// Receives the answer of a call on the thread.
pub(crate) type Answer<T> = oneshot::Receiver<Result<T>>;

/// Returns the error of a connection whose thread has ended.
pub(crate) fn lost() -> Error {
    let message = "the thread of this connection has ended: a call on it panicked";
    Error::new(Kind::ConnectionLost, message)
}

impl<S: Session> Worker<S> {
    /// Starts a thread and opens a session on it.
    ///
    /// # Cancel safety
    ///
    /// Dropped, opening is cancelled; a session that was opened all the same is closed.
    pub(crate) async fn start(
        control: Arc<S::Control>,
        open: impl FnOnce() -> Result<S> + Send + 'static,
    ) -> Result<Self> {
        let (jobs, to_do) = mpsc::channel();
        let (come_home, home) = unbounded_channel();
        let (refuse, mut refused) = oneshot::channel();
        let shared = Arc::clone(&control);
        let thread = std::thread::Builder::new()
            .name(S::THREAD.into())
            .spawn(move || work(&*shared, open, refuse, &to_do, &come_home))
            .map_err(|error| {
                let message = "no thread could be started for a connection";
                Error::new(Kind::Connect, message).because(error)
            })?;
        let mut worker = Worker {
            session: None,
            jobs,
            home,
            control,
            call: OPENING,
            lost: false,
            thread: Some(thread),
        };
        match worker.arrival().await {
            Ok(()) => Ok(worker),
            Err(lost) => Err(refused.try_recv().unwrap_or(lost)),
        }
    }

    /// Runs a program on the thread and waits for its answer.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the program is cancelled; it may run until [`settle`](Worker::settle) returns.
    pub(crate) async fn call<T: Send + 'static>(
        &mut self,
        program: impl FnOnce(&mut S) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.settle().await?;
        let mut answer = self.send(program)?;
        self.arrival().await?;
        answer.try_recv().unwrap_or_else(|_| Err(lost()))
    }

    /// Sends a program to the thread. The worker must have the session. The answer is there when
    /// [`poll_home`](Worker::poll_home) is ready.
    pub(crate) fn send<T: Send + 'static>(
        &mut self,
        program: impl FnOnce(&mut S) -> Result<T> + Send + 'static,
    ) -> Result<Answer<T>> {
        let session = self.session.take().ok_or_else(lost)?;
        let (answer, answered) = oneshot::channel();
        let program = Box::new(move |session: &mut S| {
            // The receiver is gone if the call was dropped.
            let _ = answer.send(program(session));
        });
        self.call += 1;
        let call = self.call;
        let job = Job::Run {
            call,
            session,
            program,
        };
        if self.jobs.send(job).is_err() {
            self.lost = true;
            return Err(lost());
        }
        Ok(answered)
    }

    /// Waits until the session is back.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the call on the thread is cancelled.
    pub(crate) async fn arrival(&mut self) -> Result<()> {
        let recall = self.recall();
        let arrived = poll_fn(|cx| self.poll_home(cx)).await;
        recall.call_off();
        arrived
    }

    /// Returns a guard that cancels the present call when it is dropped.
    pub(crate) fn recall(&self) -> Recall<S::Control> {
        Recall {
            control: Some((Arc::clone(&self.control), self.call)),
        }
    }

    /// Ready when the worker has the session.
    pub(crate) fn poll_home(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        if self.session.is_some() {
            return Poll::Ready(Ok(()));
        }
        if self.lost {
            return Poll::Ready(Err(lost()));
        }
        self.session = ready!(self.home.poll_recv(cx));
        self.lost = self.session.is_none();
        Poll::Ready(if self.lost { Err(lost()) } else { Ok(()) })
    }

    /// Cancels the running call, and waits until the session is back. Does nothing if it is.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it can be called again.
    pub(crate) async fn settle(&mut self) -> Result<()> {
        poll_fn(|cx| {
            if self.session.is_none() {
                self.cancel();
            }
            self.poll_home(cx)
        })
        .await
    }

    /// Cancels the present call, without waiting.
    pub(crate) fn cancel(&self) {
        self.control.cancel(self.call);
    }

    /// Returns the session, unless the thread has it.
    pub(crate) fn session(&self) -> Option<&S> {
        self.session.as_deref()
    }

    /// Begins an inline call. Returns its number and the session, or `None` if the thread has the session.
    #[cfg(feature = "sqlite")]
    pub(crate) fn call_here(&mut self) -> Option<(u64, &mut S)> {
        let session = self.session.as_deref_mut()?;
        self.call += 1;
        Some((self.call, session))
    }

    /// Returns the session, unless the thread has it.
    #[cfg(feature = "sqlite")]
    pub(crate) fn session_mut(&mut self) -> Option<&mut S> {
        self.session.as_deref_mut()
    }

    /// Takes the thread, for a test that waits for its end.
    #[cfg(any(test, feature = "sqlite"))]
    pub(crate) fn take_thread(&mut self) -> Option<JoinHandle<()>> {
        self.thread.take()
    }

    /// Returns whether the thread has ended.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost
    }

    /// Checks whether the thread has ended.
    pub(crate) fn look(&mut self) {
        if let Some(thread) = &self.thread {
            self.lost |= thread.is_finished();
        }
    }

    /// Closes the session on the thread, and waits for it. Then the thread ends.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the session is closed all the same.
    pub(crate) async fn close(mut self) -> Result<()> {
        self.settle().await?;
        let session = self.session.take().ok_or_else(lost)?;
        let (answer, closed) = oneshot::channel();
        let answer = Some(answer);
        self.jobs
            .send(Job::Close { session, answer })
            .map_err(|_| lost())?;
        closed.await.unwrap_or_else(|_| Err(lost()))
    }
}

impl<S: Session> Drop for Worker<S> {
    /// Closes the session on its thread, without waiting for it.
    fn drop(&mut self) {
        // A session that the thread sends after this stays with the thread, which drops it.
        self.home.close();
        if let Ok(session) = self.home.try_recv() {
            self.session = Some(session);
        }
        match self.session.take() {
            Some(session) => {
                let answer = None;
                // If the thread has ended, the failed `send` drops the session here.
                let _ = self.jobs.send(Job::Close { session, answer });
            }
            None => self.cancel(),
        }
        if let Some(thread) = self.thread.take() {
            S::leave(&self.control, thread);
        }
    }
}

/// Cancels a call when it is dropped, unless [`call_off`](Recall::call_off) was called.
#[must_use]
pub(crate) struct Recall<C: Control> {
    control: Option<(Arc<C>, u64)>,
}

impl<C: Control> Recall<C> {
    pub(crate) fn call_off(mut self) {
        self.control = None;
    }
}

impl<C: Control> Drop for Recall<C> {
    fn drop(&mut self) {
        if let Some((control, call)) = &self.control {
            control.cancel(*call);
        }
    }
}

/// The number of the call that opens the session.
const OPENING: u64 = 1;

/// Runs on the thread, until the session is closed or lost, or the worker is dropped.
fn work<S: Session>(
    control: &S::Control,
    open: impl FnOnce() -> Result<S>,
    refused: oneshot::Sender<Error>,
    jobs: &mpsc::Receiver<Job<S>>,
    home: &UnboundedSender<Box<S>>,
) {
    if !control.begin(OPENING) {
        return;
    }
    let session = catch_unwind(AssertUnwindSafe(open));
    control.end();
    match session {
        // If the worker is gone, the session is dropped, and so closed, here.
        Ok(Ok(session)) => {
            if home.send(Box::new(session)).is_err() {
                return;
            }
        }
        Ok(Err(error)) => {
            // The receiver is gone if the connect was dropped.
            let _ = refused.send(error);
            return;
        }
        Err(_panic) => return,
    }
    for job in jobs {
        match job {
            Job::Run {
                call,
                mut session,
                program,
            } => {
                let mut survived = true;
                if control.begin(call) {
                    let run = || {
                        program(&mut session);
                        control.end();
                        session.tidy();
                    };
                    survived = catch_unwind(AssertUnwindSafe(run)).is_ok();
                }
                control.end();
                // After a panic the session's state is unknown.
                if !survived || home.send(session).is_err() {
                    return;
                }
            }
            Job::Close { session, answer } => {
                let closed = session.close();
                if let Some(answer) = answer {
                    // The receiver is gone if closing was dropped.
                    let _ = answer.send(closed);
                }
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};

    use super::*;

    /// A database that can wait for ever, and is good for nothing else.
    #[derive(Debug)]
    struct Patient {
        control: Arc<Switch>,
    }

    #[derive(Debug, Default)]
    struct Switch {
        /// The call that runs, and up to which one they were cancelled.
        calls: Mutex<(u64, u64)>,
        cancelled: Condvar,
        left: Mutex<Vec<JoinHandle<()>>>,
    }

    impl Control for Switch {
        fn begin(&self, call: u64) -> bool {
            let mut calls = self.calls.lock().unwrap();
            calls.0 = call;
            calls.1 < call
        }

        fn end(&self) {
            self.calls.lock().unwrap().0 = 0;
        }

        fn cancel(&self, call: u64) {
            self.calls.lock().unwrap().1 = call;
            self.cancelled.notify_all();
        }
    }

    impl Session for Patient {
        type Control = Switch;

        const THREAD: &'static str = "patient";

        fn close(self) -> Result<()> {
            Ok(())
        }

        fn leave(control: &Switch, thread: JoinHandle<()>) {
            control.left.lock().unwrap().push(thread);
        }
    }

    impl Patient {
        /// Waits until it is cancelled.
        fn wait(&mut self) -> Result<()> {
            let calls = self.control.calls.lock().unwrap();
            let runs = |calls: &mut (u64, u64)| calls.0 > calls.1;
            drop(self.control.cancelled.wait_while(calls, runs).unwrap());
            Err(Error::new(Kind::Database, "cancelled"))
        }

        fn answer(&mut self) -> Result<i32> {
            Ok(42)
        }
    }

    async fn worker() -> Worker<Patient> {
        let control = Arc::new(Switch::default());
        let own = Arc::clone(&control);
        let open = move || Ok(Patient { control: own });
        Worker::start(control, open).await.unwrap()
    }

    #[tokio::test]
    async fn a_panicking_program_loses_the_connection_and_nothing_else() {
        let mut worker = worker().await;
        let thread = worker.take_thread().unwrap();
        let panicking = worker.call(|_| -> Result<()> { panic!("a bug") });
        assert_eq!(panicking.await.unwrap_err().kind(), Kind::ConnectionLost);
        assert!(worker.is_lost());
        thread.join().unwrap();
        let next = worker.call(Patient::answer).await;
        assert_eq!(next.unwrap_err().kind(), Kind::ConnectionLost);
        assert_eq!(
            worker.close().await.unwrap_err().kind(),
            Kind::ConnectionLost
        );
    }

    #[tokio::test]
    async fn a_look_sees_that_the_thread_has_ended() {
        let mut worker = worker().await;
        worker.look();
        assert!(!worker.is_lost());
        let (jobs, _) = mpsc::channel();
        let real = std::mem::replace(&mut worker.jobs, jobs);
        drop(real);
        while !worker.thread.as_ref().unwrap().is_finished() {
            std::thread::yield_now();
        }
        worker.look();
        assert!(worker.is_lost());
    }

    #[tokio::test]
    async fn a_panic_while_opening_is_an_error() {
        let open = || -> Result<Patient> { panic!("a bug") };
        let started = Worker::start(Arc::new(Switch::default()), open).await;
        assert_eq!(started.unwrap_err().kind(), Kind::ConnectionLost);
    }

    #[tokio::test]
    async fn settling_cancels_by_itself() {
        let mut worker = worker().await;
        let mut answer = worker.send(Patient::wait).unwrap();
        worker.settle().await.unwrap();
        assert!(!matches!(answer.try_recv(), Ok(Ok(()))));
        assert_eq!(worker.call(Patient::answer).await.unwrap(), 42);
    }

    #[tokio::test]
    async fn dropping_cancels_by_itself() {
        let mut worker = worker().await;
        let thread = worker.take_thread().unwrap();
        let _answer = worker.send(Patient::wait).unwrap();
        drop(worker);
        thread.join().unwrap();
    }

    #[tokio::test]
    async fn thread_that_outlives_its_dropped_connection_is_not_forgotten() {
        let mut worker = worker().await;
        let control = Arc::clone(&worker.control);
        let _answer = worker.send(Patient::wait).unwrap();
        drop(worker);
        let thread = control.left.lock().unwrap().pop();
        thread.expect("it was given to the control").join().unwrap();
    }

    #[tokio::test]
    async fn a_call_that_was_cancelled_before_it_began_is_not_begun() {
        let mut worker = worker().await;
        worker.control.cancel(worker.call + 1);
        let mut answer = worker
            .send(|_| -> Result<()> { unreachable!("it was cancelled") })
            .unwrap();
        worker.settle().await.unwrap();
        assert!(answer.try_recv().is_err());
        assert_eq!(worker.call(Patient::answer).await.unwrap(), 42);
    }
}
