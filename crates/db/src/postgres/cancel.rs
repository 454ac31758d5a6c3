//! Cancel requests, which travel on a connection of their own.

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

/// Cancels the queries of one connection.
pub(super) struct Canceller {
    peer: Peer,
    key: CancelKey,
    /// The request under way. If its caller is dropped, the next call that settles continues it.
    request: Option<Cancel>,
    /// A request was sent that may still hit the next statement.
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

    /// Returns the process id of the server's backend.
    pub(super) fn process(&self) -> i32 {
        self.key.process
    }

    /// Whether the server sent a key, without which it cancels nothing.
    pub(super) fn can_ask(&self) -> bool {
        self.key.process != 0
    }

    /// Begins a cancel request, unless one is under way.
    pub(super) fn ask(&mut self) {
        if self.request.is_none() {
            self.request = Some(Cancel::new(&self.peer, self.key));
        }
    }

    /// Drives the request under way to its end. If the query `is_over`, abandons a request that was not sent.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, is_over: bool) -> Poll<()> {
        let Some(request) = &mut self.request else {
            return Poll::Ready(());
        };
        if !is_over || request.is_sent() {
            let polled = request.poll(cx);
            self.may_hit_next |= request.is_sent();
            if let Err(error) = ready!(polled) {
                tracing::debug!(%error, "cannot cancel a statement");
            }
        }
        self.request = None;
        Poll::Ready(())
    }

    pub(super) fn may_hit_next(&self) -> bool {
        self.may_hit_next
    }

    /// Notes that the server answered a Sync that was sent after the last request: no request can hit a statement any more.
    pub(super) fn note_answer(&mut self) {
        self.may_hit_next = false;
    }
}

/// A cancel request under way. If dropped before it is sent, the server never sees it.
struct Cancel {
    key: CancelKey,
    step: CancelStep,
}

enum CancelStep {
    Connecting(Step<Socket>),
    /// The request may have reached the server.
    Sent(Step<()>),
}

impl Cancel {
    fn new(peer: &Peer, key: CancelKey) -> Self {
        Cancel {
            key,
            step: CancelStep::Connecting(Box::pin(peer.open())),
        }
    }

    /// Whether the server may have seen the request.
    fn is_sent(&self) -> bool {
        matches!(self.step, CancelStep::Sent(_))
    }

    /// Drives the request until the server has handled it: then the server closes the connection.
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
    // The server sends nothing before it closes the connection.
    let mut nothing = [0; 16];
    while socket.read(&mut nothing).await? > 0 {}
    Ok(())
}
