//! A thread of its own for every connection, because SQLite blocks.
//!
//! ```text
//! Worker ──job: the session, and a program──> thread
//!        <──────────home: the session────────
//! ```
//!
//! The [`Worker`] owns the [`Session`] and lends it to the thread by value for as long
//! as a program runs on it. So there is only ever one place where it can be: here, where
//! its status can be read, or there. A future that is dropped half-way leaves it there;
//! [`settle`](Worker::settle) brings it home.
//!
//! Everything that runs passes through [`Worker::call`] or [`Worker::send`]; or, if it is known
//! to be short, through [`Worker::here`], on the session at home.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, ready};
use std::thread::JoinHandle;
use std::time::Instant;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::control::Control;
use super::error;
use super::session::Session;
use super::watchdog::Watchdog;
use crate::{Error, Kind, Result};

/// What the thread runs on the session.
type Program = Box<dyn FnOnce(&mut Session) + Send>;

enum Job {
    Run {
        call: u64,
        session: Box<Session>,
        program: Program,
    },
    Close {
        session: Box<Session>,
        /// None if nobody waits for it.
        answer: Option<oneshot::Sender<Result<()>>>,
    },
}

/// This side of the thread. See the [module](self).
#[derive(Debug)]
pub(super) struct Worker {
    /// None while it is lent.
    session: Option<Box<Session>>,
    jobs: mpsc::Sender<Job>,
    home: UnboundedReceiver<Box<Session>>,
    control: Arc<Control>,
    /// Looks after what runs in place. None if nothing may.
    watchdog: Option<&'static Watchdog>,
    /// The number of the last call.
    call: u64,
    /// How many statements were run in place and brought to their end there.
    in_place_runs: u64,
    /// The thread has ended, and the session with it.
    lost: bool,
    thread: Option<JoinHandle<()>>,
}

/// What a call on the thread will have come to.
pub(super) type Answer<T> = oneshot::Receiver<Result<T>>;

impl Worker {
    /// Starts a thread and opens a session on it.
    ///
    /// # Cancel safety
    ///
    /// Dropped, opening is cancelled; what was opened all the same is closed.
    pub(super) async fn start(
        control: Arc<Control>,
        open: impl FnOnce() -> Result<Session> + Send + 'static,
    ) -> Result<Worker> {
        let (jobs, to_do) = mpsc::channel();
        let (come_home, home) = unbounded_channel();
        let (refuse, mut refused) = oneshot::channel();
        let shared = Arc::clone(&control);
        let thread = std::thread::Builder::new()
            .name("cenote-sqlite".into())
            .spawn(move || work(&shared, open, refuse, &to_do, &come_home))
            .map_err(|error| {
                let message = "no thread could be started for an SQLite connection";
                Error::new(Kind::Connect, message).because(error)
            })?;
        let mut worker = Worker {
            session: None,
            jobs,
            home,
            watchdog: Watchdog::over(&control),
            control,
            call: OPENING,
            in_place_runs: 0,
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
    /// Dropped, the program is cancelled; until [`settle`](Worker::settle) it may still
    /// be running.
    pub(super) async fn call<T: Send + 'static>(
        &mut self,
        program: impl FnOnce(&mut Session) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.settle().await?;
        let mut answer = self.send(program)?;
        self.arrival().await?;
        answer.try_recv().unwrap_or_else(|_| Err(error::lost()))
    }

    /// Sends a program to the thread. The session has to be here; it is home again, with
    /// the answer there, when [`poll_home`](Worker::poll_home) says so.
    pub(super) fn send<T: Send + 'static>(
        &mut self,
        program: impl FnOnce(&mut Session) -> Result<T> + Send + 'static,
    ) -> Result<Answer<T>> {
        let session = self.session.take().ok_or_else(error::lost)?;
        let (answer, answered) = oneshot::channel();
        let program = Box::new(move |session: &mut Session| {
            // Nobody waits for the answer of a call that was dropped.
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
            return Err(error::lost());
        }
        Ok(answered)
    }

    /// Runs a program right here; until then, if it can be repeated. Also says whether it was given
    /// up. `None` if the session is not here or nothing may run in place.
    pub(super) fn here<T>(
        &mut self,
        until: Option<Instant>,
        program: impl FnOnce(&Session) -> T,
    ) -> Option<(T, bool)> {
        let session = self.session.as_deref()?;
        let watchdog = self.watchdog?;
        self.call += 1;
        self.control.begin_in_place(self.call, until);
        // Now, when there is something to see: before, it might fall asleep again.
        watchdog.attend();
        let running = InPlace { session };
        let done = program(session);
        let given_up = running.end();
        session.tidy();
        Some((done, given_up))
    }

    pub(super) fn watchdog(&self) -> Option<&'static Watchdog> {
        self.watchdog
    }

    /// From now on no run counts as long, on whatever machine: for tests.
    pub(super) fn time_nothing(&mut self) {
        if let Some(session) = &mut self.session {
            session.is_timed = false;
        }
    }

    /// A statement was run in place and brought to its end there.
    pub(super) fn count_in_place_run(&mut self) {
        self.in_place_runs += 1;
    }

    /// How many were.
    pub(super) fn in_place_runs(&self) -> u64 {
        self.in_place_runs
    }

    /// Waits for the session to come home, and cancels the call it is out for if that
    /// is given up.
    async fn arrival(&mut self) -> Result<()> {
        let recall = self.recall();
        let arrived = poll_fn(|cx| self.poll_home(cx)).await;
        recall.call_off();
        arrived
    }

    /// Cancels the present call when it is dropped.
    pub(super) fn recall(&self) -> Recall {
        Recall {
            control: Some((Arc::clone(&self.control), self.call)),
        }
    }

    /// Ready when the session is here.
    pub(super) fn poll_home(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        if self.session.is_some() {
            return Poll::Ready(Ok(()));
        }
        if self.lost {
            return Poll::Ready(Err(error::lost()));
        }
        self.session = ready!(self.home.poll_recv(cx));
        self.lost = self.session.is_none();
        Poll::Ready(if self.lost {
            Err(error::lost())
        } else {
            Ok(())
        })
    }

    /// Cancels what runs, and waits until the session is here. Fine if it is.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it can be called again.
    pub(super) async fn settle(&mut self) -> Result<()> {
        poll_fn(|cx| {
            if self.session.is_none() {
                self.cancel();
            }
            self.poll_home(cx)
        })
        .await
    }

    /// Cancels the present call, and waits for nothing.
    pub(super) fn cancel(&self) {
        self.control.cancel(self.call);
    }

    /// The session, unless it is lent.
    pub(super) fn session(&self) -> Option<&Session> {
        self.session.as_deref()
    }

    /// The thread has ended.
    pub(super) fn is_lost(&self) -> bool {
        self.lost
    }

    /// Looks whether the thread has ended.
    pub(super) fn look(&mut self) {
        if let Some(thread) = &self.thread {
            self.lost |= thread.is_finished();
        }
    }

    /// Gives the thread away, for somebody who wants to see it end.
    pub(super) fn take_thread(&mut self) -> Option<JoinHandle<()>> {
        self.thread.take()
    }

    /// Closes the session on the thread, which ends then.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it is closed all the same.
    pub(super) async fn close(mut self) -> Result<()> {
        self.settle().await?;
        let session = self.session.take().ok_or_else(error::lost)?;
        let (answer, closed) = oneshot::channel();
        let answer = Some(answer);
        self.jobs
            .send(Job::Close { session, answer })
            .map_err(|_| error::lost())?;
        closed.await.unwrap_or_else(|_| Err(error::lost()))
    }
}

impl Drop for Worker {
    /// Closes the session on its thread, without waiting for it.
    fn drop(&mut self) {
        // What comes home after this goes back to the thread, which drops it.
        self.home.close();
        if let Ok(session) = self.home.try_recv() {
            self.session = Some(session);
        }
        match self.session.take() {
            Some(session) => {
                let answer = None;
                // If there is no thread, it is closed here: nobody else can.
                let _ = self.jobs.send(Job::Close { session, answer });
            }
            None => self.cancel(),
        }
    }
}

/// A program that runs in place. Dropped before its end, by a panic, nobody can tell what state the
/// session is in.
struct InPlace<'s> {
    session: &'s Session,
}

impl InPlace<'_> {
    /// Whether it was given up.
    fn end(self) -> bool {
        let given_up = self.session.control.end_in_place();
        std::mem::forget(self);
        given_up
    }
}

impl Drop for InPlace<'_> {
    fn drop(&mut self) {
        self.session.control.end_in_place();
        self.session.broken.set(true);
    }
}

/// Cancels a call when it is dropped, unless it has been called off.
#[must_use]
pub(super) struct Recall {
    control: Option<(Arc<Control>, u64)>,
}

impl Recall {
    pub(super) fn call_off(mut self) {
        self.control = None;
    }
}

impl Drop for Recall {
    fn drop(&mut self) {
        if let Some((control, call)) = &self.control {
            control.cancel(*call);
        }
    }
}

/// Opening is the first call.
const OPENING: u64 = 1;

/// The life of the thread: it ends when the session is closed or lost, or when nobody
/// wants it any more.
fn work(
    control: &Control,
    open: impl FnOnce() -> Result<Session>,
    refused: oneshot::Sender<Error>,
    jobs: &mpsc::Receiver<Job>,
    home: &UnboundedSender<Box<Session>>,
) {
    if !control.begin(OPENING) {
        return;
    }
    let session = catch_unwind(AssertUnwindSafe(open));
    control.end();
    match session {
        // If it is not wanted any more it is dropped, and so closed, right here.
        Ok(Ok(session)) => {
            if home.send(Box::new(session)).is_err() {
                return;
            }
        }
        Ok(Err(error)) => {
            // Nobody waits for it if the connect was given up.
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
                        session.heed_schema();
                    };
                    survived = catch_unwind(AssertUnwindSafe(run)).is_ok();
                }
                control.end();
                // After a panic nobody can tell what state it is in.
                if !survived || home.send(session).is_err() {
                    return;
                }
            }
            Job::Close { session, answer } => {
                let closed = session.close();
                if let Some(answer) = answer {
                    // Nobody waits for it if closing was given up.
                    let _ = answer.send(closed);
                }
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sqlite::functions::Functions;

    async fn worker() -> Worker {
        let control = Arc::new(Control::new(Duration::ZERO));
        let own = Arc::clone(&control);
        let open = move || {
            let db = rusqlite::Connection::open_in_memory().unwrap();
            own.interrupt_with(db.get_interrupt_handle());
            let alarm = Functions::default().register(&db, &own).unwrap();
            Ok(Session::new(db, own, alarm, 0))
        };
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
        let next = worker.call(|session| session.ping()).await;
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
        let control = Arc::new(Control::new(Duration::ZERO));
        let started = Worker::start(control, || panic!("a bug")).await;
        assert_eq!(started.unwrap_err().kind(), Kind::ConnectionLost);
    }

    const ENDLESS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
                           SELECT count(*) FROM n";

    #[tokio::test]
    async fn settling_cancels_by_itself() {
        let mut worker = worker().await;
        let mut answer = worker.send(|session| session.command(ENDLESS)).unwrap();
        worker.settle().await.unwrap();
        assert!(!matches!(answer.try_recv(), Ok(Ok(()))));
        worker.call(|session| session.ping()).await.unwrap();
    }

    #[tokio::test]
    async fn dropping_cancels_by_itself() {
        let mut worker = worker().await;
        let thread = worker.take_thread().unwrap();
        let _answer = worker.send(|session| session.command(ENDLESS)).unwrap();
        drop(worker);
        thread.join().unwrap();
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
        worker.call(|session| session.ping()).await.unwrap();
    }
}
