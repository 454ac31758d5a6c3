//! Charts as SVG: lines and areas over time, with the faults as bands behind them.

use std::fmt::Write;

use super::escaped;
use crate::workload::Phase;

/// The size of a chart, and what its labels need.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 190.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 24.0;
/// A band is at least so wide, so that a short fault can be seen.
const NARROWEST: f64 = 1.5;

/// Seconds, and the value then.
pub(super) type Point = (f64, Option<f64>);

/// A chart of figures over time.
pub(super) struct Chart {
    pub(super) title: &'static str,
    pub(super) unit: &'static str,
    pub(super) series: Vec<Series>,
}

/// A figure over time: seconds and values. Where there is no value the line has a gap.
pub(super) struct Series {
    name: &'static str,
    /// The variable of the style sheet that has its colour.
    colour: &'static str,
    is_area: bool,
    points: Vec<Point>,
}

impl Series {
    pub(super) fn line(name: &'static str, colour: &'static str, points: Vec<Point>) -> Self {
        Series {
            name,
            colour,
            is_area: false,
            points,
        }
    }

    pub(super) fn area(name: &'static str, colour: &'static str, points: Vec<Point>) -> Self {
        Series {
            is_area: true,
            ..Series::line(name, colour, points)
        }
    }
}

/// Faults and quiet moments, with a colour for each kind.
pub(super) struct Bands<'p> {
    phases: &'p [Phase],
    names: Vec<&'static str>,
}

impl<'p> Bands<'p> {
    pub(super) fn new(phases: &'p [Phase]) -> Self {
        let mut names: Vec<&str> = phases.iter().map(|phase| phase.name).collect();
        names.sort_unstable();
        names.dedup();
        Bands { phases, names }
    }

    fn colour(&self, name: &str) -> String {
        if name == "quiet moment" {
            return "var(--d)".to_owned();
        }
        let at = self.names.iter().position(|of| *of == name).unwrap_or(0);
        // Neighbours in the list are far apart on the circle of colours.
        format!("hsl({} 75% 55%)", at * 137 % 360)
    }

    pub(super) fn legend(&self) -> String {
        let mut legend = String::new();
        for name in &self.names {
            let count = self
                .phases
                .iter()
                .filter(|phase| phase.name == *name)
                .count();
            let (colour, name) = (self.colour(name), escaped(name));
            // Writing to a text cannot fail.
            let _ = write!(
                legend,
                "<span><i style=\"background:{colour}\"></i>{name}, {count}</span>"
            );
        }
        legend
    }

    fn svg(&self, x: impl Fn(f64) -> f64, seconds: f64) -> String {
        let mut bands = String::new();
        for phase in self.phases {
            let from = phase.from.as_secs_f64().min(seconds);
            let to = phase.to.map_or(seconds, |to| to.as_secs_f64()).min(seconds);
            let width = (x(to) - x(from)).max(NARROWEST);
            let _ = write!(
                bands,
                "<rect x={:.1} y={TOP} width={width:.1} height={:.1} fill=\"{}\" fill-opacity=.3>\
                 <title>{}, {from:.2} to {to:.2} s</title></rect>",
                x(from),
                HEIGHT - TOP - BOTTOM,
                self.colour(phase.name),
                escaped(phase.name)
            );
        }
        bands
    }
}

impl Chart {
    pub(super) fn svg(&self, bands: &Bands<'_>, seconds: f64) -> String {
        let values = self.series.iter().flat_map(|series| &series.points);
        let highest = values.filter_map(|(_, value)| *value).fold(0.0, f64::max);
        let top = round_up(highest, &VALUES);
        let x = |at: f64| LEFT + at / seconds * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM);
        let mut drawn = bands.svg(x, seconds);
        for part in 0..=4 {
            let value = top * f64::from(part) / 4.0;
            let (end, edge, height) = (WIDTH - RIGHT, LEFT - 6.0, y(value));
            let (baseline, label) = (height + 4.0, labelled(value));
            let _ = write!(
                drawn,
                "<line class=grid x1={LEFT} x2={end} y1={height:.1} y2={height:.1} />\
                 <text x={edge} y={baseline:.1} text-anchor=end>{label}</text>"
            );
        }
        let step = round_up(seconds / 12.0, &TIMES);
        let mut at = 0.0;
        while at <= seconds {
            let _ = write!(
                drawn,
                "<text x={:.1} y={} text-anchor=middle>{} s</text>",
                x(at),
                HEIGHT - 8.0,
                labelled(at)
            );
            at += step;
        }
        for series in &self.series {
            drawn.push_str(&series.svg(x, y));
        }
        let legend: String = self
            .series
            .iter()
            .map(|series| {
                let (colour, name) = (series.colour, series.name);
                format!("<span><i style=\"background:var({colour})\"></i>{name}</span>")
            })
            .collect();
        let (title, unit) = (self.title, self.unit);
        format!(
            "<h2>{title}</h2><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=img aria-label=\"{title}: \
             {unit}, over time\">{drawn}</svg><div class=legend>{legend}</div>\n"
        )
    }
}

impl Series {
    fn svg(&self, x: impl Fn(f64) -> f64, y: impl Fn(f64) -> f64) -> String {
        let (Some((first, _)), Some((last, _))) = (self.points.first(), self.points.last()) else {
            return String::new();
        };
        let mut path = String::new();
        let mut letter = 'M';
        for (at, value) in &self.points {
            match value {
                Some(value) => {
                    let _ = write!(path, "{letter}{:.1} {:.1}", x(*at), y(*value));
                    letter = 'L';
                }
                None => letter = 'M',
            }
        }
        let colour = self.colour;
        match self.is_area {
            false => format!("<path class=line stroke=\"var({colour})\" d=\"{path}\" />"),
            true => format!(
                "<path fill=\"var({colour})\" fill-opacity=.55 d=\"{path}L{:.1} {:.1}L{:.1} {:.1}Z\" />",
                x(*last),
                y(0.0),
                x(*first),
                y(0.0)
            ),
        }
    }
}

/// Where an axis of values can end, and how far apart times can be, up to powers of ten.
const VALUES: [f64; 8] = [1.0, 1.2, 1.6, 2.0, 3.0, 4.0, 6.0, 8.0];
const TIMES: [f64; 3] = [1.0, 2.0, 5.0];

/// Returns the least round number that is not below a value.
fn round_up(value: f64, steps: &[f64]) -> f64 {
    let power = 10_f64.powf(value.max(1e-3).log10().floor());
    let step = steps.iter().find(|step| *step * power >= value);
    step.copied().unwrap_or(10.0) * power
}

fn labelled(value: f64) -> String {
    match value {
        _ if value >= 10_000.0 => format!("{:.0}k", value / 1_000.0),
        _ if value.fract() == 0.0 => format!("{value:.0}"),
        _ => format!("{value:.2}").trim_end_matches('0').to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn axes_end_at_round_numbers() {
        for (value, steps, round) in [
            (0.3, &VALUES[..], 0.3),
            (1.0, &VALUES, 1.0),
            (17.0, &VALUES, 20.0),
            (561.0, &VALUES, 600.0),
            (900.0, &VALUES, 1_000.0),
            (1.7, &TIMES, 2.0),
            (5.1, &TIMES, 10.0),
        ] {
            let rounded = round_up(value, steps);
            assert!((rounded - round).abs() < 1e-9, "{value}: {rounded}");
        }
        assert_eq!(labelled(2_500.0), "2500");
        assert_eq!(labelled(20_000.0), "20k");
        assert_eq!(labelled(0.25), "0.25");
    }

    #[test]
    fn lines_and_areas_stay_inside_the_chart() {
        let chart = Chart {
            title: "T",
            unit: "u",
            series: vec![
                Series::line("a", "--a", vec![(0.0, Some(0.0)), (1.0, Some(10.0))]),
                Series::area("b", "--b", vec![(0.0, Some(3.0)), (1.0, Some(3.0))]),
            ],
        };
        let svg = chart.svg(&Bands::new(&[]), 1.0);
        let first = format!("M{LEFT:.1} {:.1}", HEIGHT - BOTTOM);
        let last = format!("L{:.1} {TOP:.1}", WIDTH - RIGHT);
        assert!(svg.contains(&format!("{first}{last}")), "{svg}");
        assert!(svg.contains("Z\""), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn a_line_has_a_gap_where_there_is_no_value() {
        let points = vec![(0.0, Some(1.0)), (1.0, None), (2.0, Some(1.0))];
        let svg = Series::line("a", "--a", points).svg(|at| at, |value| value);
        assert!(svg.contains("d=\"M0.0 1.0M2.0 1.0\""), "{svg}");
    }

    #[test]
    fn an_empty_run_draws_an_empty_chart() {
        let series = vec![Series::line("a", "--a", Vec::new())];
        let chart = Chart {
            title: "T",
            unit: "u",
            series,
        };
        let svg = chart.svg(&Bands::new(&[]), 0.1);
        assert!(!svg.contains("NaN") && !svg.contains("<path"), "{svg}");
    }

    #[test]
    fn each_kind_of_fault_has_one_colour_and_a_count() {
        let phase = |name, from| Phase {
            name,
            from: Duration::from_secs(from),
            to: Some(Duration::from_secs(from + 1)),
        };
        let phases = [phase("cut", 1), phase("black hole", 3), phase("cut", 5)];
        let bands = Bands::new(&phases);
        assert_ne!(bands.colour("black hole"), bands.colour("cut"));
        assert!(bands.legend().contains("cut, 2"), "{}", bands.legend());
        let drawn = bands.svg(|at| at * 10.0, 5.5);
        assert!(drawn.contains("x=10.0 y=12 width=10.0"), "{drawn}");
        assert!(
            drawn.contains("<title>cut, 5.00 to 5.50 s</title>"),
            "{drawn}"
        );
    }
}
