//! Writes that are committed together have the same result as in sequence, beside other writers, with dropped
//! calls, and for all tables and settings.

use std::future::Future;
use std::task::Poll;
use std::time::Duration;

use cenote::driver::{Connection, Outcome, Value};
use cenote::{Result, Violation};

use crate::support::test_database::*;
use crate::support::*;

const FAMILY: &str = "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER UNIQUE);
                      CREATE TABLE child (of INTEGER REFERENCES t (n));
                      INSERT INTO t (n) VALUES (1)";
const CHILD: &str = "INSERT INTO child VALUES (?1)";

#[tokio::test]
async fn handle_that_checks_foreign_keys_checks_them_in_every_batch() {
    let database = TestDatabase::with(FAMILY).await;
    let mut lax = database.open("&foreign_keys=off").await;
    let mut strict = database.open("").await;
    write(&mut lax, (INSERT, 2)).await.unwrap();
    write(&mut strict, (CHILD, 1)).await.unwrap();
    let answers = queued(&database, &mut [lax, strict], &[(INSERT, 3), (CHILD, 77)]).await;
    let error = answers[1].as_ref().expect_err("there is no parent 77");
    assert_eq!(error.violation(), Some(Violation::ForeignKey));
}

#[tokio::test]
async fn a_handle_that_can_only_read_never_writes() {
    let database = TestDatabase::with(TABLE).await;
    let mut writer = database.open("").await;
    let mut reader = database.open("&mode=ro").await;
    write(&mut writer, (INSERT, 1)).await.unwrap();
    write(&mut reader, (INSERT, 2)).await.unwrap_err();
    // It does not even queue.
    begin(&mut writer).await;
    write(&mut reader, (INSERT, 3)).await.unwrap_err();
}

#[tokio::test]
async fn batched_write_never_lands_in_another_handles_temporary_table() {
    let database = TestDatabase::with("CREATE TABLE t (n); CREATE TABLE other (n)").await;
    let insert = "INSERT INTO t (n) VALUES (?1)";
    let other = "INSERT INTO other VALUES (?1)";
    let mut shadowing = database.open("").await;
    let mut plain = database.open("").await;
    // As an `on_connect` would do it.
    exec(&mut shadowing, "CREATE TEMP TABLE t (n)").await;
    write(&mut shadowing, (other, 1)).await.unwrap();
    write(&mut plain, (insert, 1)).await.unwrap();
    let answers = queued(
        &database,
        &mut [shadowing, plain],
        &[(other, 2), (insert, 2)],
    )
    .await;
    assert_eq!(answers[1].as_ref().unwrap().rows_affected, 1);
    let mut outside = database.open("").await;
    let count: i64 = one(&mut outside, "SELECT count(*) FROM t").await;
    assert_eq!(count, 2, "an acknowledged write is lost");
}

#[tokio::test]
async fn a_late_foreign_key_is_found_also_where_like_minds_the_case() {
    let schema = "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER UNIQUE);
                  CREATE TABLE child (
                      of INTEGER REFERENCES t (n) DEFERRABLE INITIALLY DEFERRED);
                  INSERT INTO t (n) VALUES (1)";
    let database = TestDatabase::with(schema).await;
    let options = "&pragma.case_sensitive_like=1";
    let mut first = database.open(options).await;
    let mut second = database.open(options).await;
    write(&mut first, (CHILD, 1)).await.unwrap();
    write(&mut second, (INSERT, 2)).await.unwrap();
    let answers = queued(&database, &mut [first, second], &[(CHILD, 7), (INSERT, 7)]).await;
    assert!(answers[0].is_err(), "it had no parent when it was written");
}

#[tokio::test]
async fn keys_deferred_by_a_setting_are_checked_for_each_write() {
    let database = TestDatabase::with(FAMILY).await;
    let mut first = database.open("").await;
    let mut second = database.open("").await;
    write(&mut first, (CHILD, 1)).await.unwrap();
    write(&mut second, (INSERT, 2)).await.unwrap();
    first
        .set("defer_foreign_keys", &Value::Int(1))
        .await
        .unwrap();
    let answers = queued(&database, &mut [first, second], &[(CHILD, 7), (INSERT, 7)]).await;
    assert!(answers[0].is_err(), "it had no parent when it was written");
}

#[tokio::test]
async fn a_batching_writer_compiles_nothing_again() {
    let database = TestDatabase::with("CREATE TABLE t (n)").await;
    let mut writers = [database.open("").await, database.open("").await];
    for db in &mut writers {
        write(db, (INSERT, 1)).await.unwrap();
        write(db, (INSERT, 1)).await.unwrap();
    }
    let before = sqlite(&mut writers[0]).compiled_statements();
    for _ in 0..10 {
        for answer in queued(&database, &mut writers, &[(INSERT, 2), (INSERT, 3)]).await {
            answer.unwrap();
        }
    }
    assert_eq!(sqlite(&mut writers[0]).compiled_statements(), before);
}

/// Drops a future after this number of polls.
async fn cut<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = Box::pin(future);
    let mut left = polls;
    std::future::poll_fn(move |cx| {
        if let Poll::Ready(done) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(done));
        }
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_any_drop_a_success_is_committed_and_a_failure_is_not() {
    for options in ["synchronous=off", "journal_mode=delete&synchronous=off"] {
        let unknown = stress(options).await;
        assert!(unknown > 0, "nothing was dropped in the middle");
    }
}

/// Many write at once, and many of them are dropped. How many nobody knows of.
async fn stress(options: &str) -> usize {
    let schema = "CREATE TABLE t (
                      id INTEGER PRIMARY KEY, n INTEGER UNIQUE CHECK (n % 97 != 0))";
    let database = TestDatabase::new();
    let db = cenote::Db::builder(&format!("{}?{options}", database.file.dsn()))
        .max(12)
        .open()
        .await
        .unwrap();
    db.exec(schema, ()).await.unwrap();
    let insert = "INSERT INTO t (n) VALUES (?)";
    let mut tasks = Vec::new();
    for task in 0..60_i64 {
        let db = db.clone();
        tasks.push(cenote::spawn(async move {
            let mut fates = Vec::new();
            let mut seed = u64::try_from(task).unwrap() * 7919 + 1;
            for round in 0..40_i64 {
                let n = task * 1000 + round;
                seed = seed
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let polls = usize::try_from(seed >> 33).unwrap() % 40;
                let done = match (seed >> 20) % 5 {
                    0 => cut(db.exec(insert, (n,)), polls).await,
                    1 => Some(db.transaction(async || db.exec(insert, (n,)).await).await),
                    2 => {
                        let both = db.transaction(async || db.exec(insert, (n,)).await);
                        cut(both, polls * 3).await
                    }
                    _ => Some(db.exec(insert, (n,)).await),
                };
                fates.push((n, done.map(|done| done.map(|o| o.last_insert_id))));
            }
            fates
        }));
    }
    let mut unknown = 0;
    for task in tasks {
        for (n, fate) in task.await.unwrap() {
            let there: Vec<i64> = db
                .query_as("SELECT id FROM t WHERE n = ?", (n,))
                .await
                .unwrap();
            match fate {
                None => unknown += 1,
                Some(Ok(id)) => assert_eq!(id, there.first().copied(), "{n}"),
                Some(Err(error)) => {
                    assert!(n % 97 == 0, "{n}: {error}");
                    assert!(there.is_empty(), "{n}: {error}");
                }
            }
        }
    }
    db.close_and_drain(Duration::from_secs(20)).await.unwrap();
    unknown
}

/// All kinds of rules, tables and triggers.
const ZOO: &str = "
    CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, n INTEGER UNIQUE, m INTEGER DEFAULT 0,
                    twice INTEGER GENERATED ALWAYS AS (n * 2) STORED, CHECK (n <> 13));
    CREATE TABLE log (id INTEGER PRIMARY KEY, what TEXT, n INTEGER);
    CREATE TABLE child (id INTEGER PRIMARY KEY, of INTEGER REFERENCES t (n) ON DELETE CASCADE);
    CREATE TABLE keyed (k INTEGER PRIMARY KEY, n INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE strict (n INTEGER NOT NULL) STRICT;
    CREATE TABLE guarded (n INTEGER);
    CREATE TRIGGER fails BEFORE INSERT ON guarded WHEN new.n % 5 = 0
        BEGIN SELECT raise(FAIL, 'five'); END;
    CREATE TRIGGER rolls BEFORE INSERT ON guarded WHEN new.n % 7 = 0
        BEGIN INSERT INTO log (what, n) VALUES ('seven', new.n);
              SELECT raise(ROLLBACK, 'seven'); END;
    CREATE TRIGGER aborts AFTER INSERT ON guarded WHEN new.n % 3 = 0
        BEGIN INSERT INTO log (what, n) VALUES ('three', new.n);
              SELECT raise(ABORT, 'three'); END;
    CREATE TRIGGER ignores BEFORE INSERT ON guarded WHEN new.n % 11 = 0
        BEGIN SELECT raise(IGNORE); END;
    CREATE TRIGGER logs AFTER INSERT ON t
        BEGIN INSERT INTO log (what, n) VALUES ('t', new.n); END;
    CREATE TRIGGER logs_loss AFTER DELETE ON t
        BEGIN INSERT INTO log (what, n) VALUES ('gone', old.n); END;
    CREATE VIEW v AS SELECT n FROM t;
    CREATE TRIGGER into_v INSTEAD OF INSERT ON v
        BEGIN INSERT INTO keyed VALUES (new.n, 1); INSERT INTO strict VALUES (new.n); END;
    CREATE VIRTUAL TABLE words USING fts5 (w);
    CREATE VIRTUAL TABLE old_words USING fts4 (w);
    CREATE VIRTUAL TABLE box USING rtree (id, low, high);
    INSERT INTO t (n) VALUES (1), (2), (3);";

const WRITES: &[&str] = &[
    "INSERT INTO t (n) VALUES (?1)",
    "INSERT OR IGNORE INTO t (n) VALUES (?1)",
    "INSERT OR REPLACE INTO t (n) VALUES (?1)",
    "INSERT OR FAIL INTO t (n) VALUES (?1 + 20), (?1), (?1 + 30)",
    "INSERT OR ROLLBACK INTO t (n) VALUES (?1 + 50), (?1)",
    "INSERT INTO t (n) VALUES (?1) ON CONFLICT (n) DO UPDATE SET m = m + 1 RETURNING id, n, m",
    "UPDATE t SET n = n + ?1 WHERE n % 2 = 0 RETURNING n",
    "UPDATE OR FAIL t SET n = ?1",
    "UPDATE OR REPLACE t SET n = ?1 WHERE n < ?1",
    "DELETE FROM t WHERE n = ?1 RETURNING id, twice",
    "INSERT INTO child (of) VALUES (?1)",
    "INSERT INTO child (of) SELECT n FROM t WHERE n < ?1",
    "REPLACE INTO keyed VALUES (?1, ?1)",
    "INSERT INTO keyed VALUES (?1 + 1, 1), (?1, NULL)",
    "INSERT INTO strict VALUES (?1)",
    "INSERT INTO strict SELECT CASE WHEN ?1 % 2 THEN 'text' ELSE 1 END",
    "INSERT INTO guarded VALUES (?1 + 1), (?1), (?1 + 2)",
    "INSERT INTO v VALUES (?1)",
    "INSERT INTO words (rowid, w) VALUES (?1, 'one two')",
    "INSERT INTO old_words (docid, w) VALUES (?1 + 3, 'a'), (?1, 'b')",
    "DELETE FROM words WHERE words MATCH 'two' AND rowid < ?1",
    "INSERT OR REPLACE INTO box VALUES (?1, 1, 2)",
    "WITH w(i) AS (VALUES (?1), (?1 + 1)) INSERT INTO log (what, n) SELECT 'with', i FROM w",
    "INSERT INTO t (id, n) VALUES ('no number', ?1)",
];

/// What is in all tables.
async fn contents(db: &mut Box<dyn Connection>) -> Vec<String> {
    let mut all = Vec::new();
    for table in [
        "t",
        "log",
        "child",
        "keyed",
        "strict",
        "guarded",
        "words",
        "old_words",
        "box",
        "sqlite_sequence",
    ] {
        let rows = exec(db, &format!("SELECT * FROM {table} ORDER BY 1")).await;
        for row in rows.rows.unwrap().into_rows() {
            all.push(format!("{table} {row:?}"));
        }
    }
    all
}

fn told(answer: &Result<Outcome>) -> String {
    match answer {
        Ok(outcome) => {
            let rows = outcome.rows.clone().map(|rows| {
                let rows = rows.into_rows().map(|row| format!("{row:?}"));
                rows.collect::<Vec<_>>()
            });
            format!(
                "{} {:?} {rows:?}",
                outcome.rows_affected, outcome.last_insert_id
            )
        }
        Err(error) => format!("{:?} {}", error.code(), error.message()),
    }
}

#[tokio::test]
async fn batched_writes_have_the_same_result_as_one_after_another() {
    let (joined, apart) = (TestDatabase::with(ZOO).await, TestDatabase::with(ZOO).await);
    let mut seed = 4_u64;
    let mut random = |below: usize| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap() % below
    };
    let (mut one, mut other) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        one.push(joined.open("&synchronous=off").await);
        other.push(apart.open("&synchronous=off").await);
    }
    let mut together = 0;
    for round in 0..200 {
        let mut writes: Vec<Write> = Vec::new();
        for n in 0..one.len() {
            // First everybody gets to know all of them.
            let which = match round * one.len() {
                before if round < WRITES.len() => (before / one.len() + n) % WRITES.len(),
                _ => random(WRITES.len()),
            };
            writes.push((WRITES[which], i64::try_from(random(40)).unwrap()));
        }
        let before: i64 = one_value(&mut one[0]).await;
        let answers = queued(&joined, &mut one, &writes).await;
        together += i64::from(one_value(&mut one[0]).await - before > 3);
        for ((answer, db), sql) in answers.iter().zip(&mut other).zip(&writes) {
            let alone = write(db, *sql).await;
            assert_eq!(
                told(answer),
                told(&alone),
                "round {round}: {sql:?} of {writes:?}"
            );
        }
        assert_eq!(
            contents(&mut one[0]).await,
            contents(&mut other[0]).await,
            "round {round}: {writes:?}"
        );
    }
    assert!(together > 20, "hardly any was joined: {together}");
}

async fn one_value(db: &mut Box<dyn Connection>) -> i64 {
    one(db, "SELECT total_changes()").await
}

const UPSERT: &str = "INSERT INTO t (n) VALUES (?1) ON CONFLICT (n) DO UPDATE SET n = n";

#[tokio::test]
async fn inserting_upsert_returns_its_id_whatever_was_inserted_before() {
    let database = TestDatabase::with(TABLE).await;
    let mut db = database.open("").await;
    exec(&mut db, "CREATE TABLE other (n)").await;
    exec(&mut db, "INSERT INTO other VALUES (1)").await;
    let done = write(&mut db, (UPSERT, 5)).await.unwrap();
    assert_eq!(done.last_insert_id, Some(1));
}

#[tokio::test]
async fn inserting_upsert_returns_its_id_after_a_failed_batch() {
    let database = TestDatabase::with(TABLE).await;
    let mut first = database.open("").await;
    let mut second = database.open("").await;
    let rollback = "INSERT OR ROLLBACK INTO t (n) VALUES (?1)";
    write(&mut first, (UPSERT, 1)).await.unwrap();
    write(&mut second, (rollback, 2)).await.unwrap();
    let writes = [(UPSERT, 3), (rollback, 1)];
    let answers = queued(&database, &mut [first, second], &writes).await;
    assert!(answers[1].is_err());
    assert_eq!(answers[0].as_ref().unwrap().last_insert_id, Some(3));
}

#[tokio::test]
async fn what_a_handle_has_set_holds_for_what_is_written_after_it() {
    let database = TestDatabase::with(FAMILY).await;
    let dsn = format!("{}?busy_timeout=1d&foreign_keys=off", database.file.dsn());
    let db = cenote::Db::builder(&dsn).max(4).open().await.unwrap();
    let mut holder = database.open("").await;
    // Two connections that know both statements.
    for _ in 0..3 {
        begin(&mut holder).await;
        let mut one = Box::pin(db.exec("INSERT INTO child VALUES (?)", (1,)));
        let mut two = Box::pin(db.exec("INSERT INTO child VALUES (?)", (1,)));
        until_queued(&mut holder, &mut one, &mut two).await;
        holder.commit().await.unwrap();
        one.await.unwrap();
        two.await.unwrap();
    }
    begin(&mut holder).await;
    let mut one = Box::pin(db.exec("INSERT INTO child VALUES (?)", (1,)));
    while sqlite(&mut holder).waiting_writers() < 1 {
        assert_pending(&mut one);
        tokio::task::yield_now().await;
    }
    db.set_default("foreign_keys", 1).await.unwrap();
    let mut two = Box::pin(db.exec("INSERT INTO child VALUES (?)", (77,)));
    until_queued(&mut holder, &mut one, &mut two).await;
    holder.commit().await.unwrap();
    one.await.unwrap();
    let error = two.await.expect_err("there is no parent 77");
    assert!(error.is_foreign_key_violation());
}

#[tokio::test]
async fn full_disk_fails_each_writer_and_loses_nothing_acknowledged() {
    let database = TestDatabase::with("CREATE TABLE t (n, b); CREATE TABLE u (n)").await;
    let blob = "INSERT INTO t VALUES (?1, zeroblob(?1 * 1000))";
    let small = "INSERT INTO u VALUES (?1)";
    let limit = "&pragma.max_page_count=30";
    let mut writers = vec![
        database.open(limit).await,
        database.open(limit).await,
        database.open(limit).await,
    ];
    write(&mut writers[0], (small, 1)).await.unwrap();
    write(&mut writers[1], (blob, 1)).await.unwrap();
    write(&mut writers[2], (small, 1)).await.unwrap();
    let answers = queued(
        &database,
        &mut writers,
        &[(small, 2), (blob, 500), (small, 3)],
    )
    .await;
    assert!(answers[0].is_ok() && answers[2].is_ok());
    let error = answers[1].as_ref().unwrap_err();
    assert_eq!(error.code(), Some(13), "{error}");
    let mut outside = database.open("").await;
    let numbers = exec(&mut outside, "SELECT n FROM u ORDER BY n").await;
    assert_eq!(column::<i64>(numbers.rows.unwrap()), [1, 1, 2, 3]);
    assert_eq!(one_of(&mut outside).await, 1);
}

#[tokio::test]
async fn without_a_journal_nothing_that_needs_an_undo_is_tried() {
    // What does not fit into the cache is in the file before the commit.
    let options = "&journal_mode=off&cache_size=1";
    let database = TestDatabase::new();
    let mut holder = database.open(options).await;
    exec(&mut holder, "CREATE TABLE t (id INTEGER PRIMARY KEY, n)").await;
    exec(&mut holder, "CREATE INDEX by_n ON t (n)").await;
    exec(&mut holder, "CREATE TABLE gone (n)").await;
    let big = "INSERT INTO t (n) VALUES (zeroblob(?1 * 1000))";
    let gone = "INSERT INTO gone VALUES (?1)";
    let (mut first, mut second) = (database.open(options).await, database.open(options).await);
    write(&mut first, (big, 1)).await.unwrap();
    write(&mut second, (gone, 2)).await.unwrap();
    exec(&mut holder, "DROP TABLE gone").await;
    let writes = [(big, 2000), (gone, 6)];
    let answers = queued_behind(&mut holder, &mut [first, second], &writes).await;
    answers[0].as_ref().unwrap();
    answers[1].as_ref().unwrap_err();
    let sound: String = one(&mut holder, "PRAGMA integrity_check").await;
    assert_eq!(sound, "ok");
    assert_eq!(one_of(&mut holder).await, 2);
}
