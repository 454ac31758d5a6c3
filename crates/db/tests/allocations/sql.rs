//! What a scan costs: no allocation, unless the text has to be rewritten.

use std::hint::black_box;

use cenote::sql::{Dialect, scan};

use crate::counting::allocations;

/// How often a scan of this text allocates.
fn scan_allocations(dialect: &Dialect, sql: &str) -> usize {
    allocations(|| assert!(scan(dialect, black_box(sql)).is_ok(), "{sql}"))
}

#[test]
fn a_text_that_is_sent_as_it_is_costs_no_allocation() {
    let plain = "SELECT set_config('a', \"b\", 1) FROM t -- ?\n WHERE c IN (1, 2); SET x = 1";
    for dialect in [
        &Dialect::SQLITE,
        &Dialect::POSTGRES,
        &Dialect::MYSQL,
        &Dialect::ODBC,
    ] {
        assert_eq!(scan_allocations(dialect, plain), 0, "{}", dialect.name);
    }
    let questions = "INSERT INTO t VALUES (?, ?, '?', ?)";
    for dialect in [&Dialect::SQLITE, &Dialect::MYSQL, &Dialect::ODBC] {
        assert_eq!(scan_allocations(dialect, questions), 0, "{}", dialect.name);
    }
    assert_eq!(scan_allocations(&Dialect::SQLITE, "SELECT ?2, ?1"), 0);
    assert_eq!(scan_allocations(&Dialect::POSTGRES, "SELECT $2, $1"), 0);
}

#[test]
fn rewritten_text_costs_one_allocation_and_its_names_another() {
    assert_eq!(scan_allocations(&Dialect::POSTGRES, "SELECT ?, ?, ?"), 1);
    assert_eq!(scan_allocations(&Dialect::POSTGRES, "SELECT :a, :b, :a"), 2);
    assert_eq!(scan_allocations(&Dialect::MYSQL, "SELECT :a, :b, :a"), 2);
}
