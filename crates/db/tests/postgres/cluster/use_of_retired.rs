//! Connections of a host that was retired while they are in use, and errors that must not retire one.

#![allow(clippy::disallowed_methods, reason = "deadlines are measured")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cenote::{Db, Kind};
use tokio::sync::Notify;

use super::{of, to_write};
use crate::servers::own::OwnServer;
use crate::servers::scripted::{Client, Scripted};
use crate::servers::{soon, until};

const WRITE: &str = "UPDATE t SET a = 1";

/// What all sessions of a host have in common.
#[derive(Default)]
struct Shared {
    /// 0 is a standby.
    timeline: AtomicU32,
    sessions: AtomicU32,
    /// The first session answers no more.
    hangs: Notify,
}

impl Shared {
    fn timeline(&self) -> u32 {
        self.timeline.load(Ordering::Relaxed)
    }

    fn becomes(&self, timeline: u32) {
        self.timeline.store(timeline, Ordering::Relaxed);
    }
}

/// A host that refuses writes while it is a standby. Sessions from before a promotion refuse them as well.
async fn host(timeline: u32) -> (Scripted, Arc<Shared>) {
    let shared = Arc::new(Shared::default());
    shared.becomes(timeline);
    let all = Arc::clone(&shared);
    let server = Scripted::new(move |mut client: Client| {
        let shared = Arc::clone(&all);
        async move {
            let nth = shared.sessions.fetch_add(1, Ordering::Relaxed);
            let at_first = shared.timeline();
            let standby = if at_first == 0 { "on" } else { "off" };
            let settings = [
                ("in_hot_standby", standby),
                ("default_transaction_read_only", "off"),
            ];
            client.let_in_with(&settings).await;
            let refuse = |sql: &str| {
                let is_old = at_first == 0 || shared.timeline() != at_first;
                (sql == WRITE && is_old).then_some("25006")
            };
            let tell = |sql: &str| {
                let timeline = shared.timeline();
                if sql.contains("pg_is_in_recovery") {
                    return Some(if timeline == 0 { "t" } else { "f" }.to_owned());
                }
                if sql.starts_with("SHOW") {
                    return Some("off".to_owned());
                }
                let is_asked = sql.contains("pg_control_system") && timeline > 0;
                is_asked.then(|| format!("77 {timeline:08X}"))
            };
            let talks = client.converse_and_tell(refuse, tell);
            let hangs = async {
                match nth {
                    0 => shared.hangs.notified().await,
                    _ => std::future::pending().await,
                }
            };
            tokio::select! { () = talks => return, () = hangs => {} }
            client.fall_silent().await;
        }
    });
    (server.await, shared)
}

#[tokio::test]
async fn transaction_on_a_retired_host_goes_on() {
    let ((one, role), (two, _)) = (host(0).await, host(0).await);
    let dsn = of(&[one.port(), two.port()], "target_session_attrs=standby");
    let db = Db::builder(&dsn).max(1).open().await.unwrap();
    let run = db.transaction(async || {
        db.exec("SELECT 1", ()).await?;
        role.becomes(2);
        until("it is retired", async || db.hosts()[0].retired == 1).await;
        db.exec("SELECT 2", ()).await?;
        Ok(())
    });
    soon("it ends", run).await.unwrap();
    // Its connection is not kept.
    until("it is closed", async || db.hosts()[0].connections == 0).await;
    db.exec("SELECT 1", ()).await.unwrap();
    assert_eq!(db.hosts()[1].connections, 1);
}

#[tokio::test]
async fn transaction_that_has_not_begun_waits_for_a_host() {
    let (server, role) = host(1).await;
    let deadline = Duration::from_secs(2);
    let db = Db::builder(&to_write(&[server.port()]))
        .max(2)
        .acquire_timeout(deadline)
        .open()
        .await
        .unwrap();
    let other = db.connection().await.unwrap();
    other.exec(WRITE, ()).await.unwrap();
    cenote::scope(async {
        for comes_back in [false, true] {
            role.becomes(1);
            let tx = db.begin().await.unwrap();
            let retired = db.hosts()[0].retired;
            role.becomes(0);
            let refused = other.exec(WRITE, ()).await.unwrap_err();
            assert_eq!(refused.sql_state(), Some("25006"));
            until("it is retired", async || db.hosts()[0].retired > retired).await;
            let begun = Instant::now();
            if comes_back {
                let late = async {
                    until("it searches", async || {
                        begun.elapsed() > Duration::from_millis(200)
                    })
                    .await;
                    role.becomes(2);
                };
                let (done, ()) = soon("it writes", async {
                    tokio::join!(tx.exec(WRITE, ()), late)
                })
                .await;
                done.unwrap();
                tx.commit().await.unwrap();
            } else {
                let error = soon("it ends", tx.exec(WRITE, ())).await.unwrap_err();
                assert!(begun.elapsed() >= deadline, "{error}");
                assert_eq!(error.kind(), Kind::Timeout, "{error}");
                tx.rollback().await.unwrap();
            }
        }
    })
    .await;
}

#[tokio::test]
async fn busy_call_on_the_old_server_of_a_single_host_is_cut() {
    let (server, role) = host(1).await;
    let db = Db::builder(&to_write(&[server.port()]))
        .max(3)
        .open()
        .await
        .unwrap();
    let first = db.connection().await.unwrap();
    first.exec(WRITE, ()).await.unwrap();
    let second = db.connection().await.unwrap();
    second.exec(WRITE, ()).await.unwrap();
    role.hangs.notify_one();
    let busy = first.exec("SELECT 1", ());
    let fail_over = async {
        role.becomes(0);
        second.exec(WRITE, ()).await.unwrap_err();
        until("it is retired", async || db.hosts()[0].retired == 1).await;
        role.becomes(2);
        // Only a new connection sees the new primary.
        db.exec(WRITE, ()).await.unwrap();
    };
    let (busy, ()) = soon("it is cut", async { tokio::join!(busy, fail_over) }).await;
    assert_eq!(busy.unwrap_err().kind(), Kind::ConnectionLost);
    assert_eq!(
        db.hosts()[0].retired,
        1,
        "the new primary has not ceased to fit"
    );
}

#[tokio::test]
async fn read_only_transactions_of_texts_leave_the_connection() {
    let server = OwnServer::start(&[]).await;
    let db = Db::builder(&to_write(&[server.port()]))
        .max(1)
        .open()
        .await
        .unwrap();
    db.exec("CREATE TABLE t (a int)", ()).await.unwrap();
    let refused = async || {
        let error = db.exec("INSERT INTO t VALUES (1)", ()).await.unwrap_err();
        assert_eq!(error.sql_state(), Some("25006"), "{error}");
    };
    cenote::scope(async {
        db.exec("BEGIN READ ONLY", ()).await.unwrap();
        refused().await;
        db.exec("ROLLBACK", ()).await.unwrap();
    })
    .await;
    let set = db.transaction(async || {
        db.exec("SET TRANSACTION READ ONLY", ()).await?;
        let nested = db.transaction(async || {
            refused().await;
            Err::<(), _>(db.exec("SELECT 1", ()).await.unwrap_err())
        });
        assert_eq!(nested.await.unwrap_err().sql_state(), Some("25P02"));
        db.exec("SELECT 1", ()).await.map(drop)
    });
    set.await.unwrap();
    let own = db.transaction_options().read_only();
    let own = own.run(async || db.exec("INSERT INTO t VALUES (1)", ()).await.map(drop));
    assert_eq!(own.await.unwrap_err().sql_state(), Some("25006"));
    cenote::scope(async {
        db.exec("SET default_transaction_read_only = on", ())
            .await
            .unwrap();
        refused().await;
    })
    .await;
    db.exec("INSERT INTO t VALUES (1)", ()).await.unwrap();
    assert_eq!((db.counters().created, db.hosts()[0].retired), (1, 0));
}

#[tokio::test]
async fn write_of_a_text_transaction_raises_suspicion() {
    let (server, role) = host(1).await;
    let db = Db::builder(&to_write(&[server.port()]))
        .max(1)
        .open()
        .await
        .unwrap();
    let own = db.transaction_options().read_only();
    own.run(async || db.exec("SELECT 1", ()).await.map(drop))
        .await
        .unwrap();
    role.becomes(0);
    cenote::scope(async {
        db.exec("BEGIN", ()).await.unwrap();
        db.exec(WRITE, ()).await.unwrap_err();
    })
    .await;
    until("it is retired", async || db.hosts()[0].retired == 1).await;
}
