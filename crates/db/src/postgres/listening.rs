//! A connection that receives notifications.
//!
//! It shares the startup with every other connection and has none of their statements and sessions. One task drives it:
//! [`poll_heard`](Listening::poll_heard) returns messages one by one, so that nothing is buffered beyond the inbox.

use std::fmt::Write;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::connection::{log_notice, quoted};
use super::error;
use super::net::hosts::Connected;
use super::protocol::frontend;
use super::protocol::heard::{Meaning, meaning};
use super::protocol::inbox::Frame;
use super::protocol::message::Report;
use super::session::Session;
use super::wire::Wire;
use crate::driver::{BoxFuture, Heard, Listening};
use crate::hosts::Place;
use crate::{Error, Kind, Result};

#[derive(Debug)]
pub(super) struct PostgresListening {
    wire: Wire,
    process: i32,
    /// The server's error since the last answer.
    report: Option<Report>,
    /// Cuts the connection when its host no longer fits, so that the listener moves.
    _place: Option<Arc<Place>>,
}

impl PostgresListening {
    /// Makes a new session listen.
    ///
    /// # Errors
    ///
    /// [`Kind::Unsupported`] if a pooler is in between. A pooler that lends the server's session to others between two
    /// transactions accepts LISTEN and drops every notification. The client cannot see in which mode a pooler
    /// works, so it refuses all.
    pub(super) async fn new(connected: Connected) -> Result<Self> {
        let (mut started, place) = (connected.session.started, connected.place);
        if let Some(misread) = Session::new(started.parameters.clone()).misread() {
            return Err(error::misread(misread));
        }
        let process = started.key.process;
        let backend = started.ask("SELECT pg_catalog.pg_backend_pid()").await?;
        if backend.and_then(|backend| backend.parse().ok()) != Some(process) {
            let message = "a pooler such as PgBouncer is between the program and the server, where \
                           LISTEN succeeds and notifications are lost: open a Db with the address \
                           of the server itself, and listen on that";
            return Err(Error::new(Kind::Unsupported, message));
        }
        Ok(PostgresListening {
            wire: started.wire,
            process,
            report: None,
            _place: place,
        })
    }

    /// Processes one message. Returns `None` if it is of no interest to the layer.
    fn take(&mut self, frame: Frame) -> Result<Option<Heard>> {
        let meaning = meaning(frame.tag, self.wire.body(frame));
        self.wire.consume(frame);
        match meaning {
            Meaning::Nothing => {}
            Meaning::Heard(heard) => return Ok(Some(heard)),
            Meaning::Notice(report) => log_notice(&report),
            Meaning::Error(report) if report.is_fatal() => {
                self.wire.set_broken();
                return Err(error::from_report(report));
            }
            Meaning::Error(report) => {
                self.wire.answered(frame.tag)?;
                self.report.get_or_insert(report);
            }
            Meaning::Ready => {
                self.wire.ready()?;
                let refused = self.report.take().map(error::from_report);
                return Ok(Some(Heard::Answer(refused.map_or(Ok(()), Err))));
            }
            Meaning::Answer => self.wire.answered(frame.tag)?,
            Meaning::Garbage(what) => return Err(self.wire.garbage(what)),
        }
        Ok(None)
    }

    async fn say_goodbye(mut self) -> Result<()> {
        if self.wire.is_broken() {
            return Ok(());
        }
        frontend::terminate(self.wire.outbox());
        poll_fn(|cx| self.wire.poll_flush(cx)).await?;
        // Fails if the server has closed its side first.
        let _ = poll_fn(|cx| self.wire.poll_shutdown(cx)).await;
        Ok(())
    }
}

impl Listening for PostgresListening {
    fn request(&mut self, listen: &[Arc<str>], unlisten: &[Arc<str>]) -> Result<()> {
        if listen.is_empty() && unlisten.is_empty() {
            self.wire.sync();
            return Ok(());
        }
        // A script is one transaction: all of it happens, or nothing.
        let mut sql = String::new();
        for (verb, channels) in [("UNLISTEN", unlisten), ("LISTEN", listen)] {
            for channel in channels {
                let _ = write!(sql, "{verb} {};", quoted(channel));
            }
        }
        frontend::query(self.wire.outbox(), &sql)?;
        self.wire.note_query();
        Ok(())
    }

    fn poll_heard(&mut self, cx: &mut Context<'_>) -> Poll<Result<Heard>> {
        loop {
            while let Some(frame) = self.wire.frame()? {
                if let Some(heard) = self.take(frame)? {
                    return Poll::Ready(Ok(heard));
                }
            }
            ready!(self.wire.poll_fill(cx))?;
        }
    }

    fn process_id(&self) -> Option<i32> {
        Some(self.process)
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(self.say_goodbye())
    }
}
