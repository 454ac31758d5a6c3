//! "database is locked" says who has the lock: a line of this program, or another process.

use cenote::{Builder, Db, Result};
use tempfile::TempDir;

async fn open(folder: &TempDir) -> Db {
    describe(folder).open().await.unwrap()
}

fn describe(folder: &TempDir) -> Builder {
    let dsn = format!("sqlite:{}", folder.path().join("locked.db").display());
    Db::builder(&dsn).option("busy_timeout", "50ms").max(4)
}

#[tokio::test]
async fn a_locked_database_names_the_line_that_writes() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let (db, other) = (open(&folder).await, open(&folder).await);
    db.exec("CREATE TABLE t (n INTEGER)", ()).await?;
    let writer = async {
        let mut connection = db.connection().await?;
        let tx = connection.begin().await?;
        let line = line!() - 1;
        tx.exec("INSERT INTO t VALUES (1)", ()).await?;
        // The same handle, and another one of the same file; by a task and by a thread.
        let waiting = other.connection().await?;
        for error in [
            db.exec("INSERT INTO t VALUES (2)", ()).await.unwrap_err(),
            other
                .exec("INSERT INTO t VALUES (2)", ())
                .await
                .unwrap_err(),
            waiting
                .exec("INSERT INTO t VALUES (2)", ())
                .await
                .unwrap_err(),
            db.transaction(async || Ok(())).await.unwrap_err(),
        ] {
            assert!(error.is_retryable(), "{error}");
            assert_eq!(error.code(), Some(5), "{error}");
            let [site] = error.call_sites() else {
                panic!("{error}");
            };
            assert_eq!((site.file(), site.line()), (file!(), line), "{error}");
            let message = "database is locked: this program has been writing for ";
            assert!(error.message().starts_with(message), "{error}");
        }
        tx.rollback().await
    };
    writer.await?;
    db.exec("INSERT INTO t VALUES (3)", ()).await?;
    Ok(())
}

#[tokio::test]
async fn a_single_statement_that_writes_is_named_as_well() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let db = open(&folder).await;
    db.exec("CREATE TABLE t (n INTEGER)", ()).await?;
    let holder = db.connection().await?;
    holder.exec("BEGIN", ()).await?;
    holder.exec("INSERT INTO t VALUES (1)", ()).await?;
    let line = line!() - 1;
    let error = db.exec("INSERT INTO t VALUES (2)", ()).await.unwrap_err();
    assert_eq!(error.call_sites()[0].line(), line, "{error}");
    holder.exec("COMMIT", ()).await?;
    Ok(())
}

#[tokio::test]
async fn a_lock_of_another_process_is_called_that() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let db = open(&folder).await;
    db.exec("CREATE TABLE t (n INTEGER)", ()).await?;
    // A connection that the write queue does not know stands for another process.
    let foreign = rusqlite::Connection::open(folder.path().join("locked.db")).unwrap();
    foreign.execute_batch("BEGIN IMMEDIATE").unwrap();
    for error in [
        db.exec("INSERT INTO t VALUES (1)", ()).await.unwrap_err(),
        db.transaction(async || db.exec("INSERT INTO t VALUES (1)", ()).await)
            .await
            .unwrap_err(),
    ] {
        let message = "database is locked by another process";
        assert!(error.message().starts_with(message), "{error}");
        assert!(error.call_sites().is_empty(), "{error}");
        assert!(error.is_retryable());
    }
    foreign.execute_batch("COMMIT").unwrap();
    db.exec("INSERT INTO t VALUES (1)", ()).await?;
    Ok(())
}
