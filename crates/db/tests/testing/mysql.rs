//! What MySQL and MariaDB do not roll back.

use cenote::Kind;

use crate::EmptyDatabase;
use crate::{add, names, with_table};

#[tokio::test]
async fn table_without_transactions_keeps_its_rows() {
    let empty = EmptyDatabase::mysql().await;
    let outside = with_table(&empty).await;
    let sql = "CREATE TABLE log (n INT) ENGINE = MyISAM";
    outside.exec(sql, ()).await.unwrap();
    let sandbox = empty.builder().sandbox().await.unwrap();
    let db = sandbox.db();
    add(db, "a").await.unwrap();
    db.exec("INSERT INTO log VALUES (1)", ()).await.unwrap();
    sandbox.finish().await.unwrap();
    assert_eq!(names(&outside).await, ["first"]);
    let kept: i64 = outside
        .query_scalar_one("SELECT count(*) FROM log", ())
        .await
        .unwrap();
    assert_eq!(kept, 1);
}

#[tokio::test]
async fn procedure_that_commits_ends_the_sandbox() {
    let empty = EmptyDatabase::mysql().await;
    let outside = with_table(&empty).await;
    for (name, body) in [
        ("ends", "COMMIT"),
        ("begins_again", "COMMIT; START TRANSACTION"),
    ] {
        let sql = format!("CREATE PROCEDURE {name}() BEGIN {body}; END");
        outside.exec(&sql, ()).await.unwrap();
        let sandbox = empty.builder().sandbox().await.unwrap();
        let db = sandbox.db();
        let call = format!("CALL {name}()");
        let ended = db.exec(&call, ()).await.unwrap_err();
        assert_eq!(ended.kind(), Kind::TransactionLost, "{name}: {ended}");
        let over = add(db, "a").await.unwrap_err();
        assert!(over.to_string().contains("the sandbox is over"), "{over}");
        drop(sandbox);
    }
    assert_eq!(names(&outside).await, ["first"]);
}

#[tokio::test]
async fn autocommit_cannot_be_set_in_a_sandbox() {
    let empty = EmptyDatabase::mysql().await;
    let outside = with_table(&empty).await;
    let sandbox = empty.builder().sandbox().await.unwrap();
    let db = sandbox.db();
    add(db, "a").await.unwrap();
    for value in [0, 1] {
        let refused = db.set_default("Autocommit", value).await.unwrap_err();
        assert_eq!(refused.kind(), Kind::Unsupported, "{refused}");
    }
    db.set_default("lock_wait_timeout", 7).await.unwrap();
    assert_eq!(names(db).await, ["a", "first"]);
    sandbox.finish().await.unwrap();
    assert_eq!(names(&outside).await, ["first"]);
}
