//! No row of the conformance list is forgotten.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The sections of the list that this suite is about, by the beginnings of their headings.
const SECTIONS: &[&str] = &[
    "## 2.", "## 5.", "### 6.2", "### 6.3", "### 6.4", "## 7.", "## 8.",
];

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// The IDs of the rows of those sections.
fn ids_of_the_list(list: &str) -> BTreeSet<String> {
    let mut is_ours = false;
    let mut ids = BTreeSet::new();
    for line in list.lines() {
        if line.starts_with("## ") || line.starts_with("### ") {
            is_ours = SECTIONS.iter().any(|section| line.starts_with(section));
        }
        let id = line
            .strip_prefix("| ")
            .and_then(|rest| rest.split(" |").next());
        if let Some(id) = id.filter(|id| is_ours && is_id(id)) {
            ids.insert(id.to_owned());
        }
    }
    ids
}

/// It looks like the ID of a row of those sections.
fn is_id(word: &str) -> bool {
    let number = ["D-core-", "D-lite-", "F-", "B-", "C-"]
        .iter()
        .find_map(|prefix| word.strip_prefix(prefix));
    let number = number.map(|number| number.strip_prefix('s').unwrap_or(number));
    number.is_some_and(|number| {
        let (digits, letter) = number.split_at(number.len().min(3));
        digits.len() == 3
            && digits.bytes().all(|digit| digit.is_ascii_digit())
            && letter.len() <= 1
            && letter.bytes().all(|letter| letter.is_ascii_lowercase())
    })
}

/// All IDs in a text.
fn ids_in(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    words.filter(|word| is_id(word)).map(str::to_owned)
}

/// The IDs in the doc comments of the tests.
fn ids_of_the_tests() -> BTreeSet<String> {
    let files = fs::read_dir(here().join("conformance")).expect("the tests are there");
    let mut ids = BTreeSet::new();
    for file in files {
        let path = file.expect("it can be read").path();
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let source = fs::read_to_string(&path).expect("it can be read");
        let comments = source.lines().filter(|line| line.starts_with("/// "));
        ids.extend(comments.flat_map(ids_in));
    }
    ids
}

/// The IDs in the first column of the table of what is skipped.
fn ids_of_the_table() -> BTreeSet<String> {
    let table = fs::read_to_string(here().join("README.md")).expect("there is a README");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| "));
    let first = rows.filter_map(|row| row.split('|').next());
    first.flat_map(ids_in).collect()
}

#[test]
fn every_row_of_the_list_is_tested_or_said_to_be_skipped() {
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/conformance.md");
    let Ok(list) = fs::read_to_string(list) else {
        return; // The list is not part of the repository.
    };
    let listed = ids_of_the_list(&list);
    assert!(listed.len() > 150, "the list was not understood");
    let mut known = ids_of_the_tests();
    known.extend(ids_of_the_table());
    let forgotten: Vec<_> = listed.difference(&known).collect();
    assert!(forgotten.is_empty(), "{forgotten:?}");
    let made_up: Vec<_> = ids_of_the_table().difference(&listed).cloned().collect();
    assert!(
        made_up.is_empty(),
        "rows that are not in the list: {made_up:?}"
    );
}

#[test]
fn no_row_is_both_tested_and_said_to_be_skipped() {
    let tests = ids_of_the_tests();
    let both: Vec<_> = ids_of_the_table().intersection(&tests).cloned().collect();
    assert!(both.is_empty(), "{both:?}");
}

#[test]
fn ids_are_told_from_other_words() {
    for id in [
        "D-core-004a",
        "D-lite-001",
        "D-lite-s015c",
        "F-020",
        "B-044",
        "C-001",
    ] {
        assert!(is_id(id), "{id}");
    }
    for other in [
        "D-core",
        "D-core-04",
        "F-020ab",
        "D-pg-001",
        "B-",
        "C-0x1",
        "UTF-008",
    ] {
        assert!(!is_id(other), "{other}");
    }
    let found: Vec<_> = ids_in("F-020, B-001: as D-lite-s012c (C-002)").collect();
    assert_eq!(found, ["F-020", "B-001", "D-lite-s012c", "C-002"]);
}
