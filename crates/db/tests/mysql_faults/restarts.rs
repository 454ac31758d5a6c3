//! A server that goes and comes back while many tasks use it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use cenote::{Db, Error, Kind};
use tokio::task::JoinSet;

use crate::servers::own::OwnServer;
use crate::servers::{assert_whole, soon, until};

const ACCOUNTS: i64 = 20;
const TASKS: i64 = 24;

async fn bank(server: &OwnServer) -> Db {
    let db = Db::builder(&server.dsn())
        .max(6)
        .connect_timeout(Duration::from_secs(2))
        .cleanup_timeout(Duration::from_secs(1))
        .open()
        .await
        .unwrap();
    db.exec(
        "CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT)",
        (),
    )
    .await
    .unwrap();
    let rows = (0..ACCOUNTS).map(|id| (id, 100_i64));
    db.exec_many("INSERT INTO account VALUES (?, ?)", rows)
        .await
        .unwrap();
    db
}

async fn sum(db: &Db) -> i64 {
    let sql = "SELECT CAST(SUM(balance) AS SIGNED) FROM account";
    db.query_as_one(sql, ()).await.unwrap()
}

async fn transfer(db: &Db, from: i64, to: i64) -> Result<(), Error> {
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

/// What the tasks have come to.
#[derive(Default)]
struct Tally {
    done: AtomicUsize,
    failed: AtomicUsize,
    over: AtomicBool,
}

fn start_load(db: &Db, tally: &Arc<Tally>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (db, tally) = (db.clone(), Arc::clone(tally));
        tasks.spawn(cenote::scope(async move {
            let mut n = task;
            while !tally.over.load(Ordering::Relaxed) {
                n = (n * 31 + 7) % ACCOUNTS;
                match transfer(&db, n, (n + 1 + task % (ACCOUNTS - 1)) % ACCOUNTS).await {
                    Ok(()) => tally.done.fetch_add(1, Ordering::Relaxed),
                    Err(error) => {
                        assert!(is_expected(&error), "{error:?}");
                        tokio::task::yield_now().await;
                        tally.failed.fetch_add(1, Ordering::Relaxed)
                    }
                };
            }
        }));
    }
    tasks
}

/// What may happen to a call while its server goes and comes.
fn is_expected(error: &Error) -> bool {
    let known = error.is_connection_lost()
        || matches!(
            error.kind(),
            Kind::Connect | Kind::Timeout | Kind::RolledBack
        );
    // If the server gave a reason, it is one of these: it ends, it kills its connections, it kills a
    // query, or it cannot be asked yet.
    const REASONS: [i64; 4] = [1053, 1152, 1317, 1927];
    known && error.code().is_none_or(|code| REASONS.contains(&code))
}

async fn goes_on(tally: &Tally) {
    let before = tally.done.load(Ordering::Relaxed);
    until("transfers succeed again", async || {
        tally.done.load(Ordering::Relaxed) > before + 100
    })
    .await;
}

/// Whatever ends the server, the tasks go on when it is back, and no money is made or lost.
async fn survives(end: impl AsyncFn(&mut OwnServer)) {
    let mut server = OwnServer::start(&[]).await;
    let db = bank(&server).await;
    let tally = Arc::new(Tally::default());
    let mut tasks = start_load(&db, &tally);
    for _ in 0..2 {
        goes_on(&tally).await;
        let failed = tally.failed.load(Ordering::Relaxed);
        end(&mut server).await;
        until("somebody notices", async || {
            tally.failed.load(Ordering::Relaxed) > failed
        })
        .await;
        server.start_again().await;
    }
    goes_on(&tally).await;
    tally.over.store(true, Ordering::Relaxed);
    soon("all tasks end", async {
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
    })
    .await;
    assert_eq!(sum(&db).await, ACCOUNTS * 100);
    assert_whole(&db).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_restarted_under_load_is_used_again_and_nothing_is_lost() {
    survives(async |server: &mut OwnServer| server.stop().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_crashes_under_load_is_used_again_and_nothing_is_lost() {
    survives(async |server: &mut OwnServer| server.crash().await).await;
}
