//! What code under test sees in a sandbox, and what is left of it.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cenote::{Db, Error, Kind};
use cenote_testkit::poll::drop_after;

use crate::EmptyDatabase;
use crate::{add, names, on_every_database, with_table};

on_every_database! {
    everything_is_rolled_back_at_the_end,
    rollback_of_the_code_undoes_only_its_own,
    failed_statement_leaves_the_sandbox_usable,
    after_commit_runs_as_in_production,
    panicking_test_leaves_nothing,
    dropped_sandbox_leaves_nothing_and_closes_clones,
    spawned_task_needs_permission,
    statements_streams_pins_and_connections_work,
    sandboxes_do_not_see_each_other,
    hooks_and_defaults_of_connections_are_applied,
    hook_with_a_commit_commits_nothing,
    failed_batch_is_undone_as_a_whole,
    batch_dropped_at_every_poll_is_there_or_not,
    statements_of_a_batch_fail_as_in_production,
}

/// Adds names in every style in which a program can write.
async fn add_in_every_style(db: &Db) -> cenote::Result<()> {
    add(db, "alone").await?;
    db.transaction(async || add(db, "closure").await).await?;
    cenote::scope(async {
        let tx = db.begin().await?;
        add(db, "guard").await?;
        tx.commit().await?;
        db.exec("BEGIN", ()).await?;
        add(db, "text").await?;
        assert!(db.in_transaction());
        db.exec("COMMIT", ()).await?;
        assert!(!db.in_transaction());
        Ok::<_, Error>(())
    })
    .await?;
    let mut connection = db.connection().await?;
    let tx = connection.begin().await?;
    tx.exec("INSERT INTO item VALUES (?)", ("connection",))
        .await?;
    tx.commit().await?;
    drop(connection);
    db.outside()
        .exec("INSERT INTO item VALUES ('outside')", ())
        .await?;
    db.exec_many("INSERT INTO item VALUES (?)", [("many 1",), ("many 2",)])
        .await?;
    Ok(())
}

const ALL: [&str; 9] = [
    "alone",
    "closure",
    "connection",
    "first",
    "guard",
    "many 1",
    "many 2",
    "outside",
    "text",
];

async fn everything_is_rolled_back_at_the_end(database: EmptyDatabase) {
    let outside = with_table(&database).await;
    let sandbox = database.builder().sandbox().await.unwrap();
    add_in_every_style(sandbox.db()).await.unwrap();
    assert_eq!(names(sandbox.db()).await, ALL);
    sandbox.finish().await.unwrap();
    assert_eq!(names(&outside).await, ["first"]);
}

async fn rollback_of_the_code_undoes_only_its_own(database: EmptyDatabase) {
    with_table(&database).await;
    let sandbox = database.builder().sandbox().await.unwrap();
    let db = sandbox.db();
    add(db, "before").await.unwrap();
    let failed: cenote::Result<()> = db
        .transaction(async || {
            add(db, "undone").await?;
            let inner = db.transaction(async || add(db, "inner").await).await;
            inner.unwrap();
            Err(Error::other("no"))
        })
        .await;
    assert_eq!(failed.unwrap_err().kind(), Kind::Other);
    cenote::scope(async {
        let tx = db.begin().await.unwrap();
        add(db, "guard").await.unwrap();
        tx.rollback().await.unwrap();
        let tx = db.begin().await.unwrap();
        add(db, "forgotten").await.unwrap();
        drop(tx);
        db.exec("BEGIN", ()).await.unwrap();
        add(db, "text").await.unwrap();
        db.exec("ROLLBACK", ()).await.unwrap();
    })
    .await;
    assert_eq!(names(db).await, ["before", "first"]);
    let committed = db.transaction(async || {
        add(db, "kept").await?;
        let inner = db.transaction(async || {
            add(db, "savepoint").await?;
            Err::<(), _>(Error::other("no"))
        });
        assert!(inner.await.is_err());
        Ok(())
    });
    committed.await.unwrap();
    assert_eq!(names(db).await, ["before", "first", "kept"]);
    sandbox.finish().await.unwrap();
}

async fn failed_statement_leaves_the_sandbox_usable(database: EmptyDatabase) {
    let outside = with_table(&database).await;
    let sandbox = database.builder().sandbox().await.unwrap();
    let db = sandbox.db();
    add(db, "before").await.unwrap();
    assert!(add(db, "first").await.unwrap_err().is_unique_violation());
    assert!(db.query("SELECT nothing FROM nowhere", ()).await.is_err());
    assert!(db.prepare("SELECT nothing FROM nowhere").await.is_err());
    let stream = db.stream("SELECT nothing FROM nowhere", ()).await;
    assert!(stream.is_err());
    let many = db.exec_many("INSERT INTO item VALUES (?)", [("first",)]);
    assert!(many.await.unwrap_err().is_unique_violation());
    let tx = db.transaction(async || {
        add(db, "undone").await?;
        add(db, "first").await
    });
    assert!(tx.await.unwrap_err().is_unique_violation());
    add(db, "after").await.unwrap();
    assert_eq!(names(db).await, ["after", "before", "first"]);
    sandbox.finish().await.unwrap();
    assert_eq!(names(&outside).await, ["first"]);
}

async fn after_commit_runs_as_in_production(database: EmptyDatabase) {
    with_table(&database).await;
    let sandbox = database.builder().sandbox().await.unwrap();
    let db = sandbox.db();
    let calls = Arc::new(AtomicUsize::new(0));
    let count = || {
        let calls = Arc::clone(&calls);
        move || {
            calls.fetch_add(1, Ordering::SeqCst);
        }
    };
    let done = db.transaction(async || {
        db.after_commit(count());
        let inner = db.transaction(async || {
            db.after_commit(count());
            add(db, "a").await
        });
        inner.await?;
        assert_eq!(calls.load(Ordering::SeqCst), 0);
        Ok(())
    });
    done.await.unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    let undone = db.transaction(async || {
        db.after_commit(count());
        add(db, "first").await
    });
    assert!(undone.await.is_err());
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    sandbox.finish().await.unwrap();
}

/// Waits until a sandbox that nobody waits for has let go of its rows.
async fn assert_nothing_is_left(outside: &Db) {
    // A lock of the sandbox would make this wait.
    add(outside, "alone").await.unwrap();
    assert_eq!(names(outside).await, ["alone", "first"]);
}

async fn panicking_test_leaves_nothing(database: EmptyDatabase) {
    let outside = with_table(&database).await;
    let builder = database.builder();
    let test = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let sandbox = builder.sandbox().await.unwrap();
            let db = sandbox.db();
            add(db, "alone").await.unwrap();
            let body = db.transaction(async || {
                add(db, "inside").await?;
                assert_eq!(1, 2, "the test fails");
                Ok(())
            });
            body.await.unwrap();
        });
    });
    assert!(test.join().is_err());
    assert_nothing_is_left(&outside).await;
}

async fn dropped_sandbox_leaves_nothing_and_closes_clones(database: EmptyDatabase) {
    let outside = with_table(&database).await;
    let sandbox = database.builder().sandbox().await.unwrap();
    let db = sandbox.db().clone();
    add(&db, "alone").await.unwrap();
    drop(sandbox);
    assert_nothing_is_left(&outside).await;
    assert_eq!(add(&db, "late").await.unwrap_err().kind(), Kind::Closed);
    assert_eq!(names(&outside).await, ["alone", "first"]);
}

#[expect(
    clippy::disallowed_methods,
    reason = "the test is about tasks that Cenote does not spawn"
)]
async fn spawned_task_needs_permission(database: EmptyDatabase) {
    let outside = with_table(&database).await;
    let sandbox = database.builder().sandbox().await.unwrap();
    let spawn = || {
        let db = sandbox.db().clone();
        tokio::spawn(async move {
            add(&db, "spawned").await?;
            db.transaction(async || add(&db, "spawned 2").await).await
        })
    };
    let refused = spawn().await.unwrap().unwrap_err();
    assert_eq!(refused.kind(), Kind::Unsupported);
    assert!(refused.to_string().contains("allow_spawned"), "{refused}");
    let coroutine = {
        let db = sandbox.db().clone();
        cenote::spawn(async move { db.begin().await.map(drop) })
    };
    let refused = coroutine.await.unwrap();
    // BEGIN of a lazy driver is sent with the first statement, which is refused.
    if let Err(refused) = refused {
        assert_eq!(refused.kind(), Kind::Unsupported);
    }
    assert_eq!(names(sandbox.db()).await, ["first"]);
    sandbox.allow_spawned();
    spawn().await.unwrap().unwrap();
    assert_eq!(names(sandbox.db()).await, ["first", "spawned", "spawned 2"]);
    sandbox.finish().await.unwrap();
    assert_eq!(names(&outside).await, ["first"]);
}

async fn statements_streams_pins_and_connections_work(database: EmptyDatabase) {
    with_table(&database).await;
    let sandbox = database.builder().sandbox().await.unwrap();
    let db = sandbox.db();
    add(db, "second").await.unwrap();
    let sql = "SELECT name FROM item ORDER BY name";
    cenote::scope(async {
        let statement = db.prepare("INSERT INTO item VALUES (?)").await.unwrap();
        statement.exec(("prepared",)).await.unwrap();
        assert!(statement.exec(("first",)).await.is_err());
        statement.exec(("prepared 2",)).await.unwrap();
        drop(statement);
        let pinned = db.pin().await.unwrap();
        add(db, "pinned").await.unwrap();
        drop(pinned);
        let mut stream = db.stream(sql, ()).await.unwrap();
        let first = stream.try_next().await.unwrap().unwrap();
        assert_eq!(first.get::<String>(0).unwrap(), "first");
        // Ended before its last row.
        drop(stream);
        let mut count = 0;
        let mut stream = db.stream(sql, ()).await.unwrap();
        while stream.try_next().await.unwrap().is_some() {
            count += 1;
        }
        assert_eq!(count, 5);
        let in_transaction = db.transaction(async || {
            let mut stream = db.stream(sql, ()).await?;
            while stream.try_next().await?.is_some() {}
            drop(stream);
            add(db, "streamed").await
        });
        in_transaction.await.unwrap();
    })
    .await;
    assert_eq!(names(db).await.len(), 6);
    let script = "INSERT INTO item VALUES ('script'); DELETE FROM item WHERE name = 'first'";
    db.exec(script, ()).await.unwrap();
    assert_eq!(names(db).await.len(), 6);
    sandbox.finish().await.unwrap();
}

async fn sandboxes_do_not_see_each_other(database: EmptyDatabase) {
    let outside = with_table(&database).await;
    // SQLite has one writer at a time: there the sandboxes take turns.
    let mut tests = tokio::task::JoinSet::new();
    for n in 0..8 {
        let builder = database.builder();
        tests.spawn(async move {
            let sandbox = builder.sandbox().await.unwrap();
            add(sandbox.db(), &format!("test {n}")).await.unwrap();
            assert_eq!(names(sandbox.db()).await.len(), 2);
            sandbox.finish().await.unwrap();
        });
    }
    tests.join_all().await;
    assert_eq!(names(&outside).await, ["first"]);
}

async fn hooks_and_defaults_of_connections_are_applied(database: EmptyDatabase) {
    with_table(&database).await;
    // Each test has its executor on a thread of its own.
    thread_local!(static HOOKED: Cell<usize> = const { Cell::new(0) });
    let hooked = || HOOKED.get();
    let builder = database
        .builder()
        .on_connect(async |conn: &mut cenote::PooledConnection| {
            HOOKED.set(HOOKED.get() + 1);
            conn.exec("SELECT 1").await
        });
    let sandbox = builder.sandbox().await.unwrap();
    assert_eq!(hooked(), 1);
    add(sandbox.db(), "hooked").await.unwrap();
    // A script may change the session, so the hook runs again; the rows stay.
    let script = "INSERT INTO item VALUES ('a'); INSERT INTO item VALUES ('b')";
    sandbox.db().exec(script, ()).await.unwrap();
    assert_eq!(names(sandbox.db()).await, ["a", "b", "first", "hooked"]);
    assert_eq!(hooked(), 2);
    sandbox.finish().await.unwrap();
}

async fn hook_with_a_commit_commits_nothing(database: EmptyDatabase) {
    let outside = with_table(&database).await;
    let builder = database
        .builder()
        .on_connect(async |conn: &mut cenote::PooledConnection| {
            conn.exec("BEGIN").await?;
            conn.exec("SELECT 1").await?;
            conn.exec("COMMIT").await
        });
    let sandbox = builder.sandbox().await.unwrap();
    // A script may change the session, so the hook runs again, inside the sandbox's transaction.
    let script = "INSERT INTO item VALUES ('a'); INSERT INTO item VALUES ('b')";
    sandbox.db().exec(script, ()).await.unwrap();
    assert_eq!(names(sandbox.db()).await, ["a", "b", "first"]);
    sandbox.finish().await.unwrap();
    assert_eq!(names(&outside).await, ["first"]);

    // What cannot be translated ends the sandbox instead of committing it.
    let builder = database
        .builder()
        .on_connect(async |conn: &mut cenote::PooledConnection| {
            conn.exec("BEGIN; SELECT 1; COMMIT").await
        });
    let sandbox = builder.sandbox().await.unwrap();
    sandbox.db().exec(script, ()).await.unwrap();
    let over = add(sandbox.db(), "c").await.unwrap_err();
    assert_eq!(over.kind(), Kind::TransactionLost, "{over}");
    assert!(over.to_string().contains("on_connect"), "{over}");
    drop(sandbox);
    assert_nothing_is_left(&outside).await;
}

async fn failed_batch_is_undone_as_a_whole(database: EmptyDatabase) {
    with_table(&database).await;
    let sandbox = database.builder().sandbox().await.unwrap();
    let db = sandbox.db();
    let insert = "INSERT INTO item VALUES (?)";
    // Few sets, many, and more than one driver call takes.
    for size in [3, 500, 9_000] {
        let sets = || (0..size).map(|n| (format!("set {}", n % (size - 1)),));
        let failed = db.exec_many(insert, sets()).await.unwrap_err();
        assert!(failed.is_unique_violation(), "{failed}");
        assert_eq!(failed.set_index(), Some(size - 1));
        assert_eq!(names(db).await, ["first"], "{size} sets");
        let failed = db.query_many(insert, sets()).await.unwrap_err();
        assert_eq!(failed.set_index(), Some(size - 1));
        assert_eq!(names(db).await, ["first"], "{size} sets");
    }
    let done = db.exec_many(insert, ["a", "b"]).await.unwrap();
    assert_eq!(done.rows_affected, 2);
    assert_eq!(names(db).await, ["a", "b", "first"]);
    sandbox.finish().await.unwrap();
}

async fn batch_dropped_at_every_poll_is_there_or_not(database: EmptyDatabase) {
    let outside = with_table(&database).await;
    let insert = "INSERT INTO item VALUES (?)";
    let mut polls = 0;
    loop {
        let sandbox = database.builder().sandbox().await.unwrap();
        let db = sandbox.db();
        let sets = (0..100).map(|n| (format!("set {n}"),));
        let done = drop_after(polls, db.exec_many(insert, sets)).await;
        let found = db
            .query_scalar::<String>("SELECT name FROM item", ())
            .await
            .map(|names| names.len());
        match found {
            Ok(found) => assert!([1, 101].contains(&found), "{found} after {polls} polls"),
            Err(over) => assert_eq!(db.driver_name(), "mysql", "{over}"),
        }
        drop(sandbox);
        if let Some(done) = done {
            done.unwrap();
            break;
        }
        polls += 1;
    }
    assert_nothing_is_left(&outside).await;
}

async fn statements_of_a_batch_fail_as_in_production(database: EmptyDatabase) {
    let outside = with_table(&database).await;
    let sandbox = database.builder().sandbox().await.unwrap();
    let db = sandbox.db();
    let insert = "INSERT INTO item VALUES (?)";
    let run = async |db: &Db| {
        let mut batch = db.batch();
        for name in ["second", "first", "third"] {
            batch.exec(insert, (name,));
        }
        let results = batch.run().await?.into_outcomes();
        assert!(results[0].is_ok());
        assert!(results[1].as_ref().unwrap_err().is_unique_violation());
        results.into_iter().last().unwrap().map(drop)
    };
    let inside = db.transaction(async || {
        let last = run(db).await;
        assert_eq!(last.unwrap_err().kind(), Kind::NotRun);
        Err::<(), _>(Error::other("undone"))
    });
    inside.await.unwrap_err();
    assert_eq!(names(db).await, ["first"]);
    run(db).await.unwrap();
    assert_eq!(names(db).await, ["first", "second", "third"]);
    sandbox.finish().await.unwrap();
    assert_eq!(names(&outside).await, ["first"]);
}
