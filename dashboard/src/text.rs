//! How durations, rates and source lines are written.

use std::panic::Location;
use std::time::Duration;

/// Writes a duration for people: `850 µs`, `4.2 ms`, `12 s`, `3 min 5 s`.
pub(crate) fn duration(duration: Duration) -> String {
    let micros = duration.as_micros();
    let seconds = duration.as_secs_f64();
    match duration.as_secs() {
        0 if micros == 0 => "0 ms".to_owned(),
        0 if micros < 1000 => format!("{micros} µs"),
        0 if micros < 10_000 => format!("{:.1} ms", seconds * 1e3),
        0 => format!("{} ms", duration.as_millis()),
        1..10 => format!("{seconds:.1} s"),
        10..60 => format!("{seconds:.0} s"),
        60..3600 => {
            let (minutes, rest) = (duration.as_secs() / 60, duration.as_secs() % 60);
            match rest {
                0 => format!("{minutes} min"),
                _ => format!("{minutes} min {rest} s"),
            }
        }
        seconds => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// Writes a number of things in a second: `0.4`, `12`, `1,250`.
pub(crate) fn rate(rate: f64) -> String {
    if rate > 0.0 && rate < 9.95 {
        return format!("{rate:.1}");
    }
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive number to show"
    )]
    let whole = rate.max(0.0).round() as u64;
    thousands(whole)
}

/// Writes a whole number with a comma between thousands.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Writes a number of things: `1 call`, `2 calls`.
pub(crate) fn count(number: usize, thing: &str) -> String {
    match number {
        1 => format!("1 {thing}"),
        _ => format!("{} {thing}s", thousands(number as u64)),
    }
}

/// Writes a line of the program, without the folder in which Cargo keeps dependencies.
pub(crate) fn line(location: &Location<'_>) -> String {
    let file = location.file();
    let short = file.split_once("/registry/src/").and_then(|(_, rest)| {
        // The folder of the registry.
        rest.split_once('/').map(|(_, rest)| rest)
    });
    format!("{}:{}", short.unwrap_or(file), location.line())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_or_three_digits() {
        for (nanos, text) in [
            (0, "0 ms"),
            (850_000, "850 µs"),
            (4_240_000, "4.2 ms"),
            (42_000_000, "42 ms"),
            (4_200_000_000, "4.2 s"),
            (42_000_000_000, "42 s"),
            (185_000_000_000, "3 min 5 s"),
            (120_000_000_000, "2 min"),
            (7_500_000_000_000, "2 h 5 min"),
        ] {
            assert_eq!(duration(Duration::from_nanos(nanos)), text);
        }
    }

    #[test]
    fn numbers_have_commas_between_thousands() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(thousands(number), text);
        }
        assert_eq!(rate(0.42), "0.4");
        assert_eq!(rate(1249.7), "1,250");
    }

    #[test]
    fn line_names_file_and_number() {
        let here = Location::caller();
        assert_eq!(line(here), format!("{}:{}", here.file(), here.line()));
    }
}
