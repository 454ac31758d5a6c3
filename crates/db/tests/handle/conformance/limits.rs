//! Limits on statements and transactions, by a clock that the tests move.

use std::pin::pin;
use std::time::Duration;

use cenote::{Builder, Error, Kind, Result};

use super::support::{
    Clock, ENDLESS, GATED, Gate, Probe, Shop, Step, TestDatabase, begins_to_wait, connection_id,
    count, insert, numbers, quiet, soon,
};

const LIMIT: Duration = Duration::from_secs(10);
const MORE: Duration = Duration::from_secs(11);
const LESS: Duration = Duration::from_secs(9);

/// A shop whose time is moved by hand and whose SQL can stop.
async fn limited(describe: impl FnOnce(Builder) -> Builder) -> (Shop, Clock, Gate) {
    let database = TestDatabase::new();
    let clock = Clock::new();
    let (driver, gate) = Gate::add_to(cenote::sqlite::Sqlite::new());
    let builder = database.builder_with(driver).runtime(clock.clone());
    // The other limits are not what is looked at here.
    let builder = builder.acquire_timeout(None).cleanup_timeout(MORE * 100);
    let builder = describe(builder);
    (Shop::open(database, builder).await, clock, gate)
}

/// Waits until nothing is on the way, so that the time can be moved.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_statement_that_runs_too_long_is_cancelled() -> Result<()> {
    let (shop, clock, gate) = limited(|builder| builder.max(1).statement_timeout(LIMIT)).await;
    insert(&shop, 1).await?;
    let id = connection_id(&shop).await?;
    let mut endless = pin!(shop.query(ENDLESS, ()));
    let line = line!() - 1;
    begins_to_wait(endless.as_mut()).await;
    gate.begun().await;
    clock.advance(LESS);
    begins_to_wait(endless.as_mut()).await;
    clock.advance(MORE - LESS);
    let error = soon("it is cancelled", endless).await.unwrap_err();
    assert_eq!(error.kind(), Kind::StatementTimeout, "{error}");
    assert!(error.is_timeout());
    assert_eq!(error.call_site().unwrap().line(), line);
    assert_eq!(soon("the connection is settled", numbers(&shop)).await, [1]);
    assert_eq!(connection_id(&shop).await?, id);
    Ok(())
}

#[tokio::test]
async fn a_statement_within_its_limit_is_left_alone() -> Result<()> {
    let (shop, clock, gate) = limited(|builder| builder.max(1).statement_timeout(LIMIT)).await;
    insert(&shop, 1).await?; // So that there is a connection.
    for _ in 0..3 {
        let mut slow = pin!(shop.query(GATED, ()));
        begins_to_wait(slow.as_mut()).await;
        gate.begun().await;
        clock.advance(LESS);
        gate.open();
        slow.await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_statement_that_runs_too_long_dooms_its_transaction() -> Result<()> {
    let (shop, clock, gate) = limited(|builder| builder.max(1).statement_timeout(LIMIT)).await;
    let done: Result<()> = shop
        .transaction(async || {
            insert(&shop, 1).await?;
            let mut endless = pin!(shop.query(ENDLESS, ()));
            begins_to_wait(endless.as_mut()).await;
            gate.begun().await;
            clock.advance(MORE);
            let error = soon("it is cancelled", endless).await.unwrap_err();
            assert_eq!(error.kind(), Kind::StatementTimeout);
            assert_eq!(insert(&shop, 2).await.unwrap_err().kind(), Kind::Doomed);
            Ok(())
        })
        .await;
    assert_eq!(done.unwrap_err().kind(), Kind::Doomed);
    assert_eq!(numbers(&shop).await, [0; 0]);
    Ok(())
}

/// The transaction is rolled back and its place is free, though nobody ends it.
async fn assert_expires(shop: &Shop, clock: &Clock, says: &str) {
    cenote::scope(async {
        let tx = shop.begin().await.unwrap();
        let line = line!() - 1;
        insert(shop, 1).await.unwrap();
        settle().await;
        clock.advance(MORE);
        quiet(shop).await;
        // Somebody else has the only connection now.
        assert_eq!(count(&shop.outside()).await, 0);
        insert(&shop.outside(), 2).await.unwrap();
        for _ in 0..2 {
            let error = insert(shop, 3).await.unwrap_err();
            assert_eq!(error.kind(), Kind::TransactionTimeout, "{error}");
            assert!(error.is_timeout());
            assert_eq!(error.call_sites()[0].line(), line, "it names the holder");
            let expected = format!("{says}, begun at {}", error.call_sites()[0]);
            assert!(error.to_string().starts_with(&expected), "{error}");
        }
        let error = tx.commit().await.unwrap_err();
        assert_eq!(error.kind(), Kind::TransactionTimeout);
        insert(shop, 4).await.unwrap();
    })
    .await;
    assert_eq!(numbers(shop).await, [2, 4]);
}

#[tokio::test]
async fn a_transaction_that_is_too_old_is_rolled_back() {
    let (shop, clock, _gate) = limited(|builder| builder.max(1).max_transaction_age(LIMIT)).await;
    let says = "a transaction was open for 11 s (max_transaction_age is 10 s)";
    assert_expires(&shop, &clock, says).await;
}

#[tokio::test]
async fn a_transaction_that_idles_too_long_is_rolled_back() {
    let (shop, clock, _gate) = limited(|builder| builder.max(1).idle_in_transaction(LIMIT)).await;
    let says = "idle for 11 s in a transaction (idle_in_transaction is 10 s)";
    assert_expires(&shop, &clock, says).await;
}

#[tokio::test]
async fn a_closure_whose_transaction_expired_cannot_commit() -> Result<()> {
    let (shop, clock, _gate) = limited(|builder| builder.max(1).idle_in_transaction(LIMIT)).await;
    let done: Result<()> = shop
        .transaction(async || {
            insert(&shop, 1).await?;
            settle().await;
            clock.advance(MORE);
            quiet(&shop).await;
            Ok(())
        })
        .await;
    assert_eq!(done.unwrap_err().kind(), Kind::TransactionTimeout);
    assert_eq!(numbers(&shop).await, [0; 0]);
    Ok(())
}

/// The transaction is rolled back.
#[tokio::test]
async fn rolling_back_a_transaction_that_expired_is_fine() -> Result<()> {
    let (shop, clock, _gate) = limited(|builder| builder.max(1).idle_in_transaction(LIMIT)).await;
    cenote::scope(async {
        let tx = shop.begin().await?;
        insert(&shop, 1).await?;
        settle().await;
        clock.advance(MORE);
        quiet(&shop).await;
        tx.rollback().await
    })
    .await?;
    assert_eq!(numbers(&shop).await, [0; 0]);
    Ok(())
}

#[tokio::test]
async fn every_call_restarts_the_idle_time() -> Result<()> {
    let (shop, clock, _gate) = limited(|builder| builder.max(1).idle_in_transaction(LIMIT)).await;
    shop.transaction(async || {
        for n in 0..5 {
            insert(&shop, n).await?;
            settle().await;
            clock.advance(LESS);
            settle().await;
        }
        Ok(())
    })
    .await?;
    assert_eq!(count(&shop).await, 5);
    Ok(())
}

#[tokio::test]
async fn a_transaction_does_not_idle_while_a_call_is_under_way() -> Result<()> {
    let (shop, clock, gate) = limited(|builder| builder.max(1).idle_in_transaction(LIMIT)).await;
    shop.transaction(async || {
        insert(&shop, 1).await?;
        let mut slow = pin!(shop.query(GATED, ()));
        begins_to_wait(slow.as_mut()).await;
        gate.begun().await;
        for _ in 0..3 {
            clock.advance(MORE);
            settle().await;
        }
        gate.open();
        slow.await?;
        insert(&shop, 2).await
    })
    .await?;
    assert_eq!(numbers(&shop).await, [1, 2]);
    Ok(())
}

#[tokio::test]
async fn a_statement_of_a_transaction_that_grows_too_old_is_cancelled() -> Result<()> {
    let (shop, clock, gate) = limited(|builder| builder.max(1).max_transaction_age(LIMIT)).await;
    let done: Result<()> = shop
        .transaction(async || {
            insert(&shop, 1).await?;
            settle().await;
            clock.advance(LESS);
            let mut endless = pin!(shop.query(ENDLESS, ()));
            begins_to_wait(endless.as_mut()).await;
            gate.begun().await;
            clock.advance(MORE - LESS);
            let error = soon("it is cancelled", endless).await.unwrap_err();
            assert_eq!(error.kind(), Kind::TransactionTimeout, "{error}");
            insert(&shop, 2).await.unwrap_err();
            Ok(())
        })
        .await;
    done.unwrap_err();
    assert_eq!(soon("its place is free", numbers(&shop)).await, [0; 0]);
    Ok(())
}

/// The transaction is over its limit and not yet rolled back.
#[tokio::test]
async fn a_call_in_a_transaction_that_is_too_old_is_not_even_sent() -> Result<()> {
    let database = TestDatabase::new();
    let clock = Clock::new();
    let (driver, wire) = Probe::new(cenote::sqlite::Sqlite::new());
    let builder = database.builder_with(driver).runtime(clock.clone());
    let shop = Shop::open(database, builder.max(1).max_transaction_age(LIMIT)).await;
    let done: Result<()> = shop
        .transaction(async || {
            insert(&shop, 1).await?;
            wire.take_log();
            clock.advance(MORE);
            let error = insert(&shop, 2).await.unwrap_err();
            assert_eq!(error.kind(), Kind::TransactionTimeout, "{error}");
            let sent = wire.take_log();
            assert!(
                !sent.iter().any(|what| what.starts_with("INSERT")),
                "{sent:?}"
            );
            Ok(())
        })
        .await;
    assert!(done.is_err());
    assert_eq!(soon("its place is free", numbers(&shop)).await, [0; 0]);
    Ok(())
}

/// An unread stream is a call that does not end.
#[tokio::test]
async fn transaction_past_its_age_is_rolled_back_under_an_open_stream() -> Result<()> {
    let (shop, clock, _gate) = limited(|builder| builder.max(1).max_transaction_age(LIMIT)).await;
    let many =
        "WITH RECURSIVE up (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM up) SELECT n FROM up";
    let done: Result<()> = shop
        .transaction(async || {
            insert(&shop, 1).await?;
            let mut rows = shop.stream(many, ()).await?;
            rows.try_next().await?;
            settle().await;
            clock.advance(MORE);
            settle().await;
            drop(rows);
            clock.advance(MORE * 200);
            let error = insert(&shop, 2).await.unwrap_err();
            assert!(
                error.is_timeout() || error.kind() == Kind::Doomed,
                "{error}"
            );
            Ok(())
        })
        .await;
    done.unwrap_err();
    assert_eq!(soon("its place is free", numbers(&shop)).await, [0; 0]);
    Ok(())
}

/// "An open transaction (as the server sees it: a raw BEGIN counts)".
#[tokio::test]
async fn a_raw_transaction_that_idles_too_long_is_rolled_back() -> Result<()> {
    let (shop, clock, _gate) = limited(|builder| builder.max(1).idle_in_transaction(LIMIT)).await;
    assert_raw_expires(&shop, &clock).await
}

#[tokio::test]
async fn a_raw_transaction_that_is_too_old_is_rolled_back() -> Result<()> {
    let (shop, clock, _gate) = limited(|builder| builder.max(1).max_transaction_age(LIMIT)).await;
    assert_raw_expires(&shop, &clock).await
}

async fn assert_raw_expires(shop: &Shop, clock: &Clock) -> Result<()> {
    cenote::scope(async {
        shop.exec("BEGIN", ()).await?;
        insert(shop, 1).await?;
        settle().await;
        clock.advance(MORE);
        settle().await;
        quiet(shop).await;
        let error = insert(shop, 2).await.unwrap_err();
        assert_eq!(error.kind(), Kind::TransactionTimeout);
        shop.exec("ROLLBACK", ()).await?;
        insert(shop, 3).await?;
        Ok::<(), Error>(())
    })
    .await?;
    assert_eq!(numbers(shop).await, [3]);
    Ok(())
}

/// The same for an explicit connection, which has no coroutine to end it either.
#[tokio::test]
async fn idle_transaction_of_an_explicit_connection_is_rolled_back() -> Result<()> {
    let (shop, clock, _gate) = limited(|builder| builder.max(1).idle_in_transaction(LIMIT)).await;
    let mut connection = shop.connection().await?;
    let tx = connection.begin().await?;
    tx.exec("INSERT INTO t (n) VALUES (1)", ()).await?;
    settle().await;
    clock.advance(MORE);
    quiet(&shop).await;
    let error = tx
        .exec("INSERT INTO t (n) VALUES (2)", ())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Kind::TransactionTimeout);
    drop(tx);
    drop(connection);
    assert_eq!(numbers(&shop).await, [0; 0]);
    Ok(())
}

#[tokio::test]
async fn a_transaction_within_its_limits_is_left_alone() -> Result<()> {
    let (shop, clock, _gate) = limited(|builder| {
        let builder = builder.max(1).idle_in_transaction(LIMIT);
        builder.max_transaction_age(LIMIT).statement_timeout(LIMIT)
    })
    .await;
    for n in 0..3 {
        shop.transaction(async || {
            insert(&shop, n).await?;
            settle().await;
            clock.advance(LESS);
            settle().await;
            Ok(())
        })
        .await?;
    }
    clock.advance(MORE);
    settle().await;
    assert_eq!(numbers(&shop).await, [0, 1, 2]);
    Ok(())
}

#[tokio::test]
async fn waiting_for_a_connection_has_a_deadline_that_names_holders() -> Result<()> {
    let (shop, clock, _gate) = limited(|builder| builder.max(1).acquire_timeout(LIMIT)).await;
    let _holder = shop.connection().await?;
    let line = line!() - 1;
    let mut waiting = pin!(shop.exec("SELECT 1", ()));
    begins_to_wait(waiting.as_mut()).await;
    clock.advance(MORE);
    let error = soon("the deadline passes", waiting).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Timeout);
    let [holder] = error.holders() else {
        panic!("{error:?}");
    };
    assert_eq!((holder.caller.line(), holder.held_for), (line, MORE));
    let expected = "timed out after 11 s waiting for a connection";
    assert!(error.message().starts_with(expected), "{error}");
    assert!(
        error
            .message()
            .contains("(1 of 1 in use); see Error::holders"),
        "{error}"
    );
    Ok(())
}

#[tokio::test]
async fn connecting_has_a_deadline_of_its_own() -> Result<()> {
    let database = TestDatabase::new();
    let clock = Clock::new();
    let (driver, wire) = Probe::new(cenote::sqlite::Sqlite::new());
    let builder = database.builder_with(driver).runtime(clock.clone());
    let shop = Shop::open(database, builder.max(1).connect_timeout(LIMIT)).await;
    let (reached, _go_on) = wire.hold(Step::Connect);
    let mut connecting = pin!(shop.exec("SELECT 1", ()));
    begins_to_wait(connecting.as_mut()).await;
    soon("it connects", reached.notified()).await;
    clock.advance(MORE);
    let error = soon("the deadline passes", connecting).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Timeout, "{error}");
    assert!(error.message().contains("connecting"), "{error}");
    assert_eq!(shop.status().total, 0);
    // After a failure the pool takes a breath.
    let mut next = pin!(insert(&shop, 1));
    begins_to_wait(next.as_mut()).await;
    clock.advance(Duration::from_secs(5));
    soon("it connects", next).await?;
    Ok(())
}
