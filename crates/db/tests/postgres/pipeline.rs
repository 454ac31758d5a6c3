//! Batches on PostgreSQL: one round trip, each statement's own answer, and what a lost or dropped batch leaves behind.

use std::time::Duration;

use cenote::driver::Request;
use cenote::postgres::PostgresConnection;
use cenote::{Db, Kind, Result};
use cenote_testkit::poll::{Hand, drop_after};
use cenote_testkit::proxy::{CutAfter, Direction, Network};

use crate::servers::client::{Client, own_schema, value};
use crate::servers::network::{dsn_through, proxy_with};
use crate::servers::{dsn, is_running, kill, own_tables, session_id, soon};

/// A handle of one connection, with a table `t (id int PRIMARY KEY, n int)` of its own.
async fn handle() -> Db {
    let db = own_tables(|builder| builder.max(1)).await;
    db.exec("CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL)", ())
        .await
        .unwrap();
    db
}

/// The number of round trips of the only connection.
async fn round_trips(db: &Db) -> u64 {
    let mut lease = db.pool().unwrap().acquire().await.unwrap();
    let connection = lease.driver().as_any();
    let connection: &mut PostgresConnection = connection.downcast_mut().unwrap();
    connection.round_trips()
}

const ADD: &str = "INSERT INTO t VALUES (?, ?)";
const SUM: &str = "SELECT coalesce(sum(n), 0)::int8 FROM t";
const ECHO: &str = "SELECT ?::int8";

async fn ids(db: &Db) -> Vec<i32> {
    let ids = db.query_scalar("SELECT id FROM t ORDER BY id", ());
    ids.await.unwrap()
}

/// Sends twenty numbers, and checks that each statement answers its own.
async fn echo_twenty(db: &Db) -> Result<()> {
    let mut batch = db.batch();
    let entries: Vec<_> = (0..20_i64)
        .map(|n| batch.query_scalar_one::<i64>(ECHO, (n,)))
        .collect();
    let mut results = batch.run().await?;
    for (n, entry) in (0..).zip(entries) {
        assert_eq!(results.take(entry)?, n);
    }
    Ok(())
}

#[tokio::test]
async fn a_batch_of_twenty_is_one_round_trip() {
    let db = handle().await;
    // New, and then cached.
    for _ in 0..3 {
        let before = round_trips(&db).await;
        echo_twenty(&db).await.unwrap();
        assert_eq!(round_trips(&db).await, before + 1);
    }
    // BEGIN with the batch, COMMIT.
    let before = round_trips(&db).await;
    db.transaction(async || {
        let mut batch = db.batch();
        for id in 0..20 {
            batch.exec(ADD, (id, 1));
        }
        let sum = batch.query_scalar_one::<i64>(SUM, ());
        let mut results = batch.run().await?;
        assert_eq!(results.take(sum)?, 20);
        results.check()
    })
    .await
    .unwrap();
    assert_eq!(round_trips(&db).await, before + 2);
    assert_eq!(ids(&db).await.len(), 20);
}

#[tokio::test]
async fn a_batch_on_a_slow_line_takes_the_time_of_one_call() {
    let proxy = proxy_with(Network::ideal()).await;
    let db = Db::builder(&dsn_through(&proxy))
        .max(1)
        .open()
        .await
        .unwrap();
    echo_twenty(&db).await.unwrap();
    let delay = Duration::from_millis(100);
    proxy.set(Network {
        delay,
        ..Network::ideal()
    });
    let begun = tokio::time::Instant::now();
    echo_twenty(&db).await.unwrap();
    let took = begun.elapsed();
    assert!(took >= 2 * delay && took < 10 * delay, "{took:?}");
}

#[tokio::test]
async fn each_statement_keeps_its_own_error_types_and_warnings() {
    let db = handle().await;
    db.exec("CREATE TYPE pair AS (a int, b text)", ())
        .await
        .unwrap();
    for round in 0..3 {
        let mut batch = db.batch();
        let zero = batch.query("SELECT 1 / ?::int", (0,));
        let warns = batch.exec(
            "DO $$ BEGIN RAISE WARNING 'first'; RAISE WARNING 'second'; END $$",
            (),
        );
        let array = batch.query_scalar_one::<Vec<i32>>("SELECT ARRAY[1, 2]::int[]", ());
        let pair = batch.query_scalar_one::<String>("SELECT (1, 'x')::pair::text", ());
        let unknown = batch.query("SELECT (1, 'x')::pair", ());
        let wrong = batch.query("SELEC 1", ());
        let exact = batch.query_scalar_one::<String>("SELECT 1.10::numeric::text", ());
        let copied = batch.exec("COPY t TO STDOUT", ());
        let last = batch.query_scalar_one::<i64>(ECHO, (round,));
        let mut results = batch.run().await.unwrap();
        assert_eq!(results.take(zero).unwrap_err().sql_state(), Some("22012"));
        assert_eq!(results.take(warns).unwrap().warnings, 2);
        assert_eq!(results.take(array).unwrap(), [1, 2]);
        assert_eq!(results.take(pair).unwrap(), "(1,x)");
        assert_eq!(results.take(unknown).unwrap().len(), 1);
        assert_eq!(results.take(wrong).unwrap_err().sql_state(), Some("42601"));
        assert_eq!(results.take(exact).unwrap(), "1.10");
        assert_eq!(results.take(copied).unwrap_err().kind(), Kind::Unsupported);
        assert_eq!(results.take(last).unwrap(), round);
    }
}

#[tokio::test]
async fn deferred_error_belongs_to_its_own_statement() {
    let db = handle().await;
    db.exec(
        "CREATE TABLE d (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)",
        (),
    )
    .await
    .unwrap();
    let mut batch = db.batch();
    let first = batch.exec("INSERT INTO d VALUES (1)", ());
    let twice = batch.exec("INSERT INTO d VALUES (1)", ());
    let last = batch.exec("INSERT INTO d VALUES (2)", ());
    let mut results = batch.run().await.unwrap();
    results.take(first).unwrap();
    assert!(results.take(twice).unwrap_err().is_unique_violation());
    results.take(last).unwrap();
}

#[tokio::test]
async fn definitions_take_effect_for_the_statements_behind() {
    let db = handle().await;
    for round in 0..3 {
        let mut batch = db.batch();
        batch.exec("DROP TABLE IF EXISTS made", ());
        batch.exec("CREATE TABLE made (n int)", ());
        batch.exec("INSERT INTO made VALUES (?)", (round,));
        let column = batch.query("SELECT * FROM made", ());
        batch.exec("ALTER TABLE made ADD COLUMN m int DEFAULT 7", ());
        let columns = batch.query("SELECT * FROM made", ());
        let mut results = batch.run().await.unwrap();
        assert_eq!(results.take(column).unwrap()[0].len(), 1);
        assert_eq!(results.take(columns).unwrap()[0].len(), 2);
        results.check().unwrap();
    }
}

#[tokio::test]
async fn stale_statement_of_a_batch_is_prepared_again() {
    let db = handle().await;
    let other = Db::builder(&dsn()).max(1).open().await.unwrap();
    let table: String = db
        .query_scalar_one("SELECT current_schema() || '.t'", ())
        .await
        .unwrap();
    let all = "SELECT * FROM t";
    for round in 0..3_i32 {
        db.exec(ADD, (round, 1)).await.unwrap();
        db.query(all, ()).await.unwrap();
        let alter = format!("ALTER TABLE {table} ADD COLUMN c{round} int DEFAULT 7");
        other.exec(&alter, ()).await.unwrap();
        let mut batch = db.batch();
        let stale = batch.query(all, ());
        let number = batch.query_scalar_one::<i64>(ECHO, (5,));
        let again = batch.query(all, ());
        let mut results = batch.run().await.unwrap();
        let columns = 3 + usize::try_from(round).unwrap();
        assert_eq!(results.take(stale).unwrap()[0].len(), columns);
        assert_eq!(results.take(number).unwrap(), 5);
        assert_eq!(results.take(again).unwrap()[0].len(), columns);
    }
    // A statement that writes is sent when the one before it is answered, and runs once.
    other
        .exec(&format!("ALTER TABLE {table} DROP COLUMN c0"), ())
        .await
        .unwrap();
    for _ in 0..2 {
        let mut batch = db.batch();
        let stale = batch.query(all, ());
        let update = batch.exec("UPDATE t SET n = n + 1", ());
        let mut results = batch.run().await.unwrap();
        assert!(results.take(stale).is_ok());
        assert_eq!(results.take(update).unwrap().rows_affected, 3);
    }
    let sum: i64 = db.query_scalar_one(SUM, ()).await.unwrap();
    assert_eq!(sum, 9, "each update ran once");
}

#[tokio::test]
async fn a_batch_larger_than_the_cache_keeps_it_consistent() {
    for cache in [0, 1, 3, 16] {
        let dsn = own_schema(&dsn()).await;
        let db = Db::builder(&dsn)
            .max(1)
            .statement_cache(cache)
            .open()
            .await
            .unwrap();
        db.exec("CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL)", ())
            .await
            .unwrap();
        let texts: Vec<_> = (0..8).map(|n| format!("SELECT {n} + ?::int8")).collect();
        for round in 0..4_i64 {
            for in_transaction in [false, true] {
                let run = async || {
                    let mut batch = db.batch();
                    let mut entries = Vec::new();
                    for (n, text) in (0..).zip(&texts).chain((0..).zip(&texts)) {
                        entries.push((n, batch.query_scalar_one::<i64>(text, (round,))));
                    }
                    // Skipped statements close and prepare nothing.
                    batch.query("SELECT 1 / 0", ());
                    for text in texts.iter().rev() {
                        batch.query(text, (round,));
                    }
                    let mut results = batch.run().await?;
                    for (n, entry) in entries {
                        assert_eq!(results.take(entry)?, n + round);
                    }
                    let rest = results.into_outcomes();
                    assert_eq!(rest[0].as_ref().unwrap_err().sql_state(), Some("22012"));
                    let ran = rest[1..].iter().all(|it| it.is_ok() != in_transaction);
                    assert!(ran, "{rest:?}");
                    Ok(())
                };
                match in_transaction {
                    true => assert!(db.transaction(run).await.is_err()),
                    false => run().await.unwrap(),
                }
            }
        }
        let sql = "SELECT count(*) FROM pg_catalog.pg_prepared_statements";
        db.query("SELECT 2", ()).await.unwrap();
        let kept: i64 = db
            .with(cenote::CallOptions::new().no_cache())
            .query_scalar_one(sql, ())
            .await
            .unwrap();
        assert!(kept <= i64::try_from(cache).unwrap(), "{kept} of {cache}");
    }
}

#[tokio::test]
async fn large_requests_and_answers_do_not_block_each_other() {
    let db = handle().await;
    let text = "x".repeat(1_000_000);
    let mut batch = db.batch();
    let entries: Vec<_> = (0..8)
        .map(|_| batch.query_scalar_one::<String>("SELECT ?::text || ?::text", (&text, &text)))
        .collect();
    let mut results = soon("a large batch", batch.run()).await.unwrap();
    for entry in entries {
        assert_eq!(results.take(entry).unwrap().len(), 2 * text.len());
    }
}

/// Runs inserts of two rows and a sum, and returns which rows were acknowledged, refused as not run, or are unknown.
async fn add_two(db: &Db, first: i32, in_transaction: bool) -> [Option<bool>; 2] {
    let run = async || {
        let mut batch = db.batch();
        let entries = [batch.exec(ADD, (first, 1)), batch.exec(ADD, (first + 1, 1))];
        batch.query_scalar_one::<i64>(SUM, ());
        let results = batch.run().await;
        let mut results = match results {
            Ok(results) => results,
            Err(error) => return Ok([Err(error.clone()), Err(error)]),
        };
        let results = entries.map(|entry| results.take(entry));
        match in_transaction && results.iter().any(Result::is_err) {
            true => Err(results.into_iter().find_map(Result::err).unwrap()),
            false => Ok(results),
        }
    };
    let results = match in_transaction {
        true => match soon("a batch on a line that is cut", db.transaction(run)).await {
            Ok(results) => results,
            Err(error) => [Err(error.clone()), Err(error)],
        },
        false => soon("a batch on a line that is cut", run()).await.unwrap(),
    };
    results.map(|result| match result {
        Ok(_) => Some(true),
        Err(error) if matches!(error.kind(), Kind::NotRun | Kind::Connect) => Some(false),
        Err(error) if error.kind() == Kind::ConnectionLost && !in_transaction => None,
        Err(error) if error.kind() == Kind::OutcomeUnknown => None,
        Err(error) => {
            assert!(error.is_connection_lost(), "{error:?}");
            Some(false)
        }
    })
}

#[tokio::test]
async fn a_cut_in_a_batch_repeats_and_hides_nothing() {
    let proxy = proxy_with(Network::ideal()).await;
    let admin = handle().await;
    let schema: String = admin
        .query_scalar_one("SELECT current_schema()", ())
        .await
        .unwrap();
    let dsn = format!("{};search_path={schema}", dsn_through(&proxy));
    let open = async || {
        Db::builder(&dsn)
            .max(1)
            .cleanup_timeout(Duration::from_secs(1))
            .open()
            .await
            .unwrap()
    };
    let mut next = 0;
    let mut seen = [0; 3];
    for in_transaction in [false, true] {
        // How many bytes an undisturbed batch takes, beyond the login.
        proxy.heal();
        let db = open().await;
        db.ping().await.unwrap();
        let before = proxy.traffic();
        add_two(&db, next, in_transaction).await;
        let after = proxy.traffic();
        db.close().await.unwrap();
        next += 2;
        for direction in [Direction::ToServer, Direction::ToClient] {
            let (from, to) = match direction {
                Direction::ToServer => (before.to_server, after.to_server),
                Direction::ToClient => (before.to_client, after.to_client),
            };
            // Every seventh byte meets each message somewhere, and takes seconds instead of minutes.
            for cut in (0..=to - from).step_by(7) {
                proxy.heal();
                let db = open().await;
                let before = proxy.traffic();
                db.ping().await.unwrap();
                let after = proxy.traffic();
                let gone = match direction {
                    Direction::ToServer => after.to_server - before.to_server,
                    Direction::ToClient => after.to_client - before.to_client,
                };
                proxy.set(Network {
                    cut_after: Some(CutAfter {
                        direction,
                        bytes: gone + cut,
                    }),
                    ..Network::ideal()
                });
                let acknowledged = add_two(&db, next, in_transaction).await;
                proxy.heal();
                // A lost connection may be closed already.
                let _ = db.close().await;
                // Waits for the end of whatever still runs.
                admin
                    .exec("LOCK TABLE t IN ACCESS EXCLUSIVE MODE; SELECT 1", ())
                    .await
                    .unwrap();
                let rows = ids(&admin).await;
                for (id, acknowledged) in (next..).zip(acknowledged) {
                    let is_there = rows.contains(&id);
                    seen[acknowledged.map_or(2, usize::from)] += 1;
                    assert!(
                        acknowledged.is_none_or(|acknowledged| acknowledged == is_there),
                        "{direction:?} {cut}, {id}: {acknowledged:?}, {is_there}"
                    );
                }
                next += 2;
            }
        }
    }
    println!(
        "{} not run, {} acknowledged, {} unknown",
        seen[0], seen[1], seen[2]
    );
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
}

#[tokio::test]
async fn a_batch_on_a_session_killed_while_idle_runs_once() {
    let db = handle().await;
    let admin = Db::open(&dsn()).await.unwrap();
    for id in 0..3 {
        let pid = session_id(&db).await;
        kill(&admin, pid).await;
        let mut batch = db.batch();
        batch.exec(ADD, (id, 1));
        let sum = batch.query_scalar_one::<i64>(SUM, ());
        let mut results = batch.run().await.unwrap();
        assert_eq!(results.take(sum).unwrap(), i64::from(id) + 1);
        results.check().unwrap();
    }
}

#[tokio::test]
async fn statements_behind_a_lost_one_are_told_apart() {
    let db = handle().await;
    let mut batch = db.batch();
    let added = batch.exec(ADD, (1, 1));
    let kills = batch.query("SELECT pg_terminate_backend(pg_backend_pid())", ());
    let behind = batch.exec(ADD, (2, 1));
    let mut results = batch.run().await.unwrap();
    assert_eq!(results.take(added).unwrap().rows_affected, 1);
    assert!(results.take(kills).unwrap_err().is_connection_lost());
    // It was not sent yet: it may write, and what was before it was not answered.
    let error = results.take(behind).unwrap_err();
    assert_eq!(error.kind(), Kind::NotRun);
    assert!(error.message().contains("connection was lost"), "{error}");
    assert_eq!(ids(&db).await, [1], "the next call has another connection");
}

#[tokio::test]
async fn batch_dropped_at_every_poll_leaves_nothing_to_the_next() {
    let db = handle().await;
    for polls in 0.. {
        let number = i64::try_from(polls).unwrap();
        let text = format!("SELECT {polls} + ?::int8");
        let mut batch = db.batch();
        batch.query(ECHO, (1_000_000,));
        batch.query(&text, (0,));
        batch.query("SELECT pg_sleep(0.01)", ());
        batch.query("SELECT 1 / 0", ());
        let run = drop_after(polls, batch.run()).await;
        let answered: i64 = db.query_scalar_one(ECHO, (number,)).await.unwrap();
        assert_eq!(answered, number);
        for _ in 0..2 {
            let answered: i64 = db.query_scalar_one(&text, (7,)).await.unwrap();
            assert_eq!(answered, number + 7);
        }
        if run.is_some() {
            return;
        }
    }
}

#[tokio::test]
async fn endless_batch_that_is_dropped_is_cancelled() {
    let db = handle().await;
    let admin = Db::open(&dsn()).await.unwrap();
    let pid = session_id(&db).await;
    let mut batch = db.batch();
    batch.query("SELECT pg_sleep(3600)", ());
    batch.exec(ADD, (1, 1));
    batch.query("SELECT pg_sleep(3600)", ());
    let mut run = Hand::new(batch.run());
    assert!(run.poll().is_pending(), "it has no end");
    is_running(&admin, pid, "SELECT pg_sleep").await;
    drop(run);
    let echo = db.query_scalar_one::<i64>(ECHO, (7,));
    assert_eq!(soon("the next call", echo).await.unwrap(), 7);
    assert_eq!(session_id(&db).await, pid, "on the same connection");
}

#[tokio::test]
async fn batch_dropped_in_a_transaction_dooms_it() {
    let db = handle().await;
    let done = db.transaction(async || {
        let mut batch = db.batch();
        batch.exec(ADD, (1, 1));
        batch.query("SELECT pg_sleep(3600)", ());
        assert!(drop_after(1, batch.run()).await.is_none(), "it has no end");
        Ok(())
    });
    assert_eq!(done.await.unwrap_err().kind(), Kind::Doomed);
    assert_eq!(ids(&db).await, [0; 0]);
}

#[tokio::test]
async fn time_limit_counts_for_the_whole_batch() {
    let db = handle().await;
    let limited = db.with(cenote::CallOptions::new().timeout(Duration::from_millis(50)));
    let mut batch = limited.batch();
    batch.query("SELECT pg_sleep(3600)", ());
    let error = soon("a limited batch", batch.run()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::StatementTimeout, "{error}");
    echo_twenty(&db).await.unwrap();
}

#[tokio::test]
async fn session_changed_by_a_batch_reaches_no_other_task() {
    let db = handle().await;
    let sets = format!(
        "CREATE FUNCTION {}() RETURNS void LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM set_config('TimeZone', 'Asia/Tokyo', false); END $$",
        "changes_zone"
    );
    db.exec(&sets, ()).await.unwrap();
    let zone = "SELECT current_setting('TimeZone')";
    let before: String = db.query_scalar_one(zone, ()).await.unwrap();
    let mut batch = db.batch();
    batch.query("SELECT changes_zone()", ());
    let inside = batch.query_scalar_one::<String>(zone, ());
    let mut results = batch.run().await.unwrap();
    assert_eq!(results.take(inside).unwrap(), "Asia/Tokyo");
    let after: String = db.query_scalar_one(zone, ()).await.unwrap();
    assert_eq!(after, before);
}

#[tokio::test]
async fn misread_texts_behind_a_changed_setting_are_errors() {
    let db = handle().await;
    db.exec(
        "CREATE FUNCTION misreads() RETURNS void LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM set_config('standard_conforming_strings', 'off', false); END $$",
        (),
    )
    .await
    .unwrap();
    let mut batch = db.batch();
    batch.query("SELECT misreads()", ());
    let behind = batch.query("SELECT '\\', 1 --', 2", ());
    let mut results = batch.run().await.unwrap();
    assert!(results.take(behind).is_err());
    echo_twenty(&db).await.unwrap();
}

#[tokio::test]
async fn settling_a_pipeline_waits_for_every_answer() {
    let mut client = Client::in_own_schema().await;
    for polls in 0..6 {
        let params: Vec<_> = (0..10).map(|n| [value(n)]).collect();
        let requests: Vec<_> = params
            .iter()
            .map(|params| Request::new("SELECT $1::int8", params))
            .collect();
        let run = client.connection.run_pipeline(&requests, false);
        if drop_after(polls, run).await.is_none() {
            client.connection.settle().await.unwrap();
        }
        assert_eq!(client.get::<i32>("SELECT 7").await, 7);
    }
}

#[tokio::test]
async fn batch_that_begins_a_transaction_fails_as_its_begin_does() {
    let db = handle().await;
    let admin = Db::open(&dsn()).await.unwrap();
    // The first statement cannot be sent: nothing has begun.
    db.transaction(async || {
        let mut batch = db.batch();
        batch.exec("COPY t TO STDOUT", ());
        batch.exec(ADD, (7, 1));
        assert!(batch.run().await.is_err(), "nothing was sent");
        db.exec(ADD, (1, 1)).await.map(drop)
    })
    .await
    .unwrap();
    // The first statement fails: the transaction has begun, and has failed.
    let failed = db.transaction(async || {
        let mut batch = db.batch();
        batch.query("SELECT 1 / 0", ());
        let results = batch.run().await?;
        assert_eq!(results.check().unwrap_err().sql_state(), Some("22012"));
        Ok(())
    });
    assert_eq!(failed.await.unwrap_err().kind(), Kind::RolledBack);
    // An array without a cast needs its type first, and native values, too.
    let one = db.transaction(async || {
        let mut batch = db.batch();
        let array = batch
            .query_scalar_one::<i64>("SELECT count(*) FROM t WHERE id = ANY(?)", (vec![1, 2],));
        batch.run().await?.take(array)
    });
    assert_eq!(one.await.unwrap(), 1);
    // The session was ended before the transaction began.
    let pid = session_id(&db).await;
    kill(&admin, pid).await;
    db.transaction(async || {
        let mut batch = db.batch();
        batch.exec(ADD, (2, 1));
        batch.run().await?.check()
    })
    .await
    .unwrap();
    assert_eq!(ids(&db).await, [1, 2]);
}
