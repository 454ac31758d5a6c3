//! Every operation on SQLite, where a dropped call may still be running on another thread.

use std::time::Duration;

use cenote::{Db, Result};
use cenote_testkit::poll::drop_after;
use tempfile::TempDir;

use super::operations::{OPERATIONS, Operation, Stage, wrong_rows};

/// No operation needs more polls than this.
const MOST_POLLS: usize = 200;

/// A database file, a handle whose calls are dropped, and one to look at what came of it, which
/// waits for no lock.
struct Shop {
    db: Db,
    onlooker: Db,
    _folder: TempDir,
}

impl Shop {
    async fn open() -> Result<Self> {
        let folder = tempfile::tempdir().expect("a folder for temporary files");
        let dsn = format!("sqlite:{}", folder.path().join("shop.db").display());
        let db = Db::builder(&dsn).max(2).open().await?;
        let onlooker = Db::builder(&dsn).max(1).option("busy_timeout", "0");
        let onlooker = onlooker.open().await?;
        let make = "CREATE TABLE t (n); CREATE TABLE next (n); CREATE TABLE many (n);
                    INSERT INTO many VALUES (1), (2), (3), (4), (5)";
        onlooker.exec(make, ()).await?;
        Ok(Shop {
            db,
            onlooker,
            _folder: folder,
        })
    }

    /// Yields until no connection is in use.
    async fn quiet(&self) {
        let is_quiet = || {
            let status = self.db.status();
            status.active + status.creating + status.waiting == 0 && status.total == status.idle
        };
        let waiting = async {
            while !is_quiet() {
                tokio::task::yield_now().await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(20), waiting).await;
        assert!(
            waited.is_ok(),
            "the pool is not whole: {:?}",
            self.db.status()
        );
    }

    /// The rows that are committed; empties the tables for the next operation. A lock that somebody
    /// has kept makes it fail.
    async fn take_rows(&self) -> Result<Vec<i64>> {
        let rows = self.onlooker.query_as("SELECT n FROM t ORDER BY n", ());
        let rows = rows.await?;
        let empty = "BEGIN IMMEDIATE; DELETE FROM t; DELETE FROM next; COMMIT";
        self.onlooker.exec(empty, ()).await?;
        let busy = self
            .onlooker
            .query_one("PRAGMA wal_checkpoint(TRUNCATE)", ());
        let busy = busy.await?.get::<i64>(0)?;
        assert_eq!(busy, 0, "somebody still reads");
        Ok(rows)
    }
}

/// How the future is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// With its coroutine.
    Scope,
    /// In its coroutine, which continues.
    Inside,
    /// Without a coroutine.
    Bare,
}

async fn cut_off(
    operation: &Operation,
    cut: Cut,
    polls: usize,
    stage: &Stage<'_>,
) -> Option<Result<()>> {
    let doing = (operation.run)(stage);
    match cut {
        Cut::Bare => drop_after(polls, doing).await,
        Cut::Scope => drop_after(polls, cenote::scope(doing)).await,
        Cut::Inside => {
            cenote::scope(async {
                let done = drop_after(polls, doing).await;
                if stage.db.in_transaction() {
                    // The text of a statement began the transaction, so no guard has ended it.
                    drop(stage.db.exec("ROLLBACK", ()).await);
                }
                let after = stage.db.exec("INSERT INTO next VALUES (0)", ()).await;
                let after = after.map(|_| stage.db.in_transaction());
                assert!(matches!(after, Ok(false)), "{}: {after:?}", operation.name);
                done
            })
            .await
        }
    }
}

async fn sweep(cut: Cut) -> Result<()> {
    let shop = Shop::open().await?;
    for operation in OPERATIONS
        .iter()
        .filter(|operation| operation.is_free || cut != Cut::Bare)
    {
        for polls in 0.. {
            assert!(polls < MOST_POLLS, "{} is never done", operation.name);
            let stage = Stage::new(&shop.db);
            let done = cut_off(operation, cut, polls, &stage).await;
            shop.quiet().await;
            let rows = shop.take_rows().await?;
            let wrong = wrong_rows(operation, &stage, done.as_ref(), &rows);
            assert_eq!(wrong, None, "{}, {polls} polls", operation.name);
            shop.db.exec("INSERT INTO next VALUES (1)", ()).await?;
            if done.is_some() {
                break;
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn on_sqlite_a_dropped_coroutine_leaves_nothing_behind() -> Result<()> {
    sweep(Cut::Scope).await
}

#[tokio::test]
async fn on_sqlite_a_coroutine_continues_after_any_dropped_call() -> Result<()> {
    sweep(Cut::Inside).await
}

#[tokio::test]
async fn on_sqlite_any_drop_outside_coroutines_leaves_nothing_behind() -> Result<()> {
    sweep(Cut::Bare).await
}
