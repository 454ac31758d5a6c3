//! The line between the two ends of a direction: what is put on it arrives later, in order.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;

use super::connection::CHUNK;

/// The most bytes that are on their way at once: the documentation of `Network::delay` names them.
const LENGTH: u32 = 1024 * 1024;

/// The most bytes of one read, for which there has to be room before it.
const READ: u32 = 16 * 1024;

const _: () = assert!(READ as usize == CHUNK);

/// Returns the two ends of a line.
pub(super) fn line() -> (NearEnd, FarEnd) {
    let (put, arriving) = mpsc::unbounded_channel();
    let near = NearEnd {
        put,
        room: Arc::new(Semaphore::new(LENGTH as usize)),
        last: None,
    };
    (near, FarEnd { arriving })
}

/// Where bytes enter.
pub(super) struct NearEnd {
    put: mpsc::UnboundedSender<Arriving>,
    room: Arc<Semaphore>,
    /// When the last one arrives.
    last: Option<Instant>,
}

/// Room for one read, until it has left the line.
pub(super) struct Room(OwnedSemaphorePermit);

/// What is on its way.
pub(super) struct Arriving {
    due: Option<Instant>,
    /// The bytes, none for the end of the stream; or the error of its loss.
    pub(super) bytes: io::Result<Vec<u8>>,
    _room: Room,
}

impl NearEnd {
    /// Waits for room: for one read if the line delays, otherwise for the whole line, so that nothing is read ahead.
    pub(super) async fn room(&self, is_delayed: bool) -> Room {
        let wanted = if is_delayed { READ } else { LENGTH };
        let room = Arc::clone(&self.room).acquire_many_owned(wanted).await;
        Room(room.expect("nobody closes the semaphore"))
    }

    /// Puts a read on the line. It arrives after `delay`, and not before what was put earlier.
    pub(super) fn put(&mut self, delay: Duration, room: Room, bytes: io::Result<Vec<u8>>) {
        if !delay.is_zero() {
            self.last = self.last.max(Some(Instant::now() + delay));
        }
        let arriving = Arriving {
            due: self.last,
            bytes,
            _room: room,
        };
        // Fails if the other end is gone, and the connection with it.
        let _ = self.put.send(arriving);
    }
}

impl Room {
    /// Gives up all room but that of this many bytes.
    pub(super) fn share(&mut self, bytes: usize) {
        let surplus = self.0.num_permits().saturating_sub(bytes);
        drop(self.0.split(surplus));
    }
}

/// Where bytes leave.
pub(super) struct FarEnd {
    arriving: mpsc::UnboundedReceiver<Arriving>,
}

impl FarEnd {
    /// Waits for the next read to arrive; `None` after the last.
    pub(super) async fn next(&mut self) -> Option<Arriving> {
        let arriving = self.arriving.recv().await?;
        if let Some(due) = arriving.due {
            tokio::time::sleep_until(due).await;
        }
        Some(arriving)
    }
}
