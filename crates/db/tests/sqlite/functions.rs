//! Functions, aggregates and collations of the application.

use std::sync::Arc;

use cenote::sqlite::{Arguments, LateFunctions, Sqlite};
use cenote::{Error, Kind, Result, Value};

use crate::support::*;

fn driver() -> Sqlite {
    Sqlite::new()
        .function("double", 1, true, |args| Ok(args.get::<i64>(0)? * 2))
        .function("double", 2, true, |args| {
            Ok(format!("{}{}", args.get::<&str>(0)?, args.get::<&str>(1)?).repeat(2))
        })
        .variadic_function("how_many", true, |args| Ok(args.len()))
        .aggregate(
            "product",
            1,
            true,
            || 1_i64,
            |product, args| {
                *product *= args.get::<i64>(0)?;
                Ok(())
            },
            Ok,
        )
        .collation("backwards", |a, b| b.cmp(a))
}

/// D-lite-010, D-lite-012, D-lite-s004a, D-lite-s005a.
#[tokio::test]
async fn every_connection_knows_them() {
    let template = try_template(&driver(), &shared_memory()).unwrap();
    let mut first = connect(&template).await;
    exec(&mut first, "CREATE TABLE t (a)").await;
    exec(&mut first, "INSERT INTO t VALUES ('x'), ('z'), ('y')").await;
    for mut db in [first, connect(&template).await] {
        assert_eq!(one::<i64>(&mut db, "SELECT double(21)").await, 42);
        assert_eq!(
            one::<String>(&mut db, "SELECT double('a', 'b')").await,
            "abab"
        );
        assert_eq!(one::<i64>(&mut db, "SELECT how_many(1, 2, 3)").await, 3);
        assert_eq!(one::<i64>(&mut db, "SELECT how_many()").await, 0);
        let product = "SELECT product(column1) FROM (VALUES (2), (3), (7))";
        assert_eq!(one::<i64>(&mut db, product).await, 42);
        assert_eq!(one::<i64>(&mut db, "SELECT product(1) WHERE 0").await, 1);
        let ordered = exec(&mut db, "SELECT a FROM t ORDER BY a COLLATE backwards").await;
        assert_eq!(column::<String>(ordered.rows.unwrap()), ["z", "y", "x"]);
    }
}

#[tokio::test]
async fn values_go_in_and_come_out_as_neutral_ones() {
    let echo = |args: &Arguments<'_>| Ok(args.get::<Value<'_>>(0)?.into_owned());
    let driver = Sqlite::new()
        .function("echo", 1, true, echo)
        .function("shown", 1, true, |args| Ok(format!("{args:?}")));
    let mut db = open_with(&driver, "sqlite::memory:").await;
    for value in ["NULL", "-7", "1.5", "'grüß'", "x'00ff'"] {
        let sql =
            format!("SELECT echo({value}) IS {value} AND typeof(echo({value})) = typeof({value})");
        assert!(one::<bool>(&mut db, &sql).await, "{value}");
    }
    let shown = one::<String>(&mut db, "SELECT shown('x')").await;
    assert!(shown.contains("Text(\"x\")"), "{shown}");
}

/// D-lite-014, D-lite-s004b.
#[test]
fn same_function_name_and_arity_twice_is_an_error_naming_both() {
    let twice = driver().function("DOUBLE", 2, false, |_| Ok(0));
    let error = try_template(&twice, "sqlite::memory:").unwrap_err();
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.message().contains("DOUBLE"), "{error}");
    assert!(error.message().contains("2 arguments"), "{error}");

    let as_aggregate = driver().aggregate("double", 1, true, || 0, |_, _| Ok(()), Ok);
    let error = try_template(&as_aggregate, "sqlite::memory:").unwrap_err();
    assert!(error.message().contains("1 argument "), "{error}");

    let any = driver().variadic_function("how_many", true, |_| Ok(0));
    let error = try_template(&any, "sqlite::memory:").unwrap_err();
    assert!(
        error.message().contains("any number of arguments"),
        "{error}"
    );

    let collation = driver().collation("Backwards", |a, b| a.cmp(b));
    let error = try_template(&collation, "sqlite::memory:").unwrap_err();
    assert!(error.message().contains("Backwards"), "{error}");

    let another = driver().function("double", 3, true, |_| Ok(0));
    try_template(&another, "sqlite::memory:").unwrap();
}

#[test]
fn a_name_that_cannot_be_is_an_error() {
    for name in ["", "nul\0nul", "x".repeat(256).as_str()] {
        let driver = Sqlite::new().function(name, 0, true, |_| Ok(0));
        let error = try_template(&driver, "sqlite::memory:").unwrap_err();
        assert_eq!(error.kind(), Kind::Config);
        let driver = Sqlite::new().collation(name, |a, b| a.cmp(b));
        assert!(try_template(&driver, "sqlite::memory:").is_err());
    }
}

#[tokio::test]
async fn an_error_of_a_function_is_the_statements() {
    let driver = Sqlite::new()
        .function("fail", 0, false, |_| -> Result<i64> {
            Err(Error::other("no luck today"))
        })
        .function("third", 1, false, |args| args.get::<i64>(2))
        .function("too_large", 0, false, |_| Ok(u64::MAX));
    let mut db = open_with(&driver, "sqlite::memory:").await;
    for (sql, expected) in [
        ("SELECT fail()", "no luck today"),
        ("SELECT third(1)", "no argument 2"),
        ("SELECT too_large()", "too large"),
    ] {
        let error = try_exec(&mut db, sql).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Database);
        assert!(error.message().contains(expected), "{error}");
    }
    assert!(!db.is_broken());
}

#[tokio::test]
async fn a_panicking_function_is_an_error_and_the_connection_goes_on() {
    let driver = Sqlite::new()
        .function("explode", 0, false, |_| -> Result<i64> { panic!("a bug") })
        .aggregate("explode_all", 1, false, || 0, |_, _| panic!("a bug"), Ok);
    let mut db = open_with(&driver, "sqlite::memory:").await;
    exec(&mut db, "CREATE TABLE t (a)").await;
    for sql in ["INSERT INTO t VALUES (explode())", "SELECT explode_all(1)"] {
        let error = try_exec(&mut db, sql).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Database);
        assert!(error.message().contains("panic"), "{error}");
    }
    assert!(!db.is_broken());
    assert_eq!(one::<i64>(&mut db, "SELECT count(*) FROM t").await, 0);
}

#[tokio::test]
async fn panicking_collation_fails_its_statement_and_the_connection() {
    let driver = Sqlite::new().collation("touchy", |a, b| {
        assert!(a != "x" && b != "x", "a bug");
        a.cmp(b)
    });
    let mut db = open_with(&driver, "sqlite::memory:").await;
    let fine = "SELECT * FROM (VALUES ('a'), ('b')) ORDER BY 1 COLLATE touchy";
    exec(&mut db, fine).await;
    let wrong = "SELECT * FROM (VALUES ('a'), ('x')) ORDER BY 1 COLLATE touchy";
    let error = try_exec(&mut db, wrong).await.unwrap_err();
    assert!(error.message().contains("touchy"), "{error}");
    assert!(db.is_broken());
}

/// D-lite-020.
#[tokio::test]
async fn what_functions_hold_goes_with_the_last_connection() {
    let held = Arc::new(());
    let in_function = Arc::clone(&held);
    let driver = Sqlite::new().function("hold", 0, true, move |_| {
        Ok(Arc::strong_count(&in_function))
    });
    let template = try_template(&driver, "sqlite::memory:").unwrap();
    let mut db = connect(&template).await;
    exec(&mut db, "SELECT hold()").await;
    let thread = sqlite(&mut db).take_thread().unwrap();
    drop(db);
    thread.join().unwrap();
    drop((template, driver));
    assert_eq!(Arc::strong_count(&held), 1);
}

#[tokio::test]
async fn late_function_reaches_open_connections_and_replaces() {
    let late = LateFunctions::new();
    let driver = Sqlite::new().late_functions(&late);
    let template = try_template(&driver, &shared_memory()).unwrap();
    let mut open = connect(&template).await;
    assert!(try_exec(&mut open, "SELECT times(7)").await.is_err());

    let times = |by: i64| {
        let driver = Sqlite::new();
        driver.function("times", 1, true, move |args| Ok(args.get::<i64>(0)? * by))
    };
    late.add(times(2)).unwrap();
    let backwards = Sqlite::new().collation("backwards", |a, b| b.cmp(a));
    late.add(backwards).unwrap();
    let sorted = "SELECT * FROM (VALUES ('a'), ('b')) ORDER BY 1 COLLATE backwards";
    for db in [&mut open, &mut connect(&template).await] {
        assert_eq!(one::<i64>(db, "SELECT times(7)").await, 14);
        let rows = exec(db, sorted).await.rows.unwrap();
        assert_eq!(column::<String>(rows), ["b", "a"]);
    }
    // Also in statements that are kept prepared, and that have run inline.
    for _ in 0..50 {
        assert_eq!(one::<i64>(&mut open, "SELECT times(7)").await, 14);
    }
    late.add(times(3)).unwrap();
    assert_eq!(one::<i64>(&mut open, "SELECT times(7)").await, 21);
}

#[tokio::test]
async fn late_function_with_an_impossible_name_adds_nothing() {
    let late = LateFunctions::new();
    let wrong = Sqlite::new()
        .function("fine", 0, true, |_| Ok(1))
        .function("", 0, true, |_| Ok(1));
    assert_eq!(late.add(wrong).unwrap_err().kind(), Kind::Config);
    let mut db = open_with(&Sqlite::new().late_functions(&late), "sqlite::memory:").await;
    assert!(try_exec(&mut db, "SELECT fine()").await.is_err());
}

#[tokio::test]
async fn variadic_aggregate_takes_any_number_of_arguments() {
    let add = |count: &mut i64, args: &Arguments<'_>| {
        *count += i64::try_from(args.len()).unwrap();
        Ok(())
    };
    let driver = Sqlite::new().variadic_aggregate("counted", true, || 0, add, Ok);
    let mut db = open_with(&driver, "sqlite::memory:").await;
    let rows = "FROM (VALUES (1), (2), (3))";
    assert_eq!(
        one::<i64>(&mut db, &format!("SELECT counted() {rows}")).await,
        0
    );
    assert_eq!(
        one::<i64>(&mut db, &format!("SELECT counted(1, 2) {rows}")).await,
        6
    );
}
