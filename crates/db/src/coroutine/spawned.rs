//! Warns if a coroutine that was spawned inside a transaction uses the `Db` of that transaction. In debug builds only.

use std::panic::Location;
use std::sync::Arc;

use super::frame::Frame;
use crate::pooled::shared::DbId;

/// An open transaction around the code that spawned a coroutine.
#[derive(Clone, Copy)]
pub(super) struct SpawnedIn {
    db: DbId,
    begun_at: &'static Location<'static>,
    spawned_at: &'static Location<'static>,
}

impl Frame {
    /// Notes the transactions around the spawning code.
    pub(super) fn note_spawned_in(
        &self,
        around: &Arc<Frame>,
        spawned_at: &'static Location<'static>,
    ) {
        let mut transactions = Vec::new();
        for frame in around.outwards() {
            // Copied first: no other lock is taken under that of a frame.
            let bindings = frame.state().bindings.clone();
            for (db, bound) in bindings {
                let begun_at = bound.describe(around);
                let begun_at = begun_at.begun_at.filter(|_| begun_at.in_transaction);
                transactions.extend(begun_at.map(|begun_at| (db, begun_at)));
            }
            let lazy = frame.lazy.as_ref().filter(|lazy| !lazy.is_open());
            transactions.extend(lazy.map(|lazy| (lazy.db(), lazy.begun_at())));
        }
        let spawned = transactions.into_iter().map(|(db, begun_at)| SpawnedIn {
            db,
            begun_at,
            spawned_at,
        });
        self.state().spawned_in.extend(spawned);
    }

    /// Warns once if this coroutine was spawned in a transaction of this `Db`.
    pub(crate) fn warn_if_spawned_in(self: &Arc<Self>, db: DbId, site: &'static Location<'static>) {
        let mut state = self.root_of().state();
        let Some(found) = state.spawned_in.iter().position(|of| of.db == db) else {
            return;
        };
        let found = state.spawned_in[found];
        state.spawned_in.retain(|of| of.db != db);
        drop(state);
        let SpawnedIn {
            begun_at,
            spawned_at,
            ..
        } = found;
        tracing::warn!(
            %spawned_at, call = %site, %begun_at,
            "a task that was spawned inside a transaction uses the same Db: its calls run outside of the \
             transaction; await them in the transaction, spawn after the commit, or use db.outside() if \
             that is intended"
        );
    }
}
