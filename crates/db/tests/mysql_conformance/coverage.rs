//! No row of the conformance list is forgotten.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The sections of the list that this suite is about, by the beginnings of their headings.
const SECTIONS: &[&str] = &["## 2.", "## 4.", "### 6.2", "### 6.3"];

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mysql_conformance")
}

/// It looks like the ID of a row of those sections.
fn is_id(word: &str) -> bool {
    let number = ["D-core-", "D-my-", "F-"]
        .iter()
        .find_map(|prefix| word.strip_prefix(prefix));
    number.is_some_and(|number| {
        let (digits, letter) = number.split_at(number.len().min(3));
        digits.len() == 3
            && digits.bytes().all(|digit| digit.is_ascii_digit())
            && letter.len() <= 1
            && letter.bytes().all(|letter| letter.is_ascii_lowercase())
    })
}

fn ids_in(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    words.filter(|word| is_id(word)).map(str::to_owned)
}

fn ids_of_the_list(list: &str) -> BTreeSet<String> {
    let mut is_ours = false;
    let mut ids = BTreeSet::new();
    for line in list.lines() {
        if line.starts_with("## ") || line.starts_with("### ") {
            is_ours = SECTIONS.iter().any(|section| line.starts_with(section));
        }
        let first = line
            .strip_prefix("| ")
            .and_then(|row| row.split(" |").next());
        ids.extend(first.filter(|id| is_ours && is_id(id)).map(str::to_owned));
    }
    ids
}

/// The IDs in the doc comments of the tests.
fn ids_of_the_tests() -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    for file in fs::read_dir(here()).expect("the tests are there") {
        let path = file.expect("it can be read").path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(&path).expect("it can be read");
            let comments = source.lines().filter(|line| line.starts_with("/// "));
            ids.extend(comments.flat_map(ids_in));
        }
    }
    ids
}

/// The IDs in the first column of the table of what is left out.
fn ids_of_the_table() -> BTreeSet<String> {
    let table = fs::read_to_string(here().join("README.md")).expect("there is a README");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| "));
    let first = rows.filter_map(|row| row.split('|').next());
    first.flat_map(ids_in).collect()
}

#[test]
fn every_row_of_the_list_is_tested_or_said_to_be_left_out() {
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/conformance.md");
    let Ok(list) = fs::read_to_string(list) else {
        return; // The list is not part of the repository.
    };
    let listed = ids_of_the_list(&list);
    assert!(listed.len() > 110, "the list was not understood");
    let (tests, table) = (ids_of_the_tests(), ids_of_the_table());
    let known: BTreeSet<_> = tests.union(&table).cloned().collect();
    let forgotten: Vec<_> = listed.difference(&known).collect();
    assert!(forgotten.is_empty(), "{forgotten:?}");
    let made_up: Vec<_> = known.difference(&listed).collect();
    assert!(
        made_up.is_empty(),
        "rows that are not in the list: {made_up:?}"
    );
}

#[test]
fn no_row_is_both_tested_and_said_to_be_left_out() {
    let tests = ids_of_the_tests();
    let both: Vec<_> = ids_of_the_table().intersection(&tests).cloned().collect();
    assert!(both.is_empty(), "{both:?}");
}
