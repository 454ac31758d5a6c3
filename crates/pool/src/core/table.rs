//! A table that grows and whose entries never move, so that they can be looked
//! at without a lock while others are added.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use crate::sync::AtomicUsize;

/// Segment `k` holds `8 << k` entries and is made when its first one is needed,
/// so a table that may become large costs nothing before it is used.
#[derive(Debug)]
pub(crate) struct Table<E> {
    segments: [OnceLock<Box<[E]>>; SEGMENTS],
    /// How many entries may be looked at. Grows under the pool's lock only.
    len: AtomicUsize,
}

const FIRST: usize = 8;
const SEGMENTS: usize = 26;

/// The largest number of entries a table can have.
pub(crate) const MOST: usize = FIRST * ((1 << SEGMENTS) - 1);

impl<E> Table<E> {
    pub(crate) fn new() -> Self {
        Table {
            segments: [const { OnceLock::new() }; SEGMENTS],
            len: AtomicUsize::new(0),
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        // Acquire pairs with `grow_by`: an entry below `len` is there to be seen.
        self.len.load(Ordering::Acquire)
    }

    /// Adds an entry and returns its index. For code that holds the pool's lock.
    pub(crate) fn grow_by(&self, make: impl Fn(usize) -> E) -> usize {
        let index = self.len.load(Ordering::Relaxed);
        let (segment, _) = place(index);
        self.segments[segment].get_or_init(|| {
            // A segment is made for its first entry, which is `index`.
            (index..index + (FIRST << segment)).map(make).collect()
        });
        self.len.store(index + 1, Ordering::Release);
        index
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&E> {
        let (segment, offset) = place(index);
        self.segments.get(segment)?.get()?.get(offset)
    }

    /// An entry that is known to exist: its index came from [`Table::grow_by`].
    #[inline]
    pub(crate) fn at(&self, index: usize) -> &E {
        self.get(index).expect("indices come from `grow_by`")
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &E)> {
        (0..self.len()).map(|index| (index, self.at(index)))
    }
}

/// Segment and offset of an entry.
#[inline]
fn place(index: usize) -> (usize, usize) {
    let segment = (index / FIRST + 1).ilog2() as usize;
    (segment, index - FIRST * ((1 << segment) - 1))
}
