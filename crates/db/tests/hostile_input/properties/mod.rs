//! What holds for every input, however hostile: the fuzz targets, as plain functions.
//!
//! They are tests of this crate, which try the kept inputs and some that are near them, and
//! the targets of `fuzz/`, where a fuzzer looks for new ones by what code they reach.

mod arrays;
mod choices;
mod copy;
mod decoder;
mod dsn;
mod memory;
mod notifications;
mod placeholders;
mod session;

/// Panics if an input breaks a promise.
pub type Property = fn(&[u8]);

/// The targets by name; each has a folder of inputs under `fuzz/corpus`.
pub const TARGETS: [(&str, Property); 7] = [
    ("dsn", dsn::check),
    ("placeholders", placeholders::check),
    ("session", session::check),
    ("decoder", decoder::check),
    ("copy", copy::check),
    ("arrays", arrays::check),
    ("notifications", notifications::check),
];
