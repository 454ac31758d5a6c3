//! Connections that outlive the handles they were opened for.
//!
//! When the last clone of a persistent handle goes, its connection is cleaned like any that comes
//! back, and parked here instead of being closed. The next handle that is opened with the same
//! driver, DSN, credentials and options takes it in place of connecting; if it is still being
//! cleaned, it waits for it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::config::DbConfig;
use crate::driver::Connection;
use crate::secret::Secret;

/// The persistent connections of this process.
static KNOWN: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

/// One was parked, or is gone.
static CHANGED: Notify = Notify::const_new();

struct Entry {
    serial: u64,
    key: Key,
    state: State,
}

enum State {
    /// A handle has it, or had: this says whether that handle is gone.
    InUse(Arc<AtomicBool>),
    /// It waits for its next handle.
    Parked(Parked),
}

/// A connection that waits for its next handle.
pub(crate) struct Parked {
    pub(crate) connection: Box<dyn Connection>,
    /// What `on_connect` did to it is still there.
    pub(crate) set_up: bool,
}

/// What two handles must have in common to have the same connection.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Key {
    driver: &'static str,
    dsn: Secret,
    user: Option<String>,
    password: Option<Secret>,
    options: Vec<(String, Secret)>,
}

impl Key {
    pub(crate) fn new(driver: &'static str, config: &DbConfig) -> Self {
        let options = config.options.iter();
        Key {
            driver,
            dsn: config.dsn.clone(),
            user: config.user.clone(),
            password: config.password.clone(),
            options: options
                .map(|(name, value)| (name.to_owned(), Secret::from(value)))
                .collect(),
        }
    }
}

fn known() -> MutexGuard<'static, Vec<Entry>> {
    // Nothing that can panic runs under this lock.
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A persistent connection in use. Dropping it makes it forgotten.
#[derive(Debug)]
pub(crate) struct Kept {
    serial: u64,
}

impl Kept {
    /// Makes a connection known that a handle has opened or taken.
    pub(crate) fn new(key: &Key, handle_gone: &Arc<AtomicBool>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // Relaxed: it only has to be unique.
        let serial = NEXT.fetch_add(1, Ordering::Relaxed);
        known().push(Entry {
            serial,
            key: key.clone(),
            state: State::InUse(Arc::clone(handle_gone)),
        });
        Kept { serial }
    }

    /// Parks the connection, which is as good as new.
    pub(crate) fn park(self, parked: Parked) {
        let mut known = known();
        if let Some(entry) = known.iter_mut().find(|entry| entry.serial == self.serial) {
            entry.state = State::Parked(parked);
        }
        drop(known);
        std::mem::forget(self);
        CHANGED.notify_waiters();
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let mut known = known();
        let found = known.iter().position(|entry| entry.serial == self.serial);
        let gone = found.map(|at| known.swap_remove(at));
        drop(known);
        drop(gone);
        CHANGED.notify_waiters();
    }
}

/// Takes a connection that was parked under this key; waits for one whose handle is gone
/// and which is still being cleaned.
///
/// # Cancel safety
///
/// Dropped, none is taken.
pub(crate) async fn take(key: &Key) -> Option<Parked> {
    loop {
        // Before the look, so that no change between the two is missed.
        let changed = CHANGED.notified();
        match look(key) {
            Looked::Parked(parked) => return Some(parked),
            Looked::Nothing => return None,
            Looked::Coming => changed.await,
        }
    }
}

enum Looked {
    Parked(Parked),
    Coming,
    Nothing,
}

fn look(key: &Key) -> Looked {
    let mut known = known();
    let parked = known
        .iter()
        .position(|entry| entry.key == *key && matches!(entry.state, State::Parked(_)));
    if let Some(at) = parked
        && let State::Parked(parked) = known.swap_remove(at).state
    {
        return Looked::Parked(parked);
    }
    // Acquire pairs with the release of the handle's drop.
    let coming = known.iter().any(|entry| match &entry.state {
        State::InUse(gone) => entry.key == *key && gone.load(Ordering::Acquire),
        State::Parked(_) => false,
    });
    match coming {
        true => Looked::Coming,
        false => Looked::Nothing,
    }
}
