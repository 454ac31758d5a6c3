//! The guard of calls under way: whatever is dropped, nobody gets another's answer, and nothing of it
//! goes on running on the server.

use cenote::driver::{Request, Status};
use cenote::{Db, Error, Kind};
use cenote_testkit::poll::{Hand, drop_after, yield_now};

use crate::servers::client::{Client, value};
use crate::servers::own::OwnServer;
use crate::servers::{
    assert_whole, dsn, is_gone, is_running, own_tables, quiet, session_id, soon, threads_where,
};

/// What the guard is there for. Should this ever fail, the client library has learned to look after
/// itself.
#[tokio::test]
async fn without_the_guard_the_next_query_gets_the_dropped_ones_rows() {
    let mut client = Client::new().await;
    let mut run = Hand::new(client.connection.run(Request::new("SELECT 'old'", &[])));
    assert!(run.poll().is_pending(), "it has been sent, and no more");
    drop(run);
    assert!(client.own().is_in_flight());
    client.own().forget_in_flight();
    let got: String = client.get("SELECT 'new'").await;
    assert_eq!(got, "old");
    let got: String = client.get("SELECT 'newer'").await;
    assert_eq!(got, "new", "and so it goes on");
}

#[tokio::test]
async fn guarded_connection_with_a_dropped_call_answers_no_other() {
    let mut client = Client::new().await;
    let mut run = Hand::new(client.connection.run(Request::new("SELECT 'old'", &[])));
    assert!(run.poll().is_pending());
    drop(run);
    assert_eq!(client.connection.status(), Status::Unknown);
    let error = client.must_not("SELECT 'new'").await;
    assert_eq!(error.kind(), Kind::Busy);
    let error = client.connection.settle().await.unwrap_err();
    assert_eq!(error.kind(), Kind::ConnectionLost, "{error}");
    assert!(client.connection.is_broken());
    let error = client.must_not("SELECT 'new'").await;
    assert_eq!(error.kind(), Kind::ConnectionLost);
}

/// Runs a call again and again, dropped one poll later each time, until it comes to its end; after each
/// the next task asks for something of its own.
async fn dropped_at_every_poll<T>(db: &Db, mut call: impl AsyncFnMut() -> Result<T, Error>) {
    for polls in 0..200 {
        let done = drop_after(polls, call()).await;
        let mine: (i64, String) = soon(
            "the next task is answered",
            db.query_as_one("SELECT ?, 'mine'", (i64::try_from(polls).unwrap(),)),
        )
        .await
        .unwrap();
        assert_eq!(mine, (i64::try_from(polls).unwrap(), "mine".to_owned()));
        let mine: String = db.query_as_one("SELECT 'plain'", ()).await.unwrap();
        assert_eq!(mine, "plain");
        if let Some(done) = done {
            done.unwrap();
            return;
        }
    }
    panic!("it never comes to its end");
}

#[tokio::test]
async fn after_a_drop_at_any_poll_the_next_task_gets_its_own_answer() {
    let db = own_tables(|builder| builder.max(1)).await;
    db.exec("CREATE TABLE t (n INT)", ()).await.unwrap();
    let many = "SELECT seq, REPEAT('x', 1000) FROM seq_1_to_500";
    dropped_at_every_poll(&db, async || db.query("SELECT 'other', 1", ()).await).await;
    dropped_at_every_poll(&db, async || db.query("SELECT 'other', ?", (2,)).await).await;
    dropped_at_every_poll(&db, async || db.query(many, ()).await).await;
    dropped_at_every_poll(&db, async || {
        db.exec("SELECT 1; SELECT 'other'; SELECT 3", ()).await
    })
    .await;
    dropped_at_every_poll(&db, async || {
        let mut rows = db.stream(many, ()).await?;
        while rows.try_next().await?.is_some() {}
        Ok(())
    })
    .await;
    dropped_at_every_poll(&db, async || {
        db.transaction(async || {
            db.exec("INSERT INTO t VALUES (?)", (1,)).await?;
            db.query("SELECT 'other', n FROM t", ()).await
        })
        .await
    })
    .await;
    dropped_at_every_poll(&db, async || db.ping().await).await;
    assert_whole(&db).await;
    let open =
        "TIME_MS > 0 AND COMMAND <> 'Sleep' AND INFO LIKE '%other%' AND ID <> CONNECTION_ID()";
    assert_eq!(threads_where(&db, open).await, 0);
}

#[tokio::test]
async fn dropped_query_is_killed_on_the_server_and_frees_its_place() {
    for way in [
        dsn() + ";sslmode=disable",
        dsn() + ";sslmode=require",
        crate::servers::unix_dsn(),
    ] {
        let admin = Db::open(&way).await.unwrap();
        let db = Db::builder(&way).max(1).open().await.unwrap();
        let victim = session_id(&db).await;
        let caller = db.clone();
        let task = cenote::spawn(async move { caller.query("SELECT SLEEP(3600)", ()).await });
        is_running(&admin, victim, "SELECT SLEEP(3600)").await;
        task.abort();
        let next = soon("its place is free", session_id(&db)).await;
        assert_ne!(next, victim);
        is_gone(&admin, victim).await;
        assert_whole(&db).await;
    }
}

#[tokio::test]
async fn transaction_with_a_dropped_call_frees_locks_before_its_place() {
    let db = own_tables(|builder| builder.max(1)).await;
    db.exec("CREATE TABLE t (id INT PRIMARY KEY)", ())
        .await
        .unwrap();
    let admin = Db::open(&dsn()).await.unwrap();
    let caller = db.clone();
    let (tell, told) = tokio::sync::oneshot::channel();
    let task = cenote::spawn(async move {
        let tx = caller.begin().await?;
        tx.exec("INSERT INTO t VALUES (1)", ()).await?;
        tell.send(session_id(&caller).await).unwrap();
        tx.query("SELECT SLEEP(3600)", ()).await?;
        tx.commit().await
    });
    let victim = told.await.unwrap();
    is_running(&admin, victim, "SELECT SLEEP(3600)").await;
    task.abort();
    // It would wait for the lock, and not for long.
    db.exec(
        "SET STATEMENT innodb_lock_wait_timeout = 0 FOR INSERT INTO t VALUES (1)",
        (),
    )
    .await
    .unwrap();
    assert_whole(&db).await;
}

#[tokio::test]
async fn in_its_transaction_a_dropped_call_dooms_all_that_follows() {
    let db = own_tables(|builder| builder.max(2)).await;
    db.exec("CREATE TABLE t (n INT)", ()).await.unwrap();
    let error = db
        .transaction(async || {
            db.exec("INSERT INTO t VALUES (1)", ()).await?;
            assert!(
                drop_after(1, db.query("SELECT SLEEP(3600)", ()))
                    .await
                    .is_none()
            );
            let error = db.exec("INSERT INTO t VALUES (2)", ()).await.unwrap_err();
            let told = matches!(error.kind(), Kind::Doomed) || error.is_connection_lost();
            assert!(told, "{error}");
            Ok(())
        })
        .await
        .unwrap_err();
    assert!(
        matches!(error.kind(), Kind::Doomed | Kind::RolledBack) || error.is_connection_lost(),
        "{error}"
    );
    let left: i64 = db.query_as_one("SELECT COUNT(*) FROM t", ()).await.unwrap();
    assert_eq!(left, 0, "nothing ran outside of it");
    assert_whole(&db).await;
}

#[tokio::test]
async fn a_stream_without_an_end_is_killed_when_it_is_dropped() {
    let db = Db::builder(&dsn()).max(1).open().await.unwrap();
    let admin = Db::open(&dsn()).await.unwrap();
    let victim = session_id(&db).await;
    let endless = "SELECT a.seq, REPEAT('x', 1000) FROM seq_1_to_1000000 a, seq_1_to_1000000 b";
    let mut rows = db.stream(endless, ()).await.unwrap();
    for _ in 0..10 {
        assert!(rows.try_next().await.unwrap().is_some());
    }
    drop(rows);
    let next = soon("its place is free", session_id(&db)).await;
    assert_ne!(next, victim);
    is_gone(&admin, victim).await;
    assert_whole(&db).await;
}

/// The text of a query does not tell that a function of the application's own writes.
#[tokio::test]
async fn h21_what_a_streamed_function_writes_is_not_undone() {
    let db = own_tables(|builder| builder.max(1)).await;
    db.exec("CREATE TABLE t (n INT)", ()).await.unwrap();
    let pay = "CREATE FUNCTION pay(n INT) RETURNS INT MODIFIES SQL DATA \
               BEGIN DO SLEEP(0.002); INSERT INTO t VALUES (n); RETURN n; END";
    db.exec(pay, ()).await.unwrap();
    // Longer than a query that only reads is read for.
    let sql = "SELECT pay(seq), REPEAT('x', 65536) FROM seq_1_to_200";
    let mut rows = db.stream(sql, ()).await.unwrap();
    assert!(rows.try_next().await.unwrap().is_some());
    drop(rows);
    let paid: i64 = db.query_as_one("SELECT COUNT(*) FROM t", ()).await.unwrap();
    assert_eq!(paid, 200);
}

#[tokio::test]
async fn rest_of_a_short_stream_is_read_and_its_connection_stays() {
    let db = Db::builder(&dsn()).max(1).open().await.unwrap();
    let before = session_id(&db).await;
    let mut rows = db
        .stream("SELECT seq FROM seq_1_to_2000", ())
        .await
        .unwrap();
    assert!(rows.try_next().await.unwrap().is_some());
    drop(rows);
    assert_eq!(session_id(&db).await, before);
}

#[tokio::test]
async fn stream_dropped_in_a_transaction_is_read_to_its_end() {
    let db = own_tables(|builder| builder.max(1)).await;
    db.exec("CREATE TABLE t (n INT)", ()).await.unwrap();
    db.transaction(async || {
        db.exec("INSERT INTO t VALUES (1)", ()).await?;
        // Longer than anybody would wait outside of one.
        let slow = "SELECT seq, SLEEP(0.01) FROM seq_1_to_30";
        let mut rows = db.stream(slow, ()).await?;
        assert!(rows.try_next().await?.is_some());
        drop(rows);
        db.exec("INSERT INTO t VALUES (2)", ()).await.map(drop)
    })
    .await
    .unwrap();
    let kept: i64 = db.query_as_one("SELECT COUNT(*) FROM t", ()).await.unwrap();
    assert_eq!(kept, 2);
}

#[tokio::test]
async fn connection_dropped_with_its_call_is_killed_on_the_server() {
    let admin = Db::open(&dsn()).await.unwrap();
    let mut client = Client::new().await;
    let victim = i64::from(client.id());
    let mut run = Hand::new(
        client
            .connection
            .run(Request::new("SELECT SLEEP(3600)", &[])),
    );
    assert!(run.poll().is_pending());
    is_running(&admin, victim, "SELECT SLEEP(3600)").await;
    drop(run);
    drop(client);
    is_gone(&admin, victim).await;
}

#[tokio::test]
async fn dropped_call_is_killed_even_if_the_server_has_no_place_left() {
    let server = OwnServer::start(&["max-connections=10"]).await;
    let db = Db::builder(&server.dsn()).max(2).open().await.unwrap();
    // Everybody who may, and the one who may when nobody else may.
    let mut others = Vec::new();
    let victim = session_id(&db).await;
    let caller = db.clone();
    let task = cenote::spawn(async move { caller.query("SELECT SLEEP(3600)", ()).await });
    while let Ok(other) = crate::servers::client::connect(&server.dsn(), 0).await {
        others.push(other);
    }
    assert!(others.len() >= 9, "{}", others.len());
    task.abort();
    yield_now().await;
    // Somebody goes: now there is a place to kill from.
    drop(others.pop());
    quiet(&db).await;
    others.clear();
    is_gone(&db, victim).await;
    assert_whole(&db).await;
}

#[tokio::test]
async fn many_tasks_dropped_anywhere_never_see_each_others_rows() {
    let db = own_tables(|builder| builder.max(4)).await;
    let mut tasks = Vec::new();
    for n in 0..60_i64 {
        let db = db.clone();
        tasks.push(cenote::spawn(async move {
            for round in 0..10_i64 {
                let mark = n * 1000 + round;
                let asked = db.query_as_one::<i64>("SELECT ?", (mark,));
                let polls = usize::try_from((n * 7 + round * 3) % 12).unwrap();
                if let Some(answer) = drop_after(polls, asked).await {
                    assert_eq!(answer?, mark);
                }
                let answer: i64 = db.query_as_one("SELECT ? + 0", (mark,)).await?;
                assert_eq!(answer, mark);
            }
            Ok::<(), Error>(())
        }));
    }
    for task in tasks {
        soon("every task ends", task).await.unwrap().unwrap();
    }
    assert_whole(&db).await;
}

#[tokio::test]
async fn a_parameter_that_cannot_be_sent_costs_nothing() {
    let mut client = Client::new().await;
    let id = client.id();
    let error = client
        .run("SELECT ?", &[value(f64::NAN)])
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Type);
    let error = client
        .run("SELECT ?", &[value(1), value(2)])
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Parameters);
    assert_eq!(client.get::<u32>("SELECT CONNECTION_ID()").await, id);
}
