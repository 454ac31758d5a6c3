//! The request to cancel, on a connection of its own.

use std::fmt;
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

/// A request to cancel that is under way. Dropped before it is sent, nothing has happened.
pub(super) struct Cancel {
    key: CancelKey,
    step: CancelStep,
}

enum CancelStep {
    Connecting(Step<Socket>),
    /// It may have reached the server.
    Sent(Step<()>),
}

impl Cancel {
    pub(super) fn new(peer: &Peer, key: CancelKey) -> Self {
        Cancel {
            key,
            step: CancelStep::Connecting(Box::pin(peer.open())),
        }
    }

    /// The server may have seen it.
    pub(super) fn is_sent(&self) -> bool {
        matches!(self.step, CancelStep::Sent(_))
    }

    /// Goes on until the server has done what it was asked: then it closes that connection.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
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

impl fmt::Debug for Cancel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Cancel")
            .field("sent", &self.is_sent())
            .finish_non_exhaustive()
    }
}
