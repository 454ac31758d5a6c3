//! What pins a connection to a coroutine, and when it goes back.

use std::sync::Arc;

use cenote::{Db, Error, Kind, Result};
use tokio::sync::Barrier;

use super::support::{
    TestDatabase, WHO, block_on_plain_thread, connection_id, count, insert, numbers, quiet, shop,
    soon, watched_shop,
};

/// D-core-005a, D-core-005b
#[tokio::test]
async fn each_task_is_in_its_own_transaction_and_only_commits_stay() -> Result<()> {
    let shop = shop(3).await;
    let task = |n: i64, commits: bool| {
        let db = shop.db.clone();
        cenote::spawn(async move {
            assert!(!db.in_transaction());
            let tx = db.begin().await?;
            assert!(db.in_transaction());
            insert(&db, n).await?;
            match commits {
                true => tx.commit().await?,
                false => tx.rollback().await?,
            }
            assert!(!db.in_transaction());
            Ok::<(), Error>(())
        })
    };
    let (one, other) = (task(1, true), task(2, false));
    one.await.unwrap()?;
    other.await.unwrap()?;
    assert_eq!(numbers(&shop).await, [1]);
    Ok(())
}

/// D-core-005b
#[tokio::test]
async fn in_transaction_is_per_task_and_not_per_handle() -> Result<()> {
    let shop = shop(3).await;
    cenote::scope(async {
        let _tx = shop.begin().await?;
        assert!(shop.in_transaction());
        let db = shop.db.clone();
        let other = cenote::spawn(async move { db.in_transaction() });
        assert!(!other.await.unwrap());
        assert!(!cenote::detached(async { shop.in_transaction() }).await);
        Ok(())
    })
    .await
}

/// D-core-006
#[tokio::test]
async fn what_a_task_leaves_uncommitted_is_rolled_back_when_it_ends() -> Result<()> {
    let shop = shop(2).await;
    insert(&shop, 1).await?;
    let db = shop.db.clone();
    let task = cenote::spawn(async move {
        let tx = db.begin().await?;
        db.exec("UPDATE t SET n = 2", ()).await?;
        std::mem::forget(tx); // Nobody drops it: the end of the coroutine has to see to it.
        Ok::<(), Error>(())
    });
    task.await.unwrap()?;
    assert_eq!(numbers(&shop).await, [1]);
    quiet(&shop).await;
    assert_eq!(shop.status().total, shop.status().idle);
    Ok(())
}

/// D-core-007b, D-core-007c
#[tokio::test]
async fn live_statement_is_an_active_connection_until_the_task_ends() -> Result<()> {
    let shop = shop(3).await;
    let db = shop.db.clone();
    let task = cenote::spawn(async move {
        let statement = db.prepare("SELECT 1").await?;
        assert_eq!((db.status().total, db.status().active), (1, 1));
        statement.query(()).await?;
        assert_eq!((db.status().total, db.status().active), (1, 1));
        Ok::<(), Error>(())
    });
    task.await.unwrap()?;
    let status = shop.status();
    assert_eq!((status.total, status.idle, status.active), (1, 1, 0));
    Ok(())
}

/// D-core-009a, D-core-009b
#[tokio::test]
async fn all_statements_of_a_task_run_on_one_connection() -> Result<()> {
    let shop = shop(3).await;
    cenote::scope(async {
        let one = shop.prepare(WHO).await?;
        let other = shop.prepare("SELECT id + 0 FROM connection").await?;
        let ids = (
            one.query_as::<i64>(()).await?,
            other.query_as::<i64>(()).await?,
        );
        assert_eq!(ids.0, ids.1);
        let insert = shop.prepare("INSERT INTO t (n) VALUES (?)").await?;
        let select = shop.prepare("SELECT n FROM t").await?;
        insert.exec((7,)).await?;
        assert_eq!(select.query_as::<i64>(()).await?, [7]);
        assert_eq!(shop.status().total, 1);
        Ok(())
    })
    .await
}

/// D-core-010a, D-core-010b
#[tokio::test]
async fn dropping_one_statement_leaves_the_others_on_their_connection() -> Result<()> {
    let shop = shop(3).await;
    cenote::scope(async {
        let one = shop.prepare(WHO).await?;
        let other = shop.prepare("INSERT INTO t (n) VALUES (?)").await?;
        let id = one.query_as::<i64>(()).await?[0];
        drop(one);
        other.exec((1,)).await?;
        assert_eq!(connection_id(&shop).await?, id);
        assert_eq!(numbers(&shop).await, [1]);
        assert_eq!(shop.status().total, 1);
        Ok(())
    })
    .await
}

/// D-core-011a, D-core-011b
#[tokio::test]
async fn last_statement_returns_the_connection_within_the_task() -> Result<()> {
    let shop = shop(3).await;
    cenote::scope(async {
        let one = shop.prepare("SELECT 1").await?;
        let other = shop.prepare("SELECT 2").await?;
        assert_eq!(shop.status().idle, 0);
        drop(one);
        assert_eq!(shop.status().idle, 0);
        drop(other);
        assert_eq!(shop.status().idle, 1);
        assert!(shop.peek().is_none());
        Ok::<(), Error>(())
    })
    .await?;
    assert_eq!(shop.status().idle, 1);
    Ok(())
}

/// D-core-013a, D-core-013b
#[tokio::test]
async fn open_transaction_pins_and_its_commit_returns_the_connection() -> Result<()> {
    let shop = shop(3).await;
    cenote::scope(async {
        let tx = shop.begin().await?;
        let one = shop.prepare("INSERT INTO t (n) VALUES (1)").await?;
        let other = shop.prepare("INSERT INTO t (n) VALUES (2)").await?;
        one.exec(()).await?;
        other.exec(()).await?;
        drop((one, other));
        assert_eq!(shop.status().idle, 0);
        insert(&shop, 3).await?;
        tx.commit().await?;
        assert_eq!(shop.status().idle, 1);
        assert_eq!(numbers(&shop).await, [1, 2, 3]);
        Ok(())
    })
    .await
}

/// D-core-014
#[tokio::test]
async fn every_execution_returns_the_id_that_it_inserted() -> Result<()> {
    let shop = shop(3).await;
    cenote::scope(async {
        let statement = shop.prepare("INSERT INTO t (n) VALUES (?)").await?;
        let one = statement.exec((1,)).await?.last_insert_id;
        let other = statement.exec((2,)).await?.last_insert_id;
        assert_eq!((one, other), (Some(1), Some(2)));
        Ok(())
    })
    .await
}

/// D-core-015: the id is in the result of the insert, so no second query is needed.
#[tokio::test]
async fn only_the_inserting_statement_reports_the_id() -> Result<()> {
    let shop = shop(3).await;
    assert_eq!(insert(&shop, 1).await?.last_insert_id, Some(1));
    assert!(shop.peek().is_none());
    let update = shop.exec("UPDATE t SET n = 2", ()).await?;
    assert_eq!((update.rows_affected, update.last_insert_id), (1, None));
    let nothing = shop.exec("SELECT 1", ()).await?;
    assert_eq!((nothing.rows_affected, nothing.last_insert_id), (0, None));
    Ok(())
}

/// D-core-021a, D-core-021b
#[tokio::test]
async fn failed_calls_keep_no_connection() -> Result<()> {
    let shop = shop(3).await;
    cenote::scope(async {
        for _ in 0..6 {
            shop.query("SELECT * FROM nowhere", ()).await.unwrap_err();
            shop.prepare("SELECT * FROM nowhere").await.unwrap_err();
            assert_eq!(shop.status().active, 0);
        }
        assert_eq!(shop.status().total, 1);
        insert(&shop, 1).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn unpinned_statement_takes_a_connection_and_returns_it() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(3)).await;
    cenote::scope(async {
        insert(&shop, 1).await?;
        wire.take_log();
        insert(&shop, 2).await?;
        assert!(shop.peek().is_none());
        assert_eq!(shop.status().idle, 1);
        // No round trip is added.
        assert_eq!(wire.take_log(), ["INSERT INTO t (n) VALUES (?)"]);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_pin_keeps_the_connection_until_it_is_dropped() -> Result<()> {
    let shop = shop(3).await;
    cenote::scope(async {
        let pin = shop.pin().await?;
        let id = connection_id(&shop).await?;
        for _ in 0..3 {
            assert_eq!(connection_id(&shop).await?, id);
        }
        assert_eq!((shop.status().active, shop.status().total), (1, 1));
        let tx = shop.begin().await?;
        assert_eq!(connection_id(&shop).await?, id);
        tx.commit().await?;
        assert_eq!(shop.status().active, 1);
        drop(pin);
        assert_eq!(shop.status().active, 0);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn two_pins_are_both_needed_to_let_go() -> Result<()> {
    let shop = shop(3).await;
    cenote::scope(async {
        let (one, other) = (shop.pin().await?, shop.pin().await?);
        assert_eq!(shop.status().active, 1);
        drop(one);
        assert_eq!(shop.status().active, 1);
        drop(other);
        assert_eq!(shop.status().active, 0);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_pin_ends_with_its_coroutine() -> Result<()> {
    let shop = shop(1).await;
    let pin = cenote::scope(async { shop.pin().await }).await?;
    assert_eq!(shop.status().active, 0);
    // What is left of it does not affect the current user of the connection.
    cenote::scope(async {
        let _own = shop.pin().await?;
        drop(pin);
        assert_eq!(shop.status().active, 1);
        insert(&shop, 1).await
    })
    .await?;
    Ok(())
}

/// [`Db::pin`]: "until what this gives is dropped or the coroutine ends".
#[tokio::test]
async fn a_pin_taken_in_a_transaction_closure_outlives_the_closure() -> Result<()> {
    let shop = shop(3).await;
    cenote::scope(async {
        let pin = shop.transaction(async || shop.pin().await).await?;
        assert_eq!(shop.status().active, 1, "the coroutine has not ended");
        let id = connection_id(&shop).await?;
        assert_eq!(connection_id(&shop).await?, id);
        drop(pin);
        assert_eq!(shop.status().active, 0);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_pin_outside_of_coroutines_is_an_error_that_says_what_to_do() {
    let shop = shop(1).await;
    let error = shop.pin().await.unwrap_err();
    assert_eq!(error.kind(), Kind::NoCoroutine);
    for way_out in ["scope", "spawn", "connection()"] {
        assert!(error.message().contains(way_out), "{error}");
    }
    assert_eq!(shop.status().total, 0);
}

#[tokio::test]
async fn begin_outside_of_coroutines_is_an_error_that_says_what_to_do() {
    let shop = shop(1).await;
    let error = shop.begin().await.unwrap_err();
    assert_eq!(error.kind(), Kind::NoCoroutine);
    for way_out in ["transaction(", "scope", "spawn", "connection()"] {
        assert!(error.message().contains(way_out), "{error}");
    }
    assert_eq!(shop.status().total, 0);
}

#[tokio::test]
async fn touched_session_state_pins_until_the_coroutine_ends() -> Result<()> {
    let shop = shop(3).await;
    cenote::scope(async {
        shop.exec("CREATE TEMP TABLE mine (n)", ()).await?;
        let id = connection_id(&shop).await?;
        shop.exec("INSERT INTO mine VALUES (1)", ()).await?;
        shop.transaction(async || {
            assert_eq!(connection_id(&shop).await?, id);
            shop.exec("INSERT INTO mine VALUES (2)", ()).await
        })
        .await?;
        assert_eq!(connection_id(&shop).await?, id);
        assert_eq!(shop.status().active, 1);
        Ok::<(), Error>(())
    })
    .await?;
    quiet(&shop).await;
    Ok(())
}

#[tokio::test]
async fn session_state_of_a_closure_lives_as_long_as_the_coroutine() -> Result<()> {
    let shop = shop(3).await;
    cenote::scope(async {
        shop.transaction(async || shop.exec("CREATE TEMP TABLE mine (n)", ()).await)
            .await?;
        shop.exec("INSERT INTO mine VALUES (1)", ()).await?;
        assert_eq!(shop.status().active, 1);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_rolled_back_closure_still_pins_the_session_that_it_touched() -> Result<()> {
    let shop = shop(3).await;
    cenote::scope(async {
        let failed: Result<()> = shop
            .transaction(async || {
                shop.exec("PRAGMA cache_size = 99", ()).await?;
                Err(Error::other("no"))
            })
            .await;
        failed.unwrap_err();
        let size: i64 = shop
            .query_as_one("SELECT * FROM pragma_cache_size", ())
            .await?;
        assert_eq!(size, 99);
        Ok::<(), Error>(())
    })
    .await?;
    quiet(&shop).await;
    let size: i64 = shop
        .query_as_one("SELECT * FROM pragma_cache_size", ())
        .await?;
    assert_ne!(size, 99);
    Ok(())
}

#[tokio::test]
async fn branches_of_one_coroutine_take_turns_on_its_connection() -> Result<()> {
    let shop = shop(3).await;
    cenote::scope(async {
        let tx = shop.begin().await?;
        let branch = async |from: i64| {
            for n in from..from + 5 {
                insert(&shop, n).await?;
            }
            Ok::<(), Error>(())
        };
        let (a, b, c) = tokio::join!(branch(0), branch(10), branch(20));
        a.and(b).and(c)?;
        assert_eq!(shop.status().total, 1);
        tx.commit().await
    })
    .await?;
    assert_eq!(count(&shop).await, 15);
    Ok(())
}

#[tokio::test]
async fn branches_that_prepare_at_once_share_the_coroutine_connection() -> Result<()> {
    let shop = shop(3).await;
    cenote::scope(async {
        let (one, other) = tokio::join!(shop.prepare(WHO), shop.prepare(WHO));
        let (one, other) = (one?, other?);
        let ids = (
            one.query_as::<i64>(()).await?,
            other.query_as::<i64>(()).await?,
        );
        assert_eq!(ids.0, ids.1);
        assert_eq!(shop.status().active, 1);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn two_handles_bind_two_connections_in_one_coroutine() -> Result<()> {
    let (one, other) = (shop(1).await, shop(1).await);
    cenote::scope(async {
        let tx = one.begin().await?;
        insert(&one, 1).await?;
        insert(&other, 2).await?;
        assert!(!other.in_transaction());
        tx.rollback().await
    })
    .await?;
    assert_eq!(numbers(&one).await, [0; 0]);
    assert_eq!(numbers(&other).await, [2]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_tasks_than_connections_are_served_on_at_most_max() -> Result<()> {
    let shop = shop(5).await;
    let barrier = Arc::new(Barrier::new(20));
    let tasks: Vec<_> = (1..=20_i64)
        .map(|n| {
            let (db, barrier) = (shop.db.clone(), Arc::clone(&barrier));
            cenote::spawn(async move {
                barrier.wait().await;
                let n: i64 = db.query_as_one("SELECT ?", (n,)).await?;
                assert!(db.status().total <= 5);
                Ok::<i64, Error>(n)
            })
        })
        .collect();
    let mut sum = 0;
    for task in tasks {
        sum += soon("a task is served", task).await.unwrap()?;
    }
    assert_eq!(sum, 210);
    Ok(())
}

/// D-lite-s006, D-lite-s011, B-020: there is no runtime that could start late; a coroutine works
/// with none at all, and its connection goes back once.
#[test]
fn coroutines_work_without_any_runtime() -> Result<()> {
    let database = TestDatabase::new();
    block_on_plain_thread(async {
        let db = Db::builder(&database.dsn()).max(1).open().await?;
        db.exec("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER)", ())
            .await?;
        cenote::scope(async {
            let tx = db.begin().await?;
            insert(&db, 1).await?;
            tx.commit().await
        })
        .await?;
        cenote::scope(async {
            let _tx = db.begin().await?;
            insert(&db, 2).await
        })
        .await?;
        // The only connection: this waits until the transaction was rolled back.
        assert_eq!(numbers(&db).await, [1]);
        assert_eq!(db.status().total, 1);
        Ok(())
    })
}

/// D-lite-s006: a statement made before the runtime existed and dropped under it.
#[test]
fn statement_made_outside_a_runtime_returns_its_connection() {
    let shop = block_on_plain_thread(shop(1));
    let statement = block_on_plain_thread(cenote::scope(async { shop.prepare(WHO).await }));
    let statement = statement.unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        statement.query(()).await.unwrap();
        drop(statement);
        assert_eq!((shop.status().total, shop.status().active), (1, 0));
        insert(&shop, 1).await.unwrap();
        assert_eq!(numbers(&shop).await, [1]);
    });
}
