//! The result of a measurement, for people and for programs.

use std::collections::BTreeMap;

use cenote_dashboard::sizing::curve::median;
use serde::Serialize;

use crate::advice::{Recommendation, recommend};
use crate::estimate::{Estimate, estimate};
use crate::limit::{Evidence, Limit, Setting, limit};
use crate::measure::{Sample, Times};
use crate::page;

/// Above this share of failed operations, the report says so.
const FAILED: f64 = 0.01;
/// Fewer operations in a measurement are a weak basis.
const FEWEST_OPERATIONS: u64 = 20;

/// What is known without measuring.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) database: String,
    pub(crate) driver: &'static str,
    pub(crate) workload: String,
    pub(crate) read_only: bool,
    pub(crate) clients: usize,
    pub(crate) seconds: f64,
    pub(crate) interrupted: bool,
    pub(crate) instances: usize,
    pub(crate) replicas: usize,
    pub(crate) setting: Setting,
    pub(crate) notes: Vec<String>,
}

/// The figures of one size: medians of its measurements.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// The maximum number of connections.
    pub size: usize,
    /// How many times it was measured.
    pub measurements: usize,
    /// Operations a second.
    pub throughput: f64,
    /// The lowest of the measurements.
    pub throughput_low: f64,
    /// The highest of the measurements.
    pub throughput_high: f64,
    /// How long statements took in the database.
    pub statement_ms: Times,
    /// How long calls waited for a connection.
    pub wait_ms: Times,
    /// How many connections were in use on average.
    pub busy: f64,
    /// How many calls waited for a connection on average.
    pub waiting: f64,
    /// Operations that failed.
    pub failed: u64,
    /// What was seen of processors and server; `null` is unknown.
    #[serde(flatten)]
    pub evidence: Evidence,
    /// Transactions (PostgreSQL) or statements (MySQL) a second, as the server counted them; PostgreSQL does so up to a
    /// second late.
    pub server_work: Option<f64>,
    /// Blocks a second that the server read from its disk.
    pub server_reads: Option<f64>,
}

/// Where throughput stops to grow.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct KneeReport {
    /// The fewest connections that reach 95 % of the plateau.
    pub connections: usize,
    /// The knee is probably not below.
    pub low: usize,
    /// The knee is probably not above.
    pub high: usize,
    /// How certain the knee is, from 0 to 1.
    pub confidence: f64,
    /// How far repeats of one size lie apart, as a share.
    pub noise: f64,
    /// Throughput stopped to grow within the measured sizes.
    pub is_reached: bool,
}

/// The result of a measurement. Serialised, it is what `cenote size --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// There is a recommendation, and the noise was small enough.
    pub ok: bool,
    /// The database, without a password.
    pub database: String,
    /// The driver.
    pub driver: &'static str,
    /// The name of the workload.
    pub workload: String,
    /// The sessions were read-only.
    pub read_only: bool,
    /// How many tasks shared the pool.
    pub clients: usize,
    /// How long it measured.
    pub seconds: f64,
    /// A signal stopped it.
    pub interrupted: bool,
    /// The processors of the machine that measured.
    pub processors: f64,
    /// The figures, by size.
    pub sizes: Vec<Row>,
    /// Where throughput stops to grow; `null` if nothing was measured.
    pub knee: Option<KneeReport>,
    /// What keeps more connections from doing more.
    pub limit: Limit,
    /// How the limit shows.
    pub evidence: String,
    /// How many connections to set; `null` if nothing was measured.
    pub recommendation: Option<Recommendation>,
    /// What a person should know.
    pub notes: Vec<String>,
}

impl Report {
    pub(crate) fn new(facts: Facts, samples: &[Sample]) -> Self {
        let rows = rows(samples);
        let series: Vec<(usize, f64)> = samples
            .iter()
            .map(|sample| (sample.size, sample.throughput))
            .collect();
        let found = estimate(&series);
        let (limit, evidence) = found.map_or((Limit::Unknown, String::new()), |found| {
            limit_of(&found, &rows, facts.setting)
        });
        let mut notes = facts.notes;
        let doubt = found.and_then(|found| doubt(&found, &rows, facts.interrupted));
        let ok = found.is_some() && doubt.is_none();
        notes.extend(doubt);
        if limit == Limit::ClientCpu {
            notes.push(
                "this program was the limit, so the database may do more for several programs"
                    .to_owned(),
            );
        }
        notes.extend(failures(samples));
        let recommendation =
            found.map(|found| recommend(&found, limit, &rows, facts.instances, facts.replicas));
        if let Some(advice) = recommendation
            .as_ref()
            .filter(|advice| advice.total > advice.max && advice.instances > 1)
        {
            let text = format!(
                "{} instances with {} each have {}, on {}",
                advice.instances,
                advice.max,
                crate::advice::counted(advice.total),
                cenote_bank::figures::counted(advice.replicas, "server")
            );
            notes.push(text);
        }
        Report {
            ok,
            database: facts.database,
            driver: facts.driver,
            workload: facts.workload,
            read_only: facts.read_only,
            clients: facts.clients,
            seconds: facts.seconds,
            interrupted: facts.interrupted,
            processors: facts.setting.processors,
            sizes: rows,
            knee: found.map(|found| KneeReport {
                connections: found.size,
                low: found.low,
                high: found.high,
                confidence: found.confidence,
                noise: found.noise,
                is_reached: found.is_reached,
            }),
            limit,
            evidence,
            recommendation,
            notes,
        }
    }

    /// Returns a page in HTML that stands alone: no scripts, no other files.
    pub fn html(&self) -> String {
        page::html(self)
    }
}

/// The figures by size.
pub(crate) fn rows(samples: &[Sample]) -> Vec<Row> {
    let mut by_size: BTreeMap<usize, Vec<&Sample>> = BTreeMap::new();
    for sample in samples {
        by_size.entry(sample.size).or_default().push(sample);
    }
    let rows = by_size.into_iter().map(|(size, of)| {
        let middle = |figure: fn(&Sample) -> f64| {
            median(&of.iter().map(|sample| figure(sample)).collect::<Vec<_>>())
        };
        let known = |figure: fn(&Sample) -> Option<f64>| {
            let known: Vec<f64> = of.iter().filter_map(|sample| figure(sample)).collect();
            (!known.is_empty()).then(|| median(&known))
        };
        let throughputs = of.iter().map(|sample| sample.throughput);
        Row {
            size,
            measurements: of.len(),
            throughput: middle(|it| it.throughput),
            throughput_low: throughputs.clone().fold(f64::INFINITY, f64::min),
            throughput_high: throughputs.fold(0.0, f64::max),
            statement_ms: Times {
                p50: middle(|it| it.statement.p50),
                p99: middle(|it| it.statement.p99),
            },
            wait_ms: Times {
                p50: middle(|it| it.wait.p50),
                p99: middle(|it| it.wait.p99),
            },
            busy: middle(|it| it.busy),
            waiting: middle(|it| it.waiting),
            failed: of.iter().map(|sample| sample.failed).sum(),
            evidence: Evidence::mean(&of.iter().map(|sample| sample.evidence).collect::<Vec<_>>()),
            server_work: known(|it| it.server_work),
            server_reads: known(|it| it.server_reads),
        }
    });
    rows.collect()
}

/// Names the limit by the rows at the knee and furthest beyond it.
fn limit_of(found: &Estimate, rows: &[Row], setting: Setting) -> (Limit, String) {
    let knee = rows.iter().find(|row| row.size == found.size);
    let (Some(knee), Some(last)) = (knee, rows.last()) else {
        return (Limit::Unknown, String::new());
    };
    if !found.is_reached {
        return (
            Limit::NotReached,
            format!(
                "throughput still grew with {}",
                crate::advice::counted(last.size)
            ),
        );
    }
    limit(
        setting,
        &knee.evidence,
        &last.evidence,
        last.size - knee.size,
    )
}

/// What makes the knee uncertain, if anything does.
fn doubt(found: &Estimate, rows: &[Row], interrupted: bool) -> Option<String> {
    let is_repeated = rows.iter().any(|row| row.measurements >= 3);
    if !is_repeated {
        let why = match interrupted {
            true => "it was interrupted early",
            false => "the time was too short",
        };
        return Some(format!(
            "{why}: no size was measured three times, so this is a first guess; give it more --seconds"
        ));
    }
    found.is_noisy().then(|| {
        format!(
            "too much noise for a verdict: repeats differ by {:.0} %, and the knee may be anywhere from {} to {}; run it \
             on a quiet machine or with more --seconds",
            found.noise * 100.0,
            found.low,
            found.high
        )
    })
}

/// What to know about operations that failed, or were too few.
fn failures(samples: &[Sample]) -> Vec<String> {
    let mut notes = Vec::new();
    let (failed, done): (u64, u64) = samples.iter().fold((0, 0), |(failed, done), sample| {
        (failed + sample.failed, done + sample.done)
    });
    #[allow(clippy::cast_precision_loss, reason = "counts")]
    let share = failed as f64 / (failed + done).max(1) as f64;
    if share >= FAILED {
        let last = samples
            .iter()
            .rev()
            .find_map(|sample| sample.error.clone())
            .unwrap_or_default();
        notes.push(format!(
            "{:.0} % of the operations failed; the last error: {last}",
            share * 100.0
        ));
    }
    let mut counts: Vec<u64> = samples.iter().map(|sample| sample.done).collect();
    counts.sort_unstable();
    if counts
        .get(counts.len() / 2)
        .is_some_and(|middle| *middle < FEWEST_OPERATIONS)
    {
        notes.push("few operations ended in each measurement; give --seconds more".to_owned());
    }
    notes
}
