//! The two ends of a row stream: the thread fills batches through its [`Outlet`], the connection takes
//! them from its [`Stream`].
//!
//! At most [`READY`] batches wait between the two; with one more in the making and one more
//! ready to be sent, that bounds what a stream keeps in memory.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::sync::{mpsc, oneshot};

use super::{Answer, Session, Worker, lost};
use crate::driver::{Batch, BatchBuilder, Columns, Status};
use crate::{Error, Kind, Result};

/// A batch has at most so many rows, and is sent when it has so many bytes.
const BATCH_ROWS: usize = 256;
const BATCH_BYTES: usize = 64 * 1024;

/// So many batches wait to be taken; then the thread does.
const READY: usize = 2;

/// What is known of a stream when it has begun: its first row was found, or that it
/// has none.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) columns: Arc<Columns>,
    /// The transaction that it runs in.
    pub(crate) status: Status,
    /// It can be interrupted: there is nothing that this would undo.
    pub(crate) read_only: bool,
}

/// The thread's end.
#[derive(Debug)]
pub(crate) struct Outlet {
    /// None once it has begun.
    started: Option<oneshot::Sender<Started>>,
    batches: mpsc::Sender<Batch>,
    /// None before it has begun, and if nobody wanted that.
    rows: Option<BatchBuilder>,
}

impl Outlet {
    /// The statement has been run: this is known of it. Only the first time.
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

    /// Takes a row, which is added to the others by this; waits if there are enough of them. `false`
    /// if nobody wants more.
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

    /// Sends what there is. `false` if nobody wants it.
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
    /// None unless a stream has begun and has not been read to its end.
    open: Option<Open>,
}

/// A stream that has begun: the session is out.
#[derive(Debug)]
struct Open {
    batches: mpsc::Receiver<Batch>,
    answer: Answer<()>,
    status: Status,
    read_only: bool,
}

impl Stream {
    /// # Errors
    ///
    /// There is one, so nothing else can run.
    pub(crate) fn check_none(&self) -> Result<()> {
        if self.open.is_some() {
            let message = "a row stream is open on this connection; end it first";
            return Err(Error::new(Kind::Busy, message));
        }
        Ok(())
    }

    /// The transaction that it runs in; unknown if there is none.
    pub(crate) fn status(&self) -> Status {
        let open = self.open.as_ref();
        open.map_or(Status::Unknown, |open| open.status)
    }

    /// Begins one, by a program that sends its rows through the outlet.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the session stays out, with its call cancelled.
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
            // It ended before it began, so there is an error to tell.
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

    /// The next rows; none at the end, or if there is no stream.
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

    /// Throws away what is left of it, and waits until the thread is done with it.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it can be called again.
    ///
    /// # Errors
    ///
    /// Of a statement that may write, if it could not be brought to its end.
    pub(crate) async fn end<S: Session>(&mut self, worker: &mut Worker<S>) -> Result<()> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        // The thread stops at the next row that nobody wants. How long it takes to find one nobody
        // knows: so it is stopped before, if that undoes nothing.
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
