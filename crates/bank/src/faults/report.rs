//! What the injector did, how long recovery took, and what the inspector found.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use super::failovers::{ClusterReport, Failovers};
use super::fault::Fault;
use crate::checks::Finding;
use crate::figures::{counted, grouped, millis};
use crate::ledger::Fates;
use crate::summary::{self, Millis};
use crate::workload::{ErrorCounts, Monitor};

/// Records faults, recoveries and contradictions during a run.
#[derive(Debug)]
pub(crate) struct FaultLog {
    began: Instant,
    faults: BTreeMap<Fault, Recoveries>,
    last: Option<Fault>,
    killed: usize,
    quiet: u64,
    left_out: Vec<String>,
    wrong: Vec<(&'static str, String)>,
    has_server: bool,
    failovers: Option<Failovers>,
}

/// How often there was a fault, and how long recovery took.
#[derive(Clone, Copy, Debug, Default)]
struct Recoveries {
    count: u64,
    recovered: u32,
    total: Duration,
    longest: Duration,
}

/// What happened in a run with faults. Its fields are the JSON that `cenote --help` describes.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ChaosReport {
    /// The faults, by kind.
    pub faults: Vec<FaultReport>,
    /// How many sessions the faults killed.
    pub sessions_killed: usize,
    /// Which faults could not be injected, and why.
    pub left_out: Vec<String>,
    /// How many inspections there were, without the last.
    pub quiet_moments: u64,
    /// The transfers, by their state.
    pub transfers: Fates,
    /// How often clients looked for the marks of others.
    pub looks: u64,
    /// How many marks clients set.
    pub marks: u64,
    /// How many reads ran on shared connections.
    pub shared_reads: u64,
    /// How long visits took that ended with a commit.
    pub visit_ms: Millis,
    /// The failovers, in a run with a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterReport>,
    #[serde(skip)]
    pub(crate) findings: Vec<Finding>,
}

/// One kind of fault.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct FaultReport {
    /// The kind.
    pub kind: Fault,
    /// How often it was injected.
    pub count: u64,
    /// The mean time from the end of the fault to twenty more commits.
    pub recovery_mean_ms: f64,
    /// The longest such time.
    pub recovery_max_ms: f64,
}

impl FaultLog {
    pub(crate) fn new(left_out: Vec<String>, has_server: bool, has_cluster: bool) -> Self {
        FaultLog {
            began: Instant::now(),
            faults: BTreeMap::new(),
            last: None,
            killed: 0,
            quiet: 0,
            left_out,
            wrong: Vec::new(),
            has_server,
            failovers: has_cluster.then(Failovers::default),
        }
    }

    /// Records how long after a promotion writes were back.
    pub(super) fn failed_over(&mut self, fault: Fault, took: Duration) {
        let late = self.failovers.as_mut().and_then(|it| it.note(fault, took));
        if let Some(late) = late {
            self.wrong("failovers", late);
        }
    }

    /// Records which errors the clients met during a roll.
    pub(super) fn rolled(&mut self, errors: &ErrorCounts) {
        let wrong = self.failovers.as_mut().and_then(|it| it.rolled(errors));
        if let Some(wrong) = wrong {
            self.wrong("rolls", wrong);
        }
    }

    pub(crate) fn count(&mut self, fault: Fault) {
        self.faults.entry(fault).or_default().count += 1;
        self.last = Some(fault);
    }

    pub(crate) fn killed(&mut self, sessions: usize) {
        self.killed += sessions;
    }

    pub(crate) fn recovered(&mut self, fault: Fault, took: Duration) {
        let of = self.faults.entry(fault).or_default();
        of.recovered += 1;
        of.total += took;
        of.longest = of.longest.max(took);
    }

    pub(crate) fn quiet(&mut self) {
        self.quiet += 1;
    }

    /// Whether something was wrong.
    pub(crate) fn has_errors(&self) -> bool {
        !self.wrong.is_empty()
    }

    /// Records what a check found wrong.
    pub(crate) fn wrong(&mut self, check: &'static str, what: String) {
        let at = self.began.elapsed().as_secs_f64();
        let after = self.last.map_or("the beginning", Fault::name);
        self.wrong
            .push((check, format!("{what} (at {at:.1} s, after {after})")));
    }

    pub(crate) fn report(mut self, monitor: &Monitor) -> ChaosReport {
        let tracking = monitor.tracking();
        let (looks, marks) = tracking.map_or((0, 0), |tracking| tracking.sessions.counts());
        let transfers = tracking
            .map(|tracking| tracking.ledger.fates())
            .unwrap_or_default();
        if let Some(seen) = tracking.and_then(|tracking| tracking.sessions.wrong()) {
            self.wrong("sessions", seen);
        }
        let faults = self.faults.iter();
        ChaosReport {
            findings: self.findings(transfers, looks, marks),
            faults: faults.map(|(kind, of)| of.report(*kind)).collect(),
            sessions_killed: self.killed,
            left_out: self.left_out,
            quiet_moments: self.quiet,
            transfers,
            looks,
            marks,
            shared_reads: monitor.db().shared_reads(),
            visit_ms: Millis::new(monitor.served()),
            cluster: self.failovers.map(|it| it.report(monitor.errors())),
        }
    }

    fn findings(&self, transfers: Fates, looks: u64, marks: u64) -> Vec<Finding> {
        let moments = counted(
            usize::try_from(self.quiet).unwrap_or(usize::MAX),
            "quiet moment",
        );
        let quiet = format!("{moments} and the end, all in order");
        let Fates {
            acknowledged,
            rolled_back,
            unknown,
            unknown_committed,
        } = transfers;
        let ledger = format!(
            "{} acknowledged are there, {} rolled back are not; {} of {unknown} unknown are",
            grouped(acknowledged),
            grouped(rolled_back),
            grouped(unknown_committed)
        );
        let sessions = format!(
            "{} looks saw none of {} marks of others",
            grouped(looks),
            grouped(marks)
        );
        let longest = self.faults.values().map(|of| of.longest).max();
        let recovery = format!(
            "from {} faults, in {} at most",
            grouped(self.faults.values().map(|of| of.count).sum()),
            millis(longest.unwrap_or_default())
        );
        let none = "no session in a transaction, none without a connection";
        let kept = "no more kept on the server than in the pool";
        let mut findings = vec![
            self.finding("ledger", ledger),
            self.finding("sessions", sessions),
            self.finding("recovery", recovery),
            self.finding("clients", quiet),
        ];
        if self.has_server {
            findings.push(self.finding("server", none.to_owned()));
            findings.push(self.finding("statements", kept.to_owned()));
        }
        if let Some(failovers) = &self.failovers {
            findings.push(self.finding("failovers", failovers.verdict()));
            findings.push(self.finding("rolls", failovers.verdict_on_rolls()));
        }
        // Only where something was wrong: a run has checks of its own for these.
        let also = ["pool", "money", "faults"].map(|name| self.finding(name, String::new()));
        findings.extend(also.into_iter().filter(|finding| !finding.ok));
        findings
    }

    fn finding(&self, name: &'static str, well: String) -> Finding {
        let wrong: Vec<&str> = self
            .wrong
            .iter()
            .filter(|(of, _)| *of == name)
            .map(|(_, what)| what.as_str())
            .collect();
        Finding {
            name,
            ok: wrong.is_empty(),
            says: match wrong[..] {
                [] => well,
                _ => wrong.join("; "),
            },
        }
    }
}

impl Recoveries {
    fn report(&self, kind: Fault) -> FaultReport {
        FaultReport {
            kind,
            count: self.count,
            recovery_mean_ms: summary::millis(self.total / self.recovered.max(1)),
            recovery_max_ms: summary::millis(self.longest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> FaultLog {
        FaultLog::new(Vec::new(), true, true)
    }

    fn broken(log: &FaultLog) -> Vec<&'static str> {
        let findings = log.findings(Fates::default(), 0, 0);
        let broken = findings.iter().filter(|finding| !finding.ok);
        broken.map(|finding| finding.name).collect()
    }

    #[tokio::test]
    async fn a_contradiction_fails_its_check_and_names_the_fault() {
        assert_eq!(broken(&log()), [""; 0]);
        for check in [
            "ledger",
            "sessions",
            "recovery",
            "clients",
            "server",
            "statements",
            "failovers",
            "rolls",
            "pool",
            "money",
            "faults",
        ] {
            let mut log = log();
            log.count(Fault::Freeze);
            log.wrong(check, "it is lost".to_owned());
            assert_eq!(broken(&log), [check]);
            let findings = log.findings(Fates::default(), 0, 0);
            let says = &findings.iter().find(|finding| !finding.ok).unwrap().says;
            assert!(
                says.contains("it is lost") && says.contains("server frozen"),
                "{says}"
            );
        }
    }

    #[tokio::test]
    async fn recoveries_are_reported_by_kind() {
        let mut log = log();
        for took in [10, 30] {
            log.count(Fault::Cut);
            log.recovered(Fault::Cut, Duration::from_millis(took));
        }
        let report = log.faults[&Fault::Cut].report(Fault::Cut);
        assert_eq!(report.count, 2);
        assert!((report.recovery_mean_ms - 20.0).abs() < 0.01);
        assert!((report.recovery_max_ms - 30.0).abs() < 0.01);
    }
}
