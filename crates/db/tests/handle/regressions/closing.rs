//! Handles that are closed while somebody uses them.

use cenote::Kind;

use super::support::{FOUR, ONE, THREE, TWO, World, kind};

/// Only plain statements asked: all the rest went on on a connection that was pinned.
#[test]
fn a_closed_handle_takes_no_new_work_on_a_pinned_connection() {
    let world = World::new(1);
    let db = &world.db;
    world.scope(async {
        let _pin = db.pin().await.unwrap();
        db.close().await.unwrap();
        assert_eq!(kind(db.exec(ONE, ()).await), Kind::Closed);
        assert_eq!(kind(db.begin().await), Kind::Closed);
        assert_eq!(kind(db.pin().await), Kind::Closed);
        assert_eq!(kind(db.prepare("SELECT 1").await), Kind::Closed);
        assert_eq!(kind(db.stream("SELECT 1", ()).await), Kind::Closed);
        assert_eq!(kind(db.transaction(async || Ok(())).await), Kind::Closed);
    });
    assert_eq!(world.committed(), [0; 0]);
    world.is_whole();
}

/// What has begun may still be brought to its end.
#[test]
fn a_closed_handle_lets_a_transaction_finish() {
    let world = World::new(1);
    let db = &world.db;
    let done = world.run(db.transaction(async || {
        db.exec(ONE, ()).await?;
        db.close().await?;
        db.exec(TWO, ()).await?;
        let statement = db.prepare(THREE).await?;
        statement.exec(()).await?;
        db.transaction(async || db.exec(FOUR, ()).await).await
    }));
    done.unwrap();
    assert_eq!(world.committed(), [1, 2, 3, 4]);
    world.is_whole();
    assert_eq!(world.db.status().total, 0);
}
