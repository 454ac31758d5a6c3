//! Polls futures by hand, drops them half-way, or limits their time.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

/// Polls a future once, with a waker that does nothing.
pub fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Returns the output of a future that is ready at its first poll.
///
/// # Panics
///
/// If the future is not ready.
#[track_caller]
pub fn now<F: Future>(future: F) -> F::Output {
    match poll_once(pin!(future)) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future is not ready at once"),
    }
}

/// Polls a future at most `polls` times, then drops it. Returns its output if it was ready before that.
///
/// With `polls` from 0 upwards until it gives `Some`, a test has cancelled the future at each
/// of its awaits:
///
/// ```
/// use cenote_testkit::poll::{cancel_after, yield_now};
///
/// let mut polls = 0;
/// while cancel_after(polls, async { yield_now().await; yield_now().await }).is_none() {
///     polls += 1;
/// }
/// assert_eq!(polls, 3);
/// ```
///
/// Nothing else runs between the polls; see [`cancel_after_with`] and [`drop_after`] for that.
pub fn cancel_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    cancel_after_with(polls, future, || {})
}

/// Polls a future at most `polls` times, then drops it, like [`cancel_after`]. Calls `between` after each pending
/// poll, to run what the future waits for.
pub fn cancel_after_with<F: Future>(
    polls: usize,
    future: F,
    mut between: impl FnMut(),
) -> Option<F::Output> {
    let mut hand = Hand::new(future);
    for _ in 0..polls {
        if let Poll::Ready(output) = hand.poll() {
            return Some(output);
        }
        between();
    }
    None
}

/// Awaits a future for at most `polls` polls, then drops it. Returns its output if it was ready before that.
///
/// The running executor polls the future when it is woken, so this works for drivers that wait for a socket or a
/// thread.
///
/// # Cancel safety
///
/// Dropped, it drops the future.
pub async fn drop_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(move |cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            // Without another poll to come, nobody need wake us.
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Returns a future that is pending once and wakes itself.
///
/// # Cancel safety
///
/// Dropped, nothing happens.
pub async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Awaits a future for at most `limit`, on any executor. Returns `None` if it takes longer.
///
/// A thread of its own wakes the future, so this works without a timer. Use it for tests that would hang
/// otherwise, not for tests about time.
///
/// # Cancel safety
///
/// Dropped, it drops the future.
pub async fn within<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    let alarm = Arc::new(Alarm::default());
    let (awake, asleep) = mpsc::channel::<()>();
    let rung = Arc::clone(&alarm);
    thread::spawn(move || {
        // The other end is dropped with the future: then there is nobody to wake.
        if asleep.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
            rung.ring();
        }
    });
    let mut future = pin!(future);
    let output = poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        match alarm.has_rung(cx.waker()) {
            true => Poll::Ready(None),
            false => Poll::Pending,
        }
    })
    .await;
    drop(awake);
    output
}

#[derive(Default)]
struct Alarm {
    state: std::sync::Mutex<(bool, Option<Waker>)>,
}

impl Alarm {
    fn ring(&self) {
        let mut state = self.state.lock().expect("nothing panics under this lock");
        state.0 = true;
        let waker = state.1.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn has_rung(&self, waker: &Waker) -> bool {
        let waker = waker.clone();
        let mut state = self.state.lock().expect("nothing panics under this lock");
        let before = state.1.replace(waker);
        let has_rung = state.0;
        drop(state);
        drop(before);
        has_rung
    }
}

/// Runs a future to its end and blocks this thread while it waits.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(thread::Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        thread::park();
    }
}

/// A future that is polled by hand, and counts how often it was woken.
///
/// Dropping it cancels the future.
///
/// ```
/// use cenote_testkit::poll::{Hand, yield_now};
///
/// let mut hand = Hand::new(yield_now());
/// hand.waits();
/// assert!(hand.is_woken());
/// hand.done();
/// ```
pub struct Hand<F: Future> {
    future: Pin<Box<F>>,
    wakes: Arc<Wakes>,
}

/// A waker that only counts.
#[derive(Default)]
pub(crate) struct Wakes {
    /// Woken since the last poll.
    woken: AtomicBool,
    times: AtomicUsize,
}

impl Wakes {
    pub(crate) fn woken() -> Self {
        Wakes {
            woken: AtomicBool::new(true),
            times: AtomicUsize::new(0),
        }
    }

    pub(crate) fn is_woken(&self) -> bool {
        self.woken.load(Ordering::SeqCst)
    }

    pub(crate) fn forget(&self) {
        self.woken.store(false, Ordering::SeqCst);
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.times.fetch_add(1, Ordering::SeqCst);
        self.woken.store(true, Ordering::SeqCst);
    }
}

impl<F: Future> Hand<F> {
    /// Wraps a future without polling it.
    pub fn new(future: F) -> Self {
        Hand {
            future: Box::pin(future),
            wakes: Arc::default(),
        }
    }

    /// Polls the future once.
    pub fn poll(&mut self) -> Poll<F::Output> {
        self.wakes.forget();
        let waker = Waker::from(Arc::clone(&self.wakes));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    /// Polls the future once and returns its output.
    ///
    /// # Panics
    ///
    /// If the future is not ready.
    #[track_caller]
    pub fn done(&mut self) -> F::Output {
        match self.poll() {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("the future is not done"),
        }
    }

    /// Polls the future once and checks that it is pending.
    ///
    /// # Panics
    ///
    /// If the future is ready.
    #[track_caller]
    pub fn waits(&mut self) {
        assert!(self.poll().is_pending(), "the future does not wait");
    }

    /// Polls the future as long as it is woken, and returns its output.
    ///
    /// # Panics
    ///
    /// If the future is pending and was not woken.
    #[track_caller]
    pub fn finish(&mut self) -> F::Output {
        loop {
            if let Poll::Ready(output) = self.poll() {
                return output;
            }
            assert!(self.is_woken(), "the future waits, and nobody has woken it");
        }
    }

    /// Returns whether the future was woken since its last poll.
    pub fn is_woken(&self) -> bool {
        self.wakes.is_woken()
    }

    /// Returns how often the future was woken in total.
    pub fn wakes(&self) -> usize {
        self.wakes.times.load(Ordering::SeqCst)
    }
}

impl<F: Future> fmt::Debug for Hand<F> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Hand")
            .field("is_woken", &self.is_woken())
            .field("wakes", &self.wakes())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes when it is dropped.
    struct Noted<'n>(&'n AtomicBool);

    impl Drop for Noted<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_future_that_is_cancelled_after_no_polls_has_not_begun() {
        let begun = AtomicBool::new(false);
        let future = async { begun.store(true, Ordering::SeqCst) };
        assert_eq!(cancel_after(0, future), None);
        assert!(!begun.load(Ordering::SeqCst));
    }

    #[test]
    fn a_cancelled_future_is_dropped_at_the_await_it_had_come_to() {
        let dropped = AtomicBool::new(false);
        let come_to = AtomicUsize::new(0);
        let future = async {
            let _noted = Noted(&dropped);
            for n in 1..10 {
                come_to.store(n, Ordering::SeqCst);
                yield_now().await;
            }
        };
        assert_eq!(cancel_after(3, future), None);
        assert!(dropped.load(Ordering::SeqCst));
        assert_eq!(come_to.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn what_is_to_run_between_the_polls_runs_after_each_that_waits() {
        let mut runs = 0;
        let done = cancel_after_with(9, async { yield_now().await }, || runs += 1);
        assert_eq!((done, runs), (Some(()), 1));
    }

    #[test]
    fn drop_after_polls_at_most_the_given_number_of_times() {
        let polls = AtomicUsize::new(0);
        let counted = || {
            poll_fn(|cx| {
                polls.fetch_add(1, Ordering::SeqCst);
                cx.waker().wake_by_ref();
                Poll::<()>::Pending
            })
        };
        assert_eq!(block_on(drop_after(4, counted())), None);
        assert_eq!(polls.swap(0, Ordering::SeqCst), 4);
        assert_eq!(block_on(drop_after(0, counted())), None);
        assert_eq!(polls.load(Ordering::SeqCst), 0);
        assert_eq!(block_on(drop_after(2, yield_now())), Some(()));
    }

    #[test]
    fn a_future_that_never_ends_is_given_up_when_its_time_is_over() {
        let limit = Duration::from_millis(1);
        let never = std::future::pending::<()>();
        assert_eq!(block_on(within(limit, never)), None);
        let hour = Duration::from_secs(3600);
        assert_eq!(block_on(within(hour, yield_now())), Some(()));
    }

    #[test]
    fn a_hand_counts_the_wakes_and_forgets_them_at_the_next_poll() {
        let mut hand = Hand::new(async {
            yield_now().await;
            std::future::pending::<()>().await;
        });
        hand.waits();
        assert!(hand.is_woken());
        hand.waits();
        assert!(!hand.is_woken());
        assert_eq!(hand.wakes(), 1);
    }

    #[test]
    #[should_panic(expected = "nobody has woken it")]
    fn a_future_without_a_wake_is_not_polled_for_ever() {
        Hand::new(std::future::pending::<()>()).finish();
    }

    #[test]
    #[should_panic(expected = "not ready at once")]
    fn a_future_that_has_to_wait_is_not_ready_now() {
        now(yield_now());
    }
}
