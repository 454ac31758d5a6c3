//! The handle: its settings, its connections and its status.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cenote::pool::Pool;
use cenote::{ConnectionManager, Db, Error, Kind, PooledConnection, Result};
use tokio::sync::Barrier;

use super::support::{
    Fault, Probe, Step, TestDatabase, count, insert, numbers, poll_once, quiet, shop, shop_with,
    soon, timed_shop, until, watched_shop,
};

/// D-core-001, B-029
#[tokio::test]
async fn pool_settings_are_given_to_the_builder_and_can_be_read_back() {
    let interval = Duration::from_secs(7);
    let shop = shop_with(|builder| {
        builder
            .min(1)
            .max(5)
            .healthcheck_interval(interval)
            .statement_cache(16)
    })
    .await;
    let config = shop.config();
    assert_eq!((config.min, config.max), (1, 5));
    assert_eq!(config.healthcheck_interval, Some(interval));
    assert_eq!(config.statement_cache, 16);
    let status = shop.status();
    assert_eq!((status.min, status.max), (1, 5));
}

/// D-core-002
#[tokio::test]
async fn an_unpooled_handle_has_no_pool() -> Result<()> {
    let shop = shop_with(|builder| builder.unpooled()).await;
    assert!(shop.pool().is_none());
    insert(&shop, 1).await?;
    assert!(shop.pool().is_none());
    Ok(())
}

/// D-core-003
#[tokio::test]
async fn a_pooled_handle_gives_the_universal_pool_itself() -> Result<()> {
    let shop = shop_with(|builder| builder.min(1).max(5)).await;
    let pool: &Pool<ConnectionManager> = shop.pool().expect("it is pooled");
    assert_eq!(pool.status(), shop.status());
    assert_eq!(pool.status().idle, 1);
    // It is the one that calls go through: with its breaker open there are none.
    pool.open_breaker();
    let error = insert(&shop, 1).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    pool.close_breaker();
    insert(&shop, 1).await?;
    assert_eq!(pool.counters().created, 1);
    Ok(())
}

/// D-core-004a, D-core-007a
#[tokio::test]
async fn a_handle_that_was_just_opened_has_opened_nothing() {
    let shop = shop(3).await;
    let status = shop.status();
    assert_eq!((status.total, status.idle, status.active), (0, 0, 0));
    assert!(!status.closed);
}

/// D-core-004b, D-core-004c
#[tokio::test]
async fn concurrent_tasks_have_different_connections_which_are_kept() -> Result<()> {
    let shop = shop(3).await;
    let barrier = Arc::new(Barrier::new(2));
    let task = || {
        let (db, barrier) = (shop.db.clone(), Arc::clone(&barrier));
        cenote::spawn(async move {
            let statement = db.prepare("SELECT id FROM connection").await?;
            barrier.wait().await;
            Ok::<i64, Error>(statement.query_as::<i64>(()).await?[0])
        })
    };
    let (one, other) = (task(), task());
    let (one, other) = (one.await.unwrap()?, other.await.unwrap()?);
    assert_ne!(one, other);
    assert_eq!(shop.status().total, 2);
    assert_eq!(shop.status().idle, 2);
    Ok(())
}

/// D-core-018a, D-core-018b, B-044
#[tokio::test]
async fn unreachable_database_fails_the_first_call_and_not_opening() {
    let database = TestDatabase::new();
    let dsn = format!("sqlite:{}", database.path("no/such/folder/shop.db"));
    let db = Db::builder(&dsn).max(2).open().await.unwrap();
    assert_eq!(db.status().total, 0);
    let task = cenote::spawn({
        let db = db.clone();
        async move { db.query("SELECT 1", ()).await.map(drop) }
    });
    let error = soon("the task ends", task).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), Kind::Connect, "{error}");
    assert!(error.message().contains("no/such/folder"), "{error}");
    assert_eq!(error.code(), Some(14), "SQLITE_CANTOPEN: {error:?}");
    assert_eq!(db.status().total, 0);
}

/// B-015: a warm-up that fails is not kept quiet.
#[tokio::test]
async fn with_min_connections_an_unreachable_database_fails_opening() {
    let database = TestDatabase::new();
    let dsn = format!("sqlite:{}", database.path("no/such/folder/shop.db"));
    let error = Db::builder(&dsn).min(1).open().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Connect, "{error}");
}

#[tokio::test]
async fn clones_are_one_handle() -> Result<()> {
    let shop = shop(1).await;
    let clone = shop.db.clone();
    cenote::scope(async {
        let tx = shop.begin().await?;
        assert!(clone.in_transaction());
        insert(&clone, 1).await?;
        tx.rollback().await?;
        assert_eq!(count(&shop).await, 0);
        Ok(())
    })
    .await
}

#[test]
fn the_handle_and_what_is_made_from_it_can_go_to_any_thread() {
    fn is_send_and_sync<T: Send + Sync>() {}
    fn is_send<T: Send>() {}
    is_send_and_sync::<Db>();
    is_send_and_sync::<cenote::Statement>();
    is_send_and_sync::<cenote::Transaction<'static>>();
    is_send_and_sync::<cenote::Connection>();
    is_send_and_sync::<Error>();
    is_send_and_sync::<cenote::Coroutine>();
    is_send::<cenote::RowStream>();
    is_send::<cenote::Pinned>();
}

#[tokio::test]
async fn a_breaker_stops_calls_to_a_database_that_is_not_there() -> Result<()> {
    let breaker = cenote::pool::ConsecutiveFailures::new(2);
    let (shop, wire) = watched_shop(|builder| builder.max(1).breaker(breaker)).await;
    for _ in 0..2 {
        wire.next(Step::Connect, Fault::LostBefore);
        assert_eq!(insert(&shop, 1).await.unwrap_err().kind(), Kind::Connect);
    }
    assert_eq!(
        insert(&shop, 1).await.unwrap_err().kind(),
        Kind::Unavailable
    );
    shop.pool().expect("it is pooled").close_breaker();
    insert(&shop, 1).await?;
    Ok(())
}

/// D-lite-s015a, B-014
#[tokio::test]
async fn observers_never_take_a_connection() {
    let shop = shop(1).await;
    let look = || {
        assert!(!shop.in_transaction());
        assert!(shop.peek().is_none());
        assert!(shop.last_error().is_none());
        assert_eq!(shop.last_sql_state(), "00000");
        assert_eq!(shop.warnings(), 0);
        assert_eq!(shop.config().max, 1);
        assert_eq!(shop.driver_name(), "sqlite");
        assert!(format!("{:?}", shop.db).contains("sqlite"));
        let status = shop.status();
        assert_eq!((status.total, status.active, status.creating), (0, 0, 0));
    };
    look();
    cenote::scope(async { look() }).await;
}

#[tokio::test]
async fn peek_describes_the_bound_connection() -> Result<()> {
    let shop = shop(2).await;
    cenote::scope(async {
        assert!(shop.peek().is_none());
        let statement = shop.prepare("SELECT 1").await?;
        let bound = shop.peek().expect("a statement binds");
        assert_eq!((bound.statements, bound.in_transaction), (1, false));
        assert!(!bound.session_touched);
        assert!(bound.begun_at.is_none());

        let mut tx = shop.begin().await?;
        let line = line!() - 1;
        let bound = shop.peek().expect("a transaction binds");
        assert!(bound.in_transaction);
        assert_eq!(bound.begun_at.map(|site| site.line()), Some(line));
        assert_eq!(bound.savepoints, 0);
        let savepoint = tx.savepoint().await?;
        assert_eq!(shop.peek().map(|bound| bound.savepoints), Some(1));
        savepoint.commit().await?;
        tx.commit().await?;

        drop(statement);
        assert!(shop.peek().is_none());
        shop.exec("CREATE TEMP TABLE mine (n)", ()).await?;
        assert!(shop.peek().expect("the session binds").session_touched);
        Ok(())
    })
    .await
}

/// D-lite-s015b
#[tokio::test]
async fn in_transaction_follows_begin_and_rollback() -> Result<()> {
    let shop = shop(2).await;
    cenote::scope(async {
        assert!(!shop.in_transaction());
        let tx = shop.begin().await?;
        assert!(shop.in_transaction());
        assert_eq!((shop.status().total, shop.status().active), (1, 1));
        tx.rollback().await?;
        assert!(!shop.in_transaction());
        assert_eq!((shop.status().total, shop.status().active), (1, 0));
        Ok(())
    })
    .await
}

/// B-016
#[tokio::test]
async fn the_warning_count_is_in_the_result_and_0_with_nothing_bound() -> Result<()> {
    let shop = shop(1).await;
    assert_eq!(shop.warnings(), 0);
    assert_eq!(insert(&shop, 1).await?.warnings, 0);
    cenote::scope(async {
        let _pin = shop.pin().await?;
        insert(&shop, 2).await?;
        assert_eq!(shop.warnings(), 0);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn ping_makes_a_round_trip_and_fails_without_an_answer() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(1).healthcheck_interval(None)).await;
    shop.ping().await?;
    assert!(wire.take_log().contains(&"ping".to_owned()));
    assert_eq!(shop.status().idle, 1);
    wire.next(Step::Ping, Fault::LostAfter);
    shop.ping().await?;
    // Both attempts, and the check of a connection that may have been lost with the last one.
    for _ in 0..3 {
        wire.next(Step::Ping, Fault::LostAfter);
    }
    let error = shop.ping().await.unwrap_err();
    assert_eq!(error.kind(), Kind::ConnectionLost);
    quiet(&shop).await;
    assert_eq!(shop.status().total, 0);
    shop.ping().await
}

#[tokio::test]
async fn on_connect_runs_on_every_connection_before_anybody_uses_it() -> Result<()> {
    static RAN: AtomicUsize = AtomicUsize::new(0);
    let shop = shop_with(|builder| {
        builder
            .min(1)
            .max(2)
            .on_connect(async |conn: &mut PooledConnection| {
                RAN.fetch_add(1, Ordering::SeqCst);
                conn.exec("CREATE TEMP TABLE greeting AS SELECT 'hello' AS word")
                    .await
            })
    })
    .await;
    assert_eq!(RAN.load(Ordering::SeqCst), 1);
    let one = shop.connection().await?;
    let other = shop.connection().await?;
    assert_eq!(RAN.load(Ordering::SeqCst), 2);
    for connection in [one, other] {
        let word: String = connection
            .query_as_one("SELECT word FROM greeting", ())
            .await?;
        assert_eq!(word, "hello");
    }
    Ok(())
}

#[tokio::test]
async fn failing_on_connect_is_the_callers_error_and_keeps_no_place() -> Result<()> {
    static FAILS: AtomicUsize = AtomicUsize::new(1);
    let shop = shop_with(|builder| {
        builder.max(1).on_connect(async |_: &mut PooledConnection| {
            match FAILS.swap(0, Ordering::SeqCst) {
                0 => Ok(()),
                _ => Err(Error::other("not today")),
            }
        })
    })
    .await;
    let error = shop.exec("SELECT 1", ()).await.unwrap_err();
    assert_eq!(error.message(), "not today");
    assert_eq!(shop.status().total, 0);
    insert(&shop, 1).await?;
    assert_eq!(shop.status().total, 1);
    Ok(())
}

/// D-core-008
#[tokio::test]
async fn persistent_with_a_pool_is_refused_with_both_named() {
    let database = TestDatabase::new();
    let error = database
        .builder()
        .persistent(true)
        .open()
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Config);
    let message = error.message();
    assert!(message.contains("persistent"), "{message}");
    assert!(message.contains("pool"), "{message}");
}

/// A process-wide register kept the connection of every persistent handle, without a limit.
#[tokio::test]
async fn h29_persistent_connection_closes_with_its_handle() -> Result<()> {
    for _ in 0..3 {
        let (shop, wire) = watched_shop(|builder| builder.unpooled().persistent(true)).await;
        assert!(shop.pool().is_none());
        insert(&shop, 1).await?;
        insert(&shop, 2).await?;
        assert_eq!((wire.opened(), wire.alive()), (1, 1));
        drop(shop);
        until("the connection is closed", || wire.alive() == 0).await;
    }
    Ok(())
}

#[tokio::test]
async fn unpooled_handle_connects_on_first_use_and_stays_connected() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.unpooled()).await;
    assert_eq!(wire.opened(), 0);
    for n in 0..3 {
        insert(&shop, n).await?;
    }
    assert_eq!((wire.opened(), wire.alive()), (1, 1));
    Ok(())
}

#[tokio::test]
async fn others_wait_for_an_unpooled_handle_and_never_join_its_work() -> Result<()> {
    let (shop, clock) = timed_shop(|builder| builder.unpooled()).await;
    cenote::scope(async {
        let tx = shop.begin().await?;
        insert(&shop, 1).await?;
        let mut other = std::pin::pin!(cenote::detached(async { count(&shop).await }));
        assert!(poll_once(other.as_mut()).await.is_pending());
        tx.rollback().await?;
        assert_eq!(soon("the other is served", other).await, 0);

        let _tx = shop.begin().await?;
        let mut late = std::pin::pin!(cenote::detached(async { shop.exec("SELECT 1", ()).await }));
        assert!(poll_once(late.as_mut()).await.is_pending());
        clock.advance(Duration::from_secs(31));
        let error = soon("the deadline passes", late).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Timeout, "{error}");
        Ok(())
    })
    .await
}

/// Each connection to a private database in memory is a database of its own.
#[tokio::test]
async fn an_unpooled_private_database_in_memory_keeps_what_is_in_it() -> Result<()> {
    let db = Db::builder("sqlite::memory:").unpooled().open().await?;
    db.exec("CREATE TABLE t (n)", ()).await?;
    insert(&db, 1).await?;
    assert_eq!(numbers(&db).await, [1]);
    Ok(())
}

/// A script touches the session, and what cannot be reset is replaced: but this
/// connection *is* the database.
#[tokio::test]
async fn script_does_not_empty_an_unpooled_private_memory_database() -> Result<()> {
    let db = Db::builder("sqlite::memory:").unpooled().open().await?;
    db.exec("CREATE TABLE t (n); INSERT INTO t VALUES (1)", ())
        .await?;
    quiet(&db).await;
    let numbers: Vec<i64> = db.query_as("SELECT n FROM t", ()).await?;
    assert_eq!(numbers, [1]);
    Ok(())
}

/// B-012, B-013, D-core-024a, D-core-024b
#[tokio::test]
async fn default_reaches_existing_connections_and_later_ones() -> Result<()> {
    let shop = shop_with(|builder| builder.min(2).max(4)).await;
    assert_eq!(shop.status().idle, 2);
    shop.set_default("cache_size", 123).await?;
    shop.set_default("cache_size", 321).await?;
    let connections = [
        shop.connection().await?,
        shop.connection().await?,
        shop.connection().await?,
        shop.connection().await?,
    ];
    assert_eq!(shop.status().total, 4);
    for connection in connections {
        let size: i64 = connection
            .query_as_one("SELECT * FROM pragma_cache_size", ())
            .await?;
        assert_eq!(size, 321);
    }
    Ok(())
}

#[tokio::test]
async fn a_default_survives_the_reset_of_a_session() -> Result<()> {
    let shop = shop(1).await;
    shop.set_default("cache_size", 55).await?;
    cenote::scope(async { shop.exec("PRAGMA cache_size = 66", ()).await }).await?;
    quiet(&shop).await;
    let size: i64 = shop
        .query_as_one("SELECT * FROM pragma_cache_size", ())
        .await?;
    assert_eq!(size, 55);
    Ok(())
}

/// B-023
#[tokio::test]
async fn the_health_check_keeps_nothing_alive() -> Result<()> {
    let database = TestDatabase::new();
    let (driver, wire) = Probe::new(cenote::sqlite::Sqlite::new());
    let builder = database.builder_with(driver).min(2);
    let db = builder
        .healthcheck_interval(Duration::from_millis(1))
        .open()
        .await?;
    assert_eq!(wire.alive(), 2);
    drop(db);
    until("the connections are closed", || wire.alive() == 0).await;
    Ok(())
}

/// D-core-023, B-017
#[tokio::test]
async fn coroutine_may_end_in_a_transaction_during_a_handle_drop() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(1)).await;
    let super::support::Shop { db, database } = shop;
    let scope = cenote::scope({
        let db = db.clone();
        async move {
            db.exec("BEGIN", ()).await?;
            insert(&db, 1).await?;
            // With this the last handle goes, when the coroutine ends.
            drop(db);
            Ok::<(), Error>(())
        }
    });
    drop(db);
    scope.await?;
    until("the connection is closed", || wire.alive() == 0).await;
    let again = Db::open(&database.dsn()).await?;
    assert_eq!(count(&again).await, 0);
    Ok(())
}
