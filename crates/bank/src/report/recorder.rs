//! Samples of a run, thinned out when there are many.

use std::time::Duration;

use super::chart::{Chart, Point, Series};
use crate::summary::Summary;
use crate::workload::{Outcome, Phase, Snapshot};

/// The most samples that are kept: two for each column of a chart.
const MOST: usize = 2_000;
/// Rates are means over this many samples, so that a chart shows the trend.
const SMOOTH: usize = 5;

/// The figures of one moment. Those that only grow are counted from the start of the run.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Duration,
    committed: u64,
    waits: u64,
    waited: Duration,
    waiting: usize,
    active: usize,
    open: usize,
    total: usize,
}

/// The samples of a run, for a page about it.
#[derive(Debug)]
pub struct Recorder {
    samples: Vec<Sample>,
    /// The recorder keeps one in this many snapshots.
    every: usize,
    seen: usize,
}

impl Default for Recorder {
    fn default() -> Self {
        Recorder {
            samples: Vec::new(),
            every: 1,
            seen: 0,
        }
    }
}

impl Recorder {
    /// How often to take a sample.
    pub const INTERVAL: Duration = Duration::from_millis(100);

    /// Returns a page in HTML that draws the samples over time, with the faults as bands.
    pub fn html(&self, phases: &[Phase], summary: &Summary) -> String {
        super::html(self, phases, summary)
    }

    /// Adds a sample.
    pub fn push(&mut self, now: &Snapshot) {
        self.seen += 1;
        if !self.seen.is_multiple_of(self.every) {
            return;
        }
        let status = &now.status;
        self.samples.push(Sample {
            at: now.elapsed,
            committed: now.counts.of(Outcome::Committed),
            waits: now.waits.count,
            waited: now.waits.sum,
            waiting: status.waiting,
            active: status.active,
            open: status.active + status.idle,
            total: status.total,
        });
        if self.samples.len() == MOST {
            let mut at = 0;
            self.samples.retain(|_| {
                at += 1;
                at % 2 == 0
            });
            self.every *= 2;
        }
    }

    /// How long the charts are, in seconds.
    pub(super) fn seconds(&self) -> f64 {
        let last = self.samples.last();
        last.map_or(0.0, |sample| sample.at.as_secs_f64()).max(0.1)
    }

    pub(super) fn charts(&self) -> [Chart; 4] {
        let gauge = |of: fn(&Sample) -> usize| {
            let points = self.samples.iter();
            let points = points.map(|it| (it.at.as_secs_f64(), Some(float(of(it) as u64))));
            points.collect()
        };
        [
            Chart {
                title: "Throughput",
                unit: "commits a second",
                series: vec![Series::line("commits a second", "--a", self.rates(commits))],
            },
            Chart {
                title: "Waits",
                unit: "milliseconds",
                series: vec![Series::line("mean wait, ms", "--b", self.rates(mean_wait))],
            },
            Chart {
                title: "Queue",
                unit: "tasks",
                series: vec![Series::area(
                    "tasks that wait",
                    "--b",
                    gauge(|it| it.waiting),
                )],
            },
            Chart {
                title: "Connections",
                unit: "connections",
                series: vec![
                    Series::area("opening", "--b", gauge(|it| it.total)),
                    Series::area("idle", "--d", gauge(|it| it.open)),
                    Series::area("active", "--c", gauge(|it| it.active)),
                ],
            },
        ]
    }

    /// A figure of the time between two samples, for each sample.
    fn rates(&self, of: fn(&Sample, &Sample) -> Option<f64>) -> Vec<Point> {
        let points = self.samples.iter().enumerate().skip(1);
        let points = points.map(|(at, now)| {
            let before = &self.samples[at.saturating_sub(SMOOTH)];
            (now.at.as_secs_f64(), of(before, now))
        });
        points.collect()
    }
}

fn commits(before: &Sample, now: &Sample) -> Option<f64> {
    let time = now.at.saturating_sub(before.at).as_secs_f64();
    (time > 0.0).then(|| float(now.committed - before.committed) / time)
}

fn mean_wait(before: &Sample, now: &Sample) -> Option<f64> {
    let waits = now.waits - before.waits;
    let waited = now.waited.saturating_sub(before.waited).as_secs_f64();
    (waits > 0).then(|| waited * 1_000.0 / float(waits))
}

#[allow(clippy::cast_precision_loss, reason = "a chart has a thousand columns")]
fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::Audits;
    use crate::workload::{Counts, LatencySummary};

    #[tokio::test]
    async fn a_long_run_keeps_few_samples_over_its_whole_length() {
        let dsn = "sqlite:file:recorder?mode=memory&cache=shared";
        let db = cenote::Db::open(dsn).await.unwrap();
        let mut recorder = Recorder::default();
        for tenth in 0..50_000 {
            recorder.push(&Snapshot {
                elapsed: Duration::from_millis(tenth * 100),
                status: db.status(),
                counts: Counts::default(),
                waits: LatencySummary::default(),
                audits: Audits::default(),
                before: 0,
                phases: Vec::new(),
                failover: None,
            });
        }
        assert!(recorder.samples.len() <= MOST, "{}", recorder.samples.len());
        assert!(recorder.samples.len() > MOST / 4);
        assert!(recorder.samples[0].at < Duration::from_secs(10));
        assert!(recorder.seconds() > 4_900.0);
    }
}
