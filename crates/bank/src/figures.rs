//! Numbers as people read them.

use std::time::Duration;

/// Formats a number with commas: 12,345.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number with a noun: 1 task, 300 tasks.
pub fn counted(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(number as u64))
}

/// Formats cents as money: 1,234.50.
pub fn money(cents: i64) -> String {
    let sign = if cents < 0 { "-" } else { "" };
    let cents = cents.unsigned_abs();
    format!("{sign}{}.{:02}", grouped(cents / 100), cents % 100)
}

/// Formats a time in milliseconds: 12.3 ms.
pub fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1_000.0)
}

/// Returns the rate per second of `count` events in this time.
pub fn per_second(count: u64, time: Duration) -> u64 {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
    count.saturating_mul(1_000) / millis
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_000), "1,000");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }

    #[test]
    fn one_is_not_many() {
        assert_eq!(counted(1, "task"), "1 task");
        assert_eq!(counted(1_000, "task"), "1,000 tasks");
    }

    #[test]
    fn money_has_two_decimals_and_a_sign_where_it_is_needed() {
        assert_eq!(money(10_000_000), "100,000.00");
        assert_eq!(money(5), "0.05");
        assert_eq!(money(-1), "-0.01");
        assert_eq!(money(i64::MIN), "-92,233,720,368,547,758.08");
    }

    #[test]
    fn rates_are_for_a_second() {
        assert_eq!(per_second(500, Duration::from_millis(250)), 2_000);
        assert_eq!(per_second(0, Duration::ZERO), 0);
    }
}
