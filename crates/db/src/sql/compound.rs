//! Finds the end of compound statements outside routines: `BEGIN NOT ATOMIC … END`, `IF … END IF` and MariaDB's loops.
//!
//! The semicolons inside do not end the statement. Words such as `begin` and `end` can also be names, so the count of
//! open blocks can be wrong. A wrong count hides nothing: a text with a compound statement always counts as touching
//! the session, and all of its words are checked for transaction control.

use super::words::{Keyword, is_one_of};

/// A compound statement, as far as it has been read.
#[derive(Clone, Copy)]
pub(super) struct Compound {
    /// The number of open blocks.
    open: u32,
    /// The next word can begin a statement.
    at_start: bool,
    /// The last word was END: the next word names the block that ends.
    after_end: bool,
    /// The statement contains a word of transaction control.
    pub(super) controls: bool,
}

/// Words that open a block where a statement can begin.
const AT_START: &[&str] = &["for", "if", "repeat"];
/// Words that open a block anywhere. They are reserved, except for BEGIN, which follows a handler's conditions.
const ANYWHERE: &[&str] = &["begin", "case", "loop", "while"];
/// Words that a statement can follow.
const BEFORE_STATEMENT: &[&str] = &["begin", "do", "else", "loop", "repeat", "then"];

/// Returns whether a statement with this first word is a compound one. BEGIN depends on the next words; DECLARE begins
/// a block of Oracle's mode, whose end is not searched for.
pub(super) fn begins_with(word: &str) -> bool {
    is_one_of(word, &["case", "declare", "loop", "while"]) || is_one_of(word, AT_START)
}

impl Compound {
    /// A statement before its first block.
    pub(super) const NOT_BEGUN: Compound = Compound {
        open: 0,
        at_start: false,
        ..Compound::BEGUN
    };

    /// A statement whose first block is open.
    pub(super) const BEGUN: Compound = Compound {
        open: 1,
        at_start: true,
        after_end: false,
        controls: false,
    };

    /// Returns whether a semicolon here ends the statement.
    pub(super) fn is_over(&self) -> bool {
        self.open == 0
    }

    pub(super) fn word(&mut self, word: &str, keyword: Option<Keyword>) {
        let (at_start, after_end) = (self.at_start, self.after_end);
        self.at_start = is_one_of(word, BEFORE_STATEMENT);
        self.after_end = keyword == Some(Keyword::End);
        self.controls |= matches!(
            keyword,
            Some(
                Keyword::Commit
                    | Keyword::Release
                    | Keyword::Rollback
                    | Keyword::Savepoint
                    | Keyword::Start
            )
        );
        if self.after_end {
            self.open = self.open.saturating_sub(1);
        } else if !after_end && (is_one_of(word, ANYWHERE) || at_start && is_one_of(word, AT_START))
        {
            self.open = self.open.saturating_add(1);
        }
    }

    /// Takes a token that is no word.
    pub(super) fn other(&mut self, symbol: u8) {
        // The colon ends a label.
        self.at_start = matches!(symbol, b';' | b':');
        self.after_end = false;
    }
}
