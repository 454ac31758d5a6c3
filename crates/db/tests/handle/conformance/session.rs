//! Raw transactions and session state: pinned in a coroutine, cleaned up after it, refused outside
//! of one.

use cenote::{Db, Error, Kind, ResetPolicy, Result};

use super::support::{connection_id, count, insert, numbers, quiet, shop, shop_with, watched_shop};

const CACHE_SIZE: &str = "SELECT * FROM pragma_cache_size";

async fn cache_size(db: &Db) -> Result<i64> {
    db.query_as_one(CACHE_SIZE, ()).await
}

async fn has_table(db: &Db, name: &str) -> Result<bool> {
    let sql = "SELECT count(*) > 0 FROM pragma_table_list WHERE name = ?";
    db.query_as_one(sql, (name,)).await
}

/// D-core-025a, B-011
#[tokio::test]
async fn a_transaction_begun_by_raw_sql_pins_its_connection() -> Result<()> {
    let shop = shop(2).await;
    cenote::scope(async {
        shop.exec("BEGIN", ()).await?;
        let id = connection_id(&shop).await?;
        insert(&shop, 1).await?;
        for _ in 0..3 {
            assert_eq!(connection_id(&shop).await?, id);
        }
        assert!(shop.in_transaction());
        assert_eq!(count(&shop).await, 1);
        assert_eq!(count(&shop.outside()).await, 0);
        shop.exec("COMMIT", ()).await?;
        assert!(!shop.in_transaction());
        assert_eq!(shop.status().active, 0, "nothing pins it any more");
        Ok::<(), Error>(())
    })
    .await?;
    assert_eq!(count(&shop).await, 1);
    Ok(())
}

/// D-core-025b, B-011
#[tokio::test]
async fn a_raw_transaction_reaches_no_other_task() -> Result<()> {
    let shop = shop(1).await;
    let task = |sql: &'static str| {
        let db = shop.db.clone();
        cenote::spawn(async move {
            db.exec(sql, ()).await?;
            insert(&db, 1).await?;
            Ok::<(), Error>(())
        })
    };
    for sql in [
        "BEGIN",
        "BEGIN IMMEDIATE",
        "SAVEPOINT mine",
        "/* x */ begin transaction",
    ] {
        task(sql).await.unwrap()?;
        cenote::scope(async {
            assert!(!shop.in_transaction());
            assert_eq!(count(&shop).await, 0);
            // It could not begin if one were open.
            shop.exec("BEGIN", ()).await?;
            shop.exec("ROLLBACK", ()).await
        })
        .await?;
    }
    assert_eq!(shop.status().total, 1);
    Ok(())
}

/// The twin of D-core-025a and D-core-025b outside of any coroutine.
#[tokio::test]
async fn outside_of_coroutines_a_raw_transaction_is_undone_and_fails() -> Result<()> {
    let shop = shop(1).await;
    for sql in [
        "BEGIN",
        "BEGIN; INSERT INTO t (n) VALUES (1)",
        "SAVEPOINT mine",
        "COMMIT; BEGIN",
    ] {
        let error = shop.exec(sql, ()).await.unwrap_err();
        match sql {
            // The first of the two is refused, so nothing is open.
            "COMMIT; BEGIN" => assert_eq!(error.kind(), Kind::Database),
            _ => assert_eq!(error.kind(), Kind::LeftTransaction, "{sql}: {error}"),
        }
        quiet(&shop).await;
        assert_eq!(numbers(&shop).await, [0; 0]);
    }
    let error = shop.query("BEGIN", ()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::LeftTransaction);
    for way_out in ["transaction(", "scope", "spawn", "connection()"] {
        assert!(error.message().contains(way_out), "{error}");
    }
    Ok(())
}

/// The same through a stream, which is a call like the others.
#[tokio::test]
async fn outside_of_coroutines_a_stream_that_begins_is_an_error() {
    let shop = shop(1).await;
    let streamed = async {
        let mut rows = shop.stream("BEGIN", ()).await?;
        rows.try_next().await.map(drop)
    };
    let error = streamed
        .await
        .expect_err("it was rolled back without an error");
    assert_eq!(error.kind(), Kind::LeftTransaction);
}

#[tokio::test]
async fn outside_of_coroutines_a_transaction_in_one_script_works() -> Result<()> {
    let shop = shop(1).await;
    shop.exec("BEGIN; INSERT INTO t (n) VALUES (1); COMMIT", ())
        .await?;
    assert_eq!(numbers(&shop).await, [1]);
    Ok(())
}

/// The calls of `outside()` have no coroutine either.
#[tokio::test]
async fn outside_calls_leave_no_transaction_and_no_session_behind() {
    let shop = shop(2).await;
    cenote::scope(async {
        let error = shop.outside().exec("BEGIN", ()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::LeftTransaction);
        let error = shop
            .outside()
            .exec("PRAGMA cache_size = 9", ())
            .await
            .unwrap_err();
        assert_eq!(error.kind(), Kind::LeftSession);
        assert!(shop.peek().is_none());
    })
    .await;
}

/// D-core-026a, D-core-026b, D-core-026c, D-core-028a, B-010: SQLite cannot reset a session, so
/// a touched connection is replaced, in its place.
#[tokio::test]
async fn what_a_task_changed_in_its_session_is_not_there_for_the_next() -> Result<()> {
    let shop = shop(1).await;
    let (usual, id) = (cache_size(&shop).await?, connection_id(&shop).await?);
    cenote::scope(async {
        shop.exec("PRAGMA cache_size = 77", ()).await?;
        shop.exec("PRAGMA recursive_triggers = ON", ()).await?;
        assert_eq!(cache_size(&shop).await?, 77);
        assert_eq!(connection_id(&shop).await?, id);
        Ok::<(), Error>(())
    })
    .await?;
    cenote::scope(async {
        assert_eq!(cache_size(&shop).await?, usual);
        let sql = "SELECT * FROM pragma_recursive_triggers";
        assert_eq!(shop.query_as_one::<i64>(sql, ()).await?, 0);
        assert_ne!(connection_id(&shop).await?, id);
        Ok::<(), Error>(())
    })
    .await?;
    assert_eq!(shop.status().total, 1);
    Ok(())
}

/// D-core-026d, D-core-026f
#[tokio::test]
async fn temporary_table_lives_as_long_as_its_task_and_is_private() -> Result<()> {
    let shop = shop(1).await;
    cenote::scope(async {
        shop.exec("CREATE TEMP TABLE mine (n)", ()).await?;
        shop.exec("INSERT INTO mine VALUES (1)", ()).await?;
        shop.exec("INSERT INTO mine VALUES (2)", ()).await?;
        let n: i64 = shop.query_as_one("SELECT count(*) FROM mine", ()).await?;
        assert_eq!(n, 2);
        assert!(shop.peek().expect("it is pinned").session_touched);
        Ok::<(), Error>(())
    })
    .await?;
    assert!(!has_table(&shop, "mine").await?);
    Ok(())
}

/// D-core-026e: the session lock that SQLite has is its exclusive locking mode.
#[tokio::test]
async fn a_lock_that_the_session_of_a_task_holds_is_free_for_the_next() -> Result<()> {
    let shop = shop_with(|builder| {
        let builder = builder.option("journal_mode", "delete");
        builder.max(2).option("busy_timeout", "0ms")
    })
    .await;
    cenote::scope(async {
        shop.exec("PRAGMA locking_mode = EXCLUSIVE", ()).await?;
        insert(&shop, 1).await?;
        let error = insert(&shop.outside(), 2).await.unwrap_err();
        assert!(
            matches!(error.kind(), Kind::Database | Kind::Connect),
            "{error}"
        );
        Ok::<(), Error>(())
    })
    .await?;
    quiet(&shop).await;
    insert(&shop, 3).await?;
    let other = Db::builder(&shop.database.dsn())
        .option("busy_timeout", "0ms")
        .open()
        .await?;
    insert(&other, 4).await?;
    assert_eq!(numbers(&shop).await, [1, 3, 4]);
    Ok(())
}

/// D-core-027a, D-core-027b: what connecting configured is there again.
#[tokio::test]
async fn a_reset_restores_what_connecting_has_configured() -> Result<()> {
    let shop = shop_with(|builder| builder.max(1).option("cache_size", "1234")).await;
    let attached = shop.database.path("other.db");
    cenote::scope(async {
        shop.exec("PRAGMA cache_size = 5", ()).await?;
        shop.exec("ATTACH ? AS other", (attached.as_str(),)).await?;
        shop.exec("CREATE TABLE other.foreigner (n)", ()).await?;
        assert!(has_table(&shop, "foreigner").await?);
        Ok::<(), Error>(())
    })
    .await?;
    assert_eq!(cache_size(&shop).await?, 1234);
    assert!(!has_table(&shop, "foreigner").await?);
    assert_eq!(shop.status().total, 1);
    Ok(())
}

/// D-core-028a, D-core-028b: in front of the statement there may be comments (those with `#`
/// are MySQL's).
#[tokio::test]
async fn session_state_is_seen_behind_comments_and_in_scripts() -> Result<()> {
    let shop = shop(1).await;
    let usual = cache_size(&shop).await?;
    for sql in [
        "PRAGMA cache_size = 7",
        "/* a comment */ PRAGMA cache_size = 7",
        "-- a comment\nPRAGMA cache_size = 7",
        "  /* one */ -- and another\n /**/ pragma main.cache_size(7)",
        "SELECT 1; PRAGMA cache_size = 7",
        "INSERT INTO t (n) VALUES (1); /* x */ PRAGMA cache_size = 7; SELECT 2",
    ] {
        cenote::scope(async {
            shop.exec(sql, ()).await?;
            assert_eq!(cache_size(&shop).await?, 7, "{sql}");
            Ok::<(), Error>(())
        })
        .await?;
        assert_eq!(cache_size(&shop).await?, usual, "{sql}");
    }
    Ok(())
}

#[tokio::test]
async fn session_state_that_a_prepared_statement_changes_is_seen() -> Result<()> {
    let shop = shop(1).await;
    let usual = cache_size(&shop).await?;
    cenote::scope(async {
        let statement = shop.prepare("PRAGMA cache_size = 7").await?;
        statement.exec(()).await?;
        drop(statement);
        assert_eq!(cache_size(&shop).await?, 7);
        Ok::<(), Error>(())
    })
    .await?;
    assert_eq!(cache_size(&shop).await?, usual);
    Ok(())
}

/// A stream binds nothing: what it changed cannot be kept, so it must not be changed silently.
#[tokio::test]
async fn session_state_changed_by_a_stream_is_not_lost_silently() -> Result<()> {
    let shop = shop(2).await;
    cenote::scope(async {
        let streamed = async {
            let mut rows = shop.stream("PRAGMA cache_size = 7", ()).await?;
            while rows.try_next().await?.is_some() {}
            Ok::<(), Error>(())
        };
        if streamed.await.is_ok() {
            assert_eq!(cache_size(&shop).await?, 7, "said to be set, and it is not");
        }
        Ok(())
    })
    .await
}

/// The twin of D-core-026a to D-core-028b outside of any coroutine.
#[tokio::test]
async fn outside_of_coroutines_a_pure_session_change_is_refused() -> Result<()> {
    let shop = shop(1).await;
    for sql in [
        "CREATE TEMP TABLE mine (n)",
        "create temporary view mine as select 1",
        "PRAGMA cache_size = 7",
        "/* hidden */ PRAGMA cache_size = 7",
        "-- hidden\nPRAGMA busy_timeout(7)",
        "ATTACH ':memory:' AS other",
    ] {
        let error = shop.exec(sql, ()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::LeftSession, "{sql}");
        for way_out in [
            "scope",
            "spawn",
            "connection()",
            "set_default",
            "on_connect",
        ] {
            assert!(error.message().contains(way_out), "{error}");
        }
    }
    let many = shop.exec_many("ATTACH ? AS other", [(":memory:",)]).await;
    assert_eq!(many.unwrap_err().kind(), Kind::LeftSession);
    let streamed = shop.stream("PRAGMA cache_size = 7", ()).await;
    assert_eq!(streamed.unwrap_err().kind(), Kind::LeftSession);
    assert_eq!(shop.status().total, 0, "nothing was sent");
    Ok(())
}

#[tokio::test]
async fn outside_of_coroutines_a_scripts_session_change_is_reset() -> Result<()> {
    let shop = shop(1).await;
    let usual = cache_size(&shop).await?;
    let script = "CREATE TEMP TABLE scratch AS SELECT 5 AS n;
                  PRAGMA cache_size = 7;
                  INSERT INTO t (n) SELECT n FROM scratch";
    shop.exec(script, ()).await?;
    assert_eq!(numbers(&shop).await, [5]);
    assert_eq!(cache_size(&shop).await?, usual);
    assert!(!has_table(&shop, "scratch").await?);
    Ok(())
}

/// B-010: an untouched connection pays no round trip.
#[tokio::test]
async fn an_unchanged_session_is_not_reset() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(1)).await;
    cenote::scope(async {
        let tx = shop.begin().await?;
        insert(&shop, 1).await?;
        tx.commit().await?;
        shop.exec("CREATE TABLE other (n)", ()).await?;
        shop.query("SELECT * FROM other", ()).await
    })
    .await?;
    quiet(&shop).await;
    assert!(!wire.take_log().contains(&"reset".to_owned()));
    assert_eq!(wire.opened(), 1);
    Ok(())
}

#[tokio::test]
async fn reset_always_resets_every_session() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(1).reset(ResetPolicy::Always)).await;
    for n in 0..2 {
        insert(&shop, n).await?;
        quiet(&shop).await;
        assert!(wire.take_log().contains(&"reset".to_owned()));
    }
    Ok(())
}

#[tokio::test]
async fn h15_replace_gives_every_user_another_connection() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(1).reset(ResetPolicy::Replace)).await;
    assert_eq!(numbers(&shop).await, [0; 0]);
    for n in 0..3 {
        quiet(&shop).await;
        let before = wire.opened();
        insert(&shop, n).await?;
        quiet(&shop).await;
        assert_eq!(wire.opened(), before + 1);
        assert_eq!(wire.alive(), 1);
        assert!(!wire.take_log().contains(&"reset".to_owned()));
    }
    assert_eq!(numbers(&shop).await, [0, 1, 2]);
    Ok(())
}

#[tokio::test]
async fn failed_reset_destroys_the_connection_and_frees_its_place() -> Result<()> {
    use super::support::{Fault, Step};
    let (shop, wire) = watched_shop(|builder| builder.max(1)).await;
    wire.next(Step::Reset, Fault::LostBefore);
    cenote::scope(async { shop.exec("PRAGMA cache_size = 7", ()).await }).await?;
    quiet(&shop).await;
    assert_eq!((shop.status().total, wire.alive()), (0, 0));
    assert_ne!(cache_size(&shop).await?, 7);
    Ok(())
}

#[tokio::test]
async fn failed_rollback_at_coroutine_end_destroys_the_connection() -> Result<()> {
    use super::support::{Fault, Step};
    let (shop, wire) = watched_shop(|builder| builder.max(1)).await;
    wire.next(Step::Rollback, Fault::LostBefore);
    cenote::scope(async {
        shop.exec("BEGIN", ()).await?;
        insert(&shop, 1).await
    })
    .await?;
    quiet(&shop).await;
    assert_eq!((shop.status().total, wire.alive()), (0, 0));
    assert_eq!(numbers(&shop).await, [0; 0]);
    Ok(())
}

#[tokio::test]
async fn branches_that_change_sessions_at_once_lose_none_silently() -> Result<()> {
    let shop = shop(3).await;
    cenote::scope(async {
        let touch = async |table: &str| {
            let sql = format!("CREATE TEMP TABLE {table} (n)");
            shop.exec(&sql, ()).await
        };
        let (one, other) = tokio::join!(touch("one"), touch("other"));
        for (done, table) in [(one, "one"), (other, "other")] {
            if done.is_ok() {
                assert!(
                    has_table(&shop, table).await?,
                    "said to be made, and it is not: {table}"
                );
            }
        }
        Ok(())
    })
    .await
}
