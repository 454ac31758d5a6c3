//! What the tests of the class of a text share.

use cenote::sql::{Class, Dialect, scan};

/// All dialects.
pub(crate) const ALL: [&Dialect; 4] = [
    &Dialect::SQLITE,
    &Dialect::POSTGRES,
    &Dialect::MYSQL,
    &Dialect::ODBC,
];

/// The class of a text that has to be fine.
pub(crate) fn class(dialect: &Dialect, sql: &str) -> Class {
    match scan(dialect, sql) {
        Ok(scanned) => scanned.class,
        Err(error) => panic!("{}: {sql}: {error}", dialect.name),
    }
}

/// They leave the session alone.
pub(crate) fn leaves_the_session_alone(dialect: &Dialect, texts: &[&str]) {
    for sql in texts {
        let class = class(dialect, sql);
        assert!(!class.touches_session, "{}: {sql}", dialect.name);
        assert!(!class.only_session, "{}: {sql}", dialect.name);
    }
}

/// It touches the session, and may do more than that.
pub(crate) fn touches(dialect: &Dialect, texts: &[&str]) {
    for sql in texts {
        let class = class(dialect, sql);
        assert!(class.touches_session, "{}: {sql}", dialect.name);
        assert!(!class.only_session, "{}: {sql}", dialect.name);
        assert!(!class.reads_only, "{}: {sql}", dialect.name);
    }
}

/// It makes no sense unless the session is kept.
pub(crate) fn only_changes_the_session(dialect: &Dialect, texts: &[&str]) {
    for sql in texts {
        let class = class(dialect, sql);
        assert!(class.touches_session, "{}: {sql}", dialect.name);
        assert!(class.only_session, "{}: {sql}", dialect.name);
        assert!(!class.reads_only, "{}: {sql}", dialect.name);
    }
}
