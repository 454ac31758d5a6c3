//! What a sandbox refuses, and how.

use std::time::Duration;

use cenote::{Isolation, Kind, TransactionOptions};

use crate::EmptyDatabase;
use crate::{add, names, on_every_database, with_table};

on_every_database! {
    transaction_inside_itself_is_a_deadlock_at_once,
    task_that_waits_for_a_guard_names_its_holder,
    stricter_isolation_is_refused_by_name,
    read_only_transaction_refuses_writes,
    schema_changes_are_rolled_back_or_refused,
    session_changes_are_reset_or_refused,
    control_that_leaves_the_sandbox_is_refused,
    second_connection_is_refused_after_a_loss,
}

async fn transaction_inside_itself_is_a_deadlock_at_once(database: EmptyDatabase) {
    with_table(&database).await;
    let sandbox = database.builder().sandbox().await.unwrap();
    let db = sandbox.db();
    let body = db.transaction(async || {
        add(db, "inside").await?;
        db.outside().query("SELECT 1", ()).await?;
        Ok(())
    });
    assert_eq!(body.await.unwrap_err().kind(), Kind::SelfDeadlock);
    assert_eq!(names(db).await, ["first"]);
    sandbox.finish().await.unwrap();
}

async fn task_that_waits_for_a_guard_names_its_holder(database: EmptyDatabase) {
    with_table(&database).await;
    let builder = database.builder().acquire_timeout(Duration::from_secs(1));
    let sandbox = builder.sandbox().await.unwrap();
    let db = sandbox.db();
    cenote::scope(async {
        let tx = db.begin().await.unwrap();
        add(db, "guard").await.unwrap();
        let other = cenote::scope(async { add(db, "other").await }).await;
        let error = other.unwrap_err();
        assert_eq!(error.kind(), Kind::Timeout);
        assert_eq!(error.holders().len(), 1, "{error}");
        tx.commit().await.unwrap();
    })
    .await;
    add(db, "other").await.unwrap();
    assert_eq!(names(db).await, ["first", "guard", "other"]);
    sandbox.finish().await.unwrap();
}

async fn stricter_isolation_is_refused_by_name(database: EmptyDatabase) {
    with_table(&database).await;
    let sandbox = database.builder().sandbox().await.unwrap();
    let db = sandbox.db();
    let serializable = || TransactionOptions::new().isolation(Isolation::Serializable);
    let body = serializable().on(db).run(async || add(db, "a").await).await;
    match db.driver_name() {
        // SQLite's transactions are serializable anyway.
        "sqlite" => body.unwrap(),
        _ => {
            let error = body.unwrap_err();
            assert_eq!(error.kind(), Kind::Unsupported);
            assert!(
                error
                    .to_string()
                    .contains("sandbox_at(Isolation::Serializable)")
            );
            assert_eq!(names(db).await, ["first"]);
        }
    }
    sandbox.finish().await.unwrap();

    let sandbox = database.builder().sandbox_at(Isolation::Serializable).await;
    let sandbox = sandbox.unwrap();
    let db = sandbox.db();
    let body = serializable().on(db).run(async || add(db, "a").await);
    body.await.unwrap();
    assert_eq!(names(db).await, ["a", "first"]);
    sandbox.finish().await.unwrap();
}

async fn read_only_transaction_refuses_writes(database: EmptyDatabase) {
    with_table(&database).await;
    let sandbox = database.builder().sandbox().await.unwrap();
    let db = sandbox.db();
    let read_only = || TransactionOptions::new().read_only();
    let body = read_only().on(db).run(async || {
        assert_eq!(names(db).await, ["first"]);
        add(db, "a").await
    });
    assert_eq!(body.await.unwrap_err().kind(), Kind::Database);
    let body = read_only().on(db).run(async || Ok(names(db).await));
    assert_eq!(body.await.unwrap(), ["first"]);
    // The transaction around it still writes.
    add(db, "a").await.unwrap();
    assert_eq!(names(db).await, ["a", "first"]);
    sandbox.finish().await.unwrap();
}

async fn schema_changes_are_rolled_back_or_refused(database: EmptyDatabase) {
    let outside = with_table(&database).await;
    let sandbox = database.builder().sandbox().await.unwrap();
    let db = sandbox.db();
    add(db, "a").await.unwrap();
    let created = db.exec("CREATE TABLE extra (n INT)", ()).await;
    match db.driver_name() {
        "mysql" => {
            let error = created.unwrap_err();
            assert_eq!(error.kind(), Kind::Unsupported);
            assert!(error.to_string().contains("commit"), "{error}");
        }
        _ => {
            created.unwrap();
            db.exec("INSERT INTO extra VALUES (1)", ()).await.unwrap();
        }
    }
    assert_eq!(names(db).await, ["a", "first"]);
    sandbox.finish().await.unwrap();
    assert_eq!(names(&outside).await, ["first"]);
    assert!(outside.query("SELECT * FROM extra", ()).await.is_err());
}

async fn session_changes_are_reset_or_refused(database: EmptyDatabase) {
    with_table(&database).await;
    let sandbox = database.builder().sandbox().await.unwrap();
    let db = sandbox.db();
    let (set, show) = match db.driver_name() {
        "pgsql" => ("SET application_name = 'mine'", "SHOW application_name"),
        "sqlite" => ("PRAGMA cache_size = 77", "PRAGMA cache_size"),
        _ => ("SET @mine = 7", "SELECT @mine"),
    };
    let before = db.query_one(show, ()).await.unwrap();
    let changed = cenote::scope(async {
        add(db, "a").await?;
        db.exec(set, ()).await?;
        db.query_one(show, ()).await
    });
    let changed = changed.await;
    match db.driver_name() {
        "pgsql" => assert_eq!(changed.unwrap().get::<String>(0).unwrap(), "mine"),
        _ => assert_eq!(changed.unwrap_err().kind(), Kind::Unsupported),
    }
    let after = db.query_one(show, ()).await.unwrap();
    assert_eq!(format!("{before:?}"), format!("{after:?}"));
    // The reset has not ended the transaction.
    assert_eq!(names(db).await, ["a", "first"]);
    sandbox.finish().await.unwrap();
}

async fn control_that_leaves_the_sandbox_is_refused(database: EmptyDatabase) {
    let outside = with_table(&database).await;
    let sandbox = database.builder().sandbox().await.unwrap();
    let db = sandbox.db();
    add(db, "a").await.unwrap();
    cenote::scope(async {
        for sql in [
            "INSERT INTO item VALUES ('b'); COMMIT",
            "COMMIT AND CHAIN",
            "COMMIT /* now */",
        ] {
            let error = db.exec(sql, ()).await.unwrap_err();
            assert_eq!(error.kind(), Kind::Unsupported, "{sql}: {error}");
        }
        assert!(db.exec("SAVEPOINT mine", ()).await.is_err());
        // An end without a transaction ends nothing.
        let _ = db.exec("COMMIT", ()).await;
        let _ = db.exec("ROLLBACK", ()).await;
    })
    .await;
    assert_eq!(names(db).await, ["a", "first"]);
    sandbox.finish().await.unwrap();
    assert_eq!(names(&outside).await, ["first"]);
}

async fn second_connection_is_refused_after_a_loss(database: EmptyDatabase) {
    let outside = with_table(&database).await;
    let sandbox = database.builder().sandbox().await.unwrap();
    let db = sandbox.db();
    add(db, "a").await.unwrap();
    match db.driver_name() {
        "sqlite" => {
            // SQLite itself rolls everything back here.
            let conflict = "INSERT OR ROLLBACK INTO item VALUES ('first')";
            assert!(db.exec(conflict, ()).await.is_err());
        }
        "pgsql" => {
            let pid: i64 = db
                .query_as_one("SELECT pg_backend_pid()::bigint", ())
                .await
                .unwrap();
            let kill = "SELECT pg_terminate_backend($1::int, 10000)";
            outside.query(kill, (pid,)).await.unwrap();
        }
        _ => {
            let id: i64 = db.query_as_one("SELECT CONNECTION_ID()", ()).await.unwrap();
            outside.exec(&format!("KILL {id}"), ()).await.unwrap();
        }
    }
    // The first call may only notice the loss.
    let _ = db.query("SELECT 1", ()).await;
    for _ in 0..2 {
        let error = add(db, "b").await.unwrap_err();
        let says = format!("{error} {:?}", std::error::Error::source(&error));
        assert!(says.contains("the sandbox is over"), "{says}");
    }
    drop(sandbox);
    assert_eq!(names(&outside).await, ["first"]);
}
