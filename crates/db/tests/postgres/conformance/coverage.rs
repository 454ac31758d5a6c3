//! No row of the conformance list is forgotten.

use crate::coverage_support::Suite;

const SUITE: Suite = Suite {
    sections: &["## 3.", "### 6.2", "### 6.3"],
    prefixes: &["D-pg-", "F-"],
    folders: &["postgres/conformance", "server_conformance"],
    table: "postgres/conformance/README.md",
    more_than: 70,
};

#[test]
fn every_row_of_the_list_is_tested_or_said_to_be_left_out() {
    SUITE.assert_complete();
}

#[test]
fn no_row_is_both_tested_and_said_to_be_left_out() {
    SUITE.assert_decided();
}
