//! Commits whose outcome the server leaves open, and the conflicts after which a transaction is repeated.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cenote::{Db, Kind, Result};

use crate::servers::client::with_option;
use crate::servers::own::OwnServer;
use crate::servers::scripted::{Client, Scripted};
use crate::servers::{soon, until};

/// Cancels the session that waits for a standby.
async fn stop_waiting(admin: &Db) {
    until("a commit waits for a standby", async || {
        let sql = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        admin.query_as_one::<i64>(sql, ()).await.unwrap() == 1
    })
    .await;
}

fn assert_in_doubt(done: Result<()>, way: &str) {
    let error = done.expect_err(way);
    assert_eq!(error.kind(), Kind::OutcomeUnknown, "{way}: {error:?}");
    assert_eq!(error.sql_state(), Some("01000"), "{way}: {error:?}");
    assert!(!error.is_retryable(), "{way}");
}

#[tokio::test]
async fn commit_that_no_standby_confirmed_is_in_doubt() {
    let settings = ["synchronous_standby_names=nobody", "synchronous_commit=on"];
    let server = OwnServer::start(&settings).await;
    let local = with_option(&server.dsn(), "set.synchronous_commit", "local");
    let admin = Db::open(&local).await.unwrap();
    admin.exec("CREATE TABLE t (a int)", ()).await.unwrap();
    let db = Db::builder(&server.dsn()).max(1).open().await.unwrap();
    let add = "INSERT INTO t VALUES (1)";
    let ways: [(&str, _); 6] = [
        ("guard", 0),
        ("closure", 1),
        ("text", 2),
        ("single statement", 3),
        ("script", 4),
        ("sets", 5),
    ];
    for (n, (way, number)) in ways.into_iter().enumerate() {
        let write = async {
            match number {
                0 => {
                    let tx = db.begin().await?;
                    tx.exec(add, ()).await?;
                    tx.commit().await
                }
                1 => {
                    let options = db.transaction_options();
                    let run = options.retry(async || db.exec(add, ()).await.map(drop));
                    run.await
                }
                2 => {
                    db.exec("BEGIN", ()).await?;
                    db.exec(add, ()).await?;
                    db.exec("COMMIT", ()).await.map(drop)
                }
                3 => db.exec(add, ()).await.map(drop),
                4 => db.run_all(&format!("{add}; SELECT 1"), ()).await.map(drop),
                _ => {
                    let sets = vec![(1,)];
                    db.exec_many("INSERT INTO t VALUES (?)", sets)
                        .await
                        .map(drop)
                }
            }
        };
        let write = soon("the call ends", cenote::scope(write));
        let (done, ()) = tokio::join!(write, stop_waiting(&admin));
        assert_in_doubt(done, way);
        let count = "SELECT count(*) FROM t";
        let rows: i64 = admin.query_as_one(count, ()).await.unwrap();
        assert_eq!(rows, i64::try_from(n + 1).unwrap(), "{way}");
        // The connection is good, and the doubt is not about the next call.
        let rows: i64 = db.query_as_one(count, ()).await.unwrap();
        assert_eq!(rows, i64::try_from(n + 1).unwrap(), "{way}");
        assert_eq!(db.counters().created, 1, "{way}");
    }
}

#[tokio::test]
async fn warning_of_a_trigger_at_commit_is_no_doubt() {
    let dsn = crate::servers::client::own_schema(&crate::servers::dsn()).await;
    let db = Db::open(&dsn).await.unwrap();
    let make = "CREATE TABLE t (a int); \
         CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         RAISE WARNING 'canceling wait for synchronous replication due to user request' \
         USING ERRCODE = '01000'; RETURN NULL; END $$; \
         CREATE CONSTRAINT TRIGGER late AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED \
         FOR EACH ROW EXECUTE FUNCTION warn()";
    db.exec(make, ()).await.unwrap();
    db.exec("INSERT INTO t VALUES (1)", ()).await.unwrap();
    let add = async || db.exec("INSERT INTO t VALUES (2)", ()).await.map(drop);
    db.transaction(add).await.unwrap();
}

/// A server that refuses this statement the first time.
async fn refusing(
    cockroach: bool,
    refused: &'static str,
    state: &'static str,
) -> (Scripted, Count) {
    let count = Count::default();
    let all = count.clone();
    let server = Scripted::new(move |mut client: Client| {
        let all = all.clone();
        async move {
            let version = ("crdb_version", "CockroachDB CCL v23.2.0");
            let settings: &[_] = if cockroach { &[version] } else { &[] };
            client.let_in_with(settings).await;
            let refuse = |sql: &str| {
                let is_first = sql == refused && all.0.fetch_add(1, Ordering::Relaxed) == 0;
                is_first.then_some(state)
            };
            client.converse(refuse).await;
        }
    })
    .await;
    (server, count)
}

/// How often a statement was run.
#[derive(Clone, Default)]
struct Count(Arc<AtomicU32>);

const UPDATE: &str = "UPDATE t SET a = 1";

async fn run(dsn: &str) -> Result<()> {
    let db = Db::open(dsn).await.unwrap();
    let options = db.transaction_options();
    let run = options.retry(async || db.exec(UPDATE, ()).await.map(drop));
    soon("the transaction ends", run).await
}

#[tokio::test]
async fn conflicts_repeat_the_transaction() {
    for cockroach in [false, true] {
        for state in ["40001", "40P01"] {
            for refused in [UPDATE, "COMMIT"] {
                let (server, count) = refusing(cockroach, refused, state).await;
                let done = run(&server.dsn()).await;
                assert!(done.is_ok(), "{state} for {refused}: {done:?}");
                assert_eq!(count.0.load(Ordering::Relaxed), 2, "{state} for {refused}");
            }
        }
    }
}

#[tokio::test]
async fn ambiguous_result_of_cockroachdb_is_unknown() {
    for refused in [UPDATE, "COMMIT"] {
        for (cockroach, option, kind) in [
            (true, "", Kind::OutcomeUnknown),
            (false, ";engine=cockroachdb", Kind::OutcomeUnknown),
            (false, "", Kind::Database),
            (true, ";engine=postgresql", Kind::Database),
        ] {
            let (server, count) = refusing(cockroach, refused, "40003").await;
            let error = run(&format!("{}{option}", server.dsn())).await.unwrap_err();
            let seen = (error.kind(), error.sql_state());
            assert_eq!(seen, (kind, Some("40003")), "{refused} {option}");
            assert!(!error.is_retryable());
            assert_eq!(count.0.load(Ordering::Relaxed), 1, "{refused} {option}");
        }
    }
}
