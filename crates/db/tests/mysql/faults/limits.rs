//! Servers that take no more.

use std::time::Duration;

use cenote::{Db, Error, Kind};
use tokio::task::JoinSet;

use crate::servers::own::OwnServer;
use crate::servers::{assert_whole, dsn, own_tables, quiet, session_id, soon};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_with_fewer_places_than_the_pool_still_serves_the_rest() {
    let server = OwnServer::start(&["max-connections=10"]).await;
    let db = Db::builder(&server.dsn())
        .max(30)
        .acquire_timeout(Duration::from_secs(10))
        .open()
        .await
        .unwrap();
    let mut tasks = JoinSet::new();
    for n in 0..60_i64 {
        let db = db.clone();
        tasks.spawn(cenote::scope(async move {
            for _ in 0..20 {
                match db
                    .query_as_one::<i64>("SELECT ? + SLEEP(0.001)", (n,))
                    .await
                {
                    Ok(answer) => assert_eq!(answer, n),
                    Err(error) => {
                        assert_eq!(error.kind(), Kind::Connect, "{error:?}");
                        assert!(matches!(error.code(), Some(1040 | 1203)), "{error:?}");
                    }
                }
            }
        }));
    }
    soon("all end", async {
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
    })
    .await;
    quiet(&db).await;
    let status = db.status();
    // One more than it says, for those who may do anything.
    assert!((1..=11).contains(&status.total), "{status}");
    assert!(session_id(&db).await > 0);
}

#[tokio::test]
async fn user_with_few_connections_gets_an_error_and_uses_those() {
    let db = Db::builder(&dsn())
        .user("few")
        .password("few-secret")
        .max(3)
        .open()
        .await
        .unwrap();
    let held = [
        db.connection().await.unwrap(),
        db.connection().await.unwrap(),
    ];
    for connection in &held {
        connection.query("SELECT 1", ()).await.unwrap();
    }
    let error = db.ping().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Connect);
    assert!(matches!(error.code(), Some(1203 | 1226)), "{error:?}");
    drop(held);
    db.ping().await.unwrap();
    quiet(&db).await;
}

#[tokio::test]
async fn oversized_packet_is_an_error_and_the_pool_stays_whole() {
    let db = own_tables(|builder| builder.max(1)).await;
    db.exec("CREATE TABLE t (n LONGTEXT)", ()).await.unwrap();
    let before = session_id(&db).await;
    let limit: usize = db
        .query_as_one("SELECT @@max_allowed_packet", ())
        .await
        .unwrap();
    let large = "x".repeat(limit + 1);
    let outcome: Result<(), Error> = db
        .transaction(async || {
            db.exec("INSERT INTO t VALUES ('small')", ()).await?;
            let insert = "INSERT INTO t VALUES (?)";
            let error = db.exec(insert, (&*large,)).await.unwrap_err();
            assert_eq!((error.kind(), error.code()), (Kind::Database, Some(1153)));
            let text = format!("INSERT INTO t VALUES ('{large}')");
            let error = db.exec(&text, ()).await.unwrap_err();
            assert_eq!(error.code(), Some(1153));
            db.exec(insert, ("more",)).await.map(drop)
        })
        .await;
    outcome.unwrap();
    let rows: i64 = db.query_as_one("SELECT COUNT(*) FROM t", ()).await.unwrap();
    assert_eq!(rows, 2, "the transaction went on");
    assert_eq!(session_id(&db).await, before);
    // What the server makes by itself is another matter: it says so and gives NULL.
    let made: Option<String> = db
        .query_as_one("SELECT REPEAT('x', @@max_allowed_packet + 1)", ())
        .await
        .unwrap();
    assert_eq!(made, None);
    assert_whole(&db).await;
}
