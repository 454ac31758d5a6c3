//! The receiving half of the client, and the forms of COPY and arrays, for fuzz tests.
//!
//! Not part of the public interface: it exists with the feature `fuzzing` only, and may change at any time.

use std::sync::Arc;

use postgres_types::Type;

use super::connect::DIALECT;
use super::copy::{place, value};
use super::known_type::KnownType;
use super::param::write_text;
use super::protocol::answer::{Answer, CopyMode, Next};
use super::protocol::heard::{Meaning, meaning};
use super::protocol::inbox::{Inbox, NoMessage};
use super::protocol::message::{self, Reader, Report, Tag};
use super::types::{Layout, Shape};
use super::{array, text};
use crate::driver::{Batch, Heard, Param, Status, Value};
use crate::sql::{ClientCopy, class};

/// The result of reading a server's bytes.
#[derive(Debug, Default)]
pub struct Read {
    /// The rows of each complete answer.
    pub answers: Vec<Batch>,
    /// The number of answers that were errors.
    pub errors: usize,
    /// The number of messages.
    pub messages: usize,
    /// The number of bytes of a COPY to the client.
    pub copied: usize,
    /// The protocol violation that would have closed the connection, if there was one.
    pub garbage: Option<&'static str>,
}

/// Reads a server's bytes as a connection does, `piece` bytes at a time.
///
/// Rows are text until a first answer has described its columns; later answers have the same columns in binary, like those of
/// a prepared statement.
pub fn read_answers(bytes: &[u8], piece: usize) -> Read {
    read_all(bytes, piece, CopyMode::Refuse)
}

/// Reads a server's bytes as a COPY does that takes data or sends data.
pub fn read_copy(bytes: &[u8], piece: usize, takes_data: bool) -> Read {
    let mode = if takes_data {
        CopyMode::Out
    } else {
        CopyMode::In
    };
    read_all(bytes, piece, mode)
}

fn read_all(bytes: &[u8], piece: usize, mode: CopyMode) -> Read {
    let fresh = || match mode {
        CopyMode::Refuse => Answer::new(true),
        mode => Answer::of_copy(mode),
    };
    let mut read = Read::default();
    let mut inbox = Inbox::new();
    let mut answer = fresh();
    for piece in bytes.chunks(piece.max(1)) {
        give(&mut inbox, piece);
        if let Err(what) = read_messages(&mut inbox, &mut answer, &mut read, &fresh) {
            read.garbage = Some(what);
            break;
        }
        read.copied += answer.take_copied().len();
    }
    read
}

/// Gives the inbox bytes as a socket does: as many at once as fit.
fn give(inbox: &mut Inbox, mut piece: &[u8]) {
    while !piece.is_empty() {
        let room = inbox.room();
        let taken = room.len().min(piece.len());
        room[..taken].copy_from_slice(&piece[..taken]);
        inbox.note_read(taken);
        piece = &piece[taken..];
    }
}

/// A notification, as a listener would receive it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The channel.
    pub channel: String,
    /// The payload; `None` for a Gap in its place.
    pub payload: Option<String>,
    /// The sender.
    pub pid: i32,
}

/// The result of reading what a server sends to a connection that listens.
#[derive(Debug, Default)]
pub struct ReadNotifications {
    /// The notifications, in order.
    pub notifications: Vec<Received>,
    /// The number of complete answers.
    pub answers: usize,
    /// The number of messages.
    pub messages: usize,
    /// The protocol violation that would have closed the connection, if there was one.
    pub garbage: Option<&'static str>,
}

/// Reads a server's bytes as a connection that listens does, `piece` bytes at a time.
pub fn read_notifications(bytes: &[u8], piece: usize) -> ReadNotifications {
    let mut read = ReadNotifications::default();
    let mut inbox = Inbox::new();
    for piece in bytes.chunks(piece.max(1)) {
        give(&mut inbox, piece);
        loop {
            let frame = match inbox.frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(NoMessage) => {
                    read.garbage = Some("a message with an impossible length");
                    return read;
                }
            };
            let meaning = meaning(frame.tag, inbox.body(frame));
            inbox.consume(frame);
            read.messages += 1;
            match meaning {
                Meaning::Heard(Heard::Notification {
                    channel,
                    payload,
                    pid,
                }) => read.notifications.push(Received {
                    channel,
                    payload: payload.map(|payload| payload.to_string()),
                    pid,
                }),
                Meaning::Ready => read.answers += 1,
                Meaning::Garbage(what) => {
                    read.garbage = Some(what);
                    return read;
                }
                _ => {}
            }
        }
    }
    read
}

fn read_messages(
    inbox: &mut Inbox,
    answer: &mut Answer,
    read: &mut Read,
    fresh: &dyn Fn() -> Answer,
) -> Result<(), &'static str> {
    loop {
        let frame = match inbox.frame() {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(()),
            Err(NoMessage) => return Err("a message with an impossible length"),
        };
        let body = inbox.body(frame);
        let next = match frame.tag {
            b'D' => answer.row(body),
            b'C' => match Tag::read(body) {
                Some(tag) => {
                    answer.command_complete(tag);
                    Next::Read
                }
                None => Next::Garbage("a malformed command tag"),
            },
            b'S' => {
                let _ = message::parameter(body);
                Next::Read
            }
            b'N' => {
                let _ = Report::read(body);
                Next::Read
            }
            b'A' => Next::Read,
            b'Z' if message::status(Reader(body)) == Status::Unknown => {
                Next::Garbage("an unknown transaction status")
            }
            b'Z' => {
                read.copied += answer.take_copied().len();
                end_answer(answer, read, fresh);
                Next::Read
            }
            tag => answer.take(tag, body, |_| None),
        };
        inbox.consume(frame);
        read.messages += 1;
        if let Next::Garbage(what) = next {
            return Err(what);
        }
    }
}

/// Does what a call does after ReadyForQuery: looks unknown types up.
fn end_answer(answer: &mut Answer, read: &mut Read, fresh: &dyn Fn() -> Answer) {
    answer.explain(1, "statement");
    let unknown = answer.unknown_types();
    let known: Option<Arc<Layout>> = answer.layout.clone();
    match answer.outcome(0).map(|outcome| outcome.rows) {
        Ok(Some(rows)) => {
            let rows = match unknown {
                // Takes them for arrays of text, the form that is hardest to parse.
                Some(layout) => layout
                    .again(|_| Some(Arc::new(KnownType::plain(Type::TEXT_ARRAY))))
                    .translate(&rows)
                    .unwrap_or(rows),
                None => rows,
            };
            read.answers.push(rows);
        }
        Ok(None) => {}
        Err(_) => read.errors += 1,
    }
    *answer = match known {
        Some(layout) => Answer::of(&layout, true),
        None => fresh(),
    };
}

/// Returns the row and the column that the context of a server's error names.
pub fn copy_place(context: &str) -> Option<(u64, Option<&str>)> {
    place::of_context(context)
}

/// Returns the query of a COPY to the client; `Some(None)` for a COPY without one.
pub fn copied_query(sql: &str) -> Option<Option<&str>> {
    match class(&DIALECT, sql).resolved.copies? {
        ClientCopy::Out {
            query: Some((start, end)),
        } => Some(Some(&sql[start..end])),
        _ => Some(None),
    }
}

/// Returns a value in COPY's binary form of a column, with its length before it.
///
/// # Errors
///
/// The value does not fit the column.
pub fn copied_value(value: &Value<'_>, column: &Type) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    value::write(&mut out, &Param::Value(value.as_borrowed()), column)?;
    Ok(out)
}

/// Returns a value as the text of a parameter.
pub fn parameter_text(value: &Value<'_>) -> Option<String> {
    let mut out = Vec::new();
    write_text(&mut out, value).ok()?;
    String::from_utf8(out).ok()
}

/// Reads the text of an array with elements of this type.
pub fn array_of_text<'t>(text: &'t str, element: &Type) -> Option<Value<'t>> {
    let shape = Shape::of(element);
    array::parse(text, b',', &|text| text::value(shape, text))
}
