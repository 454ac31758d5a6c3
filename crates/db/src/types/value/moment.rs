//! Dates, times of day and both together, as ISO 8601 text.

use std::fmt;
use std::str::FromStr;

use super::ConvertError;

/// A day of the Gregorian calendar.
///
/// `Display` writes ISO 8601, `2024-02-29`; a year outside 0 to 9999 has a sign before it.
/// [`parse`](str::parse) reads the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Date {
    /// The astronomical year: 0 is 1 BC.
    pub year: i32,
    /// The month, 1 to 12.
    pub month: u8,
    /// The day of the month, 1 to 31.
    pub day: u8,
}

/// A time of day.
///
/// `Display` writes ISO 8601, `09:05:00` or `09:05:00.250`. [`parse`](str::parse) reads the same, also
/// without seconds and with any number of decimals up to nine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// The hour, 0 to 23.
    pub hour: u8,
    /// 0 to 59.
    pub minute: u8,
    /// 0 to 59.
    pub second: u8,
    /// The nanosecond, 0 to 999,999,999.
    pub nanosecond: u32,
}

/// A day and a time of day.
///
/// `Display` writes ISO 8601, `2024-02-29T09:05:00`. [`parse`](str::parse) reads the same, also with a
/// space instead of the `T`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DateTime {
    /// The day.
    pub date: Date,
    /// The time of that day.
    pub time: Time,
}

impl Date {
    /// Returns the day, if the calendar has it.
    pub fn new(year: i32, month: u8, day: u8) -> Option<Self> {
        let exists = (1..=12).contains(&month) && (1..=days_in(year, month)).contains(&day);
        exists.then_some(Date { year, month, day })
    }

    fn next(self) -> Option<Self> {
        let Date { year, month, day } = self;
        if day < days_in(year, month) {
            Date::new(year, month, day + 1)
        } else if month < 12 {
            Date::new(year, month + 1, 1)
        } else {
            Date::new(year.checked_add(1)?, 1, 1)
        }
    }

    fn previous(self) -> Option<Self> {
        let Date { year, month, day } = self;
        if day > 1 {
            Date::new(year, month, day - 1)
        } else if month > 1 {
            Date::new(year, month - 1, days_in(year, month - 1))
        } else {
            Date::new(year.checked_sub(1)?, 12, 31)
        }
    }
}

fn days_in(year: i32, month: u8) -> u8 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl Time {
    /// Returns the time of day, if there is one. Leap seconds do not exist here.
    pub fn new(hour: u8, minute: u8, second: u8, nanosecond: u32) -> Option<Self> {
        let exists = hour < 24 && minute < 60 && second < 60 && nanosecond < 1_000_000_000;
        exists.then_some(Time {
            hour,
            minute,
            second,
            nanosecond,
        })
    }

    fn second_of_day(self) -> i32 {
        let minutes = i32::from(self.hour) * 60 + i32::from(self.minute);
        minutes * 60 + i32::from(self.second)
    }

    fn with_second_of_day(self, second: i32) -> Option<Self> {
        let part = |value: i32| u8::try_from(value).ok();
        Time::new(
            part(second / 3600)?,
            part(second / 60 % 60)?,
            part(second % 60)?,
            self.nanosecond,
        )
    }
}

impl DateTime {
    /// Returns this time on this day.
    pub fn new(date: Date, time: Time) -> Self {
        DateTime { date, time }
    }

    /// Parses a moment and returns it in UTC: `2024-02-29T09:05:00+02:00`.
    ///
    /// A text without an offset (`Z`, `+02`, `+02:00`, `+0200`, `+02:00:00`) counts as UTC.
    ///
    /// # Errors
    ///
    /// The text is no moment.
    pub fn parse_utc(text: &str) -> Result<Self, ConvertError> {
        let moment = DateTime::parse_with_offset(text).and_then(|(local, offset)| match offset {
            Some(offset) => local.minus_seconds(offset),
            None => Some(local),
        });
        moment.ok_or_else(|| ConvertError::unreadable(text, "DateTime"))
    }

    /// Parses a moment and its offset, in seconds ahead of UTC, if there is one.
    pub(crate) fn parse_with_offset(text: &str) -> Option<(Self, Option<i32>)> {
        let mut rest = Scan(text.as_bytes());
        let date = rest.date()?;
        rest.one_of(b"Tt ")?;
        let time = rest.time()?;
        let offset = if rest.0.is_empty() {
            None
        } else {
            Some(rest.offset()?)
        };
        rest.end()?;
        Some((DateTime { date, time }, offset))
    }

    /// Returns the moment `seconds` earlier; at most a day.
    pub(super) fn minus_seconds(self, seconds: i32) -> Option<Self> {
        const DAY: i32 = 24 * 60 * 60;
        let second = self.time.second_of_day() - seconds;
        let date = match second {
            ..0 => self.date.previous()?,
            DAY.. => self.date.next()?,
            _ => self.date,
        };
        let time = self.time.with_second_of_day(second.rem_euclid(DAY))?;
        Some(DateTime { date, time })
    }
}

impl fmt::Display for Date {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Date { year, month, day } = self;
        match year {
            0..=9999 => write!(out, "{year:04}-{month:02}-{day:02}"),
            _ => write!(out, "{year:+05}-{month:02}-{day:02}"),
        }
    }
}

impl fmt::Display for Time {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hour, minute, second) = (self.hour, self.minute, self.second);
        write!(out, "{hour:02}:{minute:02}:{second:02}")?;
        match self.nanosecond {
            0 => Ok(()),
            n if n % 1_000_000 == 0 => write!(out, ".{:03}", n / 1_000_000),
            n if n % 1_000 == 0 => write!(out, ".{:06}", n / 1_000),
            n => write!(out, ".{n:09}"),
        }
    }
}

impl fmt::Display for DateTime {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}T{}", self.date, self.time)
    }
}

impl FromStr for Date {
    type Err = ConvertError;

    fn from_str(text: &str) -> Result<Self, ConvertError> {
        let mut rest = Scan(text.as_bytes());
        let date = rest.date().filter(|_| rest.0.is_empty());
        date.ok_or_else(|| ConvertError::unreadable(text, "Date"))
    }
}

impl FromStr for Time {
    type Err = ConvertError;

    fn from_str(text: &str) -> Result<Self, ConvertError> {
        let mut rest = Scan(text.as_bytes());
        let time = rest.time().filter(|_| rest.0.is_empty());
        time.ok_or_else(|| ConvertError::unreadable(text, "Time"))
    }
}

impl FromStr for DateTime {
    type Err = ConvertError;

    fn from_str(text: &str) -> Result<Self, ConvertError> {
        match DateTime::parse_with_offset(text) {
            Some((moment, None)) => Ok(moment),
            _ => Err(ConvertError::unreadable(text, "DateTime")),
        }
    }
}

/// The rest of a text that is being parsed.
struct Scan<'t>(&'t [u8]);

impl Scan<'_> {
    fn date(&mut self) -> Option<Date> {
        let sign = self.one_of(b"+-");
        let digits = self.leading_digits();
        // Ten digits hold every `i32`; ISO 8601 has at least four.
        if !(4..=10).contains(&digits) || (digits > 4 && sign.is_none()) {
            return None;
        }
        let year = i64::from(self.number(digits.min(9))?);
        let year = if digits == 10 {
            year * 10 + i64::from(self.number(1)?)
        } else {
            year
        };
        let year = if sign == Some(b'-') { -year } else { year };
        self.one_of(b"-")?;
        let month = self.two_digits()?;
        self.one_of(b"-")?;
        let day = self.two_digits()?;
        Date::new(i32::try_from(year).ok()?, month, day)
    }

    fn time(&mut self) -> Option<Time> {
        let hour = self.two_digits()?;
        self.one_of(b":")?;
        let minute = self.two_digits()?;
        if self.one_of(b":").is_none() {
            return Time::new(hour, minute, 0, 0);
        }
        let second = self.two_digits()?;
        let nanosecond = match self.one_of(b".") {
            Some(_) => self.nanosecond()?,
            None => 0,
        };
        Time::new(hour, minute, second, nanosecond)
    }

    fn nanosecond(&mut self) -> Option<u32> {
        let digits = self.leading_digits();
        if !(1..=9).contains(&digits) {
            return None;
        }
        let missing = u32::try_from(9 - digits).ok()?;
        Some(self.number(digits)? * 10_u32.pow(missing))
    }

    /// Parses an offset, in seconds ahead of UTC; less than a day.
    fn offset(&mut self) -> Option<i32> {
        let sign = match self.one_of(b"Zz+-")? {
            b'-' => -1,
            b'+' => 1,
            _ => return Some(0),
        };
        let hour = self.two_digits()?;
        let has_colon = self.one_of(b":").is_some();
        let minute = match self.leading_digits() {
            0 if !has_colon => 0,
            _ => self.two_digits()?,
        };
        let second = match has_colon && self.one_of(b":").is_some() {
            true => self.two_digits()?,
            false => 0,
        };
        Some(sign * Time::new(hour, minute, second, 0)?.second_of_day())
    }

    fn two_digits(&mut self) -> Option<u8> {
        u8::try_from(self.number(2)?).ok()
    }

    /// Parses exactly `digits` digits; at most nine.
    fn number(&mut self, digits: usize) -> Option<u32> {
        if self.leading_digits() < digits {
            return None;
        }
        let (number, rest) = self.0.split_at(digits);
        self.0 = rest;
        let digit_of = |byte: &u8| u32::from(byte - b'0');
        Some(number.iter().map(digit_of).fold(0, |sum, n| sum * 10 + n))
    }

    fn leading_digits(&self) -> usize {
        self.0.iter().take_while(|b| b.is_ascii_digit()).count()
    }

    fn one_of(&mut self, wanted: &[u8]) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        wanted.contains(first).then(|| {
            self.0 = rest;
            *first
        })
    }

    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}
