//! Where a read runs: on the replica, or in what the coroutine has open on the primary.

use cenote::Isolation;

use super::{FOREVER, Pair, is_replica, read, write};

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
        // A rollback may leave something, so it has a position.
        pair.catch_up().await;
        assert!(is_replica(&reading).await);
        // A changed session, too: a replica does not have it.
        db.exec("SET lock_wait_timeout = 7", ()).await.unwrap();
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
            assert_eq!(error.code(), Some(1792));
            Ok(())
        };
        let options = || reading.transaction_options().read_only();
        options().run(seen).await.unwrap();
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
        let text = "UPDATE t SET n = n + 1 WHERE id = 1";
        reading.exec(text, ()).await.unwrap();
        assert_eq!(read(&db, 1).await, (2, true));
        // Nobody knows what an application's function does.
        let sql = "CREATE FUNCTION add_one() RETURNS BIGINT DETERMINISTIC MODIFIES SQL DATA \
                   BEGIN UPDATE t SET n = n + 1 WHERE id = 1; RETURN 1; END";
        pair.at_primary.exec(sql, ()).await.unwrap();
        let added = reading.query_scalar_one::<i64>("SELECT add_one()", ());
        assert_eq!(added.await.unwrap(), 1);
        assert_eq!(read(&db, 1).await.0, 3);
    })
    .await;
    cenote::scope(async {
        let sets = (0..100_i64).map(|n| (n, 1_i64));
        let sql = "UPDATE t SET n = n + ? WHERE id = ?";
        reading.exec_many(sql, sets).await.unwrap();
        assert_eq!(read(&db, 1).await, (3 + 99 * 50, true));
        let mut batch = reading.batch();
        let known = batch.exec("UPDATE t SET n = 7 WHERE id = ?", (2_i64,));
        let wrong = batch.exec("UPDATE nothing SET n = 7", ());
        let mut results = batch.run().await.unwrap();
        results.take(known).unwrap();
        assert_eq!(results.take(wrong).unwrap_err().code(), Some(1146));
        assert_eq!(read(&db, 2).await, (7, true));
        let definition = "CREATE TABLE later (id BIGINT)";
        reading.exec(definition, ()).await.unwrap();
        let sql = "SELECT (SELECT COUNT(*) FROM later), @@read_only";
        let seen: (i64, bool) = reading.query_as_one(sql, ()).await.unwrap();
        assert_eq!(seen, (0, true));
    })
    .await;
}

#[tokio::test]
async fn question_for_the_position_resets_row_count() {
    let pair = Pair::start(&[]).await;
    let db = pair.open().await;
    let session = db.connection().await.unwrap();
    let count = "SELECT ROW_COUNT()";
    let add = "UPDATE t SET n = n + 1 WHERE id < 3";
    session.exec(add, ()).await.unwrap();
    let rows: i64 = session.query_scalar_one(count, ()).await.unwrap();
    assert_eq!(rows, 3);
    cenote::scope(async {
        let session = db.connection().await.unwrap();
        session.exec(add, ()).await.unwrap();
        let rows: i64 = session.query_scalar_one(count, ()).await.unwrap();
        assert_eq!(rows, -1);
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
        let sql = "SELECT n, @@read_only FROM t ORDER BY id";
        let reading = db.reading();
        let mut rows = reading.stream_as::<(i64, bool)>(sql, ()).await.unwrap();
        let mut seen = Vec::new();
        while let Some(row) = rows.try_next().await.unwrap() {
            seen.push(row);
        }
        assert_eq!(seen.len(), 100);
        assert_eq!((seen[0], seen[1]), ((0, true), (1, true)));
        // An error of the replica is the primary's: the text is wrong on both.
        let wrong = reading.query("SELECT nothing FROM t", ()).await;
        assert_eq!(wrong.unwrap_err().code(), Some(1054));
    })
    .await;
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
            let mut writing = std::pin::pin!(db.exec("UPDATE t SET n = n + 1 WHERE id = 2", ()));
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
async fn settings_of_a_replica_are_those_of_the_handle() {
    let pair = Pair::start(&[]).await;
    let db = pair.open().await;
    db.set_default("lock_wait_timeout", 77).await.unwrap();
    let sql = "SELECT @@lock_wait_timeout, @@read_only";
    let seen: (i64, bool) = db.reading().query_as_one(sql, ()).await.unwrap();
    assert_eq!(seen, (77, true));
}
