//! Sends and receives messages.
//!
//! There is no background task: the calling task drives the wire. A call appends whole messages to `outbox`, without an
//! await in between. Bytes leave the outbox only when the socket has accepted them, so a future that is dropped while
//! it sends leaves the rest for the next call. Received messages are read in place, in `inbox`.
//!
//! [`Unanswered`] counts the answers that the server still owes. An answer that nothing asked for breaks the connection.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use zeroize::Zeroize;

use super::early_read::EarlyRead;
use super::error;
use super::net::socket::{Peek, Socket};
use super::protocol::frontend;
use super::protocol::inbox::{Frame, Inbox, NoMessage};
use super::protocol::unanswered::Unanswered;
use crate::{Error, Kind, Result};

/// An empty outbox whose capacity exceeds this is freed.
const MAX_IDLE_CAPACITY: usize = 256 * 1024;

/// The buffers and the socket of one connection.
pub(super) struct Wire {
    socket: Socket,
    inbox: Inbox,
    outbox: Vec<u8>,
    /// How many bytes of the outbox have been sent.
    sent_of_outbox: usize,
    /// How many bytes have left the outbox so far.
    left: u64,
    /// The outbox contains a password, or has since it was last wiped.
    is_secret: bool,
    /// The answers that the oldest unanswered batch still needs.
    unanswered: Unanswered,
    /// Those of the batches behind it, in order: nearly always none.
    behind: VecDeque<Unanswered>,
    /// The outbox has messages after its last Sync.
    unsynced: bool,
    broken: bool,
    /// Bytes were sent since the last call began.
    sent: bool,
    /// TLS may still buffer some of the sent bytes.
    unflushed: bool,
    /// When to read right after a send.
    early_read: EarlyRead,
    /// Sending failed; received bytes are still read.
    send_error: Option<io::Error>,
    /// The number of round trips so far.
    round_trips: u64,
}

/// A position in the outbox to roll back to.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    len: usize,
    unsynced: bool,
    unanswered: Unanswered,
    behind: usize,
}

impl Wire {
    pub(super) fn new(socket: Socket) -> Self {
        Wire {
            socket,
            inbox: Inbox::new(),
            outbox: Vec::new(),
            sent_of_outbox: 0,
            left: 0,
            is_secret: false,
            unanswered: Unanswered::default(),
            behind: VecDeque::new(),
            unsynced: false,
            broken: false,
            sent: false,
            unflushed: false,
            early_read: EarlyRead::default(),
            send_error: None,
            round_trips: 0,
        }
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Returns the outbox, for messages that a Sync will follow.
    pub(super) fn outbox(&mut self) -> &mut Vec<u8> {
        self.unsynced = true;
        &mut self.outbox
    }

    /// Returns the outbox, for messages of a batch that already has its Sync.
    pub(super) fn outbox_in_batch(&mut self) -> &mut Vec<u8> {
        &mut self.outbox
    }

    /// Appends a message with a password to the outbox, which is wiped when everything is sent.
    pub(super) fn send_secret(&mut self, tag: u8, body: &[&[u8]]) {
        let len = 4 + body.iter().map(|part| part.len()).sum::<usize>();
        let len_sent = u32::try_from(len).expect("a password is shorter than four gigabytes");
        self.is_secret = true;
        let out = self.outbox();
        // Reserved first: a buffer that grows leaves a copy behind that nobody wipes.
        out.reserve(1 + len);
        out.push(tag);
        out.extend_from_slice(&len_sent.to_be_bytes());
        for part in body {
            out.extend_from_slice(part);
        }
    }

    /// Returns the counts of the batch at the end of the outbox, to add the answers that new messages need.
    #[inline]
    pub(super) fn ask(&mut self) -> &mut Unanswered {
        match self.unanswered.is_pending() {
            false => &mut self.unanswered,
            true => self.ask_behind(),
        }
    }

    #[cold]
    fn ask_behind(&mut self) -> &mut Unanswered {
        if self.behind.back().is_none_or(Unanswered::is_pending) {
            self.behind.push_back(Unanswered::default());
        }
        self.behind.back_mut().expect("it was just added")
    }

    /// Returns the current end of the outbox and the current counts. Behind an unanswered batch it is taken only where another
    /// one begins.
    pub(super) fn mark(&self) -> Mark {
        debug_assert!(!self.unsynced || self.behind.is_empty());
        Mark {
            len: self.outbox.len(),
            unsynced: self.unsynced,
            unanswered: self.unanswered,
            behind: self.behind.len(),
        }
    }

    /// Removes the messages that were appended since the mark. Nothing was sent in between.
    pub(super) fn undo(&mut self, mark: Mark) {
        self.outbox.truncate(mark.len);
        self.unsynced = mark.unsynced;
        self.unanswered = mark.unanswered;
        self.behind.truncate(mark.behind);
    }

    /// Returns the number of batches that are not answered yet.
    pub(super) fn unanswered_batches(&self) -> usize {
        usize::from(self.unanswered.is_pending()) + self.behind.len()
    }

    /// Returns the end of the outbox, counted from the first byte of the connection.
    pub(super) fn position(&self) -> u64 {
        self.left + self.outbox.len() as u64
    }

    /// Whether the socket has taken nothing that was appended at or after this position.
    pub(super) fn is_unsent_from(&self, position: u64) -> bool {
        !self.outbox.is_empty() && self.left + self.sent_of_outbox as u64 <= position
    }

    /// Removes what was sent from an outbox that never empties, because callers append to it all the time.
    pub(super) fn compact(&mut self) {
        if self.sent_of_outbox > MAX_IDLE_CAPACITY {
            self.outbox.drain(..self.sent_of_outbox);
            self.left += std::mem::take(&mut self.sent_of_outbox) as u64;
        }
    }

    /// Returns the number of bytes that wait to be sent.
    pub(super) fn unsent(&self) -> usize {
        self.outbox.len() - self.sent_of_outbox
    }

    /// Whether fewer than `limit` bytes wait to be sent, and no part of them was sent: sent bytes stay in the outbox until all
    /// are sent, so a caller that appends to a partly sent outbox would let it grow without limit.
    pub(super) fn has_room(&self, limit: usize) -> bool {
        self.sent_of_outbox == 0 && self.outbox.len() < limit
    }

    /// Begins a call: from now on the wire records whether bytes are sent.
    pub(super) fn begin_call(&mut self) {
        self.sent = false;
    }

    /// Appends a Sync, which ends a batch: the server answers it with ReadyForQuery.
    pub(super) fn sync(&mut self) {
        frontend::sync(&mut self.outbox);
        self.note_sync();
    }

    /// Notes that the last message in the outbox ends a batch, as a Sync does.
    pub(super) fn note_sync(&mut self) {
        self.ask().sync();
        self.note_end();
    }

    /// Notes a simple query in the outbox, which needs no Sync.
    pub(super) fn note_query(&mut self) {
        self.ask().query();
        self.note_end();
    }

    fn note_end(&mut self) {
        self.unsynced = false;
        // What follows an unanswered batch is on its way together with it.
        self.round_trips += u64::from(self.behind.is_empty());
    }

    /// Whether the outbox ends with an incomplete batch.
    pub(super) fn is_unsynced(&self) -> bool {
        self.unsynced
    }

    /// Whether a simple query is unanswered.
    pub(super) fn is_query(&self) -> bool {
        self.unanswered.is_query()
    }

    /// Whether the server still owes a ReadyForQuery.
    pub(super) fn is_pending(&self) -> bool {
        self.unanswered.is_pending()
    }

    /// Whether nothing is in flight in either direction, and nothing waits to be sent.
    pub(super) fn is_at_rest(&self) -> bool {
        !self.is_pending() && !self.unsynced
    }

    pub(super) fn round_trips(&self) -> u64 {
        self.round_trips
    }

    /// Counts off a message that is neither a ReadyForQuery nor one that may arrive at any time.
    ///
    /// # Errors
    ///
    /// Nothing asked for the message. This breaks the connection.
    #[inline]
    pub(super) fn answered(&mut self, tag: u8) -> Result<()> {
        if self.unanswered.take(tag) {
            return Ok(());
        }
        Err(self.out_of_step(tag))
    }

    #[cold]
    fn out_of_step(&mut self, tag: u8) -> Error {
        let copies = matches!(tag, b'G' | b'H' | b'W');
        if copies && !self.unanswered.is_query() {
            // How many answers follow depends on how much of the batch the server has read.
            self.broken = true;
            return error::no_copy();
        }
        self.garbage("an answer that nothing asked for")
    }

    /// Counts off a ReadyForQuery.
    ///
    /// # Errors
    ///
    /// The answer is not complete. This breaks the connection.
    pub(super) fn ready(&mut self) -> Result<()> {
        match self.unanswered.take_ready() {
            true => {
                if let Some(next) = self.behind.pop_front() {
                    self.unanswered = next;
                }
                Ok(())
            }
            false => Err(self.garbage("a ReadyForQuery before the answer was complete")),
        }
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Marks the connection as broken: it is not used again.
    pub(super) fn set_broken(&mut self) {
        self.broken = true;
    }

    /// Returns the next message, if it has arrived completely.
    ///
    /// # Errors
    ///
    /// The bytes are no message. This breaks the connection.
    #[inline]
    pub(super) fn frame(&mut self) -> Result<Option<Frame>> {
        match self.inbox.frame() {
            Ok(frame) => Ok(frame),
            Err(NoMessage) => Err(self.garbage("a message with an impossible length")),
        }
    }

    /// Returns the tag of the next message, as soon as its first byte has arrived.
    #[inline]
    pub(super) fn next_tag(&self) -> Option<u8> {
        self.inbox.next_tag()
    }

    /// Returns the body of a message.
    #[inline]
    pub(super) fn body(&self, frame: Frame) -> &[u8] {
        self.inbox.body(frame)
    }

    /// Removes a message from the inbox.
    #[inline]
    pub(super) fn consume(&mut self, frame: Frame) {
        self.inbox.consume(frame);
    }

    /// Sends the outbox and reads, until bytes have arrived.
    ///
    /// Reads even while the server accepts no more bytes: it may wait for the client to read.
    ///
    /// # Errors
    ///
    /// The connection is lost.
    pub(super) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        if self.broken {
            return Poll::Ready(Err(error::broken()));
        }
        let is_all_sent = self.outbox.is_empty() && !self.unflushed;
        if !is_all_sent && self.send_error.is_none() {
            let began = (!self.socket.is_tls() && self.early_read.may_follow()).then(now);
            if let Poll::Ready(Err(wrong)) = self.poll_send(cx) {
                // The server may have sent the reason before it closed: read that first.
                self.send_error = Some(wrong);
            }
            if self.outbox.is_empty()
                && let Some(began) = began
                && self.has_answer_already(now() - began)
            {
                return Poll::Ready(Ok(()));
            }
        }
        match (self.poll_receive(cx), self.send_error.take()) {
            (Poll::Ready(Ok(())), wrong) => {
                self.send_error = wrong;
                Poll::Ready(Ok(()))
            }
            (Poll::Ready(Err(_)) | Poll::Pending, Some(wrong))
            | (Poll::Ready(Err(wrong)), None) => Poll::Ready(Err(self.lost(wrong))),
            (Poll::Pending, None) => Poll::Pending,
        }
    }

    /// Checks, after a slow send, whether the answer has already arrived.
    fn has_answer_already(&mut self, send_took: Duration) -> bool {
        if !self.early_read.is_worth_it(send_took) {
            return false;
        }
        // The caller's own read reports the end of the stream and errors.
        let read = self.socket.try_read(self.inbox.room()).unwrap_or(0);
        if read > 0 {
            self.inbox.note_read(read);
        }
        self.early_read.note(read > 0);
        read > 0
    }

    /// Sends the outbox. Keeps what arrives meanwhile.
    ///
    /// # Errors
    ///
    /// The connection is lost.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        if self.broken {
            return Poll::Ready(Err(error::broken()));
        }
        loop {
            match self.poll_send(cx) {
                Poll::Ready(Ok(())) => return Poll::Ready(Ok(())),
                Poll::Ready(Err(wrong)) => return Poll::Ready(Err(self.lost(wrong))),
                Poll::Pending => {}
            }
            if let Err(wrong) = ready!(self.poll_receive(cx)) {
                return Poll::Ready(Err(self.lost(wrong)));
            }
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent_of_outbox < self.outbox.len() {
            let rest = &self.outbox[self.sent_of_outbox..];
            let sent = ready!(Pin::new(&mut self.socket).poll_write(cx, rest))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent = true;
            self.unflushed = true;
            self.sent_of_outbox += sent;
        }
        self.sent_of_outbox = 0;
        self.left += self.outbox.len() as u64;
        self.wipe();
        match self.outbox.capacity() > MAX_IDLE_CAPACITY {
            true => self.outbox = Vec::new(),
            false => self.outbox.clear(),
        }
        if self.unflushed {
            ready!(Pin::new(&mut self.socket).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    fn wipe(&mut self) {
        if std::mem::take(&mut self.is_secret) {
            self.outbox.zeroize();
        }
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let room = self.inbox.room();
        let mut buffer = ReadBuf::new(room);
        ready!(Pin::new(&mut self.socket).poll_read(cx, &mut buffer))?;
        match buffer.filled().len() {
            0 => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            read => {
                self.inbox.note_read(read);
                Poll::Ready(Ok(()))
            }
        }
    }

    /// Whether the executor has reported data or a close.
    #[inline]
    pub(super) fn is_readable(&self) -> bool {
        self.socket.is_readable()
    }

    /// Reads what has arrived, without waiting.
    pub(super) fn read_available(&mut self) {
        if self.broken {
            return;
        }
        match self.socket.peek() {
            Peek::Quiet => {}
            Peek::Closed => self.broken = true,
            Peek::Data => match self.socket.try_read(self.inbox.room()) {
                Ok(0) => self.broken = true,
                Ok(read) => self.inbox.note_read(read),
                // With TLS, the bytes may contain no data.
                Err(wrong) if wrong.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => self.broken = true,
            },
        }
    }

    /// Shuts the socket down.
    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }

    /// Marks the connection as lost, and returns the error.
    fn lost(&mut self, wrong: io::Error) -> Error {
        self.broken = true;
        self.unless_sent(error::lost(wrong))
    }

    /// Marks the error as `never_sent` if no byte of the call was sent.
    pub(super) fn unless_sent(&self, error: Error) -> Error {
        match self.sent {
            true => error,
            false => error.never_sent(),
        }
    }

    /// Returns the error of a protocol violation, which breaks the connection.
    pub(super) fn garbage(&mut self, what: &str) -> Error {
        self.broken = true;
        let message = format!("the server violates PostgreSQL's protocol: {what}");
        Error::new(Kind::ConnectionLost, message)
    }
}

/// System calls are measured by the machine's clock, also under a manual clock of the pool.
#[allow(clippy::disallowed_methods, reason = "no deadline depends on it")]
fn now() -> Instant {
    Instant::now()
}

impl Drop for Wire {
    /// Wipes a password that was not sent completely.
    fn drop(&mut self) {
        self.wipe();
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the buffers, which hold the application's data.
        out.debug_struct("Wire")
            .field("unanswered", &self.unanswered)
            .field("unsent", &self.unsent())
            .field("broken", &self.broken)
            .finish_non_exhaustive()
    }
}
