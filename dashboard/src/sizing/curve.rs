//! From which number of busy connections on a database serves no more: the one rule behind the verdict of the page and
//! the recommendation of `cenote size`.

/// The share of the plateau at which a curve counts as flat.
const FLAT: f64 = 0.95;

/// So many standard errors below that share, a point is seen to lie below.
const ERRORS: f64 = 2.0;
/// Great errors excuse no more than this share of the plateau.
const MOST_EXCUSED: f64 = 0.2;

/// Seconds with the same number of busy connections: fewer are no basis for a point.
const FEWEST_SECONDS: usize = 5;

/// The throughput of a database while this many connections were busy.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// How many connections were busy.
    pub connections: usize,
    /// What was done in a second: statements, transactions or checkouts, the same for all points.
    pub throughput: f64,
    /// The standard error of the throughput, as a share of it; zero if it is exact.
    pub error: f64,
}

/// Where a curve becomes flat.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Knee {
    /// The fewest connections that reach 95 % of the plateau, as far as the errors of the points allow to tell.
    pub connections: usize,
    /// The throughput of the plateau.
    pub plateau: f64,
    /// There are points far enough beyond: a quarter more connections brought no more. If not, the curve may still grow.
    pub is_reached: bool,
}

/// Returns where a curve becomes flat. `None` if nothing was done in any of the points. The order of the points does not
/// matter.
///
/// The plateau is the mean of the highest third of the points, at most of three, so that a single lucky point
/// does not raise it much. A point counts as flat unless it lies below by more than two standard errors, at most 20 %: more
/// connections are recommended only where they are seen to do more.
///
/// # Examples
///
/// ```
/// use cenote_dashboard::sizing::curve::{Point, knee};
///
/// // A server that works on four statements at a time.
/// let points = [1, 2, 3, 4, 5, 6, 8, 16].map(|connections| Point {
///     connections,
///     throughput: 20.0 * connections.min(4) as f64,
///     error: 0.01,
/// });
/// let knee = knee(&points).unwrap();
/// assert_eq!((knee.connections, knee.is_reached), (4, true));
/// ```
pub fn knee(points: &[Point]) -> Option<Knee> {
    let mut highest: Vec<f64> = points.iter().map(|point| point.throughput).collect();
    highest.sort_by(|a, b| b.total_cmp(a));
    highest.truncate((points.len() / 3).clamp(1, 3));
    #[allow(clippy::cast_precision_loss, reason = "at most three")]
    let plateau = highest.iter().sum::<f64>() / highest.len() as f64;
    if !plateau.is_finite() || plateau <= 0.0 {
        return None;
    }
    let flat = points.iter().filter(|point| {
        point.throughput >= (FLAT - (ERRORS * point.error).min(MOST_EXCUSED)) * plateau
    });
    let connections = flat.map(|point| point.connections).min()?;
    let beyond = connections + connections.div_ceil(4);
    Some(Knee {
        connections,
        plateau,
        is_reached: points.iter().any(|point| point.connections >= beyond),
    })
}

/// Returns the points of a program at work: the medians of its seconds, each with the average number of busy connections
/// and the throughput.
pub fn of_seconds(seconds: impl IntoIterator<Item = (f64, f64)>) -> Vec<Point> {
    let mut by_busy: std::collections::BTreeMap<usize, Vec<f64>> = Default::default();
    for (busy, throughput) in seconds {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a small positive number"
        )]
        let connections = busy.max(0.0).round() as usize;
        by_busy.entry(connections).or_default().push(throughput);
    }
    by_busy.retain(|connections, of| *connections > 0 && of.len() >= FEWEST_SECONDS);
    let points = by_busy.into_iter().map(|(connections, of)| Point {
        connections,
        throughput: median(&of),
        error: standard_error(spread(&of), of.len()),
    });
    points.collect()
}

/// Returns the median; the mean of the two in the middle of an even number; 0 of none.
pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => values[odd / 2],
        even => f64::midpoint(values[even / 2 - 1], values[even / 2]),
    }
}

/// Returns how far values usually lie from their median, as a share of it: a standard deviation that a few wild values do
/// not change.
pub fn spread(values: &[f64]) -> f64 {
    let middle = median(values);
    let distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    1.48 * median(&distances) / middle.max(f64::MIN_POSITIVE)
}

/// Returns the standard error of the median of this many values with this spread.
pub fn standard_error(spread: f64, values: usize) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "a small number")]
    let values = values.max(1) as f64;
    1.25 * spread / values.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(sizes: &[usize], throughput: impl Fn(f64) -> f64) -> Vec<Point> {
        let point = |&connections: &usize| Point {
            connections,
            #[allow(clippy::cast_precision_loss, reason = "a small number")]
            throughput: throughput(connections as f64),
            error: 0.0,
        };
        sizes.iter().map(point).collect()
    }

    const SIZES: [usize; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 16, 32];

    #[test]
    fn flat_curve_needs_one_connection() {
        let flat = knee(&curve(&SIZES, |_| 100.0)).unwrap();
        assert_eq!((flat.connections, flat.is_reached), (1, true));
    }

    #[test]
    fn knee_of_a_server_with_places_is_their_number() {
        for places in 1..=16 {
            let sizes: Vec<usize> = (1..=20).chain([32, 64]).collect();
            let found = knee(&curve(&sizes, |n| n.min(f64::from(places)))).unwrap();
            assert_eq!(found.connections, usize::try_from(places).unwrap());
            assert!(found.is_reached);
        }
    }

    #[test]
    fn growing_curve_has_no_knee_in_sight() {
        let growing = knee(&curve(&SIZES, |n| n)).unwrap();
        assert!(!growing.is_reached, "{growing:?}");
        assert_eq!(growing.connections, 32);
    }

    #[test]
    fn decline_beyond_the_knee_does_not_move_it() {
        let declining = knee(&curve(&SIZES, |n| n.min(4.0) - (n - 4.0).max(0.0) * 0.1)).unwrap();
        assert_eq!(declining.connections, 4);
    }

    #[test]
    fn uncertain_points_do_not_ask_for_more_connections() {
        let mut points = curve(&SIZES, |_| 100.0);
        points[0].throughput = 90.0;
        assert_eq!(knee(&points).map(|knee| knee.connections), Some(2));
        points[0].error = 0.05;
        assert_eq!(knee(&points).map(|knee| knee.connections), Some(1));
        points[0] = Point {
            throughput: 70.0,
            error: 0.5,
            ..points[0]
        };
        assert_eq!(knee(&points).map(|knee| knee.connections), Some(2));
    }

    #[test]
    fn wild_value_changes_neither_median_nor_spread_much() {
        assert_eq!((median(&[]), median(&[3.0, 1.0, 1000.0])), (0.0, 3.0));
        assert_eq!(median(&[1.0, 2.0]), 1.5);
        assert!(spread(&[99.0, 100.0, 101.0, 100.0, 1000.0]) < 0.02);
        assert_eq!(spread(&[5.0]), 0.0);
    }

    #[test]
    fn nothing_done_is_no_curve() {
        assert_eq!(knee(&[]), None);
        assert_eq!(knee(&curve(&SIZES, |_| 0.0)), None);
        assert_eq!(knee(&curve(&SIZES, |_| f64::NAN)), None);
    }

    #[test]
    fn seconds_become_medians_by_busy_connections() {
        let seconds = [
            (3.2, 10.0),
            (2.8, 30.0),
            (3.0, 20.0),
            (3.4, 15.0),
            (2.9, 25.0),
            (9.0, 1.0),
            (0.1, 5.0),
        ];
        let points = of_seconds(seconds);
        let [point] = points[..] else {
            panic!("{points:?}");
        };
        assert_eq!((point.connections, point.throughput), (3, 20.0));
        assert!(point.error > 0.1, "{point:?}");
    }
}
