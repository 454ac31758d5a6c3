//! Sends and receives lines, and counts the answers that are still to come, also those of dropped calls.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use cenote::driver::{DatabaseError, Status};
use cenote::{Error, Kind, Result};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

use crate::line;

/// A connection to the server.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    address: (String, u16),
    /// The session's id, and the key that a cancel request needs.
    id: String,
    key: String,
    /// Written, but not sent yet.
    outbox: Vec<u8>,
    /// Received, but not read yet; from `read` on.
    inbox: Vec<u8>,
    read: usize,
    /// How many requests were written, and how many of them were answered.
    asked: u64,
    answered: u64,
    pub(crate) status: Status,
    pub(crate) broken: bool,
}

/// A line of an answer.
pub(crate) enum Line {
    Columns(Vec<Option<String>>),
    Row(Vec<Option<String>>),
    /// The end of an answer: how many rows it changed.
    Done(u64),
}

impl Wire {
    /// Connects and reads the session's id and key.
    pub(crate) async fn connect(host: &str, port: u16) -> Result<Self> {
        let failed = |error: io::Error| {
            let message = format!("cannot connect to the notebook at {host}:{port}: {error}");
            Error::new(Kind::Connect, message).because(error)
        };
        let stream = TcpStream::connect((host, port)).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let mut wire = Wire {
            stream,
            address: (host.to_owned(), port),
            id: String::new(),
            key: String::new(),
            outbox: Vec::new(),
            inbox: Vec::new(),
            read: 0,
            asked: 0,
            answered: 0,
            status: Status::Idle,
            broken: false,
        };
        let hello = std::future::poll_fn(|cx| wire.poll_fields(cx)).await;
        let hello = hello.map_err(|error| Error::new(Kind::Connect, error.to_string()))?;
        match &hello[..] {
            [Some(hello), Some(id), Some(key)] if hello == "HELLO" => {
                (wire.id, wire.key) = (id.clone(), key.clone());
                Ok(wire)
            }
            _ => {
                let message = format!("what listens at {host}:{port} is no notebook");
                Err(Error::new(Kind::Connect, message))
            }
        }
    }

    /// Writes a request. It is sent when a call waits for an answer, in one packet with the requests before it.
    pub(crate) fn ask(&mut self, fields: &[Option<&str>]) {
        self.outbox
            .extend_from_slice(line::write(fields).as_bytes());
        self.asked += 1;
    }

    /// A BEGIN, COMMIT or ROLLBACK was written: the status is unknown until the answer.
    pub(crate) fn ask_control(&mut self, text: &str) {
        self.ask(&[Some("RUN"), Some(text)]);
        self.status = Status::Unknown;
    }

    /// Returns whether answers are still to come.
    pub(crate) fn is_busy(&self) -> bool {
        self.answered < self.asked
    }

    /// Returns the next line of the current answer. An error ends the answer, and is returned when the server has ended
    /// the request, so that the status is known.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost: unsent and unread bytes stay in their buffers.
    pub(crate) fn poll_line(&mut self, cx: &mut Context<'_>) -> Poll<Result<Line>> {
        let mut fields = ready!(self.poll_fields(cx))?;
        let is = |fields: &[Option<String>], what: &str| fields[0].as_deref() == Some(what);
        if is(&fields, "COLUMNS") {
            return Poll::Ready(Ok(Line::Columns(fields.split_off(1))));
        }
        if is(&fields, "ROW") {
            return Poll::Ready(Ok(Line::Row(fields.split_off(1))));
        }
        let field = |n: usize| fields.get(n).and_then(Option::as_deref).unwrap_or_default();
        self.status = match field(2) {
            "open" => Status::InTransaction,
            _ => Status::Idle,
        };
        self.answered += 1;
        Poll::Ready(match field(0) {
            "DONE" => Ok(Line::Done(field(1).parse().unwrap_or(0))),
            _ => {
                let said = DatabaseError::new(field(3)).with_sql_state(field(1));
                Err(Error::database(said))
            }
        })
    }

    /// Sends what is unsent and returns the next line that has arrived.
    fn poll_fields(&mut self, cx: &mut Context<'_>) -> Poll<Result<Vec<Option<String>>>> {
        let done = ready!(self.poll_text(cx)).map_err(|error| {
            self.broken = true;
            let message = format!("the connection to the notebook was lost: {error}");
            Error::new(Kind::ConnectionLost, message).because(error)
        });
        Poll::Ready(done.map(|text| line::read(&text)))
    }

    fn poll_text(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<String>> {
        while !self.outbox.is_empty() {
            let sent = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.outbox))?;
            // Removes only what was sent: if this is dropped here, the next call sends the rest.
            self.outbox.drain(..sent);
        }
        loop {
            let unread = &self.inbox[self.read..];
            if let Some(end) = unread.iter().position(|byte| *byte == b'\n') {
                let text = String::from_utf8(unread[..end].to_vec());
                self.read += end + 1;
                return Poll::Ready(text.map_err(io::Error::other));
            }
            self.inbox.drain(..self.read);
            self.read = 0;
            let mut room = [0; 4096];
            let mut come_in = ReadBuf::new(&mut room);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut come_in))?;
            if come_in.filled().is_empty() {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            self.inbox.extend_from_slice(come_in.filled());
        }
    }

    /// Cancels a dropped call and discards its answer.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it can be called again.
    pub(crate) async fn settle(&mut self) -> Result<()> {
        if !self.is_busy() {
            return Ok(());
        }
        // If the cancel is lost, this only waits longer: the layer has a deadline.
        let _ = self.cancel().await;
        while self.is_busy() {
            match std::future::poll_fn(|cx| self.poll_line(cx)).await {
                Err(error) if self.broken => return Err(error),
                // Discards an error of the dropped call.
                _ => {}
            }
        }
        Ok(())
    }

    /// Cancels all requests so far, by number, so that it never hits the next request.
    async fn cancel(&self) -> io::Result<()> {
        let (host, port) = &self.address;
        let mut other = TcpStream::connect((host.as_str(), *port)).await?;
        let number = self.asked.to_string();
        let cancel = [
            Some("CANCEL"),
            Some(&*self.id),
            Some(&*self.key),
            Some(&*number),
        ];
        other.write_all(line::write(&cancel).as_bytes()).await?;
        other.shutdown().await
    }
}
