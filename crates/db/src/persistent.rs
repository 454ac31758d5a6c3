//! Connections that outlive the handles they were opened for.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config::DbConfig;
use crate::handle::Handle;
use crate::secret::Secret;

/// The persistent handles of this process.
static KEPT: Mutex<Vec<(Persistent, Arc<Handle>)>> = Mutex::new(Vec::new());

/// What two handles must have in common to share a connection.
#[derive(PartialEq, Eq)]
pub(crate) struct Persistent {
    driver: &'static str,
    user: Option<String>,
    /// Compared, never shown.
    secrets: Vec<Option<Secret>>,
    options: Vec<(String, Secret)>,
}

impl Persistent {
    pub(crate) fn key(driver: &'static str, config: &DbConfig) -> Self {
        let options = config.options.iter();
        Persistent {
            driver,
            user: config.user.clone(),
            secrets: vec![Some(config.dsn.clone()), config.password.clone()],
            options: options
                .map(|(name, value)| (name.to_owned(), Secret::from(value)))
                .collect(),
        }
    }
}

fn kept() -> MutexGuard<'static, Vec<(Persistent, Arc<Handle>)>> {
    // Nothing that can panic runs under this lock.
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The handle that was kept under this key, if nobody has closed it.
pub(crate) fn find(key: &Persistent) -> Option<Arc<Handle>> {
    let mut kept = kept();
    let mut closed = Vec::new();
    while let Some(at) = kept.iter().position(|(_, of)| of.pool.status().closed) {
        closed.push(kept.swap_remove(at));
    }
    let found = kept.iter().find(|(of, _)| of == key);
    let found = found.map(|(_, handle)| Arc::clone(handle));
    drop(kept);
    // After the lock: a driver's code may run.
    drop(closed);
    found
}

/// Keeps a handle; gives back the one that another task kept meanwhile, if so.
pub(crate) fn keep(key: Persistent, handle: Arc<Handle>) -> Arc<Handle> {
    if let Some(faster) = find(&key) {
        return faster;
    }
    kept().push((key, Arc::clone(&handle)));
    handle
}
