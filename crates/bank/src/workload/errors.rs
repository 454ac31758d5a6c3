//! The unplanned errors of clients, by what they mean.

use std::collections::BTreeMap;

use cenote::{Error, Kind};
use serde::Serialize;

use crate::figures::{counted, grouped};

/// Unplanned errors of clients, by what they mean.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ErrorCounts {
    /// Transactions whose commit was lost on the way: committed or rolled back.
    pub outcome_unknown: u64,
    /// Transactions that lost their connection before the commit.
    pub transactions_cut: u64,
    /// Calls outside of transactions that lost their connection.
    pub calls_cut: u64,
    /// Conflicts with other clients, which a retry of the transaction settles.
    pub conflicts: u64,
    /// All others, by kind and SQLSTATE.
    pub others: BTreeMap<String, OtherErrors>,
}

/// Errors of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OtherErrors {
    /// How many there were.
    pub count: u64,
    /// What the first one said.
    pub first: String,
}

impl ErrorCounts {
    pub(super) fn note(&mut self, error: &Error) {
        let count = match error.kind() {
            Kind::OutcomeUnknown => &mut self.outcome_unknown,
            Kind::TransactionLost => &mut self.transactions_cut,
            Kind::ConnectionLost => &mut self.calls_cut,
            _ if error.is_retryable() => &mut self.conflicts,
            kind => {
                let name = match error.sql_state() {
                    Some(state) => format!("{kind:?} {state}"),
                    None => format!("{kind:?}"),
                };
                let others = self.others.entry(name).or_default();
                if others.count == 0 {
                    others.first = error.to_string();
                }
                &mut others.count
            }
        };
        *count += 1;
    }

    /// Returns those that were counted after `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let others = self.others.iter().filter_map(|(name, others)| {
            let before = earlier.others.get(name).map_or(0, |before| before.count);
            let mut since = others.clone();
            since.count -= before;
            (since.count > 0).then(|| (name.clone(), since))
        });
        ErrorCounts {
            outcome_unknown: self.outcome_unknown - earlier.outcome_unknown,
            transactions_cut: self.transactions_cut - earlier.transactions_cut,
            calls_cut: self.calls_cut - earlier.calls_cut,
            conflicts: self.conflicts - earlier.conflicts,
            others: others.collect(),
        }
    }

    pub(crate) fn add(&mut self, more: &Self) {
        self.outcome_unknown += more.outcome_unknown;
        self.transactions_cut += more.transactions_cut;
        self.calls_cut += more.calls_cut;
        self.conflicts += more.conflicts;
        for (name, others) in &more.others {
            let sum = self.others.entry(name.clone()).or_default();
            sum.count += others.count;
            sum.first.clone_from(&others.first);
        }
    }

    /// Names those that no loss of a connection and no other client explains; `None` if there are none.
    pub(crate) fn unexplained(&self) -> Option<String> {
        let others = self.others.iter();
        let others: Vec<String> = others
            .map(|(name, of)| format!("{} x {name} ({})", grouped(of.count), of.first))
            .collect();
        (!others.is_empty()).then(|| others.join(", "))
    }

    /// Names those that the loss of a connection explains.
    pub fn losses(&self) -> String {
        let count = |count, noun| counted(usize::try_from(count).unwrap_or(usize::MAX), noun);
        format!(
            "{}, {} and {} cut",
            count(self.outcome_unknown, "unknown outcome"),
            count(self.transactions_cut, "transaction"),
            count(self.calls_cut, "call"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_what_they_mean() {
        let mut errors = ErrorCounts::default();
        for kind in [
            Kind::OutcomeUnknown,
            Kind::TransactionLost,
            Kind::TransactionLost,
            Kind::ConnectionLost,
        ] {
            errors.note(&Error::new(kind, "lost"));
        }
        assert_eq!(errors.unexplained(), None);
        let losses = "1 unknown outcome, 2 transactions and 1 call cut";
        assert_eq!(errors.losses(), losses);
        let before = errors.clone();
        errors.note(&Error::new(Kind::Timeout, "late"));
        errors.note(&Error::new(Kind::ConnectionLost, "lost"));
        let since = errors.since(&before);
        assert_eq!(since.unexplained().as_deref(), Some("1 x Timeout (late)"));
        assert_eq!((since.calls_cut, since.transactions_cut), (1, 0));
        let mut sum = before;
        sum.add(&since);
        assert_eq!(sum, errors);
    }
}
