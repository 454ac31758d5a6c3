//! Parsers of option values: durations, booleans, sizes, ports.

use std::str::FromStr;
use std::time::Duration;

/// Parses `250ms`, `5s`, `2min`, `1.5h`; a number without a unit counts `unit`s.
pub(crate) fn parse_duration(text: &str, unit: Duration) -> Result<Duration, &'static str> {
    const WANTED: &str = "is no duration, such as 250ms, 5s or 2min";
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_alphabetic());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => unit,
        "us" | "µs" => Duration::from_micros(1),
        "ms" => Duration::from_millis(1),
        "s" | "sec" => Duration::from_secs(1),
        "m" | "min" => Duration::from_secs(60),
        "h" => Duration::from_secs(60 * 60),
        "d" => Duration::from_secs(24 * 60 * 60),
        _ => return Err(WANTED),
    };
    let digits = digits.trim_end();
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(WANTED);
    }
    let number: f64 = digits.parse().map_err(|_| WANTED)?;
    Duration::try_from_secs_f64(number * unit.as_secs_f64()).map_err(|_| "is too long a time")
}

/// Parses `1`, `true`, `on`, `yes` and `0`, `false`, `off`, `no`.
pub(crate) fn parse_bool(text: &str) -> Result<bool, &'static str> {
    match text.trim().to_ascii_lowercase().as_str() {
        "1" | "true" | "on" | "yes" => Ok(true),
        "0" | "false" | "off" | "no" => Ok(false),
        _ => Err("is neither true nor false (1, on, yes; 0, off, no)"),
    }
}

/// Parses a number of bytes: `4096`, `64k`, `16MiB`, `1GB`; each unit is 1024 times the previous one.
pub(super) fn parse_size(text: &str) -> Result<u64, &'static str> {
    const WANTED: &str = "is no size, such as 4096, 64k or 16MiB";
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(WANTED),
    };
    let number: u64 = parse_digits(digits.trim_end()).ok_or(WANTED)?;
    number.checked_mul(1 << shift).ok_or("is too large a size")
}

/// Parses a port; an empty text means the default port.
pub(super) fn parse_port(text: &str) -> Result<Option<u16>, &'static str> {
    match text.trim() {
        "" => Ok(None),
        digits => match parse_digits(digits) {
            Some(port) if port > 0 => Ok(Some(port)),
            _ => Err("is not a number from 1 to 65535"),
        },
    }
}

/// Parses a number of digits only: `parse` alone would accept a sign.
fn parse_digits<T: FromStr>(text: &str) -> Option<T> {
    let all_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    all_digits.then(|| text.parse().ok()).flatten()
}
