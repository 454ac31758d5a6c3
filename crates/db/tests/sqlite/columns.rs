//! What the SQLite driver reports about columns.

use crate::support::*;

#[tokio::test]
async fn a_column_has_the_type_it_was_declared_with() {
    let mut db = memory().await;
    exec(
        &mut db,
        "CREATE TABLE t (a VARCHAR(10), b DECIMAL(8, 2), c)",
    )
    .await;
    let expected = [Some("VARCHAR(10)"), Some("DECIMAL(8, 2)"), None, None];
    let sql = "SELECT a, b AS other, c, 1 + 1 FROM t";
    let of_rows = exec(&mut db, sql).await.rows.unwrap();
    let of_statement = db.prepare(sql).await.unwrap().columns;
    for columns in [of_rows.columns(), &of_statement] {
        let columns = columns.as_slice();
        let types: Vec<_> = columns.iter().map(|c| c.type_name.as_deref()).collect();
        assert_eq!(types, expected);
    }
}
