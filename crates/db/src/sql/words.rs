//! The words on which the class of a text depends, and helpers that compare words.

macro_rules! keywords {
    ($($word:ident $text:literal,)*) => {
        /// A word with a meaning for the class of a text.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Keyword {
            $($word,)*
        }

        /// Sorted, so that words with the same first letter are adjacent.
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
    Describe "describe",
    Detach "detach",
    Discard "discard",
    Do "do",
    Drop "drop",
    End "end",
    Exec "exec",
    Execute "execute",
    Explain "explain",
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
    Revert "revert",
    Rollback "rollback",
    Savepoint "savepoint",
    Select "select",
    Set "set",
    Setuser "setuser",
    Share "share",
    Show "show",
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

/// For each first letter, one bit per length of a keyword. This alone excludes nearly all words that are no keywords.
const LENGTHS: [u32; 26] = lengths();

/// For each first letter, the index of its first keyword; at the end, the number of keywords.
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
        // The keywords of all later letters begin after this one.
        let mut letter = (KEYWORDS[n].0.as_bytes()[0] - b'a') as usize + 1;
        while letter < starts.len() {
            starts[letter] += 1;
            letter += 1;
        }
        n += 1;
    }
    starts
}

/// Returns the keyword for a word, in upper or lower case.
#[inline]
pub(super) fn keyword(word: &[u8]) -> Option<Keyword> {
    let letter = usize::from((word.first()? | 0x20).wrapping_sub(b'a'));
    let lengths = LENGTHS.get(letter)?;
    if word.len() < 32 && lengths & (1 << word.len()) != 0 {
        search(letter, word)
    } else {
        None
    }
}

fn search(letter: usize, word: &[u8]) -> Option<Keyword> {
    KEYWORDS[STARTS[letter]..STARTS[letter + 1]]
        .iter()
        .find(|(text, _)| is_in_lower_case(word, text.as_bytes()))
        .map(|(_, keyword)| *keyword)
}

fn is_in_lower_case(word: &[u8], text: &[u8]) -> bool {
    word.len() == text.len()
        && word
            .iter()
            .zip(text)
            .all(|(word, text)| word.to_ascii_lowercase() == *text)
}

/// Returns whether a word is in a list, in upper or lower case.
pub(super) fn is_one_of(word: &str, list: &[&str]) -> bool {
    list.iter().any(|known| known.eq_ignore_ascii_case(word))
}

/// Returns whether a text contains these letters, in upper or lower case.
pub(super) fn contains_word(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len())
        .any(|part| part.eq_ignore_ascii_case(word))
}

/// Returns whether a text contains any of these words, in upper or lower case: also in strings, and as part of other words.
#[cfg(any(feature = "mysql", feature = "odbc"))]
pub(crate) fn contains_any(text: &str, words: &[&str]) -> bool {
    let text = text.as_bytes();
    words
        .iter()
        .any(|word| contains_word(text, word.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_keyword_is_found_in_any_case_and_nothing_else_is() {
        assert!(KEYWORDS.is_sorted_by_key(|(text, _)| text));
        for (text, wanted) in KEYWORDS {
            assert_eq!(keyword(text.as_bytes()), Some(*wanted));
            assert_eq!(keyword(text.to_uppercase().as_bytes()), Some(*wanted));
            assert_eq!(keyword(format!("{text}x").as_bytes()), None);
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
            assert_eq!(keyword(other.as_bytes()), None, "{other}");
        }
    }
}
