//! Mixed loads, cancelled tasks and cut connections: what holds whatever the interleaving.
//!
//! The table has five rows at first; transactions only add rows. Every attempt ends in one bucket.
//! The test's own driver around SQLite cuts connections, and makes calls slow by yielding.

use std::sync::Arc;

use cenote::{Db, Error, Result};
use tokio::task::JoinHandle;

use super::support::{
    ENDLESS, GATED, Gate, Probe, Shop, TestDatabase, Wire, bare_spawn, insert, poll_once, quiet,
    soon, watched_shop,
};

/// What became of an attempt.
#[derive(Debug, PartialEq, Eq)]
enum Bucket {
    Ok,
    Cancelled,
    Failed,
}

type Task = JoinHandle<Result<()>>;

async fn bucket(task: Task) -> Bucket {
    match soon("every task ends", task).await {
        Ok(Ok(())) => Bucket::Ok,
        Ok(Err(_)) => Bucket::Failed,
        Err(error) => {
            assert!(error.is_cancelled(), "{error}");
            Bucket::Cancelled
        }
    }
}

async fn all_ok(tasks: Vec<Task>) {
    for task in tasks {
        let done = soon("every task ends", task).await;
        done.unwrap().unwrap();
    }
}

async fn chaos(max: usize, latency: usize) -> (Shop, Arc<Wire>) {
    let (shop, wire) = watched_shop(|builder| builder.max(max)).await;
    fill(&shop).await;
    wire.set_latency(latency);
    (shop, wire)
}

async fn fill(shop: &Shop) {
    // By another handle, so that this one still has opened nothing.
    let db = Db::open(&shop.database.dsn()).await.unwrap();
    let sets = (1..=5).map(|id| (id, id));
    db.exec_many("INSERT INTO t (id, n) VALUES (?, ?)", sets)
        .await
        .unwrap();
}

/// A task that reads the five rows that are always there.
fn reads(db: &Db) -> Task {
    let db = db.clone();
    cenote::spawn(async move {
        let rows = db
            .query("SELECT * FROM t WHERE id <= 5 ORDER BY id", ())
            .await?;
        assert_eq!(rows.len(), 5);
        for (row, id) in rows.iter().zip(1..) {
            assert_eq!(row.get::<i64>("n")?, id);
        }
        Ok(())
    })
}

/// A task with a transaction: begin, a prepared insert, reading it back, commit.
fn writes(db: &Db, n: i64) -> Task {
    let db = db.clone();
    cenote::spawn(async move {
        let tx = db.begin().await?;
        let insert = db.prepare("INSERT INTO t (n) VALUES (?)").await?;
        let id = insert.exec((n,)).await?.last_insert_id;
        let found: i64 = db
            .query_as_one("SELECT n FROM t WHERE id = ?", (id,))
            .await?;
        assert_eq!(found, n);
        tx.commit().await
    })
}

/// What transactions have added.
async fn added(db: &Db) -> Vec<i64> {
    let sql = "SELECT n FROM t WHERE id > 5 ORDER BY n";
    db.query_as(sql, ()).await.unwrap()
}

/// Nothing is left of it: all connections are back and sound.
async fn assert_sound(shop: &Shop) {
    quiet(shop).await;
    let status = shop.status();
    assert_eq!(status.total, status.idle);
    assert!(status.total <= status.max);
    let all: Vec<_> = (1000..).take(status.max).map(|n| writes(shop, n)).collect();
    all_ok(all).await;
    all_ok((0..status.max).map(|_| reads(shop)).collect()).await;
}

/// F-020, F-063
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_transactions_all_commit() {
    let (shop, _wire) = chaos(4, 0).await;
    all_ok((1..=4).map(|n| writes(&shop, n)).collect()).await;
    assert_eq!(added(&shop).await, [1, 2, 3, 4]);
    assert_sound(&shop).await;
}

/// F-021, F-064
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_beside_a_writer_sees_what_is_always_there() {
    let (shop, _wire) = chaos(2, 0).await;
    for n in 1..=10 {
        all_ok(vec![writes(&shop, n), reads(&shop)]).await;
    }
    assert_eq!(added(&shop).await.len(), 10);
}

/// F-022: the slow query ends when the others have ended beside it.
#[tokio::test]
async fn a_query_a_transaction_and_a_slow_query_succeed_together() -> Result<()> {
    let database = TestDatabase::new();
    let (functions, gate) = Gate::add_to(cenote::sqlite::Sqlite::new());
    let (driver, wire) = Probe::new(functions);
    let builder = database.builder_with(driver).max(3);
    let shop = Shop::open(database, builder).await;
    fill(&shop).await;
    wire.set_latency(5);
    let slow: Task = cenote::spawn({
        let db = shop.db.clone();
        async move { db.query(GATED, ()).await.map(drop) }
    });
    gate.begun().await;
    all_ok(vec![reads(&shop), writes(&shop, 1)]).await;
    assert!(!slow.is_finished());
    gate.open();
    all_ok(vec![slow]).await;
    assert_sound(&shop).await;
    Ok(())
}

/// F-023, F-047, F-049
#[tokio::test]
async fn transactions_and_queries_over_a_slow_wire_all_succeed() {
    let (shop, _wire) = chaos(3, 5).await;
    all_ok((1..=3).map(|n| writes(&shop, n)).collect()).await;
    all_ok((1..=3).map(|_| reads(&shop)).collect()).await;
    assert_eq!(added(&shop).await, [1, 2, 3]);
    assert_sound(&shop).await;
}

/// F-025, B-042
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelling_one_of_three_transactions_lets_the_others_commit() {
    let (shop, _wire) = chaos(4, 3).await;
    for round in 0..20 {
        let tasks: Vec<_> = (0..3).map(|n| writes(&shop, round * 3 + n)).collect();
        // At another moment each time.
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        tasks[1].abort();
        let mut ends = Vec::new();
        for task in tasks {
            ends.push(bucket(task).await);
        }
        assert_eq!((&ends[0], &ends[2]), (&Bucket::Ok, &Bucket::Ok));
        assert_ne!(ends[1], Bucket::Failed);
        let found = added(&shop).await;
        assert!(found.contains(&(round * 3)) && found.contains(&(round * 3 + 2)));
        // An acknowledged row exists; an unacknowledged one may exist.
        assert!(ends[1] != Bucket::Ok || found.contains(&(round * 3 + 1)));
    }
    assert_sound(&shop).await;
}

/// F-026, F-029, F-048, F-050, B-030
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_all_connections_are_cut_every_task_ends() {
    let (shop, wire) = chaos(4, 3).await;
    for round in 0..30 {
        let tasks = vec![
            writes(&shop, 2 * round),
            reads(&shop),
            writes(&shop, 2 * round + 1),
            reads(&shop),
        ];
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        wire.cut();
        for (task, n) in tasks
            .into_iter()
            .zip([Some(2 * round), None, Some(2 * round + 1), None])
        {
            let end = bucket(task).await;
            assert_ne!(end, Bucket::Cancelled);
            if let (Bucket::Ok, Some(n)) = (end, n) {
                wire.set_latency(0);
                assert!(
                    added(&Db::open(&shop.database.dsn()).await.unwrap())
                        .await
                        .contains(&n)
                );
                wire.set_latency(3);
            }
        }
    }
    // Those that died in the pool are found out by those who get them: a thread gets the one that
    // it had before, if it can.
    for _ in 0..100 {
        if wire.cut_off() == 0 {
            break;
        }
        let tasks: Vec<_> = (0..4).map(|_| reads(&shop)).collect();
        for task in tasks {
            let _ = bucket(task).await;
        }
    }
    assert_eq!(wire.cut_off(), 0);
    assert_sound(&shop).await;
    // One may be on its way in, for somebody who was served by another meanwhile.
    while shop.status().creating > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(wire.alive(), shop.status().total);
}

/// F-031, B-022, B-043: more tasks than connections, and a database that is never there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_nothing_can_be_reached_every_waiter_fails_in_turn() {
    use super::support::{Fault, Step};
    let (shop, wire) = chaos(2, 1).await;
    for _ in 0..200 {
        wire.next(Step::Connect, Fault::LostBefore);
    }
    let tasks: Vec<_> = (0..8).map(|_| reads(&shop)).collect();
    for task in tasks {
        assert_eq!(bucket(task).await, Bucket::Failed);
    }
    assert_eq!(shop.status().total, 0);
    assert_eq!(shop.status().waiting, 0);
}

/// F-031: connections that are lost to a cut free their places for those who wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_cuts_leave_no_task_waiting_for_ever() {
    let (shop, wire) = chaos(2, 2).await;
    let tasks: Vec<_> = (0..20).map(|n| writes(&shop, n)).collect();
    let cutting = bare_spawn({
        let wire = Arc::clone(&wire);
        async move {
            for n in 0..400 {
                if n % 40 == 0 {
                    wire.cut();
                }
                tokio::task::yield_now().await;
            }
        }
    });
    let mut committed = 0;
    for task in tasks {
        committed += usize::from(bucket(task).await == Bucket::Ok);
    }
    cutting.await.unwrap();
    let sure = Db::open(&shop.database.dsn()).await.unwrap();
    assert!(added(&sure).await.len() >= committed);
    for _ in 0..4 {
        let _ = bucket(reads(&shop)).await;
    }
    assert_sound(&shop).await;
}

/// F-027, F-065
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_on_too_few_connections_loses_nothing() {
    for max in [1, 2, 3, 4] {
        let (shop, _wire) = chaos(max, 1).await;
        let mut tasks = Vec::new();
        for n in 1..=3 {
            tasks.push(writes(&shop, n));
            tasks.push(reads(&shop));
        }
        all_ok(tasks).await;
        assert_eq!(added(&shop).await, [1, 2, 3]);
        assert!(shop.status().total <= max);
    }
}

/// F-028, F-051: latency of many lengths. (Bandwidth and segments need a network.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_slow_wires_the_writer_commits_and_the_reader_reads() {
    for latency in [0, 1, 2, 3, 5, 8, 13, 64, 200] {
        let (shop, _wire) = chaos(3, latency).await;
        all_ok(vec![writes(&shop, 1), reads(&shop), reads(&shop)]).await;
        assert_eq!(added(&shop).await, [1]);
    }
}

/// F-040, F-041, F-060
#[tokio::test]
async fn one_query_gives_its_five_rows_over_any_wire() {
    for latency in [0, 1, 5, 20] {
        let (shop, _wire) = chaos(4, latency).await;
        all_ok(vec![reads(&shop)]).await;
        assert_eq!(shop.status().total, 1);
    }
}

/// F-044: cut in the middle of a query.
#[tokio::test]
async fn a_write_whose_connection_is_cut_fails_once_and_cleanly() -> Result<()> {
    let (shop, wire) = chaos(1, 0).await;
    insert(&shop, 9).await?;
    let (reached, go_on) = wire.hold(super::support::Step::Run);
    let task = reads(&shop);
    soon("it is under way", reached.notified()).await;
    let lost = || wire.next(super::support::Step::Run, super::support::Fault::LostAfter);
    lost();
    go_on.notify_one();
    // The one that was held goes through, the next one is lost. It may have run.
    assert_eq!(bucket(task).await, Bucket::Ok);
    assert!(insert(&shop, 10).await.unwrap_err().is_connection_lost());
    assert_eq!(bucket(reads(&shop)).await, Bucket::Ok);
    // A read is repeated.
    lost();
    assert_eq!(bucket(reads(&shop)).await, Bucket::Ok);
    quiet(&shop).await;
    assert_eq!((shop.status().total, wire.alive()), (1, 1));
    Ok(())
}

/// F-045: cancelled after any number of polls, before, while and after it runs.
#[tokio::test]
async fn a_query_may_be_cancelled_at_any_moment() -> Result<()> {
    let (shop, wire) = chaos(1, 1).await;
    let mut polls = 0;
    loop {
        let mut query = Box::pin(cenote::scope(async {
            shop.query("SELECT * FROM t WHERE id <= 5", ()).await
        }));
        let mut done = None;
        for _ in 0..polls {
            if let std::task::Poll::Ready(rows) = poll_once(query.as_mut()).await {
                done = Some(rows?);
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(query);
        if let Some(rows) = done {
            assert_eq!(rows.len(), 5);
            break;
        }
        polls += 1;
        // The next one sees nothing of it.
        if polls % 10 == 0 {
            all_ok(vec![reads(&shop)]).await;
        }
    }
    assert_sound(&shop).await;
    assert_eq!(wire.alive(), 1);
    Ok(())
}

/// F-045: also one that would never have ended.
#[tokio::test]
async fn a_task_that_is_cancelled_in_an_endless_query_ends() -> Result<()> {
    let (shop, gate) = super::support::gated_shop(|builder| builder.max(2)).await;
    fill(&shop).await;
    for _ in 0..5 {
        let db = shop.db.clone();
        let task: Task = cenote::spawn(async move { db.query(ENDLESS, ()).await.map(drop) });
        gate.begun().await;
        task.abort();
        assert_eq!(bucket(task).await, Bucket::Cancelled);
    }
    assert_sound(&shop).await;
    Ok(())
}

/// F-046, F-061
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_share_one_handle() {
    let (shop, _wire) = chaos(4, 0).await;
    all_ok((0..4).map(|_| reads(&shop)).collect()).await;
    all_ok((0..100).map(|_| reads(&shop)).collect()).await;
    assert_sound(&shop).await;
}

/// F-062
#[tokio::test]
async fn a_transaction_commits() {
    let (shop, _wire) = chaos(4, 0).await;
    all_ok(vec![writes(&shop, 1)]).await;
    assert_eq!(added(&shop).await, [1]);
}

/// A task that runs so many different texts, twice each.
fn churns(db: &Db, texts: i64) -> Task {
    let db = db.clone();
    cenote::spawn(async move {
        for n in (0..texts).chain(0..texts) {
            let statement = db.prepare(&format!("SELECT {n} + ?")).await?;
            assert_eq!(statement.query_as::<i64>((1,)).await?, [n + 1]);
        }
        Ok::<(), Error>(())
    })
}

/// F-066, F-067, F-069
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_number_of_texts_goes_through_a_cache_of_any_size() {
    for (max, cache, tasks, texts) in [
        (4, 4, 1, 32),
        (2, 3, 4, 12),
        (2, 1, 2, 20),
        (2, 5, 2, 20),
        (2, 20, 2, 20),
        (2, 50, 2, 20),
        (2, 0, 2, 20),
    ] {
        let (shop, _wire) = watched_shop(|builder| builder.max(max).statement_cache(cache)).await;
        all_ok((0..tasks).map(|_| churns(&shop, texts)).collect()).await;
        quiet(&shop).await;
        assert!(shop.status().total <= max);
    }
}

/// F-068
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_is_cancelled_amid_many_texts_spoils_no_cache() {
    let (shop, wire) = watched_shop(|builder| builder.max(2).statement_cache(4)).await;
    wire.set_latency(1);
    for round in 0..10 {
        let (cancelled, other) = (churns(&shop, 40), churns(&shop, 40));
        for _ in 0..round * 3 {
            tokio::task::yield_now().await;
        }
        cancelled.abort();
        assert_eq!(bucket(cancelled).await, Bucket::Cancelled);
        assert_eq!(bucket(other).await, Bucket::Ok);
    }
    all_ok(vec![churns(&shop, 40), churns(&shop, 40)]).await;
}

/// The sum of all balances never changes, whatever fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn money_moved_under_all_faults_is_neither_lost_nor_created() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(4)).await;
    let sure = Db::open(&shop.database.dsn()).await?;
    sure.exec(
        "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER)",
        (),
    )
    .await?;
    let accounts = (0..10).map(|id| (id, 100));
    sure.exec_many("INSERT INTO account VALUES (?, ?)", accounts)
        .await?;
    wire.set_latency(1);
    let moves: Vec<Task> = (0..100_i64)
        .map(|n| {
            let db = shop.db.clone();
            cenote::spawn(async move {
                let (from, to, amount) = (n % 10, (n * 7 + 3) % 10, n % 13);
                db.transaction(async || {
                    let take = "UPDATE account SET balance = balance - ? WHERE id = ?";
                    db.exec(take, (amount, from)).await?;
                    tokio::task::yield_now().await;
                    if n % 11 == 0 {
                        return Err(Error::other("changed my mind"));
                    }
                    let give = "UPDATE account SET balance = balance + ? WHERE id = ?";
                    db.exec(give, (amount, to)).await?;
                    Ok(())
                })
                .await
            })
        })
        .collect();
    let disturber = bare_spawn({
        let (wire, handles) = (
            Arc::clone(&wire),
            moves.iter().map(JoinHandle::abort_handle),
        );
        let handles: Vec<_> = handles.collect();
        async move {
            for (n, handle) in handles.iter().enumerate() {
                for _ in 0..5 {
                    tokio::task::yield_now().await;
                }
                if n % 9 == 0 {
                    handle.abort();
                }
                if n % 30 == 0 {
                    wire.cut();
                }
            }
        }
    });
    for task in moves {
        bucket(task).await;
    }
    disturber.await.unwrap();
    let sum: i64 = sure
        .query_as_one("SELECT sum(balance) FROM account", ())
        .await?;
    assert_eq!(sum, 1000);
    Ok(())
}
