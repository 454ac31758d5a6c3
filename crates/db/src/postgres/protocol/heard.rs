//! What a message means on a connection that listens.

use std::sync::Arc;

use super::message::{self, Notification, Reader, Report};
use crate::driver::{Heard, Status};

/// The meaning of one message.
#[derive(Debug)]
pub(crate) enum Meaning {
    /// Nothing that concerns a listener.
    Nothing,
    /// A notification.
    Heard(Heard),
    Notice(Report),
    Error(Report),
    /// ReadyForQuery: the answer to a request is complete.
    Ready,
    /// A part of an answer.
    Answer,
    /// The server violates the protocol.
    Garbage(&'static str),
}

/// Reads one message.
pub(crate) fn meaning(tag: u8, body: &[u8]) -> Meaning {
    match tag {
        b'A' => match Notification::read(body) {
            Some(notification) => notification.meaning(),
            None => Meaning::Garbage("a malformed notification"),
        },
        b'S' => Meaning::Nothing,
        b'N' => Report::read(body).map_or(Meaning::Nothing, Meaning::Notice),
        b'E' => match Report::read(body) {
            Some(report) => Meaning::Error(report),
            None => Meaning::Garbage("a malformed error message"),
        },
        b'Z' if message::status(Reader(body)) == Status::Unknown => {
            Meaning::Garbage("an unknown transaction status")
        }
        b'Z' => Meaning::Ready,
        _ => Meaning::Answer,
    }
}

impl Notification<'_> {
    fn meaning(&self) -> Meaning {
        // Nobody can listen to a channel whose name is not UTF-8.
        let Ok(channel) = std::str::from_utf8(self.channel) else {
            return Meaning::Nothing;
        };
        Meaning::Heard(Heard::Notification {
            channel: channel.to_owned(),
            payload: std::str::from_utf8(self.payload).ok().map(Arc::from),
            pid: self.process,
        })
    }
}
