//! A call runs where it was made or not at all.
#![allow(
    clippy::async_yields_async,
    reason = "calls are carried away from where they were made"
)]

use std::future::Future;
use std::pin::pin;

use cenote::{Db, Error, Kind, Result};

use super::support::{TestDatabase, bare_spawn, count, insert, numbers, shop};

/// A database that lives as long as the program, as futures need it that are spawned.
async fn eternal() -> (&'static Db, TestDatabase) {
    let super::support::Shop { db, database } = shop(3).await;
    (Box::leak(Box::new(db)), database)
}

fn assert_escaped<T>(done: Result<T>, what: &str) {
    let Err(error) = done else {
        panic!("{what} ran where it must not");
    };
    assert_eq!(error.kind(), Kind::Escaped, "{what}: {error}");
}

#[tokio::test]
async fn future_carried_out_of_a_transaction_does_not_run_outside_it() -> Result<()> {
    let shop = shop(3).await;
    let carried = shop
        .transaction(async || Ok(shop.exec("INSERT INTO t (n) VALUES (1)", ())))
        .await?;
    let line = line!() - 2;
    let error = carried.await.unwrap_err();
    assert_eq!(error.kind(), Kind::Escaped);
    let made_at = error.call_site().map(|site| site.line());
    assert_eq!(made_at, Some(line));
    assert_eq!(count(&shop).await, 0);
    Ok(())
}

#[tokio::test]
async fn a_future_made_outside_does_not_run_inside_a_transaction() -> Result<()> {
    let shop = shop(3).await;
    let made_outside = shop.exec("INSERT INTO t (n) VALUES (1)", ());
    shop.transaction(async || {
        assert_escaped(made_outside.await, "a call made outside");
        Ok(())
    })
    .await?;
    assert_eq!(count(&shop).await, 0);
    Ok(())
}

#[tokio::test]
async fn a_future_spawned_from_inside_a_transaction_does_not_run() -> Result<()> {
    let (db, _place) = eternal().await;
    db.transaction(async || {
        let bare = bare_spawn(db.exec("INSERT INTO t (n) VALUES (1)", ()));
        assert_escaped(bare.await.unwrap(), "one given to tokio");
        let own = cenote::spawn(db.exec("INSERT INTO t (n) VALUES (2)", ()));
        assert_escaped(own.await.unwrap(), "one given to cenote::spawn");
        let many = db.exec_many("INSERT INTO t (n) VALUES (?)", [(3,)]);
        assert_escaped(bare_spawn(many).await.unwrap(), "exec_many");
        Ok(())
    })
    .await?;
    assert_eq!(count(db).await, 0);
    Ok(())
}

#[tokio::test]
async fn future_made_outside_of_coroutines_may_be_spawned_outside() -> Result<()> {
    let (db, _place) = eternal().await;
    bare_spawn(db.exec("INSERT INTO t (n) VALUES (1)", ()))
        .await
        .unwrap()?;
    assert_eq!(numbers(db).await, [1]);
    Ok(())
}

#[tokio::test]
async fn future_made_in_a_frame_runs_in_no_inner_or_outer_frame() -> Result<()> {
    let shop = shop(3).await;
    shop.transaction(async || {
        let outer = shop.exec("INSERT INTO t (n) VALUES (1)", ());
        let inner = shop
            .transaction(async || {
                assert_escaped(outer.await, "a call of the outer frame");
                Ok(shop.exec("INSERT INTO t (n) VALUES (2)", ()))
            })
            .await?;
        assert_escaped(inner.await, "a call of the inner frame");
        Ok(())
    })
    .await?;
    assert_eq!(count(&shop).await, 0);
    Ok(())
}

#[tokio::test]
async fn future_made_in_one_scope_runs_in_no_other_scope() -> Result<()> {
    let shop = shop(3).await;
    let insert = || shop.exec("INSERT INTO t (n) VALUES (1)", ());
    let made_in_scope = cenote::scope(async { insert() }).await;
    assert_escaped(made_in_scope.await, "a scope's call awaited in none");
    let made_in_scope = cenote::scope(async { insert() }).await;
    let awaited = cenote::scope(made_in_scope).await;
    assert_escaped(awaited, "a scope's call awaited in another");
    let made_outside = insert();
    assert_escaped(
        cenote::scope(made_outside).await,
        "a call awaited in a scope",
    );
    cenote::scope(async {
        assert_escaped(cenote::detached(insert()).await, "a call awaited detached");
    })
    .await;
    assert_eq!(count(&shop).await, 0);
    Ok(())
}

#[tokio::test]
async fn no_sort_of_call_can_escape() -> Result<()> {
    let shop = shop(3).await;
    async fn carried<T>(db: &Db, what: &str, made: impl Future<Output = Result<T>>) {
        assert_escaped(made.await, what);
        assert_eq!(db.status().active, 0, "{what} holds something");
    }
    // Each is made in a scope and awaited outside.
    macro_rules! carry {
        ($($what:literal: $made:expr;)*) => {$(
            let made = cenote::scope(async { $made }).await;
            carried(&shop, $what, made).await;
        )*};
    }
    carry! {
        "exec": shop.exec("SELECT 1", ());
        "exec_many": shop.exec_many("INSERT INTO t (n) VALUES (?)", [(1,)]);
        "query": shop.query("SELECT 1", ());
        "query_one": shop.query_one("SELECT 1", ());
        "query_opt": shop.query_opt("SELECT 1", ());
        "query_as": shop.query_as::<i64>("SELECT 1", ());
        "query_as_one": shop.query_as_one::<i64>("SELECT 1", ());
        "query_as_opt": shop.query_as_opt::<i64>("SELECT 1", ());
        "stream": shop.stream("SELECT 1", ());
        "prepare": shop.prepare("SELECT 1");
        "begin": shop.begin();
        "transaction_options.begin": shop.transaction_options().begin();
        "transaction": shop.transaction(async || insert(&shop, 1).await);
        "transaction_options.run": shop.transaction_options().run(async || insert(&shop, 1).await);
        "try_transaction": shop.try_transaction::<(), Error, _>(async || Ok(()));
        "transaction_options.retry": shop.transaction_options().retry(async || Ok::<_, Error>(()));
        "pin": shop.pin();
        "connection": shop.connection();
        "ping": shop.ping();
    }
    assert_eq!(count(&shop).await, 0);
    Ok(())
}

/// A future that was polled where it was made is not looked at again: it is under way there.
#[tokio::test]
async fn an_escaped_call_fails_on_its_first_poll() {
    let shop = shop(3).await;
    let mut made = pin!(cenote::scope(async { shop.exec("SELECT 1", ()) }).await);
    let polled = super::support::poll_once(made.as_mut()).await;
    assert!(polled.is_ready(), "it needs no connection to say so");
    assert_eq!(shop.status().total, 0);
}

#[tokio::test]
async fn an_escaped_calls_error_advises_a_fix() {
    let shop = shop(1).await;
    let made = cenote::scope(async { shop.exec("SELECT 1", ()) }).await;
    let error = made.await.unwrap_err();
    assert!(
        error
            .message()
            .contains("make the call where it is awaited"),
        "{error}"
    );
}

/// What belongs to one connection cannot be anywhere else.
#[tokio::test]
async fn calls_of_guard_statement_and_connection_may_run_anywhere() -> Result<()> {
    let shop = shop(3).await;
    cenote::scope(async {
        let tx = shop.begin().await?;
        let made = tx.exec("INSERT INTO t (n) VALUES (1)", ());
        cenote::scope(made).await?;
        tx.commit().await
    })
    .await?;
    let connection = shop.connection().await?;
    let made = connection.exec("INSERT INTO t (n) VALUES (2)", ());
    cenote::scope(made).await?;
    let statement = connection.prepare("INSERT INTO t (n) VALUES (3)").await?;
    let made = statement.exec(());
    cenote::scope(made).await?;
    assert_eq!(numbers(&shop).await, [1, 2, 3]);
    Ok(())
}
