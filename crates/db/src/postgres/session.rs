//! What the server has told of the session since it was opened.

use super::message::Tag;
use crate::driver::Status;

/// What the server has told of the session.
#[derive(Debug)]
pub(super) struct Session {
    /// The settings that it reports.
    parameters: Vec<Parameter>,
    /// One of them was reported since the last call that began outside a transaction.
    reported: bool,
    /// The tag of a command of the last call said that the session is not what it was.
    touched: bool,
    /// The application has prepared or forgotten statements of its own.
    statements_touched: bool,
    /// A backslash means something in every string, so that the server does not read in a text what is read in it here.
    misreads: bool,
}

/// The setting that says what a backslash means.
const PLAIN_STRINGS: &[u8] = b"standard_conforming_strings";

#[derive(Debug)]
struct Parameter {
    name: String,
    /// When the last call began that began outside a transaction.
    before: String,
    current: String,
}

/// What the tag of a command tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Nothing,
    /// Every prepared statement is gone.
    NoStatements,
}

impl Session {
    pub(super) fn new(parameters: Vec<(String, String)>) -> Self {
        let parameter = |(name, value): (String, String)| Parameter {
            name,
            current: value.clone(),
            before: value,
        };
        let is_off =
            |(name, value): &(String, String)| is_misread(name.as_bytes(), value.as_bytes());
        Session {
            misreads: parameters.iter().any(is_off),
            parameters: parameters.into_iter().map(parameter).collect(),
            reported: false,
            touched: false,
            statements_touched: false,
        }
    }

    /// A call begins.
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

    /// A setting has another value now.
    pub(super) fn note_parameter(&mut self, name: &[u8], value: &[u8]) {
        self.reported = true;
        if name == PLAIN_STRINGS {
            self.misreads = is_misread(name, value);
        }
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
    }

    /// A command is complete. What SET did is told by its text: the tag does not say whether
    /// it was for the transaction only.
    #[inline]
    pub(super) fn note_tag(&mut self, tag: Tag<'_>) -> Told {
        match tag.0.first() {
            // LISTEN, LOAD, UNLISTEN, PREPARE, DEALLOCATE, DISCARD.
            Some(b'L' | b'U' | b'P' | b'D') => self.note_rare_tag(tag),
            _ => Told::Nothing,
        }
    }

    fn note_rare_tag(&mut self, tag: Tag<'_>) -> Told {
        match tag.0 {
            b"LISTEN" | b"UNLISTEN" | b"LOAD" => self.touched = true,
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

    /// Whether the last call has changed the session. In a transaction a setting may be for that
    /// only, so that is told when it has ended.
    #[inline]
    pub(super) fn is_changed(&self, status: Status) -> bool {
        self.touched || (self.reported && status == Status::Idle && self.is_any_different())
    }

    fn is_any_different(&self) -> bool {
        let mut parameters = self.parameters.iter();
        parameters.any(|parameter| parameter.current != parameter.before)
    }

    /// The server reads SQL otherwise than it is read here.
    #[inline]
    pub(super) fn misreads(&self) -> bool {
        self.misreads
    }

    /// The application has prepared or forgotten statements of its own.
    pub(super) fn has_foreign_statements(&self) -> bool {
        self.statements_touched
    }

    /// The session is what it was after connecting.
    pub(super) fn note_reset(&mut self) {
        self.begin_call(Status::Idle);
        self.statements_touched = false;
    }
}

fn is_misread(name: &[u8], value: &[u8]) -> bool {
    name == PLAIN_STRINGS && value != b"on"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        Session::new(vec![("TimeZone".into(), "UTC".into())])
    }

    #[test]
    fn a_setting_that_is_back_when_its_transaction_ends_has_changed_nothing() {
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
    fn a_setting_that_stays_is_told_when_its_transaction_ends_and_once() {
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
    fn tags_tell_of_what_stays_with_the_session() {
        for (tag, changed, foreign) in [
            ("LISTEN", true, false),
            ("DISCARD TEMP", true, false),
            ("PREPARE", true, true),
            ("DEALLOCATE", true, true),
            ("DEALLOCATE ALL", true, true),
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
