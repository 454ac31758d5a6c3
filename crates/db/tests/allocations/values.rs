//! What reading rows costs: no allocation.

use cenote::driver::BatchBuilder;
use cenote::sql::Placeholders;
use cenote::{IntoParams, Row, Value, from_row};

use crate::counting::allocations;

const ROWS: usize = 1000;

fn thousand_rows() -> cenote::driver::Batch {
    let rows: Vec<Vec<Value<'_>>> = (0..1000_i64)
        .map(|n| vec![n.into(), format!("name {n}").into()])
        .collect();
    crate::values_support::batch(&["id", "name"], &rows)
}

#[test]
fn reading_rows_by_position_or_name_allocates_nothing() {
    let rows: Vec<Row> = thousand_rows().into_rows().collect();
    let (mut sum, mut length) = (0, 0);
    let count = allocations(|| {
        for row in &rows {
            sum += row.get::<i64>(0).unwrap() + row.get::<i64>("ID").unwrap();
            length += row.get::<&str>("name").unwrap().len();
            length += row.get::<Option<&str>>(1).unwrap().map_or(0, str::len);
        }
    });
    assert_eq!(count, 0);
    assert_eq!(sum, 999_000);
    assert_eq!(length, 2 * (5 * ROWS + 10 + 2 * 90 + 3 * 900));
}

#[test]
fn a_batch_becomes_rows_without_an_allocation_for_each() {
    let batch = thousand_rows();
    // One for the vector.
    let count = allocations(|| {
        let rows: Vec<Row> = batch.into_rows().collect();
        assert_eq!(rows.len(), ROWS);
    });
    assert_eq!(count, 1);
}

#[test]
fn a_small_row_is_one_allocation() {
    let columns = thousand_rows().columns().clone();
    let count = allocations(|| {
        let mut rows = BatchBuilder::with_capacity(columns, 1, 20);
        rows.cell(0, &7_i64.to_be_bytes());
        rows.cell(1, b"ada");
        rows.end_row().unwrap();
        let row = rows.finish().into_rows().next().unwrap();
        assert!(row.raw(1).is_ok());
    });
    assert_eq!(count, 1);
}

#[test]
fn a_struct_that_borrows_is_read_without_an_allocation() {
    #[derive(serde::Deserialize)]
    struct User<'r> {
        id: i64,
        name: &'r str,
    }

    let rows: Vec<Row> = thousand_rows().into_rows().collect();
    let mut sum = 0;
    let count = allocations(|| {
        for row in &rows {
            let user: User<'_> = from_row(row).unwrap();
            sum += user.id;
            assert!(user.name.starts_with("name "));
        }
    });
    assert_eq!(count, 0);
    assert_eq!(sum, 499_500);
}

#[test]
fn parameters_cost_the_vector_that_holds_them() {
    let name = String::from("ada");
    let mut bound = Vec::new();
    let count = allocations(|| {
        let params = (1, &name, None::<i64>).into_params().unwrap();
        bound = params.bind(&Placeholders::Positional(3)).unwrap();
    });
    assert_eq!(count, 1);
    assert_eq!(bound.len(), 3);
    let ids = vec![1_i64; 100];
    let count = allocations(|| drop((&ids).into_params().unwrap()));
    assert_eq!(count, 1);
}
