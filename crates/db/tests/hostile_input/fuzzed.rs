//! The kept inputs of the fuzz targets, and inputs that are near them.
//!
//! What fuzzers have found is in `fuzz/corpus`. Each of those is tried, and so many that
//! are made of them by chance, from a fixed seed: a run can be repeated. `CENOTE_FUZZ_CASES` says
//! how many, `CENOTE_FUZZ_SEED` begins elsewhere.

use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;

use super::properties::TARGETS;

/// How many inputs are made up for each target.
const CASES: u64 = 20_000;

fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{variable} is no number: {text}")),
        Err(_) => default,
    }
}

/// Numbers by chance, the same ones for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit.max(1)).unwrap();
        usize::try_from(self.roll() % limit).unwrap()
    }
}

/// What it is worth to put in.
const PIECES: [&[u8]; 24] = [
    b"'",
    b"\"",
    b"`",
    b"?",
    b":a",
    b"$1",
    b"$$",
    b"--",
    b"/*",
    b"*/",
    b"\\",
    b";",
    b"@",
    b"%",
    b"=",
    b"(",
    b")",
    b"[",
    b"]",
    b"\0",
    b"\xff",
    b"\xc3\xa9",
    b"\xef\xbb\xbf",
    b"\x7f\xff\xff\xff",
];

/// An input that is near one of these.
fn near(inputs: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
    let mut input = inputs[dice.below(inputs.len())].clone();
    for _ in 0..=dice.below(4) {
        let at = dice.below(input.len() + 1);
        match dice.below(6) {
            0 if at < input.len() => input[at] ^= 1 << dice.below(8),
            1 if at < input.len() => input[at] = u8::try_from(dice.below(256)).unwrap(),
            2 if at < input.len() => {
                drop(input.drain(at..(at + 1 + dice.below(8)).min(input.len())))
            }
            3 => {
                let other = &inputs[dice.below(inputs.len())];
                let from = dice.below(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            _ => {
                let piece = PIECES[dice.below(PIECES.len())];
                input.splice(at..at, piece.iter().copied());
            }
        }
    }
    input
}

fn try_all(target: &str) {
    let (_, check) = TARGETS.iter().find(|(name, _)| *name == target).unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let mut paths: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let kept: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
    assert!(
        kept.len() >= 10,
        "{} has hardly any inputs",
        folder.display()
    );
    for (path, input) in paths.iter().zip(&kept) {
        try_one(*check, input, &path.display().to_string());
    }
    let seed = number("CENOTE_FUZZ_SEED", 1);
    let mut dice = Dice(seed);
    for case in 0..number("CENOTE_FUZZ_CASES", CASES) {
        let input = near(&kept, &mut dice);
        try_one(*check, &input, &format!("case {case} of the seed {seed}"));
    }
}

/// The property's own words tell what is wrong; this tells with what.
fn try_one(check: fn(&[u8]), input: &[u8], name: &str) {
    if let Err(wrong) = panic::catch_unwind(AssertUnwindSafe(|| check(input))) {
        eprintln!("{name}: b\"{}\"", input.escape_ascii());
        panic::resume_unwind(wrong);
    }
}

#[test]
fn shown_dsn_parses_to_the_same_without_its_secret() {
    try_all("dsn");
}

#[test]
fn placeholders_are_found_as_the_database_finds_them() {
    try_all("placeholders");
}

#[test]
fn a_text_that_changes_the_session_is_never_called_harmless() {
    try_all("session");
}

#[test]
fn any_postgres_answer_is_handled_in_bounded_memory() {
    try_all("decoder");
}

#[test]
fn any_answer_to_a_copy_is_handled_in_bounded_memory() {
    try_all("copy");
}

#[test]
fn arrays_keep_their_values_in_every_form() {
    try_all("arrays");
}

#[test]
fn notifications_are_received_as_sent_or_refused() {
    try_all("notifications");
}
