//! Killing what a dropped call still runs on the server, by a second connection.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Error as ClientError, Opts, OptsBuilder};

use super::session::Running;
use super::wire::{Wire, caught};

/// The end of a connection whose query is still running, from outside.
///
/// It is over when the server is done with that connection, or has had its time.
pub(super) struct Kill {
    killing: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// The longest time that killing may take. Callers that wait for it have the layer's own limit.
const LIMIT: Duration = Duration::from_secs(10);

/// So long is waited before a server that has too many connections is tried again.
const AGAIN: Duration = Duration::from_millis(20);

/// There is no connection of that number any more.
const NO_SUCH_THREAD: u16 = 1094;

/// The server, or this user, has as many connections as there may be.
const TOO_MANY: [u16; 3] = [1040, 1203, 1226];

impl Kill {
    pub(super) fn new(options: &Opts, id: u32, running: &Running) -> Self {
        let options = OptsBuilder::from_opts(options.clone()).db_name(None::<String>);
        let running = running.clone();
        let killing = async move {
            let killed = caught(kill(options.into(), id, &running));
            match tokio::time::timeout(LIMIT, killed).await {
                Ok(Ok(())) => tracing::debug!(id, "what a dropped call ran was killed"),
                Ok(Err(error)) => {
                    tracing::warn!(id, %error, "what a dropped call runs cannot be killed");
                }
                Err(_) => tracing::warn!(id, "killing what a dropped call runs took too long"),
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
                let _ = tokio::time::timeout(AGAIN, std::future::pending::<()>()).await;
            }
            Err(wrong) => return Err(wrong),
        }
    };
    if !running.is_still(&Running::ask(&mut wire).await?) {
        // Somebody in between has led us elsewhere, where that number is another's; or it is another's since
        // the server was started again, and what it ran is gone.
        tracing::warn!(
            id,
            "another server answers, or it was restarted: nothing is killed there"
        );
        return Ok(());
    }
    match wire.query_drop(format!("KILL CONNECTION {id}")).await {
        Err(ClientError::Server(said)) if said.code == NO_SUCH_THREAD => return wire.part().await,
        killed => killed?,
    }
    // Only when it has gone has the server let go of its locks.
    let left = format!("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = {id}");
    while wire.query_first(&left).await? != Some(0_u64) {
        wire.query_drop("DO SLEEP(0.002)").await?;
    }
    wire.part().await
}
