//! The chart: one panel a scenario, bars on a logarithmic axis, ours in colour.

use std::fmt::Write;

use crate::pools::Kind;
use crate::report::{Report, Table, micros, nanos};

const COLUMNS: usize = 2;
const PANEL: f64 = 620.0;
const MARGIN: f64 = 24.0;
const HEADER: f64 = 84.0;
const TITLE: f64 = 34.0;
const AXIS: f64 = 22.0;
const BAR: f64 = 17.0;
/// Left of the bars: the names.
const NAMES: f64 = 166.0;
/// Right of the longest bar: its value, and in some panels more.
const VALUE: f64 = 60.0;
const WAITS: f64 = 210.0;

/// A panel, ready to be drawn.
struct Panel {
    title: String,
    unit: &'static str,
    /// Room for the labels.
    labels: f64,
    bars: Vec<Bar>,
}

struct Bar {
    name: &'static str,
    kind: Kind,
    /// `None` for a pool that hung.
    value: Option<f64>,
    /// Some tasks starved, so that the others were fast: drawn hollow.
    unfair: bool,
    label: String,
}

pub fn draw(report: &Report) -> String {
    let mut panels: Vec<Panel> = report.tables.iter().map(timed).collect();
    if !report.memory.is_empty() {
        panels.push(memory(report));
    }
    for panel in &mut panels {
        let place = |bar: &Bar| bar.value.unwrap_or(f64::INFINITY);
        let by_place = |a: &Bar, b: &Bar| place(a).total_cmp(&place(b));
        let bars = &mut panel.bars;
        bars.sort_by(|a, b| a.unfair.cmp(&b.unfair).then(by_place(a, b)));
    }
    // All panels in a row are as high as the highest of them.
    let rows: Vec<&[Panel]> = panels.chunks(COLUMNS).collect();
    let heights: Vec<f64> = rows
        .iter()
        .map(|row| row.iter().map(Panel::height).fold(0.0, f64::max))
        .collect();
    let width = COLUMNS as f64 * PANEL + (COLUMNS + 1) as f64 * MARGIN;
    let height = HEADER + heights.iter().map(|height| height + MARGIN).sum::<f64>();

    let mut svg = String::new();
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         width=\"{width:.0}\" height=\"{height:.0}\" \
         font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\" fill=\"#1b1f24\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>"
    );
    header(&mut svg, report);
    let mut y = HEADER;
    for (row, height) in rows.iter().zip(&heights) {
        for (column, panel) in row.iter().enumerate() {
            let x = MARGIN + column as f64 * (PANEL + MARGIN);
            panel.draw(&mut svg, x, y);
        }
        y += height + MARGIN;
    }
    svg += "</svg>\n";
    svg
}

fn header(svg: &mut String, report: &Report) {
    text(
        svg,
        MARGIN,
        30.0,
        "What a checkout costs",
        "font-size=\"20\" font-weight=\"bold\"",
    );
    let machine = report.machine.line();
    text(svg, MARGIN, 50.0, &machine, "fill=\"#57606a\"");
    let mut x = MARGIN;
    for (paint, label) in [
        (paint(Kind::Ours), "cenote-pool"),
        (paint(Kind::Peer), "other pools"),
        (HOLLOW, "starves some of its tasks"),
        (paint(Kind::Floor), "floors: what a pool is made of"),
    ] {
        rect(svg, (x, 60.0), (12.0, 12.0), paint);
        text(svg, x + 18.0, 70.0, label, "");
        x += 44.0 + 6.5 * label.len() as f64;
    }
    let rule = "shorter is better; every axis is logarithmic";
    text(svg, x, 70.0, rule, "fill=\"#57606a\"");
}

fn timed(table: &Table) -> Panel {
    let bars = table.rows.iter().map(|row| {
        let summary = &row.summary;
        let mut label = summary.ns.map_or_else(String::new, nanos);
        if let Some(waits) = summary.waits {
            let _ = write!(label, " · worst {} µs", micros(waits.worst));
        }
        if summary.hung {
            label = "did not end".into();
        } else if summary.starved > 0 {
            let _ = write!(label, " · {} starved", summary.starved);
        }
        Bar {
            name: row.name,
            kind: row.kind,
            value: summary.ns,
            unfair: summary.starved > 0,
            label,
        }
    });
    Panel {
        title: table.scenario.clone() + ": " + table.title.split(" (").next().unwrap_or(""),
        unit: "ns a checkout",
        labels: if table.has_waits() { WAITS } else { VALUE },
        bars: bars.collect(),
    }
}

fn memory(report: &Report) -> Panel {
    let bars = report.memory.iter().filter_map(|row| {
        let bytes = |memory: Option<crate::scenarios::waiting::Memory>| {
            memory.map(|memory| memory.beyond_task.max(1.0))
        };
        let (forever, within) = (bytes(row.forever), bytes(row.within));
        let label = match (forever, within) {
            (Some(forever), Some(within)) => format!("{forever:.0} · timeout {within:.0}"),
            (Some(forever), None) => format!("{forever:.0}"),
            (None, Some(within)) => format!("timeout {within:.0}"),
            (None, None) => return None,
        };
        Some(Bar {
            name: row.name,
            kind: row.kind,
            value: forever.or(within),
            unfair: false,
            label,
        })
    });
    Panel {
        title: format!(
            "waiting: {} tasks at once, beyond the task itself",
            report.waiters
        ),
        unit: "bytes a waiter",
        labels: WAITS,
        bars: bars.collect(),
    }
}

impl Panel {
    fn height(&self) -> f64 {
        TITLE + AXIS + BAR * self.bars.len() as f64
    }

    fn draw(&self, svg: &mut String, x: f64, y: f64) {
        text(svg, x, y + 14.0, &self.title, "font-weight=\"bold\"");
        let values = || self.bars.iter().filter_map(|bar| bar.value);
        let least = values().fold(f64::INFINITY, f64::min);
        let most = values().fold(1.0, f64::max);
        // Whole decades, so that the lines stand at round numbers.
        let from = if least.is_finite() {
            least.log10().floor()
        } else {
            0.0
        };
        let to = most.log10().ceil().max(from + 1.0);
        let left = x + NAMES;
        let length = PANEL - NAMES - self.labels;
        let at = |value: f64| (value.log10() - from) / (to - from) * length;
        let top = y + TITLE;
        let bottom = top + BAR * self.bars.len() as f64;
        self.axis(svg, (left, top - 4.0, bottom), from, to, &at);
        for (index, bar) in self.bars.iter().enumerate() {
            let y = top + BAR * index as f64;
            let bold = match bar.kind {
                Kind::Ours => "font-weight=\"bold\"",
                _ => "",
            };
            let name = format!("text-anchor=\"end\" {bold}");
            text(svg, left - 8.0, y + 12.0, bar.name, &name);
            // The smallest value may lie on the axis' very begin.
            let width = bar.value.map_or(0.0, at).max(1.5);
            let paint = if bar.unfair { HOLLOW } else { paint(bar.kind) };
            rect(svg, (left, y + 2.0), (width, BAR - 4.0), paint);
            text(svg, left + width + 6.0, y + 12.0, &bar.label, bold);
        }
    }

    fn axis(
        &self,
        svg: &mut String,
        (left, top, bottom): (f64, f64, f64),
        from: f64,
        to: f64,
        at: &dyn Fn(f64) -> f64,
    ) {
        let mut decade = from;
        while decade <= to {
            let value = 10f64.powf(decade);
            let x = left + at(value);
            let _ = writeln!(
                svg,
                "<line x1=\"{x:.1}\" y1=\"{top:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\" \
                 stroke=\"#d0d7de\"/>"
            );
            let middle = "text-anchor=\"middle\" font-size=\"10\" fill=\"#57606a\"";
            text(svg, x, bottom + 13.0, &format!("{value}"), middle);
            decade += 1.0;
        }
        let end = "text-anchor=\"end\" font-size=\"10\" fill=\"#57606a\"";
        text(svg, left - 16.0, bottom + 13.0, self.unit, end);
    }
}

const HOLLOW: &str = "fill=\"#ffffff\" stroke=\"#9aa4af\" stroke-dasharray=\"3 2\"";

fn paint(kind: Kind) -> &'static str {
    match kind {
        Kind::Ours => "fill=\"#0b7a75\"",
        Kind::Peer => "fill=\"#9aa4af\"",
        Kind::Floor => "fill=\"#d9c8a5\"",
    }
}

fn rect(svg: &mut String, (x, y): (f64, f64), (width, height): (f64, f64), paint: &str) {
    let _ = writeln!(
        svg,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
         {paint}/>"
    );
}

fn text(svg: &mut String, x: f64, y: f64, text: &str, style: &str) {
    let text = text
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{text}</text>");
}
