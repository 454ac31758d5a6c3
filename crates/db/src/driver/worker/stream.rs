//! The two ends of a row stream: the thread fills batches through its [`Outlet`], the connection takes them from its
//! [`Stream`].
//!
//! At most [`READY`] batches wait between the two. One more is being filled, and one more waits to be sent: that bounds
//! the memory of a stream.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::sync::{mpsc, oneshot};

use super::{Answer, Session, Worker, lost};
use crate::driver::{Batch, BatchBuilder, Columns, Status};
use crate::{Error, Kind, Result};

/// A batch has at most this many rows, and is sent when it has this many bytes.
const BATCH_ROWS: usize = 256;
const BATCH_BYTES: usize = 64 * 1024;

/// This many batches wait for the connection; then the thread blocks.
const READY: usize = 2;

/// What is known of a stream when its first row was found, or its end.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) columns: Arc<Columns>,
    /// The status of the transaction around the stream.
    pub(crate) status: Status,
    /// The statement can be interrupted: that undoes nothing.
    pub(crate) read_only: bool,
}

/// The thread's end.
#[derive(Debug)]
pub(crate) struct Outlet {
    /// `None` when the stream has begun.
    started: Option<oneshot::Sender<Started>>,
    batches: mpsc::Sender<Batch>,
    /// `None` before the stream has begun, and if the connection has dropped it.
    rows: Option<BatchBuilder>,
}

impl Outlet {
    /// Reports what is known of the stream. Only the first call counts.
    pub(crate) fn start(&mut self, started: impl FnOnce() -> Started) {
        let Some(to_start) = self.started.take() else {
            return;
        };
        let started = started();
        let columns = Arc::clone(&started.columns);
        if to_start.send(started).is_ok() {
            self.rows = Some(BatchBuilder::new(columns));
        }
    }

    /// Adds a row by `add`; blocks while enough batches wait. Returns `false` if the connection wants no more.
    pub(crate) fn push(
        &mut self,
        add: impl FnOnce(&mut BatchBuilder) -> Result<()>,
    ) -> Result<bool> {
        let wanted = !self.batches.is_closed();
        let Some(rows) = self.rows.as_mut().filter(|_| wanted) else {
            return Ok(false);
        };
        add(rows)?;
        let is_full = rows.rows() >= BATCH_ROWS || rows.bytes() >= BATCH_BYTES;
        Ok(!is_full || self.flush())
    }

    /// Sends the rows so far. Returns `false` if the connection wants no more.
    pub(crate) fn flush(&mut self) -> bool {
        let Some(rows) = self.rows.take() else {
            return false;
        };
        if rows.rows() == 0 {
            self.rows = Some(rows);
            return true;
        }
        let batch = rows.finish();
        self.rows = Some(BatchBuilder::new(Arc::clone(batch.columns())));
        self.batches.blocking_send(batch).is_ok()
    }
}

/// The connection's end: the stream that it reads, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// Set from the beginning of a stream until it is read to its end.
    open: Option<Open>,
}

/// A stream that has begun: the thread has the session.
#[derive(Debug)]
struct Open {
    batches: mpsc::Receiver<Batch>,
    answer: Answer<()>,
    status: Status,
    read_only: bool,
}

impl Stream {
    /// Checks that no stream is open.
    ///
    /// # Errors
    ///
    /// A stream is open, so nothing else can run.
    pub(crate) fn check_none(&self) -> Result<()> {
        if self.open.is_some() {
            let message = "a row stream is open on this connection; end it first";
            return Err(Error::new(Kind::Busy, message));
        }
        Ok(())
    }

    /// Returns the status of the transaction around the stream; unknown without a stream.
    pub(crate) fn status(&self) -> Status {
        let open = self.open.as_ref();
        open.map_or(Status::Unknown, |open| open.status)
    }

    /// Begins a stream, by a program that sends its rows through the outlet.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the call is cancelled, and the session stays with the thread.
    pub(crate) async fn start<S: Session>(
        &mut self,
        worker: &mut Worker<S>,
        program: impl FnOnce(&mut S, Outlet) -> Result<()> + Send + 'static,
    ) -> Result<Arc<Columns>> {
        worker.settle().await?;
        let (to_start, started) = oneshot::channel();
        let (to_batches, batches) = mpsc::channel(READY);
        let outlet = Outlet {
            started: Some(to_start),
            batches: to_batches,
            rows: None,
        };
        let mut answer = worker.send(move |session| program(session, outlet))?;
        let recall = worker.recall();
        let Ok(started) = started.await else {
            // The program ended before the stream began: it has failed.
            let home = poll_fn(|cx| worker.poll_home(cx)).await;
            recall.call_off();
            home?;
            let answer = answer.try_recv().map_err(|_| lost())?;
            return Err(answer.err().unwrap_or_else(lost));
        };
        recall.call_off();
        let Started {
            columns,
            status,
            read_only,
        } = started;
        self.open = Some(Open {
            batches,
            answer,
            status,
            read_only,
        });
        Ok(columns)
    }

    /// Returns the next rows; `None` at the end, or without a stream.
    pub(crate) fn poll_batch<S: Session>(
        &mut self,
        worker: &mut Worker<S>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Batch>>> {
        let Some(open) = &mut self.open else {
            return Poll::Ready(Ok(None));
        };
        if let Some(batch) = ready!(open.batches.poll_recv(cx)) {
            return Poll::Ready(Ok(Some(batch)));
        }
        let home = ready!(worker.poll_home(cx));
        let answer = open.answer.try_recv();
        self.open = None;
        Poll::Ready(home.and_then(|()| match answer {
            Ok(ended) => ended.map(|()| None),
            Err(_) => Err(lost()),
        }))
    }

    /// Discards the rest of the stream, and waits until the thread has ended the statement.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it can be called again.
    ///
    /// # Errors
    ///
    /// A statement that may write failed before its end.
    pub(crate) async fn end<S: Session>(&mut self, worker: &mut Worker<S>) -> Result<()> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        // The thread stops at the next row, but that may take long to find. So the statement is interrupted, if that
        // undoes nothing.
        open.batches.close();
        while open.batches.try_recv().is_ok() {}
        let home = poll_fn(|cx| {
            if open.read_only {
                worker.cancel();
            }
            worker.poll_home(cx)
        });
        let home = home.await;
        let answer = match open.read_only {
            true => Ok(Ok(())),
            false => open.answer.try_recv(),
        };
        self.open = None;
        home.and_then(|()| answer.unwrap_or_else(|_| Err(lost())))
    }
}
