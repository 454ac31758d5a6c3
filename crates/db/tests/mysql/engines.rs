//! Servers that speak MySQL's protocol and have codes of their own: scripted, because they cannot be installed here.

use cenote::{Db, Error, Kind, Violation};

use crate::servers::scripted::{Engine, Refusal};
use crate::servers::soon;

const MARIADB: &str = "10.11.6-MariaDB";
const TIDB: &str = "8.0.11-TiDB-v7.5.0";
const VITESS: &str = "8.0.30-Vitess";

const DEADLOCK: Refusal = Refusal {
    code: 1213,
    state: "40001",
    message: "Deadlock found when trying to get lock; try restarting transaction",
};

const FULL: Refusal = Refusal {
    code: 1203,
    state: "42000",
    message: "target: shop.0.primary: vttablet: rpc error: code = ResourceExhausted desc = transaction pool \
              connection limit exceeded",
};

fn conflict(code: u16) -> Refusal {
    Refusal {
        code,
        state: "HY000",
        message: "Write conflict",
    }
}

/// Runs a transaction that may be repeated on a server that refuses this statement once.
async fn run(engine: &Engine, options: &str) -> Result<(), Error> {
    let dsn = format!("{}{options}", engine.dsn());
    let db = Db::open(&dsn).await.unwrap();
    let options = db.transaction_options();
    let run = options.retry(async || Ok::<_, Error>(()));
    soon("the transaction ends", run).await
}

#[tokio::test]
async fn conflict_at_commit_repeats_the_transaction() {
    for (version, refusal) in [
        // Galera certifies the write set at COMMIT.
        (MARIADB, DEADLOCK),
        (TIDB, conflict(8002)),
        (TIDB, conflict(8005)),
        (TIDB, conflict(8022)),
        (TIDB, conflict(9007)),
        (TIDB, DEADLOCK),
        (VITESS, DEADLOCK),
    ] {
        let engine = Engine::start(version, "COMMIT", refusal).await;
        let done = run(&engine, "").await;
        assert!(done.is_ok(), "{version} {refusal:?}: {done:?}");
        assert_eq!(engine.count("COMMIT"), 2, "{version} {refusal:?}");
    }
}

#[tokio::test]
async fn codes_of_tidb_mean_nothing_on_other_servers() {
    for version in [MARIADB, VITESS] {
        for code in [8002, 8005, 8022, 9007] {
            let engine = Engine::start(version, "COMMIT", conflict(code)).await;
            let error = run(&engine, "").await.unwrap_err();
            let (kind, violation) = (error.kind(), error.violation());
            assert_eq!(
                (kind, violation),
                (Kind::Database, None),
                "{version} {code}"
            );
            assert_eq!(engine.count("COMMIT"), 1, "{version} {code}");
        }
    }
}

#[tokio::test]
async fn full_transaction_pool_of_vitess_is_tried_again() {
    let engine = Engine::start(VITESS, "START TRANSACTION", FULL).await;
    run(&engine, "").await.unwrap();
    assert_eq!(engine.count("START TRANSACTION"), 2);
    assert_eq!(engine.count("COMMIT"), 1);
    let engine = Engine::start(VITESS, "START TRANSACTION", FULL).await;
    let db = Db::open(&engine.dsn()).await.unwrap();
    let error = db.transaction(async || Ok(())).await.unwrap_err();
    assert_eq!(error.violation(), Some(Violation::Exhausted));
    assert!(error.is_retryable());
}

#[tokio::test]
async fn dsn_names_an_engine_that_a_proxy_hides() {
    let engine = Engine::start("8.0.36", "COMMIT", conflict(9007)).await;
    run(&engine, ";engine=tidb").await.unwrap();
    assert_eq!(engine.count("COMMIT"), 2);
    let engine = Engine::start("8.0.36", "START TRANSACTION", FULL).await;
    run(&engine, ";engine=vitess").await.unwrap();
    let engine = Engine::start(TIDB, "COMMIT", conflict(9007)).await;
    let error = run(&engine, ";engine=mysql").await.unwrap_err();
    assert!(!error.is_retryable());
    let unknown = Db::open("mysql:host=127.0.0.1;user=app;engine=oracle").await;
    assert_eq!(unknown.unwrap_err().kind(), Kind::Config);
}
