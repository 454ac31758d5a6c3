//! The statement cache: one for each connection, owned by it.

use std::sync::Arc;

use cenote::{Error, Result, named};
use tokio::sync::Barrier;

use super::support::{Shop, Wire, insert, quiet, shop_with, watched_shop};

async fn cached(max: usize, size: usize) -> (Shop, Arc<Wire>) {
    watched_shop(|builder| builder.max(max).statement_cache(size)).await
}

/// How many statements were compiled for this.
async fn compiled_by<T>(wire: &Wire, calls: impl Future<Output = Result<T>>) -> u64 {
    let before = wire.compiled();
    calls.await.unwrap();
    wire.compiled() - before
}

/// C-003, C-006
#[tokio::test]
async fn same_sql_is_compiled_once_even_if_its_statements_are_dropped() -> Result<()> {
    let (shop, wire) = cached(1, 16).await;
    insert(&shop, 0).await?;
    let rounds = async {
        for n in 1..=5_i64 {
            let statement = shop.prepare("SELECT ? * 2").await?;
            assert_eq!(statement.query_as::<i64>((n,)).await?, [n * 2]);
        }
        Ok(())
    };
    assert_eq!(compiled_by(&wire, rounds).await, 1);
    // Calls without a statement share it.
    assert_eq!(
        compiled_by(&wire, shop.query("SELECT ? * 2", (1,))).await,
        0
    );
    Ok(())
}

/// C-001: it belongs to the connection, so it survives a change of tasks and is shared with no
/// other connection.
#[tokio::test]
async fn each_connection_has_its_own_cache_that_outlives_tasks() -> Result<()> {
    let (shop, wire) = cached(2, 16).await;
    let task = |n: i64| {
        let db = shop.db.clone();
        cenote::spawn(async move { db.query_as_one::<i64>("SELECT ? + 0", (n,)).await })
    };
    let before = wire.compiled();
    let mut sum = 0;
    for n in 1..=8 {
        sum += task(n).await.unwrap()?;
    }
    assert_eq!(sum, 36);
    assert_eq!(shop.status().total, 1);
    // The other is the connection's number.
    assert!(
        wire.compiled() - before <= 3,
        "{}",
        wire.compiled() - before
    );

    let (one, other) = (shop.connection().await?, shop.connection().await?);
    let compiled = compiled_by(&wire, async {
        for connection in [&one, &other, &one, &other] {
            connection.query("SELECT ? + 0", (1,)).await?;
        }
        Ok(())
    });
    assert_eq!(compiled.await, 1, "only the second one did not know it");
    Ok(())
}

/// C-002: the key is what is sent.
#[tokio::test]
async fn spellings_with_the_same_sql_on_the_wire_share_an_entry() -> Result<()> {
    let (shop, wire) = cached(1, 16).await;
    insert(&shop, 0).await?;
    let named = async {
        shop.query("SELECT :one + 5", named! { one: 1 }).await?;
        shop.query("SELECT :other + 5", named! { other: 1 }).await
    };
    let compiled = compiled_by(&wire, named).await;
    wire.take_log();
    shop.query("SELECT :one + 5", named! { one: 1 }).await?;
    shop.query("SELECT :other + 5", named! { other: 1 }).await?;
    let sent = wire.take_log();
    let distinct = if sent[0] == sent[1] { 1 } else { 2 };
    assert_eq!(compiled, distinct, "{sent:?}");
    Ok(())
}

/// C-004
#[tokio::test]
async fn a_failed_prepare_leaves_nothing_in_the_cache() -> Result<()> {
    let (shop, wire) = cached(1, 16).await;
    let sql = "SELECT n FROM later";
    shop.prepare(sql).await.unwrap_err();
    shop.query(sql, ()).await.unwrap_err();
    shop.exec("CREATE TABLE later (n)", ()).await?;
    assert_eq!(compiled_by(&wire, shop.query(sql, ())).await, 1);
    assert_eq!(compiled_by(&wire, shop.query(sql, ())).await, 0);
    Ok(())
}

/// C-005: exactly the one that was used least recently is compiled again.
#[tokio::test]
async fn a_full_cache_forgets_the_least_recently_used() -> Result<()> {
    let (shop, wire) = cached(1, 2).await;
    let (a, b, c) = ("SELECT 1", "SELECT 2", "SELECT 3");
    for sql in [a, b] {
        shop.query(sql, ()).await?;
    }
    // Now b is the one that was used least recently.
    assert_eq!(compiled_by(&wire, shop.query(a, ())).await, 0);
    assert_eq!(compiled_by(&wire, shop.query(c, ())).await, 1);
    assert_eq!(compiled_by(&wire, shop.query(a, ())).await, 0);
    assert_eq!(compiled_by(&wire, shop.query(c, ())).await, 0);
    assert_eq!(compiled_by(&wire, shop.query(b, ())).await, 1);
    Ok(())
}

/// C-007, C-013: SQLite cannot reset a session; the connection that takes its place begins anew.
#[tokio::test]
async fn replaced_connection_has_an_empty_cache_others_keep_theirs() -> Result<()> {
    let (shop, wire) = cached(1, 16).await;
    let sql = "SELECT 1";
    shop.query(sql, ()).await?;
    cenote::scope(async { shop.query(sql, ()).await }).await?;
    assert_eq!(
        compiled_by(&wire, shop.query(sql, ())).await,
        0,
        "untouched"
    );
    cenote::scope(async { shop.exec("PRAGMA cache_size = 3", ()).await }).await?;
    quiet(&shop).await;
    assert_eq!(compiled_by(&wire, shop.query(sql, ())).await, 1, "replaced");
    wire.cut();
    shop.query("SELECT 2", ()).await?;
    assert_eq!(compiled_by(&wire, shop.query(sql, ())).await, 1, "lost");
    Ok(())
}

/// C-008: SQLite sees by itself that a plan is stale. The caller sees nothing of it.
#[tokio::test]
async fn a_cached_statement_whose_table_has_changed_just_works() -> Result<()> {
    let (shop, _wire) = cached(1, 16).await;
    insert(&shop, 1).await?;
    let sql = "SELECT * FROM t";
    let statement = shop.prepare(sql).await?;
    assert_eq!(statement.query_one(()).await?.len(), 2);
    drop(statement);
    shop.exec("ALTER TABLE t ADD COLUMN extra INTEGER DEFAULT 9", ())
        .await?;
    assert_eq!(shop.query_one(sql, ()).await?.get::<i64>("extra")?, 9);
    cenote::scope(async {
        let statement = shop.prepare(sql).await?;
        shop.exec("ALTER TABLE t DROP COLUMN extra", ()).await?;
        assert_eq!(statement.query_one(()).await?.len(), 2);
        // In a transaction, too.
        shop.transaction(async || {
            shop.exec("ALTER TABLE t ADD COLUMN another INTEGER DEFAULT 8", ())
                .await?;
            assert_eq!(statement.query_one(()).await?.get::<i64>("another")?, 8);
            Ok(())
        })
        .await
    })
    .await
}

/// C-011
#[tokio::test]
async fn the_cache_has_64_statements_by_default_and_none_at_size_0() -> Result<()> {
    let default = shop_with(|builder| builder).await;
    assert_eq!(default.config().statement_cache, 64);

    let (shop, wire) = cached(1, 0).await;
    insert(&shop, 1).await?;
    for _ in 0..3 {
        assert_eq!(compiled_by(&wire, shop.query("SELECT 1", ())).await, 1);
    }
    let statement = shop.prepare("SELECT ?").await?;
    assert_eq!(statement.query_as::<i64>((4,)).await?, [4]);

    let (shop, wire) = watched_shop(|builder| builder.max(1)).await;
    insert(&shop, 1).await?; // So that there is a connection.
    let all = async || {
        for n in 0..64 {
            shop.query(&format!("SELECT {n}"), ()).await?;
        }
        Ok(())
    };
    assert_eq!(compiled_by(&wire, all()).await, 64);
    assert_eq!(compiled_by(&wire, all()).await, 0);
    Ok(())
}

/// C-015
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_on_8_connections_compile_sql_at_most_8_times() -> Result<()> {
    let (shop, wire) = cached(8, 16).await;
    let before = wire.compiled();
    let tasks: Vec<_> = (0..64_i64)
        .map(|task| {
            let db = shop.db.clone();
            cenote::spawn(async move {
                for round in 0..100 {
                    let sum: i64 = db.query_as_one("SELECT ? + ?", (task, round)).await?;
                    assert_eq!(sum, task + round);
                }
                Ok::<(), Error>(())
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap()?;
    }
    // Each connection has compiled its own set-up besides, as two statements.
    let connections = u64::try_from(wire.opened()).unwrap();
    let compiled = wire.compiled() - before - 2 * connections;
    assert!(
        connections <= 8 && compiled <= connections,
        "{compiled} on {connections}"
    );
    Ok(())
}

/// C-012: no two tasks use one connection at a time, so its cache needs no lock.
#[tokio::test]
async fn tasks_that_use_the_same_sql_at_once_use_other_connections() -> Result<()> {
    let (shop, wire) = cached(3, 16).await;
    let barrier = Arc::new(Barrier::new(3));
    let tasks: Vec<_> = (0..3)
        .map(|_| {
            let (db, barrier) = (shop.db.clone(), Arc::clone(&barrier));
            cenote::spawn(async move {
                let statement = db.prepare("SELECT id FROM connection").await?;
                barrier.wait().await;
                Ok::<_, Error>(statement.query_as::<i64>(()).await?[0])
            })
        })
        .collect();
    let mut ids = Vec::new();
    for task in tasks {
        ids.push(task.await.unwrap()?);
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 3);
    assert_eq!(wire.alive(), 3);
    Ok(())
}
