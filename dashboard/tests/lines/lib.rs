//! 10,000 source lines.

use std::panic::Location;

/// As many different lines.
pub static LINES: [&Location<'static>; 10_000] = include!(concat!(env!("OUT_DIR"), "/lines.rs"));

#[track_caller]
const fn here() -> &'static Location<'static> {
    Location::caller()
}
