//! The two ends of a row stream: the thread fills batches, the connection takes them.
//!
//! At most [`READY`] batches wait between the two; with one more in the making and one more
//! ready to be sent, that bounds what a stream keeps in memory.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::Result;
use crate::driver::{Batch, BatchBuilder, Columns, Status};

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

/// The connection's end, before the stream has begun.
#[derive(Debug)]
pub(crate) struct Inlet {
    pub(crate) started: oneshot::Receiver<Started>,
    pub(crate) batches: mpsc::Receiver<Batch>,
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

pub(crate) fn channel() -> (Outlet, Inlet) {
    let (to_start, started) = oneshot::channel();
    let (to_batches, batches) = mpsc::channel(READY);
    let outlet = Outlet {
        started: Some(to_start),
        batches: to_batches,
        rows: None,
    };
    (outlet, Inlet { started, batches })
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
