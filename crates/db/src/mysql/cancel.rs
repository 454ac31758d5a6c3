//! Kills the query of a dropped call, through a second connection.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Error as ClientError, Opts, OptsBuilder};

use super::session::Running;
use super::wire::{Wire, caught};
use crate::driver::time_limit::within;

/// Kills a connection on the server.
///
/// Ready when the server has removed the connection's thread, or after a time limit.
pub(super) struct Kill {
    killing: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// The limit for a kill. Callers that wait for it have the layer's limit.
const LIMIT: Duration = Duration::from_secs(10);

/// The pause before the next attempt, if the server has too many connections.
const RETRY_AFTER: Duration = Duration::from_millis(20);

/// The error code for an unknown connection id.
const NO_SUCH_THREAD: u16 = 1094;

/// The error codes for too many connections, of the server or of this user.
const TOO_MANY: [u16; 3] = [1040, 1203, 1226];

impl Kill {
    pub(super) fn new(options: &Opts, id: u32, running: &Running) -> Self {
        let options = OptsBuilder::from_opts(options.clone()).db_name(None::<String>);
        let running = running.clone();
        let killing = async move {
            let killed = caught(kill(options.into(), id, &running));
            match within(Some(LIMIT), killed).await {
                Some(Ok(())) => tracing::debug!(id, "killed the query of a dropped call"),
                Some(Err(error)) => {
                    tracing::warn!(id, %error, "cannot kill the query of a dropped call");
                }
                None => tracing::warn!(id, "timed out killing the query of a dropped call"),
            }
        };
        Kill {
            killing: Box::pin(killing),
        }
    }
}

impl Future for Kill {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.killing.as_mut().poll(cx)
    }
}

async fn kill(options: Opts, id: u32, running: &Running) -> mysql_async::Result<()> {
    let mut wire = loop {
        match Wire::open(options.clone()).await {
            Ok(wire) => break wire,
            Err(ClientError::Server(said)) if TOO_MANY.contains(&said.code) => {
                let _: Option<()> = within(Some(RETRY_AFTER), std::future::pending()).await;
            }
            Err(wrong) => return Err(wrong),
        }
    };
    if !running.is_still(&Running::ask(&mut wire).await?) {
        // A load balancer has chosen another server, or the server was restarted: there the id belongs to
        // another connection.
        tracing::warn!(
            id,
            "cannot kill the query of a dropped call: another server answers, or it was restarted"
        );
        return Ok(());
    }
    match wire.query_drop(format!("KILL CONNECTION {id}")).await {
        Err(ClientError::Server(said)) if said.code == NO_SUCH_THREAD => {
            return wire.disconnect().await;
        }
        killed => killed?,
    }
    // The server releases the locks when it removes the thread.
    let left = format!("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = {id}");
    while wire.query_first(&left).await? != Some(0_u64) {
        wire.query_drop("DO SLEEP(0.002)").await?;
    }
    wire.disconnect().await
}
