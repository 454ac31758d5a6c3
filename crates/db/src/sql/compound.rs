//! Compound statements that stand outside of routines: `BEGIN NOT ATOMIC … END`, `IF … END IF` and MariaDB's loops.
//!
//! The semicolons inside of one do not end it. Words such as `begin` and `end` can be names as well, so the count of open
//! blocks can be wrong. Neither error hides anything: a text with a compound statement in it is always said to touch the
//! session, and transaction control is looked for in all of its words.

use super::words::{Keyword, is_one_of};

/// A compound statement, as far as it has been read.
#[derive(Clone, Copy)]
pub(super) struct Compound {
    /// Blocks that have been opened and not closed.
    open: u32,
    /// The next word can begin a statement.
    at_start: bool,
    /// The last word was END: the next one says what it ends.
    after_end: bool,
    /// A word of transaction control is in it.
    pub(super) controls: bool,
}

/// What opens a block where a statement can begin.
const AT_START: &[&str] = &["for", "if", "repeat"];
/// What opens a block wherever it stands: these are reserved, but for BEGIN, which follows a handler's conditions.
const ANYWHERE: &[&str] = &["begin", "case", "loop", "while"];
/// What a statement can follow.
const BEFORE_STATEMENT: &[&str] = &["begin", "do", "else", "loop", "repeat", "then"];

/// Whether a statement that begins with this word is a compound one. With BEGIN that depends on what follows; with DECLARE a block of
/// Oracle's begins, of which the end is not looked for.
pub(super) fn begins_with(word: &str) -> bool {
    is_one_of(word, &["case", "declare", "loop", "while"]) || is_one_of(word, AT_START)
}

impl Compound {
    /// No block is open yet.
    #[cfg(any(feature = "odbc", feature = "migrate"))]
    pub(super) const NOT_BEGUN: Compound = Compound {
        open: 0,
        at_start: false,
        ..Compound::BEGUN
    };

    /// Its first block is open.
    pub(super) const BEGUN: Compound = Compound {
        open: 1,
        at_start: true,
        after_end: false,
        controls: false,
    };

    /// A semicolon here ends it.
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

    /// Anything but a word.
    pub(super) fn other(&mut self, symbol: u8) {
        // The colon ends a label.
        self.at_start = matches!(symbol, b';' | b':');
        self.after_end = false;
    }
}
