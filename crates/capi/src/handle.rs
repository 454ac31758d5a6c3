//! Handles: numbers that name a pool and know when they are out of date.
//!
//! ```text
//! cenote_pool* = generation << 20 | index << 4
//! ```
//!
//! It is never dereferenced: the index finds a shell in a table that only grows, and
//! the generation must be the shell's. So a pool that is gone, NULL and any address
//! are told from a living pool, without a lock.
//!
//! Each call holds on to the pool it uses, so that a callback inside of it, or another
//! thread, may give up the last reference meanwhile: that closes the pool at once, and
//! the last call that is under way lets go of it.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::body::Body;
use crate::error::{CENOTE_ERR_ARGUMENT, CENOTE_ERR_CLOSED, CENOTE_ERR_HANDLE, Fault};

/// A pool. What it points to is nobody's business: it is a number that names the pool.
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
/// So many pools may live at once.
const MOST: usize = 1 << INDEX_BITS;

/// What a handle names, in the end.
struct Shell {
    /// Odd while a pool lives here.
    generation: AtomicUsize,
    /// How many references C has. Without any the pool is closed; as soon as no call is
    /// under way either, it is let go of ([`GONE`]), and lives on until what is out has
    /// come back. The rest is the generation: what was read of another pool is seen.
    refs: AtomicU64,
    /// Calls under way.
    calls: [Line; LINES],
    body: AtomicPtr<Body>,
}

/// There is no pool here, or nobody uses it any more.
const GONE: u64 = 1 << 32;
const LINES: usize = 8;

/// Counts the calls of some threads, on a cache line of its own, because threads that have
/// different resources should not disturb each other.
#[repr(align(128))]
struct Line(AtomicUsize);

thread_local! {
    /// Which line counts the calls of this thread; none yet.
    static LINE: Cell<usize> = const { Cell::new(LINES) };
}

#[inline]
fn line() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let mut line = LINE.get();
    if line == LINES {
        // Relaxed: any of them will do.
        line = NEXT.fetch_add(1, Ordering::Relaxed) % LINES;
        LINE.set(line);
    }
    line
}

/// How many references there are.
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

    /// Changes the number of references, as long as there are any.
    fn change(&self, change: impl Fn(u64) -> u64) -> Result<u64, Fault> {
        // SeqCst: see `open`.
        self.refs
            .fetch_update(Ordering::SeqCst, Ordering::Relaxed, |refs| {
                let changed = change(refs);
                // The highest number is never reached, so that the rest is not touched.
                (count(refs) > 0 && count(changed) < GONE - 1).then_some(changed)
            })
            .map_err(|_| ended())
    }
}

/// The table: chunks are made when needed, and stay for ever.
static CHUNKS: [AtomicPtr<[Shell; CHUNK]>; MOST / CHUNK] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST / CHUNK];

/// Shells that are free.
static FREE: Mutex<Free> = Mutex::new(Free {
    shells: Vec::new(),
    used: 0,
});

pub(crate) struct Free {
    shells: Vec<usize>,
    /// Those with a lower index exist.
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
    /// The handle as C has it.
    pub(crate) fn to_c(self) -> *mut cenote_pool {
        std::ptr::without_provenance_mut(self.0)
    }

    fn from_c(pool: *const cenote_pool) -> Self {
        Handle(pool.addr())
    }

    fn new(index: usize, generation: usize) -> Self {
        Handle(generation << GENERATION_AT | index << 4)
    }

    /// The shell of this handle, if that exists; it may be another pool's.
    #[inline]
    fn shell(self) -> Option<&'static Shell> {
        let index = self.0 >> 4 & (MOST - 1);
        // Acquire pairs with the release in `reserve`: the chunk is there whole.
        let chunk = CHUNKS[index / CHUNK].load(Ordering::Acquire);
        // SAFETY: a chunk that was put there is never freed.
        let chunk = unsafe { chunk.as_ref() }?;
        Some(&chunk[index % CHUNK])
    }

    #[inline]
    fn is_of(self, shell: &Shell) -> bool {
        // Acquire pairs with the release in `live`: its body is there, too.
        let generation = shell.generation.load(Ordering::Acquire);
        // All bits but the index count, so that no address looks like a handle.
        generation & 1 == 1 && self.0 & !((MOST - 1) << 4) == generation << GENERATION_AT
    }
}

/// A shell that a pool is about to move into. Dropped without that, it is free again.
pub(crate) struct Reserved {
    index: usize,
    kept: bool,
}

/// Reserves a shell.
///
/// # Errors
///
/// There are too many pools.
pub(crate) fn reserve() -> Result<Reserved, Fault> {
    #[cfg(unix)]
    crate::fork::watch();
    let mut free = lock_free();
    let index = match free.shells.pop() {
        Some(index) => index,
        None if free.used == MOST => {
            let text = format!("there are {MOST} pools already: is one forgotten again and again?");
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
    /// The handle that the pool will have.
    pub(crate) fn handle(&self) -> Handle {
        let shell = Handle::new(self.index, 0).shell();
        let last = shell.map_or(0, |shell| shell.generation.load(Ordering::Relaxed));
        // The next odd one; on 32 bits it wraps, as the number does.
        Handle::new(self.index, last.wrapping_add(1))
    }

    /// The pool moves in, with one reference. The body must not be dropped before it
    /// has called [`retire`].
    pub(crate) fn live(mut self, body: *const Body) -> Handle {
        self.kept = true;
        let handle = self.handle();
        if let Some(shell) = handle.shell() {
            shell.body.store(body.cast_mut(), Ordering::Relaxed);
            // One reference. Nobody else changes it where nobody is. (What does not fit
            // comes again after two billion pools in the same place.)
            let generation = u64::try_from(handle.0 >> GENERATION_AT).unwrap_or(0);
            shell.refs.store(generation << 33 | 1, Ordering::SeqCst);
            // Release: whoever sees the generation sees the rest.
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

/// The pool is gone: its handle is out of date from here on.
pub(crate) fn retire(handle: Handle) {
    let Some(shell) = handle.shell().filter(|shell| handle.is_of(shell)) else {
        return;
    };
    shell.generation.fetch_add(1, Ordering::Release);
    shell.body.store(std::ptr::null_mut(), Ordering::Relaxed);
    let mut free = lock_free();
    free.shells.push(handle.0 >> 4 & (MOST - 1));
}

/// A pool in use by a call.
pub(crate) struct Using(Call);

impl Deref for Using {
    type Target = Body;

    #[inline]
    fn deref(&self) -> &Body {
        // SAFETY: there were references when the call was counted, so the body stays
        // until that is over. Relaxed: ordered by the generation.
        unsafe { &*self.0.0.body.load(Ordering::Relaxed) }
    }
}

/// A call that is counted, on whatever is in the shell.
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

/// C has no references: if no call is under way either, lets go of the pool.
#[cold]
fn let_go(shell: &Shell, refs: u64) {
    // The last one of them comes here, too.
    let busy = |line: &Line| line.0.load(Ordering::SeqCst) != 0;
    if shell.calls.iter().any(busy) {
        return;
    }
    // Several may find that out, and even late, when another pool has moved in: one of
    // them does it, for the pool that it is about.
    let gone = shell
        .refs
        .compare_exchange(refs, refs | GONE, Ordering::SeqCst, Ordering::Relaxed);
    if gone.is_err() {
        return;
    }
    // SAFETY: the body stays until it is let go of, which is only here.
    let body = unsafe { &*shell.body.load(Ordering::Relaxed) };
    // Keeps the body until the end of this.
    let body = Arc::clone(&body.pool().manager().body);
    // SAFETY: there is neither a reference nor a call, and who comes now is turned away
    // by `open`; by the exchange this happens once.
    unsafe { body.let_go() };
}

/// The pool of a handle that has references, for as long as a call takes.
///
/// # Errors
///
/// The handle is none of a living pool, or has no references any more.
#[inline]
pub(crate) fn open(pool: *const cenote_pool) -> Result<Using, Fault> {
    let shell = find_shell(pool)?;
    let line = line();
    // SeqCst, here and with the references: either we see that the last one is gone, or
    // whoever gave it up sees that we are counted.
    shell.calls[line].0.fetch_add(1, Ordering::SeqCst);
    let call = Call(shell, line);
    if count(shell.refs.load(Ordering::SeqCst)) == 0 {
        return Err(ended());
    }
    // Another pool may have moved in before it was counted.
    match Handle::from_c(pool).is_of(shell) {
        true => Ok(Using(call)),
        false => Err(unknown(pool)),
    }
}

/// The pool of a handle, even one without references whose leases are still out.
///
/// # Safety
///
/// The caller has a reference or a lease of the pool while it uses the body.
///
/// # Errors
///
/// The handle is none of a living pool.
#[inline]
pub(crate) unsafe fn find<'a>(pool: *const cenote_pool) -> Result<&'a Body, Fault> {
    // Relaxed: ordered by the generation, which was read before.
    let body = find_shell(pool)?.body.load(Ordering::Relaxed);
    // SAFETY: the generation is the handle's, so the body is there, and the caller
    // keeps it there.
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
        "this is no living pool: it was destroyed, or was never made by cenote_pool_new",
    )
}

#[cold]
fn ended() -> Fault {
    Fault::new(
        CENOTE_ERR_CLOSED,
        "the last reference of the pool was given up: only release and discard work now",
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

/// Gives a reference up; the pool, if that was the last one.
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
        // SAFETY: nothing is there, which is what this is about.
        assert!(unsafe { find(handle.to_c()) }.is_err());
        drop(first);
        let second = reserve().unwrap();
        assert_eq!((second.index, second.handle()), (index, handle));
    }
}
