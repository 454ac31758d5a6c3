//! Failovers of the cluster: how they are made, and how long writes are out.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tokio::time::{Instant, interval, timeout};

use super::fault::Fault;
use super::injector::{BRIEF, Injection, RECOVERY, SILENT};
use crate::cluster::Cluster;
use crate::figures::counted;
use crate::summary::millis;
use crate::workload::ErrorCounts;

/// How long after a promotion writes may be out.
const WRITES_BACK: Duration = Duration::from_secs(2);
/// The same where the former primary hangs: calls wait there for an answer.
const WRITES_BACK_FROM_HANG: Duration = Duration::from_secs(5);
/// How long a former primary is awake before it is shut down, in milliseconds.
const AWAKE: (u64, u64) = (700, 2_000);

/// The failovers of a run.
#[derive(Debug, Default)]
pub(super) struct Failovers {
    /// How long after the promotion writes were back, by the fault that made it necessary.
    writes_back: BTreeMap<Fault, Vec<Duration>>,
    rolls: usize,
    errors_in_rolls: ErrorCounts,
}

/// What happened to the cluster and to its clients.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ClusterReport {
    /// The failovers, by the fault that made them necessary.
    pub failovers: Vec<FailoverReport>,
    /// The unplanned errors of clients.
    pub errors: ErrorCounts,
    /// Those while all hosts restarted, one after the other.
    pub errors_in_rolls: ErrorCounts,
}

/// The failovers after one kind of fault.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct FailoverReport {
    /// The kind.
    pub kind: Fault,
    /// How many there were.
    pub count: usize,
    /// The median time from the moment when the new primary accepts writes to the first acknowledged write of a client.
    pub writes_back_median_ms: f64,
    /// The longest such time.
    pub writes_back_max_ms: f64,
}

impl Failovers {
    /// Records a failover, and says if writes were out for too long.
    pub(super) fn note(&mut self, fault: Fault, took: Duration) -> Option<String> {
        self.writes_back.entry(fault).or_default().push(took);
        let allowed = match fault {
            Fault::FreezePrimary => WRITES_BACK_FROM_HANG,
            _ => WRITES_BACK,
        };
        (took > allowed).then(|| {
            let took = took.as_secs_f64();
            format!("writes were back {took:.2} s after the promotion, {allowed:?} are allowed")
        })
    }

    /// Records a roll, and names the errors that it should not have caused.
    pub(super) fn rolled(&mut self, errors: &ErrorCounts) -> Option<String> {
        self.rolls += 1;
        self.errors_in_rolls.add(errors);
        errors.unexplained()
    }

    pub(super) fn verdict(&self) -> String {
        let all = self.writes_back.values().flatten();
        let Some(longest) = all.clone().max() else {
            return "there was no promotion".to_owned();
        };
        format!(
            "{}, writes were back after {:.2} s at most",
            counted(all.count(), "promotion"),
            longest.as_secs_f64()
        )
    }

    pub(super) fn verdict_on_rolls(&self) -> String {
        if self.rolls == 0 {
            return "there was no roll".to_owned();
        }
        let (rolls, losses) = (counted(self.rolls, "roll"), self.errors_in_rolls.losses());
        format!("{rolls}: {losses}, no other error")
    }

    pub(super) fn report(self, errors: ErrorCounts) -> ClusterReport {
        let failovers = self.writes_back.into_iter().map(|(kind, mut times)| {
            times.sort();
            FailoverReport {
                kind,
                count: times.len(),
                writes_back_median_ms: millis(median(&times)),
                writes_back_max_ms: millis(times.last().copied().unwrap_or_default()),
            }
        });
        ClusterReport {
            failovers: failovers.collect(),
            errors,
            errors_in_rolls: self.errors_in_rolls,
        }
    }
}

/// The median of sorted times.
fn median(times: &[Duration]) -> Duration {
    let middle = times.len() / 2;
    match times {
        [] => Duration::ZERO,
        _ if times.len().is_multiple_of(2) => (times[middle - 1] + times[middle]) / 2,
        _ => times[middle],
    }
}

impl Injection {
    /// Breaks the cluster, and promotes a standby where the primary is gone.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the cluster ends.
    pub(super) async fn break_cluster(&mut self, fault: Fault) {
        let Some(mut cluster) = self.testbed.cluster.take() else {
            return;
        };
        if let Err(why) = self.fail_over(&mut cluster, fault).await {
            self.log.wrong("faults", format!("{}: {why}", fault.name()));
        }
        self.testbed.cluster = Some(cluster);
    }

    async fn fail_over(&mut self, cluster: &mut Cluster, fault: Fault) -> Result<(), String> {
        match fault {
            Fault::KillPrimary => {
                cluster.kill_primary().await;
                self.wait(BRIEF).await;
                self.promote(cluster, fault).await
            }
            Fault::SwitchOver => {
                cluster.stop_primary().await;
                self.promote(cluster, fault).await
            }
            Fault::FreezePrimary => self.freeze_primary(cluster).await,
            Fault::KillStandby => {
                let standbys = cluster.standbys();
                let standby = standbys[self.rng.usize(..standbys.len())];
                cluster.server(standby).crash().await;
                self.wait(SILENT).await;
                Ok(())
            }
            Fault::Roll => {
                for standby in cluster.standbys() {
                    cluster.restart(standby).await?;
                }
                cluster.stop_primary().await;
                self.promote(cluster, fault).await
            }
            _ => Ok(()),
        }
    }

    /// The primary hangs, and wakes up after the promotion of another one: clients have left it by then.
    async fn freeze_primary(&mut self, cluster: &mut Cluster) -> Result<(), String> {
        cluster.freeze_primary();
        self.wait(BRIEF).await;
        self.promote(cluster, Fault::FreezePrimary).await?;
        self.wait(SILENT).await;
        cluster.thaw();
        let thawed = Instant::now();
        self.wait(AWAKE).await;
        let sessions = cluster.sessions_on_former(thawed.elapsed()).await?;
        if sessions > 0 {
            let text = format!("{sessions} new sessions on the former primary");
            self.log.wrong("failovers", text);
        }
        Ok(())
    }

    /// Promotes a standby and measures how long it takes until a client's write is acknowledged.
    async fn promote(&mut self, cluster: &mut Cluster, fault: Fault) -> Result<(), String> {
        let promoted = cluster.promote().await?;
        let before = self.monitor.committed();
        let mut looks = interval(Duration::from_millis(1));
        let write = async {
            while self.monitor.committed() == before {
                looks.tick().await;
            }
        };
        // If none comes, the time is too long.
        let _ = timeout(RECOVERY, write).await;
        let took = promoted.elapsed();
        self.monitor.failed_over(took);
        self.log.failed_over(fault, took);
        Ok(())
    }

    /// Brings all hosts of the cluster back.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it can be called again.
    pub(super) async fn heal_cluster(&mut self) {
        let Some(cluster) = &mut self.testbed.cluster else {
            return;
        };
        cluster.thaw();
        if cluster.is_whole() {
            return;
        }
        self.monitor.end_phases();
        self.monitor.begin_phase("hosts rejoin");
        if let Err(why) = cluster.heal().await {
            let text = format!("the cluster cannot be healed: {why}");
            self.log.wrong("faults", text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn millis_of(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn writes_that_are_out_for_too_long_are_found() {
        let mut failovers = Failovers::default();
        assert_eq!(failovers.verdict(), "there was no promotion");
        assert_eq!(failovers.verdict_on_rolls(), "there was no roll");
        assert_eq!(failovers.note(Fault::KillPrimary, WRITES_BACK), None);
        let hang = millis_of(4_900);
        assert_eq!(failovers.note(Fault::FreezePrimary, hang), None);
        for (fault, took) in [
            (Fault::KillPrimary, 2_001),
            (Fault::SwitchOver, 2_001),
            (Fault::Roll, 2_001),
            (Fault::FreezePrimary, 5_001),
        ] {
            let late = failovers.note(fault, millis_of(took)).unwrap();
            assert!(late.contains("s are allowed"), "{late}");
        }
        let verdict = "6 promotions, writes were back after 5.00 s at most";
        assert_eq!(failovers.verdict(), verdict);
    }

    #[test]
    fn failovers_are_reported_by_fault() {
        let mut failovers = Failovers::default();
        for took in [30, 10, 20, 40] {
            failovers.note(Fault::KillPrimary, millis_of(took));
        }
        failovers.note(Fault::Roll, millis_of(7));
        let report = failovers.report(ErrorCounts::default());
        let [killed, rolled] = &report.failovers[..] else {
            panic!("{report:?}");
        };
        assert_eq!((killed.kind, killed.count), (Fault::KillPrimary, 4));
        assert!((killed.writes_back_median_ms - 25.0).abs() < 0.01);
        assert!((killed.writes_back_max_ms - 40.0).abs() < 0.01);
        assert!((rolled.writes_back_median_ms - 7.0).abs() < 0.01);
    }
}
