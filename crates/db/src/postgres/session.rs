//! The session state, as far as the server reports it.

use super::protocol::message::Tag;
use crate::driver::Status;

/// The session state that the server has reported.
#[derive(Debug)]
pub(super) struct Session {
    /// The reported settings.
    parameters: Vec<Parameter>,
    /// A setting was reported since the last call that began outside of a transaction.
    reported: bool,
    /// A command tag of the last call shows a changed session.
    touched: bool,
    /// The application has prepared or deallocated its own statements.
    statements_touched: bool,
    /// The setting under which the server reads texts differently than this client, if there is one.
    misread: Option<Misread>,
}

/// A setting under which the server reads texts differently than this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Misread {
    /// `standard_conforming_strings` is off: a backslash is an escape in every string.
    Backslashes,
    /// `client_encoding` is not UTF8. SQL_ASCII is refused, too: it disables conversion, so a server with
    /// another encoding sends and stores bytes that are not UTF-8.
    Encoding,
}

impl Misread {
    /// Returns which rule this value violates, if any.
    fn of(name: &[u8], value: &[u8]) -> Option<Self> {
        match name {
            b"standard_conforming_strings" if value != b"on" => Some(Misread::Backslashes),
            b"client_encoding" if !is_utf8(value) => Some(Misread::Encoding),
            _ => None,
        }
    }
}

/// PostgreSQL reports `UTF8`. Other servers that speak its protocol report other names that PostgreSQL accepts.
fn is_utf8(encoding: &[u8]) -> bool {
    [&b"utf8"[..], b"utf-8", b"unicode"]
        .into_iter()
        .any(|name| encoding.eq_ignore_ascii_case(name))
}

#[derive(Debug)]
struct Parameter {
    name: String,
    /// The value when the last call outside of a transaction began.
    before: String,
    current: String,
}

/// What a command tag says about prepared statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Nothing,
    /// All prepared statements were deallocated.
    NoStatements,
}

impl Session {
    pub(super) fn new(parameters: Vec<(String, String)>) -> Self {
        let parameter = |(name, value): (String, String)| Parameter {
            name,
            current: value.clone(),
            before: value,
        };
        let mut session = Session {
            parameters: parameters.into_iter().map(parameter).collect(),
            reported: false,
            touched: false,
            statements_touched: false,
            misread: None,
        };
        session.find_misread();
        session
    }

    fn find_misread(&mut self) {
        let mut parameters = self.parameters.iter();
        self.misread =
            parameters.find_map(|it| Misread::of(it.name.as_bytes(), it.current.as_bytes()));
    }

    /// Begins a call.
    #[inline]
    pub(super) fn begin_call(&mut self, status: Status) {
        self.touched = false;
        if self.reported && status == Status::Idle {
            self.reported = false;
            for parameter in &mut self.parameters {
                parameter.before.clone_from(&parameter.current);
            }
        }
    }

    /// Notes the new value of a setting.
    pub(super) fn note_parameter(&mut self, name: &[u8], value: &[u8]) {
        self.reported = true;
        let value = String::from_utf8_lossy(value).into_owned();
        let known = |parameter: &&mut Parameter| parameter.name.as_bytes() == name;
        match self.parameters.iter_mut().find(known) {
            Some(parameter) => parameter.current = value,
            None => self.parameters.push(Parameter {
                name: String::from_utf8_lossy(name).into_owned(),
                before: String::new(),
                current: value,
            }),
        }
        self.find_misread();
    }

    /// Processes a command tag. The scanner handles SET by its text: the tag does not show whether it was
    /// SET LOCAL.
    #[inline]
    pub(super) fn note_tag(&mut self, tag: Tag<'_>) -> Told {
        match tag.0.first() {
            // LISTEN, LOAD, UNLISTEN, PREPARE, DEALLOCATE, DISCARD, DO, CALL.
            Some(b'L' | b'U' | b'P' | b'D' | b'C') => self.note_rare_tag(tag),
            _ => Told::Nothing,
        }
    }

    fn note_rare_tag(&mut self, tag: Tag<'_>) -> Told {
        match tag.0 {
            b"LISTEN" | b"UNLISTEN" | b"LOAD" => self.touched = true,
            // Statements inside of a block or procedure have no tag of their own.
            b"DO" | b"CALL" => self.statements_touched = true,
            b"PREPARE" | b"DEALLOCATE" => {
                self.touched = true;
                self.statements_touched = true;
            }
            b"DEALLOCATE ALL" | b"DISCARD ALL" => {
                self.touched = true;
                self.statements_touched = true;
                return Told::NoStatements;
            }
            _ if tag.0.starts_with(b"DISCARD ") => self.touched = true,
            _ => {}
        }
        Told::Nothing
    }

    /// Whether the last call has changed the session. In a transaction a setting may be local to it, so this
    /// is known when the transaction has ended.
    #[inline]
    pub(super) fn is_changed(&self, status: Status) -> bool {
        self.touched || (self.reported && status == Status::Idle && self.is_any_different())
    }

    fn is_any_different(&self) -> bool {
        let mut parameters = self.parameters.iter();
        parameters.any(|parameter| parameter.current != parameter.before)
    }

    /// Returns the setting under which the server reads texts differently than this client, if there is one.
    #[inline]
    pub(super) fn misread(&self) -> Option<Misread> {
        self.misread
    }

    /// Whether the application has prepared or deallocated its own statements.
    pub(super) fn has_foreign_statements(&self) -> bool {
        self.statements_touched
    }

    /// Notes a reset: the session is as it was after connecting.
    pub(super) fn note_reset(&mut self) {
        self.begin_call(Status::Idle);
        self.statements_touched = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        Session::new(vec![("TimeZone".into(), "UTC".into())])
    }

    #[test]
    fn setting_restored_at_the_end_of_its_transaction_is_no_change() {
        let mut session = session();
        session.begin_call(Status::Idle);
        session.begin_call(Status::InTransaction);
        session.note_parameter(b"TimeZone", b"Asia/Tokyo");
        assert!(!session.is_changed(Status::InTransaction));
        session.begin_call(Status::InTransaction);
        session.note_parameter(b"TimeZone", b"UTC");
        assert!(!session.is_changed(Status::Idle));
    }

    #[test]
    fn setting_that_stays_is_reported_once_at_transaction_end() {
        let mut session = session();
        session.begin_call(Status::Idle);
        session.begin_call(Status::InTransaction);
        session.note_parameter(b"TimeZone", b"Asia/Tokyo");
        session.begin_call(Status::InTransaction);
        assert!(session.is_changed(Status::Idle));
        session.begin_call(Status::Idle);
        assert!(!session.is_changed(Status::Idle));
    }

    #[test]
    fn both_settings_must_be_right_in_any_order() {
        let mut session = session();
        for (name, value, misread) in [
            ("client_encoding", "UTF8", None),
            ("client_encoding", "SQL_ASCII", Some(Misread::Encoding)),
            ("standard_conforming_strings", "on", Some(Misread::Encoding)),
            ("client_encoding", "unicode", None),
            (
                "standard_conforming_strings",
                "off",
                Some(Misread::Backslashes),
            ),
            ("client_encoding", "GBK", Some(Misread::Encoding)),
            ("client_encoding", "utf-8", Some(Misread::Backslashes)),
            ("standard_conforming_strings", "on", None),
        ] {
            session.note_parameter(name.as_bytes(), value.as_bytes());
            assert_eq!(session.misread(), misread, "{name}={value}");
        }
    }

    #[test]
    fn tags_show_changes_of_the_session() {
        for (tag, changed, foreign) in [
            ("LISTEN", true, false),
            ("DISCARD TEMP", true, false),
            ("PREPARE", true, true),
            ("DEALLOCATE", true, true),
            ("DEALLOCATE ALL", true, true),
            ("DO", false, true),
            ("CALL", false, true),
            ("COMMIT", false, false),
            ("DELETE 3", false, false),
            ("SET", false, false),
            ("PREPARE TRANSACTION", false, false),
        ] {
            let mut session = session();
            let told = session.note_tag(Tag(tag.as_bytes()));
            assert_eq!(session.is_changed(Status::Idle), changed, "{tag}");
            assert_eq!(session.has_foreign_statements(), foreign, "{tag}");
            assert_eq!(told == Told::NoStatements, tag == "DEALLOCATE ALL", "{tag}");
        }
    }
}
