//! Measurements and their statistics.

use std::time::Duration;

/// One measurement of one pool.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Wall time divided by all checkouts of all threads; `None` if the pool
    /// hung.
    pub ns: Option<f64>,
    pub checkouts: u64,
    pub waits: Option<Waits>,
    /// Tasks that got nothing while the others were served.
    pub starved: usize,
}

impl Sample {
    /// A pool that hung.
    pub fn hung() -> Self {
        Sample::default()
    }

    pub fn new(wall: Duration, checkouts: u64) -> Self {
        Sample {
            ns: Some(wall.as_secs_f64() * 1e9 / checkouts.max(1) as f64),
            checkouts,
            ..Sample::default()
        }
    }
}

/// The times from calling acquire to having the lease, in µs.
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    pub mean: f64,
    pub p99: f64,
    pub worst: f64,
}

impl Waits {
    /// From all waits, in ns.
    pub fn of(mut waits: Vec<u64>) -> Option<Waits> {
        waits.sort_unstable();
        let worst = *waits.last()?;
        // The smallest wait that 99 of 100 do not exceed.
        let p99 = waits[(waits.len() * 99).div_ceil(100) - 1];
        let sum: u64 = waits.iter().sum();
        Some(Waits {
            mean: sum as f64 / waits.len() as f64 / 1e3,
            p99: p99 as f64 / 1e3,
            worst: worst as f64 / 1e3,
        })
    }
}

/// All rounds of one pool in one scenario.
#[derive(Clone, Debug)]
pub struct Summary {
    pub rounds: Vec<Sample>,
    /// The median over the rounds; `None` if the pool hung in any of them.
    pub ns: Option<f64>,
    pub fastest: f64,
    pub slowest: f64,
    /// The median of each value over the rounds, also of the worst wait: the worst of
    /// all rounds would say more about the machine than about the pool.
    pub waits: Option<Waits>,
    pub worst_of_all: Option<f64>,
    /// The most tasks that starved in a round.
    pub starved: usize,
    pub hung: bool,
}

impl Summary {
    pub fn of(rounds: Vec<Sample>) -> Summary {
        let times: Vec<f64> = rounds.iter().filter_map(|round| round.ns).collect();
        let waits: Vec<Waits> = rounds.iter().filter_map(|round| round.waits).collect();
        let hung = times.len() < rounds.len();
        let middle = |pick: fn(&Waits) -> f64| median(waits.iter().map(pick).collect());
        Summary {
            ns: median(times.clone()).filter(|_| !hung),
            fastest: times.iter().copied().fold(f64::INFINITY, f64::min),
            slowest: times.iter().copied().fold(0.0, f64::max),
            waits: middle(|waits| waits.mean).and_then(|mean| {
                Some(Waits {
                    mean,
                    p99: middle(|waits| waits.p99)?,
                    worst: middle(|waits| waits.worst)?,
                })
            }),
            worst_of_all: waits.iter().map(|waits| waits.worst).reduce(f64::max),
            starved: rounds.iter().map(|round| round.starved).max().unwrap_or(0),
            hung,
            rounds,
        }
    }
}

/// The middle value; of an even number of them, the mean of the middle two.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    Some((values[middle - 1] + upper) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![]), None);
    }

    #[test]
    fn ninety_nine_of_a_hundred_waits_do_not_exceed_p99() {
        let waits = Waits::of((1..=100).map(|us| us * 1000).collect()).expect("some");
        assert_eq!((waits.p99, waits.worst, waits.mean), (99.0, 100.0, 50.5));
        let one = Waits::of(vec![7000]).expect("some");
        assert_eq!((one.p99, one.worst), (7.0, 7.0));
    }

    #[test]
    fn a_pool_that_hung_once_has_no_median() {
        let fine = Sample::new(Duration::from_nanos(100), 1);
        let summary = Summary::of(vec![fine.clone(), Sample::hung(), fine]);
        assert!(summary.hung);
        assert_eq!(summary.ns, None);
    }
}
