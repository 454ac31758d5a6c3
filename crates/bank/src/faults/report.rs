//! What the actor did, what became of it, and what was found.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use super::fault::Fault;
use super::stage::Stage;
use crate::check::Finding;
use crate::figures::{counted, grouped, millis};
use crate::ledger::Fates;
use crate::shift::Desk;
use crate::summary::{WaitMillis, rounded, row};

/// What is written down while it goes on.
#[derive(Debug)]
pub(crate) struct Log {
    began: Instant,
    faults: BTreeMap<Fault, Recoveries>,
    last: Option<Fault>,
    killed: usize,
    quiet: u64,
    left_out: Vec<String>,
    wrong: Vec<(&'static str, String)>,
    has_server: bool,
}

/// How often there was a fault, and how long it took until all was well.
#[derive(Clone, Copy, Debug, Default)]
struct Recoveries {
    count: u64,
    recovered: u32,
    total: Duration,
    longest: Duration,
}

/// All that is told of the chaos. Its fields are the JSON that `--help` describes.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ChaosReport {
    pub(crate) faults: Vec<FaultReport>,
    pub(crate) sessions_killed: usize,
    pub(crate) left_out: Vec<String>,
    pub(crate) quiet_moments: u64,
    pub(crate) transfers: Fates,
    pub(crate) looks: u64,
    pub(crate) marks: u64,
    /// How long visits took that ended with a commit.
    pub(crate) visit_ms: WaitMillis,
    #[serde(skip)]
    pub(crate) findings: Vec<Finding>,
}

/// One kind of fault.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FaultReport {
    pub(crate) kind: Fault,
    pub(crate) count: u64,
    /// From the end of the fault to twenty more commits.
    pub(crate) recovery_mean_ms: f64,
    pub(crate) recovery_max_ms: f64,
}

impl Log {
    pub(crate) fn new(stage: &Stage) -> Self {
        Log {
            began: Instant::now(),
            faults: BTreeMap::new(),
            last: None,
            killed: 0,
            quiet: 0,
            left_out: stage.left_out.clone(),
            wrong: Vec::new(),
            has_server: stage.dialect.has_server(),
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

    /// Whether something is not as it should be.
    pub(crate) fn is_wrong(&self) -> bool {
        !self.wrong.is_empty()
    }

    /// Something is not as it should be.
    pub(crate) fn wrong(&mut self, check: &'static str, what: String) {
        let at = self.began.elapsed().as_secs_f64();
        let after = self.last.map_or("the beginning", Fault::name);
        self.wrong
            .push((check, format!("{what} (at {at:.1} s, after {after})")));
    }

    pub(crate) fn report(mut self, desk: &Desk) -> ChaosReport {
        let trial = desk.trial();
        let (looks, marks) = trial.map_or((0, 0), |trial| trial.sessions.counts());
        let transfers = trial.map(|trial| trial.ledger.fates()).unwrap_or_default();
        if let Some(seen) = trial.and_then(|trial| trial.sessions.wrong()) {
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
            visit_ms: WaitMillis::new(desk.served()),
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
        // Said only where something was wrong: at the end there are checks of their own for them.
        let also = ["pool", "money", "actor"].map(|name| self.finding(name, String::new()));
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
        let millis = |time: Duration| rounded(time.as_secs_f64() * 1_000.0);
        FaultReport {
            kind,
            count: self.count,
            recovery_mean_ms: millis(self.total / self.recovered.max(1)),
            recovery_max_ms: millis(self.longest),
        }
    }
}

impl ChaosReport {
    /// The lines for people.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let total = self.faults.iter().map(|fault| fault.count).sum();
        lines.push(row("faults", total, "and how long until commits went on"));
        for fault in &self.faults {
            lines.push(format!(
                "  {:<19} {:>3}  {:.0} ms mean, {:.0} ms longest",
                fault.kind.name(),
                fault.count,
                fault.recovery_mean_ms,
                fault.recovery_max_ms
            ));
        }
        for left_out in &self.left_out {
            lines.push(format!("left out     {left_out}"));
        }
        lines.push(format!("visits       {}", self.visit_ms));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> Log {
        Log {
            began: Instant::now(),
            faults: BTreeMap::new(),
            last: None,
            killed: 0,
            quiet: 0,
            left_out: Vec::new(),
            wrong: Vec::new(),
            has_server: true,
        }
    }

    fn broken(log: &Log) -> Vec<&'static str> {
        let findings = log.findings(Fates::default(), 0, 0);
        let broken = findings.iter().filter(|finding| !finding.ok);
        broken.map(|finding| finding.name).collect()
    }

    #[tokio::test]
    async fn whatever_was_wrong_is_a_finding_that_failed_and_says_after_which_fault() {
        assert_eq!(broken(&log()), [""; 0]);
        for check in [
            "ledger",
            "sessions",
            "recovery",
            "clients",
            "server",
            "statements",
            "pool",
            "money",
            "actor",
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
    async fn recoveries_are_told_by_kind() {
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
