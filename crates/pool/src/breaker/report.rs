//! Reports to the breaker's strategy and questions to it, all outside the lock.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::breaker::{Advice, BreakerState, Failure, Report, Strategy};
use crate::core::{Core, signal};
use crate::error::panic_message;
use crate::manager::Manager;
use crate::observe::events::Event;
use crate::observe::log;
use crate::user_code::{Contained, drop_contained};

impl<M: Manager> Core<M> {
    /// Reports a success (`None`) or a failure to the strategy, if there is one.
    #[inline]
    pub(crate) fn report(self: &Arc<Self>, failure: Option<&Failure>) {
        // On a closed pool only destructors run.
        if self.signals() & (signal::REPORTS | signal::CLOSED) == signal::REPORTS {
            self.report_to_strategy(failure);
        }
    }

    #[cold]
    fn report_to_strategy(self: &Arc<Self>, failure: Option<&Failure>) {
        let (strategy, state, epoch) = {
            let mut locked = self.state();
            let Some(strategy) = locked.breaker.strategy().cloned() else {
                return;
            };
            // This may become the last reference, if another strategy is set meanwhile.
            let strategy = Contained::new(strategy);
            locked.breaker.count_report(failure.is_some());
            (strategy, locked.breaker.state(), locked.breaker.epoch())
        };
        let now = self.now();
        let report = Report {
            pool: self.id,
            state,
            now,
            failure,
        };
        let advice = self.ask(|| match failure {
            None => {
                strategy.report_success(&report);
                Advice::Stay
            }
            Some(_) => strategy.report_failure(&report),
        });
        if advice != Some(Advice::Open) {
            return;
        }
        self.locked(|locked| {
            // A transition since then, by hand or by a probe, is newer and wins.
            if locked.state.breaker.epoch() == epoch && state == BreakerState::Closed {
                locked.move_breaker(BreakerState::Open, false);
            }
        });
    }

    /// Asks the strategy, if that is due, whether an open breaker may admit probes.
    #[inline]
    pub(crate) fn consider_recovery(self: &Arc<Self>) {
        if self.signals() & signal::REPORTS != 0 {
            self.ask_about_recovery();
        }
    }

    #[cold]
    fn ask_about_recovery(self: &Arc<Self>) {
        let now = self.now();
        let Some((strategy, epoch)) = self.state().breaker.due_question(now) else {
            return;
        };
        let strategy = Contained::new(strategy);
        let recover = self.ask(|| strategy.should_recover(now)).unwrap_or(false);
        self.locked(|locked| {
            if locked.state.breaker.epoch() != epoch {
                return;
            }
            if recover {
                locked.move_breaker(BreakerState::HalfOpen, false);
            } else {
                locked.state.breaker.ask_again(now);
            }
        });
    }

    /// Installs a strategy, or none.
    pub(crate) fn set_strategy(self: &Arc<Self>, strategy: Option<Arc<dyn Strategy>>) {
        let numbers = strategy
            .as_ref()
            .and_then(|strategy| self.ask(|| (strategy.probes(), strategy.cool_down())));
        let (probes, cool_down) = numbers.unwrap_or((1, std::time::Duration::from_secs(5)));
        let old = self.locked(|locked| {
            let breaker = &mut locked.state.breaker;
            let old = breaker.set_strategy(strategy, probes, cool_down);
            locked.state.update_watch_flags(locked.slots);
            old
        });
        // Its drop is user code, which runs after the unlock.
        drop_contained(old);
    }

    fn ask<T>(&self, question: impl FnOnce() -> T) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(question)) {
            Ok(answer) => Some(answer),
            Err(panic) => {
                let error = panic_message(panic);
                log::strategy_panicked(self.name(), &error);
                self.emit(&Event::StrategyPanicked { error });
                None
            }
        }
    }
}
