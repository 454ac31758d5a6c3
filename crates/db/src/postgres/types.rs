//! PostgreSQL's values as neutral ones.
//!
//! | PostgreSQL | [`Value`] |
//! |---|---|
//! | bool; int2, int4, int8, oid; float4, float8 | bool; int; float |
//! | numeric | decimal; NaN and the infinities are floats |
//! | bytea | bytes |
//! | date, time, timestamp, timestamptz | date, time, datetime, timestamp; `infinity`, `24:00:00` are text |
//! | uuid; json, jsonb | uuid; json |
//! | arrays of any dimension | arrays of what their elements are |
//! | text, varchar, char, name, xml | text |
//! | everything else: enums, ranges, intervals, inet, composites … | text, as the server writes it; see [`from_sql`](super::from_sql) |
//!
//! A domain has the value of its base type. The driver requests binary where that is the better form and does not
//! depend on settings; everything else arrives as text. When a type was not known at the request, its values arrive as text
//! too and are converted to the same form ([`text`]), so that a cell does not depend on how it was requested.

use std::borrow::Cow;
use std::sync::Arc;

use postgres_types::{Kind as TypeKind, Oid, Type};

use super::array;
use super::calendar;
use super::known_type::KnownType;
use super::protocol::message::{Field, Reader, lossy};
use super::text;
use crate::driver::{Batch, BatchBuilder, Column, Columns, Decode, Native, Value};
use crate::types::value::DateTime;
use crate::{Error, Kind, Result};

/// The form of a cell's bytes. It is the tag of the cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Shape {
    Text = 1,
    Bool = 2,
    Int2 = 3,
    Int4 = 4,
    Int8 = 5,
    Oid = 6,
    Float4 = 7,
    Float8 = 8,
    Bytes = 9,
    Uuid = 10,
    Date = 11,
    Time = 12,
    DateTime = 13,
    Timestamp = 14,
    Decimal = 15,
    Json = 16,
    /// The server's text of an array.
    Array = 17,
}

impl Shape {
    pub(super) fn of(kind: &Type) -> Self {
        match *kind {
            Type::BOOL => Shape::Bool,
            Type::INT2 => Shape::Int2,
            Type::INT4 => Shape::Int4,
            Type::INT8 => Shape::Int8,
            Type::OID => Shape::Oid,
            Type::FLOAT4 => Shape::Float4,
            Type::FLOAT8 => Shape::Float8,
            Type::BYTEA => Shape::Bytes,
            Type::UUID => Shape::Uuid,
            Type::DATE => Shape::Date,
            Type::TIME => Shape::Time,
            Type::TIMESTAMP => Shape::DateTime,
            Type::TIMESTAMPTZ => Shape::Timestamp,
            Type::NUMERIC => Shape::Decimal,
            Type::JSON | Type::JSONB => Shape::Json,
            // These have the kind of an array, and a text form of their own.
            Type::INT2_VECTOR | Type::OID_VECTOR => Shape::Text,
            _ => match kind.kind() {
                TypeKind::Array(_) => Shape::Array,
                TypeKind::Domain(of) => Shape::of(of),
                _ => Shape::Text,
            },
        }
    }

    /// Returns whether the driver requests the binary form once it knows the type.
    pub(super) fn is_binary(self) -> bool {
        !matches!(
            self,
            Shape::Text | Shape::Decimal | Shape::Json | Shape::Array
        )
    }
}

/// The columns of a statement's rows, and the form of each.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) columns: Arc<Columns>,
    pub(super) shapes: Box<[Shape]>,
    /// The types that are not known yet.
    pub(super) unknown: Box<[Oid]>,
    /// All values stay as the server writes them.
    is_text: bool,
}

impl Layout {
    /// Returns the layout of a RowDescription. `known` finds types that are not built in.
    pub(super) fn new(
        fields: &[Field<'_>],
        known: impl Fn(Oid) -> Option<Arc<KnownType>>,
    ) -> Arc<Self> {
        let mut unknown = Vec::new();
        let mut shapes = Vec::with_capacity(fields.len());
        let mut columns = Vec::with_capacity(fields.len());
        for field in fields {
            let built_in = Type::from_oid(field.type_id);
            let looked_up = match built_in {
                Some(_) => None,
                None => known(field.type_id),
            };
            let kind = built_in.or_else(|| Some(looked_up.as_ref()?.kind.clone()));
            if kind.is_none() {
                unknown.push(field.type_id);
            }
            shapes.push(kind.as_ref().map_or(Shape::Text, Shape::of));
            columns.push(Column {
                name: lossy(field.name),
                type_name: kind.and_then(|kind| match kind.name() {
                    "" => None,
                    name => Some(name.to_owned()),
                }),
                type_id: field.type_id,
                native: looked_up.map(|known| Native {
                    type_name: "postgres_types::Type",
                    value: known,
                }),
            });
        }
        // Once at the end: a search for each of 65,535 columns would be quadratic.
        unknown.sort_unstable();
        unknown.dedup();
        Arc::new(Layout {
            columns: Columns::new(columns, &Cells),
            shapes: shapes.into(),
            unknown: unknown.into(),
            is_text: false,
        })
    }

    /// Returns the layout with all values as the server writes them: for the option `text_values`. No type needs to be
    /// looked up for it.
    pub(super) fn to_text(&self) -> Arc<Self> {
        Arc::new(Layout {
            columns: Arc::clone(&self.columns),
            shapes: self.shapes.iter().map(|_| Shape::Text).collect(),
            unknown: Box::default(),
            is_text: true,
        })
    }

    /// Returns the layout with the types that are known now.
    pub(super) fn again(&self, known: impl Fn(Oid) -> Option<Arc<KnownType>>) -> Arc<Self> {
        let columns = self.columns.as_slice().iter();
        let fields = columns.map(|column| Field {
            name: column.name.as_bytes(),
            type_id: column.type_id,
        });
        let fields: Vec<_> = fields.collect();
        let layout = Layout::new(&fields, known);
        match self.is_text {
            true => layout.to_text(),
            false => layout,
        }
    }

    /// Converts rows that were read when fewer types were known to this layout.
    pub(super) fn translate(&self, rows: &Batch) -> Result<Batch> {
        let columns = Arc::clone(&self.columns);
        let mut translated = BatchBuilder::with_capacity(columns, rows.len(), 0);
        for row in 0..rows.len() {
            for (column, shape) in self.shapes.iter().enumerate() {
                match rows.raw(row, column) {
                    None => translated.null(),
                    // Values of types that were not known arrived as text.
                    Some((TEXT, bytes)) => text::push(&mut translated, *shape, bytes),
                    Some((tag, bytes)) => translated.cell(tag, bytes),
                }
            }
            translated.end_row()?;
        }
        Ok(translated.finish())
    }

    /// Returns the layout of a statement without rows.
    pub(super) fn empty() -> Arc<Self> {
        Layout::new(&[], |_| None)
    }
}

/// Adds a DataRow to the rows. Returns `None` if it does not match the layout.
#[inline]
pub(super) fn push_row(
    rows: &mut BatchBuilder,
    layout: &Layout,
    all_text: bool,
    body: &[u8],
) -> Option<Result<()>> {
    let mut reader = Reader(body);
    if usize::from(reader.u16()?) != layout.shapes.len() {
        return None;
    }
    for shape in &layout.shapes {
        let len = reader.i32()?;
        if len == -1 {
            rows.null();
            continue;
        }
        let bytes = reader.bytes(usize::try_from(len).ok()?)?;
        let shape = *shape;
        if all_text && shape.is_binary() {
            text::push(rows, shape, bytes);
        } else {
            rows.cell(shape as u8, bytes);
        }
    }
    reader.is_empty().then(|| rows.end_row())
}

/// Decodes the cells that [`push_row`] writes.
struct Cells;

impl Decode for Cells {
    fn value<'r>(&self, column: &Column, tag: u8, bytes: &'r [u8]) -> Result<Value<'r>> {
        match tag {
            ARRAY => array::value(column, bytes),
            tag => decode(tag, bytes),
        }
    }
}

const TEXT: u8 = Shape::Text as u8;
const BOOL: u8 = Shape::Bool as u8;
const INT2: u8 = Shape::Int2 as u8;
const INT4: u8 = Shape::Int4 as u8;
const INT8: u8 = Shape::Int8 as u8;
const OID: u8 = Shape::Oid as u8;
const FLOAT4: u8 = Shape::Float4 as u8;
const FLOAT8: u8 = Shape::Float8 as u8;
const BYTES: u8 = Shape::Bytes as u8;
const UUID: u8 = Shape::Uuid as u8;
const DATE: u8 = Shape::Date as u8;
const TIME: u8 = Shape::Time as u8;
const DATE_TIME: u8 = Shape::DateTime as u8;
const TIMESTAMP: u8 = Shape::Timestamp as u8;
const DECIMAL: u8 = Shape::Decimal as u8;
const JSON: u8 = Shape::Json as u8;
const ARRAY: u8 = Shape::Array as u8;

/// Decodes a cell of any form but that of arrays. Inlined, so that [`Cells`] has one table of all forms.
#[inline(always)]
pub(super) fn decode(tag: u8, bytes: &[u8]) -> Result<Value<'_>> {
    Ok(match tag {
        INT4 => Value::Int(i32::from_be_bytes(exactly(bytes)?).into()),
        INT8 => Value::Int(i64::from_be_bytes(exactly(bytes)?)),
        TEXT => Value::Text(Cow::Borrowed(utf8(bytes)?)),
        BOOL => Value::Bool(exactly::<1>(bytes)? != [0]),
        INT2 => Value::Int(i16::from_be_bytes(exactly(bytes)?).into()),
        OID => Value::Int(u32::from_be_bytes(exactly(bytes)?).into()),
        FLOAT4 => Value::Float(f32::from_be_bytes(exactly(bytes)?).into()),
        FLOAT8 => Value::Float(f64::from_be_bytes(exactly(bytes)?)),
        BYTES => Value::Bytes(Cow::Borrowed(bytes)),
        UUID => Value::Uuid(exactly(bytes)?),
        DATE => date(i32::from_be_bytes(exactly(bytes)?))?,
        TIME => time(i64::from_be_bytes(exactly(bytes)?))?,
        DATE_TIME => moment(i64::from_be_bytes(exactly(bytes)?), Value::DateTime)?,
        TIMESTAMP => moment(i64::from_be_bytes(exactly(bytes)?), Value::Timestamp)?,
        DECIMAL => decimal(Cow::Borrowed(utf8(bytes)?)),
        JSON => Value::Json(Cow::Borrowed(utf8(bytes)?)),
        unknown => {
            let message = format!("PostgreSQL's rows have no cells with the tag {unknown}");
            return Err(Error::new(Kind::Type, message));
        }
    })
}

pub(super) fn utf8(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes)
        .map_err(|error| Error::new(Kind::Type, "the text is no UTF-8").because(error))
}

fn exactly<const N: usize>(bytes: &[u8]) -> Result<[u8; N]> {
    bytes.try_into().map_err(|_| {
        let message = format!(
            "the value has {} bytes, where it must have {N}",
            bytes.len()
        );
        Error::new(Kind::Type, message)
    })
}

pub(super) fn decimal(digits: Cow<'_, str>) -> Value<'_> {
    match &*digits {
        "NaN" => Value::Float(f64::NAN),
        "Infinity" => Value::Float(f64::INFINITY),
        "-Infinity" => Value::Float(f64::NEG_INFINITY),
        _ => Value::Decimal(digits),
    }
}

fn date(days: i32) -> Result<Value<'static>> {
    match days {
        i32::MAX => Ok(Value::Text("infinity".into())),
        i32::MIN => Ok(Value::Text("-infinity".into())),
        _ => calendar::date(days.into())
            .map(Value::Date)
            .ok_or_else(no_such_moment),
    }
}

fn time(microseconds: i64) -> Result<Value<'static>> {
    if microseconds == calendar::MICROSECONDS_A_DAY {
        return Ok(Value::Text("24:00:00".into()));
    }
    calendar::time(microseconds)
        .map(Value::Time)
        .ok_or_else(no_such_moment)
}

fn moment(microseconds: i64, of: fn(DateTime) -> Value<'static>) -> Result<Value<'static>> {
    match microseconds {
        i64::MAX => Ok(Value::Text("infinity".into())),
        i64::MIN => Ok(Value::Text("-infinity".into())),
        _ => calendar::moment(microseconds)
            .map(of)
            .ok_or_else(no_such_moment),
    }
}

fn no_such_moment() -> Error {
    Error::new(Kind::Type, "the calendar has no such day or time")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OIDS: [Oid; 22] = [
        16, 17, 18, 20, 21, 23, 25, 26, 114, 700, 701, 1007, 1000, 1009, 3807, 1082, 1083, 1114,
        1184, 1700, 2950, 3802,
    ];

    fn layout(oids: &[Oid]) -> Arc<Layout> {
        let field = |oid: &Oid| Field {
            name: b"a",
            type_id: *oid,
        };
        let fields: Vec<_> = oids.iter().map(field).collect();
        Layout::new(&fields, |_| None)
    }

    fn row(cells: &[Option<Vec<u8>>]) -> Vec<u8> {
        let mut body = u16::try_from(cells.len()).unwrap().to_be_bytes().to_vec();
        for cell in cells {
            match cell {
                None => body.extend((-1_i32).to_be_bytes()),
                Some(bytes) => {
                    body.extend(i32::try_from(bytes.len()).unwrap().to_be_bytes());
                    body.extend(bytes);
                }
            }
        }
        body
    }

    /// Adds a row and reads all of it.
    fn read(layout: &Layout, all_text: bool, body: &[u8]) {
        let mut rows = BatchBuilder::new(Arc::clone(&layout.columns));
        let _ = push_row(&mut rows, layout, all_text, body);
        let bytes = rows.bytes();
        // No cell is longer than its text, except for numbers of a few digits.
        assert!(bytes <= 6 * body.len() + 16, "{bytes} of {}", body.len());
        for row in rows.finish() {
            for column in 0..row.len() {
                let _ = row.value(column);
            }
        }
    }

    /// Bytes that look like something, and bytes that do not.
    fn cell() -> impl Strategy<Value = Option<Vec<u8>>> {
        prop_oneof![
            Just(None),
            prop::collection::vec(any::<u8>(), 0..40).prop_map(Some),
            "[-0-9:. +{},\"\\\\xTtfNULabBC=\\[\\]]{0,30}".prop_map(|text| Some(text.into_bytes())),
        ]
    }

    proptest! {
        #[test]
        fn hostile_rows_are_read_or_refused_and_nothing_more(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let layout = layout(&OIDS[..3]);
            read(&layout, true, &body);
            read(&layout, false, &body);
        }

        #[test]
        fn hostile_cells_of_every_type_are_read_or_refused(
            cells in prop::collection::vec(cell(), OIDS.len()),
        ) {
            let layout = layout(&OIDS);
            let body = row(&cells);
            read(&layout, true, &body);
            read(&layout, false, &body);
        }
    }

    #[test]
    fn time_zone_out_of_range_leaves_the_time_as_text() {
        let layout = layout(&[1184]);
        for zone in [
            "+9223372036854775807",
            "-99999999999999:59",
            "+00:9223372036854775807",
        ] {
            let text = format!("2024-02-29 09:05:00{zone}");
            let mut rows = BatchBuilder::new(Arc::clone(&layout.columns));
            let body = row(&[Some(text.clone().into_bytes())]);
            assert!(push_row(&mut rows, &layout, true, &body).is_some());
            let rows: Vec<_> = rows.finish().into_rows().collect();
            assert_eq!(rows[0].value(0).unwrap(), Value::Text(text.into()));
        }
    }

    #[test]
    fn unknown_type_is_looked_up_once_for_any_number_of_columns() {
        let layout = layout(&[90_002, 23, 90_001, 90_002, 90_001]);
        assert_eq!(*layout.unknown, [90_001, 90_002]);
    }

    #[test]
    fn a_row_of_another_width_is_none_of_this_layout() {
        let layout = layout(&[23, 25]);
        let mut rows = BatchBuilder::new(Arc::clone(&layout.columns));
        for cells in [1, 3] {
            let body = row(&vec![Some(vec![0; 4]); cells]);
            assert!(push_row(&mut rows, &layout, false, &body).is_none());
        }
        let mut longer = row(&[None, None]);
        longer.push(0);
        assert!(push_row(&mut rows, &layout, false, &longer).is_none());
    }

    #[test]
    fn text_that_is_no_utf8_is_an_error_when_it_is_asked_for() {
        assert_eq!(decode(TEXT, &[0xff]).unwrap_err().kind(), Kind::Type);
        assert!(decode(BYTES, &[0xff]).is_ok());
        assert!(decode(INT4, &[1]).is_err());
        assert!(decode(99, &[]).is_err());
    }
}
