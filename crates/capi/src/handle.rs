//! Handles: numbers that name a pool, with a generation that detects stale ones.
//!
//! ```text
//! cenote_pool* = generation << 20 | index << 4
//! ```
//!
//! The library never dereferences a handle: the index selects a shell in a table that only
//! grows, and the generation must match the shell's. So the library detects a destroyed pool,
//! NULL and a stray address without a lock.
//!
//! Each call keeps its pool alive. A callback inside the call, or another thread, may
//! therefore release the last reference: that closes the pool at once, and the last running
//! call drops it.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::body::Body;
use crate::error::{CENOTE_ERR_ARGUMENT, CENOTE_ERR_CLOSED, CENOTE_ERR_HANDLE, Fault};

/// A pool. The value is a number that names the pool, not an address: do not dereference it.
pub struct cenote_pool {
    _nothing: [u8; 0],
}

impl std::fmt::Debug for cenote_pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cenote_pool")
    }
}

const INDEX_BITS: u32 = 16;
const GENERATION_AT: u32 = INDEX_BITS + 4;
const CHUNK: usize = 16;
/// The most pools that may exist at once.
const MOST: usize = 1 << INDEX_BITS;

/// The entry of the table that a handle names.
struct Shell {
    /// Odd while the shell holds a pool.
    generation: AtomicUsize,
    /// The number of C's references. Without any the pool is closed; when no call is running
    /// either, the shell drops it ([`GONE`]), and it lives on until its last lease is released.
    /// The other bits are the generation, which detects a value read from an earlier pool.
    refs: AtomicU64,
    /// Running calls.
    calls: [Line; LINES],
    body: AtomicPtr<Body>,
}

/// The shell has no pool, or has dropped it.
const GONE: u64 = 1 << 32;
const LINES: usize = 8;

/// Counts the calls of some threads. On a cache line of its own, to avoid false sharing
/// between threads.
#[repr(align(128))]
struct Line(AtomicUsize);

thread_local! {
    /// The counter of this thread; none yet.
    static LINE: Cell<usize> = const { Cell::new(LINES) };
}

#[inline]
fn line() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let mut line = LINE.get();
    if line == LINES {
        // Relaxed: any counter will do.
        line = NEXT.fetch_add(1, Ordering::Relaxed) % LINES;
        LINE.set(line);
    }
    line
}

/// Returns the number of references.
fn count(refs: u64) -> u64 {
    refs & (GONE - 1)
}

impl Shell {
    fn new() -> Self {
        Shell {
            generation: AtomicUsize::new(0),
            refs: AtomicU64::new(GONE),
            calls: std::array::from_fn(|_| Line(AtomicUsize::new(0))),
            body: AtomicPtr::default(),
        }
    }

    /// Changes the number of references, unless it is 0.
    fn change(&self, change: impl Fn(u64) -> u64) -> Result<u64, Fault> {
        // SeqCst: see `open`.
        self.refs
            .fetch_update(Ordering::SeqCst, Ordering::Relaxed, |refs| {
                let changed = change(refs);
                // Stops below the highest number, so that the generation is never changed.
                (count(refs) > 0 && count(changed) < GONE - 1).then_some(changed)
            })
            .map_err(|_| ended())
    }
}

/// The table of shells. Chunks are allocated on demand and never freed.
static CHUNKS: [AtomicPtr<[Shell; CHUNK]>; MOST / CHUNK] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST / CHUNK];

/// The free shells.
static FREE: Mutex<Free> = Mutex::new(Free {
    shells: Vec::new(),
    used: 0,
});

pub(crate) struct Free {
    shells: Vec<usize>,
    /// Shells with a lower index exist.
    used: usize,
}

pub(crate) type FreeGuard = MutexGuard<'static, Free>;

pub(crate) fn lock_free() -> FreeGuard {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A handle, as a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Handle(usize);

impl Handle {
    /// Returns the handle in C's form.
    pub(crate) fn to_c(self) -> *mut cenote_pool {
        std::ptr::without_provenance_mut(self.0)
    }

    fn from_c(pool: *const cenote_pool) -> Self {
        Handle(pool.addr())
    }

    fn new(index: usize, generation: usize) -> Self {
        Handle(generation << GENERATION_AT | index << 4)
    }

    /// Returns the shell of this handle, if it exists; it may hold another pool.
    #[inline]
    fn shell(self) -> Option<&'static Shell> {
        let index = self.0 >> 4 & (MOST - 1);
        // Acquire pairs with the release in `reserve`: the chunk is complete.
        let chunk = CHUNKS[index / CHUNK].load(Ordering::Acquire);
        // SAFETY: a chunk in the table is never freed.
        let chunk = unsafe { chunk.as_ref() }?;
        Some(&chunk[index % CHUNK])
    }

    #[inline]
    fn is_of(self, shell: &Shell) -> bool {
        // Acquire pairs with the release in `live`: its body is written.
        let generation = shell.generation.load(Ordering::Acquire);
        // Compares all bits but the index, so that no address passes for a handle.
        generation & 1 == 1 && self.0 & !((MOST - 1) << 4) == generation << GENERATION_AT
    }
}

/// A shell reserved for a new pool. Dropping it unused frees the shell.
pub(crate) struct Reserved {
    index: usize,
    kept: bool,
}

/// Reserves a shell.
///
/// # Errors
///
/// The table is full.
pub(crate) fn reserve() -> Result<Reserved, Fault> {
    #[cfg(unix)]
    crate::fork::watch();
    let mut free = lock_free();
    let index = match free.shells.pop() {
        Some(index) => index,
        None if free.used == MOST => {
            let text = format!(
                "all {MOST} pools exist; check that the program releases the pools it creates"
            );
            return Err(Fault::new(CENOTE_ERR_ARGUMENT, text));
        }
        None => {
            let index = free.used;
            if index.is_multiple_of(CHUNK) {
                let chunk = Box::new(std::array::from_fn(|_| Shell::new()));
                CHUNKS[index / CHUNK].store(Box::into_raw(chunk), Ordering::Release);
            }
            free.used += 1;
            index
        }
    };
    Ok(Reserved { index, kept: false })
}

impl Reserved {
    /// Returns the handle that the pool will have.
    pub(crate) fn handle(&self) -> Handle {
        let shell = Handle::new(self.index, 0).shell();
        let last = shell.map_or(0, |shell| shell.generation.load(Ordering::Relaxed));
        // The next odd generation; on 32 bits it wraps, as the handle does.
        Handle::new(self.index, last.wrapping_add(1))
    }

    /// Stores the pool in the shell, with one reference. The body must call [`retire`] before it
    /// is dropped.
    pub(crate) fn live(mut self, body: *const Body) -> Handle {
        self.kept = true;
        let handle = self.handle();
        if let Some(shell) = handle.shell() {
            shell.body.store(body.cast_mut(), Ordering::Relaxed);
            // One reference. No other thread writes an empty shell. (The truncated generation
            // repeats after two billion pools in the same shell.)
            let generation = u64::try_from(handle.0 >> GENERATION_AT).unwrap_or(0);
            shell.refs.store(generation << 33 | 1, Ordering::SeqCst);
            // Release pairs with the acquire in `is_of`: a reader of the generation sees the rest.
            shell.generation.fetch_add(1, Ordering::Release);
        }
        handle
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if !self.kept {
            let mut free = lock_free();
            free.shells.push(self.index);
        }
    }
}

/// Frees the shell of a destroyed pool: its handle is stale from here on.
pub(crate) fn retire(handle: Handle) {
    let Some(shell) = handle.shell().filter(|shell| handle.is_of(shell)) else {
        return;
    };
    shell.generation.fetch_add(1, Ordering::Release);
    shell.body.store(std::ptr::null_mut(), Ordering::Relaxed);
    let mut free = lock_free();
    free.shells.push(handle.0 >> 4 & (MOST - 1));
}

/// A pool that a running call uses.
pub(crate) struct Using(Call);

impl Deref for Using {
    type Target = Body;

    #[inline]
    fn deref(&self) -> &Body {
        // SAFETY: there were references when the call was counted, so the body stays until the
        // call ends. Relaxed: ordered by the generation.
        unsafe { &*self.0.0.body.load(Ordering::Relaxed) }
    }
}

/// A counted call on a shell, whichever pool it holds.
struct Call(&'static Shell, usize);

impl Drop for Call {
    #[inline]
    fn drop(&mut self) {
        let Call(shell, line) = *self;
        // SeqCst: see `open`.
        shell.calls[line].0.fetch_sub(1, Ordering::SeqCst);
        let refs = shell.refs.load(Ordering::SeqCst);
        if count(refs) == 0 && refs & GONE == 0 {
            let_go(shell, refs);
        }
    }
}

/// Drops the pool if C has no references and no call is running.
#[cold]
fn let_go(shell: &Shell, refs: u64) {
    // The last running call also comes here.
    let busy = |line: &Line| line.0.load(Ordering::SeqCst) != 0;
    if shell.calls.iter().any(busy) {
        return;
    }
    // Several threads may get here, even after the shell holds another pool. The exchange lets
    // exactly one of them drop the pool that it read.
    let gone = shell
        .refs
        .compare_exchange(refs, refs | GONE, Ordering::SeqCst, Ordering::Relaxed);
    if gone.is_err() {
        return;
    }
    // SAFETY: the body stays until the pool is dropped, which happens only here.
    let body = unsafe { &*shell.body.load(Ordering::Relaxed) };
    // Keeps the body until the end of this function.
    let body = Arc::clone(&body.pool().manager().body);
    // SAFETY: there is neither a reference nor a call, and `open` rejects new calls; the
    // exchange makes this happen once.
    unsafe { body.let_go() };
}

/// Returns the pool of a handle for the duration of a call.
///
/// # Errors
///
/// The handle names no pool, or C has released its last reference.
#[inline]
pub(crate) fn open(pool: *const cenote_pool) -> Result<Using, Fault> {
    let shell = find_shell(pool)?;
    let line = line();
    // SeqCst, here and at the references: either this call sees that the last reference is
    // gone, or the thread that released it sees this call counted.
    shell.calls[line].0.fetch_add(1, Ordering::SeqCst);
    let call = Call(shell, line);
    if count(shell.refs.load(Ordering::SeqCst)) == 0 {
        return Err(ended());
    }
    // The shell may have got another pool before the call was counted.
    match Handle::from_c(pool).is_of(shell) {
        true => Ok(Using(call)),
        false => Err(unknown(pool)),
    }
}

/// Returns the body of a handle, even after the last reference is gone while leases remain.
///
/// # Safety
///
/// The caller has a reference or a lease of the pool while it uses the body.
///
/// # Errors
///
/// The handle names no pool.
#[inline]
pub(crate) unsafe fn find<'a>(pool: *const cenote_pool) -> Result<&'a Body, Fault> {
    // Relaxed: ordered by the generation, which was read before.
    let body = find_shell(pool)?.body.load(Ordering::Relaxed);
    // SAFETY: the generation is the handle's, so the body exists, and the caller
    // keeps it alive.
    unsafe { body.as_ref() }.ok_or_else(|| unknown(pool))
}

#[inline]
fn find_shell(pool: *const cenote_pool) -> Result<&'static Shell, Fault> {
    let handle = Handle::from_c(pool);
    let found = handle.shell().filter(|shell| handle.is_of(shell));
    found.ok_or_else(|| unknown(pool))
}

#[cold]
fn unknown(pool: *const cenote_pool) -> Fault {
    if pool.is_null() {
        return Fault::new(CENOTE_ERR_HANDLE, "the pool is NULL");
    }
    Fault::new(
        CENOTE_ERR_HANDLE,
        "the handle names no pool: the pool was destroyed, or cenote_pool_new never created it",
    )
}

#[cold]
fn ended() -> Fault {
    Fault::new(
        CENOTE_ERR_CLOSED,
        "the last reference of the pool was released; only cenote_release and cenote_discard still work",
    )
}

/// Adds a reference.
///
/// # Errors
///
/// As [`open`].
pub(crate) fn add_ref(pool: *const cenote_pool) -> Result<(), Fault> {
    let Using(call) = open(pool)?;
    call.0.change(|refs| refs + 1).map(drop)
}

/// Releases a reference; returns the pool if that was the last one.
///
/// # Errors
///
/// As [`open`].
pub(crate) fn give_up(pool: *const cenote_pool) -> Result<Option<Using>, Fault> {
    let using = open(pool)?;
    let before = using.0.0.change(|refs| refs - 1)?;
    Ok((count(before) == 1).then_some(using))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_that_no_pool_moved_into_is_used_again() {
        let first = reserve().unwrap();
        let (index, handle) = (first.index, first.handle());
        // SAFETY: the handle names no pool, so the caller uses no body.
        assert!(unsafe { find(handle.to_c()) }.is_err());
        drop(first);
        let second = reserve().unwrap();
        assert_eq!((second.index, second.handle()), (index, handle));
    }
}
