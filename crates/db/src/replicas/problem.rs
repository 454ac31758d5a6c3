//! Why a replica gets no reads, and why a read runs on the primary.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{PrimaryReads, ReplicaAnswer};
use crate::driver::History;

/// Why a replica gets no reads, as [`ReplicaStatus`](super::ReplicaStatus) shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReplicaProblem {
    /// It has not been asked yet: nobody has called [`Db::reading`](crate::Db::reading).
    NotAsked,
    /// It did not answer when it was asked last.
    Unreachable,
    /// A read or a connect failed on it, and it has not been asked since.
    Failed,
    /// It follows no other server: it is a primary, or was promoted.
    Primary,
    /// The primary has not told yet how far it is.
    PrimaryUnknown,
    /// It follows another primary or another timeline, or does not say which.
    OtherTimeline,
    /// It lags by more than [`max_replica_lag`](crate::Builder::max_replica_lag).
    Lagging,
}

impl fmt::Display for ReplicaProblem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            ReplicaProblem::NotAsked => "not asked yet",
            ReplicaProblem::Unreachable => "no answer",
            ReplicaProblem::Failed => "a read failed",
            ReplicaProblem::Primary => "a primary",
            ReplicaProblem::PrimaryUnknown => "primary unknown",
            ReplicaProblem::OtherTimeline => "other timeline",
            ReplicaProblem::Lagging => "too far behind",
        })
    }
}

impl ReplicaProblem {
    /// Returns why a replica that has answered so gets no reads; `None` if it does. `newest` is the history of the primary.
    pub(super) fn of(
        answer: Option<&ReplicaAnswer>,
        newest: Option<History>,
        is_late: bool,
    ) -> Option<Self> {
        let Some(answer) = answer else {
            return Some(ReplicaProblem::Unreachable);
        };
        if !answer.is_standby {
            return Some(ReplicaProblem::Primary);
        }
        match newest {
            None => Some(ReplicaProblem::PrimaryUnknown),
            newest if answer.history != newest => Some(ReplicaProblem::OtherTimeline),
            _ => is_late.then_some(ReplicaProblem::Lagging),
        }
    }
}

/// Why no replica answers a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    UnknownPosition,
    NoReplica,
    Behind,
    Busy,
    Failed,
}

/// How many reads no replica has answered, by the reason.
#[derive(Debug, Default)]
pub(super) struct LeftReads([AtomicU64; 5]);

impl LeftReads {
    pub(super) fn add(&self, reason: Reason) {
        self.0[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn counts(&self) -> PrimaryReads {
        let of = |reason: Reason| self.0[reason as usize].load(Ordering::Relaxed);
        PrimaryReads {
            unknown_position: of(Reason::UnknownPosition),
            no_replica: of(Reason::NoReplica),
            behind: of(Reason::Behind),
            busy: of(Reason::Busy),
            failed: of(Reason::Failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_reason_that_applies_is_told() {
        let history = |timeline| History {
            cluster: 7,
            timeline,
        };
        let (first, second) = (history(1), history(2));
        let answer = |is_standby, history| ReplicaAnswer {
            is_standby,
            history,
            ..ReplicaAnswer::default()
        };
        let of = |answer: ReplicaAnswer, newest, is_late| {
            ReplicaProblem::of(Some(&answer), newest, is_late)
        };
        let standby = answer(true, Some(first));
        assert_eq!(of(standby, Some(first), false), None);
        let late = of(standby, Some(first), true);
        assert_eq!(late, Some(ReplicaProblem::Lagging));
        let other = Some(ReplicaProblem::OtherTimeline);
        assert_eq!(of(standby, Some(second), true), other);
        assert_eq!(of(answer(true, None), Some(first), false), other);
        let unknown = Some(ReplicaProblem::PrimaryUnknown);
        assert_eq!(of(standby, None, false), unknown);
        assert_eq!(of(answer(true, None), None, false), unknown);
        let promoted = of(answer(false, Some(first)), Some(first), false);
        assert_eq!(promoted, Some(ReplicaProblem::Primary));
        let silent = ReplicaProblem::of(None, Some(first), false);
        assert_eq!(silent, Some(ReplicaProblem::Unreachable));
    }
}
