//! The properties that hold for every input: those of the tests of `cenote`.
#![allow(
    unreachable_pub,
    reason = "they are modules of a test, where all is private"
)]

#[path = "../../crates/db/tests/hostile_input/properties/mod.rs"]
mod properties;

/// Tries an input on the target of this name.
///
/// # Panics
///
/// The input breaks a promise, or there is no such target.
pub fn try_input(target: &str, input: &[u8]) {
    let found = properties::TARGETS.iter().find(|(name, _)| *name == target);
    let (_, check) = found.expect("each program is named after its target");
    check(input);
}
