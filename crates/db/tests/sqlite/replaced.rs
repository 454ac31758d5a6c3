//! A SQLite file that is deleted or replaced while a handle is open: the handle serves one database, never two.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cenote::{Db, Kind};

struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        Files {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("shop.db")
    }

    /// Makes a database with this number in it.
    fn make(&self, name: &str, number: i64) -> PathBuf {
        let path = self.folder.path().join(name);
        let db = rusqlite::Connection::open(&path).unwrap();
        let sql = format!("CREATE TABLE t (n INTEGER); INSERT INTO t VALUES ({number})");
        db.execute_batch(&sql).unwrap();
        path
    }

    async fn open(&self) -> Db {
        let dsn = format!("sqlite:{}", self.path().display());
        Db::builder(&dsn).max(4).open().await.unwrap()
    }

    /// Puts another database with this number in the place of the open one.
    fn replace(&self, number: i64) {
        let other = self.make("other.db", number);
        self.remove_log();
        std::fs::rename(other, self.path()).unwrap();
    }

    fn delete(&self) {
        self.remove_log();
        std::fs::remove_file(self.path()).unwrap();
    }

    fn remove_log(&self) {
        for suffix in ["-wal", "-shm"] {
            let path = format!("{}{suffix}", self.path().display());
            let _ = std::fs::remove_file(Path::new(&path));
        }
    }
}

/// Waits until a connection counts as rested, by the clock that the driver reads: one in constant use looks at
/// its file once a second only.
async fn until_rested() {
    use cenote::pool::{Runtime, TokioRuntime};
    let clock = TokioRuntime::new();
    let then = clock.coarse_now();
    while clock.coarse_now() < then + 2_000_000 {
        tokio::task::yield_now().await;
    }
}

async fn number(db: &Db) -> cenote::Result<i64> {
    db.query_as_one("SELECT n FROM t", ()).await
}

/// Reads until the handle has noticed; no answer but the old one and the new one is right, and once the new
/// one was seen, the old one is wrong.
async fn until_new(db: &Db, old: i64, new: i64) {
    let mut seen = old;
    let soon = async {
        while seen != new {
            seen = number(db).await.unwrap();
            assert!(seen == old || seen == new);
        }
    };
    tokio::time::timeout(Duration::from_secs(20), soon)
        .await
        .unwrap();
}

#[tokio::test]
async fn h30_a_replaced_file_is_noticed_in_constant_use() {
    let files = Files::new();
    files.make("shop.db", 1);
    let db = files.open().await;
    assert_eq!(number(&db).await.unwrap(), 1);
    files.replace(2);
    until_new(&db, 1, 2).await;
    for _ in 0..100 {
        assert_eq!(number(&db).await.unwrap(), 2);
    }
}

#[tokio::test]
async fn h30_a_new_connection_to_another_file_retires_the_old_ones() {
    let files = Files::new();
    files.make("shop.db", 1);
    let db = files.open().await;
    assert_eq!(number(&db).await.unwrap(), 1);
    // The old connection is in use, so the next call opens another, on the new file.
    let mut rows = db.stream("SELECT n FROM t", ()).await.unwrap();
    files.replace(2);
    assert_eq!(number(&db).await.unwrap(), 2);
    while rows.try_next().await.unwrap().is_some() {}
    drop(rows);
    for _ in 0..20 {
        assert_eq!(number(&db).await.unwrap(), 2);
    }
}

#[tokio::test]
async fn h30_a_transaction_ends_on_the_file_that_it_began_on() {
    let files = Files::new();
    files.make("shop.db", 1);
    let db = files.open().await;
    assert_eq!(number(&db).await.unwrap(), 1);
    let seen = db
        .transaction(async || {
            db.exec("UPDATE t SET n = 5", ()).await?;
            files.replace(2);
            // Another task opens the new file meanwhile.
            let other = db.clone();
            let outside = cenote::spawn(async move { number(&other).await });
            assert_eq!(outside.await.unwrap()?, 2);
            number(&db).await
        })
        .await;
    assert_eq!(seen.unwrap(), 5);
    assert_eq!(number(&db).await.unwrap(), 2);
}

#[tokio::test]
async fn h30_a_deleted_file_is_an_error_and_not_an_empty_database() {
    let files = Files::new();
    files.make("shop.db", 1);
    let db = files.open().await;
    assert_eq!(number(&db).await.unwrap(), 1);
    files.delete();
    let gone = async {
        loop {
            match number(&db).await {
                Ok(seen) => assert_eq!(seen, 1),
                Err(error) => return error,
            }
        }
    };
    let gone = tokio::time::timeout(Duration::from_secs(20), gone);
    let gone = gone.await.unwrap();
    assert_eq!(gone.kind(), Kind::Connect, "{gone}");
    assert!(gone.to_string().contains("was deleted"), "{gone}");
    assert!(!files.path().exists());
    // Put back, it is served again.
    files.make("shop.db", 3);
    until_new_after_errors(&db, 3).await;
}

/// The pool waits a little between failed connects.
async fn until_new_after_errors(db: &Db, new: i64) {
    let served = async { while number(db).await.ok() != Some(new) {} };
    tokio::time::timeout(Duration::from_secs(20), served)
        .await
        .unwrap();
}

/// What keeps a connection: a pin, a changed session, a prepared statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    Pinned,
    Changed,
    Prepared,
}

/// The write went to the file that was gone, and was reported as done.
#[tokio::test]
async fn write_on_a_kept_connection_reaches_the_new_file_or_fails() {
    const INSERT: &str = "INSERT INTO t VALUES (10)";
    for kept in [Kept::Pinned, Kept::Changed, Kept::Prepared] {
        let files = Files::new();
        files.make("shop.db", 1);
        let db = files.open().await;
        let done = cenote::scope(async {
            let _pin = match kept {
                Kept::Pinned => Some(db.pin().await.unwrap()),
                _ => None,
            };
            let statement = match kept {
                Kept::Prepared => Some(db.prepare(INSERT).await.unwrap()),
                _ => None,
            };
            if kept == Kept::Changed {
                let temporary = "CREATE TEMP TABLE own (n INTEGER)";
                db.exec(temporary, ()).await.unwrap();
            }
            files.replace(100);
            until_rested().await;
            match statement {
                Some(statement) => statement.exec(()).await,
                None => db.exec(INSERT, ()).await,
            }
        })
        .await;
        let fresh = files.open().await;
        let sum: i64 = fresh
            .query_as_one("SELECT sum(n) FROM t", ())
            .await
            .unwrap();
        match done {
            Ok(_) => assert_eq!(sum, 110, "{kept:?}: it is in the new file"),
            Err(lost) => {
                assert!(lost.is_connection_lost(), "{kept:?}: {lost}");
                assert_ne!(kept, Kept::Pinned, "nothing depends on the old connection");
                assert_eq!(sum, 100, "{kept:?}: it is nowhere");
            }
        }
    }
}

#[tokio::test]
async fn held_connection_refuses_a_replaced_file() {
    let files = Files::new();
    files.make("shop.db", 1);
    let db = files.open().await;
    let mut held = db.connection().await.unwrap();
    held.query("SELECT n FROM t", ()).await.unwrap();
    files.replace(2);
    until_rested().await;
    let insert = "INSERT INTO t VALUES (10)";
    let lost = [
        held.exec(insert, ()).await.err(),
        held.exec_many(insert, [(); 1]).await.err(),
        held.stream("SELECT n FROM t", ()).await.err(),
        held.prepare(insert).await.err(),
        held.begin().await.err(),
    ];
    for lost in lost {
        assert!(lost.is_some_and(|lost| lost.is_connection_lost()));
    }
    drop(held);
    assert_eq!(number(&db).await.unwrap(), 2);
}
