//! The wait of one acquire: who, since when, for how long at most, and whom that
//! concerns.

use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::acquire::idle;
use crate::core::slot::Slot;
use crate::core::{Core, Filled, signal};
use crate::error::{AcquireError, Phase, Timeout};
use crate::manager::Manager;
use crate::observe::events::Event;
use crate::observe::log;

/// Lies in every task that waits, so it is small.
pub(crate) struct Wait {
    pub(crate) caller: &'static Location<'static>,
    pub(crate) timeout: Option<Duration>,
    began: Began,
}

/// When an acquire began to wait: by the coarse clock, unless there is a deadline
/// or a histogram.
#[derive(Clone, Copy)]
enum Began {
    NotYet,
    Roughly(u64),
    Precisely(Instant),
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

    /// Notes when the wait began; the deadline is reckoned from there.
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

    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.began {
            Began::Precisely(began) => began.checked_add(self.timeout?),
            Began::Roughly(_) | Began::NotYet => None,
        }
    }

    fn took<M: Manager>(&self, core: &Core<M>, coarse_now: u64) -> Duration {
        match self.began {
            Began::NotYet => Duration::ZERO,
            Began::Roughly(began) => Duration::from_nanos(coarse_now.saturating_sub(began)),
            Began::Precisely(began) => core.now().saturating_duration_since(began),
        }
    }

    /// It ended with a lease: notes who has the slot, and tells all who want to
    /// know how long that took.
    #[inline(never)]
    pub(crate) fn served<M: Manager>(&self, core: &Core<M>, slot: &Slot<Filled<M>>) {
        let now = core.runtime.coarse_now();
        slot.note_holder(self.caller, now);
        idle::used(core, slot);
        // By the coarse clock most waits take no time at all.
        let at_once = matches!(self.began, Began::Roughly(began) if began == now);
        if !at_once || core.signals() & signal::OBSERVED != 0 {
            self.tell(core, slot, now);
        }
    }

    fn tell<M: Manager>(&self, core: &Core<M>, slot: &Slot<Filled<M>>, now: u64) {
        let (caller, waited) = (self.caller, self.took(core, now));
        if let Some(histograms) = &core.histograms {
            histograms.wait.record(waited);
        }
        if core.signals() & signal::OBSERVED != 0 {
            let resource = core.state().metas[slot.index()].id;
            core.tell(&Event::Acquired {
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

    /// The story of a deadline that passed.
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
