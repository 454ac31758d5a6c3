//! Functions that each open a transaction call one another, in a crate that does not raise `recursion_limit`.

use cenote::{Db, Error, Result};

async fn note(db: &Db, depth: i64) -> Result<()> {
    db.exec("INSERT INTO note VALUES (?)", (depth,)).await?;
    Ok(())
}

macro_rules! nested {
    ($name:ident, $depth:literal, $inner:ident) => {
        async fn $name(db: &Db) -> Result<i64> {
            db.transaction(async || {
                note(db, $depth).await?;
                $inner(db).await
            })
            .await
        }
    };
}

async fn innermost(db: &Db) -> Result<i64> {
    db.query_as_one("SELECT count(*) FROM note", ()).await
}

nested!(first, 1, second);
nested!(second, 2, third);
nested!(third, 3, fourth);
nested!(fourth, 4, fifth);
nested!(fifth, 5, sixth);
nested!(sixth, 6, seventh);
nested!(seventh, 7, eighth);
nested!(eighth, 8, ninth);
nested!(ninth, 9, tenth);
nested!(tenth, 10, innermost);

#[tokio::test]
async fn ten_functions_with_transactions_may_call_one_another() -> Result<()> {
    let db = Db::open("sqlite:file:nesting?mode=memory&cache=shared").await?;
    db.exec("CREATE TABLE note (depth INTEGER)", ()).await?;
    assert_eq!(first(&db).await?, 10);
    let task = {
        let db = db.clone();
        // Spawned, so that the compiler also proves that all of it is `Send`.
        cenote::spawn(async move { first(&db).await })
    };
    assert_eq!(task.await.map_err(Error::other)??, 20);
    Ok(())
}

#[tokio::test]
async fn retry_can_be_spawned_with_an_error_that_is_not_sync() {
    struct Own(#[allow(dead_code, reason = "makes the error `!Sync`")] std::cell::Cell<u8>);
    impl From<Error> for Own {
        fn from(_: Error) -> Self {
            Own(std::cell::Cell::new(0))
        }
    }
    let db = Db::open("sqlite:file:nesting-retry?mode=memory&cache=shared")
        .await
        .unwrap();
    let task = cenote::spawn(async move {
        let options = db.transaction_options();
        options
            .retry(async || note(&db, 1).await.map_err(Own::from))
            .await
    });
    assert!(task.await.unwrap().is_err(), "there is no table");
}
