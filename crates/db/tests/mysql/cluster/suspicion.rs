//! Which errors have a host asked what it is.

use cenote::Db;

use super::host::{Host, Is, NOT_PREPARED, READ_ONLY, WRITE};
use super::{of, to_write};
use crate::servers::scripted::Refusal;
use crate::servers::{soon, until};

const SUPER_READ_ONLY: Refusal = Refusal {
    code: 1290,
    state: "HY000",
    message: "The MySQL server is running with the --super-read-only option so it cannot execute this statement",
};

const READ_ONLY_MODE: Refusal = Refusal {
    code: 1836,
    state: "HY000",
    message: "Running in read-only mode",
};

const INNODB_READ_ONLY: Refusal = Refusal {
    code: 1874,
    state: "HY000",
    message: "InnoDB is in read only mode.",
};

const READ_ONLY_TRANSACTION: Refusal = Refusal {
    code: 1792,
    state: "25006",
    message: "Cannot execute statement in a READ ONLY transaction",
};

/// Errors that say nothing about the role, two of them with a number that may.
const OTHERS: [Refusal; 3] = [
    Refusal {
        code: 1290,
        state: "HY000",
        message: "The MariaDB server is running with the --secure-file-priv option so it cannot execute this statement",
    },
    Refusal {
        code: 1047,
        state: "08S01",
        message: "Unknown command",
    },
    Refusal {
        code: 1213,
        state: "40001",
        message: "Deadlock found when trying to get lock; try restarting transaction",
    },
];

/// A handle with one connection to one host, which is asked on suspicion only.
async fn single(host: &Host) -> Db {
    let builder = Db::builder(&to_write(&[host.port()])).max(1);
    let db = builder.open().await.unwrap();
    db.exec(WRITE, ()).await.unwrap();
    assert_eq!(host.asked(), 1, "by its only connection");
    db
}

async fn refused_by(db: &Db, host: &Host, refusal: Refusal) {
    host.refuses(Some(refusal));
    let refused = soon("it is refused", db.exec(WRITE, ())).await;
    let code = refused.unwrap_err().code();
    assert_eq!(code, Some(refusal.code.into()));
    host.refuses(None);
}

#[tokio::test]
async fn refused_write_has_its_host_asked_once() {
    for (refusal, ends_the_connection) in [
        (READ_ONLY, true),
        (SUPER_READ_ONLY, true),
        (READ_ONLY_MODE, true),
        (INNODB_READ_ONLY, true),
        (NOT_PREPARED, true),
        // The program may have forbidden it.
        (READ_ONLY_TRANSACTION, false),
    ] {
        let host = Host::start(Is::Primary).await;
        let db = single(&host).await;
        refused_by(&db, &host, refusal).await;
        until("it is asked", async || host.asked() >= 2).await;
        // The host has the role: what was refused says nothing about other connections to its name.
        assert_eq!(db.hosts()[0].retired, 0, "{refusal:?}");
        db.exec(WRITE, ()).await.unwrap();
        let created = 1 + u64::from(ends_the_connection);
        assert_eq!(db.counters().created, created, "{refusal:?}");
        assert_eq!(host.asked() as u64, created + 1, "{refusal:?}");
        // The host decides.
        host.becomes(Is::STANDBY);
        refused_by(&db, &host, refusal).await;
        until("it is retired", async || db.hosts()[0].retired == 1).await;
    }
}

#[tokio::test]
async fn other_errors_with_these_numbers_raise_no_suspicion() {
    let host = Host::start(Is::Primary).await;
    let db = single(&host).await;
    for refusal in OTHERS {
        refused_by(&db, &host, refusal).await;
    }
    // The next error has the host asked, so that the others have not.
    refused_by(&db, &host, READ_ONLY_TRANSACTION).await;
    until("it is asked", async || host.asked() >= 2).await;
    db.exec(WRITE, ()).await.unwrap();
    assert_eq!((db.counters().created, host.asked()), (1, 2));
}

#[tokio::test]
async fn writes_in_a_read_only_transaction_raise_no_suspicion() {
    let host = Host::start(Is::Primary).await;
    let db = single(&host).await;
    for refusal in [
        READ_ONLY,
        READ_ONLY_MODE,
        INNODB_READ_ONLY,
        READ_ONLY_TRANSACTION,
    ] {
        let options = db.transaction_options().read_only();
        let run = options.run(async || {
            refused_by(&db, &host, refusal).await;
            db.exec("SELECT 1", ()).await.map(drop)
        });
        run.await.unwrap();
    }
    // The flag ends with the transaction.
    refused_by(&db, &host, READ_ONLY_TRANSACTION).await;
    until("it is asked", async || host.asked() >= 2).await;
    db.exec(WRITE, ()).await.unwrap();
    assert_eq!((db.counters().created, host.asked()), (1, 2));
}

#[tokio::test]
async fn refused_writes_mean_nothing_where_any_role_fits() {
    let host = Host::start(Is::STANDBY).await;
    let db = Db::builder(&of(&[host.port()], "")).max(1);
    let db = db.open().await.unwrap();
    for _ in 0..3 {
        let error = db.exec(WRITE, ()).await.unwrap_err();
        assert_eq!(error.code(), Some(1290));
    }
    assert_eq!((db.counters().created, host.asked()), (1, 0));
    assert!(db.hosts().is_empty());
}

#[tokio::test]
async fn refused_write_in_a_batch_raises_suspicion() {
    for in_transaction in [false, true] {
        let host = Host::start(Is::Primary).await;
        let db = single(&host).await;
        host.becomes(Is::STANDBY);
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
        assert_eq!(done.unwrap_err().code(), Some(1290));
        until("it is retired", async || db.hosts()[0].retired == 1).await;
    }
}
