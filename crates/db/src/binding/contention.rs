//! Detects self-deadlocks: all connections of a pool are held by transactions whose own code waits for another
//! connection.

use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::coroutine::Frame;
use crate::{Error, Kind};

#[derive(Default)]
pub(crate) struct Contention {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    holders: Vec<Entry>,
    waiters: Vec<Entry>,
}

struct Entry {
    key: u64,
    frame: Arc<Frame>,
    site: &'static Location<'static>,
}

impl Entry {
    fn new(frame: &Arc<Frame>, site: &'static Location<'static>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Entry {
            // Relaxed: the number only has to be unique.
            key: NEXT.fetch_add(1, Ordering::Relaxed),
            frame: Arc::clone(frame),
            site,
        }
    }
}

impl Contention {
    fn known(&self) -> MutexGuard<'_, Known> {
        // Nothing that can panic runs under this lock.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the transaction of a closure, which has this frame for itself, holds a connection. (A guard shares its
    /// frame with other code, so it is unknown which code is inside the transaction.)
    pub(crate) fn hold(
        self: &Arc<Self>,
        frame: &Arc<Frame>,
        site: &'static Location<'static>,
    ) -> Holding {
        let entry = Entry::new(frame, site);
        let key = entry.key;
        self.known().holders.push(entry);
        Holding {
            contention: Arc::clone(self),
            key,
        }
    }

    /// Notes that code in this frame waits for a connection. `None` if no transaction around it holds one: then the
    /// wait blocks no other task.
    pub(crate) fn wait(
        self: &Arc<Self>,
        frame: &Arc<Frame>,
        site: &'static Location<'static>,
    ) -> Option<WaitingInside> {
        let mut known = self.known();
        let mut holders = known.holders.iter();
        if !holders.any(|holder| frame.is_inside(&holder.frame)) {
            return None;
        }
        let entry = Entry::new(frame, site);
        let key = entry.key;
        known.waiters.push(entry);
        Some(WaitingInside {
            contention: Arc::clone(self),
            key,
        })
    }

    /// Returns an error if all of this many connections are held by transactions with a waiter inside. The error names
    /// them.
    pub(crate) fn deadlock(&self, places: usize) -> Option<Error> {
        let known = self.known();
        let stuck = known.holders.iter().filter_map(|holder| {
            let mut waiters = known.waiters.iter();
            let inside = waiters.find(|waiter| waiter.frame.is_inside(&holder.frame))?;
            Some((holder.site, inside.site))
        });
        let stuck: Vec<_> = stuck.collect();
        if stuck.len() < places {
            return None;
        }
        let message = format!(
            "self-deadlock: all {places} connections are held by transactions that wait for one \
             more inside themselves; run the inner call in the transaction, give the pool more \
             connections, or end the transaction first"
        );
        let mut error = Error::new(Kind::SelfDeadlock, message);
        for (holds, waits) in stuck {
            error = error.at("held at", holds).at("waited for at", waits);
        }
        Some(error)
    }
}

/// A connection that a transaction holds.
pub(crate) struct Holding {
    contention: Arc<Contention>,
    key: u64,
}

impl Drop for Holding {
    fn drop(&mut self) {
        let gone = take(&mut self.contention.known().holders, self.key);
        // After the lock.
        drop(gone);
    }
}

/// A waiter inside a transaction.
pub(crate) struct WaitingInside {
    contention: Arc<Contention>,
    key: u64,
}

impl Drop for WaitingInside {
    fn drop(&mut self) {
        let gone = take(&mut self.contention.known().waiters, self.key);
        // After the lock.
        drop(gone);
    }
}

fn take(entries: &mut Vec<Entry>, key: u64) -> Option<Entry> {
    let at = entries.iter().position(|entry| entry.key == key)?;
    Some(entries.swap_remove(at))
}
