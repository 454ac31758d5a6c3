//! Which host has the role that the DSN demands, and what follows when roles change.

#![allow(clippy::disallowed_methods, reason = "deadlines are measured")]

use std::time::{Duration, Instant};

use cenote::pool::{BreakerState, ConsecutiveFailures};
use cenote::{Db, Kind};

use super::host::{Host, Is, WRITE, open, write_on_all};
use super::{of, to_write};
use crate::servers::scripted::Refusal;
use crate::servers::{free_port, soon, until};

#[tokio::test]
async fn demoted_primary_leaves_the_pool() {
    for variable in [
        "read_only",
        "super_read_only",
        "innodb_read_only",
        "transaction_read_only",
    ] {
        let (old, new) = (
            Host::start(Is::Primary).await,
            Host::start(Is::Standby(variable)).await,
        );
        let db = open(&to_write(&[old.port(), new.port()])).await;
        write_on_all(&db).await;
        assert_eq!((old.writes(), new.arrived()), (3, 0), "{variable}");
        until("its watcher has seen the other one", async || {
            db.hosts()[1].role.is_some()
        })
        .await;
        old.becomes(Is::Standby(variable));
        new.becomes(Is::Primary);
        // At most each connection is refused once, whoever notices first.
        let mut refused = 0;
        while let Err(error) = soon("a write ends", db.exec(WRITE, ())).await {
            let is_expected = error.code() == Some(1290) || error.is_connection_lost();
            assert!(is_expected, "{variable}: {error:?}");
            refused += 1;
            assert!(refused <= 3, "{variable}: {error:?}");
        }
        until("the connections to the old host close", async || {
            old.writers() == 0
        })
        .await;
        write_on_all(&db).await;
        assert_eq!(old.writes(), 3, "{variable}");
        let hosts = db.hosts();
        assert_eq!((hosts[0].connections, hosts[1].connections), (0, 3));
        assert!(hosts[0].retired > 0 && hosts[0].role.unwrap().read_only);
        let history = hosts[1].role.unwrap().history;
        assert_eq!(history.unwrap().timeline, 1, "{variable}");
    }
}

#[tokio::test]
async fn each_role_has_its_host() {
    let (primary, standby) = (
        Host::start(Is::Primary).await,
        Host::start(Is::STANDBY).await,
    );
    // The other one comes first in each.
    let (to_primary, to_standby) = (
        [standby.port(), primary.port()],
        [primary.port(), standby.port()],
    );
    for (ports, attrs, writes) in [
        (to_primary, "read-write", true),
        (to_primary, "primary", true),
        (to_standby, "read-only", false),
        (to_standby, "standby", false),
        (to_standby, "prefer-standby", false),
        (to_primary, "any", false),
        ([primary.port(); 2], "prefer-standby", true),
    ] {
        let db = open(&of(&ports, &format!("target_session_attrs={attrs}"))).await;
        let done = soon("it is answered", db.exec(WRITE, ())).await;
        assert_eq!(done.is_ok(), writes, "{attrs}: {done:?}");
    }
}

#[tokio::test]
async fn without_a_fitting_host_calls_wait_until_their_deadline() {
    let (one, two) = (
        Host::start(Is::STANDBY).await,
        Host::start(Is::STANDBY).await,
    );
    let dsn = to_write(&[one.port(), two.port()]);
    let deadline = Duration::from_millis(1500);
    let db = Db::builder(&dsn)
        .acquire_timeout(deadline)
        .breaker(ConsecutiveFailures::new(1))
        .open()
        .await
        .unwrap();
    let begun = Instant::now();
    let error = db.exec(WRITE, ()).await.unwrap_err();
    assert!(begun.elapsed() >= deadline, "before its deadline: {error}");
    assert_eq!(error.kind(), Kind::Timeout, "{error:?}");
    assert!(error.message().contains("no host fits"), "{error}");
    let wanted = "target_session_attrs=read-write";
    assert!(error.message().contains(wanted), "{error}");
    assert_eq!(db.pool().unwrap().breaker(), BreakerState::Closed);
    let late = async {
        until("it waits", async || db.status().waiting > 0).await;
        two.becomes(Is::Primary);
    };
    let (done, ()) = tokio::join!(soon("it is found", db.exec(WRITE, ())), late);
    done.unwrap();
    assert_eq!((one.arrived(), two.writes()), (0, 1));
    // A handle that opens its first connections says at once why it cannot.
    two.becomes(Is::STANDBY);
    let opened = soon("it ends", Db::builder(&dsn).min(1).open()).await;
    assert_eq!(opened.unwrap_err().kind(), Kind::Connect);
    // Nobody answers: that is no question of roles.
    let nobody = Db::open(&to_write(&[free_port(), free_port()]))
        .await
        .unwrap();
    let refused = soon("it is refused", nobody.exec(WRITE, ())).await;
    assert_eq!(refused.unwrap_err().kind(), Kind::Connect);
}

#[tokio::test]
async fn only_a_refused_account_ends_the_search() {
    for (code, state, ends) in [
        (1040, "08004", false),
        (1047, "08S01", false),
        (1053, "08S01", false),
        (1152, "08S01", false),
        (1927, "70100", false),
        (3032, "HY000", false),
        (1045, "28000", true),
        (3118, "HY000", true),
    ] {
        let (closed, open) = (
            Host::start(Is::Primary).await,
            Host::start(Is::Primary).await,
        );
        let message = "WSREP or another reason";
        closed.lets_nobody_in(Refusal {
            code,
            state,
            message,
        });
        let db = Db::open(&to_write(&[closed.port(), open.port()])).await;
        let done = soon("it ends", db.unwrap().exec(WRITE, ())).await;
        let refused = done.err().and_then(|error| error.code());
        assert_eq!(refused, ends.then_some(code.into()), "{code}");
        assert_eq!(open.writes(), usize::from(!ends), "{code}");
    }
}

#[tokio::test]
async fn replaced_primary_gets_writes_after_it_was_read_only() {
    let (old, new) = (
        Host::start(Is::Primary).await,
        Host::start(Is::STANDBY).await,
    );
    let db = open(&to_write(&[old.port(), new.port()])).await;
    write_on_all(&db).await;
    until("both are known", async || {
        db.hosts().iter().all(|host| host.role.is_some())
    })
    .await;
    // The old one does not know, and would accept writes.
    new.becomes(Is::Primary);
    until("the old host is left", async || old.writers() == 0).await;
    let before = old.arrived();
    write_on_all(&db).await;
    new.becomes(Is::STANDBY);
    until("the new host is left", async || new.writers() == 0).await;
    let call = db.exec(WRITE, ());
    let promote = async {
        until("it waits", async || db.status().creating > 0).await;
        let asked = old.asked();
        until("it is not taken", async || old.asked() > asked + 3).await;
        assert_eq!(old.arrived(), before);
        // It follows, and is promoted in turn.
        old.becomes(Is::STANDBY);
        until("it is seen as a standby", async || {
            db.hosts()[0].role.is_some_and(|role| role.standby)
        })
        .await;
        old.becomes(Is::Primary);
    };
    let (done, ()) = soon("it is written", async { tokio::join!(call, promote) }).await;
    done.unwrap();
    assert_eq!(old.arrived(), before + 1);
}

#[tokio::test]
async fn node_that_leaves_its_cluster_gets_no_calls() {
    let (one, two) = (Host::start(Is::SYNCED).await, Host::start(Is::SYNCED).await);
    let db = open(&of(&[one.port(), two.port()], "")).await;
    write_on_all(&db).await;
    assert_eq!((one.writes(), two.writes()), (3, 0), "in order");
    one.becomes(Is::JOINING);
    let mut refused = 0;
    while let Err(error) = soon("a write ends", db.exec(WRITE, ())).await {
        let is_expected = error.code() == Some(1047) || error.is_connection_lost();
        assert!(is_expected, "{error:?}");
        refused += 1;
        assert!(refused <= 3, "{error:?}");
    }
    until("it is left", async || one.writers() == 0).await;
    write_on_all(&db).await;
    assert_eq!((one.writes(), db.hosts()[1].connections), (3, 3));
    // It has caught up, and is the only one left.
    one.becomes(Is::SYNCED);
    two.becomes(Is::JOINING);
    until("it is used again", async || {
        db.exec(WRITE, ()).await.is_ok() && one.writes() > 3
    })
    .await;
}
