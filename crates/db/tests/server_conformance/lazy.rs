//! Transactions that begin with their first statement, on a server.

use cenote::{Error, Kind, Result, TransactionOptions};

use super::{counts, insert, numbers, shop};
use crate::servers::quiet;

fn lazily() -> TransactionOptions {
    TransactionOptions::new().begin_lazily()
}

/// Each transaction had a place of the pool before it did anything.
#[tokio::test]
async fn h32_untouched_transactions_hold_no_place() -> Result<()> {
    let db = shop(1).await;
    let one = lazily().on(&db).run(async || {
        let two = db.outside();
        // On the only connection.
        lazily()
            .on(&two)
            .run(async || insert(&two, 1).await.map(drop))
            .await?;
        insert(&db, 2).await.map(drop)
    });
    one.await?;
    assert_eq!(numbers(&db).await, [1, 2]);
    quiet(&db).await;
    assert_eq!(counts(&db), (1, 1, 0));
    Ok(())
}

#[tokio::test]
async fn h32_nested_and_parallel_statements_share_one_begin() -> Result<()> {
    let db = shop(3).await;
    let left = lazily().on(&db).run(async || {
        let nested = db.transaction(async || {
            insert(&db, 3).await?;
            Err::<(), _>(Error::other("no"))
        });
        let (one, two, three) = tokio::join!(insert(&db, 1), insert(&db, 2), nested);
        one.and(two)?;
        three.unwrap_err();
        assert_eq!(db.status().active, 1);
        assert_eq!(numbers(&db).await, [1, 2]);
        Err::<(), _>(Error::other("no"))
    });
    left.await.unwrap_err();
    assert_eq!(numbers(&db).await, [0; 0]);
    Ok(())
}

#[tokio::test]
async fn h32_failed_acquire_fails_the_transaction() -> Result<()> {
    let db = shop(1).await;
    db.close().await?;
    let done = lazily().on(&db).run(async || {
        let failed = insert(&db, 1).await.unwrap_err();
        assert_eq!(failed.kind(), Kind::Closed);
        Ok(())
    });
    assert_eq!(done.await.unwrap_err().kind(), Kind::Closed);
    Ok(())
}
