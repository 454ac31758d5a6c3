//! Which prepared statements a connection caches, and when they become invalid.
//!
//! The server resolves literals and names when it parses a statement: `'2024-01-01 12:00'` becomes a time in the session's
//! time zone, a name becomes a table. So a prepared statement is valid only in a session with the same state as at the
//! parse. There are two caches:
//!
//! | cache | valid until |
//! |---|---|
//! | for the session as it was after connecting | evicted, or the session defines something (CREATE, ALTER, DROP) |
//! | for a changed session | the next change, the end of a (sub)transaction, or a reset |
//!
//! The key of a statement also contains the settings that the server reports or that the layer has set.

use std::fmt::Write;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

use super::protocol::message::Tag;
use super::statement::Statement;
use crate::driver::Status;
use crate::driver::cache::StatementCache;

/// Settings that the server reports, but that do not affect parsing.
const IRRELEVANT: [&[u8]; 4] = [
    b"application_name",
    b"default_transaction_read_only",
    b"in_hot_standby",
    b"scram_iterations",
];

/// The prepared statements that a connection caches.
#[derive(Debug)]
pub(super) struct Kept {
    untouched: StatementCache<Parsed>,
    changed: StatementCache<Parsed>,
    change: Change,
    /// Counts the changes that may give a text another meaning. A statement that was being prepared during one is
    /// not cached.
    epoch: u64,
    settings: Vec<Setting>,
    /// A hash of all settings.
    key: u64,
    /// Evicted statements that the server may still have: the next call closes them.
    pub(super) unwanted: Vec<String>,
    /// Names that calls in flight prepare or close: the server may or may not have these statements.
    preparing: Vec<String>,
}

#[derive(Debug)]
struct Parsed {
    statement: Arc<Statement>,
    /// A hash of the settings under which it was parsed.
    key: u64,
}

/// How long the session stays changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Change {
    /// Unchanged since connecting.
    None,
    /// Until the end of the transaction.
    Transaction,
    /// Until the next reset.
    Session,
}

#[derive(Debug)]
struct Setting {
    name: Box<[u8]>,
    /// The layer has set it, and sets it again after each reset.
    is_default: bool,
    /// A hash of name and value.
    hash: u64,
}

impl Kept {
    pub(super) fn new(capacity: usize) -> Self {
        Kept {
            untouched: StatementCache::new(capacity),
            changed: StatementCache::new(capacity),
            change: Change::None,
            epoch: 0,
            settings: Vec::new(),
            key: 0,
            unwanted: Vec::new(),
            preparing: Vec::new(),
        }
    }

    /// Notes that a statement is being prepared under this name, or closed.
    pub(super) fn begin_preparing(&mut self, name: &str) {
        self.preparing.push(name.to_owned());
    }

    /// Whether a statement is being prepared under this name.
    pub(super) fn is_preparing(&self, name: &str) -> bool {
        self.preparing.iter().any(|it| it == name)
    }

    /// Notes that the server has answered, or that nothing is being prepared.
    pub(super) fn end_preparing(&mut self) {
        self.preparing.clear();
    }

    /// Notes that the server has answered the message that prepared or closed this statement.
    pub(super) fn end_preparing_one(&mut self, name: &str) {
        if let Some(at) = self.preparing.iter().position(|it| it == name) {
            self.preparing.swap_remove(at);
        }
    }

    /// Notes that the preparing call was dropped: the server may or may not have the statement.
    pub(super) fn give_up_preparing(&mut self) {
        self.unwanted.append(&mut self.preparing);
    }

    /// Notes that the server may or may not have these statements, unless they are cached: the next call closes them.
    pub(super) fn give_up(&mut self, names: impl IntoIterator<Item = String>) {
        let names = names.into_iter().filter(|name| !name.is_empty());
        let names: Vec<_> = names.filter(|name| !self.is_kept(name)).collect();
        self.unwanted.extend(names);
    }

    /// Whether a cached statement has this name.
    fn is_kept(&self, name: &str) -> bool {
        let mut all = self.untouched.statements().chain(self.changed.statements());
        all.any(|kept| kept.statement.name == name)
    }

    #[inline]
    fn current(&mut self) -> &mut StatementCache<Parsed> {
        match self.change {
            Change::None => &mut self.untouched,
            Change::Transaction | Change::Session => &mut self.changed,
        }
    }

    /// Whether the cache is enabled.
    pub(super) fn is_on(&self) -> bool {
        self.untouched.is_on()
    }

    #[inline]
    pub(super) fn get(&mut self, sql: &str) -> Option<Arc<Statement>> {
        let key = self.key;
        let kept = self.current().get(sql)?;
        (kept.key == key).then(|| Arc::clone(&kept.statement))
    }

    /// Makes room for a new statement and returns its name. `None` if another statement has that name, which
    /// only a hash collision can cause.
    pub(super) fn make_room(&mut self, sql: &str) -> Option<String> {
        // The same text, prepared under other settings.
        self.forget(sql);
        let name = self.name_of(sql);
        if self.is_kept(&name) {
            return None;
        }
        if let Some(oldest) = self.current().make_room() {
            self.unwanted.push(oldest.statement.name.clone());
        }
        Some(name)
    }

    /// Caches a statement after `make_room`. Returns false if its meaning may have changed meanwhile.
    pub(super) fn insert(&mut self, statement: Arc<Statement>) -> bool {
        if statement.name != self.name_of(&statement.sql) {
            self.unwanted.push(statement.name.clone());
            return false;
        }
        // Other statements of a pipeline may have taken the room.
        if let Some(oldest) = self.current().make_room() {
            self.unwanted.push(oldest.statement.name.clone());
        }
        let parsed = Parsed {
            statement: Arc::clone(&statement),
            key: self.key,
        };
        self.current().insert(&statement.sql, parsed);
        true
    }

    /// Replaces a cached statement by one with more details.
    pub(super) fn replace(&mut self, statement: Arc<Statement>) {
        let kept = self.current().get(&statement.sql);
        if let Some(kept) = kept.filter(|kept| kept.statement.name == statement.name) {
            kept.statement = statement;
        }
    }

    /// Removes a statement: its next run prepares it again.
    pub(super) fn forget(&mut self, sql: &str) {
        if let Some(gone) = self.current().remove(sql) {
            self.unwanted.push(gone.statement.name.clone());
        }
    }

    /// Removes all statements, which the server has deallocated.
    pub(super) fn clear(&mut self) {
        drop((self.untouched.take_all(), self.changed.take_all()));
        self.unwanted.clear();
        self.epoch += 1;
    }

    pub(super) fn len(&self) -> usize {
        self.untouched.len() + self.changed.len()
    }

    /// Returns the name of a statement: a 128-bit hash of its SQL and of everything that it may depend on. Parameter
    /// types are not part of it, because none are declared.
    fn name_of(&self, sql: &str) -> String {
        let mut name = String::with_capacity(33);
        name.push('c');
        for half in 0..2 {
            let mut hasher = DefaultHasher::new();
            hasher.write_u8(half);
            hasher.write_u64(self.key);
            hasher.write_u64(self.epoch);
            hasher.write(sql.as_bytes());
            write!(name, "{:016x}", hasher.finish()).expect("a string takes any text");
        }
        name
    }

    /// Notes that the session may have changed, or changed again.
    pub(super) fn change(&mut self, change: Change) {
        self.change = self.change.max(change);
        let gone = self.changed.take_all();
        self.unwanted
            .extend(gone.map(|kept| kept.statement.name.clone()));
        self.epoch += 1;
    }

    /// Whether the program may have changed the session, or in the present transaction its settings.
    pub(super) fn is_changed(&self) -> bool {
        self.change != Change::None
    }

    /// Notes a definition: names, types and columns may have another meaning.
    pub(super) fn define(&mut self) {
        let gone = self.untouched.take_all();
        self.unwanted
            .extend(gone.map(|kept| kept.statement.name.clone()));
        self.change(Change::Transaction);
    }

    /// Processes a command tag. What a function or procedure does has no tag: a statement that it made stale is
    /// removed when it fails.
    #[inline]
    pub(super) fn note_tag(&mut self, tag: Tag<'_>) {
        match tag.0 {
            [b'S', b'E', b'L', ..] | [b'I', b'N', ..] | [b'U', ..] | [b'B', ..] => {}
            _ => self.note_rare_tag(tag),
        }
    }

    fn note_rare_tag(&mut self, tag: Tag<'_>) {
        let starts = |words: &[&str]| words.iter().any(|it| tag.0.starts_with(it.as_bytes()));
        if starts(&["CREATE ", "ALTER ", "DROP ", "IMPORT "]) || tag.is("DO") {
            self.define();
        } else if tag.is("SET") || tag.is("RESET") {
            self.change(Change::Transaction);
        } else if self.change != Change::None && (tag.is("COMMIT") || tag.is("ROLLBACK")) {
            // It undid settings, at least those since a savepoint.
            self.change(Change::None);
        }
    }

    /// Processes a ReadyForQuery.
    #[inline]
    pub(super) fn note_status(&mut self, status: Status) {
        if self.change == Change::Transaction && status == Status::Idle {
            self.end_change();
        }
    }

    /// Notes that the session counts as unchanged from now on.
    pub(super) fn end_change(&mut self) {
        self.change(Change::None);
        self.change = Change::None;
    }

    /// Notes a reset: the session is as it was after connecting.
    pub(super) fn note_reset(&mut self) {
        self.end_change();
        self.settings.retain(|setting| !setting.is_default);
        self.mix();
    }

    /// Notes the value of a setting that the server reports.
    pub(super) fn note_setting(&mut self, name: &[u8], value: &[u8]) {
        if !IRRELEVANT.contains(&name) {
            self.note(name, value, false);
        }
    }

    /// Notes a default that the layer has set.
    pub(super) fn note_default(&mut self, name: &str, value: &str) {
        self.note(name.as_bytes(), value.as_bytes(), true);
    }

    fn note(&mut self, name: &[u8], value: &[u8], is_default: bool) {
        let mut hasher = DefaultHasher::new();
        hasher.write_u8(u8::from(is_default));
        hasher.write_usize(name.len());
        hasher.write(name);
        hasher.write(value);
        let hash = hasher.finish();
        let known = |it: &&mut Setting| it.is_default == is_default && *it.name == *name;
        match self.settings.iter_mut().find(known) {
            Some(setting) => setting.hash = hash,
            None => self.settings.push(Setting {
                name: name.into(),
                is_default,
                hash,
            }),
        }
        self.mix();
    }

    fn mix(&mut self) {
        let hashes = self.settings.iter().map(|setting| setting.hash);
        self.key = hashes.fold(0, u64::wrapping_add);
    }
}

#[cfg(test)]
mod tests {
    use super::super::types::Layout;
    use super::*;

    fn keep(kept: &mut Kept, sql: &str) -> String {
        let name = kept.make_room(sql).unwrap();
        let statement = Statement::new(name.clone(), sql, Vec::new(), Layout::empty());
        kept.insert(Arc::new(statement));
        name
    }

    fn is_kept(kept: &mut Kept, sql: &str) -> bool {
        kept.get(sql).is_some()
    }

    fn tag(kept: &mut Kept, tag: &str) {
        kept.note_tag(Tag(tag.as_bytes()));
    }

    #[test]
    fn changed_session_has_its_own_statements() {
        let mut kept = Kept::new(8);
        keep(&mut kept, "a");
        kept.change(Change::Session);
        assert!(!is_kept(&mut kept, "a"));
        let own = keep(&mut kept, "a");
        assert!(is_kept(&mut kept, "a"));
        kept.note_status(Status::Idle);
        assert!(
            is_kept(&mut kept, "a"),
            "the end of a transaction does not invalidate"
        );
        kept.change(Change::Session);
        assert!(!is_kept(&mut kept, "a"), "the session changed again");
        assert_eq!(kept.unwanted, [own]);
        kept.note_reset();
        assert!(is_kept(&mut kept, "a"));
    }

    #[test]
    fn change_of_a_transaction_ends_with_it() {
        for (set, undo) in [("SET", "ROLLBACK"), ("RESET", "COMMIT")] {
            let mut kept = Kept::new(8);
            keep(&mut kept, "a");
            tag(&mut kept, set);
            kept.note_status(Status::InTransaction);
            assert!(!is_kept(&mut kept, "a"));
            keep(&mut kept, "a");
            tag(&mut kept, undo);
            kept.note_status(Status::InTransaction);
            assert!(
                !is_kept(&mut kept, "a"),
                "rollback to a savepoint, or AND CHAIN"
            );
            kept.note_status(Status::Idle);
            assert!(is_kept(&mut kept, "a"));
        }
    }

    #[test]
    fn definition_invalidates_all_statements() {
        for defines in ["CREATE TABLE", "ALTER TYPE", "DROP VIEW", "DO"] {
            let mut kept = Kept::new(8);
            keep(&mut kept, "a");
            tag(&mut kept, defines);
            kept.note_status(Status::Idle);
            assert!(!is_kept(&mut kept, "a"), "{defines}");
        }
        let mut kept = Kept::new(8);
        keep(&mut kept, "a");
        for harmless in [
            "SELECT 1",
            "INSERT 0 1",
            "UPDATE 1",
            "DELETE 1",
            "BEGIN",
            "COMMIT",
        ] {
            tag(&mut kept, harmless);
        }
        assert!(is_kept(&mut kept, "a"));
    }

    #[test]
    fn other_settings_need_other_statements() {
        let mut kept = Kept::new(8);
        kept.note_setting(b"TimeZone", b"UTC");
        let utc = keep(&mut kept, "a");
        kept.note_setting(b"application_name", b"x");
        assert!(
            is_kept(&mut kept, "a"),
            "no statement depends on this setting"
        );
        kept.note_setting(b"TimeZone", b"Asia/Tokyo");
        assert!(!is_kept(&mut kept, "a"));
        kept.note_setting(b"TimeZone", b"UTC");
        assert!(is_kept(&mut kept, "a"), "the setting has its old value");
        kept.note_setting(b"TimeZone", b"Asia/Tokyo");
        keep(&mut kept, "a");
        assert_eq!(kept.unwanted, [utc]);
    }

    #[test]
    fn default_set_again_after_a_reset_is_the_same() {
        let mut kept = Kept::new(8);
        keep(&mut kept, "a");
        kept.note_default("search_path", "s");
        assert!(!is_kept(&mut kept, "a"));
        keep(&mut kept, "a");
        kept.note_reset();
        assert!(!is_kept(&mut kept, "a"));
        kept.note_default("search_path", "s");
        assert!(is_kept(&mut kept, "a"));
    }

    #[test]
    fn statement_prepared_during_a_change_is_not_cached() {
        let mut kept = Kept::new(8);
        let name = kept.make_room("a").unwrap();
        tag(&mut kept, "CREATE TABLE");
        kept.note_status(Status::Idle);
        let late = Statement::new(name.clone(), "a", Vec::new(), Layout::empty());
        kept.insert(Arc::new(late));
        assert!(!is_kept(&mut kept, "a"));
        assert_eq!(kept.unwanted, [name]);
    }

    #[test]
    fn replaced_statement_keeps_its_name() {
        let mut kept = Kept::new(8);
        let name = keep(&mut kept, "a");
        kept.change(Change::Session);
        kept.note_reset();
        let known = Statement::new(name.clone(), "a", Vec::new(), Layout::empty());
        let known = Arc::new(known);
        kept.replace(Arc::clone(&known));
        assert!(Arc::ptr_eq(&kept.get("a").unwrap(), &known));
        assert!(kept.unwanted.is_empty());
        kept.change(Change::Session);
        kept.replace(known);
        assert!(!is_kept(&mut kept, "a"), "the other cache does not have it");
    }

    #[test]
    fn name_depends_on_the_sql() {
        let kept = Kept::new(8);
        assert_eq!(kept.name_of("SELECT 1"), kept.name_of("SELECT 1"));
        assert_ne!(kept.name_of("SELECT 1"), kept.name_of("SELECT 2"));
        assert_eq!(kept.name_of("SELECT 1").len(), 33);
    }
}
