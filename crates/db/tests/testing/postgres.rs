//! What only PostgreSQL has.

use cenote::{Isolation, Kind};

use crate::EmptyDatabase;
use crate::{add, names, with_table};

#[tokio::test]
async fn deferred_constraints_are_checked_at_each_commit() {
    let empty = EmptyDatabase::postgres().await;
    let outside = with_table(&empty).await;
    let sql = "CREATE TABLE part (
        item varchar(40) REFERENCES item DEFERRABLE INITIALLY DEFERRED,
        other varchar(40) REFERENCES item DEFERRABLE INITIALLY IMMEDIATE
    )";
    outside.exec(sql, ()).await.unwrap();
    let sandbox = empty.builder().sandbox().await.unwrap();
    let db = sandbox.db();
    for _ in 0..2 {
        let too_late = db.transaction(async || {
            db.exec("INSERT INTO part (item) VALUES ('none')", ())
                .await?;
            Ok(())
        });
        assert!(too_late.await.unwrap_err().is_foreign_key_violation());
        let alone = db.exec("INSERT INTO part (item) VALUES ('none')", ());
        assert!(alone.await.unwrap_err().is_foreign_key_violation());
        // Still deferred, and the other one is not.
        let not_deferred = db.transaction(async || {
            db.exec("INSERT INTO part (other) VALUES ('none')", ())
                .await?;
            Err::<(), _>(cenote::Error::other("too late"))
        });
        assert!(not_deferred.await.unwrap_err().is_foreign_key_violation());
    }
    let in_time = db.transaction(async || {
        db.exec("INSERT INTO part (item) VALUES ('late')", ())
            .await?;
        add(db, "late").await
    });
    in_time.await.unwrap();
    assert_eq!(names(db).await, ["first", "late"]);
    sandbox.finish().await.unwrap();
}

#[tokio::test]
async fn constraints_deferred_by_the_code_are_checked() {
    let empty = EmptyDatabase::postgres().await;
    let outside = with_table(&empty).await;
    let sql = "CREATE TABLE part (item varchar(40) REFERENCES item DEFERRABLE INITIALLY IMMEDIATE)";
    outside.exec(sql, ()).await.unwrap();
    let sandbox = empty.builder().sandbox().await.unwrap();
    let db = sandbox.db();
    let insert = "INSERT INTO part VALUES ('late')";
    let too_late = db.transaction(async || {
        db.exec("SET CONSTRAINTS ALL DEFERRED", ()).await?;
        db.exec(insert, ()).await?;
        Ok(())
    });
    assert!(too_late.await.unwrap_err().is_foreign_key_violation());
    let in_time = db.transaction(async || {
        db.exec("SET CONSTRAINTS ALL DEFERRED", ()).await?;
        db.exec(insert, ()).await?;
        add(db, "late").await
    });
    in_time.await.unwrap();
    // The commit has ended the deferral.
    let not_deferred = db.transaction(async || {
        db.exec("INSERT INTO part VALUES ('none')", ()).await?;
        Err::<(), _>(cenote::Error::other("too late"))
    });
    assert!(not_deferred.await.unwrap_err().is_foreign_key_violation());
    sandbox.finish().await.unwrap();
}

#[tokio::test]
async fn deferred_constraint_can_be_dropped() {
    let empty = EmptyDatabase::postgres().await;
    let outside = with_table(&empty).await;
    let sql = "CREATE TABLE part (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)";
    outside.exec(sql, ()).await.unwrap();
    let sandbox = empty.builder().sandbox().await.unwrap();
    sandbox.db().exec("DROP TABLE part", ()).await.unwrap();
    add(sandbox.db(), "a").await.unwrap();
    sandbox.finish().await.unwrap();
    outside.query("SELECT * FROM part", ()).await.unwrap();
}

/// Other tests create and drop deferred constraints all the time.
#[tokio::test]
async fn constraints_that_others_drop_are_no_error() {
    let empty = EmptyDatabase::postgres().await;
    let outside = with_table(&empty).await;
    let kept = "CREATE TABLE kept (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)";
    outside.exec(kept, ()).await.unwrap();
    let busy = async {
        for _ in 0..100 {
            let script =
                "CREATE TABLE part (n int UNIQUE DEFERRABLE INITIALLY DEFERRED); DROP TABLE part";
            for sql in script.split("; ") {
                outside.exec(sql, ()).await.unwrap();
            }
        }
    };
    let tests = async {
        for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
            let sandbox = empty.builder().sandbox_at(isolation).await.unwrap();
            let db = sandbox.db();
            for n in 0..100 {
                add(db, &format!("{isolation:?} {n}")).await.unwrap();
                // Still deferred.
                let twice = db.transaction(async || {
                    db.exec("INSERT INTO kept VALUES (1)", ()).await?;
                    db.exec("INSERT INTO kept VALUES (1)", ()).await?;
                    db.exec("DELETE FROM kept", ()).await?;
                    Ok(())
                });
                twice.await.unwrap();
            }
            sandbox.finish().await.unwrap();
        }
    };
    tokio::join!(busy, tests);
}

/// A role without rights on a schema must not name its constraints.
#[tokio::test]
async fn deferred_constraints_of_hidden_schemas_are_no_error() {
    let empty = EmptyDatabase::postgres().await;
    let outside = with_table(&empty).await;
    let sql = "SELECT current_schema()::text";
    let schema: String = outside.query_scalar_one(sql, ()).await.unwrap();
    let (hidden, role) = (format!("{schema}_hidden"), format!("{schema}_role"));
    let script = format!(
        "CREATE SCHEMA {hidden};
         CREATE TABLE {hidden}.part (n int UNIQUE DEFERRABLE INITIALLY DEFERRED);
         CREATE ROLE {role};
         GRANT USAGE ON SCHEMA {schema} TO {role};
         GRANT ALL ON item TO {role}"
    );
    outside.exec(&script, ()).await.unwrap();
    let sandbox = empty.builder().sandbox().await.unwrap();
    let db = sandbox.db();
    let added = cenote::scope(async {
        db.exec(&format!("SET ROLE {role}"), ()).await?;
        add(db, "a").await
    });
    let added = added.await;
    sandbox.finish().await.unwrap();
    let script = format!("DROP SCHEMA {hidden} CASCADE; DROP OWNED BY {role}; DROP ROLE {role}");
    outside.exec(&script, ()).await.unwrap();
    added.unwrap();
}

#[tokio::test]
async fn copy_and_listen_are_refused_in_a_sandbox() {
    let empty = EmptyDatabase::postgres().await;
    let outside = with_table(&empty).await;
    let sandbox = empty.builder().sandbox().await.unwrap();
    let db = sandbox.db();
    let refused = [
        db.copy_in("COPY item FROM STDIN").await.map(drop),
        db.copy_in_rows("item", &["name"], [("a",)]).await.map(drop),
        db.copy_out("COPY item TO STDOUT").await.map(drop),
        db.listen(["news"]).await.map(drop),
    ];
    for refused in refused {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported, "{error}");
        assert!(error.to_string().contains("sandbox"), "{error}");
    }
    add(db, "b").await.unwrap();
    assert_eq!(names(db).await, ["b", "first"]);
    sandbox.finish().await.unwrap();
    assert_eq!(names(&outside).await, ["first"]);
}

#[tokio::test]
async fn local_settings_outlast_a_commit_in_a_sandbox() {
    let empty = EmptyDatabase::postgres().await;
    with_table(&empty).await;
    let sandbox = empty.builder().sandbox().await.unwrap();
    let db = sandbox.db();
    let setting = async || {
        let sql = "SELECT current_setting('shop.tenant', true)";
        db.query_scalar_one::<Option<String>>(sql, ())
            .await
            .unwrap()
            .unwrap_or_default()
    };
    let set = "SELECT set_config('shop.tenant', '7', true)";
    let rolled_back = db.transaction(async || {
        db.query(set, ()).await?;
        Err::<(), _>(cenote::Error::other("on purpose"))
    });
    rolled_back.await.unwrap_err();
    assert_eq!(setting().await, "");
    let committed = db.transaction(async || db.query(set, ()).await);
    committed.await.unwrap();
    assert_eq!(setting().await, "7");
    sandbox.finish().await.unwrap();
}

#[tokio::test]
async fn commit_of_an_aborted_transaction_rolls_back() {
    let empty = EmptyDatabase::postgres().await;
    with_table(&empty).await;
    let sandbox = empty.builder().sandbox().await.unwrap();
    let db = sandbox.db();
    let swallowed = db.transaction(async || {
        add(db, "a").await?;
        assert!(add(db, "first").await.is_err());
        Ok(())
    });
    assert_eq!(swallowed.await.unwrap_err().kind(), Kind::RolledBack);
    cenote::scope(async {
        db.exec("BEGIN", ()).await.unwrap();
        assert!(add(db, "first").await.is_err());
        let error = db.exec("COMMIT", ()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::RolledBack);
    })
    .await;
    assert_eq!(names(db).await, ["first"]);
    add(db, "b").await.unwrap();
    sandbox.finish().await.unwrap();
}

mod test_database {
    use cenote::postgres::TestDatabase;
    use cenote::{Db, Isolation, TransactionOptions};

    use crate::support::{files, forty, soon, until};

    fn dsn() -> String {
        std::env::var("CENOTE_TEST_POSTGRES").expect("ci/postgres.sh sets it")
    }

    async fn numbers(db: &Db) -> Vec<i64> {
        crate::support::numbers(db, "SELECT CAST(n AS bigint) FROM log").await
    }

    /// The test databases whose names contain this.
    async fn databases(like: &str) -> Vec<String> {
        let db = Db::builder(&dsn()).max(1).open().await.unwrap();
        let sql = "SELECT datname::text FROM pg_database WHERE starts_with(datname, 'cenote_t') AND datname LIKE $1";
        let found = db.query_scalar(sql, (format!("%{like}%"),)).await.unwrap();
        db.close().await.unwrap();
        found
    }

    #[tokio::test]
    async fn copies_have_the_schema_and_real_commits() {
        let database = TestDatabase::create(&dsn(), &forty()).await.unwrap();
        assert!(database.name().contains("copies_have_the_schema"));
        let shown = format!("{database:?}");
        assert!(!shown.contains("cenote-secret"), "{shown}");
        assert_eq!(numbers(database.db()).await.len(), 40);
        // Two connections, serializable, and a commit that another handle sees.
        let db = database.db();
        let options = TransactionOptions::new().isolation(Isolation::Serializable);
        let body = options.on(db).run(async || {
            db.exec("INSERT INTO log VALUES (41)", ()).await?;
            db.outside().query("SELECT 1", ()).await?;
            Ok(())
        });
        body.await.unwrap();
        let other = database.builder().max(1).open().await.unwrap();
        assert_eq!(numbers(&other).await.len(), 41);
        other.close().await.unwrap();
        let name = database.name().to_owned();
        let second = TestDatabase::create(&dsn(), &forty()).await.unwrap();
        assert_eq!(numbers(second.db()).await.len(), 40);
        second.finish().await.unwrap();
        database.finish().await.unwrap();
        assert!(databases(&name).await.is_empty());
    }

    #[tokio::test]
    async fn panicking_test_removes_its_database() {
        let (named, name) = tokio::sync::oneshot::channel();
        let test = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let database = TestDatabase::create(&dsn(), &forty()).await.unwrap();
                named.send(database.name().to_owned()).unwrap();
                let db = database.db();
                let body = db.transaction(async || {
                    db.exec("INSERT INTO log VALUES (41)", ()).await?;
                    assert_eq!(1, 2, "the test fails");
                    Ok(())
                });
                body.await
            })
        });
        let name = name.await.unwrap();
        assert!(test.join().is_err());
        assert!(databases(&name).await.is_empty());
    }

    /// A copy without a lock is what a killed run leaves: its session is gone. The next program removes it, so this runs a
    /// second one.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn killed_run_is_cleaned_up_by_the_next_one() {
        if std::env::var_os("CENOTE_TEST_NEXT_RUN").is_some() {
            let database = TestDatabase::create(&dsn(), &forty()).await.unwrap();
            database.finish().await.unwrap();
            return;
        }
        let living = TestDatabase::create(&dsn(), &forty()).await.unwrap();
        let scope = living.name().split('_').nth(2).unwrap();
        let left = format!("cenote_test_{scope}_left_{}", std::process::id());
        let db = Db::builder(&dsn()).max(1).open().await.unwrap();
        db.exec(&format!("CREATE DATABASE {left}"), ())
            .await
            .unwrap();
        db.close().await.unwrap();
        let next = std::env::current_exe().unwrap();
        let next = tokio::task::spawn_blocking(move || {
            std::process::Command::new(next)
                .args([
                    "--exact",
                    "postgres::test_database::killed_run_is_cleaned_up_by_the_next_one",
                ])
                .env("CENOTE_TEST_NEXT_RUN", "1")
                .output()
        });
        let next = soon("the next run", next).await.unwrap().unwrap();
        assert!(next.status.success(), "{next:?}");
        assert!(databases(&left).await.is_empty());
        assert_eq!(databases(living.name()).await.len(), 1);
        assert_eq!(numbers(living.db()).await.len(), 40);
        living.finish().await.unwrap();
    }

    #[tokio::test]
    async fn failed_migration_leaves_no_template_that_counts() {
        let wrong = files(&[("V1__wrong.sql", "CREATE TABLE a (n int); SELEC")]);
        for _ in 0..2 {
            let error = TestDatabase::create(&dsn(), &wrong).await.unwrap_err();
            assert_eq!(error.kind(), cenote::Kind::Migration);
        }
        let right = files(&[("V1__right.sql", "CREATE TABLE a (n int)")]);
        let database = TestDatabase::create(&dsn(), &right).await.unwrap();
        database.db().query("SELECT * FROM a", ()).await.unwrap();
        database.finish().await.unwrap();
    }

    #[tokio::test]
    async fn dropped_creation_leaves_nothing_for_long() {
        use cenote_testkit::poll::drop_after;
        let mut polls = 0;
        loop {
            let created = drop_after(polls, TestDatabase::create(&dsn(), &forty())).await;
            if let Some(created) = created {
                created.unwrap().finish().await.unwrap();
                break;
            }
            polls += 7;
        }
        until("the last copy is removed", async || {
            databases("dropped_creation").await.is_empty()
        })
        .await;
    }
}
