//! The recommendation: how many connections each instance of the program should have, and why. Pure.

use serde::Serialize;

use crate::estimate::Estimate;
use crate::limit::Limit;
use crate::report::Row;

/// How many connections to set, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recommendation {
    /// `max` of the pool of each instance.
    pub max: usize,
    /// How many connections all instances have then, on all servers.
    pub total: usize,
    /// How many instances share the connections.
    pub instances: usize,
    /// How many servers they are spread over.
    pub replicas: usize,
    /// Why, in one or two sentences.
    pub reason: String,
    /// What to write into the program or its environment.
    pub setting: String,
}

/// Shares the connections of the knee among instances. `rows` are in the order of their sizes.
pub(crate) fn recommend(
    found: &Estimate,
    limit: Limit,
    rows: &[Row],
    instances: usize,
    replicas: usize,
) -> Recommendation {
    let max = (found.size * replicas).div_ceil(instances).max(1);
    Recommendation {
        max,
        total: max * instances,
        instances,
        replicas,
        reason: reason(found, limit, rows),
        setting: format!("Builder::max({max}), or CENOTE_MAX={max} in the environment"),
    }
}

fn reason(found: &Estimate, limit: Limit, rows: &[Row]) -> String {
    let (Some(knee), Some(last)) = (rows.iter().find(|row| row.size == found.size), rows.last())
    else {
        return String::new();
    };
    let connections = counted(found.size);
    let rate = rated(knee.throughput);
    if limit == Limit::NotReached || last.size <= found.size {
        return format!(
            "{connections} did {rate} a second, and the curve still grew there: the database may do more with more \
             connections (--max)."
        );
    }
    let share = (100.0 * knee.throughput / found.plateau).min(100.0);
    let (last_rate, further) = (rated(last.throughput), counted(last.size));
    let slower = last.statement_ms.p50 / knee.statement_ms.p50.max(1e-6);
    let beyond = match slower {
        _ if limit == Limit::OneWriter => "further ones wait to write".to_owned(),
        slower if slower >= 1.2 => format!("each statement takes {slower:.1} times as long"),
        _ => "the rest is idle or waits".to_owned(),
    };
    format!(
        "{connections} did {rate} a second, {share:.0} % of the most that the database does. With {further} it did \
         {last_rate}, and {beyond}."
    )
}

/// Writes a number of connections with its noun.
pub(crate) fn counted(connections: usize) -> String {
    cenote_bank::figures::counted(connections, "connection")
}

/// Writes a rate with two or more digits.
pub(crate) fn rated(rate: f64) -> String {
    if rate < 9.95 {
        return format!("{rate:.1}");
    }
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive number to show"
    )]
    let whole = rate.round() as u64;
    cenote_bank::figures::grouped(whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Times;

    fn found(size: usize) -> Estimate {
        Estimate {
            size,
            low: size,
            high: size,
            confidence: 1.0,
            noise: 0.01,
            plateau: 100.0,
            is_reached: true,
        }
    }

    fn row(size: usize, throughput: f64, p50: f64) -> Row {
        Row {
            size,
            throughput,
            statement_ms: Times { p50, p99: p50 },
            ..Row::default()
        }
    }

    #[test]
    fn instances_share_the_connections_and_replicas_add_some() {
        let rows = [row(8, 98.0, 10.0), row(16, 100.0, 20.0)];
        for (instances, replicas, max, total) in [
            (1, 1, 8, 8),
            (2, 1, 4, 8),
            (3, 1, 3, 9),
            (20, 1, 1, 20),
            (4, 3, 6, 24),
        ] {
            let advice = recommend(&found(8), Limit::Locks, &rows, instances, replicas);
            assert_eq!((advice.max, advice.total), (max, total));
            assert!(advice.setting.contains(&format!("CENOTE_MAX={max} ")));
        }
    }

    #[test]
    fn reason_has_the_figures_of_the_knee_and_beyond() {
        let rows = [row(8, 98.0, 10.0), row(16, 100.0, 20.0)];
        let advice = recommend(&found(8), Limit::Locks, &rows, 1, 1);
        assert_eq!(
            advice.reason,
            "8 connections did 98 a second, 98 % of the most that the database does. With 16 connections it did 100, \
             and each statement takes 2.0 times as long."
        );
        let growing = recommend(&found(16), Limit::NotReached, &rows, 1, 1);
        assert!(growing.reason.contains("still grew"), "{growing:?}");
    }
}
