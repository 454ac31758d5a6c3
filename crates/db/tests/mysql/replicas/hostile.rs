//! Texts, settings and drops that could break the pairing of a question with what it is sent with.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use cenote::{Db, Kind};

use super::{FOREVER, Pair, is_replica, is_used, read, write};

/// The values of all rows, or the error.
async fn outcome(db: &Db, sql: &str) -> String {
    match db.query(sql, ()).await {
        Ok(rows) => {
            let values = |row: &cenote::Row| {
                let values = (0..row.len()).map(|n| format!("{:?}", row.value(n)));
                values.collect::<Vec<_>>()
            };
            format!("{:?}", rows.iter().map(values).collect::<Vec<_>>())
        }
        Err(error) => format!("{:?}", (error.kind(), error.code())),
    }
}

#[tokio::test]
async fn text_of_a_read_has_its_own_result_on_a_replica() {
    let pair = Pair::start(&[]).await;
    let db = pair
        .open_with(|builder| builder.replica_wait(FOREVER).max(1))
        .await;
    let long = format!("SELECT '{}'", "a".repeat(100_000));
    // Whether the replica answers: its errors are left to the primary, and so are texts that may not only read.
    for (sql, answers) in [
        ("SELECT 1;", true),
        ("SELECT 1 ;; ", true),
        ("SELECT 1; -- end", true),
        ("SELECT 1 /**/ ; /**/", true),
        ("SELECT 1 # end", true),
        ("SELECT 1 --\t;", true),
        ("/* a; b */ SELECT 1", true),
        ("SELECT 'a;b', \"?;\", n FROM t WHERE id = 1", true),
        ("SELECT '\\'; SELECT 2'", true),
        ("SELECT * FROM t ORDER BY id", true),
        ("EXPLAIN SELECT 1", true),
        ("VALUES (1), (2)", true),
        ("SELECT 1 / 0", true),
        ("SELECT 1 LIMIT 0", true),
        (&long, true),
        ("SELECT 1 /* open", false),
        ("SELECT 'open", false),
        ("; SELECT 1", false),
        (";", false),
        ("SELECT nothing", false),
        ("SELECT (SELECT n FROM t)", false),
        ("SELECT 1\0", false),
        ("SELECT 1 \\G", false),
        ("DELIMITER //\nSELECT 1//", false),
        ("/*!50000 SELECT 2 */", false),
        ("SELECT 1 /*! ; SELECT 2 */", false),
        ("SELECT 1 INTO OUTFILE '/nowhere/x'", false),
        ("CALL nothing()", false),
    ] {
        let expected = outcome(&pair.at_replica, sql).await;
        let before = db.replicas()[0].reads;
        assert_eq!(outcome(&db.reading(), sql).await, expected, "{sql}");
        assert_eq!(db.replicas()[0].reads - before, u64::from(answers), "{sql}");
        // Neither the connection nor the replica has suffered.
        assert!(is_replica(&db.reading()).await, "{sql}");
    }
}

#[tokio::test]
async fn text_as_long_as_a_packet_may_be_runs_on_the_replica() {
    const LIMIT: usize = 1 << 20;
    let pair = Pair::start(&["max-allowed-packet=1048576"]).await;
    let db = pair
        .open_with(|builder| builder.replica_wait(FOREVER))
        .await;
    // Around the sizes with and without the question.
    for size in (LIMIT - 100)..LIMIT {
        let (head, tail) = ("SELECT '", "'");
        let text = "a".repeat(size - head.len() - tail.len());
        let sql = format!("{head}{text}{tail}");
        let before = db.replicas()[0].reads;
        let seen: String = db.reading().query_scalar_one(&sql, ()).await.unwrap();
        assert!(seen == text, "{size}");
        let answers = size + 16 <= LIMIT;
        assert_eq!(db.replicas()[0].reads - before, u64::from(answers));
        assert!(is_replica(&db.reading()).await, "{size}");
    }
}

#[tokio::test]
async fn number_of_a_sequence_comes_from_the_primary() {
    let pair = Pair::start(&[]).await;
    let make = "CREATE SEQUENCE s CACHE 2";
    pair.at_primary.exec(make, ()).await.unwrap();
    let db = pair.open().await;
    pair.catch_up().await;
    pair.pause().await;
    cenote::scope(async {
        for n in 1..6 {
            // The user may write to the replica, though it is read-only.
            let sql = "SELECT NEXT VALUE FOR s, @@read_only";
            let seen: (i64, bool) = db.reading().query_as_one(sql, ()).await.unwrap();
            assert_eq!(seen, (n, false));
        }
        let sql = "SELECT next_not_cached_value, @@read_only FROM s";
        let seen: (i64, bool) = db.reading().query_as_one(sql, ()).await.unwrap();
        assert_eq!(seen, (7, false));
    })
    .await;
}

#[tokio::test]
async fn replica_that_reads_texts_otherwise_is_refused() {
    let (pair, mode) = (Pair::start(&[]).await, ";sql_mode=ANSI_QUOTES");
    let dsn = pair.primary.dsn() + mode;
    let opened = Db::builder(&dsn).replica(pair.replica.dsn()).open().await;
    let error = opened.unwrap_err();
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.to_string().contains("sql_mode"), "{error}");
    let db = Db::builder(&dsn).replica(pair.replica.dsn() + mode);
    let db = db.open().await.unwrap();
    is_used(&db).await;
    let sql = "SELECT \"n\", @@read_only FROM t WHERE id = 1";
    let seen: (i64, bool) = db.reading().query_as_one(sql, ()).await.unwrap();
    assert_eq!(seen, (0, true));
}

#[tokio::test]
async fn commit_that_ends_its_session_is_a_commit() {
    let pair = Pair::start(&[]).await;
    let db = pair.open().await;
    pair.pause().await;
    cenote::scope(async {
        // The server hangs up instead of telling the position.
        for text in ["COMMIT RELEASE", "ROLLBACK RELEASE"] {
            db.exec("BEGIN", ()).await.unwrap();
            write(&db, 1).await;
            db.exec(text, ()).await.unwrap();
            assert!(!db.in_transaction());
            assert_eq!(read(&db, 1).await, (1, false), "{text}");
        }
    })
    .await;
    cenote::scope(async {
        let release = "SET completion_type = 'RELEASE'";
        db.exec(release, ()).await.unwrap();
        let tx = db.begin().await.unwrap();
        write(&db, 2).await;
        tx.commit().await.unwrap();
        assert!(db.position().unwrap().is_unknown());
    })
    .await;
    let sql = "SELECT n FROM t WHERE id = 2";
    let n: i64 = pair.at_primary.query_scalar_one(sql, ()).await.unwrap();
    assert_eq!(n, 1);
}

#[tokio::test]
async fn replica_without_autocommit_keeps_no_snapshot() {
    let pair = Pair::start(&[]).await;
    let replica = pair.replica.dsn() + ";set.autocommit=0";
    let db = Db::builder(&pair.primary.dsn())
        .replica(replica)
        .replica_wait(FOREVER)
        .max(1);
    let db = db.open().await.unwrap();
    is_used(&db).await;
    cenote::scope(async {
        for n in 1..20 {
            write(&db, 1).await;
            assert_eq!(read(&db, 1).await, (n, true));
            let sql = "SELECT n, @@read_only FROM t WHERE id = 1";
            let seen: (i64, bool) = db.reading().query_as_one(sql, ()).await.unwrap();
            assert_eq!(seen, (n, true));
        }
    })
    .await;
}

#[tokio::test]
async fn question_for_the_position_resets_found_rows() {
    let pair = Pair::start(&[]).await;
    let db = pair.open().await;
    let found = async || {
        let session = db.connection().await.unwrap();
        let some = "SELECT SQL_CALC_FOUND_ROWS id FROM t LIMIT 2";
        session.query(some, ()).await.unwrap();
        let count = "SELECT FOUND_ROWS()";
        let found: i64 = session.query_scalar_one(count, ()).await.unwrap();
        // Warnings stay.
        let twice = "INSERT IGNORE INTO t VALUES (1, 1)";
        session.exec(twice, ()).await.unwrap();
        let warnings = session.query("SHOW WARNINGS", ()).await.unwrap();
        assert_eq!(warnings.len(), 1);
        found
    };
    assert_eq!(found().await, 100);
    assert_eq!(cenote::scope(found()).await, 1);
}

/// Polls a call up to so often, each time that it is woken, and drops it. Returns whether it has ended.
async fn dropped_after<T>(polls: usize, call: impl Future<Output = T>) -> bool {
    let (mut call, mut polled) = (pin!(call), 0);
    poll_fn(|cx| {
        polled += 1;
        let has_ended = call.as_mut().poll(cx).is_ready();
        match has_ended || polled == polls {
            true => Poll::Ready(has_ended),
            false => Poll::Pending,
        }
    })
    .await
}

#[tokio::test]
async fn dropped_call_leaves_no_answer_to_the_next() {
    let pair = Pair::start(&[]).await;
    let db = pair
        .open_with(|builder| builder.replica_wait(FOREVER).max(1))
        .await;
    let in_transaction = async || {
        write(&db, 1).await;
        Ok(())
    };
    let reading = db.reading();
    let mut number = 1000_i64;
    for call in 0..3 {
        let mut polls = 0;
        loop {
            polls += 1;
            number += 1;
            let has_ended = cenote::scope(async {
                let has_ended = match call {
                    0 => dropped_after(polls, db.transaction(in_transaction)).await,
                    1 => dropped_after(polls, reading.query("SELECT 1, 2", ())).await,
                    _ => dropped_after(polls, write(&db, 1)).await,
                };
                let sql = format!("SELECT {number}");
                for db in [&db, &reading] {
                    let seen: i64 = db.query_scalar_one(&sql, ()).await.unwrap();
                    assert_eq!(seen, number);
                }
                let sql = "SELECT n FROM t WHERE id = 1";
                let own: i64 = db.query_scalar_one(sql, ()).await.unwrap();
                let seen: i64 = reading.query_scalar_one(sql, ()).await.unwrap();
                assert!(seen >= own, "{seen} < {own}");
                has_ended
            })
            .await;
            if has_ended {
                break;
            }
        }
    }
}
