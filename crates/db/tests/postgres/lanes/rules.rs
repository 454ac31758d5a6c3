//! The rules of the pool and of the session hold for shared connections.

use cenote::Db;

use super::{ECHO, Reading, begin_in_lane, finish, open, open_with, prove, read, together};
use crate::servers::{client, dsn, quiet, session_id, soon};

/// Reads without end on one handle, as several tasks.
pub(super) fn stream_of_reads(db: &Db) -> tokio::task::JoinSet<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..8 {
        let db = db.clone();
        tasks.spawn(async move {
            loop {
                assert_eq!(read(&db, ECHO, n).await.unwrap(), n);
            }
        });
    }
    tasks
}

#[tokio::test]
async fn transactions_get_connections_from_busy_lanes() {
    let (db, _) = open(2).await;
    prove(&db, ECHO).await;
    let mut reading = stream_of_reads(&db);
    crate::servers::until("reads share connections", async || db.shared_reads() > 100).await;
    for n in 0..20 {
        let run = db.transaction(async || db.query_scalar_one::<i32>(ECHO, (n,)).await);
        assert_eq!(soon("a transaction", run).await.unwrap(), n);
    }
    let before = db.shared_reads();
    crate::servers::until("reads share connections again", async || {
        db.shared_reads() > before
    })
    .await;
    reading.shutdown().await;
    quiet(&db).await;
}

#[tokio::test]
async fn waiters_get_the_connection_of_a_lane_in_order() {
    let (db, _) = open(1).await;
    prove(&db, ECHO).await;
    let mut reads = begin_in_lane(&db, (0..8).map(|n| read(&db, ECHO, n)).collect()).await;
    let mut waiting: Vec<_> = (0..4)
        .map(|_| cenote_testkit::poll::Hand::new(Box::pin(db.pool().unwrap().acquire_owned())))
        .collect();
    waiting
        .iter_mut()
        .for_each(|waiter| assert!(waiter.poll().is_pending()));
    let mut late = cenote_testkit::poll::Hand::new(read(&db, ECHO, 9));
    for n in 0..4 {
        let lease = soon("a connection", finish(&mut waiting[n])).await.unwrap();
        for later in &mut waiting[n + 1..] {
            assert!(later.poll().is_pending(), "it came later");
        }
        assert!(late.poll().is_pending(), "it came last");
        drop(lease);
    }
    for (n, read) in (0..).zip(&mut reads) {
        assert_eq!(finish(read).await.unwrap(), n);
    }
    assert_eq!(soon("the last read", finish(&mut late)).await.unwrap(), 9);
}

#[tokio::test]
async fn replace_all_replaces_shared_connections() {
    let (db, _) = open(2).await;
    prove(&db, ECHO).await;
    let old = session_id(&db).await;
    let mut reading = stream_of_reads(&db);
    crate::servers::until("reads share connections", async || db.shared_reads() > 100).await;
    db.replace_all();
    let admin = Db::open(&dsn()).await.unwrap();
    crate::servers::is_gone(&admin, old).await;
    reading.shutdown().await;
    quiet(&db).await;
}

#[tokio::test]
async fn new_default_reaches_reads_that_share() {
    let (db, _) = open(1).await;
    let sql = "SELECT length(current_setting('search_path')) * ?::int4";
    prove(&db, sql).await;
    let mut reading = stream_of_reads(&db);
    prove(&db, ECHO).await;
    for n in 1..20 {
        let path = "p".repeat(n);
        db.set_default("search_path", path.as_str()).await.unwrap();
        let seen = soon("a read", read(&db, sql, 1)).await.unwrap();
        assert_eq!(seen, i32::try_from(n).unwrap());
    }
    reading.shutdown().await;
}

/// The text is a plain read, and what it reads changes the session.
#[tokio::test]
async fn session_change_by_a_view_reaches_no_other_read() {
    let dsn = client::own_schema(&dsn()).await;
    let (db, _) = open_with(1, &dsn, |builder| builder).await;
    let view = "CREATE VIEW changes AS SELECT 1::int4 AS n, \
                set_config('application_name', 'changed', false)";
    db.exec(view, ()).await.unwrap();
    let sql = "SELECT n FROM changes WHERE n = ?";
    let name = "SELECT (current_setting('application_name') = 'changed')::int4 + ?::int4";
    prove(&db, name).await;
    prove(&db, sql).await;
    let before = db.shared_reads();
    let reads: Vec<Reading<'_>> = vec![read(&db, sql, 1), read(&db, sql, 1)];
    for result in together(&db, reads).await {
        assert_eq!(result.unwrap(), 1);
    }
    quiet(&db).await;
    assert_eq!(
        read(&db, name, 0).await.unwrap(),
        0,
        "the session was reset"
    );
    assert!(db.shared_reads() > before, "a shared read has changed it");
    let before = db.shared_reads();
    let reads = (0..4).map(|_| read(&db, sql, 1)).collect();
    together(&db, reads)
        .await
        .into_iter()
        .for_each(|result| assert_eq!(result.unwrap(), 1));
    assert_eq!(db.shared_reads(), before, "the text is barred");
}

#[tokio::test]
async fn nothing_is_shared_behind_a_pooler() {
    let through = crate::servers::required_variable("CENOTE_TEST_POSTGRES_PGBOUNCER");
    for (dsn, expected) in [(through, false), (dsn(), true)] {
        let (db, _) = open_with(1, &dsn, |builder| builder).await;
        let mut lease = db.pool().unwrap().acquire().await.unwrap();
        assert_eq!(lease.driver().can_share().await.unwrap(), expected);
    }
}

#[tokio::test]
async fn writes_and_locking_reads_are_never_shared() {
    let dsn = client::own_schema(&dsn()).await;
    let (db, _) = open_with(1, &dsn, |builder| builder).await;
    db.exec("CREATE TABLE t (n int4)", ()).await.unwrap();
    db.exec("INSERT INTO t VALUES (1)", ()).await.unwrap();
    let own = "CREATE FUNCTION own(n int4) RETURNS int4 LANGUAGE sql AS 'SELECT n'";
    db.exec(own, ()).await.unwrap();
    for sql in [
        "UPDATE t SET n = 1 WHERE n = ? RETURNING n",
        "SELECT n FROM t WHERE n = ? FOR UPDATE",
        "SELECT own(?)",
        "SELECT n FROM t WHERE n = ? FOR SHARE",
    ] {
        prove(&db, sql).await;
        for result in together(&db, (0..4).map(|_| read(&db, sql, 1)).collect()).await {
            assert_eq!(result.unwrap(), 1);
        }
        assert_eq!(db.shared_reads(), 0, "{sql}");
    }
}

/// A read of another runtime does not join, and gets the connection of an empty lane whose runtime stands still.
#[test]
fn lanes_span_no_runtimes() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    };
    let (one, other) = (runtime(), runtime());
    let db = one.block_on(async {
        let (db, _) = open(1).await;
        prove(&db, ECHO).await;
        for (n, result) in
            (0..).zip(together(&db, (0..4).map(|n| read(&db, ECHO, n)).collect()).await)
        {
            assert_eq!(result.unwrap(), n);
        }
        db
    });
    assert!(db.shared_reads() > 0);
    // The first runtime is alive, and nobody drives it.
    other.block_on(async {
        drop(soon("a connection", db.connection()).await.unwrap());
    });
    drop(one);
}

/// More reads than the lanes have room for: none waits for ever while newcomers join.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_read_starves_where_lanes_are_full() {
    let (db, _) = open(2).await;
    prove(&db, ECHO).await;
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..200 {
        let db = db.clone();
        tasks.spawn(async move {
            for _ in 0..30 {
                assert_eq!(soon("a read", read(&db, ECHO, n)).await.unwrap(), n);
            }
        });
    }
    for n in 0..10 {
        let run = db.transaction(async || db.query_scalar_one::<i32>(ECHO, (n,)).await);
        assert_eq!(soon("a transaction", run).await.unwrap(), n);
    }
    tasks.join_all().await;
    assert!(db.shared_reads() > 1000, "{}", db.shared_reads());
    quiet(&db).await;
}

/// Tasks on two threads read, give reads up, and begin transactions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_mixed_up_on_two_threads() {
    let (db, _) = open(3).await;
    prove(&db, ECHO).await;
    prove(&db, super::DIVIDE).await;
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..48 {
        let db = db.clone();
        tasks.spawn(async move {
            for n in 0..60 {
                let value = task * 1000 + n;
                match (task + n) % 12 {
                    0 => {
                        let polls = usize::try_from(n % 4).unwrap();
                        cenote_testkit::poll::drop_after(polls, read(&db, ECHO, value)).await;
                    }
                    1 => {
                        let error = read(&db, super::DIVIDE, 0).await.unwrap_err();
                        assert_eq!(error.sql_state(), Some("22012"), "{error:?}");
                    }
                    2 => {
                        let run = async || db.query_scalar_one::<i32>(ECHO, (value,)).await;
                        let read = soon("a transaction", db.transaction(run)).await;
                        assert_eq!(read.unwrap(), value);
                    }
                    _ => {
                        let read = soon("a read", read(&db, ECHO, value)).await;
                        assert_eq!(read.unwrap(), value);
                    }
                }
            }
        });
    }
    tasks.join_all().await;
    assert!(db.shared_reads() > 500, "{}", db.shared_reads());
    quiet(&db).await;
}

/// A read on another runtime gets a connection, however busy the lanes of the first runtime are.
#[test]
fn reads_of_two_runtimes_take_turns() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_all().build().unwrap()
    };
    let (one, other) = (runtime(), runtime());
    let db = one.block_on(async {
        let (db, _) = open(1).await;
        prove(&db, ECHO).await;
        db
    });
    let reading = one.block_on(async { stream_of_reads(&db) });
    other.block_on(async {
        crate::servers::until("reads share connections", async || db.shared_reads() > 50).await;
        for n in 0..10 {
            assert_eq!(soon("a read", read(&db, ECHO, n)).await.unwrap(), n);
        }
    });
    drop(reading);
}
