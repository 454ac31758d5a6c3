//! The receiving half of the client, for fuzz tests.
//!
//! Not part of the public interface: it exists with the feature `fuzzing` only, and may change at any time.

use std::sync::Arc;

use postgres_types::Type;

use super::known_type::KnownType;
use super::protocol::answer::{Answer, Next};
use super::protocol::inbox::{Inbox, NoMessage};
use super::protocol::message::{self, Reader, Report, Tag};
use super::types::Layout;
use crate::driver::{Batch, Status};

/// The result of reading a server's bytes.
#[derive(Debug, Default)]
pub struct Read {
    /// The rows of each complete answer.
    pub answers: Vec<Batch>,
    /// The number of answers that were errors.
    pub errors: usize,
    /// The number of messages.
    pub messages: usize,
    /// The protocol violation that would have closed the connection, if there was one.
    pub garbage: Option<&'static str>,
}

/// Reads a server's bytes as a connection does, `piece` bytes at a time.
///
/// Rows are text until a first answer has described its columns; later answers have the same columns in binary, like those of
/// a prepared statement.
pub fn read_answers(bytes: &[u8], piece: usize) -> Read {
    let mut read = Read::default();
    let mut inbox = Inbox::new();
    let mut answer = Answer::new(true);
    for mut piece in bytes.chunks(piece.max(1)) {
        while !piece.is_empty() {
            let room = inbox.room();
            let taken = room.len().min(piece.len());
            room[..taken].copy_from_slice(&piece[..taken]);
            inbox.note_read(taken);
            piece = &piece[taken..];
        }
        if let Err(what) = read_messages(&mut inbox, &mut answer, &mut read) {
            read.garbage = Some(what);
            break;
        }
    }
    read
}

fn read_messages(
    inbox: &mut Inbox,
    answer: &mut Answer,
    read: &mut Read,
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
                end_answer(answer, read);
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
fn end_answer(answer: &mut Answer, read: &mut Read) {
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
        None => Answer::new(true),
    };
}
