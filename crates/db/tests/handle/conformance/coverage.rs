//! No row of the conformance list is forgotten.

use crate::coverage_support::Suite;

const SUITE: Suite = Suite {
    sections: &[
        "## 2.", "## 5.", "### 6.2", "### 6.3", "### 6.4", "## 7.", "## 8.",
    ],
    prefixes: &["D-core-", "D-lite-", "F-", "B-", "C-"],
    folders: &["handle/conformance"],
    table: "README.md",
    more_than: 150,
};

#[test]
fn every_row_of_the_list_is_tested_or_said_to_be_left_out() {
    SUITE.assert_complete();
}

#[test]
fn no_row_is_both_tested_and_said_to_be_left_out() {
    SUITE.assert_decided();
}

#[test]
fn ids_are_distinguished_from_other_words() {
    for id in [
        "D-core-004a",
        "D-lite-001",
        "D-lite-s015c",
        "F-020",
        "B-044",
        "C-001",
    ] {
        assert!(SUITE.is_id(id), "{id}");
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
        assert!(!SUITE.is_id(other), "{other}");
    }
    let found: Vec<_> = SUITE
        .ids_in("F-020, B-001: as D-lite-s012c (C-002)")
        .collect();
    assert_eq!(found, ["F-020", "B-001", "D-lite-s012c", "C-002"]);
}
