//! The page about a measurement: HTML with SVG, without scripts and other files.

use std::fmt::Write;

use crate::advice::rated;
use crate::limit::Limit;
use crate::report::{Report, Row};

/// The size of a chart, and what its labels need.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 40.0;

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1b1f24; --dim: #5b6270; --line: #d4d7dd; --back: #fff; --panel: #f7f8fa;
  --a: #2563eb; --b: #d97706; --c: #059669; --bad: #b91c1c }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --dim: #9aa3b2; --line: #383c44; --back: #14161a;
  --panel: #1c1f25; --a: #60a5fa; --b: #fbbf24; --c: #34d399; --bad: #f87171 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); margin: 2rem auto;
  max-width: 1000px; padding: 0 1rem }
h1 { font-size: 1.5rem; margin: 0 } h2 { font-size: 1.05rem; margin: 1.6rem 0 .3rem }
p { margin: .2rem 0 } .dim { color: var(--dim) } .note { color: var(--bad) }
.answer { background: var(--panel); border-left: 4px solid var(--c); border-radius: 6px; padding: .7rem 1rem;
  margin: 1rem 0 } .answer b { font-size: 1.35rem } code { font: .92em ui-monospace, monospace }
svg { width: 100%; height: auto; background: var(--panel); border-radius: 8px }
svg text { font: 12px system-ui, sans-serif; fill: var(--dim) } svg .knee { fill: var(--c); font-weight: 600 }
.grid { stroke: var(--line); stroke-width: 1 } .mark { stroke: var(--c); stroke-dasharray: 4 4; stroke-width: 1.5 }
.line { fill: none; stroke-width: 2; stroke-linejoin: round }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; color: var(--dim); font-size: .85rem }
.legend i { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .35em }
.scroll { overflow-x: auto } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { text-align: right; padding: .2rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap }
th { color: var(--dim); font-weight: 500; font-size: .85rem } tr.knee td { font-weight: 600; color: var(--c) }
";

/// A line of a chart: a name, a variable of the style sheet, and a value for each row.
type Line<'l> = (&'l str, &'l str, fn(&Row) -> f64);

pub(crate) fn html(report: &Report) -> String {
    let database = escaped(&report.database);
    let mode = if report.read_only {
        "read-only"
    } else {
        "with writes"
    };
    let interrupted = if report.interrupted {
        ", interrupted"
    } else {
        ""
    };
    let mut notes = String::new();
    for note in &report.notes {
        // Writing to a text cannot fail.
        let _ = write!(notes, "<p class=note>{}</p>", escaped(note));
    }
    let knee = report.knee.map(|knee| knee.connections);
    let throughput = chart(
        "Throughput",
        "operations a second",
        &report.sizes,
        knee,
        &[(
            "operations a second (median; the bars reach from the lowest to the highest)",
            "--a",
            |row| row.throughput,
        )],
        true,
    );
    let times = chart(
        "Where the time goes",
        "milliseconds",
        &report.sizes,
        knee,
        &[
            ("statement, p50", "--a", |row| row.statement_ms.p50),
            ("statement, p99", "--b", |row| row.statement_ms.p99),
            ("wait for a connection, p50", "--c", |row| row.wait_ms.p50),
        ],
        false,
    );
    format!(
        "<!doctype html>\n<html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <title>cenote size: {database}</title><style>{STYLE}</style>\n\
         <h1>How large should the pool be?</h1>\
         <p class=dim>{database}, {} ({mode}), {} clients, {:.0} s{interrupted}</p>\n\
         {}{notes}\n{throughput}{times}{}</html>\n",
        escaped(&report.workload),
        report.clients,
        report.seconds,
        answer(report),
        table(report, knee),
    )
}

fn answer(report: &Report) -> String {
    let Some(advice) = &report.recommendation else {
        return "<div class=answer><p>Nothing was measured.</p></div>".to_owned();
    };
    let each = match (advice.instances, advice.replicas) {
        (1, 1) => String::new(),
        (instances, 1) => format!(" for each of {instances} instances"),
        (1, replicas) => format!(" over {replicas} servers"),
        (instances, replicas) => {
            format!(" for each of {instances} instances, over {replicas} servers")
        }
    };
    let limit = match report.limit {
        Limit::Unknown | Limit::NotReached => format!("Limit: {}", report.limit.name()),
        limit => format!("Limit: {} ({})", limit.name(), escaped(&report.evidence)),
    };
    let certainty = report.knee.map_or(String::new(), |knee| {
        format!(
            "Certainty: {:.0} % within {} to {}; repeats differ by {:.1} %",
            knee.confidence * 100.0,
            knee.low,
            knee.high,
            knee.noise * 100.0
        )
    });
    format!(
        "<div class=answer><b>{}</b>{each}<p>{}</p><p>Set <code>{}</code></p><p class=dim>{limit}. {certainty}.</p></div>",
        crate::advice::counted(advice.max),
        escaped(&advice.reason),
        escaped(&advice.setting)
    )
}

fn chart(
    title: &str,
    unit: &str,
    rows: &[Row],
    knee: Option<usize>,
    lines: &[Line<'_>],
    has_ranges: bool,
) -> String {
    let mut legend = String::new();
    for (name, colour, _) in lines {
        let _ = write!(
            legend,
            "<span><i style=\"background:var({colour})\"></i>{name}</span>"
        );
    }
    let highest = rows.iter().flat_map(|row| {
        let values = lines.iter().map(|(_, _, of)| of(row));
        values.chain(has_ranges.then_some(row.throughput_high))
    });
    let top = round_up(highest.fold(0.0, f64::max));
    let most = rows.iter().map(|row| row.size).max().unwrap_or(1);
    // Doublings are equally far apart.
    let x = |size: usize| LEFT + log2(size) / log2(most).max(1.0) * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM);
    let mut drawn = String::new();
    for part in 0..=4 {
        let value = top * f64::from(part) / 4.0;
        let _ = write!(
            drawn,
            "<line class=grid x1={LEFT} x2={} y1={h:.1} y2={h:.1} /><text x={} y={:.1} text-anchor=end>{}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            y(value) + 4.0,
            labelled(value),
            h = y(value)
        );
    }
    let mut edge = f64::NEG_INFINITY;
    for row in rows {
        // Labels that would overlap are left out.
        if x(row.size) - edge >= 22.0 {
            edge = x(row.size);
            let _ = write!(
                drawn,
                "<text x={edge:.1} y={} text-anchor=middle>{}</text>",
                HEIGHT - 22.0,
                row.size
            );
        }
    }
    let _ = write!(
        drawn,
        "<text x={} y={} text-anchor=middle>connections</text>",
        (LEFT + WIDTH) / 2.0,
        HEIGHT - 6.0
    );
    if let Some(knee) = knee {
        let at = x(knee);
        let _ = write!(
            drawn,
            "<line class=mark x1={at:.1} x2={at:.1} y1={TOP} y2={:.1} />",
            HEIGHT - BOTTOM
        );
        let (anchor, shift) = if at > WIDTH * 0.8 {
            ("end", -6.0)
        } else {
            ("start", 6.0)
        };
        let _ = write!(
            drawn,
            "<text class=knee x={:.1} y={:.1} text-anchor={anchor}>knee: {knee}</text>",
            at + shift,
            HEIGHT - BOTTOM - 8.0
        );
    }
    for (_, colour, of) in lines {
        let mut path = String::new();
        for (at, row) in rows.iter().enumerate() {
            let letter = if at == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{letter}{:.1} {:.1}", x(row.size), y(of(row)));
        }
        let _ = write!(
            drawn,
            "<path class=line stroke=\"var({colour})\" d=\"{path}\" />"
        );
        for row in rows {
            let at = x(row.size);
            if has_ranges {
                let (low, high) = (y(row.throughput_low), y(row.throughput_high));
                let _ = write!(
                    drawn,
                    "<line x1={at:.1} x2={at:.1} y1={low:.1} y2={high:.1} stroke=\"var({colour})\" />"
                );
            }
            let _ = write!(
                drawn,
                "<circle cx={at:.1} cy={:.1} r=3 fill=\"var({colour})\"><title>{}: {}</title></circle>",
                y(of(row)),
                crate::advice::counted(row.size),
                rated(of(row))
            );
        }
    }
    format!(
        "<h2>{title}, {unit}</h2><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=img aria-label=\"{title}: {unit}, by connections\">\
         {drawn}</svg><div class=legend>{legend}</div>\n"
    )
}

fn table(report: &Report, knee: Option<usize>) -> String {
    let mut rows = String::new();
    for row in &report.sizes {
        let class = if Some(row.size) == knee {
            " class=knee"
        } else {
            ""
        };
        let cpu =
            |value: Option<f64>| value.map_or("unknown".to_owned(), |value| format!("{value:.2}"));
        let activity = row.evidence.activity.map_or(
            ["unknown".to_owned(), String::new(), String::new()],
            |activity| {
                [activity.cpu, activity.locks, activity.disk].map(|value| format!("{value:.1}"))
            },
        );
        let machine = row
            .evidence
            .machine_cpu
            .map_or("unknown".to_owned(), |share| {
                format!("{:.0} %", share * 100.0)
            });
        let _ = write!(
            rows,
            "<tr{class}><td>{}<td>{}<td>{}<td>{:.2}<td>{:.2}<td>{:.1}<td>{:.1}<td>{}<td>{machine}<td>{}<td>{}<td>{}\
             <td>{:.1}</tr>",
            row.size,
            row.measurements,
            rated(row.throughput),
            row.statement_ms.p50,
            row.statement_ms.p99,
            row.wait_ms.p50,
            row.wait_ms.p99,
            cpu(row.evidence.client_cpu),
            activity[0],
            activity[1],
            activity[2],
            row.evidence.waiting_to_write
        );
    }
    format!(
        "<h2>Figures</h2><div class=scroll><table><tr><th>connections<th>measured<th>ops/s<th>statement p50<th>p99 ms\
         <th>wait p50<th>p99 ms<th>client CPUs<th>machine<th>sessions on CPU<th>in locks<th>on disk<th>waiting to \
         write</tr>{rows}</table></div>\n"
    )
}

#[allow(clippy::cast_precision_loss, reason = "a number of connections")]
fn log2(size: usize) -> f64 {
    (size.max(1) as f64).log2()
}

/// Returns the least round number that is not below a value.
fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.max(1e-3).log10().floor());
    let steps = [1.0, 1.2, 1.6, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0];
    let step = steps.iter().find(|step| **step * power >= value);
    step.copied().unwrap_or(10.0) * power
}

fn labelled(value: f64) -> String {
    match value {
        _ if value >= 10_000.0 => format!("{:.0}k", value / 1_000.0),
        _ if value.fract() == 0.0 => format!("{value:.0}"),
        _ => format!("{value:.2}").trim_end_matches('0').to_owned(),
    }
}

/// A text in which nothing is markup.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
