//! The words that the class of a text turns on.

macro_rules! keywords {
    ($($word:ident $text:literal,)*) => {
        /// A word with a meaning for the class of a text.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Keyword {
            $($word,)*
        }

        /// Sorted, so that words with the same first letter stand together.
        const KEYWORDS: &[(&str, Keyword)] = &[$(($text, Keyword::$word),)*];
    };
}

keywords! {
    Abort "abort",
    Alter "alter",
    Attach "attach",
    Begin "begin",
    Commit "commit",
    Create "create",
    Deallocate "deallocate",
    Declare "declare",
    Delete "delete",
    Detach "detach",
    Discard "discard",
    Do "do",
    Drop "drop",
    End "end",
    Exec "exec",
    Execute "execute",
    Explain "explain",
    From "from",
    Global "global",
    Hold "hold",
    Insert "insert",
    Into "into",
    Listen "listen",
    Load "load",
    Local "local",
    Lock "lock",
    Merge "merge",
    Persist "persist",
    PersistOnly "persist_only",
    PgSettings "pg_settings",
    Pragma "pragma",
    Prepare "prepare",
    Prepared "prepared",
    Release "release",
    Replace "replace",
    Reset "reset",
    Rollback "rollback",
    Savepoint "savepoint",
    Select "select",
    Set "set",
    Share "share",
    SqlCalcFoundRows "sql_calc_found_rows",
    Start "start",
    Table "table",
    Temp "temp",
    Temporary "temporary",
    To "to",
    Transaction "transaction",
    Trigger "trigger",
    True "true",
    Truncate "truncate",
    Unlisten "unlisten",
    Unlock "unlock",
    Update "update",
    Use "use",
    Values "values",
    With "with",
}

/// For each first letter, a bit for each length of a keyword: this alone tells
/// nearly all the words that are none.
const LENGTHS: [u32; 26] = lengths();

/// Where the keywords with each first letter begin, and behind them where the last end.
const STARTS: [usize; 27] = starts();

const fn lengths() -> [u32; 26] {
    let mut lengths = [0; 26];
    let mut n = 0;
    while n < KEYWORDS.len() {
        let text = KEYWORDS[n].0.as_bytes();
        lengths[(text[0] - b'a') as usize] |= 1 << text.len();
        n += 1;
    }
    lengths
}

const fn starts() -> [usize; 27] {
    let mut starts = [0; 27];
    let mut n = 0;
    while n < KEYWORDS.len() {
        // All later letters begin behind this one.
        let mut letter = (KEYWORDS[n].0.as_bytes()[0] - b'a') as usize + 1;
        while letter < starts.len() {
            starts[letter] += 1;
            letter += 1;
        }
        n += 1;
    }
    starts
}

/// The keyword that a word is, in whatever case.
#[inline]
pub(super) fn keyword(word: &str) -> Option<Keyword> {
    let first = word.as_bytes().first()?.to_ascii_lowercase();
    let letter = usize::from(first.wrapping_sub(b'a'));
    let lengths = LENGTHS.get(letter)?;
    if word.len() >= 32 || lengths & (1 << word.len()) == 0 {
        return None;
    }
    KEYWORDS[STARTS[letter]..STARTS[letter + 1]]
        .iter()
        .find(|(text, _)| text.eq_ignore_ascii_case(word))
        .map(|(_, keyword)| *keyword)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_keyword_is_found_in_any_case_and_nothing_else_is() {
        assert!(KEYWORDS.is_sorted_by_key(|(text, _)| text));
        for (text, wanted) in KEYWORDS {
            assert_eq!(keyword(text), Some(*wanted));
            assert_eq!(keyword(&text.to_uppercase()), Some(*wanted));
            assert_eq!(keyword(&format!("{text}x")), None);
        }
        for other in [
            "",
            "a",
            "selec",
            "zebra",
            "_set",
            "{",
            "été",
            &"s".repeat(40),
        ] {
            assert_eq!(keyword(other), None, "{other}");
        }
    }
}
