//! A position in the history of a cluster, and its text form for headers.

use std::fmt;
use std::str::FromStr;

use crate::driver::History;
use crate::{Error, Kind};

/// A point in the log of a primary (PostgreSQL's write-ahead log, MariaDB's binary log): a read at or after it sees what was committed
/// before.
///
/// The text form (`Display`, `FromStr`) has at most 48 ASCII characters and suits a header or a cookie. It contains the identifier
/// of the cluster, the timeline and the position in its log (on MariaDB the three parts of a GTID), but no data. A token may come from anywhere: a forged one only sends
/// reads to the primary.
///
/// # Examples
///
/// ```
/// use cenote::Position;
///
/// let text = "1.62d1c0ffee00aa55.3.16b374d48";
/// let position: Position = text.parse()?;
/// assert_eq!(position.to_string(), text);
/// assert!("1.62d1c0ffee00aa55.3".parse::<Position>().is_err());
/// # Ok::<(), cenote::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position(pub(crate) Point);

/// What a [`Position`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    /// What was written before ends here.
    At(LogPosition),
    /// Something was written, and nobody knows where: only the primary has it for sure.
    Unknown,
}

impl History {
    /// Returns the position before everything that was written in this history.
    pub(crate) fn beginning(self) -> LogPosition {
        LogPosition {
            history: self,
            lsn: 0,
        }
    }
}

/// A position in the log of one timeline of one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPosition {
    /// The cluster and the timeline. On MariaDB, the domain and the server.
    pub history: History,
    /// PostgreSQL's LSN, or the sequence number of MariaDB's GTID.
    pub lsn: u64,
}

/// The version of the text form.
const VERSION: &str = "1";

/// The text of an unknown position.
const UNKNOWN: &str = "1.unknown";

/// The longest text that is read.
const LONGEST: usize = 48;

impl Position {
    /// Returns the position of something that was written nobody knows where: reads after it go to the primary.
    pub fn unknown() -> Self {
        Position(Point::Unknown)
    }

    /// Returns whether the position is [unknown](Position::unknown).
    pub fn is_unknown(&self) -> bool {
        self.0 == Point::Unknown
    }
}

impl fmt::Display for Position {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Point::Unknown => out.write_str(UNKNOWN),
            Point::At(LogPosition { history, lsn }) => {
                let History { cluster, timeline } = history;
                write!(out, "{VERSION}.{cluster:x}.{timeline:x}.{lsn:x}")
            }
        }
    }
}

impl FromStr for Position {
    type Err = Error;

    /// Reads the text form.
    ///
    /// # Errors
    ///
    /// [`Kind::Type`] if the text is no position. The error does not quote the text.
    fn from_str(text: &str) -> Result<Self, Error> {
        read(text).ok_or_else(|| {
            let message = "the text is no position: Db::position() returns one, and its text form has four parts";
            Error::new(Kind::Type, message)
        })
    }
}

fn read(text: &str) -> Option<Position> {
    if text.len() > LONGEST {
        return None;
    }
    if text == UNKNOWN {
        return Some(Position::unknown());
    }
    let mut parts = text.split('.');
    let mut next = || parts.next();
    if next()? != VERSION {
        return None;
    }
    let history = History {
        cluster: hex(next()?)?,
        timeline: u32::try_from(hex(next()?)?).ok()?,
    };
    let lsn = hex(next()?)?;
    let position = Position(Point::At(LogPosition { history, lsn }));
    parts.next().is_none().then_some(position)
}

/// Reads digits as they are written: without a sign or capital letters.
fn hex(digits: &str) -> Option<u64> {
    let is_plain = digits
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let value = is_plain.then(|| u64::from_str_radix(digits, 16).ok())??;
    (format!("{value:x}") == digits).then_some(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn text_of_a_position_reads_as_the_same_one(cluster: u64, timeline: u32, lsn: u64) {
            let history = History { cluster, timeline };
            let position = Position(Point::At(LogPosition { history, lsn }));
            let text = position.to_string();
            prop_assert!(text.len() <= LONGEST);
            prop_assert_eq!(text.parse::<Position>().unwrap(), position);
        }

        #[test]
        fn forged_texts_neither_panic_nor_read_as_two(text in "[0-9a-fA-F.+ ]{0,60}") {
            if let Ok(position) = text.parse::<Position>() {
                prop_assert_eq!(position.to_string(), text);
            }
        }
    }

    #[test]
    fn unknown_position_has_a_text_form() {
        let text = Position::unknown().to_string();
        assert!(text.parse::<Position>().unwrap().is_unknown());
    }
}
