//! The warning about a transaction that was dropped without a commit.

use std::future::pending;

use cenote::{Coroutine, Db, Error, Result};
use tracing::Level;

use crate::log::Log;

async fn notes(name: &str) -> Db {
    let dsn = format!("sqlite:file:forgotten-{name}?mode=memory&cache=shared");
    let db = Db::open(&dsn).await.unwrap();
    db.exec("CREATE TABLE note (n INTEGER UNIQUE)", ())
        .await
        .unwrap();
    db
}

async fn write(db: &Db, n: i64) -> Result<()> {
    db.exec("INSERT INTO note VALUES (?)", (n,)).await.map(drop)
}

fn warnings(log: &Log) -> Vec<String> {
    let lines = log.take(Level::WARN, "cenote").into_iter();
    lines
        .filter(|line| line.contains("without commit()"))
        .collect()
}

#[tokio::test]
async fn forgotten_commit_is_logged_with_the_line_of_begin() -> Result<()> {
    let db = notes("line").await;
    let log = Log::new();
    let line = line!() + 2;
    cenote::scope(async {
        let _tx = db.begin().await?;
        write(&db, 1).await?;
        let n: i64 = db.query_as_one("SELECT count(*) FROM note", ()).await?;
        assert_eq!(n, 1);
        Ok::<_, Error>(())
    })
    .await?;
    let said = warnings(&log);
    assert_eq!(said.len(), 1, "{said:?}");
    let site = format!("begun_at={}:{line}:", file!());
    assert!(said[0].contains(&site), "{said:?}");

    // On a connection, and for a savepoint.
    let mut connection = db.connection().await?;
    let mut tx = connection.begin().await?;
    tx.exec("INSERT INTO note VALUES (2)", ()).await?;
    let inner = tx.savepoint().await?;
    inner.exec("INSERT INTO note VALUES (3)", ()).await?;
    drop(inner);
    assert_eq!(warnings(&log).len(), 1);
    drop(tx);
    assert_eq!(warnings(&log).len(), 1);
    Ok(())
}

#[tokio::test]
async fn transaction_that_ends_for_a_reason_is_not_logged() -> Result<()> {
    let db = notes("reason").await;
    write(&db, 7).await?;
    let log = Log::new();
    cenote::scope(async {
        let tx = db.begin().await?;
        write(&db, 1).await?;
        tx.commit().await?;
        let tx = db.begin().await?;
        write(&db, 2).await?;
        tx.rollback().await?;
        // It has only read.
        let tx = db.begin().await?;
        db.query("SELECT n FROM note", ()).await?;
        drop(tx);
        // Nothing has run in it.
        drop(db.begin().await?);
        // A failed call, as behind a question mark.
        let tx = db.begin().await?;
        write(&db, 3).await?;
        assert!(write(&db, 7).await.unwrap_err().is_unique_violation());
        drop(tx);
        // A batch whose last statements failed.
        let tx = db.begin().await?;
        let mut batch = db.batch();
        for n in [3, 7, 8] {
            batch.exec("INSERT INTO note VALUES (?)", (n,));
        }
        let results = batch.run().await?;
        assert!(results.check().unwrap_err().is_unique_violation());
        drop(tx);
        Ok::<_, Error>(())
    })
    .await?;
    // A closure decides by its result.
    let refused = db.transaction(async || {
        write(&db, 4).await?;
        Err::<(), _>(Error::other("no"))
    });
    assert!(refused.await.is_err());
    assert_eq!(warnings(&log), [""; 0]);
    Ok(())
}

#[tokio::test]
async fn cancel_or_panic_is_no_forgotten_commit() -> Result<()> {
    let db = notes("cancel").await;
    let log = Log::new();
    let (written, is_written) = tokio::sync::oneshot::channel::<()>();
    let hangs = cenote::scope(async {
        let _tx = db.begin().await?;
        write(&db, 1).await?;
        let _ = written.send(());
        pending::<Result<()>>().await
    });
    tokio::select! {
        biased;
        _ = hangs => unreachable!("it hangs"),
        _ = is_written => {}
    }
    let panics = cenote::scope(async {
        let _tx = db.begin().await.unwrap();
        write(&db, 2).await.unwrap();
        panic!("as intended");
    });
    assert!(has_panicked(panics).await);

    let coroutine = Coroutine::new();
    let tx = coroutine.enter(|| db.begin());
    let mut tx = Box::pin(tx);
    let tx = std::future::poll_fn(|cx| coroutine.enter(|| tx.as_mut().poll(cx))).await?;
    tx.exec("INSERT INTO note VALUES (3)", ()).await?;
    coroutine.cancel(|| drop(tx));
    assert_eq!(warnings(&log), [""; 0]);
    Ok(())
}

/// Returns whether a future panics.
async fn has_panicked(future: impl Future<Output = ()>) -> bool {
    let mut future = Box::pin(future);
    std::future::poll_fn(move |cx| {
        let polled =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| future.as_mut().poll(cx)));
        match polled {
            Ok(std::task::Poll::Pending) => std::task::Poll::Pending,
            Ok(std::task::Poll::Ready(())) => std::task::Poll::Ready(false),
            Err(_) => std::task::Poll::Ready(true),
        }
    })
    .await
}
