//! A PHP callable as a future: the hooks of a pool.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::coroutine::Coroutine;
use crate::engine::{Call, Exception, Value};
use crate::fiber::{self};
use crate::scheduler::scheduler;

/// Runs a call in a coroutine of its own, which starts at the first poll. Dropping the future cancels the
/// coroutine. A fatal error or `exit` in it leaves the future pending; the scheduler then ends who polls.
pub(crate) struct Callback {
    state: State,
}

enum State {
    New(Call),
    /// With the place of the waker among those that wait for the coroutine.
    Started(Rc<Coroutine>, Option<u64>),
    Done,
}

impl Callback {
    pub(crate) fn new(call: Call) -> Self {
        Callback {
            state: State::New(call),
        }
    }

    /// Calls a method and returns its result, unless it suspends or fails. Then it goes on by itself.
    pub(crate) fn run_now(call: Call) -> Option<Result<Value, Exception>> {
        let scheduler = scheduler();
        if fiber::is_switch_blocked() {
            return match call.run_guarded() {
                Ok(result) => Some(result),
                Err(bailout) => {
                    scheduler.note_bailout(bailout);
                    None
                }
            };
        }
        match scheduler.start_now(call) {
            Ok(coroutine) => coroutine.completion.result(),
            Err(exception) => Some(Err(exception)),
        }
    }

    fn start(&mut self, call: Call) -> Poll<Result<Value, Exception>> {
        let scheduler = scheduler();
        if fiber::is_switch_blocked() {
            return match call.run_guarded() {
                Ok(result) => Poll::Ready(result),
                Err(bailout) => {
                    scheduler.note_bailout(bailout);
                    Poll::Pending
                }
            };
        }
        match scheduler.start_now(call) {
            Ok(coroutine) => {
                self.state = State::Started(coroutine, None);
                Poll::Pending
            }
            Err(exception) => Poll::Ready(Err(exception)),
        }
    }
}

impl Future for Callback {
    type Output = Result<Value, Exception>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::New(_) = self.state {
            let State::New(call) = std::mem::replace(&mut self.state, State::Done) else {
                return Poll::Pending;
            };
            if let Poll::Ready(result) = self.start(call) {
                return Poll::Ready(result);
            }
        }
        let State::Started(coroutine, place) = &mut self.state else {
            return Poll::Pending;
        };
        if let Some(place) = place.take() {
            coroutine.completion.leave(place);
        }
        match coroutine.completion.result() {
            Some(result) => {
                self.state = State::Done;
                Poll::Ready(result)
            }
            None => {
                *place = Some(coroutine.completion.wait(cx.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl Drop for Callback {
    fn drop(&mut self) {
        if let State::Started(coroutine, place) = &self.state
            && !coroutine.completion.is_done()
        {
            if let Some(place) = place {
                coroutine.completion.leave(*place);
            }
            let scheduler = scheduler();
            if !scheduler.is_over() {
                scheduler.cancel(coroutine, None);
            }
        }
    }
}
