//! Functions by which a plain SELECT can change the session.
//!
//! The lists have functions of the servers and of the extensions that come with them. A text does not show what an
//! application's own function does.

/// A function by which a plain SELECT can change the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionFunction {
    /// The name in lower case. A `*` at the end matches any rest.
    pub name: &'static str,
    /// What the function does to the session.
    pub effect: SessionEffect,
}

/// What a function does to the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionEffect {
    /// It changes the session, or may change it: it runs SQL from a string, for example.
    Changes,
    /// It only affects the session: it takes or releases a session lock, for example. A SELECT of this function alone
    /// makes sense only if the session is kept.
    Only,
    /// As [`Only`](SessionEffect::Only), unless its last argument is the word `true`: then the setting ends with the
    /// transaction.
    OnlyUnlessLocal,
    /// It changes the session, or may change it, and no reset undoes that: the connection is replaced.
    Irreversible,
    /// As [`Only`](SessionEffect::Only), and no reset undoes it.
    OnlyIrreversible,
}

impl SessionEffect {
    pub(super) fn is_irreversible(self) -> bool {
        matches!(
            self,
            SessionEffect::Irreversible | SessionEffect::OnlyIrreversible
        )
    }
}

impl SessionFunction {
    /// Returns a function of this name (lower case; a `*` at the end matches any rest) with this effect.
    pub const fn new(name: &'static str, effect: SessionEffect) -> Self {
        SessionFunction { name, effect }
    }

    /// Returns whether a call of `name` may be a call of this function.
    ///
    /// MySQL compares names by a collation in which `é` equals `e`. So any character outside ASCII matches.
    #[inline]
    pub(super) fn is_called_by(&self, name: &str) -> bool {
        let (Some(first), Some(wanted)) = (name.bytes().next(), self.name.bytes().next()) else {
            return false;
        };
        // The first letter alone excludes nearly all other functions.
        (first.to_ascii_lowercase() == wanted || !first.is_ascii()) && self.fits(name)
    }

    fn fits(&self, name: &str) -> bool {
        let (pattern, any_rest) = match self.name.strip_suffix('*') {
            Some(start) => (start, true),
            None => (self.name, false),
        };
        if name.is_ascii() {
            return match name.as_bytes().get(..pattern.len()) {
                Some(start) => {
                    (any_rest || name.len() == pattern.len())
                        && start.eq_ignore_ascii_case(pattern.as_bytes())
                }
                None => false,
            };
        }
        let mut letters = name.chars();
        let start_fits = pattern.chars().all(|wanted| {
            letters
                .next()
                .is_some_and(|letter| !letter.is_ascii() || letter.eq_ignore_ascii_case(&wanted))
        });
        start_fits && (any_rest || letters.next().is_none())
    }
}

const fn changes(name: &'static str) -> SessionFunction {
    SessionFunction::new(name, SessionEffect::Changes)
}

const fn only(name: &'static str) -> SessionFunction {
    SessionFunction::new(name, SessionEffect::Only)
}

const fn irreversible(name: &'static str) -> SessionFunction {
    SessionFunction::new(name, SessionEffect::Irreversible)
}

pub(super) static SQLITE: &[SessionFunction] =
    &[changes("fts3_tokenizer"), changes("load_extension")];

/// PostgreSQL's functions. `nextval` is left out on purpose (its effect is harmless), and so are the `_xact_` locks and
/// the `lo_` functions (their effect ends with the transaction, or is data).
///
/// DISCARD ALL leaves the irreversible effects: connections of dblink, a mode of the extension isn, a backup that has
/// begun, temporary replication slots, the origin of replication, the seed of `random()`.
pub(super) static POSTGRES: &[SessionFunction] = &[
    changes("connectby"),
    changes("crosstab*"),
    changes("cursor_to_xml*"),
    irreversible("dblink*"),
    irreversible("isn_weak"),
    only("pg_advisory_lock"),
    only("pg_advisory_lock_shared"),
    only("pg_advisory_unlock"),
    only("pg_advisory_unlock_all"),
    only("pg_advisory_unlock_shared"),
    irreversible("pg_backup_*"),
    irreversible("pg_copy_*"),
    irreversible("pg_create_logical_replication_slot"),
    irreversible("pg_create_physical_replication_slot"),
    irreversible("pg_replication_origin_session_*"),
    irreversible("pg_start_backup"),
    irreversible("pg_stop_backup"),
    only("pg_try_advisory_lock"),
    only("pg_try_advisory_lock_shared"),
    changes("query_to_xml*"),
    SessionFunction::new("set_config", SessionEffect::OnlyUnlessLocal),
    changes("set_limit"),
    SessionFunction::new("setseed", SessionEffect::OnlyIrreversible),
    changes("ts_rewrite"),
    changes("ts_stat"),
    changes("xpath_table"),
];

/// Statements of PostgreSQL that leave the session unchanged. The functions that they may call are as invisible as in
/// a SELECT. (ANALYZE, REINDEX and REFRESH call functions where settings, roles and temporary tables cannot change.)
///
/// Left out on purpose: CALL, DO and EXECUTE, whose text does not show what runs; cursors; IMPORT FOREIGN SCHEMA.
pub(super) static POSTGRES_PLAIN: &[&str] = &[
    "analyse",
    "analyze",
    "checkpoint",
    "cluster",
    "comment",
    "copy",
    "grant",
    "lock",
    "notify",
    "reassign",
    "refresh",
    "reindex",
    "revoke",
    "security",
    "show",
    "vacuum",
];

/// Objects that PostgreSQL creates, alters and drops in its catalogues alone.
///
/// Left out on purpose: `extension` and `language`, whose scripts and libraries can do anything.
pub(super) static POSTGRES_OBJECTS: &[&str] = &[
    "aggregate",
    "cast",
    "collation",
    "constraint",
    "conversion",
    "database",
    "default",
    "event",
    "foreign",
    "group",
    "large",
    "operator",
    "owned",
    "policy",
    "publication",
    "role",
    "routine",
    "rule",
    "schema",
    "server",
    "statistics",
    "subscription",
    "system",
    "tablespace",
    "text",
    "transform",
    "user",
];

pub(super) static MYSQL: &[SessionFunction] = &[
    only("get_lock"),
    only("release_all_locks"),
    only("release_lock"),
    only("service_get_read_locks"),
    only("service_get_write_locks"),
    only("service_release_locks"),
    changes("version_tokens_*"),
];
