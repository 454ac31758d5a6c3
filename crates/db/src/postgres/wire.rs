//! Bytes to and from the server, and where one message ends.
//!
//! The task that calls drives it; there is no other. What is to be sent is put into `outbox` in
//! whole messages, without an await in between, and leaves it only by as much as the socket took:
//! a future that is dropped while it sends leaves the rest for whoever sends next. What comes is
//! read where it lies, in `inbox`.
//!
//! [`Unanswered`] counts what the server has yet to answer. Whatever comes while something is unanswered
//! belongs to the one call that it was counted for; what nothing asked for breaks the connection.

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

/// An outbox that has grown beyond this goes when it is empty.
const KEPT: usize = 256 * 1024;

/// The connection's bytes.
pub(super) struct Wire {
    socket: Socket,
    inbox: Inbox,
    outbox: Vec<u8>,
    /// So much of the outbox has been sent.
    sent_of_outbox: usize,
    /// There is a password in the outbox, or was since it was last wiped.
    is_secret: bool,
    /// What the server has yet to answer of what has been put into the outbox.
    unanswered: Unanswered,
    /// There are messages after the last Sync.
    unsynced: bool,
    broken: bool,
    /// Something was sent since the last call began.
    sent: bool,
    /// TLS may still keep some of what was sent to itself.
    unflushed: bool,
    /// Whether an early answer is looked for.
    early_read: EarlyRead,
    /// Nothing more can be sent; what has come is still to be read.
    send_error: Option<io::Error>,
    /// How many batches of messages were put together that the server answers at once.
    round_trips: u64,
}

/// A place in the outbox to go back to.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    len: usize,
    unsynced: bool,
    unanswered: Unanswered,
}

impl Wire {
    pub(super) fn new(socket: Socket) -> Self {
        Wire {
            socket,
            inbox: Inbox::new(),
            outbox: Vec::new(),
            sent_of_outbox: 0,
            is_secret: false,
            unanswered: Unanswered::default(),
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

    /// Where messages are put that are to be sent. What is put there is in need of a Sync.
    pub(super) fn outbox(&mut self) -> &mut Vec<u8> {
        self.unsynced = true;
        &mut self.outbox
    }

    /// Where messages are put that belong to a batch which has its Sync.
    pub(super) fn outbox_in_batch(&mut self) -> &mut Vec<u8> {
        &mut self.outbox
    }

    /// Puts a message with a password in it into the outbox, which is wiped when all is sent.
    pub(super) fn send_secret(&mut self, tag: u8, body: &[&[u8]]) {
        let len = 4 + body.iter().map(|part| part.len()).sum::<usize>();
        let len_sent = u32::try_from(len).expect("a password is shorter than four gigabytes");
        self.is_secret = true;
        let out = self.outbox();
        // Room is made first: a text that moves leaves a copy behind that nobody wipes.
        out.reserve(1 + len);
        out.push(tag);
        out.extend_from_slice(&len_sent.to_be_bytes());
        for part in body {
            out.extend_from_slice(part);
        }
    }

    /// Counts messages that were put into the outbox by the answers that they ask for.
    pub(super) fn ask(&mut self) -> &mut Unanswered {
        &mut self.unanswered
    }

    /// Where the outbox ends now, and what is unanswered.
    pub(super) fn mark(&self) -> Mark {
        Mark {
            len: self.outbox.len(),
            unsynced: self.unsynced,
            unanswered: self.unanswered,
        }
    }

    /// Takes back what was put into the outbox since then. Nothing was sent in between.
    pub(super) fn undo(&mut self, mark: Mark) {
        self.outbox.truncate(mark.len);
        self.unsynced = mark.unsynced;
        self.unanswered = mark.unanswered;
    }

    /// How much is waiting to be sent.
    pub(super) fn unsent(&self) -> usize {
        self.outbox.len() - self.sent_of_outbox
    }

    /// A call begins: whether anything of it was sent will be known.
    pub(super) fn begin_call(&mut self) {
        self.sent = false;
    }

    /// Ends a batch of messages: the server answers it with ReadyForQuery.
    pub(super) fn sync(&mut self) {
        frontend::sync(&mut self.outbox);
        self.note_sync();
    }

    /// What was put into the outbox ends a batch, as a Sync does.
    pub(super) fn note_sync(&mut self) {
        self.unanswered.sync();
        self.note_end();
    }

    /// A simple query was put into the outbox, which needs no Sync.
    pub(super) fn note_query(&mut self) {
        self.unanswered.query();
        self.note_end();
    }

    fn note_end(&mut self) {
        self.unsynced = false;
        self.round_trips += 1;
    }

    /// A batch of messages was left without its Sync.
    pub(super) fn is_unsynced(&self) -> bool {
        self.unsynced
    }

    /// What is unanswered is a simple query.
    pub(super) fn is_query(&self) -> bool {
        self.unanswered.is_query()
    }

    /// A ReadyForQuery is yet to come.
    pub(super) fn is_pending(&self) -> bool {
        self.unanswered.is_pending()
    }

    /// Nothing is on its way in either direction, and nothing has to be.
    pub(super) fn is_at_rest(&self) -> bool {
        !self.is_pending() && !self.unsynced
    }

    pub(super) fn round_trips(&self) -> u64 {
        self.round_trips
    }

    /// Counts off a message that is neither a ReadyForQuery nor one of those that may come at any
    /// time.
    ///
    /// # Errors
    ///
    /// Nothing asked for it. The connection is broken then.
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
            // How often the server would answer the Sync behind it depends on how far it has come.
            self.broken = true;
            return error::no_copy();
        }
        self.garbage("it answered what it was not asked")
    }

    /// Counts off a ReadyForQuery.
    ///
    /// # Errors
    ///
    /// It does not end the answer. The connection is broken then.
    pub(super) fn ready(&mut self) -> Result<()> {
        match self.unanswered.take_ready() {
            true => Ok(()),
            false => Err(self.garbage("it was ready without having answered")),
        }
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// It must not be used again.
    pub(super) fn set_broken(&mut self) {
        self.broken = true;
    }

    /// The next message, if all of it is there.
    ///
    /// # Errors
    ///
    /// It cannot be one. The connection is broken then.
    #[inline]
    pub(super) fn frame(&mut self) -> Result<Option<Frame>> {
        match self.inbox.frame() {
            Ok(frame) => Ok(frame),
            Err(NoMessage) => Err(self.garbage("a message has a length that cannot be")),
        }
    }

    /// The tag of the next message, as soon as its first byte is there.
    #[inline]
    pub(super) fn next_tag(&self) -> Option<u8> {
        self.inbox.next_tag()
    }

    /// The body of a message that is there.
    #[inline]
    pub(super) fn body(&self, frame: Frame) -> &[u8] {
        self.inbox.body(frame)
    }

    /// The message has been read.
    #[inline]
    pub(super) fn consume(&mut self, frame: Frame) {
        self.inbox.consume(frame);
    }

    /// Sends what there is to be sent and reads what has come, until something has.
    ///
    /// While the server does not take more it is still read from: it may be waiting for just that.
    ///
    /// # Errors
    ///
    /// The connection is gone.
    pub(super) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        if self.broken {
            return Poll::Ready(Err(error::broken()));
        }
        let is_all_sent = self.outbox.is_empty() && !self.unflushed;
        if !is_all_sent && self.send_error.is_none() {
            let began = (!self.socket.is_tls() && self.early_read.may_follow()).then(now);
            if let Poll::Ready(Err(wrong)) = self.poll_send(cx) {
                // What the server said before it went may tell why: that is read first.
                self.send_error = Some(wrong);
            }
            if self.outbox.is_empty()
                && let Some(began) = began
                && self.is_there_already(now() - began)
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
    fn is_there_already(&mut self, send_took: Duration) -> bool {
        if !self.early_read.is_worth_it(send_took) {
            return false;
        }
        // The end and errors are for the one who waits.
        let read = self.socket.try_read(self.inbox.room()).unwrap_or(0);
        if read > 0 {
            self.inbox.note_read(read);
        }
        self.early_read.note(read > 0);
        read > 0
    }

    /// Sends what there is to be sent. What comes meanwhile is kept.
    ///
    /// # Errors
    ///
    /// The connection is gone.
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
        self.wipe();
        match self.outbox.capacity() > KEPT {
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

    /// Whether the executor has reported that something came, or that the other side has gone.
    #[inline]
    pub(super) fn is_readable(&self) -> bool {
        self.socket.is_readable()
    }

    /// Checks without waiting whether data has arrived, and reads it.
    pub(super) fn look(&mut self) {
        if self.broken {
            return;
        }
        match self.socket.peek() {
            Peek::Quiet => {}
            Peek::Closed => self.broken = true,
            Peek::Data => match self.socket.try_read(self.inbox.room()) {
                Ok(0) => self.broken = true,
                Ok(read) => self.inbox.note_read(read),
                // Through TLS, what has come need not be anything for us.
                Err(wrong) if wrong.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => self.broken = true,
            },
        }
    }

    /// Says goodbye on the socket's side.
    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }

    /// The connection is gone, by this error.
    fn lost(&mut self, wrong: io::Error) -> Error {
        self.broken = true;
        self.unless_sent(error::lost(wrong))
    }

    /// With a note, if that is so, that the server cannot have seen anything of the call.
    pub(super) fn unless_sent(&self, error: Error) -> Error {
        match self.sent {
            true => error,
            false => error.never_sent(),
        }
    }

    /// The server says what it cannot mean.
    pub(super) fn garbage(&mut self, what: &str) -> Error {
        self.broken = true;
        let message = format!("the server does not keep to PostgreSQL's protocol: {what}");
        Error::new(Kind::ConnectionLost, message)
    }
}

/// How long a system call takes is measured by the machine's own time, whatever the pool's is.
#[allow(clippy::disallowed_methods, reason = "no deadline is reckoned by it")]
fn now() -> Instant {
    Instant::now()
}

impl Drop for Wire {
    /// A login may end before all of it was sent.
    fn drop(&mut self) {
        self.wipe();
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What is in the buffers is the application's own.
        out.debug_struct("Wire")
            .field("unanswered", &self.unanswered)
            .field("unsent", &self.unsent())
            .field("broken", &self.broken)
            .finish_non_exhaustive()
    }
}
