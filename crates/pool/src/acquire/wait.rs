//! The wait of one acquire: its caller, its beginning, its deadline, and who is informed about it.

use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::acquire::idle;
use crate::core::slot::Slot;
use crate::core::{Core, Filled, signal};
use crate::error::{AcquireError, Phase, Timeout};
use crate::manager::Manager;
use crate::observe::events::Event;
use crate::observe::histogram::WaitCause;
use crate::observe::log;

/// Every waiting task contains one, so it is small.
pub(crate) struct Wait {
    pub(crate) caller: &'static Location<'static>,
    pub(crate) timeout: Option<Duration>,
    /// `None` until something has to be waited for.
    began: Option<Instant>,
}

impl Wait {
    #[inline]
    pub(crate) fn new(caller: &'static Location<'static>, timeout: Option<Duration>) -> Self {
        Wait {
            caller,
            timeout,
            began: None,
        }
    }

    /// A wait that has begun already, for tests of the state alone.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn begun(timeout: Option<Duration>, now: Instant) -> Self {
        Wait {
            caller: Location::caller(),
            timeout,
            began: Some(now),
        }
    }

    /// Starts the clock of the wait, unless it runs already.
    pub(crate) fn begin<M: Manager>(&mut self, core: &Core<M>) {
        self.began.get_or_insert_with(|| core.now());
    }

    #[inline]
    pub(crate) fn has_begun(&self) -> bool {
        self.began.is_some()
    }

    pub(crate) fn began(&self) -> Option<Instant> {
        self.began
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.began?.checked_add(self.timeout?)
    }

    /// Returns how long the wait has lasted.
    fn lasted<M: Manager>(&self, core: &Core<M>) -> Duration {
        self.began.map_or(Duration::ZERO, |began| {
            core.now().saturating_duration_since(began)
        })
    }

    /// Ends the wait with a lease: notes the holder of the slot, and reports how long it took.
    /// `cause` is what the acquire waited for; `None` if it found an idle resource under the lock.
    #[inline(never)]
    pub(crate) fn served<M: Manager>(
        &self,
        core: &Core<M>,
        slot: &Slot<Filled<M>>,
        cause: Option<WaitCause>,
    ) {
        let (caller, waited) = (self.caller, self.lasted(core));
        slot.note_holder(caller, core.runtime.coarse_now());
        idle::used(core, slot);
        if let Some(cause) = cause {
            core.histograms.record_wait(cause, waited);
        }
        if core.signals() & signal::OBSERVED != 0 {
            let resource = core.state().metas[slot.index()].id;
            core.emit(&Event::Acquired {
                resource,
                caller,
                waited,
            });
            core.update_console();
        }
        let slow = core.config.slow_acquire_warning;
        if slow.is_some_and(|slow| waited >= slow) {
            log::slow_acquire(core.name(), waited, caller);
        }
    }

    /// Returns the error of a wait whose deadline passed.
    #[cold]
    pub(crate) fn timed_out<M: Manager>(
        &self,
        core: &Arc<Core<M>>,
        phase: Phase,
    ) -> AcquireError<M::Error> {
        let holders = core.holders(3);
        let caller = self.caller;
        let waited = self.lasted(core);
        let timeout = core.locked(|locked| {
            locked.state.counters.timed_out += 1;
            locked.note(|| Event::TimedOut { caller, phase });
            Timeout {
                phase,
                waited,
                status: locked.state.status(locked.slots),
                last_creation_error: locked.state.last_creation_error.clone(),
                oldest_holders: holders,
            }
        });
        AcquireError::Timeout(Box::new(timeout))
    }
}
