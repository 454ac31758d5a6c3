//! The request to cancel, on a connection of its own.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use postgres_protocol::message::frontend;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::net::hosts::Peer;
use super::net::socket::Socket;
use super::startup::CancelKey;

type Step<T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send>>;

/// With what the queries of a connection are cancelled, and the request that is under way.
pub(super) struct Canceller {
    peer: Peer,
    key: CancelKey,
    /// It belongs to the connection: the next call that settles continues it.
    request: Option<Cancel>,
    /// A request was sent, and may still hit what is sent next.
    may_hit_next: bool,
}

impl Canceller {
    pub(super) fn new(peer: Peer, key: CancelKey) -> Self {
        Canceller {
            peer,
            key,
            request: None,
            may_hit_next: false,
        }
    }

    /// The number of the server's process.
    pub(super) fn process(&self) -> i32 {
        self.key.process
    }

    /// A server that gave no key cannot be asked to cancel.
    pub(super) fn can_ask(&self) -> bool {
        self.key.process != 0
    }

    /// Asks the server to cancel, unless a request is under way.
    pub(super) fn ask(&mut self) {
        if self.request.is_none() {
            self.request = Some(Cancel::new(&self.peer, self.key));
        }
    }

    /// Goes on with the request that is under way, until there is none. If the query `is_over`, one that was not sent is
    /// given up.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, is_over: bool) -> Poll<()> {
        let Some(request) = &mut self.request else {
            return Poll::Ready(());
        };
        if !is_over || request.is_sent() {
            let polled = request.poll(cx);
            self.may_hit_next |= request.is_sent();
            if let Err(error) = ready!(polled) {
                tracing::debug!(%error, "a statement could not be cancelled");
            }
        }
        self.request = None;
        Poll::Ready(())
    }

    pub(super) fn may_hit_next(&self) -> bool {
        self.may_hit_next
    }

    /// The server has answered a Sync that was sent after the last request: no request can hit anything any more.
    pub(super) fn note_answer(&mut self) {
        self.may_hit_next = false;
    }
}

/// A request to cancel that is under way. Dropped before it is sent, nothing has happened.
struct Cancel {
    key: CancelKey,
    step: CancelStep,
}

enum CancelStep {
    Connecting(Step<Socket>),
    /// It may have reached the server.
    Sent(Step<()>),
}

impl Cancel {
    fn new(peer: &Peer, key: CancelKey) -> Self {
        Cancel {
            key,
            step: CancelStep::Connecting(Box::pin(peer.open())),
        }
    }

    /// The server may have seen it.
    fn is_sent(&self) -> bool {
        matches!(self.step, CancelStep::Sent(_))
    }

    /// Goes on until the server has done what it was asked: then it closes that connection.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match &mut self.step {
                CancelStep::Connecting(connecting) => {
                    let socket = ready!(connecting.as_mut().poll(cx))?;
                    self.step = CancelStep::Sent(Box::pin(send(socket, self.key)));
                }
                CancelStep::Sent(sending) => return sending.as_mut().poll(cx),
            }
        }
    }
}

async fn send(mut socket: Socket, key: CancelKey) -> io::Result<()> {
    let mut request = BytesMut::new();
    frontend::cancel_request(key.process, key.secret, &mut request);
    socket.write_all(&request).await?;
    socket.flush().await?;
    // Nothing comes but the end.
    let mut nothing = [0; 16];
    while socket.read(&mut nothing).await? > 0 {}
    Ok(())
}
