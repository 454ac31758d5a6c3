//! Numbers as people read them in messages.

use std::fmt;
use std::time::Duration;

/// Prints a duration with at most three digits and its unit: `300 ms`, `1.5 s`, `2 min 5 s`.
pub(crate) fn human(time: Duration) -> impl fmt::Display {
    Human(time)
}

/// Prints a number with its noun: `1 failure`, `2 failures`.
pub(crate) fn count(number: impl Into<Number>, noun: &'static str) -> impl fmt::Display {
    let Number(number) = number.into();
    Count { number, noun }
}

pub(crate) struct Number(u64);

impl From<u32> for Number {
    fn from(number: u32) -> Self {
        Number(u64::from(number))
    }
}

impl From<usize> for Number {
    fn from(number: usize) -> Self {
        Number(number as u64)
    }
}

struct Count {
    number: u64,
    noun: &'static str,
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.number == 1 { "" } else { "s" };
        write!(f, "{} {}{plural}", self.number, self.noun)
    }
}

struct Human(Duration);

/// The units below a minute, in nanoseconds.
const UNITS: [(u128, &str); 4] = [
    (1, "ns"),
    (1_000, "µs"),
    (1_000_000, "ms"),
    (1_000_000_000, "s"),
];

impl fmt::Display for Human {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let seconds = (nanos + 500_000_000) / 1_000_000_000;
        let minutes = (seconds + 30) / 60;
        match () {
            () if nanos == 0 => f.write_str("0 s"),
            () if seconds < 60 => below_a_minute(nanos, f),
            () if seconds < 3600 => two(f, (seconds / 60, "min"), (seconds % 60, "s")),
            () => two(f, (minutes / 60, "h"), (minutes % 60, "min")),
        }
    }
}

fn below_a_minute(nanos: u128, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (unit, name) in UNITS {
        // Three digits: hundredths below 10, tenths below 100, else whole units.
        for (below, parts) in [(10, 100), (100, 10), (1000, 1)] {
            let rounded = (nanos * parts + unit / 2) / unit;
            if rounded < below * parts {
                let (whole, mut part) = (rounded / parts, rounded % parts);
                let mut digits = if parts == 100 { 2 } else { 1 };
                while part > 0 && part % 10 == 0 {
                    (part, digits) = (part / 10, digits - 1);
                }
                return match part {
                    0 => write!(f, "{whole} {name}"),
                    part => write!(f, "{whole}.{part:0digits$} {name}"),
                };
            }
        }
    }
    Ok(())
}

fn two(f: &mut fmt::Formatter<'_>, large: (u128, &str), small: (u128, &str)) -> fmt::Result {
    write!(f, "{} {}", large.0, large.1)?;
    match small.0 {
        0 => Ok(()),
        rest => write!(f, " {rest} {}", small.1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_for_people() {
        for (nanos, text) in [
            (0, "0 s"),
            (7, "7 ns"),
            (12_345, "12.3 µs"),
            (999_600, "1 ms"),
            (1_050_000, "1.05 ms"),
            (20_000_000, "20 ms"),
            (299_999_991, "300 ms"),
            (999_999_999, "1 s"),
            (1_500_000_000, "1.5 s"),
            (30_000_000_000, "30 s"),
            (59_400_000_000, "59.4 s"),
            (59_999_000_000, "1 min"),
            (125_000_000_000, "2 min 5 s"),
            (3_599_700_000_000, "1 h"),
            (7_500_000_000_000, "2 h 5 min"),
        ] {
            assert_eq!(human(Duration::from_nanos(nanos)).to_string(), text);
        }
    }

    #[test]
    fn one_is_singular() {
        assert_eq!(count(1u32, "failure").to_string(), "1 failure");
        assert_eq!(count(2usize, "failure").to_string(), "2 failures");
        assert_eq!(count(0u32, "failure").to_string(), "0 failures");
    }
}
