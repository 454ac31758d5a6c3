//! Remembers scanned texts: programs run the same few statements again and again.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt::Write as _;
use std::panic::Location;
use std::sync::Arc;

use super::lists::Origin;
use super::placeholders::{looks_like_operator, written_at};
use super::{Class, Dialect, Placeholders, Statements, scan};
use crate::driver::Param;
use crate::types::params::Params;
use crate::{Error, Kind, Result};

/// The result of a scan that owns its text.
#[derive(Clone, Debug)]
pub(crate) struct CachedScan {
    text: Box<str>,
    dialect: &'static Dialect,
    /// The tag of the calls that this scan is for.
    tag: Option<&'static str>,
    /// The text to send, if it differs from the original.
    rewritten: Option<Box<str>>,
    /// The length of the tag's comment in front of `rewritten`; it is ASCII.
    lead: usize,
    places: Places,
    pub(crate) class: Class,
    /// The caller's text, if `text` is made of it by expanding lists.
    origin: Option<Origin>,
}

#[derive(Clone, Debug)]
enum Places {
    None,
    Positional(usize),
    Named(Box<[Box<str>]>),
}

impl CachedScan {
    /// Returns the text to send.
    pub(crate) fn sql(&self) -> &str {
        self.rewritten.as_deref().unwrap_or(&self.text)
    }

    /// Returns the text as the caller wrote it.
    pub(crate) fn written_sql(&self) -> &str {
        match &self.origin {
            None => &self.text,
            Some(origin) => origin.scan.written_sql(),
        }
    }

    /// Returns the same scan as that of a text whose lists were expanded.
    pub(crate) fn expanded_from(&self, origin: Origin) -> Self {
        CachedScan {
            origin: Some(origin),
            ..self.clone()
        }
    }

    pub(super) fn dialect(&self) -> &'static Dialect {
        self.dialect
    }

    #[inline]
    pub(crate) fn placeholders(&self) -> Placeholders<'_> {
        match &self.places {
            Places::None => Placeholders::None,
            Places::Positional(count) => Placeholders::Positional(*count),
            Places::Named(names) => Placeholders::Named(names.iter().map(|name| &**name).collect()),
        }
    }

    /// Returns one value per placeholder: see [`Params::bind`].
    #[inline]
    pub(crate) fn bind<'p>(&self, params: Params<'p>) -> Result<Vec<Param<'p>>> {
        match (params, &self.places) {
            (Params::Positional(values), Places::Positional(count)) if values.len() == *count => {
                Ok(values)
            }
            (params, _) => self.bind_otherwise(params),
        }
    }

    /// As `bind`, for names, for a text without placeholders, and for parameters that do not fit.
    #[inline(never)]
    fn bind_otherwise<'p>(&self, params: Params<'p>) -> Result<Vec<Param<'p>>> {
        let is_script = self.class.statements == Statements::Several;
        match params {
            // The caller refuses these with an error about scripts.
            Params::Positional(values) if is_script && !values.is_empty() => Ok(values),
            params => {
                let values = params.len();
                let bound = params.bind(&self.placeholders());
                bound.map_err(|wrong| self.with_operator_hint(wrong, values))
            }
        }
    }

    /// Says how to write an operator that was probably taken for a placeholder.
    #[cold]
    pub(crate) fn with_operator_hint(&self, wrong: Error, values: usize) -> Error {
        let has_too_few = matches!(self.places, Places::Positional(count) if values < count);
        if !has_too_few || !looks_like_operator(self.dialect, &self.text) {
            return wrong;
        }
        let message = format!("{}; write ?? for the operator", wrong.message());
        Error::new(wrong.kind(), message)
    }

    /// Converts the position of an error in the sent text to the position in the original text.
    #[inline]
    pub(crate) fn located<T>(&self, mut done: Result<T>) -> Result<T> {
        if let Err(error) = &mut done {
            self.relocate(error);
        }
        done
    }

    #[cold]
    pub(crate) fn relocate(&self, error: &mut Error) {
        if let Some(sent) = &self.rewritten {
            error.relocate(&|at| self.written(sent, at));
        }
        if let Some(origin) = &self.origin {
            error.relocate(&|at| origin.written(at));
        }
    }

    /// Adds the call to the error of this text.
    #[cold]
    pub(crate) fn set_call(&self, error: &mut Error, site: &'static Location<'static>) {
        error.set_call(site, Some((self.dialect, self.written_sql())));
    }

    /// Converts a position. Both count characters from 1.
    fn written(&self, sent: &str, character: usize) -> usize {
        let mut sent_at = sent.char_indices().map(|(at, _)| at);
        let sent_at = sent_at.nth(character.saturating_sub(1));
        let sent_at = sent_at.unwrap_or(sent.len()).saturating_sub(self.lead);
        let at = written_at(self.dialect, &self.text, sent_at);
        let before = self.text.get(..at).unwrap_or(&self.text);
        before.chars().count() + 1
    }

    fn new(dialect: &'static Dialect, text: &str, tag: Option<&'static str>) -> Result<Self> {
        // SQLite and some ODBC drivers would run only the text before the NUL.
        if text.contains('\0') {
            let message = "the SQL has a NUL character in it, at which some databases would take \
                           it to end; a value with one in it can be a parameter";
            return Err(Error::new(Kind::Database, message));
        }
        let scanned = scan(dialect, text)?;
        let lead = tag.map(comment);
        Ok(CachedScan {
            text: text.into(),
            dialect,
            tag,
            rewritten: match (&lead, scanned.sql) {
                (None, Cow::Borrowed(_)) => None,
                (None, Cow::Owned(rewritten)) => Some(rewritten.into()),
                (Some(lead), sql) => Some(format!("{lead}{sql}").into()),
            },
            lead: lead.map_or(0, |lead| lead.len()),
            origin: None,
            places: match scanned.placeholders {
                Placeholders::None => Places::None,
                Placeholders::Positional(count) => Places::Positional(count),
                Placeholders::Named(names) => {
                    Places::Named(names.into_iter().map(Box::from).collect())
                }
            },
            class: scanned.class,
        })
    }
}

/// Returns the comment that carries a tag in front of a statement. In front, because a text may end in a comment of
/// its own, and because servers cut off the end of a long statement where they list it.
///
/// Everything but letters, digits, blanks and `-._~/,=` is percent-encoded, so that a tag can neither end the comment
/// nor begin another one, and contains no placeholder.
fn comment(tag: &str) -> String {
    let mut comment = String::from("/* ");
    for byte in tag.bytes() {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => comment.push(char::from(byte)),
            b' ' | b'-' | b'.' | b'_' | b'~' | b'/' | b',' | b'=' => comment.push(char::from(byte)),
            // Writing to a String cannot fail.
            _ => drop(write!(comment, "%{byte:02X}")),
        }
    }
    comment.push_str(" */ ");
    comment
}

/// The number of texts that each thread remembers; a power of two.
const REMEMBERED: usize = 256;

/// Longer texts are scanned every time.
const LONGEST: usize = 4096;

thread_local! {
    /// Indexed by [`slot_of`]. Each thread has its own, so that no thread waits for another.
    static SCANS: RefCell<Vec<Option<Arc<CachedScan>>>> = const { RefCell::new(Vec::new()) };
}

/// Scans a text, or returns its remembered scan.
///
/// # Errors
///
/// As [`scan`], and [`Kind::Database`] for a text that contains a NUL.
pub(crate) fn cached_scan(dialect: &'static Dialect, text: &str) -> Result<Arc<CachedScan>> {
    remembered_plan(dialect, text, None, || slot_of(text))
}

/// Scans a text that is sent with a tag, or returns its remembered scan.
///
/// # Errors
///
/// As [`cached_scan`].
#[inline(never)]
pub(crate) fn cached_tagged_scan(
    dialect: &'static Dialect,
    text: &str,
    tag: Option<&'static str>,
) -> Result<Arc<CachedScan>> {
    let slot = || (slot_of(text) + tag.map_or(0, slot_of)) % REMEMBERED;
    remembered_plan(dialect, text, tag, slot)
}

/// Always inline, so that [`cached_scan`] contains nothing for tags but one comparison.
#[inline(always)]
fn remembered_plan(
    dialect: &'static Dialect,
    text: &str,
    tag: Option<&'static str>,
    slot: impl FnOnce() -> usize,
) -> Result<Arc<CachedScan>> {
    if text.len() > LONGEST {
        return Ok(Arc::new(CachedScan::new(dialect, text, tag)?));
    }
    let slot = slot();
    let remembered = SCANS.try_with(|scans| {
        let scans = scans.borrow();
        let scan = scans.get(slot)?.as_ref()?;
        let same = std::ptr::eq(scan.dialect, dialect) && scan.tag == tag && &*scan.text == text;
        same.then(|| Arc::clone(scan))
    });
    if let Ok(Some(scan)) = remembered {
        return Ok(scan);
    }
    let scan = Arc::new(CachedScan::new(dialect, text, tag)?);
    // A thread that is ending remembers nothing.
    let _ = SCANS.try_with(|scans| {
        let mut scans = scans.borrow_mut();
        scans.resize(REMEMBERED, None);
        scans[slot] = Some(Arc::clone(&scan));
    });
    Ok(scan)
}

/// Returns the class of a text that a driver sends, remembered as by [`cached_scan`]. If the text was not rewritten, both share
/// one scan.
pub(crate) fn class(dialect: &'static Dialect, sent: &str) -> Class {
    match cached_scan(dialect, sent) {
        Ok(scan) => scan.class,
        // `??` was sent as `?`, which is no placeholder.
        Err(_) => super::scan::classify(dialect, sent),
    }
}

/// Returns whether the scan of a text is remembered. A longer text should be scanned on a thread that delays no task.
#[cfg(feature = "sqlite")]
pub(crate) fn is_remembered(text: &str) -> bool {
    text.len() <= LONGEST
}

/// Returns the slot of a text, from its length and three of its parts. Two texts in one slot evict each other.
fn slot_of(text: &str) -> usize {
    let bytes = text.as_bytes();
    // A text that is too short for parts has only its length.
    let word = |at: usize| {
        let part = bytes.get(at..).and_then(<[u8]>::first_chunk);
        part.map_or(0, |part| u64::from_le_bytes(*part))
    };
    let last = bytes.len().saturating_sub(8);
    let mixed = [
        bytes.len() as u64,
        word((bytes.len() / 3).min(last)),
        word((bytes.len() / 2).min(last)),
        word(last),
    ]
    .into_iter()
    .fold(0_u64, |mixed, part| {
        (mixed.rotate_left(5) ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    });
    // The upper bits are mixed best.
    usize::try_from(mixed >> 32).unwrap_or(0) % REMEMBERED
}

#[cfg(test)]
mod tests {
    use super::*;

    static SQLITE: Dialect = Dialect::SQLITE;
    static POSTGRES: Dialect = Dialect::POSTGRES;

    #[test]
    fn a_text_is_scanned_once_and_remembered() {
        let sql = "SELECT a FROM t WHERE b = :b";
        let first = cached_scan(&SQLITE, sql).unwrap();
        assert!(Arc::ptr_eq(&first, &cached_scan(&SQLITE, sql).unwrap()));
    }

    #[test]
    fn a_remembered_text_says_what_a_scan_says() {
        for sql in ["SELECT 1", "SELECT ?, ?", "SELECT :a, :b, :a", "BEGIN", ""] {
            for dialect in [&SQLITE, &POSTGRES] {
                for _ in 0..2 {
                    let cached = cached_scan(dialect, sql).unwrap();
                    let scanned = scan(dialect, sql).unwrap();
                    assert_eq!(cached.sql(), scanned.sql);
                    assert_eq!(cached.placeholders(), scanned.placeholders);
                    assert_eq!(cached.class, scanned.class);
                }
            }
        }
    }

    #[test]
    fn tag_is_sent_as_a_comment_that_it_cannot_leave() {
        for (tag, sent) in [
            ("checkout", "/* checkout */ SELECT 1"),
            ("a */ DROP /* b", "/* a %2A/ DROP /%2A b */ SELECT 1"),
            ("!40101 ?:x", "/* %2140101 %3F%3Ax */ SELECT 1"),
            ("öl\n\0'", "/* %C3%B6l%0A%00%27 */ SELECT 1"),
        ] {
            let scan = cached_tagged_scan(&POSTGRES, "SELECT 1", Some(tag)).unwrap();
            assert_eq!(scan.sql(), sent);
            let again = cached_tagged_scan(&POSTGRES, "SELECT 1", Some(tag)).unwrap();
            assert!(Arc::ptr_eq(&scan, &again), "it is remembered");
        }
        assert_eq!(
            cached_scan(&POSTGRES, "SELECT 1").unwrap().sql(),
            "SELECT 1"
        );
    }

    #[test]
    fn tag_changes_neither_class_nor_placeholders_nor_places() {
        for dialect in [&SQLITE, &POSTGRES] {
            for sql in [
                "SELECT 'ö', :größe, wrong",
                "BEGIN",
                "SET a = 1",
                "INSERT INTO wrong VALUES (?)",
            ] {
                let bare = cached_scan(dialect, sql).unwrap();
                let tagged = cached_tagged_scan(dialect, sql, Some("a tag")).unwrap();
                assert_eq!(tagged.class, bare.class, "{sql}");
                assert_eq!(tagged.placeholders(), bare.placeholders(), "{sql}");
                assert_eq!(
                    class(dialect, tagged.sql()),
                    class(dialect, bare.sql()),
                    "{sql}"
                );
                let sent = tagged.rewritten.as_deref().unwrap();
                let character = |text: &str| Some(text[..text.find("wrong")?].chars().count() + 1);
                if let Some(at) = character(sent) {
                    assert_eq!(Some(tagged.written(sent, at)), character(sql), "{sql}");
                }
                assert_eq!(
                    tagged.written(sent, 1),
                    1,
                    "a place in the comment is the first"
                );
            }
        }
    }

    #[test]
    fn texts_that_share_a_slot_are_not_confused() {
        for n in 0..10 * REMEMBERED {
            let sql = format!("SELECT {n}");
            assert_eq!(cached_scan(&SQLITE, &sql).unwrap().sql(), sql);
        }
    }

    #[test]
    fn positions_are_found_in_the_text_as_it_was_written() {
        for sql in [
            "SELECT ?, ?, wrong",
            "SELECT 'ö', :größe, wrong, :b",
            "SELECT a ?? ? AND?5, wrong, ?",
            "SELECT wrong, ?",
            "SELECT ?wrong",
            "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, wrong",
        ] {
            let scan = cached_scan(&POSTGRES, sql).unwrap();
            let sent = scan.rewritten.as_deref().unwrap();
            let character = |text: &str| {
                let at = text.find("wrong").unwrap();
                text[..at].chars().count() + 1
            };
            let written = scan.written(sent, character(sent));
            assert_eq!(written, character(sql), "{sql}");
            let len = sql.chars().count();
            for at in 0..2 * len {
                assert!((1..=len + 1).contains(&scan.written(sent, at)), "{sql}");
            }
        }
        let scan = cached_scan(&POSTGRES, "SELECT 1, :name").unwrap();
        let sent = scan.rewritten.as_deref().unwrap();
        assert_eq!(scan.written(sent, 11), 11, "a placeholder is where it was");
        assert_eq!(scan.written(sent, 12), 11);
    }

    #[test]
    fn a_text_with_a_nul_in_it_is_an_error_however_long_it_is() {
        for blanks in [0, LONGEST] {
            let sql = format!("SELECT 1\0{}", " ".repeat(blanks));
            let error = cached_scan(&SQLITE, &sql).unwrap_err();
            assert_eq!(error.kind(), Kind::Database, "{error}");
        }
    }

    #[test]
    fn a_long_text_is_scanned_every_time() {
        let sql = format!("SELECT '{}'", "x".repeat(LONGEST));
        let first = cached_scan(&SQLITE, &sql).unwrap();
        assert!(!Arc::ptr_eq(&first, &cached_scan(&SQLITE, &sql).unwrap()));
    }

    #[test]
    fn texts_of_any_length_have_a_slot_and_mostly_different_ones() {
        for len in 0..40 {
            assert!(slot_of(&"x".repeat(len)) < REMEMBERED);
        }
        let slots: std::collections::HashSet<_> = (100..200)
            .map(|n| slot_of(&format!("SELECT a FROM t{n} WHERE b = ?")))
            .collect();
        assert!(slots.len() > 60, "{}", slots.len());
    }
}
