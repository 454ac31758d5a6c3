//! What the tests share: a fake database on a runtime that the test moves by hand.

use std::future::Future;
use std::ops::Deref;
use std::sync::mpsc;
use std::task::Poll;
use std::time::Duration;

use cenote::driver::Value;
use cenote::pool::Runtime;
use cenote::{Builder, Db, Error, Kind, Result};
use cenote_testkit::poll::{Hand, yield_now};
use cenote_testkit::{Fake, ManualRuntime};

pub(crate) const ONE: &str = "INSERT INTO t VALUES (1)";
pub(crate) const TWO: &str = "INSERT INTO t VALUES (2)";
pub(crate) const THREE: &str = "INSERT INTO t VALUES (3)";
pub(crate) const FOUR: &str = "INSERT INTO t VALUES (4)";

/// A fake database and a handle on it. When it is dropped, the fake panics if its contract was
/// broken.
pub(crate) struct World {
    pub(crate) db: Db,
    pub(crate) fake: Fake,
    pub(crate) runtime: ManualRuntime,
}

impl Deref for World {
    type Target = Fake;

    fn deref(&self) -> &Fake {
        &self.fake
    }
}

impl World {
    /// A world with at most `max` connections.
    pub(crate) fn new(max: usize) -> Self {
        World::with(|builder| builder.max(max))
    }

    pub(crate) fn with(describe: impl FnOnce(Builder) -> Builder) -> Self {
        World::on(ManualRuntime::new(), describe)
    }

    /// Another database on the same runtime.
    pub(crate) fn neighbour(&self) -> Self {
        World::on(self.runtime.clone(), |builder| builder.max(3))
    }

    fn on(runtime: ManualRuntime, describe: impl FnOnce(Builder) -> Builder) -> Self {
        let fake = Fake::new();
        let builder = describe(fake.builder().runtime(runtime.clone()));
        let db = runtime.finish(builder.open()).expect("it opens");
        World { db, fake, runtime }
    }

    /// A world whose transactions begin with their first statement.
    pub(crate) fn lazy(max: usize) -> Self {
        let world = World::new(max);
        world.lazy_begin(true);
        world
    }

    /// Runs a future to its end. A future that is never woken fails the test.
    #[track_caller]
    pub(crate) fn run<F: Future>(&self, future: F) -> F::Output {
        self.runtime.finish(future)
    }

    /// Runs a future as a coroutine.
    #[track_caller]
    pub(crate) fn scope<F: Future>(&self, future: F) -> F::Output {
        self.run(cenote::scope(future))
    }

    /// Starts a task beside the test.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(Box::pin(task));
    }

    /// Advances the clock and runs the other tasks.
    pub(crate) async fn pass(&self, time: Duration) {
        let outside = async { self.runtime.advance(time) };
        cenote::detached(outside).await;
        yield_now().await;
    }

    /// Returns the committed rows of the table.
    pub(crate) fn committed(&self) -> Vec<i64> {
        let rows = self.rows("t").into_iter();
        rows.map(|row| match row.as_slice() {
            [Value::Int(n)] => *n,
            other => panic!("an unexpected row: {other:?}"),
        })
        .collect()
    }

    /// Checks that no connection is in use and no transaction is open.
    #[track_caller]
    pub(crate) fn is_whole(&self) {
        self.runtime.run();
        let status = self.db.status();
        let counts = (status.active, status.creating, status.total);
        assert_eq!(counts, (0, 0, status.idle), "{status:?}");
        assert_eq!(self.open_transactions(), [0; 0]);
    }

    /// How many lines of the log since it was last taken contain this.
    pub(crate) fn count(&self, pattern: &str) -> usize {
        let log = self.log();
        log.iter().filter(|line| line.contains(pattern)).count()
    }

    /// Returns the position of a line in the log.
    #[track_caller]
    pub(crate) fn place_of(&self, line: &str) -> usize {
        let log = self.log();
        let place = log.iter().position(|logged| logged == line);
        place.unwrap_or_else(|| panic!("there is no line `{line}` in {log:#?}"))
    }
}

/// Polls a call until it waits for another task, and the other tasks have run as far as they can.
///
/// # Panics
///
/// If the call ends.
pub(crate) async fn stuck<F: Future>(call: &mut Hand<F>) {
    loop {
        call.waits();
        yield_now().await;
        if !call.is_woken() {
            return;
        }
    }
}

/// Starts a call that has to wait.
pub(crate) async fn started<F: Future>(call: F) -> Hand<F> {
    let mut call = Hand::new(call);
    stuck(&mut call).await;
    call
}

/// Starts a call that has to wait, and drops it.
pub(crate) async fn dropped<F: Future>(call: F) {
    drop(started(call).await);
}

/// Polls a call to its end, while the others run.
pub(crate) async fn ended<F: Future>(call: &mut Hand<F>) -> F::Output {
    loop {
        if let Poll::Ready(output) = call.poll() {
            return output;
        }
        yield_now().await;
        assert!(call.is_woken(), "it waits, and nobody has woken it");
    }
}

/// The kind of a failure.
#[track_caller]
pub(crate) fn kind<T>(done: Result<T>) -> Kind {
    match done {
        Ok(_) => panic!("it succeeded"),
        Err(error) => error.kind(),
    }
}

/// An error to leave a transaction with.
pub(crate) fn no<T>() -> Result<T> {
    Err(Error::other("no"))
}

/// Runs a test that would never end if it failed, not even by waiting.
#[track_caller]
pub(crate) fn comes_to_an_end(test: impl FnOnce() + Send + 'static) {
    let (send, ended) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        test();
        drop(send);
    });
    let ended = ended.recv_timeout(Duration::from_secs(20));
    assert_ne!(
        ended,
        Err::<(), _>(mpsc::RecvTimeoutError::Timeout),
        "it runs for ever"
    );
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}
