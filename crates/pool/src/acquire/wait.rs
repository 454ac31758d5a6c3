//! The wait of one acquire: its caller, its beginning, its deadline, and who is informed about it.

use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::acquire::idle;
use crate::core::slot::Slot;
use crate::core::waiters::Began;
use crate::core::{Core, Filled, signal};
use crate::error::{AcquireError, Phase, Timeout};
use crate::manager::Manager;
use crate::observe::events::Event;
use crate::observe::log;

/// Every waiting task contains one, so it is small.
pub(crate) struct Wait {
    pub(crate) caller: &'static Location<'static>,
    pub(crate) timeout: Option<Duration>,
    began: Began,
}

impl Wait {
    #[inline]
    pub(crate) fn new(caller: &'static Location<'static>, timeout: Option<Duration>) -> Self {
        Wait {
            caller,
            timeout,
            began: Began::NotYet,
        }
    }

    /// A wait that has begun already, for tests of the state alone.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn begun(timeout: Option<Duration>, now: Instant) -> Self {
        Wait {
            caller: Location::caller(),
            timeout,
            began: Began::Precisely(now),
        }
    }

    /// Starts the clock of the wait: by the coarse clock, unless there is a deadline or a histogram.
    pub(crate) fn begin<M: Manager>(&mut self, core: &Core<M>) {
        if self.has_begun() {
            return;
        }
        self.began = match self.timeout.is_some() || core.histograms.is_some() {
            true => Began::Precisely(core.now()),
            false => Began::Roughly(core.runtime.coarse_now()),
        };
    }

    #[inline]
    pub(crate) fn has_begun(&self) -> bool {
        !matches!(self.began, Began::NotYet)
    }

    pub(crate) fn began(&self) -> Began {
        self.began
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.began {
            Began::Precisely(began) => began.checked_add(self.timeout?),
            Began::Roughly(_) | Began::NotYet => None,
        }
    }

    fn took<M: Manager>(&self, core: &Core<M>, coarse_now: u64) -> Duration {
        self.began.elapsed(|| core.now(), coarse_now)
    }

    /// Ends the wait with a lease: notes the holder of the slot, and reports how long it took.
    #[inline(never)]
    pub(crate) fn served<M: Manager>(&self, core: &Core<M>, slot: &Slot<Filled<M>>) {
        let now = core.runtime.coarse_now();
        slot.note_holder(self.caller, now);
        idle::used(core, slot);
        // By the coarse clock most waits take no time.
        let at_once = matches!(self.began, Began::Roughly(began) if began == now);
        if !at_once || core.signals() & signal::OBSERVED != 0 {
            self.report(core, slot, now);
        }
    }

    fn report<M: Manager>(&self, core: &Core<M>, slot: &Slot<Filled<M>>, now: u64) {
        let (caller, waited) = (self.caller, self.took(core, now));
        if let Some(histograms) = &core.histograms {
            histograms.wait.record(waited);
        }
        if core.signals() & signal::OBSERVED != 0 {
            let resource = core.state().metas[slot.index()].id;
            core.emit(&Event::Acquired {
                resource,
                caller,
                waited,
            });
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
        let waited = self.took(core, core.runtime.coarse_now());
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
