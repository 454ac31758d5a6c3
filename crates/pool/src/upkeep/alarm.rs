//! The alarm: deadlines and the back-off pass while nobody drives the pool's executor.
//!
//! The maintenance task is a task of that executor. Where the executor needs a thread that drives it
//! ([`Runtime::needs_driving`](crate::Runtime::needs_driving)), the thread may do something else: poll an
//! acquire under another executor's `block_on`, or block. So whatever the maintenance task is to do at some time, the
//! built-in thread checks a moment later: if the maintenance task did not come, it serves those who wait itself.
//! Health checks, refills and replacements stay with the maintenance task.

use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use crate::acquire::create;
use crate::core::Core;
use crate::manager::Manager;
use crate::runtime::Timer;
use crate::sync::Mutex;

/// How much later than the maintenance task the alarm comes.
const GRACE: Duration = Duration::from_millis(5);

/// When the built-in thread looks, if it has to. Nothing but that thread's own lock is taken under this one.
pub(crate) struct Alarm(Mutex<Option<(Instant, Timer)>>);

impl Default for Alarm {
    fn default() -> Self {
        Alarm(Mutex::new(None))
    }
}

impl<M: Manager> Core<M> {
    /// Sees to it that the built-in thread looks soon after this time, or earlier.
    pub(crate) fn set_alarm(self: &Arc<Self>, due: Option<Instant>) {
        let Some(due) = due else { return };
        if !self.needs_driving() {
            return;
        }
        let Some(at) = due.max(self.now()).checked_add(GRACE) else {
            return;
        };
        let mut alarm = self.alarm.0.lock();
        if alarm.as_ref().is_some_and(|(set, _)| *set <= at) {
            return;
        }
        let waker = Waker::from(Arc::new(Ring(Arc::downgrade(self))));
        let old = alarm.replace((at, Timer::new(at, waker)));
        drop(alarm);
        drop(old);
    }

    /// Serves those who wait, if the maintenance task should have and did not.
    fn look_instead_of_keeper(self: &Arc<Self>) {
        create::end_overdue(self);
        let due = self.locked(|locked| {
            if locked.state.closed {
                return None;
            }
            locked.pass_time();
            let now = locked.clock.now();
            if let Some(Some(next)) = locked.state.maintenance
                && next > now
            {
                return Some(next);
            }
            // The maintenance task is late or gone. A change that is due earlier wakes it and sets the alarm.
            let due = locked.state.waiters_due(now);
            if let Some(next) = &mut locked.state.maintenance {
                *next = due;
            }
            due
        });
        self.set_alarm(due);
    }
}

/// What the timer wakes, on the built-in thread.
struct Ring<M: Manager>(Weak<Core<M>>);

impl<M: Manager> Wake for Ring<M> {
    fn wake(self: Arc<Self>) {
        let Some(core) = self.0.upgrade() else { return };
        // The timer that has just gone off; dropped after the lock.
        let spent = core.alarm.0.lock().take();
        drop(spent);
        core.look_instead_of_keeper();
    }
}
