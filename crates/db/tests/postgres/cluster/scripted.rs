//! Hosts that change their role while their connections stay, as behind a proxy: scripted, because PostgreSQL restarts for it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cenote::pool::{BreakerState, ConsecutiveFailures};
use cenote::{Db, HostState, Kind};
use tokio::task::JoinSet;
use tracing::Level;

use super::{of, to_write};
use crate::log::Log;
use crate::servers::scripted::{Client, Scripted};
use crate::servers::{free_port, soon, until};

#[derive(Clone, Copy, Debug)]
enum Is {
    Standby,
    /// On this timeline.
    Primary(u32),
    /// The name is a primary's by now, and the present connections are a standby's.
    Moved(u32),
}

/// A host whose role a test changes.
struct Host {
    server: Scripted,
    shared: Arc<Shared>,
}

struct Shared {
    is: Mutex<Is>,
    /// How many writes it has accepted.
    writes: AtomicU32,
    /// How many sessions of the handle it has, without those that only ask.
    sessions: AtomicU32,
}

const WRITE: &str = "UPDATE t SET a = 1";

impl Host {
    async fn start(is: Is) -> Self {
        let shared = Arc::new(Shared {
            is: Mutex::new(is),
            writes: AtomicU32::new(0),
            sessions: AtomicU32::new(0),
        });
        let all = Arc::clone(&shared);
        let server = Scripted::new(move |mut client: Client| {
            let shared = Arc::clone(&all);
            async move {
                let is_standby = matches!(shared.is(), Is::Standby);
                let standby = if is_standby { "on" } else { "off" };
                let settings = [
                    ("in_hot_standby", standby),
                    ("default_transaction_read_only", "off"),
                ];
                client.let_in_with(&settings).await;
                let writes = AtomicU32::new(0);
                let was_there = !matches!(shared.is(), Is::Moved(_));
                let refuse = |sql: &str| match (sql, shared.is()) {
                    (WRITE, Is::Standby) => Some("25006"),
                    (WRITE, Is::Moved(_)) if was_there => Some("25006"),
                    (WRITE, Is::Primary(_) | Is::Moved(_)) => {
                        if writes.fetch_add(1, Ordering::Relaxed) == 0 {
                            shared.sessions.fetch_add(1, Ordering::Relaxed);
                        }
                        shared.writes.fetch_add(1, Ordering::Relaxed);
                        None
                    }
                    _ => None,
                };
                let tell = |sql: &str| match (sql, shared.is()) {
                    (sql, is) if sql.contains("pg_is_in_recovery") => {
                        let standby = matches!(is, Is::Standby);
                        Some(if standby { "t" } else { "f" }.to_owned())
                    }
                    (sql, _) if sql.starts_with("SHOW") => Some("off".to_owned()),
                    (sql, Is::Primary(timeline) | Is::Moved(timeline))
                        if sql.contains("pg_control_system") =>
                    {
                        Some(format!("77 {timeline:08X}"))
                    }
                    _ => None,
                };
                client.converse_and_tell(refuse, tell).await;
                if writes.load(Ordering::Relaxed) > 0 {
                    shared.sessions.fetch_sub(1, Ordering::Relaxed);
                }
            }
        })
        .await;
        Host { server, shared }
    }

    fn becomes(&self, is: Is) {
        *self.shared.is.lock().unwrap() = is;
    }

    fn writes(&self) -> u32 {
        self.shared.writes.load(Ordering::Relaxed)
    }

    fn sessions(&self) -> u32 {
        self.shared.sessions.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn is(&self) -> Is {
        *self.is.lock().unwrap()
    }
}

/// Writes on every connection of a pool of three.
async fn write_on_all(db: &Db) {
    let mut all = Vec::new();
    for _ in 0..3 {
        all.push(db.connection().await.unwrap());
    }
    for connection in &all {
        connection.exec(WRITE, ()).await.unwrap();
    }
}

async fn open(dsn: &str) -> Db {
    Db::builder(dsn).max(3).open().await.unwrap()
}

#[tokio::test]
async fn demoted_primary_leaves_the_pool() {
    let (old, new) = (
        Host::start(Is::Primary(1)).await,
        Host::start(Is::Standby).await,
    );
    let db = open(&to_write(&[old.server.port(), new.server.port()])).await;
    write_on_all(&db).await;
    assert_eq!((old.writes(), new.writes()), (3, 0));
    old.becomes(Is::Standby);
    new.becomes(Is::Primary(2));
    // At most each connection is refused once, whoever notices first.
    let mut refused = 0;
    while let Err(error) = soon("a write ends", db.exec(WRITE, ())).await {
        assert!(
            error.sql_state() == Some("25006") || error.kind() == Kind::ConnectionLost,
            "{error:?}"
        );
        refused += 1;
        assert!(refused <= 3, "{error:?}");
    }
    until("the connections to the old host close", async || {
        old.sessions() == 0
    })
    .await;
    write_on_all(&db).await;
    assert_eq!(old.writes(), 3);
    let hosts = db.hosts();
    assert_eq!((hosts[0].connections, hosts[1].connections), (0, 3));
    assert!(hosts[0].retired > 0 && hosts[0].role.unwrap().standby);
    assert_eq!(hosts[1].role.unwrap().history.unwrap().timeline, 2);
}

#[tokio::test]
async fn roles_and_failovers_are_shown_and_logged() {
    let log = Log::new();
    let (old, new) = (
        Host::start(Is::Primary(1)).await,
        Host::start(Is::Standby).await,
    );
    let db = open(&to_write(&[old.server.port(), new.server.port()])).await;
    assert!(db.hosts().iter().all(|host| {
        host.state == HostState::Unknown && host.unchanged_for.is_none() && !host.is_usable
    }));
    write_on_all(&db).await;
    let are = |first, second| {
        let states: Vec<_> = db.hosts().iter().map(|host| host.state).collect();
        states == [first, second]
    };
    until("the roles are known", async || {
        are(HostState::Primary, HostState::Standby)
    })
    .await;
    let hosts = db.hosts();
    assert!(hosts[0].is_primary && hosts[0].is_usable);
    assert!(!hosts[1].is_primary && !hosts[1].is_usable);
    assert_eq!(log.take(Level::INFO, "cenote::hosts"), [""; 0]);
    // It believes that it is the primary still.
    new.becomes(Is::Primary(2));
    until("the failover is known", async || {
        are(HostState::FormerPrimary, HostState::Primary)
    })
    .await;
    let hosts = db.hosts();
    assert!(!hosts[0].is_primary && !hosts[0].is_usable);
    assert!(hosts[1].is_primary && hosts[1].is_usable);
    assert!(hosts.iter().all(|host| host.unchanged_for.is_some()));
    let lines = log.take(Level::INFO, "cenote::hosts").join("\n");
    let [old, new] = [0, 1].map(|host| hosts[host].name.clone());
    for line in [
        format!("host=\"{old}\" from=primary to=former primary"),
        format!("host=\"{new}\" from=standby to=primary"),
        format!("from=\"{old}\" to=\"{new}\""),
        "failover".to_owned(),
        "no longer fits".to_owned(),
    ] {
        assert!(lines.contains(&line), "{line} in {lines}");
    }
}

#[tokio::test]
async fn refused_write_ends_the_connection_of_a_name_that_moved() {
    let host = Host::start(Is::Primary(1)).await;
    let db = open(&to_write(&[host.server.port()])).await;
    write_on_all(&db).await;
    // On the same timeline, as behind a proxy that was wrong: only the refusal tells.
    host.becomes(Is::Moved(1));
    let mut refused = 0;
    while let Err(error) = soon("a write ends", db.exec(WRITE, ())).await {
        assert_eq!(error.sql_state(), Some("25006"), "{error:?}");
        refused += 1;
        assert!(refused <= 3, "{error:?}");
    }
    assert!(refused > 0);
    assert_eq!(db.hosts()[0].retired, 0);
}

#[tokio::test]
async fn older_timeline_is_never_written_to_again() {
    let (old, new) = (
        Host::start(Is::Primary(1)).await,
        Host::start(Is::Standby).await,
    );
    let db = open(&to_write(&[old.server.port(), new.server.port()])).await;
    write_on_all(&db).await;
    // It does not know that another one was promoted, and would accept writes.
    new.becomes(Is::Primary(2));
    until("the old host is left", async || old.sessions() == 0).await;
    let before = old.writes();
    write_on_all(&db).await;
    assert_eq!((old.writes(), new.writes()), (before, 3));
    new.becomes(Is::Standby);
    // The new one is gone: rather no writes than writes that will be lost.
    until("the new host is left", async || {
        drop(tokio::time::timeout(Duration::from_millis(20), db.exec(WRITE, ())).await);
        new.sessions() == 0
    })
    .await;
    let wait = tokio::time::timeout(Duration::from_millis(700), db.exec(WRITE, ())).await;
    assert!(wait.is_err(), "{wait:?}");
    assert_eq!(old.writes(), before);
}

#[tokio::test]
async fn write_refused_in_a_batch_raises_suspicion() {
    for in_transaction in [false, true] {
        let host = Host::start(Is::Primary(1)).await;
        let db = open(&to_write(&[host.server.port()])).await;
        db.exec(WRITE, ()).await.unwrap();
        host.becomes(Is::Standby);
        let run = async || {
            let mut batch = db.batch();
            batch.exec(WRITE, ());
            batch.exec(WRITE, ());
            batch.run().await?.check()
        };
        let done = match in_transaction {
            true => db.transaction(run).await,
            false => run().await,
        };
        assert_eq!(done.unwrap_err().sql_state(), Some("25006"));
        until("the host is retired", async || db.hosts()[0].retired == 1).await;
    }
}

#[tokio::test]
async fn writes_in_a_read_only_transaction_raise_no_suspicion() {
    let host = Host::start(Is::Primary(1)).await;
    let db = Db::builder(&to_write(&[host.server.port()]))
        .max(1)
        .open()
        .await
        .unwrap();
    db.exec(WRITE, ()).await.unwrap();
    host.becomes(Is::Standby);
    let options = db.transaction_options().read_only();
    let run = options.run(async || db.exec(WRITE, ()).await.map(drop));
    assert_eq!(run.await.unwrap_err().sql_state(), Some("25006"));
    let run = options.run(async || {
        let mut batch = db.batch();
        batch.exec(WRITE, ());
        batch.exec(WRITE, ());
        batch.run().await?.check()
    });
    assert_eq!(run.await.unwrap_err().sql_state(), Some("25006"));
    host.becomes(Is::Primary(1));
    db.exec(WRITE, ()).await.unwrap();
    assert_eq!((db.counters().created, db.hosts()[0].retired), (1, 0));
    // Without a choice of roles the same error means nothing.
    let any = Db::builder(&of(&[host.server.port()], ""))
        .max(1)
        .open()
        .await
        .unwrap();
    host.becomes(Is::Standby);
    for _ in 0..3 {
        let error = any.exec(WRITE, ()).await.unwrap_err();
        assert_eq!(error.sql_state(), Some("25006"));
    }
    assert_eq!(any.counters().created, 1);
    assert!(any.hosts().is_empty());
}

#[tokio::test]
async fn without_a_fitting_host_calls_wait_until_their_deadline() {
    let (one, two) = (
        Host::start(Is::Standby).await,
        Host::start(Is::Standby).await,
    );
    let dsn = to_write(&[one.server.port(), two.server.port()]);
    let breaker = ConsecutiveFailures::new(1);
    let deadline = Duration::from_millis(1500);
    let db = Db::builder(&dsn)
        .acquire_timeout(deadline)
        .breaker(breaker)
        .open()
        .await
        .unwrap();
    let error = db.exec(WRITE, ()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Timeout, "{error:?}");
    assert!(error.message().contains("no host fits"), "{error}");
    assert!(
        error.message().contains("target_session_attrs=read-write"),
        "{error}"
    );
    assert_eq!(db.pool().unwrap().breaker(), BreakerState::Closed);
    let late = async {
        until("it waits", async || db.status().waiting > 0).await;
        two.becomes(Is::Primary(1));
    };
    let (done, ()) = tokio::join!(soon("it is found", db.exec(WRITE, ())), late);
    done.unwrap();
    assert_eq!((one.writes(), two.writes()), (0, 1));
    // A handle that opens its first connections says at once why it cannot.
    two.becomes(Is::Standby);
    let opened = soon("it ends", Db::builder(&dsn).min(1).open()).await;
    assert_eq!(opened.unwrap_err().kind(), Kind::Connect);
    // Nobody answers: that is no question of roles.
    let nobody = Db::open(&to_write(&[free_port(), free_port()]))
        .await
        .unwrap();
    let error = soon("it is refused", nobody.exec(WRITE, ()))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Connect, "{error:?}");
    // A handle that waits can be closed and dropped.
    let waiting = Db::open(&dsn).await.unwrap();
    let call = waiting.exec(WRITE, ());
    let close = async {
        until("it waits", async || waiting.status().creating > 0).await;
        waiting.close().await.unwrap();
    };
    let (called, ()) = soon("it is closed", async { tokio::join!(call, close) }).await;
    assert_eq!(called.unwrap_err().kind(), Kind::Closed);
}

#[tokio::test]
async fn server_that_hangs_delays_nobody() {
    let silent =
        Scripted::new(|mut client: Client| async move { client.fall_silent().await }).await;
    let host = Host::start(Is::Primary(1)).await;
    let dsn = to_write(&[silent.port(), host.server.port()]);
    // Far below the three seconds that an address has.
    let db = Db::builder(&dsn)
        .acquire_timeout(Duration::from_secs(2))
        .open()
        .await
        .unwrap();
    db.exec(WRITE, ()).await.unwrap();
    until("its silence is noticed", async || db.hosts()[0].is_silent).await;
}

#[tokio::test]
async fn least_used_host_gets_the_next_connection() {
    let mut hosts = Vec::new();
    for _ in 0..3 {
        hosts.push(Host::start(Is::Primary(1)).await);
    }
    let ports: Vec<_> = hosts.iter().map(|host| host.server.port()).collect();
    let dsn = of(&ports, "load_balance_hosts=random");
    let db = Db::builder(&dsn).max(10).open().await.unwrap();
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(db.connection().await.unwrap());
        held.last().unwrap().exec(WRITE, ()).await.unwrap();
    }
    let mut used: Vec<_> = hosts.iter().map(Host::writes).collect();
    used.sort_unstable();
    assert_eq!(used, [3, 3, 4]);
    let connections: usize = db.hosts().iter().map(|host| host.connections).sum();
    assert_eq!(connections, 10);
}

#[tokio::test]
async fn connections_that_are_opened_at_once_are_spread_evenly() {
    let mut hosts = Vec::new();
    for _ in 0..3 {
        hosts.push(Host::start(Is::Primary(1)).await);
    }
    let ports: Vec<_> = hosts.iter().map(|host| host.server.port()).collect();
    let dsn = of(&ports, "load_balance_hosts=random");
    let db = Db::builder(&dsn).max(10).open().await.unwrap();
    let mut acquires = JoinSet::new();
    for _ in 0..10 {
        let db = db.clone();
        acquires.spawn(async move { db.connection().await.unwrap() });
    }
    let held = soon("all are open", acquires.join_all()).await;
    let mut used: Vec<_> = db.hosts().iter().map(|host| host.connections).collect();
    used.sort_unstable();
    assert_eq!(used, [3, 3, 4]);
    drop(held);
}
