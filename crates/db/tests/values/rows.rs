//! Rows: how drivers write them and programs read them.

use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use cenote::driver::{Batch, BatchBuilder, Column, Columns};
use cenote::{Date, Kind, Row, Value};
use proptest::prelude::*;

use crate::values_support::*;

fn ada() -> Row {
    row(&[
        ("id", 7.into()),
        ("name", "ada".into()),
        ("email", Value::Null),
    ])
}

#[test]
fn a_value_is_found_by_position_and_by_name() {
    let row = ada();
    assert_eq!(row.get::<i64>(0).unwrap(), 7);
    assert_eq!(row.get::<&str>("name").unwrap(), "ada");
    assert_eq!(row.get::<String>(&String::from("name")).unwrap(), "ada");
    assert_eq!(row.get::<Option<&str>>("email").unwrap(), None);
    assert_eq!(row.value("id").unwrap(), Value::Int(7));
    assert_eq!(row.len(), 3);
    assert!(!row.is_empty());
}

#[test]
fn a_name_is_found_whatever_its_case_if_only_one_can_be_meant() {
    let row = row(&[("Id", 1.into()), ("name", 2.into()), ("NAME", 3.into())]);
    assert_eq!(row.get::<i64>("ID").unwrap(), 1);
    assert_eq!(row.get::<i64>("NAME").unwrap(), 3);
    assert_eq!(
        refusal(row.get::<i64>("Name"), Kind::Column),
        "`Name` may be column `name` or column `NAME`"
    );
}

#[test]
fn of_columns_with_the_same_name_the_first_is_found() {
    let row = row(&[("id", 1.into()), ("id", 2.into())]);
    assert_eq!(row.get::<i64>("id").unwrap(), 1);
    assert_eq!(row.get::<i64>("ID").unwrap(), 1);
    assert_eq!(row.get::<i64>(1).unwrap(), 2);
}

#[test]
fn missing_column_is_an_error_that_lists_the_existing_ones() {
    let row = ada();
    assert_eq!(
        refusal(row.get::<i64>("age"), Kind::Column),
        "the row has no column `age`; it has `id`, `name`, `email`"
    );
    let message = "the row has no column 3; it has `id`, `name`, `email`";
    assert_eq!(refusal(row.get::<i64>(3), Kind::Column), message);
    assert_eq!(refusal(row.value(3), Kind::Column), message);
    assert_eq!(refusal(row.raw(3), Kind::Column), message);
}

#[test]
fn wrong_type_is_an_error_naming_the_column_and_both_types() {
    let row = ada();
    assert_eq!(
        refusal(row.get::<i64>("name"), Kind::Type),
        "column `name`: found text, wanted i64: use String or cast"
    );
    assert_eq!(
        refusal(row.get::<&str>("email"), Kind::Type),
        "column `email`: found NULL, wanted &str; an Option takes NULL"
    );
    let large = crate::values_support::row(&[("n", 300.into())]);
    assert_eq!(
        refusal(large.get::<u8>("n"), Kind::Type),
        "column `n`: 300 is out of range for u8"
    );
}

#[test]
fn a_column_without_a_name_is_called_by_its_number() {
    let row = row(&[("id", 1.into()), ("", "x".into())]);
    assert_eq!(
        refusal(row.get::<i64>(1), Kind::Type),
        "column 1: found text, wanted i64: use String or cast"
    );
}

#[test]
fn bytes_that_cannot_be_read_are_an_error_that_names_the_column() {
    let row = raw(UNREADABLE, b"?");
    let message = "column `it`: the bytes are no value";
    assert_eq!(refusal(row.get::<i64>("it"), Kind::Type), message);
    assert_eq!(refusal(row.value(0), Kind::Type), message);
}

#[test]
fn a_text_that_has_to_be_recoded_can_be_owned() {
    let row = raw(LATIN_1, b"\xe4");
    assert_eq!(row.get::<String>(0).unwrap(), "ä");
    assert!(refusal(row.get::<&str>(0), Kind::Type).starts_with("column `it`: found text"));
}

#[test]
fn raw_cells_are_what_the_driver_wrote() {
    let row = raw(200, b"\x00\x01");
    let raw = row.raw("it").unwrap().unwrap();
    assert_eq!((raw.tag, raw.bytes), (200, &b"\x00\x01"[..]));
    assert_eq!(raw.column.name, "it");
    assert!(ada().raw("email").unwrap().is_none());
}

#[test]
fn all_values_come_in_the_order_of_the_columns() {
    let row = ada();
    let values: Vec<Value<'_>> = row.values().map(|value| value.unwrap()).collect();
    assert_eq!(values, [7.into(), "ada".into(), Value::Null]);
    assert_eq!(row.values().len(), 3);
}

#[test]
fn a_row_shows_its_values() {
    let shown = format!("{:?}", ada());
    assert_eq!(
        shown,
        r#"{"id": Int(7), "name": Text("ada"), "email": Null}"#
    );
    let shown = format!("{:?}", raw(UNREADABLE, b"?"));
    assert_eq!(shown, r#"{"it": "column `it`: the bytes are no value"}"#);
}

#[test]
fn the_columns_of_a_row_are_the_driver_s() {
    let column = Column {
        name: "id".to_owned(),
        type_name: Some("INTEGER".to_owned()),
        type_id: 23,
        native: None,
    };
    let columns = Columns::new(vec![column.clone()], &Decoder);
    assert_eq!(columns.as_slice(), [column]);
    assert_eq!(columns.get(0).unwrap().type_id, 23);
    assert_eq!(columns.get(1), None);
    assert_eq!(columns.position("id").unwrap(), 0);
    assert!(!columns.is_empty());
    let batch = BatchBuilder::new(columns).finish();
    assert!(batch.is_empty());
    assert_eq!(batch.columns().len(), 1);
}

#[test]
fn rows_share_the_bytes_of_their_batch() {
    let batch = batch(&["name"], &[vec!["ada".into()], vec!["grace".into()]]);
    let rows: Vec<Row> = batch.into_rows().collect();
    let start = |row: &Row| row.get::<&str>(0).unwrap().as_ptr().addr();
    assert_eq!(start(&rows[1]) - start(&rows[0]), "ada".len());
    assert_eq!(start(&rows[0].clone()), start(&rows[0]));
}

#[test]
fn a_row_outlives_the_others_of_its_batch() {
    let mut rows = batch(&["n"], &[vec![1.into()], vec![2.into()], vec![3.into()]]).into_rows();
    assert_eq!(rows.len(), 3);
    let last = rows.next_back().unwrap();
    let first = rows.next().unwrap();
    drop(rows);
    assert_eq!(first.get::<i64>("n").unwrap(), 1);
    assert_eq!(last.get::<i64>("n").unwrap(), 3);
}

#[test]
fn cell_is_decoded_once_per_access_and_not_before() {
    static DECODER: CountingDecoder = CountingDecoder(AtomicUsize::new(0));
    let decoded = || DECODER.0.load(Ordering::Relaxed);
    let columns = Columns::new(vec![Column::new("a"), Column::new("b")], &DECODER);
    let mut rows = BatchBuilder::new(columns);
    write(&mut rows, &Value::Int(1));
    write(&mut rows, &Value::Int(2));
    rows.end_row().unwrap();
    let row = rows.finish().into_rows().next().unwrap();
    assert_eq!(decoded(), 0);
    assert_eq!(row.get::<i64>("b").unwrap(), 2);
    assert_eq!(decoded(), 1);
    assert!(row.raw("a").unwrap().is_some());
    assert_eq!(decoded(), 1);
}

#[test]
fn rows_without_columns_are_counted() {
    let mut rows = BatchBuilder::new(columns(&[]));
    rows.end_row().unwrap();
    rows.end_row().unwrap();
    let batch = rows.finish();
    assert_eq!(batch.len(), 2);
    let row = batch.into_rows().next().unwrap();
    assert!(row.is_empty());
    assert_eq!(
        refusal(row.get::<i64>("id"), Kind::Column),
        "the row has no column `id` nor any other"
    );
}

#[test]
fn row_with_too_many_or_too_few_cells_is_an_error_and_left_out() {
    let mut rows = BatchBuilder::new(columns(&["a", "b"]));
    rows.cell(6, b"x");
    assert_eq!(
        refusal(rows.end_row(), Kind::Column),
        "a row has 1 cells and the result 2 columns"
    );
    assert_eq!((rows.rows(), rows.bytes()), (0, 0));
    for _ in 0..3 {
        rows.null();
    }
    assert!(rows.end_row().is_err());
    rows.cell(6, b"y");
    rows.null();
    rows.end_row().unwrap();
    let batch = rows.finish();
    assert_eq!(batch.len(), 1);
    assert_eq!(batch.raw(0, 0), Some((6, &b"y"[..])));
}

#[test]
fn a_row_that_was_not_ended_is_left_out() {
    let mut rows = BatchBuilder::with_capacity(columns(&["a", "b"]), 2, 16);
    rows.cell(6, b"whole");
    rows.null();
    rows.end_row().unwrap();
    rows.null();
    rows.cell(6, b"half");
    assert_eq!((rows.rows(), rows.bytes()), (1, 9));
    let batch = rows.finish();
    assert_eq!(batch.len(), 1);
    assert_eq!(batch.raw(0, 0), Some((6, &b"whole"[..])));
    assert_eq!(batch.raw(0, 1), None);
    assert_eq!(batch.raw(1, 1), None);
    assert_eq!(batch.raw(0, 2), None);
    assert_eq!(batch.raw(usize::MAX, 0), None);
}

#[test]
fn a_cell_can_be_written_in_place() {
    let mut rows = BatchBuilder::new(columns(&["a"]));
    let answer = rows.cell_with(6, |cell| {
        cell.push(b"<");
        write!(cell as &mut dyn std::fmt::Write, "{}", 42).unwrap();
        cell.write_all(b">").unwrap();
        "done"
    });
    assert_eq!(answer, "done");
    rows.end_row().unwrap();
    assert_eq!(rows.finish().raw(0, 0), Some((6, &b"<42>"[..])));
}

#[test]
fn rows_and_batches_can_go_to_other_threads() {
    fn shared<T: Clone + Send + Sync + 'static>() {}
    shared::<Row>();
    shared::<Batch>();
    shared::<Value<'static>>();
}

#[test]
fn an_empty_text_is_not_null() {
    let row = single("");
    assert_eq!(row.get::<Option<&str>>(0).unwrap(), Some(""));
}

fn any_value() -> impl Strategy<Value = Value<'static>> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        any::<u64>().prop_map(Value::UInt),
        any::<f64>()
            .prop_filter("equal to itself", |n| !n.is_nan())
            .prop_map(Value::Float),
        ".*".prop_map(|text| Value::Text(text.into())),
        any::<Vec<u8>>().prop_map(|bytes| Value::Bytes(bytes.into())),
        any::<[u8; 16]>().prop_map(Value::Uuid),
        (any::<i32>(), 1..=12_u8, 1..=28_u8).prop_map(|(year, month, day)| Value::Date(Date {
            year,
            month,
            day
        })),
    ]
}

proptest! {
    #[test]
    fn all_values_come_back_as_they_were_written(
        rows in (0..5_usize).prop_flat_map(|width| {
            proptest::collection::vec(proptest::collection::vec(any_value(), width), 0..20)
        }),
    ) {
        let width = rows.first().map_or(0, Vec::len);
        let names: Vec<String> = (0..width).map(|n| format!("c{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let batch = batch(&names, &rows);
        prop_assert_eq!(batch.len(), rows.len());
        for (row, wanted) in batch.into_rows().zip(&rows) {
            let values: Vec<Value<'_>> = row.values().map(|value| value.unwrap()).collect();
            prop_assert_eq!(&values, wanted);
            for (name, value) in names.iter().zip(wanted) {
                prop_assert_eq!(&row.value(*name).unwrap(), value);
            }
        }
    }
}
