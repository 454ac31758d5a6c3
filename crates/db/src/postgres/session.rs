//! What the server has told of the session since it was opened.

use super::message::Tag;
use crate::driver::Status;

/// What the server has told of the session.
#[derive(Debug)]
pub(super) struct Session {
    /// The settings that it reports: what they were after connecting, and what they are.
    parameters: Vec<Parameter>,
    /// The tag of a command said that the session is not what it was.
    touched: bool,
    /// The application has prepared or forgotten statements of its own.
    statements_touched: bool,
}

#[derive(Debug)]
struct Parameter {
    name: String,
    origin: String,
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
        let parameter = |(name, origin): (String, String)| Parameter {
            name,
            current: origin.clone(),
            origin,
        };
        Session {
            parameters: parameters.into_iter().map(parameter).collect(),
            touched: false,
            statements_touched: false,
        }
    }

    /// A setting has another value now.
    pub(super) fn note_parameter(&mut self, name: &[u8], value: &[u8]) {
        let value = String::from_utf8_lossy(value);
        let known = |parameter: &&mut Parameter| parameter.name.as_bytes() == name;
        if let Some(parameter) = self.parameters.iter_mut().find(known) {
            parameter.current = value.into_owned();
        } else {
            // It was not reported before; so this is where it comes from.
            self.parameters.push(Parameter {
                name: String::from_utf8_lossy(name).into_owned(),
                origin: value.clone().into_owned(),
                current: value.into_owned(),
            });
            self.touched = true;
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

    /// Whether the session is not what it was after connecting. In a transaction a setting may
    /// be for that only, so that is told when it has ended.
    #[inline]
    pub(super) fn is_changed(&self, status: Status) -> bool {
        self.touched
            || (status == Status::Idle
                && self
                    .parameters
                    .iter()
                    .any(|parameter| parameter.current != parameter.origin))
    }

    /// The application has prepared or forgotten statements of its own.
    pub(super) fn has_foreign_statements(&self) -> bool {
        self.statements_touched
    }

    /// The session is what it was after connecting.
    pub(super) fn note_reset(&mut self) {
        self.touched = false;
        self.statements_touched = false;
    }
}
