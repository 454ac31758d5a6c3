//! No row of the conformance list is forgotten: each has a test with its ID in the doc comment, or
//! stands in a table with the reason why it has none.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The tests that answer for a part of the list.
pub(crate) struct Suite {
    /// The sections of the list that it is about, by the beginnings of their headings.
    pub(crate) sections: &'static [&'static str],
    /// How the IDs of those sections begin.
    pub(crate) prefixes: &'static [&'static str],
    /// The folders that its tests are in.
    pub(crate) folders: &'static [&'static str],
    /// The file with the table of what is left out.
    pub(crate) table: &'static str,
    /// The list has more rows for it than so many, or was not understood.
    pub(crate) more_than: usize,
}

impl Suite {
    /// It looks like the ID of a row of those sections.
    pub(crate) fn is_id(&self, word: &str) -> bool {
        let mut prefixes = self.prefixes.iter();
        let number = prefixes.find_map(|prefix| word.strip_prefix(prefix));
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
    pub(crate) fn ids_in(&self, text: &str) -> impl Iterator<Item = String> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        words.filter(|word| self.is_id(word)).map(str::to_owned)
    }

    /// The IDs of the rows of those sections.
    fn ids_of_the_list(&self, list: &str) -> BTreeSet<String> {
        let mut is_ours = false;
        let mut ids = BTreeSet::new();
        for line in list.lines() {
            if line.starts_with("## ") || line.starts_with("### ") {
                let mut sections = self.sections.iter();
                is_ours = sections.any(|section| line.starts_with(section));
            }
            let first = line
                .strip_prefix("| ")
                .and_then(|row| row.split(" |").next());
            let id = first.filter(|id| is_ours && self.is_id(id));
            ids.extend(id.map(str::to_owned));
        }
        ids
    }

    /// The IDs in the doc comments of the tests.
    fn ids_of_the_tests(&self) -> BTreeSet<String> {
        let mut ids = BTreeSet::new();
        for folder in self.folders {
            for file in fs::read_dir(tests().join(folder)).expect("the tests are there") {
                let path = file.expect("it can be read").path();
                if path.extension().is_some_and(|extension| extension == "rs") {
                    let source = fs::read_to_string(&path).expect("it can be read");
                    let comments = source.lines().filter(|line| line.starts_with("/// "));
                    ids.extend(comments.flat_map(|line| self.ids_in(line)));
                }
            }
        }
        ids
    }

    /// The IDs in the first column of the table of what is left out.
    fn ids_of_the_table(&self) -> BTreeSet<String> {
        let table = fs::read_to_string(tests().join(self.table)).expect("there is a table");
        let rows = table.lines().filter_map(|line| line.strip_prefix("| "));
        let first = rows.filter_map(|row| row.split('|').next());
        first.flat_map(|ids| self.ids_in(ids)).collect()
    }

    /// Every row of the list is tested or said to be left out, and no other is.
    pub(crate) fn assert_complete(&self) {
        let list = tests().join("../../../../shared/conformance.md");
        let Ok(list) = fs::read_to_string(list) else {
            return; // The list is not part of the repository.
        };
        let listed = self.ids_of_the_list(&list);
        assert!(listed.len() > self.more_than, "the list was not understood");
        let mut known = self.ids_of_the_tests();
        known.extend(self.ids_of_the_table());
        let forgotten: Vec<_> = listed.difference(&known).collect();
        assert!(forgotten.is_empty(), "{forgotten:?}");
        let made_up: Vec<_> = known.difference(&listed).collect();
        assert!(made_up.is_empty(), "not in the list: {made_up:?}");
    }

    /// No row is both tested and said to be left out.
    pub(crate) fn assert_decided(&self) {
        let tests = self.ids_of_the_tests();
        let table = self.ids_of_the_table();
        let both: Vec<_> = table.intersection(&tests).collect();
        assert!(both.is_empty(), "{both:?}");
    }
}

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}
