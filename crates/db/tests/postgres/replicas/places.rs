//! Where a read runs: on the replica, or in what the coroutine has open on the primary.

use cenote::postgres::PostgresConnection;
use cenote::{Isolation, Kind};

use super::{FOREVER, IS_REPLICA, Pair, is_replica, read, write};

#[tokio::test]
async fn inside_a_transaction_reads_stay_on_the_primary() {
    let pair = Pair::start(&[]).await;
    let db = pair.open().await;
    let reading = db.reading();
    db.transaction(async || {
        write(&db, 1).await;
        assert_eq!(read(&db, 1).await, (1, false));
        Ok(())
    })
    .await
    .unwrap();
    cenote::scope(async {
        assert!(is_replica(&reading).await);
        let tx = db.begin().await.unwrap();
        assert!(!is_replica(&reading).await);
        tx.rollback().await.unwrap();
        assert!(is_replica(&reading).await);
        // A changed session, too: a replica does not have it.
        db.exec("SET search_path = public", ()).await.unwrap();
        assert!(!is_replica(&reading).await);
    })
    .await;
}

#[tokio::test]
async fn read_only_transaction_runs_on_the_replica() {
    let pair = Pair::start(&[]).await;
    let db = pair
        .open_with(|builder| builder.replica_wait(FOREVER))
        .await;
    let reading = db.reading();
    cenote::scope(async {
        write(&db, 1).await;
        let seen = async || {
            // Calls on the handle itself run in the transaction.
            assert!(is_replica(&db).await);
            assert!(db.in_transaction());
            let error = db.exec("UPDATE t SET n = 0", ()).await.unwrap_err();
            assert_eq!(error.sql_state(), Some("25006"));
            Ok(())
        };
        let done = reading.transaction_options().read_only().run(seen).await;
        assert_eq!(done.unwrap_err().kind(), Kind::RolledBack);
        let options = || reading.transaction_options().read_only();
        let sees = async || Ok((read(&db, 1).await, is_replica(&db).await));
        assert_eq!(options().run(sees).await.unwrap(), ((1, true), true));
        assert_eq!(
            options().begin_lazily().run(sees).await.unwrap(),
            ((1, true), true)
        );
        let tx = options().begin().await.unwrap();
        assert!(is_replica(&db).await);
        tx.commit().await.unwrap();
        // These belong to the primary.
        let serializable = options().isolation(Isolation::Serializable);
        assert_eq!(serializable.run(sees).await.unwrap(), ((1, false), false));
        let writes = reading.transaction(async || {
            write(&db, 1).await;
            Ok(is_replica(&db).await)
        });
        assert!(!writes.await.unwrap());
        assert!(!is_replica(&db).await);
    })
    .await;
}

#[tokio::test]
async fn what_may_write_goes_to_the_primary() {
    let pair = Pair::start(&[]).await;
    let db = pair
        .open_with(|builder| builder.replica_wait(FOREVER))
        .await;
    let reading = db.reading();
    cenote::scope(async {
        write(&reading, 1).await;
        // The write has left a position, for which the read has waited.
        assert_eq!(read(&db, 1).await, (1, true));
        let sql = "UPDATE t SET n = n + 1 WHERE id = 1 RETURNING n";
        assert_eq!(reading.query_scalar_one::<i64>(sql, ()).await.unwrap(), 2);
        assert_eq!(read(&db, 1).await, (2, true));
        // Nobody knows what an application's function does.
        let sql = "CREATE FUNCTION add() RETURNS int8 LANGUAGE sql AS \
                   'UPDATE t SET n = n + 1 WHERE id = 1 RETURNING n'";
        db.exec(sql, ()).await.unwrap();
        assert_eq!(
            reading
                .query_scalar_one::<i64>("SELECT add()", ())
                .await
                .unwrap(),
            3
        );
        assert_eq!(read(&db, 1).await, (3, true));
        let sets = (0..100_i64).map(|n| (n, 1_i64));
        let sql = "UPDATE t SET n = n + ? WHERE id = ?";
        reading.exec_many(sql, sets).await.unwrap();
        assert_eq!(read(&db, 1).await, (3 + 99 * 50, true));
        let mut copy = reading.copy_in("COPY t FROM STDIN").await.unwrap();
        copy.send("100\t7\n").await.unwrap();
        copy.finish().await.unwrap();
        assert_eq!(read(&db, 100).await, (7, true));
        // A script may change the session, and so pins its connection.
        let script = "SELECT 1; UPDATE t SET n = 0 WHERE id = 1";
        reading.exec(script, ()).await.unwrap();
        assert_eq!(read(&db, 1).await, (0, false));
    })
    .await;
}

#[tokio::test]
async fn stream_of_rows_comes_from_the_replica() {
    let pair = Pair::start(&[]).await;
    let db = pair
        .open_with(|builder| builder.replica_wait(FOREVER))
        .await;
    cenote::scope(async {
        write(&db, 1).await;
        let sql = "SELECT n, pg_is_in_recovery() FROM t ORDER BY id";
        let reading = db.reading();
        let mut rows = reading.stream_as::<(i64, bool)>(sql, ()).await.unwrap();
        let mut seen = Vec::new();
        while let Some(row) = rows.try_next().await.unwrap() {
            seen.push(row);
        }
        assert_eq!(seen.len(), 100);
        assert_eq!((seen[0], seen[1]), ((0, true), (1, true)));
        // An error of the replica is the primary's: the text is wrong on both.
        let wrong = reading
            .stream("SELECT nothing FROM t", ())
            .await
            .unwrap_err();
        assert_eq!(wrong.sql_state(), Some("42703"));
    })
    .await;
}

#[tokio::test]
async fn position_and_check_cost_no_round_trip() {
    let pair = Pair::start(&[]).await;
    let db = pair.open_with(|builder| builder.max(1)).await;
    let round_trips = async || {
        let mut lease = db.pool().unwrap().acquire().await.unwrap();
        let own = lease.driver().as_any().downcast_mut::<PostgresConnection>();
        own.unwrap().round_trips()
    };
    cenote::scope(async {
        let sql = "UPDATE t SET n = n + 1";
        let in_transaction = async || db.exec(sql, ()).await.map(drop);
        // Each is prepared and has been seen, and the connection knows its cluster.
        for _ in 0..2 {
            db.exec(sql, ()).await.unwrap();
            db.transaction(in_transaction).await.unwrap();
        }
        let before = round_trips().await;
        db.exec(sql, ()).await.unwrap();
        let (one, tx) = (round_trips().await, db.transaction(in_transaction));
        tx.await.unwrap();
        let both = round_trips().await;
        assert_eq!((one - before, both - one), (1, 2));
        assert!(!db.position().unwrap().is_unknown());
    })
    .await;
    // The watcher of the primary asks now and then, on the same connection.
    drop(db.reading().query(IS_REPLICA, ()).await.unwrap());
}

#[tokio::test]
async fn dropped_write_leaves_reads_to_the_primary() {
    let pair = Pair::start(&[]).await;
    let db = pair
        .open_with(|builder| builder.replica_wait(FOREVER))
        .await;
    cenote::scope(async {
        write(&db, 1).await;
        assert!(is_replica(&db.reading()).await);
        {
            // Polled once, which sends it.
            let mut writing = std::pin::pin!(db.exec("UPDATE t SET n = n + 1 WHERE id = 1", ()));
            let polled =
                std::future::poll_fn(|cx| std::task::Poll::Ready(writing.as_mut().poll(cx)));
            assert!(polled.await.is_pending());
        }
        assert!(db.position().unwrap().is_unknown());
        assert!(!is_replica(&db.reading()).await);
        write(&db, 1).await;
        assert!(!db.position().unwrap().is_unknown());
        assert!(is_replica(&db.reading()).await);
    })
    .await;
}

#[tokio::test]
async fn settings_and_hooks_are_those_of_the_handle() {
    let pair = Pair::start(&[]).await;
    let hook = async |connection: &mut cenote::PooledConnection| {
        connection.exec("SET application_name = 'hooked'").await
    };
    let db = pair.open_with(|builder| builder.on_connect(hook)).await;
    db.set_default("statement_timeout", "77s").await.unwrap();
    let sql = "SELECT current_setting('application_name'), current_setting('statement_timeout'), pg_is_in_recovery()";
    let seen: (String, String, bool) = db.reading().query_as_one(sql, ()).await.unwrap();
    assert_eq!(seen, ("hooked".to_owned(), "77s".to_owned(), true));
}

#[tokio::test]
async fn reads_prefer_a_replica_to_a_shared_connection() {
    let pair = Pair::start(&[]).await;
    let db = pair
        .open_with(|builder| builder.share_connections(true).replica_wait(FOREVER))
        .await;
    let reading = db.reading();
    cenote::scope(async {
        write(&db, 1).await;
        for _ in 0..20 {
            assert!(is_replica(&reading).await);
        }
        assert!(!is_replica(&db).await);
    })
    .await;
}

#[tokio::test]
async fn after_a_transaction_on_a_replica_calls_run_on_the_primary() {
    let pair = Pair::start(&[]).await;
    let db = pair
        .open_with(|builder| builder.replica_wait(FOREVER))
        .await;
    let reading = db.reading();
    let set = "SET application_name = 'changed'";
    let options = || reading.transaction_options().read_only();
    let name = "SELECT current_setting('application_name')";
    cenote::scope(async {
        let changing = async || {
            db.exec(set, ()).await?;
            Ok(is_replica(&db).await)
        };
        assert!(options().run(changing).await.unwrap());
        db.exec("UPDATE t SET n = 1 WHERE id = 1", ())
            .await
            .unwrap();
        assert!(!is_replica(&db).await);
        let tx = options().begin().await.unwrap();
        db.exec("SET application_name = 'changed'; SELECT 1", ())
            .await
            .unwrap();
        assert!(is_replica(&db).await);
        tx.commit().await.unwrap();
        db.exec("UPDATE t SET n = 2 WHERE id = 1", ())
            .await
            .unwrap();
        let preparing = async || {
            let statement = db.prepare(IS_REPLICA).await?;
            Ok((db.pin().await?, statement))
        };
        let (pin, statement) = options().run(preparing).await.unwrap();
        assert!(!is_replica(&db).await);
        write(&db, 1).await;
        let ended = statement.query(()).await.unwrap_err();
        assert_eq!(ended.kind(), Kind::TransactionEnded);
        drop((pin, statement));
        // The replica's pool has reset the connection.
        assert_ne!(
            reading.query_scalar_one::<String>(name, ()).await.unwrap(),
            "changed"
        );
        write(&db, 1).await;
        assert!(db.peek().is_none());
    })
    .await;
    let n: i64 = pair
        .at_primary
        .query_scalar_one("SELECT n FROM t WHERE id = 1", ())
        .await
        .unwrap();
    assert_eq!(n, 4);
}
