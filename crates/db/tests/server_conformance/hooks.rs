//! What hooks, defaults and closed handles must not do on a server.

use std::sync::atomic::{AtomicUsize, Ordering};

use cenote::{Kind, PooledConnection, Result};

use super::{insert, numbers, shop, shop_with};

#[tokio::test]
async fn h23_hook_that_leaves_a_transaction_open_is_refused() -> Result<()> {
    static LEAVES_OPEN: AtomicUsize = AtomicUsize::new(0);
    let db = shop_with(|builder| {
        builder.on_connect(async |conn: &mut PooledConnection| {
            match LEAVES_OPEN.swap(0, Ordering::SeqCst) {
                0 => Ok(()),
                _ => conn.exec("BEGIN").await,
            }
        })
    })
    .await;
    LEAVES_OPEN.store(1, Ordering::SeqCst);
    let refused = cenote::scope(async { insert(&db, 1).await })
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), Kind::LeftTransaction);
    cenote::scope(async { insert(&db, 2).await }).await?;
    assert_eq!(numbers(&db).await, [2]);
    Ok(())
}

#[tokio::test]
async fn h24_unknown_default_is_refused_and_changes_nothing() -> Result<()> {
    let db = shop(1).await;
    let refused = db.set_default("no_such_setting", 1).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Database);
    assert!(refused.message().contains("no_such_setting"), "{refused}");
    insert(&db, 1).await?;
    assert_eq!(numbers(&db).await, [1]);
    Ok(())
}

/// They ran as if nobody had closed anything.
#[tokio::test]
async fn h26_statements_write_nothing_after_close() -> Result<()> {
    let db = shop(3).await;
    let reader = shop_reader(&db).await?;
    let alone = db.prepare("INSERT INTO t (n) VALUES (?)").await?;
    let connection = db.connection().await?;
    cenote::scope(async {
        let inside = db.prepare("INSERT INTO t (n) VALUES (?)").await?;
        db.close().await?;
        assert_eq!(inside.exec((1,)).await.unwrap_err().kind(), Kind::Closed);
        Ok::<_, cenote::Error>(())
    })
    .await?;
    assert_eq!(alone.exec((2,)).await.unwrap_err().kind(), Kind::Closed);
    let many = alone.exec_many([(3,), (4,)]).await;
    assert_eq!(many.unwrap_err().kind(), Kind::Closed);
    let own = connection.exec("INSERT INTO t (n) VALUES (5)", ()).await;
    assert_eq!(own.unwrap_err().kind(), Kind::Closed);
    assert_eq!(numbers(&reader).await, [0; 0]);
    Ok(())
}

async fn shop_reader(of: &cenote::Db) -> Result<cenote::Db> {
    let same = cenote::Builder::from_config(of.config().clone());
    same.open().await
}
