//! What happened when: faults and quiet moments, each with its beginning and its end.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A fault or a quiet moment, in time since the start of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Phase {
    /// Its name for people.
    pub name: &'static str,
    /// When it began.
    pub from: Duration,
    /// When it ended; `None` while it lasts.
    pub to: Option<Duration>,
}

/// All phases so far, in the order in which they began.
#[derive(Debug, Default)]
pub(crate) struct Phases(Mutex<Vec<Phase>>);

impl Phases {
    fn list(&self) -> MutexGuard<'_, Vec<Phase>> {
        // Nothing that can panic runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(&self, name: &'static str, now: Duration) {
        self.list().push(Phase {
            name,
            from: now,
            to: None,
        });
    }

    /// Ends all that last.
    pub(crate) fn end(&self, now: Duration) {
        let mut list = self.list();
        for phase in list.iter_mut().rev().take_while(|phase| phase.to.is_none()) {
            phase.to = Some(now);
        }
    }

    pub(crate) fn all(&self) -> Vec<Phase> {
        self.list().clone()
    }

    /// Returns those that last; if none does, the last that ended.
    pub(crate) fn latest(&self) -> Vec<Phase> {
        let list = self.list();
        let lasting = list.iter().rev().take_while(|phase| phase.to.is_none());
        let count = lasting.count().max(1).min(list.len());
        list[list.len() - count..].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_latest_phases_last_or_have_just_ended() {
        let phases = Phases::default();
        assert_eq!(phases.latest(), []);
        phases.begin("slow", at(1));
        phases.begin("cut", at(2));
        let names = |phases: &Phases| {
            let latest = phases.latest();
            latest.iter().map(|it| (it.name, it.to)).collect::<Vec<_>>()
        };
        assert_eq!(names(&phases), [("slow", None), ("cut", None)]);
        phases.end(at(3));
        assert_eq!(names(&phases), [("cut", Some(at(3)))]);
        phases.begin("quiet", at(4));
        assert_eq!(names(&phases), [("quiet", None)]);
        phases.end(at(5));
        let ends: Vec<_> = phases.all().iter().map(|it| it.to).collect();
        assert_eq!(ends, [Some(at(3)), Some(at(3)), Some(at(5))]);
    }
}
