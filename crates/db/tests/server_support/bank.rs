//! Tasks that move money all the time, whatever happens to their server meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use cenote::{Builder, Db, Error, Result};
use tokio::task::JoinSet;

use super::own::OwnServer;
use super::{assert_whole, soon, until};

const ACCOUNTS: i64 = 20;
const TASKS: i64 = 24;

/// Accounts that always have the same sum, and the tasks at work on them.
pub(crate) struct Bank {
    db: Db,
    tally: Arc<Tally>,
    tasks: JoinSet<()>,
}

/// What the tasks have come to. Relaxed: every number stands for itself.
#[derive(Default)]
struct Tally {
    done: AtomicUsize,
    failed: AtomicUsize,
    over: AtomicBool,
}

impl Bank {
    /// Opens one. A transfer may fail, if it is by an expected error.
    pub(crate) async fn open(builder: Builder, is_expected: fn(&Error) -> bool) -> Self {
        let db = builder
            .connect_timeout(Duration::from_secs(2))
            .cleanup_timeout(Duration::from_secs(1))
            .open()
            .await
            .unwrap();
        let create = "CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT)";
        db.exec(create, ()).await.unwrap();
        let rows = (0..ACCOUNTS).map(|id| (id, 100_i64));
        db.exec_many("INSERT INTO account VALUES (?, ?)", rows)
            .await
            .unwrap();
        let tally = Arc::new(Tally::default());
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            tasks.spawn(cenote::scope(work(
                db.clone(),
                task,
                Arc::clone(&tally),
                is_expected,
            )));
        }
        Bank { db, tally, tasks }
    }

    /// Twice, the server is ended under load and started again. The tasks go on when it is back, and no
    /// money is made or lost.
    pub(crate) async fn survives(
        mut self,
        server: &mut OwnServer,
        end: impl AsyncFn(&mut OwnServer),
    ) {
        for _ in 0..2 {
            self.goes_on().await;
            let failed = self.tally.failed.load(Relaxed);
            end(server).await;
            until("somebody notices", async || {
                self.tally.failed.load(Relaxed) > failed
            })
            .await;
            server.start_again().await;
        }
        self.goes_on().await;
        self.tally.over.store(true, Relaxed);
        soon("all tasks end", async {
            while let Some(ended) = self.tasks.join_next().await {
                ended.unwrap();
            }
        })
        .await;
        let balances: Vec<i64> = self
            .db
            .query_as("SELECT balance FROM account", ())
            .await
            .unwrap();
        assert_eq!(balances.iter().sum::<i64>(), ACCOUNTS * 100);
        assert_whole(&self.db).await;
    }

    async fn goes_on(&self) {
        let before = self.tally.done.load(Relaxed);
        until("transfers succeed", async || {
            self.tally.done.load(Relaxed) > before + 100
        })
        .await;
    }
}

async fn work(db: Db, task: i64, tally: Arc<Tally>, is_expected: fn(&Error) -> bool) {
    let mut n = task;
    while !tally.over.load(Relaxed) {
        n = (n * 31 + 7) % ACCOUNTS;
        match transfer(&db, n, (n + 1 + task % (ACCOUNTS - 1)) % ACCOUNTS).await {
            Ok(()) => tally.done.fetch_add(1, Relaxed),
            Err(error) => {
                assert!(is_expected(&error), "{error:?}");
                tokio::task::yield_now().await;
                tally.failed.fetch_add(1, Relaxed)
            }
        };
    }
}

async fn transfer(db: &Db, from: i64, to: i64) -> Result<()> {
    db.transaction(async || {
        // In one order, so that no two wait for each other.
        for id in [from.min(to), from.max(to)] {
            let change = if id == from { -1_i64 } else { 1 };
            let sql = "UPDATE account SET balance = balance + ? WHERE id = ?";
            let changed = db.exec(sql, (change, id)).await?;
            assert_eq!(changed.rows_affected, 1);
        }
        Ok(())
    })
    .await
}
