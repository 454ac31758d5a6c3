//! Errors: what they say, and whose they are.

use std::error::Error as _;
use std::sync::Arc;

use cenote::{Builder, Db, DbConfig, Error, Kind, Result, TransactionOptions, Violation, named};
use tokio::sync::Barrier;

use super::support::{TestDatabase, connection_id, insert, shop, shop_with};

const NOWHERE: &str = "INSERT INTO nowhere VALUES (1)";

/// D-core-016, D-core-029a, D-core-029c: SQLite's SQLSTATE for a missing table is the general one.
#[tokio::test]
async fn an_error_has_sqlstate_native_code_and_message() {
    let shop = shop(3).await;
    let error = shop.exec(NOWHERE, ()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Database);
    assert_eq!(error.sql_state(), Some("HY000"));
    assert_eq!(error.code(), Some(1));
    assert_eq!(error.violation(), Some(Violation::Undefined));
    assert_eq!(error.message(), "no such table: nowhere");
    let shown = error.to_string();
    assert!(
        shown.contains("HY000") && shown.contains("code 1"),
        "{shown}"
    );
    assert_eq!(shop.status().active, 0);
}

/// D-core-017a, D-core-017b: what the native code was is still known after the connection
/// has gone back.
#[tokio::test]
async fn last_error_has_all_details_with_nothing_bound_any_more() {
    let shop = shop(3).await;
    cenote::scope(async {
        shop.exec(NOWHERE, ()).await.unwrap_err();
        assert!(shop.peek().is_none());
        assert_eq!(shop.last_sql_state(), "HY000");
        let error = shop.last_error().expect("a call failed");
        assert_eq!(error.code(), Some(1));
        assert_eq!(error.message(), "no such table: nowhere");
    })
    .await;
}

/// D-core-019a, D-core-019b, B-032
#[tokio::test]
async fn last_error_of_a_task_is_never_seen_by_another_task() -> Result<()> {
    let shop = shop(1).await;
    let id = cenote::scope(async {
        insert(&shop, 1).await?;
        shop.exec("INSERT INTO t (id, n) VALUES (1, 1)", ())
            .await
            .unwrap_err();
        assert_eq!(shop.last_sql_state(), "23000");
        connection_id(&shop.outside()).await
    })
    .await?;
    cenote::scope(async {
        assert_eq!(shop.last_sql_state(), "00000");
        assert!(shop.last_error().is_none());
        assert_eq!(connection_id(&shop).await?, id);
        assert_eq!(shop.last_sql_state(), "00000");
        Ok(())
    })
    .await
}

/// D-core-020, B-033
#[tokio::test]
async fn the_error_state_on_a_fresh_connection_is_00000() -> Result<()> {
    let shop = shop(5).await;
    let barrier = Arc::new(Barrier::new(5));
    let tasks: Vec<_> = (0..5)
        .map(|_| {
            let (db, barrier) = (shop.db.clone(), Arc::clone(&barrier));
            cenote::spawn(async move {
                let _pin = db.pin().await?;
                barrier.wait().await;
                db.query("SELECT 1", ()).await?;
                Ok::<_, Error>((db.last_sql_state(), db.last_error().is_none()))
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap()?, ("00000".to_owned(), true));
    }
    assert_eq!(shop.status().total, 5);
    Ok(())
}

#[tokio::test]
async fn the_error_state_lasts_until_a_call_succeeds() -> Result<()> {
    let shop = shop(2).await;
    cenote::scope(async {
        shop.exec(NOWHERE, ()).await.unwrap_err();
        assert_eq!(shop.last_sql_state(), "HY000");
        insert(&shop, 1).await?;
        assert_eq!(shop.last_sql_state(), "00000");
        assert!(shop.last_error().is_none());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn every_sort_of_call_leaves_its_error() -> Result<()> {
    let shop = shop(2).await;
    let is_noted = |what: &str| {
        let error = shop.last_error();
        assert!(error.is_some(), "{what} leaves no error");
    };
    cenote::scope(async {
        shop.query("SELECT * FROM nowhere", ()).await.unwrap_err();
        is_noted("query");
        insert(&shop, 1).await?;
        shop.prepare("SELECT * FROM nowhere").await.unwrap_err();
        is_noted("prepare");
        insert(&shop, 1).await?;
        shop.stream("SELECT * FROM nowhere", ()).await.unwrap_err();
        is_noted("stream");
        insert(&shop, 1).await?;
        shop.exec_many("INSERT INTO nowhere VALUES (?)", [(1,)])
            .await
            .unwrap_err();
        is_noted("exec_many");
        insert(&shop, 1).await?;
        shop.exec("SELECT ?", ()).await.unwrap_err();
        is_noted("a call with the wrong parameters");
        insert(&shop, 1).await?;
        let statement = shop.prepare("INSERT INTO t (id) VALUES (1)").await?;
        statement.exec(()).await.unwrap_err();
        is_noted("a statement");
        let tx = shop.begin().await?;
        assert!(shop.last_error().is_none());
        tx.exec(NOWHERE, ()).await.unwrap_err();
        is_noted("a transaction");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_call_that_does_not_fit_its_sql_says_where_it_was_made() {
    let shop = shop(1).await;
    let line = line!() + 2;
    let errors = [
        shop.exec("SELECT ?", ()).await.unwrap_err(),
        shop.exec("SELECT 1\0", ()).await.unwrap_err(),
        shop.exec_many("SELECT ?", [()]).await.unwrap_err(),
        shop.exec_many("SELECT 1\0", [()]).await.unwrap_err(),
    ];
    for (error, line) in errors.iter().zip(line..) {
        let site = error.call_site().expect("a call failed");
        assert_eq!((site.file(), site.line()), (file!(), line), "{error}");
    }
}

#[tokio::test]
async fn a_call_that_gets_no_connection_leaves_its_error() {
    let shop = shop(1).await;
    cenote::scope(async {
        shop.close().await.unwrap();
        shop.query("SELECT 1", ()).await.unwrap_err();
        let error = shop.last_error().expect("a call failed");
        assert_eq!(error.kind(), Kind::Closed);
    })
    .await;
}

#[tokio::test]
async fn the_error_state_is_kept_for_each_handle() -> Result<()> {
    let (one, other) = (shop(1).await, shop(1).await);
    cenote::scope(async {
        one.exec(NOWHERE, ()).await.unwrap_err();
        insert(&other, 1).await?;
        assert_eq!(one.last_sql_state(), "HY000");
        assert_eq!(other.last_sql_state(), "00000");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn outside_of_coroutines_no_error_is_stored() {
    let shop = shop(1).await;
    shop.exec(NOWHERE, ()).await.unwrap_err();
    assert!(shop.last_error().is_none());
    assert_eq!(shop.last_sql_state(), "00000");
    let scope = cenote::scope(async { shop.last_error().is_none() });
    assert!(scope.await);
}

#[tokio::test]
async fn each_constraint_violation_has_its_own_kind() -> Result<()> {
    let shop = shop(1).await;
    let script = "CREATE TABLE parent (id INTEGER PRIMARY KEY);
                  CREATE TABLE child (
                      id INTEGER PRIMARY KEY, parent INTEGER REFERENCES parent,
                      name TEXT NOT NULL, age INTEGER CHECK (age > 0))";
    shop.exec(script, ()).await?;
    shop.exec("INSERT INTO child VALUES (1, NULL, 'a', 1)", ())
        .await?;
    let fails = async |sql| shop.exec(sql, ()).await.unwrap_err();
    let unique = fails("INSERT INTO child VALUES (1, NULL, 'b', 1)").await;
    assert!(unique.is_unique_violation());
    assert_eq!(unique.constraint(), Some("child.id"));
    assert_eq!(unique.sql_state(), Some("23000"));
    assert!(
        fails("INSERT INTO child VALUES (2, 9, 'b', 1)")
            .await
            .is_foreign_key_violation()
    );
    assert!(
        fails("INSERT INTO child VALUES (2, NULL, NULL, 1)")
            .await
            .is_not_null_violation()
    );
    assert!(
        fails("INSERT INTO child VALUES (2, NULL, 'b', 0)")
            .await
            .is_check_violation()
    );
    assert_eq!(fails("SELEC 1").await.violation(), Some(Violation::Syntax));
    Ok(())
}

#[tokio::test]
async fn a_malformed_dsn_is_a_configuration_error() {
    for dsn in ["", "nonsense", ":", "sqlite:file:a.db?mode"] {
        let error = Db::open(dsn).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Config, "{dsn}: {error}");
    }
}

#[tokio::test]
async fn unknown_driver_is_a_configuration_error_listing_known_ones() {
    let error = Db::open("oracle:host=x").await.unwrap_err();
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.message().contains("oracle"), "{error}");
    assert!(error.message().contains("sqlite"), "{error}");
}

/// D-lite-s012c
#[tokio::test]
async fn an_unknown_option_is_an_error_that_names_it() {
    let database = TestDatabase::new();
    let pooled = database.builder().option("busy_timout", "5s").open().await;
    let unpooled = database
        .builder()
        .unpooled()
        .option("busy_timout", "5s")
        .open()
        .await;
    let in_dsn = Db::open(&format!("{}?busy_timout=5s", database.dsn())).await;
    for opened in [pooled, unpooled, in_dsn] {
        let error = opened.unwrap_err();
        assert_eq!(error.kind(), Kind::Config);
        assert!(error.message().contains("busy_timout"), "{error}");
    }
}

#[tokio::test]
async fn an_unknown_pragma_is_an_error_that_names_it() {
    let database = TestDatabase::new();
    let builder = database.builder().option("pragma.no_such_thing", "1");
    let error = match builder.open().await {
        Ok(db) => db.exec("SELECT 1", ()).await.unwrap_err(),
        Err(error) => error,
    };
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.message().contains("no_such_thing"), "{error}");
}

#[tokio::test]
async fn senseless_settings_are_configuration_errors_that_name_them() {
    let database = TestDatabase::new();
    let refused = async |name: &str, builder: Builder| {
        let error = builder.open().await.unwrap_err();
        assert_eq!(error.kind(), Kind::Config, "{name}");
        assert!(error.message().contains(name), "{name}: {error}");
    };
    refused("max", database.builder().max(0)).await;
    refused("min", database.builder().min(3).max(2)).await;
    refused("min", database.builder().unpooled().min(1)).await;
    refused("lifetime_jitter", database.builder().lifetime_jitter(2.0)).await;
    refused("max_creating", database.builder().max_creating(0)).await;
    let zero = std::time::Duration::ZERO;
    refused(
        "statement_timeout",
        database.builder().statement_timeout(zero),
    )
    .await;
    refused("connect_timeout", database.builder().connect_timeout(zero)).await;
    let mut config = DbConfig::new(database.dsn());
    config.acquire_timeout = Some(zero);
    refused("acquire_timeout", Builder::from_config(config)).await;
}

#[tokio::test]
async fn parameters_that_do_not_fit_are_an_error_before_sending() {
    let shop = shop(1).await;
    let refused = |error: Error, says: &str| {
        assert_eq!(error.kind(), Kind::Parameters, "{error}");
        assert!(error.message().contains(says), "{error}");
    };
    refused(
        shop.exec("SELECT ?, ?", (1,)).await.unwrap_err(),
        "2 placeholders",
    );
    refused(shop.exec("SELECT ?", (1, 2)).await.unwrap_err(), "2 values");
    refused(
        shop.exec("SELECT 1", (1,)).await.unwrap_err(),
        "no placeholders",
    );
    refused(
        shop.exec("SELECT :min", named! { max: 1 })
            .await
            .unwrap_err(),
        ":max",
    );
    refused(
        shop.exec("SELECT :min", named! {}).await.unwrap_err(),
        ":min",
    );
    refused(
        shop.exec("SELECT :min", named! { min: 1, x: 2 })
            .await
            .unwrap_err(),
        ":x",
    );
    refused(shop.exec("SELECT :min", (1,)).await.unwrap_err(), ":min");
    refused(
        shop.exec("SELECT ?", named! { min: 1 }).await.unwrap_err(),
        ":min",
    );
    refused(
        shop.exec("SELECT ?; SELECT 2", (1,)).await.unwrap_err(),
        "script",
    );
    let sets = shop
        .exec_many("INSERT INTO t (n) VALUES (?)", [vec![1], vec![1, 2]])
        .await;
    refused(sets.unwrap_err(), "2 values");
    assert_eq!(shop.status().total, 0, "nothing was sent");
}

#[tokio::test]
async fn a_wrong_type_and_an_unknown_column_name_the_column() -> Result<()> {
    let shop = shop(1).await;
    let row = shop
        .query_one("SELECT 'ada' AS name, NULL AS age", ())
        .await?;
    let error = row.get::<i64>("name").unwrap_err();
    assert_eq!(error.kind(), Kind::Type);
    assert!(error.message().contains("name"), "{error}");
    let error = row.get::<i64>("age").unwrap_err();
    assert_eq!(error.kind(), Kind::Type);
    assert_eq!(row.get::<Option<i64>>("age")?, None);
    let error = row.get::<String>("surname").unwrap_err();
    assert_eq!(error.kind(), Kind::Column);
    assert!(error.message().contains("surname"), "{error}");
    assert_eq!(row.get::<String>(7).unwrap_err().kind(), Kind::Column);
    let error = shop.query_as::<i64>("SELECT 'ada'", ()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Type);
    Ok(())
}

#[tokio::test]
async fn too_few_and_too_many_rows_have_kinds_of_their_own() -> Result<()> {
    let shop = shop(1).await;
    let error = shop.query_one("SELECT 1 WHERE 0", ()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NoRows);
    let two = "SELECT 1 UNION SELECT 2";
    assert_eq!(
        shop.query_one(two, ()).await.unwrap_err().kind(),
        Kind::TooManyRows
    );
    assert_eq!(
        shop.query_opt(two, ()).await.unwrap_err().kind(),
        Kind::TooManyRows
    );
    assert!(shop.query_opt("SELECT 1 WHERE 0", ()).await?.is_none());
    Ok(())
}

#[tokio::test]
async fn callers_own_error_leaves_a_transaction_unchanged() {
    #[derive(Debug, PartialEq)]
    enum Refused {
        TooPoor(i64),
        Database,
    }
    impl From<Error> for Refused {
        fn from(_: Error) -> Self {
            Refused::Database
        }
    }
    let shop = shop(1).await;
    let done = shop
        .try_transaction(async || {
            insert(&shop, 1).await?;
            Err::<(), _>(Refused::TooPoor(7))
        })
        .await;
    assert_eq!(done, Err(Refused::TooPoor(7)));
    let done = shop
        .try_transaction(async || {
            shop.exec(NOWHERE, ()).await?;
            Ok::<(), Refused>(())
        })
        .await;
    assert_eq!(done, Err(Refused::Database));
    let read_only = TransactionOptions::new().read_only();
    let done = read_only
        .on(&shop)
        .try_run(async || {
            insert(&shop, 1).await?;
            Err::<(), _>(Refused::TooPoor(7))
        })
        .await;
    assert_eq!(done, Err(Refused::Database));

    #[derive(Debug)]
    struct Own(u8);
    impl std::fmt::Display for Own {
        fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            out.write_str("my own")
        }
    }
    impl std::error::Error for Own {}
    let done: Result<()> = shop.transaction(async || Err(Error::other(Own(3)))).await;
    let error = done.unwrap_err();
    assert_eq!(error.kind(), Kind::Other);
    assert_eq!(error.downcast_ref::<Own>().map(|own| own.0), Some(3));
    assert_eq!(error.to_string(), "my own");
    assert!(error.source().is_none(), "it would say the same");
}

/// D-lite-s015c, D-lite-s003b
#[tokio::test]
async fn a_commit_without_a_transaction_says_that_none_is_open() {
    let shop = shop(1).await;
    for sql in ["COMMIT", "ROLLBACK"] {
        let error = shop.exec(sql, ()).await.unwrap_err();
        assert_eq!(error.sql_state(), Some("HY000"));
        assert!(
            error.message().contains("no transaction is active"),
            "{error}"
        );
        let error = cenote::scope(async { shop.exec(sql, ()).await })
            .await
            .unwrap_err();
        assert!(
            error.message().contains("no transaction is active"),
            "{error}"
        );
    }
    assert_eq!(shop.status().active, 0);
}

#[tokio::test]
async fn a_secret_in_a_dsn_is_in_no_message_and_no_debug_output() {
    let database = TestDatabase::new();
    let dsn = format!("{}?busy_timeout=hunter2", database.dsn());
    let error = Db::open(&dsn).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Config);
    let shop = shop_with(|builder| builder.user("app").password("hunter2")).await;
    for shown in [format!("{:?}", shop.db), format!("{:?}", shop.config())] {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
