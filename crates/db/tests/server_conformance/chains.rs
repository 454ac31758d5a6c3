//! A text that ends a transaction and begins the next one: COMMIT AND CHAIN, ROLLBACK AND CHAIN.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cenote::{Db, Kind, Result, RowStream};

use super::{insert, numbers, shop};

async fn read_all(mut rows: RowStream) -> Result<()> {
    while rows.try_next().await?.is_some() {}
    Ok(())
}

/// The ways to stream a text inside a transaction closure.
const WAYS: [&str; 4] = ["read", "dropped", "statement", "statement dropped"];

async fn stream(db: &Db, way: &str, sql: &str) -> Result<()> {
    let statement;
    let rows = match way.starts_with("statement") {
        true => {
            statement = db.prepare(sql).await?;
            statement.stream(()).await?
        }
        false => db.stream(sql, ()).await?,
    };
    match way.ends_with("dropped") {
        true => drop(rows),
        false => read_all(rows).await?,
    }
    Ok(())
}

#[tokio::test]
async fn h13_streamed_chain_in_a_closure_fails_its_commit() {
    for sql in [
        "ROLLBACK AND CHAIN",
        "COMMIT AND CHAIN",
        "/**/ rollback and chain",
    ] {
        for way in WAYS {
            let db = shop(1).await;
            let done = db
                .transaction(async || {
                    insert(&db, 1).await?;
                    stream(&db, way, sql).await?;
                    Ok(())
                })
                .await;
            let kind = done.map_err(|error| error.kind());
            assert_eq!(kind, Err(Kind::TransactionLost), "{sql}, {way}");
            let kept: &[i64] = if sql.starts_with("COMMIT") { &[1] } else { &[] };
            assert_eq!(numbers(&db).await, kept, "{sql}, {way}");
        }
    }
}

#[tokio::test]
async fn h13_streamed_chain_fails_the_statements_after_it() {
    for way in WAYS {
        let db = shop(1).await;
        let after = db
            .transaction(async || {
                stream(&db, way, "ROLLBACK AND CHAIN").await?;
                let after = insert(&db, 1).await;
                Ok(after.unwrap_err().kind())
            })
            .await;
        assert_eq!(after.unwrap_err().kind(), Kind::TransactionLost, "{way}");
        assert_eq!(numbers(&db).await, [0; 0], "{way}");
    }
}

#[tokio::test]
async fn h13_streamed_chain_on_a_guard_fails_its_commit() {
    for drops in [false, true] {
        let db = shop(1).await;
        let kind = cenote::scope(async {
            let tx = db.begin().await.unwrap();
            insert(&db, 1).await.unwrap();
            let rows = tx.stream("ROLLBACK AND CHAIN", ()).await.unwrap();
            match drops {
                true => drop(rows),
                false => read_all(rows).await.unwrap(),
            }
            tx.commit().await.unwrap_err().kind()
        })
        .await;
        assert_eq!(kind, Kind::TransactionLost);
        assert_eq!(numbers(&db).await, [0; 0]);
    }
}

/// Registers a callback that counts.
fn counted(db: &Db) -> Arc<AtomicUsize> {
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&runs);
    db.after_commit(move || {
        counter.fetch_add(1, Ordering::Relaxed);
    });
    runs
}

#[tokio::test]
async fn h13_after_commit_runs_after_a_streamed_commit() {
    let db = shop(1).await;
    cenote::scope(async {
        db.exec("BEGIN", ()).await.unwrap();
        let runs = counted(&db);
        let rows = db.stream("COMMIT", ()).await.unwrap();
        read_all(rows).await.unwrap();
        assert_eq!(runs.load(Ordering::Relaxed), 1);
        assert!(!db.in_transaction());
    })
    .await;
}

#[tokio::test]
async fn h13_callbacks_belong_to_their_own_link_of_a_chain() {
    for streamed in [false, true] {
        let db = shop(1).await;
        cenote::scope(async {
            let run = async |sql: &str| match streamed {
                true => read_all(db.stream(sql, ()).await.unwrap()).await.unwrap(),
                false => drop(db.exec(sql, ()).await.unwrap()),
            };
            db.exec("BEGIN", ()).await.unwrap();
            let first = counted(&db);
            run("COMMIT AND CHAIN").await;
            assert_eq!(first.load(Ordering::Relaxed), 1);
            assert!(db.in_transaction());
            let second = counted(&db);
            run("ROLLBACK AND CHAIN").await;
            run("COMMIT").await;
            assert_eq!(first.load(Ordering::Relaxed), 1);
            assert_eq!(second.load(Ordering::Relaxed), 0, "rolled back");
        })
        .await;
    }
}
