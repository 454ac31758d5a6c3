//! A table that grows and whose entries never move, so that they can be read without a lock while
//! others are added.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use crate::sync::AtomicUsize;

/// Segment `k` holds `8 << k` entries and is allocated when its first entry is needed, so that a large
/// limit costs nothing.
#[derive(Debug)]
pub(crate) struct Table<E> {
    segments: [OnceLock<Box<[E]>>; SEGMENTS],
    /// The number of entries. It grows under the pool's lock only.
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
        // Acquire pairs with the release in `grow_by`: an entry below `len` is visible.
        self.len.load(Ordering::Acquire)
    }

    /// Adds an entry and returns its index. For code that holds the pool's lock.
    pub(crate) fn grow_by(&self, make: impl Fn(usize) -> E) -> usize {
        let index = self.len.load(Ordering::Relaxed);
        let (segment, _) = place(index);
        self.segments[segment].get_or_init(|| {
            // A segment is allocated for its first entry, which is `index`.
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

    /// Returns an entry that exists: its index came from [`Table::grow_by`].
    #[inline]
    pub(crate) fn at(&self, index: usize) -> &E {
        self.get(index).expect("indices come from `grow_by`")
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &E)> {
        (0..self.len()).map(|index| (index, self.at(index)))
    }
}

/// Returns the segment and the offset of an entry.
#[inline]
fn place(index: usize) -> (usize, usize) {
    let segment = (index / FIRST + 1).ilog2() as usize;
    (segment, index - FIRST * ((1 << segment) - 1))
}
