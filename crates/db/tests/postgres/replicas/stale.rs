//! Reads after writes, with a replica that is late all the time and stands still at times.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use cenote::Db;
use tokio::task::JoinSet;

use super::{FOREVER, Pair, is_replica, read, write};

const TASKS: u64 = 8;

/// The tasks of a long run.
const MOST_TASKS: u64 = 48;

#[derive(Default)]
struct Counts {
    stale: AtomicU64,
    /// Reads while the replay went on: of the replica, and all.
    on_replica: AtomicU64,
    all: AtomicU64,
    /// Reads while it stood still for some of the time.
    paused: AtomicU64,
    is_paused: AtomicBool,
    done: AtomicU64,
}

impl Counts {
    /// One write and the read after it.
    async fn add_one(&self, db: &Db, id: i64, expected: i64, in_transaction: bool) {
        match in_transaction {
            false => write(db, id).await,
            true => {
                db.transaction(async || {
                    write(db, id).await;
                    Ok(())
                })
                .await
                .unwrap();
            }
        }
        let was_paused = self.is_paused.load(Ordering::SeqCst);
        let (n, is_replica) = read(db, id).await;
        let was_paused = was_paused || self.is_paused.load(Ordering::SeqCst);
        if n != expected {
            self.stale.fetch_add(1, Ordering::Relaxed);
        }
        match was_paused {
            true => self.paused.fetch_add(1, Ordering::Relaxed),
            false => {
                let on_replica = u64::from(is_replica);
                self.on_replica.fetch_add(on_replica, Ordering::Relaxed);
                self.all.fetch_add(1, Ordering::Relaxed)
            }
        };
        self.done.fetch_add(1, Ordering::Relaxed);
    }
}

/// As many as `CENOTE_TEST_REPLICA_READS` says.
fn reads() -> u64 {
    let reads = std::env::var("CENOTE_TEST_REPLICA_READS");
    reads.map_or(2_000, |reads| reads.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_see_the_writes_of_their_coroutine() {
    let pair = Pair::start(&["recovery_min_apply_delay=20ms"]).await;
    let (counts, reads) = (Arc::new(Counts::default()), reads());
    let count = if reads < 10_000 { TASKS } else { MOST_TASKS };
    let max = usize::try_from(count).unwrap();
    let db = pair.open_with(|builder| builder.max(max)).await;
    let mut tasks = JoinSet::new();
    for task in 0..count {
        let (db, counts) = (db.clone(), Arc::clone(&counts));
        tasks.spawn(cenote::scope(async move {
            let id = i64::try_from(task).unwrap();
            for n in 0..reads / count {
                let expected = i64::try_from(n + 1).unwrap();
                counts.add_one(&db, id, expected, n % 2 == 0).await;
            }
        }));
    }
    // Of ten parts of the run, two stand still.
    let part = reads / 10;
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    while counts.done.load(Ordering::Relaxed) < count * (reads / count) {
        let at = counts.done.load(Ordering::Relaxed) / part;
        let wants_pause = at == 3 || at == 7;
        if wants_pause != counts.is_paused.load(Ordering::SeqCst) {
            match wants_pause {
                true => {
                    counts.is_paused.store(true, Ordering::SeqCst);
                    pair.pause().await;
                }
                false => {
                    pair.resume().await;
                    // What is missing is replayed first.
                    pair.catch_up().await;
                    counts.is_paused.store(false, Ordering::SeqCst);
                }
            }
        }
        ticks.tick().await;
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let (on_replica, all) = (load(&counts.on_replica), load(&counts.all));
    println!(
        "{} reads: {} stale; {on_replica} of {all} on the replica while it replayed, {} while it stood still at times",
        load(&counts.done),
        load(&counts.stale),
        load(&counts.paused),
    );
    assert_eq!(load(&counts.stale), 0);
    assert!(on_replica * 10 >= all * 8, "{on_replica} of {all}");
    assert!(load(&counts.paused) > 0);
}

#[tokio::test]
async fn read_waits_for_the_replica_that_is_late() {
    let pair = Pair::start(&["recovery_min_apply_delay=100ms"]).await;
    let db = pair
        .open_with(|builder| builder.replica_wait(FOREVER))
        .await;
    cenote::scope(async {
        for n in 1..=3 {
            write(&db, 1).await;
            assert_eq!(read(&db, 1).await, (n, true));
        }
    })
    .await;
}

#[tokio::test]
async fn read_behind_a_paused_replica_goes_to_the_primary() {
    let pair = Pair::start(&[]).await;
    let db = pair.open().await;
    pair.pause().await;
    cenote::scope(async {
        // Nothing was written in this coroutine.
        assert!(read(&db, 1).await.1);
        write(&db, 1).await;
        assert_eq!(read(&db, 1).await, (1, false));
    })
    .await;
    // Another coroutine needs nothing of this one.
    assert_eq!(cenote::scope(read(&db, 1)).await, (0, true));
}

#[tokio::test]
async fn replica_that_lags_too_far_gets_no_reads() {
    let pair = Pair::start(&[]).await;
    let lag = Duration::from_millis(300);
    let db = pair.open_with(|builder| builder.max_replica_lag(lag)).await;
    pair.pause().await;
    write(&pair.at_primary, 1).await;
    crate::servers::until("the lag is seen", async || !is_replica(&db.reading()).await).await;
    let status = &db.replicas()[0];
    assert!(status.is_reachable && status.is_standby && !status.is_usable);
    assert!(status.lag.unwrap() > lag, "{status:?}");
    pair.resume().await;
    super::is_used(&db).await;
}

#[tokio::test]
async fn spawned_coroutine_begins_with_its_parents_writes() {
    let pair = Pair::start(&[]).await;
    let db = pair.open().await;
    pair.pause().await;
    cenote::scope(async {
        write(&db, 1).await;
        let child = db.clone();
        let child = cenote::spawn(async move { read(&child, 1).await });
        assert_eq!(child.await.unwrap(), (1, false));
    })
    .await;
    assert!(is_replica(&db.reading()).await);
}

#[tokio::test]
async fn coroutine_sees_what_was_written_after_it_was_made() {
    let pair = Pair::start(&[]).await;
    let db = pair.open().await;
    pair.pause().await;
    cenote::scope(async {
        let child = cenote::scope(read(&db, 1));
        let hosted = cenote::Coroutine::new();
        write(&db, 1).await;
        assert_eq!(child.await, (1, false));
        hosted.enter(|| assert!(db.position().is_some()));
    })
    .await;
}

#[tokio::test]
async fn coroutine_sees_the_writes_of_one_that_it_awaits() {
    let pair = Pair::start(&[]).await;
    let db = pair.open().await;
    pair.pause().await;
    cenote::scope(async {
        cenote::scope(write(&db, 1)).await;
        assert_eq!(read(&db, 1).await, (1, false));
    })
    .await;
}

#[tokio::test]
async fn writer_sees_what_another_coroutine_commits_for_it() {
    let pair = Pair::start(&[]).await;
    let db = pair.open().await;
    pair.pause().await;
    cenote::scope(async {
        let tx = db.begin().await.unwrap();
        write(&db, 1).await;
        cenote::spawn(tx.commit()).await.unwrap().unwrap();
        assert_eq!(read(&db, 1).await, (1, false));
    })
    .await;
}

#[tokio::test]
async fn read_sees_a_write_whose_plan_was_stale() {
    let pair = Pair::start(&[]).await;
    // With one connection, which has the plan.
    let db = pair.open_with(|builder| builder.max(1)).await;
    let write = async || {
        let sql = "UPDATE t SET n = n + 1 WHERE id = ? RETURNING *";
        db.query(sql, (1_i64,)).await.unwrap();
    };
    cenote::scope(async {
        for _ in 0..3 {
            write().await;
        }
        // The plan has other columns now, and the replica lacks nothing.
        let add = "ALTER TABLE t ADD COLUMN added int8";
        pair.at_primary.exec(add, ()).await.unwrap();
        pair.catch_up().await;
        pair.pause().await;
        write().await;
        assert_eq!(read(&db, 1).await, (4, false));
    })
    .await;
}

/// Writes so many bytes that the server cannot end it before they are read.
const LARGE: &str = "INSERT INTO t SELECT 1000 + id, id FROM generate_series(1, 20000) id RETURNING repeat('x', 1000)";

/// Writes beside a stream that writes, and reads after its end.
async fn write_beside_a_stream(copies: bool) {
    let pair = Pair::start(&[]).await;
    let db = pair
        .open_with(|builder| builder.replica_wait(FOREVER))
        .await;
    let end_of_writing = async |pair: &Pair| {
        write(&db, 1).await;
        // It has not committed yet.
        assert_eq!(read(&db, 1).await, (1, false));
        pair.catch_up().await;
        pair.pause().await;
    };
    cenote::scope(async {
        if copies {
            let sql = format!("COPY ({LARGE}) TO STDOUT");
            let mut copy = db.copy_out(&sql).await.unwrap();
            end_of_writing(&pair).await;
            while copy.try_next().await.unwrap().is_some() {}
        } else {
            let mut rows = db.stream(LARGE, ()).await.unwrap();
            end_of_writing(&pair).await;
            while rows.try_next().await.unwrap().is_some() {}
        }
        let sql = "SELECT count(*), pg_is_in_recovery() FROM t";
        let seen: (i64, bool) = db.reading().query_as_one(sql, ()).await.unwrap();
        assert_eq!(seen, (20_100, false));
        pair.resume().await;
        write(&db, 1).await;
        assert_eq!(read(&db, 1).await, (2, true));
    })
    .await;
}

#[tokio::test]
async fn write_beside_a_stream_does_not_cover_it() {
    write_beside_a_stream(false).await;
}

#[tokio::test]
async fn write_beside_a_copy_of_rows_does_not_cover_it() {
    write_beside_a_stream(true).await;
}
