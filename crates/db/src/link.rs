//! One connection as the pool keeps it: the driver's, and what the layer knows about it.

use std::future::Future;
use std::panic::Location;

use cenote_pool::Verdict;

use crate::Result;
use crate::connections::Connections;
use crate::driver::{Connection, Request, Reset, Status};
use crate::op::{self, Run};
use crate::persistent::{Kept, Parked};
use crate::writers::Writer;

/// A connection of the pool: what [`Db::pool`](crate::Db::pool) pools, and what
/// [`Builder::on_connect`](crate::Builder::on_connect) is shown.
#[derive(Debug)]
pub struct Link {
    connection: Box<dyn Connection>,
    /// A call that has not been answered, and where it was made.
    in_flight: Option<&'static Location<'static>>,
    /// The next call changes nothing that matters, answered or not.
    harmless: bool,
    /// A stream has not been read to its end.
    streaming: bool,
    /// The session is not what it was after connecting.
    touched: bool,
    /// Warnings of the last call.
    warnings: u64,
    /// Up to which one the defaults have reached it.
    defaults: u64,
    /// How often all connections had been replaced when it was opened.
    generation: u64,
    /// When it was last used, by the coarse clock.
    used: u64,
    /// Its entry among the persistent ones, if it is one.
    kept: Option<Kept>,
    /// The place among those who write, if it was taken for that.
    writer: Option<Writer>,
}

impl Link {
    pub(crate) fn new(connection: Box<dyn Connection>, generation: u64, now: u64) -> Self {
        Link {
            connection,
            in_flight: None,
            harmless: false,
            streaming: false,
            touched: false,
            warnings: 0,
            defaults: 0,
            generation,
            used: now,
            kept: None,
            writer: None,
        }
    }

    /// Runs SQL without parameters, one statement or a script: for
    /// [`Builder::on_connect`](crate::Builder::on_connect).
    ///
    /// # Cancel safety
    ///
    /// Dropped, the connection is closed, or settled before its next use.
    ///
    /// # Errors
    ///
    /// What the database says.
    #[track_caller]
    pub fn exec<'l>(&'l mut self, sql: &'l str) -> impl Future<Output = Result<()>> + Send + 'l {
        let site = Location::caller();
        let mut request = Request::new(sql, &[]);
        request.script = true;
        request.cache = false;
        request.rows = false;
        async move { op::fly_unlimited(self, &Run(request), site).await.map(drop) }
    }

    /// The driver's own connection.
    pub fn driver(&mut self) -> &mut dyn Connection {
        &mut *self.connection
    }

    /// The driver's connection, for a call that is awaited to its end: see [`Flight`].
    pub(crate) fn depart(&mut self, site: &'static Location<'static>) -> Flight<'_> {
        self.in_flight = Some(site);
        Flight { link: self }
    }

    #[inline]
    pub(crate) fn status(&self) -> Status {
        match self.in_flight {
            Some(_) => Status::Unknown,
            None => self.connection.status(),
        }
    }

    #[inline]
    pub(crate) fn is_broken(&self) -> bool {
        self.connection.is_broken()
    }

    /// The call that was dropped before it was answered, if it may have changed something.
    pub(crate) fn dropped_call(&self) -> Option<&'static Location<'static>> {
        self.in_flight.filter(|_| !self.harmless)
    }

    /// The next call changes nothing that matters, answered or not.
    pub(crate) fn harmless(&mut self) {
        self.harmless = true;
    }

    /// Something is left of an earlier call that has to be settled before the next.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.in_flight.is_some() || self.streaming
    }

    pub(crate) fn touch(&mut self) {
        self.touched = true;
        self.connection.expect_session_change();
    }

    pub(crate) fn is_touched(&self) -> bool {
        self.touched
    }

    pub(crate) fn set_streaming(&mut self, streaming: bool) {
        self.streaming = streaming;
    }

    /// Notes what the last call gave besides its answer.
    #[inline]
    pub(crate) fn note_answer(&mut self) {
        if self.connection.session_changed() {
            self.touch();
        }
        self.warnings = self.connection.warnings();
    }

    pub(crate) fn warnings(&self) -> u64 {
        self.warnings
    }

    pub(crate) fn defaults(&self) -> u64 {
        self.defaults
    }

    pub(crate) fn set_defaults(&mut self, reached: u64) {
        self.defaults = reached;
    }

    /// It was taken to write with; None when it comes back.
    pub(crate) fn set_writer(&mut self, writer: Option<Writer>) {
        self.writer = writer;
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    pub(crate) fn note_use(&mut self, now: u64) {
        self.used = now;
    }

    /// Ends what an earlier call left behind.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it is still unsettled.
    pub(crate) async fn settle(&mut self) -> Result<()> {
        if self.in_flight.is_some() {
            self.connection.settle().await?;
            self.in_flight = None;
            self.harmless = false;
            // Settling ends a stream as well.
            self.streaming = false;
            self.note_answer();
        }
        if self.streaming {
            self.harmless = true;
            self.in_flight = Some(Location::caller());
            self.connection.end_stream().await?;
            self.in_flight = None;
            self.harmless = false;
            self.streaming = false;
            self.note_answer();
        }
        Ok(())
    }

    /// Nothing is left of an earlier call.
    #[inline]
    pub(crate) fn is_clean(&self) -> bool {
        !self.is_unsettled() && !self.touched && self.status() == Status::Idle
    }

    /// What is to be done with it when it comes back to the pool.
    pub(crate) fn verdict(&self, reset_always: bool) -> Verdict {
        if self.is_broken() {
            return Verdict::Discard;
        }
        if self.is_clean() && !reset_always {
            Verdict::Keep
        } else {
            Verdict::Later
        }
    }

    /// Makes it as good as a new one of the same handle, or says that it cannot be.
    ///
    /// # Cancel safety
    ///
    /// Dropped, its state is unknown: the pool destroys it.
    pub(crate) async fn clean(&mut self, connections: &Connections) -> Result<bool> {
        if connections.resets_always() {
            self.touched = true;
        }
        let touched = self.touched;
        let clean = self.make_new(connections).await?;
        if clean && touched {
            connections.set_up(self).await?;
        }
        Ok(clean)
    }

    /// Makes it as good as one that has just been opened, or says that it cannot be: rolls
    /// back, and resets the session if it was touched.
    ///
    /// # Cancel safety
    ///
    /// Dropped, its state is unknown.
    pub(crate) async fn make_new(&mut self, connections: &Connections) -> Result<bool> {
        self.settle().await?;
        if self.connection.status() != Status::Idle {
            self.connection.rollback().await?;
        }
        if self.connection.is_broken() || self.connection.status() != Status::Idle {
            return Ok(false);
        }
        if !self.touched {
            return Ok(true);
        }
        if self.connection.reset().await? == Reset::Replace {
            // The new one first: a database that lives only as long as its last
            // connection stays.
            let fresh = connections.open().await?;
            let gone = std::mem::replace(&mut self.connection, fresh);
            if let Err(error) = gone.close().await {
                tracing::debug!(%error, "closing a replaced connection failed");
            }
        }
        self.touched = false;
        Ok(true)
    }

    /// It is persistent.
    pub(crate) fn keep(&mut self, kept: Kept) {
        self.kept = Some(kept);
    }

    /// Leaves it, as good as new, to the next persistent handle.
    pub(crate) fn park(self, set_up: bool) {
        if let Some(kept) = self.kept {
            let connection = self.connection;
            kept.park(Parked { connection, set_up });
        }
    }

    pub(crate) fn into_connection(self) -> Box<dyn Connection> {
        self.connection
    }
}

/// A call that is under way. Unless it lands, because its future was dropped, the
/// connection has to be settled before it is used again.
pub(crate) struct Flight<'l> {
    link: &'l mut Link,
}

impl Flight<'_> {
    pub(crate) fn connection(&mut self) -> &mut dyn Connection {
        &mut *self.link.connection
    }

    /// The call was answered.
    pub(crate) fn land(self) {
        self.link.in_flight = None;
        self.link.harmless = false;
    }
}
