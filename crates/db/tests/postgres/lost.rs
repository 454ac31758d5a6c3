//! A connection that the server has closed while it rested is not the caller's problem.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cenote::{CallOptions, Db, Error, Kind, Result};

use crate::servers::scripted::{Client, Scripted, message};
use crate::servers::{SESSION_ID, dsn, kill, session_id, until};

/// A handle with a table `t (n int)` of its own, and one that ends its sessions.
async fn open(max: usize) -> (Db, Db) {
    let dsn = crate::servers::client::own_schema(&dsn()).await;
    let db = Db::builder(&dsn).max(max).open().await.unwrap();
    db.exec("CREATE TABLE t (n int)", ()).await.unwrap();
    (db, Db::open(&crate::servers::dsn()).await.unwrap())
}

async fn count(db: &Db) -> i64 {
    db.query_as_one("SELECT count(*) FROM t", ()).await.unwrap()
}

/// Ends the session that the next call would run on.
async fn kill_next(db: &Db, admin: &Db) {
    let pid = session_id(db).await;
    kill(admin, pid).await;
}

type Call = fn(&Db) -> Pin<Box<dyn Future<Output = Result<()>> + '_>>;

const INSERT: &str = "INSERT INTO t VALUES (1)";

/// Every kind of call that takes a connection; each inserts one row.
const CALLS: [(&str, Call); 8] = [
    ("exec", |db| {
        Box::pin(async { db.exec(INSERT, ()).await.map(drop) })
    }),
    ("query", |db| {
        let sql = "INSERT INTO t VALUES (?) RETURNING n";
        Box::pin(async move { db.query(sql, (1,)).await.map(drop) })
    }),
    ("script", |db| {
        let sql = "INSERT INTO t VALUES (1); SELECT 1";
        Box::pin(async move { db.exec(sql, ()).await.map(drop) })
    }),
    ("exec_many", |db| {
        let sql = "INSERT INTO t VALUES (?)";
        Box::pin(async move { db.exec_many(sql, [(1,)]).await.map(drop) })
    }),
    ("stream", |db| {
        let sql = "INSERT INTO t VALUES (1) RETURNING n";
        Box::pin(async move {
            let mut rows = db.stream(sql, ()).await?;
            while rows.try_next().await?.is_some() {}
            Ok(())
        })
    }),
    ("prepare", |db| {
        Box::pin(async {
            let statement = db.prepare(INSERT).await?;
            statement.exec(()).await.map(drop)
        })
    }),
    ("transaction", |db| {
        Box::pin(db.transaction(async || db.exec(INSERT, ()).await.map(drop)))
    }),
    ("begin", |db| {
        Box::pin(cenote::scope(async {
            let tx = db.begin().await?;
            db.exec(INSERT, ()).await?;
            tx.commit().await
        }))
    }),
];

#[tokio::test]
async fn h27_no_call_meets_a_session_killed_while_idle() {
    let (db, admin) = open(1).await;
    for (n, (what, call)) in (1..).zip(CALLS) {
        kill_next(&db, &admin).await;
        call(&db)
            .await
            .unwrap_or_else(|error| panic!("{what}: {error:?}"));
        assert_eq!(count(&db).await, n, "{what} ran once");
    }
    kill_next(&db, &admin).await;
    db.ping().await.unwrap();
}

#[tokio::test]
async fn h27_no_call_meets_a_session_killed_under_a_pin() {
    let (db, admin) = open(2).await;
    for (n, (what, call)) in (1..).zip(CALLS) {
        cenote::scope(async {
            let _pin = db.pin().await.unwrap();
            kill_next(&db, &admin).await;
            call(&db)
                .await
                .unwrap_or_else(|error| panic!("{what}: {error:?}"));
        })
        .await;
        assert_eq!(count(&db).await, n, "{what} ran once");
    }
}

#[tokio::test]
async fn h27_a_transaction_moves_before_its_first_statement() {
    let (db, admin) = open(1).await;
    cenote::scope(async {
        let pid = session_id(&db).await;
        let tx = db.begin().await.unwrap();
        kill(&admin, pid).await;
        db.exec(INSERT, ()).await.unwrap();
        db.exec(INSERT, ()).await.unwrap();
        tx.commit().await.unwrap();
    })
    .await;
    assert_eq!(count(&db).await, 2);
}

#[tokio::test]
async fn transaction_moves_whatever_its_first_call_is() {
    let (db, admin) = open(2).await;
    for (n, (what, call)) in (1..).zip(CALLS) {
        if what == "begin" {
            // A coroutine of its own: it would not run in the transaction.
            continue;
        }
        let pid = session_id(&db).await;
        let done = db.transaction(async || {
            kill(&admin, pid).await;
            call(&db).await
        });
        done.await
            .unwrap_or_else(|error| panic!("{what}: {error:?}"));
        assert_eq!(count(&db).await, n, "{what} ran once");
    }
}

#[tokio::test]
async fn guard_moves_before_its_own_first_call() {
    let (db, admin) = open(2).await;
    cenote::scope(async {
        let pid = session_id(&db).await;
        let tx = db.begin().await.unwrap();
        kill(&admin, pid).await;
        tx.exec(INSERT, ()).await.unwrap();
        tx.commit().await.unwrap();
        let pid = session_id(&db).await;
        let mut tx = db.begin().await.unwrap();
        kill(&admin, pid).await;
        let savepoint = tx.savepoint().await.unwrap();
        savepoint.exec(INSERT, ()).await.unwrap();
        savepoint.commit().await.unwrap();
        tx.commit().await.unwrap();
    })
    .await;
    assert_eq!(count(&db).await, 2);
}

/// The session of a held connection may have been changed in unknown ways.
#[tokio::test]
async fn transaction_of_a_held_connection_does_not_move() {
    let (db, admin) = open(2).await;
    let mut held = db.connection().await.unwrap();
    held.exec("SET ROLE trusted", ()).await.unwrap();
    let pid: i64 = held.query_as_one(SESSION_ID, ()).await.unwrap();
    let tx = held.begin().await.unwrap();
    kill(&admin, pid).await;
    let lost = tx.exec(INSERT, ()).await.unwrap_err();
    assert!(lost.is_connection_lost(), "{lost:?}");
    drop(tx);
    assert_eq!(count(&db).await, 0);
}

#[tokio::test]
async fn h27_a_transaction_that_has_begun_is_lost_with_its_session() {
    let (db, admin) = open(1).await;
    let done = db
        .transaction(async || {
            db.exec(INSERT, ()).await?;
            kill_next(&db, &admin).await;
            let lost = db.exec(INSERT, ()).await.unwrap_err();
            assert!(lost.is_connection_lost(), "{lost:?}");
            Ok(())
        })
        .await;
    assert_eq!(done.unwrap_err().kind(), Kind::TransactionLost);
    assert_eq!(count(&db).await, 0);
}

#[tokio::test]
async fn h27_a_commit_that_was_never_sent_is_lost_not_unknown() {
    let (db, admin) = open(1).await;
    let done = db
        .transaction(async || {
            db.exec(INSERT, ()).await?;
            kill_next(&db, &admin).await;
            Ok(())
        })
        .await;
    assert_eq!(done.unwrap_err().kind(), Kind::TransactionLost);
    assert_eq!(count(&db).await, 0);
}

#[tokio::test]
async fn h27_changed_session_state_is_never_lost_silently() {
    let (db, admin) = open(1).await;
    cenote::scope(async {
        db.exec("SET TimeZone = 'Asia/Tokyo'", ()).await.unwrap();
        kill_next(&db, &admin).await;
        let lost = db.exec(INSERT, ()).await.unwrap_err();
        assert!(lost.is_connection_lost(), "{lost:?}");
    })
    .await;
    assert_eq!(count(&db).await, 0);
}

#[tokio::test]
async fn h27_a_restart_fails_no_call() {
    let (db, admin) = open(5).await;
    let mut held = Vec::new();
    for _ in 0..5 {
        held.push(db.connection().await.unwrap());
    }
    let mut pids = Vec::new();
    for connection in &held {
        pids.push(
            connection
                .query_as_one::<i64>(SESSION_ID, ())
                .await
                .unwrap(),
        );
    }
    drop(held);
    for pid in pids {
        kill(&admin, pid).await;
    }
    let calls = (0..20).map(|_| {
        let db = db.clone();
        cenote::spawn(async move { db.exec(INSERT, ()).await })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap().unwrap();
    }
    assert_eq!(count(&db).await, 20);
}

/// A dead idle connection is found by the check that the answers of another one bring forward, whichever way the calls
/// take.
#[tokio::test]
async fn h27_fifty_calls_reap_a_dead_idle_connection() {
    let calls: [(&str, Call); 3] = [
        ("queries", |db| {
            Box::pin(async { db.query("SELECT 1", ()).await.map(drop) })
        }),
        ("queries with options", |db| {
            let options = CallOptions::new().timeout(Duration::from_secs(60));
            Box::pin(async move { db.with(options).query("SELECT 1", ()).await.map(drop) })
        }),
        ("transactions", |db| {
            Box::pin(db.transaction(async || db.query("SELECT 1", ()).await.map(drop)))
        }),
    ];
    for (name, call) in calls {
        let (db, admin) = open(2).await;
        let (one, two) = (
            db.connection().await.unwrap(),
            db.connection().await.unwrap(),
        );
        let pids: [i64; 2] = [
            one.query_as_one(SESSION_ID, ()).await.unwrap(),
            two.query_as_one(SESSION_ID, ()).await.unwrap(),
        ];
        drop((one, two));
        // The one that this thread does not use.
        let used = session_id(&db).await;
        let idle = pids.into_iter().find(|pid| *pid != used).unwrap();
        kill(&admin, idle).await;
        for _ in 0..50 {
            call(&db).await.unwrap();
        }
        let what = format!("the dead connection is gone after {name}");
        until(&what, async || db.status().total == 1).await;
        assert_eq!(session_id(&db).await, used, "{name}");
    }
}

/// What the first connection of a scripted server does with its first request.
#[derive(Clone, Copy, Debug)]
enum Ends {
    /// The server's own last words, before it has begun to run anything.
    Unbegun,
    /// The same, in a pooler's words.
    Pooler,
    /// The server's own last words after BindComplete.
    Begun,
    /// The connection is closed without a word.
    Silently,
}

impl Ends {
    fn answer(self) -> Vec<u8> {
        let words = |routine: &[u8]| {
            let fields = [b"SFATAL\0VFATAL\0C57P01\0Mterminating\0", routine, b"\0"];
            message(b'E', &fields.concat())
        };
        match self {
            Ends::Unbegun => words(b"RProcessInterrupts\0"),
            Ends::Pooler => words(b""),
            Ends::Begun => [message(b'2', b""), words(b"RProcessInterrupts\0")].concat(),
            Ends::Silently => Vec::new(),
        }
    }
}

/// Answers every request with nothing done, as to an INSERT of no rows.
async fn obey(client: &mut Client, requests: &AtomicUsize) {
    while let Some((tag, _)) = client.read().await {
        let answer = match tag {
            b'P' => message(b'1', b""),
            b'B' => message(b'2', b""),
            b'D' => [message(b't', &[0, 0]), message(b'n', b"")].concat(),
            b'E' => {
                requests.fetch_add(1, Ordering::Relaxed);
                message(b'C', b"INSERT 0 0\0")
            }
            b'C' => message(b'3', b""),
            b'S' => message(b'Z', b"I"),
            _ => Vec::new(),
        };
        client.send(&answer).await;
    }
}

/// Runs a statement on a server whose first connection ends like this; gives what came of it
/// and how often a connection that works was asked to run it.
async fn run_on(ends: Ends, sql: &str) -> (Result<(), Error>, usize) {
    let requests = Arc::new(AtomicUsize::new(0));
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    let server = Scripted::new(move |mut client| {
        let is_first = connections.fetch_add(1, Ordering::Relaxed) == 0;
        let requests = Arc::clone(&counted);
        async move {
            client.let_in().await;
            if is_first {
                client.read_request().await;
                client.send(&ends.answer()).await;
                return;
            }
            obey(&mut client, &requests).await;
        }
    })
    .await;
    let db = Db::builder(&server.dsn()).max(1).open().await.unwrap();
    let done = db.exec(sql, ()).await.map(drop);
    (done, requests.load(Ordering::Relaxed))
}

#[tokio::test]
async fn h27_a_call_that_crossed_the_last_words_is_repeated_once() {
    let (done, runs) = run_on(Ends::Unbegun, "INSERT INTO t SELECT pay()").await;
    done.unwrap();
    assert_eq!(runs, 1);
}

#[tokio::test]
async fn h27_what_may_have_run_is_never_repeated() {
    for ends in [Ends::Pooler, Ends::Begun, Ends::Silently] {
        for sql in [INSERT, "SELECT pay()", "SELECT 1; SELECT 2"] {
            let (done, runs) = run_on(ends, sql).await;
            let error = done.unwrap_err();
            assert!(error.is_connection_lost(), "{ends:?}, {sql}: {error:?}");
            assert_eq!(runs, 0, "{ends:?}, {sql}");
        }
    }
}

#[tokio::test]
async fn h27_a_known_read_is_repeated_after_a_silent_loss() {
    for sql in ["SELECT 1", "SELECT n, upper('x') FROM t WHERE n = 1"] {
        let (done, runs) = run_on(Ends::Silently, sql).await;
        done.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        assert_eq!(runs, 1, "{sql}");
    }
}

#[tokio::test]
async fn no_repeat_reports_the_loss_of_a_pinned_connection() {
    let (db, admin) = open(2).await;
    for (options, fails) in [
        (CallOptions::new(), false),
        (CallOptions::new().no_repeat(), true),
    ] {
        let done = cenote::scope(async {
            let _pin = db.pin().await?;
            kill_next(&db, &admin).await;
            db.with(options).query("SELECT 1", ()).await
        });
        assert_eq!(done.await.is_err(), fails);
    }
}
