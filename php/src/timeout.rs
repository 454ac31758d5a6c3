//! `Async\Timeout`: a cancellation token that trips after a time.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use crate::completion::Completion;
use crate::engine::{Exception, ExceptionClass};
use crate::scheduler::scheduler;
use crate::timer::{Sleep, now};
use crate::wake::Id;

pub(crate) struct Timeout {
    pub(crate) completion: Completion,
    task: Cell<Option<Id>>,
}

impl Timeout {
    /// Starts the time.
    pub(crate) fn start(after: Duration) -> Rc<Self> {
        let timeout = Rc::new(Timeout {
            completion: Completion::new(),
            task: Cell::new(None),
        });
        timeout.completion.ignore();
        let weak = Rc::downgrade(&timeout);
        // A time that the clock cannot express never comes.
        if let Some(until) = now().checked_add(after) {
            let task = scheduler().add_task(Box::pin(async move {
                Sleep::new(until, true).await;
                if let Some(timeout) = weak.upgrade() {
                    timeout.task.set(None);
                    let text = format!("Timeout occurred after {} milliseconds", after.as_millis());
                    let error = Exception::new(ExceptionClass::Timeout, &text, None);
                    drop(timeout.completion.settle(Err(error)));
                }
            }));
            timeout.task.set(Some(task));
        }
        timeout
    }

    /// Stops the time: the token never trips.
    pub(crate) fn stop(&self) {
        if let Some(task) = self.task.take() {
            scheduler().drop_task(task);
        }
    }
}
