//! What the list says of SQLite's own driver.

use std::sync::{Arc, Mutex};

use cenote::{Db, Error, Kind, Result};
use tokio::sync::Barrier;

use super::support::{
    Shop, TestDatabase, connection_id, count, insert, numbered, numbers, quiet, replaced, shop,
    shop_with, soon, watched_shop,
};

/// A name for a shared database in memory that no other test uses.
fn memory(name: &str) -> String {
    format!("sqlite:file:conformance-{name}?mode=memory&cache=shared")
}

async fn five_rows() -> Shop {
    let shop = shop(4).await;
    let sets = (1..=5).map(|n| (n, n * 10));
    shop.exec_many("INSERT INTO t (id, n) VALUES (?, ?)", sets)
        .await
        .unwrap();
    shop
}

/// D-lite-001
#[tokio::test]
async fn handle_over_a_file_opens_and_answers_a_query_in_a_task() -> Result<()> {
    let shop = shop(4).await;
    insert(&shop, 7).await?;
    let db = shop.db.clone();
    let task = cenote::spawn(async move { db.query_as_one::<i64>("SELECT n FROM t", ()).await });
    assert_eq!(task.await.unwrap()?, 7);
    Ok(())
}

/// D-lite-002
#[tokio::test]
async fn more_tasks_than_connections_read_each_its_own_row() -> Result<()> {
    let shop = five_rows().await;
    let tasks: Vec<_> = (1..=5_i64)
        .map(|id| {
            let db = shop.db.clone();
            cenote::spawn(async move {
                db.query_as_one::<i64>("SELECT n FROM t WHERE id = ?", (id,))
                    .await
            })
        })
        .collect();
    let mut found = Vec::new();
    for task in tasks {
        found.push(task.await.unwrap()?);
    }
    assert_eq!(found, [10, 20, 30, 40, 50]);
    Ok(())
}

/// D-lite-003a, D-lite-003b
#[tokio::test]
async fn abandoned_transaction_neither_blocks_nor_leaks_into_the_next() -> Result<()> {
    let shop = shop(4).await;
    let db = shop.db.clone();
    let abandons = cenote::spawn(async move {
        let tx = db.begin().await?;
        insert(&db, 1).await?;
        let in_transaction = db.in_transaction();
        std::mem::forget(tx);
        Ok::<bool, Error>(in_transaction)
    });
    assert!(abandons.await.unwrap()?);
    let db = shop.db.clone();
    let commits = cenote::spawn(async move {
        let tx = db.begin().await?;
        insert(&db, 2).await?;
        tx.commit().await?;
        Ok::<bool, Error>(db.in_transaction())
    });
    assert!(!commits.await.unwrap()?);
    assert_eq!(numbers(&shop).await, [2]);
    Ok(())
}

/// D-lite-004
#[tokio::test]
async fn only_what_was_committed_is_read_by_another_task() -> Result<()> {
    let shop = shop(4).await;
    cenote::scope(async {
        let tx = shop.begin().await?;
        insert(&shop, 1).await?;
        tx.commit().await?;
        let tx = shop.begin().await?;
        insert(&shop, 2).await?;
        tx.rollback().await
    })
    .await?;
    let db = shop.db.clone();
    let read = cenote::spawn(async move { numbers(&db).await });
    assert_eq!(read.await.unwrap(), [1]);
    Ok(())
}

/// D-lite-005
#[tokio::test]
async fn a_task_that_ends_with_an_open_transaction_leaves_no_rows() -> Result<()> {
    let shop = shop(4).await;
    let db = shop.db.clone();
    let task = cenote::spawn(async move {
        db.exec("BEGIN", ()).await?;
        insert(&db, 1).await
    });
    task.await.unwrap()?;
    assert_eq!(count(&shop).await, 0);
    Ok(())
}

/// D-lite-006
#[tokio::test]
async fn at_max_1_two_transactions_never_hold_at_the_same_time() -> Result<()> {
    let shop = shop(1).await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let task = |n: i64| {
        let (db, order) = (shop.db.clone(), Arc::clone(&order));
        cenote::spawn(async move {
            let tx = db.begin().await?;
            order.lock().unwrap().push((n, "enter"));
            insert(&db, n).await?;
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            order.lock().unwrap().push((n, "holding"));
            tx.commit().await
        })
    };
    let (one, other) = (task(0), task(1));
    one.await.unwrap()?;
    other.await.unwrap()?;
    let expected = [(0, "enter"), (0, "holding"), (1, "enter"), (1, "holding")];
    assert_eq!(*order.lock().unwrap(), expected);
    Ok(())
}

/// D-lite-007
#[tokio::test]
async fn connections_made_in_advance_serve_the_tasks() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.min(2).max(2)).await;
    assert_eq!(wire.opened(), 2);
    insert(&shop, 1).await?;
    let barrier = Arc::new(Barrier::new(2));
    let task = || {
        let (db, barrier) = (shop.db.clone(), Arc::clone(&barrier));
        cenote::spawn(async move {
            let _pin = db.pin().await?;
            barrier.wait().await;
            db.query_as_one::<i64>("SELECT n FROM t", ()).await
        })
    };
    let (one, other) = (task(), task());
    assert_eq!((one.await.unwrap()?, other.await.unwrap()?), (1, 1));
    assert_eq!(wire.opened(), 2);
    Ok(())
}

/// D-lite-008
#[tokio::test]
async fn all_connections_see_a_shared_database_in_memory() -> Result<()> {
    let db = numbered(Db::builder(&memory("shared")).max(3))
        .open()
        .await?;
    db.exec("CREATE TABLE t (n INTEGER)", ()).await?;
    insert(&db, 1).await?;
    let connections = [
        db.connection().await?,
        db.connection().await?,
        db.connection().await?,
    ];
    for connection in &connections {
        let n: i64 = connection.query_as_one("SELECT n FROM t", ()).await?;
        assert_eq!(n, 1);
    }
    Ok(())
}

/// D-lite-008: also while the pool has no connection at all.
#[tokio::test]
async fn a_shared_database_in_memory_lives_as_long_as_its_handle() -> Result<()> {
    let db = Db::builder(&memory("lives-on")).max(2).open().await?;
    db.exec("CREATE TABLE t (n INTEGER)", ()).await?;
    insert(&db, 1).await?;
    db.replace_all();
    replaced(&db, 1).await;
    assert_eq!(numbers(&db).await, [1]);
    cenote::scope(async { db.exec("PRAGMA cache_size = 3", ()).await }).await?;
    quiet(&db).await;
    assert_eq!(numbers(&db).await, [1]);
    Ok(())
}

/// D-lite-009, D-lite-s001a
#[tokio::test]
async fn a_private_database_in_memory_cannot_be_pooled() -> Result<()> {
    for dsn in [
        "sqlite::memory:",
        "sqlite:",
        "sqlite:file::memory:",
        "sqlite:file:?mode=memory",
        "sqlite:file:name?mode=memory",
        "sqlite:file::memory:?mode=memory",
    ] {
        let error = Db::open(dsn).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Config, "{dsn}");
        assert!(error.message().contains("memory"), "{dsn}: {error}");
        let unpooled = Db::builder(dsn).unpooled().open().await;
        unpooled
            .unwrap_or_else(|error| panic!("{dsn}: {error}"))
            .ping()
            .await?;
    }
    Ok(())
}

/// D-lite-s001b
#[tokio::test]
async fn a_shared_database_in_memory_can_be_pooled_in_every_spelling() -> Result<()> {
    for dsn in [
        "sqlite:file::memory:?cache=shared",
        "sqlite:file:conformance-a?mode=memory&cache=shared",
        "sqlite:file:conformance-b?cache=shared&mode=memory",
    ] {
        for min in [0, 1] {
            let db = Db::builder(dsn).min(min).open().await?;
            db.exec("SELECT 1", ()).await?;
            assert_eq!(db.status().total, 1, "{dsn}");
        }
    }
    Ok(())
}

/// D-lite-018, D-lite-s002: it is SQLite's to refuse, because nothing here has allowed it.
#[tokio::test]
async fn an_extension_cannot_be_loaded() {
    let shop = shop(1).await;
    cenote::scope(async {
        let error = shop
            .query("SELECT load_extension('nothing')", ())
            .await
            .unwrap_err();
        assert_eq!(error.kind(), Kind::Database);
        assert!(error.message().contains("not authorized"), "{error}");
    })
    .await;
}

/// D-lite-019
#[tokio::test]
async fn tasks_that_insert_in_transactions_get_each_its_own_id() -> Result<()> {
    let shop = shop(2).await;
    let task = || {
        let db = shop.db.clone();
        cenote::spawn(async move {
            let tx = db.begin().await?;
            let id = insert(&db, 1).await?.last_insert_id;
            tx.commit().await?;
            Ok::<_, Error>(id)
        })
    };
    let (one, other) = (task(), task());
    let mut ids = [one.await.unwrap()?, other.await.unwrap()?];
    ids.sort_unstable();
    assert_eq!(ids, [Some(1), Some(2)]);
    Ok(())
}

/// D-lite-s003a
#[tokio::test]
async fn tasks_on_a_file_with_a_shared_cache_read_back_their_writes() -> Result<()> {
    let database = TestDatabase::new();
    let dsn = format!("sqlite:file:{}?cache=shared", database.path("shared.db"));
    let db = Db::builder(&dsn).min(1).max(2).open().await?;
    let create = "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER)";
    db.transaction(async || db.exec(create, ()).await).await?;
    let task = |n: i64| {
        let db = db.clone();
        cenote::spawn(async move {
            let tx = db.begin().await?;
            let insert = db.prepare("INSERT INTO t (n) VALUES (?)").await?;
            let id = insert.exec((n,)).await?.last_insert_id;
            tx.commit().await?;
            let select = db.prepare("SELECT n FROM t WHERE id = ?").await?;
            select.query_as::<i64>((id,)).await
        })
    };
    let (one, other) = (task(10), task(20));
    let both = soon("both end", async { (one.await, other.await) }).await;
    assert_eq!(both.0.unwrap()?, [10]);
    assert_eq!(both.1.unwrap()?, [20]);
    assert_eq!(numbers(&db).await, [10, 20]);
    Ok(())
}

/// D-lite-s003b
#[tokio::test]
async fn the_state_is_00000_after_success_and_hy000_after_a_failure() -> Result<()> {
    let shop = shop(2).await;
    cenote::scope(async {
        insert(&shop, 1).await?;
        assert_eq!(shop.last_sql_state(), "00000");
        let error = shop
            .exec("INSERT INTO nowhere VALUES (1)", ())
            .await
            .unwrap_err();
        assert_eq!(error.sql_state(), Some("HY000"));
        assert_eq!(shop.last_sql_state(), "HY000");
        Ok(())
    })
    .await
}

/// D-lite-s012c, B-012: an option that is given reaches every connection, also those that are
/// opened later.
#[tokio::test]
async fn options_reach_every_connection() -> Result<()> {
    let shop = shop_with(|builder| {
        let builder = builder.min(1).max(3).option("cache_size", "444");
        builder.option("pragma.secure_delete", "1")
    })
    .await;
    let connections = [
        shop.connection().await?,
        shop.connection().await?,
        shop.connection().await?,
    ];
    for connection in &connections {
        let size: i64 = connection
            .query_as_one("SELECT * FROM pragma_cache_size", ())
            .await?;
        let secure: i64 = connection
            .query_as_one("SELECT * FROM pragma_secure_delete", ())
            .await?;
        assert_eq!((size, secure), (444, 1));
    }
    Ok(())
}

/// B-012: read-only is a matter of safety.
#[tokio::test]
async fn a_read_only_handle_cannot_write_on_any_connection() -> Result<()> {
    let shop = shop(1).await;
    insert(&shop, 1).await?;
    let db = Db::builder(&shop.database.dsn())
        .max(2)
        .option("mode", "ro")
        .open()
        .await?;
    let connections = [db.connection().await?, db.connection().await?];
    for connection in &connections {
        let error = connection
            .exec("INSERT INTO t (n) VALUES (2)", ())
            .await
            .unwrap_err();
        assert_eq!(
            error.violation(),
            Some(cenote::Violation::Permission),
            "{error}"
        );
    }
    drop(connections);
    assert_eq!(numbers(&db).await, [1]);
    Ok(())
}

/// D-lite-s013a, B-018
#[tokio::test]
async fn the_size_of_the_statement_cache_opens_nothing() {
    for size in [0, 8, 64] {
        let shop = shop_with(|builder| builder.statement_cache(size)).await;
        let status = shop.status();
        assert_eq!((status.total, status.idle, status.active), (0, 0, 0));
    }
}

/// D-lite-s013b
#[tokio::test]
async fn with_a_statement_cache_a_prepared_select_returns_its_row() -> Result<()> {
    let shop = shop_with(|builder| builder.statement_cache(8)).await;
    for n in 0..3 {
        let statement = shop.prepare("SELECT ? + 1").await?;
        assert_eq!(statement.query_as::<i64>((n,)).await?, [n + 1]);
    }
    Ok(())
}

/// D-lite-s014a, D-lite-s014c, B-015
#[tokio::test]
async fn the_connections_that_min_asks_for_are_there_when_it_is_open() {
    for min in [0, 1, 3] {
        let shop = shop_with(|builder| builder.min(min).max(5)).await;
        let status = shop.status();
        assert_eq!((status.total, status.idle, status.active), (min, min, 0));
    }
}

/// D-lite-s014b
#[tokio::test]
async fn connections_made_in_advance_are_used_and_no_others_made() -> Result<()> {
    let shop = shop_with(|builder| builder.min(2).max(5)).await;
    for n in 0..3 {
        insert(&shop, n).await?;
    }
    assert_eq!(shop.status().total, 2);
    Ok(())
}

/// D-lite-s014d: decided otherwise here, min above max is an error in both layers.
#[tokio::test]
async fn more_connections_to_keep_than_there_may_be_is_an_error() {
    let database = TestDatabase::new();
    let error = database.builder().min(4).max(2).open().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Config);
    assert!(
        error.message().contains("min") && error.message().contains("max"),
        "{error}"
    );
}

/// D-lite-s011: a scope around the whole program ends like any other.
#[tokio::test]
async fn the_outermost_scope_hands_its_connection_to_a_waiter() -> Result<()> {
    let shop = shop(1).await;
    let db = shop.db.clone();
    let waiting = cenote::scope(async {
        let tx = shop.begin().await?;
        insert(&shop, 1).await?;
        std::mem::forget(tx);
        let waiting = cenote::spawn(async move { count(&db).await });
        while shop.status().waiting == 0 {
            tokio::task::yield_now().await;
        }
        Ok::<_, Error>(waiting)
    })
    .await?;
    assert_eq!(soon("it is served", waiting).await.unwrap(), 0);
    Ok(())
}

/// Files are opened in WAL, so a reader does not wait for the writer.
#[tokio::test]
async fn a_reader_does_not_wait_for_the_writer() -> Result<()> {
    let shop = shop(2).await;
    shop.transaction(async || {
        insert(&shop, 1).await?;
        let outside = shop.outside();
        assert_eq!(soon("it reads", count(&outside)).await, 0);
        assert_ne!(connection_id(&outside).await?, connection_id(&shop).await?);
        Ok(())
    })
    .await
}
