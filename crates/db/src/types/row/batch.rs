//! Rows of one result with their bytes in one piece, and how a driver collects them.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use super::{Columns, Row};
use crate::{Error, Kind, Result};

/// Rows of one result, with their bytes in one piece.
///
/// Each [`Row`] refers to its batch: the batch stays in memory as long as any of its rows.
#[derive(Clone)]
pub struct Batch {
    // One pointer, because a batch is moved many times on its way to the caller.
    rows: Arc<Rows>,
}

/// The content of a batch. A small row needs no other allocation.
struct Rows {
    columns: Arc<Columns>,
    count: usize,
    /// Row after row: `count` times the number of columns.
    cells: SmallVec<[Cell; FEW]>,
    bytes: SmallVec<[u8; SMALL]>,
}

/// This many cells and bytes are stored inline: enough for most rows that are read by their key.
const FEW: usize = 4;
const SMALL: usize = 64;

/// The position of a cell's bytes.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    start: u32,
    /// [`Cell::NULL`] for NULL.
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

    /// Returns the range of its bytes in the batch; `None` for NULL.
    fn range(self) -> Option<Range<usize>> {
        let start = self.start as usize;
        (self.len != Cell::NULL).then(|| start..start + self.len as usize)
    }
}

impl Batch {
    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.rows.count
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.count == 0
    }

    /// Returns the columns of each row.
    pub fn columns(&self) -> &Arc<Columns> {
        &self.rows.columns
    }

    /// Returns the tag and the bytes of a cell; `None` for NULL, and if
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

    /// Returns the first row, without a second reference to the batch.
    #[inline]
    pub(crate) fn into_first(self) -> Option<Row> {
        (!self.is_empty()).then(|| Row::new(self, 0))
    }

    /// Returns the rows one by one, without copying bytes.
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
/// The driver adds each cell of a row, from the first column to the last, and then calls
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
    /// The most bytes that fit: positions have 32 bits.
    limit: usize,
    /// Whether the row that is being written exceeds the limit.
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
    /// Returns an empty builder.
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

    /// Returns an empty builder with room for `rows` rows and `bytes` bytes.
    #[inline]
    pub fn with_capacity(columns: Arc<Columns>, rows: usize, bytes: usize) -> Self {
        let mut builder = BatchBuilder::new(columns);
        builder.make_room(rows, bytes);
        builder
    }

    /// Reserves room for so many rows and bytes. Callers reserve after they have moved the builder to its place:
    /// moving a builder takes longer than creating one.
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

    /// Adds a NULL as the next cell.
    pub fn null(&mut self) {
        self.rows.cells.push(Cell::null());
    }

    /// Adds these bytes as the next cell. [`Decode`](super::Decode) gets the tag back with the bytes;
    /// its meaning is up to the driver.
    #[inline]
    pub fn cell(&mut self, tag: u8, bytes: &[u8]) {
        self.cell_with(tag, |cell| cell.push(bytes));
    }

    /// Adds the bytes that `write` writes as the next cell, without a buffer in between. Returns the result
    /// of `write`.
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

    /// Completes the row.
    ///
    /// # Errors
    ///
    /// [`Kind::Column`] if the row does not have exactly one cell for each column, [`Kind::Unsupported`]
    /// if the bytes of all rows exceed 4 GiB. The row is then dropped.
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

    /// Drops a row of `cells` cells, and returns the error that describes its fault.
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

    /// Returns the number of complete rows.
    pub fn rows(&self) -> usize {
        self.rows.count
    }

    /// Returns the number of bytes written so far.
    pub fn bytes(&self) -> usize {
        self.rows.bytes.len()
    }

    /// Returns the complete rows. A row that was not ended is dropped.
    #[inline]
    pub fn finish(mut self) -> Batch {
        self.take()
    }

    /// Returns the complete rows and leaves the builder empty, without moving it.
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

/// Returns a position as 32 bits. The builder's limit guarantees that it fits.
fn position(at: usize) -> u32 {
    u32::try_from(at).expect("the bytes of a batch stay below its limit")
}

/// The sink for the bytes of one cell: see [`BatchBuilder::cell_with`].
#[derive(Debug)]
pub struct CellBytes<'b> {
    bytes: &'b mut SmallVec<[u8; SMALL]>,
    limit: usize,
    is_too_large: bool,
}

impl CellBytes<'_> {
    /// Adds bytes to the cell.
    ///
    /// Bytes beyond the limit are dropped; [`BatchBuilder::end_row`] then fails.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        // The limit itself is not reached: such a length would mean NULL.
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
