//! Rows of one result with their bytes in one piece, and how a driver collects them.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use super::{Columns, Row};
use crate::{Error, Kind, Result};

/// Rows of one result, their bytes in one piece.
///
/// A [`Row`] of it shares it: it stays in memory as long as any of its rows does.
#[derive(Clone)]
pub struct Batch {
    // Thin, because it passes through many hands on its way to the caller.
    rows: Arc<Rows>,
}

/// What all rows of a batch share. A small row takes no memory but this.
struct Rows {
    columns: Arc<Columns>,
    count: usize,
    /// Row after row; `count` times as many as there are columns.
    cells: SmallVec<[Cell; FEW]>,
    bytes: SmallVec<[u8; SMALL]>,
}

/// So many cells and bytes have room beside the rest: most rows that are read by their key.
const FEW: usize = 4;
const SMALL: usize = 64;

/// Where the bytes of a cell are.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    start: u32,
    /// [`Cell::NULL`] for none.
    len: u32,
    tag: u8,
}

impl Cell {
    const NULL: u32 = u32::MAX;

    #[inline]
    fn null() -> Self {
        Cell {
            start: 0,
            len: Cell::NULL,
            tag: 0,
        }
    }

    /// Which bytes of the batch are its own; `None` for NULL.
    fn range(self) -> Option<Range<usize>> {
        let start = self.start as usize;
        (self.len != Cell::NULL).then(|| start..start + self.len as usize)
    }
}

impl Batch {
    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows.count
    }

    /// There are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.count == 0
    }

    /// The columns of each row.
    pub fn columns(&self) -> &Arc<Columns> {
        &self.rows.columns
    }

    /// A cell as the driver wrote it: its tag and its bytes; `None` for NULL, and where
    /// there is no such row or column.
    pub fn raw(&self, row: usize, column: usize) -> Option<(u8, &[u8])> {
        let rows = &*self.rows;
        let width = rows.columns.len();
        if column >= width {
            return None;
        }
        let cell = rows.cells.get(row.checked_mul(width)? + column)?;
        Some((cell.tag, &rows.bytes[cell.range()?]))
    }

    /// Its first row. As it is the only one that is wanted, the batch need not be shared.
    #[inline]
    pub(crate) fn into_first(self) -> Option<Row> {
        (!self.is_empty()).then(|| Row::new(self, 0))
    }

    /// Its rows, one after the other. None of their bytes is copied.
    pub fn into_rows(self) -> IntoRows {
        IntoRows {
            rows: 0..self.rows.count,
            batch: self,
        }
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Batch")
            .field("columns", &self.rows.columns)
            .field("rows", &self.rows.count)
            .field("bytes", &self.rows.bytes.len())
            .finish_non_exhaustive()
    }
}

impl IntoIterator for Batch {
    type Item = Row;
    type IntoIter = IntoRows;

    fn into_iter(self) -> IntoRows {
        self.into_rows()
    }
}

/// The rows of a [`Batch`], one after the other.
#[derive(Clone, Debug)]
pub struct IntoRows {
    batch: Batch,
    rows: Range<usize>,
}

impl Iterator for IntoRows {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        let index = self.rows.next()?;
        Some(Row::new(self.batch.clone(), index))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.rows.size_hint()
    }
}

impl ExactSizeIterator for IntoRows {}

impl DoubleEndedIterator for IntoRows {
    fn next_back(&mut self) -> Option<Row> {
        let index = self.rows.next_back()?;
        Some(Row::new(self.batch.clone(), index))
    }
}

/// Collects rows, cell by cell.
///
/// One call for each cell of a row, from the first column to the last, and then
/// [`end_row`](BatchBuilder::end_row):
///
/// ```
/// # use cenote::driver::{BatchBuilder, Columns};
/// # fn rows(columns: std::sync::Arc<Columns>) -> cenote::Result<()> {
/// let mut rows = BatchBuilder::new(columns);
/// for name in ["ada", "grace"] {
///     rows.cell(1, name.as_bytes());
///     rows.null();
///     rows.end_row()?;
/// }
/// assert_eq!(rows.finish().len(), 2);
/// # Ok(())
/// # }
/// ```
pub struct BatchBuilder {
    rows: Rows,
    /// How many bytes there may be: positions are kept in 32 bits.
    limit: usize,
    /// The row that is being written does not fit below the limit.
    is_too_large: bool,
}

impl fmt::Debug for BatchBuilder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("BatchBuilder")
            .field("columns", &self.rows.columns)
            .field("rows", &self.rows.count)
            .field("bytes", &self.rows.bytes.len())
            .finish_non_exhaustive()
    }
}

impl BatchBuilder {
    /// Nothing so far.
    #[inline]
    pub fn new(columns: Arc<Columns>) -> Self {
        BatchBuilder {
            rows: Rows {
                columns,
                count: 0,
                cells: SmallVec::new(),
                bytes: SmallVec::new(),
            },
            limit: u32::MAX as usize,
            is_too_large: false,
        }
    }

    /// Nothing so far, with room for so many rows and bytes.
    #[inline]
    pub fn with_capacity(columns: Arc<Columns>, rows: usize, bytes: usize) -> Self {
        let mut builder = BatchBuilder::new(columns);
        builder.make_room(rows, bytes);
        builder
    }

    /// Makes room for so many rows and bytes. A builder is made first, put where it is to stay, and only then
    /// given room: to move it takes longer than to make it.
    #[inline]
    pub(crate) fn make_room(&mut self, rows: usize, bytes: usize) {
        let cells = rows.saturating_mul(self.rows.columns.len());
        if cells > FEW || bytes > SMALL {
            self.grow(cells, bytes);
        }
    }

    #[inline(never)]
    fn grow(&mut self, cells: usize, bytes: usize) {
        self.rows.cells.reserve_exact(cells);
        self.rows.bytes.reserve_exact(bytes);
    }

    /// The next cell is NULL.
    pub fn null(&mut self) {
        self.rows.cells.push(Cell::null());
    }

    /// The next cell has these bytes. The tag is for [`Decode`](super::Decode), which gets both
    /// back: what it means is up to the driver.
    #[inline]
    pub fn cell(&mut self, tag: u8, bytes: &[u8]) {
        self.cell_with(tag, |cell| cell.push(bytes));
    }

    /// The next cell has the bytes that `write` writes: straight to their place, without a
    /// buffer of the driver's own. Gives back what `write` gives.
    #[inline]
    pub fn cell_with<R>(&mut self, tag: u8, write: impl FnOnce(&mut CellBytes<'_>) -> R) -> R {
        let start = self.rows.bytes.len();
        let mut cell = CellBytes {
            bytes: &mut self.rows.bytes,
            limit: self.limit,
            is_too_large: self.is_too_large,
        };
        let written = write(&mut cell);
        self.is_too_large = cell.is_too_large;
        let len = self.rows.bytes.len() - start;
        self.rows.cells.push(Cell {
            start: position(start),
            len: position(len),
            tag,
        });
        written
    }

    /// The row is complete.
    ///
    /// # Errors
    ///
    /// [`Kind::Column`] if it has not exactly one cell for each column, [`Kind::Unsupported`]
    /// if the bytes of all rows no longer fit into 4 GiB. The row is then left out.
    #[inline]
    pub fn end_row(&mut self) -> Result<()> {
        let width = self.rows.columns.len();
        let cells = self.rows.cells.len() - self.rows.count * width;
        if cells != width || self.is_too_large {
            return Err(self.refuse_row(cells));
        }
        self.rows.count += 1;
        Ok(())
    }

    /// What is wrong with a row of so many cells, which is left out.
    #[cold]
    fn refuse_row(&mut self, cells: usize) -> Error {
        let width = self.rows.columns.len();
        self.drop_open_row();
        if cells != width {
            let message = format!("a row has {cells} cells and the result {width} columns");
            return Error::new(Kind::Column, message);
        }
        let message = "the rows are larger than 4 GiB together; take them as a stream";
        Error::new(Kind::Unsupported, message)
    }

    /// How many rows are complete.
    pub fn rows(&self) -> usize {
        self.rows.count
    }

    /// How many bytes have been written.
    pub fn bytes(&self) -> usize {
        self.rows.bytes.len()
    }

    /// The rows that are complete. One that has been begun and not ended is left out.
    #[inline]
    pub fn finish(mut self) -> Batch {
        self.take()
    }

    /// The same without moving the builder, which is empty afterwards.
    #[inline]
    pub(crate) fn take(&mut self) -> Batch {
        if self.rows.cells.len() != self.rows.count * self.rows.columns.len() {
            self.drop_open_row();
        }
        let rows = &mut self.rows;
        Batch {
            rows: Arc::new(Rows {
                columns: Arc::clone(&rows.columns),
                count: std::mem::take(&mut rows.count),
                cells: std::mem::take(&mut rows.cells),
                bytes: std::mem::take(&mut rows.bytes),
            }),
        }
    }

    fn drop_open_row(&mut self) {
        let complete = self.rows.count * self.rows.columns.len();
        let open = self.rows.cells.get(complete..).unwrap_or_default();
        let first_byte = open.iter().find_map(|cell| Some(cell.range()?.start));
        let bytes = &mut self.rows.bytes;
        bytes.truncate(first_byte.unwrap_or(bytes.len()));
        self.rows.cells.truncate(complete);
        self.is_too_large = false;
    }
}

/// The builder never lets its bytes grow past what 32 bits can count.
fn position(at: usize) -> u32 {
    u32::try_from(at).expect("the bytes of a batch stay below its limit")
}

/// Where the bytes of one cell go: see [`BatchBuilder::cell_with`].
#[derive(Debug)]
pub struct CellBytes<'b> {
    bytes: &'b mut SmallVec<[u8; SMALL]>,
    limit: usize,
    is_too_large: bool,
}

impl CellBytes<'_> {
    /// Adds bytes to the cell.
    ///
    /// What does not fit any more is left out; [`BatchBuilder::end_row`] then says so.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        // The limit itself is left free, for it would look like NULL.
        if bytes.len() >= self.limit - self.bytes.len() {
            self.is_too_large = true;
        } else {
            self.bytes.extend_from_slice(bytes);
        }
    }
}

impl fmt::Write for CellBytes<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

impl io::Write for CellBytes<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Column, Decode};
    use super::*;
    use crate::types::value::Value;

    #[derive(Debug)]
    struct AsBytes;

    impl Decode for AsBytes {
        fn value<'r>(&self, _column: &Column, _tag: u8, bytes: &'r [u8]) -> Result<Value<'r>> {
            Ok(bytes.into())
        }
    }

    /// Four GiB are too many for a test.
    fn with_limit(limit: usize) -> BatchBuilder {
        let columns = Columns::new(vec![Column::new("a")], &AsBytes);
        BatchBuilder {
            limit,
            ..BatchBuilder::new(columns)
        }
    }

    #[test]
    fn a_row_past_the_limit_is_an_error_and_left_out() {
        let mut rows = with_limit(8);
        rows.cell(0, b"1234");
        rows.end_row().unwrap();
        rows.cell(0, b"5678");
        let error = rows.end_row().unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported);
        assert!(error.message().contains("as a stream"), "{error}");
        rows.cell(0, b"567");
        rows.end_row().unwrap();
        let batch = rows.finish();
        assert_eq!(batch.len(), 2);
        assert_eq!(batch.raw(1, 0), Some((0, &b"567"[..])));
    }

    #[test]
    fn what_is_written_in_pieces_never_passes_the_limit() {
        let mut rows = with_limit(8);
        rows.cell_with(0, |cell| (0..100).for_each(|_| cell.push(b"xyz")));
        assert!(rows.bytes() < 8);
        assert!(rows.end_row().is_err());
        assert_eq!(rows.bytes(), 0);
    }

    #[test]
    fn taken_batch_is_complete_and_the_builder_continues_empty() {
        let mut rows = with_limit(100);
        rows.cell(0, b"one");
        rows.end_row().unwrap();
        rows.cell(0, b"begun");
        let batch = rows.take();
        assert_eq!((batch.len(), batch.raw(0, 0)), (1, Some((0, &b"one"[..]))));
        assert_eq!((rows.rows(), rows.bytes()), (0, 0));
        rows.cell(0, b"two");
        rows.end_row().unwrap();
        assert_eq!(rows.finish().raw(0, 0), Some((0, &b"two"[..])));
    }
}
