//! Which slot of which pool this thread used last.

use std::cell::Cell;

use crate::breaker::PoolId;
use crate::sync::thread_local;

/// A thread remembers this many pools; more than that share entries.
const POOLS: usize = 4;

#[cfg(not(loom))]
thread_local! {
    static LAST: [Cell<(u64, usize)>; POOLS] = const { [const { Cell::new((0, 0)) }; POOLS] };
}
#[cfg(loom)]
thread_local! {
    static LAST: [Cell<(u64, usize)>; POOLS] = [const { Cell::new((0, 0)) }; POOLS];
}

/// The slot this thread used last. Only a guess: it may be anybody's now.
#[inline]
pub(crate) fn last_slot(pool: PoolId) -> Option<usize> {
    let (owner, index) = LAST.try_with(|last| entry(last, pool).get()).ok()?;
    (owner == pool.0).then_some(index)
}

#[inline]
pub(crate) fn used(pool: PoolId, index: usize) {
    // A thread that is ending has no memory any more, and needs none.
    let _ = LAST.try_with(|last| entry(last, pool).set((pool.0, index)));
}

#[inline]
fn entry(last: &[Cell<(u64, usize)>; POOLS], pool: PoolId) -> &Cell<(u64, usize)> {
    // The remainder is below POOLS, so the cast loses nothing.
    #[allow(clippy::cast_possible_truncation, reason = "a remainder below POOLS")]
    &last[(pool.0 % POOLS as u64) as usize]
}
