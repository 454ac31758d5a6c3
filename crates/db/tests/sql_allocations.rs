//! What a scan costs: no allocation, unless the text has to be rewritten.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

use cenote::sql::{Dialect, scan};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// How often a scan of this text allocates.
fn allocations(dialect: &Dialect, sql: &str) -> usize {
    let before = ALLOCATIONS.get();
    let scanned = scan(dialect, black_box(sql));
    let count = ALLOCATIONS.get() - before;
    assert!(scanned.is_ok(), "{sql}");
    count
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
        assert_eq!(allocations(dialect, plain), 0, "{}", dialect.name);
    }
    let questions = "INSERT INTO t VALUES (?, ?, '?', ?)";
    for dialect in [&Dialect::SQLITE, &Dialect::MYSQL, &Dialect::ODBC] {
        assert_eq!(allocations(dialect, questions), 0, "{}", dialect.name);
    }
    assert_eq!(allocations(&Dialect::SQLITE, "SELECT ?2, ?1"), 0);
    assert_eq!(allocations(&Dialect::POSTGRES, "SELECT $2, $1"), 0);
}

#[test]
fn a_text_that_is_rewritten_costs_one_allocation_and_its_names_another() {
    assert_eq!(allocations(&Dialect::POSTGRES, "SELECT ?, ?, ?"), 1);
    assert_eq!(allocations(&Dialect::POSTGRES, "SELECT :a, :b, :a"), 2);
    assert_eq!(allocations(&Dialect::MYSQL, "SELECT :a, :b, :a"), 2);
}
