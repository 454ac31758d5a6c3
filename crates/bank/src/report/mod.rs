//! A page about a run, with its figures over time and the faults as bands. The page stands alone:
//! no scripts, no other files.

mod chart;
mod recorder;

pub use self::recorder::Recorder;
use crate::checks::Finding;
use crate::figures::{counted, grouped};
use crate::summary::Summary;
use crate::workload::Phase;

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1b1f24; --dim: #667; --line: #d4d7dd; --back: #fff; --panel: #f7f8fa;
  --a: #2563eb; --b: #d97706; --c: #059669; --d: #94a3b8; --bad: #dc2626 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --dim: #99a; --line: #383c44; --back: #14161a;
  --panel: #1c1f25; --a: #60a5fa; --b: #fbbf24; --c: #34d399; --d: #64748b; --bad: #f87171 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); margin: 2rem auto;
  max-width: 1000px; padding: 0 1rem }
h1 { font-size: 1.5rem; margin: 0 } h2 { font-size: 1.05rem; margin: 1.6rem 0 .3rem }
p { margin: .2rem 0; color: var(--dim) }
svg { width: 100%; height: auto; background: var(--panel); border-radius: 8px }
svg text { font: 11px system-ui, sans-serif; fill: var(--dim) }
.grid { stroke: var(--line); stroke-width: 1 }
.line { fill: none; stroke-width: 1.6; stroke-linejoin: round }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; color: var(--dim); font-size: .85rem }
.legend i { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .35em }
table { border-collapse: collapse; width: 100% } td { padding: .2rem .8rem .2rem 0; vertical-align: top }
td:first-child { width: 3rem } .ok { color: var(--c) } .bad { color: var(--bad); font-weight: 600 }
.figures { display: flex; flex-wrap: wrap; gap: .4rem 2.2rem; margin-top: .8rem }
.figures b { display: block; font-size: 1.25rem; font-weight: 600 }
";

/// Returns the page.
fn html(recorder: &Recorder, phases: &[Phase], summary: &Summary) -> String {
    let title = format!(
        "{} on {} for {:.1} s",
        counted(summary.tasks, "task"),
        counted(summary.max, "connection"),
        summary.seconds
    );
    let figures = [
        (grouped(summary.committed), "committed"),
        (grouped(summary.per_second), "commits a second"),
        (grouped(summary.rolled_back.total), "rolled back"),
        (format!("{:.1} ms", summary.wait_ms.mean), "mean wait"),
        (format!("{:.1} ms", summary.wait_ms.p99), "p99 of waits"),
        (grouped(summary.pool.created), "connections opened"),
    ];
    let figures: String = figures
        .iter()
        .map(|(value, name)| format!("<span><b>{value}</b>{name}</span>"))
        .collect();
    let checks: String = summary.checks.iter().map(check_row).collect();
    let bands = chart::Bands::new(phases);
    let charts: String = recorder
        .charts()
        .iter()
        .map(|chart| chart.svg(&bands, recorder.seconds()))
        .collect();
    let legend = match bands.legend() {
        legend if legend.is_empty() => String::new(),
        legend => format!("<h2>Faults</h2><div class=legend>{legend}</div>"),
    };
    format!(
        "<!doctype html>\n<html lang=en><meta charset=utf-8><meta name=viewport \
         content=\"width=device-width\"><title>cenote: {title}</title><style>{STYLE}</style>\n\
         <h1>{title}</h1><p>on {}, seed {}{}</p><div class=figures>{figures}</div>{legend}\n\
         {charts}<h2>Checks</h2><table>{checks}</table>\n</html>\n",
        escaped(&summary.database),
        summary.seed,
        if summary.interrupted {
            ", interrupted"
        } else {
            ""
        },
    )
}

fn check_row(finding: &Finding) -> String {
    let (class, word) = match finding.ok {
        true => ("ok", "ok"),
        false => ("bad", "FAIL"),
    };
    format!(
        "<tr><td class={class}>{word}<td>{}<td>{}</tr>",
        escaped(finding.name),
        escaped(&finding.says)
    )
}

/// A text in which nothing is markup.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_the_user_is_no_markup() {
        assert_eq!(
            escaped("<a href=\"x\">&"),
            "&lt;a href=&quot;x&quot;&gt;&amp;"
        );
    }
}
