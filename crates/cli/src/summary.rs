//! The summary of a run, for people and for programs.

use cenote_bank::figures::{counted, grouped};
use cenote_bank::{CAUSES, ChaosReport, Millis, NotBegun, Outcome, Summary};

use crate::screen::Paint;

/// Formats a summary as one line of JSON.
pub(crate) fn json(summary: &Summary) -> String {
    let mut json = serde_json::to_string(summary).expect("numbers and texts can be written");
    json.push('\n');
    json
}

/// Formats a summary for people: within 80 columns, unless a message of the database is longer.
pub(crate) fn text(summary: &Summary, paint: Paint) -> String {
    let mut text = String::new();
    let mut line = |of: String| {
        text.push_str(&of);
        text.push('\n');
    };
    let title = format!(
        "{} on {} for {:.1} s",
        counted(summary.tasks, "task"),
        counted(summary.max, "connection"),
        summary.seconds
    );
    line(format!(
        "{}{}",
        paint.bold(&title),
        if summary.interrupted {
            ", interrupted"
        } else {
            ""
        }
    ));
    line(format!("on {}, seed {}", summary.database, summary.seed));
    line(String::new());
    line(row(
        "committed",
        summary.committed,
        &format!("{} a second", grouped(summary.per_second)),
    ));
    line(row("rolled back", summary.rolled_back.total, ""));
    for (cause, count) in CAUSES.into_iter().zip(summary.rolled_back.causes()) {
        let (name, why) = described(cause);
        line(row(&format!("  {name}"), count, why));
    }
    line(row(
        "not begun",
        summary.not_begun.cancelled + summary.not_begun.no_connection,
        &why_not_begun(&summary.not_begun),
    ));
    line(row(
        "unknown",
        summary.unknown,
        "cancelled during the commit; the books tell",
    ));
    if let Some(complaint) = &summary.complaint {
        let complaint = complaint.replace(char::is_control, " ");
        line(format!("{}  {complaint}", paint.yellow("complaint  ")));
    }
    line(String::new());
    if let Some(chaos) = &summary.chaos {
        chaos_lines(chaos).into_iter().for_each(&mut line);
    }
    line(format!("waits        {}", times(&summary.wait_ms)));
    line(format!(
        "connections  {} opened, {} closed; lent {} times, waited for {} times",
        grouped(summary.pool.created),
        grouped(summary.pool.destroyed),
        grouped(summary.pool.acquired),
        grouped(summary.pool.waited)
    ));
    line(String::new());
    for finding in &summary.checks {
        let (name, says) = (finding.name, &finding.says);
        line(match finding.ok {
            true => format!("{}  {name:<13} {says}", paint.green("ok  ")),
            false => format!("{}  {name:<13} {}", paint.red("FAIL"), paint.red(says)),
        });
    }
    if summary.chaos.is_some() && !summary.ok {
        line(format!("\nThe same again: --seed {}", summary.seed));
    }
    if let Some(place) = &summary.kept {
        line(format!("\nThe tables are left in {place}"));
    }
    text
}

/// The lines about faults.
fn chaos_lines(report: &ChaosReport) -> Vec<String> {
    let mut lines = Vec::new();
    let total = report.faults.iter().map(|fault| fault.count).sum();
    lines.push(row("faults", total, "and how long until commits went on"));
    for fault in &report.faults {
        lines.push(format!(
            "  {:<19} {:>3}  {:.0} ms mean, {:.0} ms longest",
            fault.kind.name(),
            fault.count,
            fault.recovery_mean_ms,
            fault.recovery_max_ms
        ));
    }
    if let Some(cluster) = &report.cluster {
        let count = cluster.failovers.iter().map(|it| it.count as u64).sum();
        if count > 0 {
            let means = "and how long until writes were back";
            lines.push(row("promotions", count, means));
        }
        for failover in &cluster.failovers {
            lines.push(format!(
                "  {:<19} {:>3}  {:.0} ms median, {:.0} ms longest",
                failover.kind.name(),
                failover.count,
                failover.writes_back_median_ms,
                failover.writes_back_max_ms
            ));
        }
        lines.push(format!("errors       {}", cluster.errors.losses()));
        for (name, of) in &cluster.errors.others {
            let first = of.first.replace(char::is_control, " ");
            lines.push(row(&format!("  {name}"), of.count, &first));
        }
    }
    if report.shared_reads > 0 {
        let means = "on shared connections";
        lines.push(row("shared reads", report.shared_reads, means));
    }
    for left_out in &report.left_out {
        lines.push(format!("left out     {left_out}"));
    }
    lines.push(format!("visits       {}", times(&report.visit_ms)));
    lines
}

/// Formats a name, a number below the others, and what it means.
pub(crate) fn row(name: &str, count: u64, means: &str) -> String {
    let line = format!("{name:<12} {:>11}  {means}", grouped(count));
    line.trim_end().to_owned()
}

/// The name of a cause, and what it means.
pub(crate) fn described(cause: Outcome) -> (&'static str, &'static str) {
    match cause {
        Outcome::Error => ("error", "changed their mind, or too poor"),
        Outcome::Panic => ("panic", "in the middle of the transaction"),
        Outcome::Cancel => ("cancel", "aborted, or cut off half-way"),
        Outcome::Forgotten => ("forgotten", "never committed"),
        Outcome::Database => ("database", "refused by the database"),
        _ => ("", ""),
    }
}

fn why_not_begun(not_begun: &NotBegun) -> String {
    match not_begun.no_connection {
        0 => "cancelled before they began".to_owned(),
        some => format!("{} of them found no connection", grouped(some)),
    }
}

fn times(millis: &Millis) -> String {
    let Millis { mean, p99, max, .. } = millis;
    format!("{mean:.1} ms mean, {p99:.1} ms p99, {max:.1} ms longest")
}
