//! The reading half of the client alone, for tests that throw bytes at it.
//!
//! No part of the interface: it is there with the feature `fuzzing` only, and may change at any time.

use std::sync::Arc;

use postgres_types::Type;

use super::known_type::KnownType;
use super::protocol::answer::{Answer, Next};
use super::protocol::inbox::{Inbox, NoMessage};
use super::protocol::message::{self, Reader, Report, Tag};
use super::types::Layout;
use crate::driver::{Batch, Status};

/// What came of a server's bytes.
#[derive(Debug, Default)]
pub struct Read {
    /// The rows of each answer that was complete.
    pub answers: Vec<Batch>,
    /// How many answers were errors.
    pub errors: usize,
    /// How many messages were read.
    pub messages: usize,
    /// Why the connection would have been closed, if it would have been.
    pub garbage: Option<&'static str>,
}

/// Reads what a server sends, `piece` bytes at a time, as connections do.
///
/// Everything comes as text until a first answer has told the types of its columns; the next
/// ones are of those columns in binary, as those of a prepared statement are.
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
            Err(NoMessage) => return Err("a message has a length that cannot be"),
        };
        let body = inbox.body(frame);
        let next = match frame.tag {
            b'D' => answer.row(body),
            b'C' => match Tag::read(body) {
                Some(tag) => {
                    answer.command_complete(tag);
                    Next::Read
                }
                None => Next::Garbage("a command tag cannot be read"),
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
                Next::Garbage("its status is none that there is")
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

/// What a call does when the server is ready again: types that nobody knew are looked up.
fn end_answer(answer: &mut Answer, read: &mut Read) {
    answer.explain(1, "statement");
    let unknown = answer.unknown_types();
    let known: Option<Arc<Layout>> = answer.layout.clone();
    match answer.outcome(0).map(|outcome| outcome.rows) {
        Ok(Some(rows)) => {
            let rows = match unknown {
                // Whatever they are, the server's words about them say so: an array of texts is
                // the form that takes most to read.
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
