//! Checks that the file of a connection is still the one under its name.
//!
//! If the file of an open database is deleted or replaced, the open connections stay on the old file, and every new
//! connection opens the new one. One handle must not serve two databases: as soon as one connection finds another
//! file under the name, all older connections are retired.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::timing;
use crate::{Error, Kind, Result};

/// Identifies a database within the process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum DatabaseId {
    /// A file, by its device and inode, whatever its name is.
    #[cfg(unix)]
    File(u64, u64),
    /// A file, or a database in memory, by its name.
    Name(String),
}

impl DatabaseId {
    /// Returns the identity of the file at this path, or `None` if there is no file.
    pub(super) fn of_file(path: &str) -> Option<Self> {
        let file = std::fs::metadata(path).ok()?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            Some(DatabaseId::File(file.dev(), file.ino()))
        }
        #[cfg(not(unix))]
        {
            drop(file);
            Some(DatabaseId::Name(path.to_owned()))
        }
    }
}

/// A connection in constant use checks its file this often.
const CHECK_AFTER: Duration = Duration::from_secs(1);

/// The file that the connections of one handle have open.
#[derive(Debug, Default)]
pub(super) struct SharedFile {
    /// The path and the identity of the file. `None` before the first connection.
    known: Mutex<Option<(String, DatabaseId)>>,
    /// How often a connection found another file, or none. Release pairs with the acquire of `is_current`.
    replaced: AtomicU64,
}

impl SharedFile {
    fn known(&self) -> MutexGuard<'_, Option<(String, DatabaseId)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses to open a file that was deleted since the first connection: SQLite would create an empty database.
    ///
    /// # Errors
    ///
    /// [`Kind::Connect`] if the file is gone.
    pub(super) fn check_not_gone(&self) -> Result<()> {
        match &*self.known() {
            Some((path, _)) if DatabaseId::of_file(path).is_none() => {
                let message = "the file was deleted while this handle was open; put it back, or open a new handle";
                Err(Error::new(Kind::Connect, message))
            }
            _ => Ok(()),
        }
    }

    /// Notes that a connection has opened this file.
    pub(super) fn opened(self: &Arc<Self>, path: &str, id: DatabaseId) -> OpenFile {
        let mut known = self.known();
        if known.as_ref().is_some_and(|(_, other)| *other != id) {
            self.note_replaced(path);
        }
        *known = Some((path.to_owned(), id.clone()));
        OpenFile {
            generation: self.replaced.load(Ordering::Relaxed),
            shared: Arc::clone(self),
            path: path.to_owned(),
            id,
            checked: Cell::new(timing::now()),
        }
    }

    /// Retires all connections that are open. Under the lock of `known`.
    fn note_replaced(&self, path: &str) {
        self.replaced.fetch_add(1, Ordering::Release);
        tracing::warn!(
            path,
            "a SQLite file was deleted or replaced while it was open; its connections are retired"
        );
    }
}

/// The file that one connection has open.
#[derive(Debug)]
pub(super) struct OpenFile {
    shared: Arc<SharedFile>,
    path: String,
    id: DatabaseId,
    generation: u64,
    checked: Cell<Instant>,
}

impl OpenFile {
    /// Returns whether no connection has found another file under the name since this one was opened.
    #[inline]
    pub(super) fn is_current(&self) -> bool {
        self.shared.replaced.load(Ordering::Acquire) == self.generation
    }

    /// Checks which file is under the name.
    pub(super) fn check(&self) {
        self.checked.set(timing::now());
        if !self.is_current() || DatabaseId::of_file(&self.path).as_ref() == Some(&self.id) {
            return;
        }
        let known = self.shared.known();
        // Another connection may have noticed it first.
        if self.is_current() {
            self.shared.note_replaced(&self.path);
        }
        drop(known);
    }

    /// Checks the file if the last check was a while ago.
    pub(super) fn check_sometimes(&self, now: Instant) {
        if now.saturating_duration_since(self.checked.get()) >= CHECK_AFTER {
            self.check();
        }
    }
}
