//! A primary and a replica that follows it, and what tests of both makes do with them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use cenote::{Builder, Db, Position};
use tokio::task::JoinSet;

use super::own::OwnServer;
use super::{MAKE, catch_up, pause_replay, resume_replay, until};

/// So long that a test fails when a read waits for it.
pub(crate) const FOREVER: Duration = Duration::from_secs(3600);

pub(crate) struct Pair {
    pub(crate) primary: OwnServer,
    pub(crate) replica: OwnServer,
    /// The administrators of both.
    pub(crate) at_primary: Db,
    pub(crate) at_replica: Db,
}

impl Pair {
    /// Starts both, with settings of the replica, and a table `t` of one counter per row.
    pub(crate) async fn start(settings: &[&str]) -> Self {
        let primary = OwnServer::start(MAKE.replicates).await;
        let at_primary = Db::open(&primary.dsn()).await.unwrap();
        let make = "CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT NOT NULL)";
        at_primary.exec(make, ()).await.unwrap();
        let rows = (0..100_i64).map(|id| (id, 0_i64));
        let fill = "INSERT INTO t VALUES (?, ?)";
        at_primary.exec_many(fill, rows).await.unwrap();
        let settings = [MAKE.replicates, settings].concat();
        let replica = primary.start_standby(&settings).await;
        let at_replica = Db::open(&replica.dsn()).await.unwrap();
        Pair {
            primary,
            replica,
            at_primary,
            at_replica,
        }
    }

    pub(crate) fn builder(&self) -> Builder {
        Db::builder(&self.primary.dsn())
            .replica(self.replica.dsn())
            .max(4)
    }

    /// Opens a handle whose replica gets reads.
    pub(crate) async fn open(&self) -> Db {
        self.open_with(|builder| builder).await
    }

    pub(crate) async fn open_with(&self, describe: impl FnOnce(Builder) -> Builder) -> Db {
        let db = describe(self.builder()).open().await.unwrap();
        is_used(&db).await;
        db
    }

    pub(crate) async fn pause(&self) {
        pause_replay(&self.at_replica).await;
    }

    pub(crate) async fn resume(&self) {
        resume_replay(&self.at_replica).await;
    }

    /// Waits until the replica has replayed all that is committed now.
    pub(crate) async fn catch_up(&self) {
        catch_up(&self.at_primary, &self.at_replica).await;
    }
}

/// Waits until the replica gets reads.
pub(crate) async fn is_used(db: &Db) {
    until("the replica gets reads", async || {
        is_replica(&db.reading()).await && db.replicas().iter().all(|replica| replica.is_usable)
    })
    .await;
}

pub(crate) async fn is_replica(db: &Db) -> bool {
    let sql = format!("SELECT {}", MAKE.is_replica);
    db.query_scalar_one(&sql, ()).await.unwrap()
}

/// Adds one to a counter.
pub(crate) async fn write(db: &Db, id: i64) {
    let sql = "UPDATE t SET n = n + 1 WHERE id = ?";
    db.exec(sql, (id,)).await.unwrap();
}

/// Reads a counter, and whether a replica has.
pub(crate) async fn read(db: &Db, id: i64) -> (i64, bool) {
    let sql = format!("SELECT n, {} FROM t WHERE id = ?", MAKE.is_replica);
    db.reading().query_as_one(&sql, (id,)).await.unwrap()
}

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

/// Reads after writes, in several coroutines, with a replica that stands still for a fifth of the run.
pub(crate) async fn reads_see_the_writes(pair: &Pair) {
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

/// A replica that lags is out of use until it has caught up.
pub(crate) async fn lagging_replica_gets_no_reads(pair: &Pair) {
    let lag = Duration::from_millis(300);
    let db = pair.open_with(|builder| builder.max_replica_lag(lag)).await;
    pair.pause().await;
    write(&pair.at_primary, 1).await;
    until("the lag is seen", async || !is_replica(&db.reading()).await).await;
    let status = &db.replicas()[0];
    assert!(status.is_reachable && status.is_standby && !status.is_usable);
    assert!(status.lag.unwrap() > lag, "{status:?}");
    pair.resume().await;
    is_used(&db).await;
}

/// The position of a write in a coroutine of its own.
pub(crate) async fn written(db: &Db) -> Position {
    cenote::scope(async {
        write(db, 1).await;
        db.position().unwrap()
    })
    .await
}

/// Reads in a coroutine of its own, after a position.
pub(crate) async fn read_after(db: &Db, position: Position) -> (i64, bool) {
    cenote::scope(async {
        db.read_after(position);
        read(db, 1).await
    })
    .await
}

/// A position as text sends reads of another handle to where the write is.
pub(crate) async fn text_of_a_position_is_enough(pair: &Pair) {
    let (db, other) = (
        pair.open().await,
        pair.open_with(|it| it.replica_wait(FOREVER)).await,
    );
    pair.pause().await;
    let text = written(&db).await.to_string();
    assert!(text.len() <= 48, "{text}");
    assert_eq!(read_after(&db, text.parse().unwrap()).await, (1, false));
    pair.resume().await;
    // The other handle learns how far the primary is.
    until("the replica answers", async || {
        let seen = read_after(&other, text.parse().unwrap()).await;
        assert_eq!(seen.0, 1);
        seen.1
    })
    .await;
}

/// Forged positions send reads to the primary, without a wait.
pub(crate) async fn forged_positions_do_not_wait(pair: &Pair) {
    // A read that waited would wait for ever.
    let db = pair
        .open_with(|builder| builder.replica_wait(FOREVER))
        .await;
    let position = written(&db).await.to_string();
    let parts: Vec<&str> = position.split('.').collect();
    let other = if parts[2] == "0" { "1" } else { "0" };
    let forged = [
        format!("1.{}.{}.ffffffffffffffff", parts[1], parts[2]),
        format!("1.{}.ffffffff.{}", parts[1], parts[3]),
        format!("1.{}.{other}.{}", parts[1], parts[3]),
        format!("1.123.{}.{}", parts[2], parts[3]),
        "1.unknown".to_owned(),
    ];
    for text in forged {
        let seen = read_after(&db, text.parse().unwrap()).await;
        assert_eq!(seen, (1, false), "{text}");
    }
    for text in [
        "",
        "1",
        "2.1.1.1",
        "1.1.1.1.1",
        "1.g.1.1",
        "1.1.100000000.1",
        "1.+1.1.1",
    ] {
        assert!(text.parse::<Position>().is_err(), "{text}");
    }
    assert!("1".repeat(100_000).parse::<Position>().is_err());
    assert!(is_replica(&db.reading()).await);
}
