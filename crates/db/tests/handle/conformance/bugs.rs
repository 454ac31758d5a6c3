//! Bugs of the design that Cenote implements, except for those in other modules.

use std::sync::Arc;

use cenote::{Error, Kind, Result};

use super::support::{
    Fault, Step, connection_id, insert, numbers, poll_once, quiet, soon, until, watched_shop,
};

/// B-008: no state of a thread or of the process is held while a call waits.
#[tokio::test]
async fn connecting_coroutine_is_not_current_for_others_meanwhile() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(2)).await;
    let (reached, go_on) = wire.hold(Step::Connect);
    let connecting = cenote::spawn({
        let db = shop.db.clone();
        async move {
            let tx = db.begin().await?;
            insert(&db, 1).await?;
            tx.commit().await
        }
    });
    soon("it connects", reached.notified()).await;
    assert_eq!(cenote::current(), None);
    assert!(!shop.in_transaction());
    shop.exec("SELECT * FROM nowhere", ()).await.unwrap_err();
    insert(&shop, 2).await?;
    go_on.notify_one();
    connecting.await.unwrap()?;
    assert_eq!(numbers(&shop).await, [1, 2]);
    Ok(())
}

/// B-034: as many tasks as there are connect at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_that_connect_at_once_create_at_most_max_connections() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(3)).await;
    wire.set_latency(20);
    let tasks: Vec<_> = (0..10_i64)
        .map(|n| {
            let (db, wire) = (shop.db.clone(), Arc::clone(&wire));
            cenote::spawn(async move {
                insert(&db, n).await?;
                Ok::<usize, Error>(wire.alive())
            })
        })
        .collect();
    for task in tasks {
        assert!(soon("it is served", task).await.unwrap()? <= 3);
    }
    assert!(wire.opened() <= 3);
    Ok(())
}

/// B-035: cancelled while it connects.
#[tokio::test]
async fn a_call_that_is_dropped_while_it_connects_leaves_a_sound_pool() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(1)).await;
    for polls in 0..30 {
        let mut call = Box::pin(insert(&shop, 1));
        for _ in 0..polls {
            if poll_once(call.as_mut()).await.is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(call);
        soon("the place is free", shop.exec("SELECT 1", ())).await?;
        quiet(&shop).await;
        assert_eq!((shop.status().total, wire.alive()), (1, 1));
        // The next round connects anew.
        wire.cut();
        let _ = shop.exec("SELECT 1", ()).await;
        quiet(&shop).await;
    }
    Ok(())
}

/// B-027: what is looked at is one's own connections, and not a counter of the whole server.
#[tokio::test]
async fn connections_of_tasks_that_ended_are_gone_when_the_handle_is() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(5)).await;
    let tasks: Vec<_> = (0..5)
        .map(|_| {
            let db = shop.db.clone();
            cenote::spawn(async move {
                db.exec("CREATE TEMP TABLE mine (n)", ()).await?;
                db.exec("INSERT INTO mine VALUES (1), (2), (3)", ()).await?;
                let n: i64 = db.query_as_one("SELECT count(*) FROM mine", ()).await?;
                assert_eq!(n, 3);
                Ok::<(), Error>(())
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap()?;
    }
    drop(shop);
    until("all are closed", || wire.alive() == 0).await;
    Ok(())
}

/// B-044: a connect that fails is one error, with the reason in it.
#[tokio::test]
async fn a_failed_connect_is_one_error_with_its_reason() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(1)).await;
    let reason = Error::new(Kind::Connect, "the server is asleep");
    wire.next(Step::Connect, Fault::Refused(reason));
    let error = insert(&shop, 1).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Connect);
    assert_eq!(error.message(), "the server is asleep");
    insert(&shop, 2).await?;
    assert_eq!(numbers(&shop).await, [2]);
    Ok(())
}

/// B-036: health checks go on under load, and sound connections survive them.
#[tokio::test]
async fn health_checks_ping_idle_connections_and_replace_dead_ones() -> Result<()> {
    use std::time::Duration;
    let database = super::support::TestDatabase::new();
    let clock = super::support::Clock::new();
    let (driver, wire) = super::support::Probe::new(cenote::sqlite::Sqlite::new());
    let interval = Duration::from_secs(30);
    let builder = database.builder_with(driver).runtime(clock.clone());
    let builder = builder.min(2).max(3).healthcheck_interval(interval);
    let shop = super::support::Shop::open(database, builder).await;
    let id = connection_id(&shop).await?;
    wire.take_log();
    let pings = || {
        wire.take_log()
            .iter()
            .filter(|what| *what == "ping")
            .count()
    };
    let mut seen = 0;
    clock
        .advance_until(interval * 2, "both were pinged", || {
            seen += pings();
            seen >= 2
        })
        .await;
    quiet(&shop).await;
    assert_eq!(wire.opened(), 2, "sound ones survive");
    assert_eq!(connection_id(&shop).await?, id);
    wire.cut();
    clock
        .advance_until(interval * 2, "dead ones are replaced", || {
            wire.opened() >= 4
        })
        .await;
    quiet(&shop).await;
    assert_eq!(shop.status().total, 2);
    insert(&shop, 1).await?;
    shop.close().await
}
