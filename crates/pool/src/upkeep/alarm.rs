//! The alarm: it enforces deadlines and the back-off while nobody drives the pool's executor.
//!
//! The maintenance task runs on that executor. If the executor needs a thread that drives it
//! ([`Runtime::needs_driving`](crate::Runtime::needs_driving)), that thread may poll an acquire under another
//! executor's `block_on`, or block. So the built-in thread wakes a moment after maintenance is due. If
//! maintenance has not run, the thread does what waiters depend on. Health checks, refills and
//! replacements stay with the maintenance task.

use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use crate::acquire::create;
use crate::core::Core;
use crate::manager::Manager;
use crate::runtime::Timer;
use crate::sync::Mutex;

/// How much later than the maintenance task the alarm goes off.
const GRACE: Duration = Duration::from_millis(5);

/// When the alarm goes off, if it is set. Only the built-in thread's own lock is taken under this one.
pub(crate) struct Alarm(Mutex<Option<(Instant, Timer)>>);

impl Default for Alarm {
    fn default() -> Self {
        Alarm(Mutex::new(None))
    }
}

impl<M: Manager> Core<M> {
    /// Sets the alarm to this time or earlier.
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
        let waker = Waker::from(Arc::new(AlarmWaker(Arc::downgrade(self))));
        let old = alarm.replace((at, Timer::new(at, waker)));
        drop(alarm);
        drop(old);
    }

    /// Does what is due for waiters, if the maintenance task is late.
    fn stand_in_for_maintenance(self: &Arc<Self>) {
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
            // Maintenance is late or gone. A change that is due earlier wakes it and sets the alarm.
            let due = locked.state.waiters_due(now);
            if let Some(next) = &mut locked.state.maintenance {
                *next = due;
            }
            due
        });
        self.set_alarm(due);
    }
}

/// The waker of the timer, which runs on the built-in thread.
struct AlarmWaker<M: Manager>(Weak<Core<M>>);

impl<M: Manager> Wake for AlarmWaker<M> {
    fn wake(self: Arc<Self>) {
        let Some(core) = self.0.upgrade() else { return };
        // The timer that has gone off is dropped after the unlock.
        let spent = core.alarm.0.lock().take();
        drop(spent);
        core.stand_in_for_maintenance();
    }
}
