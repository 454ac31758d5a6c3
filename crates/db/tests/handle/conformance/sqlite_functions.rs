//! Functions, aggregates and collations of the application: every connection knows them.

use std::sync::Arc;

use cenote::sqlite::Sqlite;
use cenote::{Db, Error, Kind, Result};
use tokio::sync::Barrier;

use super::support::{Probe, Shop, TestDatabase, quiet, replaced, until};

fn with_functions() -> Sqlite {
    Sqlite::new()
        .function("double", 1, true, |args| Ok(args.get::<i64>(0)? * 2))
        .aggregate(
            "product",
            1,
            true,
            || 1_i64,
            |product, args| {
                *product *= args.get::<i64>(0)?;
                Ok(())
            },
            Ok,
        )
        .collation("by_length", |a, b| a.len().cmp(&b.len()))
}

/// Asks the same of so many connections at once.
async fn ask_everywhere(db: &Db, connections: usize) -> Vec<(i64, i64, String)> {
    let barrier = Arc::new(Barrier::new(connections));
    let tasks: Vec<_> = (0..connections)
        .map(|_| {
            let (db, barrier) = (db.clone(), Arc::clone(&barrier));
            cenote::spawn(async move {
                let _pin = db.pin().await?;
                barrier.wait().await;
                let words = "SELECT word FROM (SELECT 'aaa' AS word UNION SELECT 'bb' UNION \
                             SELECT 'c') ORDER BY word COLLATE by_length LIMIT 1";
                let numbers = "SELECT product(n) FROM (SELECT 3 AS n UNION SELECT 4)";
                Ok::<_, Error>((
                    db.query_as_one("SELECT double(21)", ()).await?,
                    db.query_as_one(numbers, ()).await?,
                    db.query_as_one(words, ()).await?,
                ))
            })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap().unwrap());
    }
    answers
}

/// D-lite-010, D-lite-012, D-lite-s004a
#[tokio::test]
async fn functions_and_collations_exist_on_every_connection() -> Result<()> {
    let database = TestDatabase::new();
    let builder = database.builder_with(with_functions()).max(2);
    let shop = Shop::open(database, builder).await;
    for answer in ask_everywhere(&shop, 2).await {
        assert_eq!(answer, (42, 12, "c".to_owned()));
    }
    assert_eq!(shop.status().total, 2);
    Ok(())
}

/// D-lite-s005a: they are given before anything is opened, so they reach those made in advance.
#[tokio::test]
async fn functions_are_known_to_connections_that_were_made_in_advance() -> Result<()> {
    let database = TestDatabase::new();
    let builder = database.builder_with(with_functions()).min(2).max(3);
    let shop = Shop::open(database, builder).await;
    assert_eq!(shop.status().idle, 2);
    for answer in ask_everywhere(&shop, 3).await {
        assert_eq!(answer, (42, 12, "c".to_owned()));
    }
    Ok(())
}

/// D-lite-s005b: and those that take the place of others.
#[tokio::test]
async fn functions_are_known_to_connections_that_replace_others() -> Result<()> {
    let database = TestDatabase::new();
    let builder = database.builder_with(with_functions()).max(1);
    let shop = Shop::open(database, builder).await;
    cenote::scope(async { shop.exec("PRAGMA cache_size = 3", ()).await }).await?;
    quiet(&shop).await;
    shop.replace_all();
    replaced(&shop, 1).await;
    assert_eq!(ask_everywhere(&shop, 1).await, [(42, 12, "c".to_owned())]);
    Ok(())
}

/// D-lite-014, D-lite-s004b
#[tokio::test]
async fn same_name_and_arity_twice_is_refused_but_another_arity_works() -> Result<()> {
    let database = TestDatabase::new();
    let twice = || with_functions().function("DOUBLE", 1, true, |_| Ok(0_i64));
    let error = database.builder_with(twice()).open().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.message().contains("DOUBLE"), "{error}");
    assert!(error.message().contains("1 argument"), "{error}");
    let twice = with_functions().collation("by_length", str::cmp);
    let error = database.builder_with(twice).open().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.message().contains("by_length"), "{error}");

    let overloaded = with_functions().function("double", 2, true, |args| {
        Ok((args.get::<i64>(0)? + args.get::<i64>(1)?) * 2)
    });
    let db = database.builder_with(overloaded).open().await?;
    let both: (i64, i64) = db
        .query_as_one("SELECT double(1), double(1, 2)", ())
        .await?;
    assert_eq!(both, (2, 6));
    Ok(())
}

/// D-lite-020
#[tokio::test]
async fn dropping_a_handle_with_functions_closes_everything() -> Result<()> {
    let database = TestDatabase::new();
    let kept = Arc::new(());
    let inside = Arc::clone(&kept);
    let functions = with_functions().function("keeps", 0, false, move |_| {
        let _kept = &inside;
        Ok(1_i64)
    });
    let (driver, wire) = Probe::new(functions);
    let db = database.builder_with(driver).min(2).max(2).open().await?;
    let connections = [db.connection().await?, db.connection().await?];
    for connection in &connections {
        connection.query("SELECT keeps()", ()).await?;
    }
    drop(connections);
    drop(db);
    until("all are closed", || wire.alive() == 0).await;
    until("the function is gone", || Arc::strong_count(&kept) == 1).await;
    Ok(())
}

#[tokio::test]
async fn error_or_panic_of_a_function_is_an_error_of_the_statement() -> Result<()> {
    let database = TestDatabase::new();
    let functions = Sqlite::new()
        .function("fails", 0, false, |_| -> Result<i64> {
            Err(Error::other("not this one"))
        })
        .function("panics", 0, false, |_| -> Result<i64> {
            panic!("nor this one")
        });
    let builder = database.builder_with(functions).max(1);
    let shop = Shop::open(database, builder).await;
    let error = shop.query("SELECT fails()", ()).await.unwrap_err();
    assert!(error.message().contains("not this one"), "{error}");
    shop.query("SELECT panics()", ()).await.unwrap_err();
    shop.exec("SELECT 1", ()).await?;
    assert_eq!((shop.status().total, shop.status().active), (1, 0));
    Ok(())
}
