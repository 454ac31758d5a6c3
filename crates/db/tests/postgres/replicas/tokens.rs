//! Positions that are passed on as text, and forged ones.

use cenote::{Db, Position};

use super::{Pair, is_replica, write};
use crate::servers::replicas;

#[tokio::test]
async fn position_is_passed_on_as_text() {
    replicas::text_of_a_position_is_enough(&Pair::start(&[]).await).await;
}

#[tokio::test]
async fn forged_positions_read_the_primary_at_once() {
    replicas::forged_positions_do_not_wait(&Pair::start(&[]).await).await;
}

#[tokio::test]
async fn outside_of_coroutines_there_is_no_position() {
    let pair = Pair::start(&[]).await;
    let db = pair.open().await;
    write(&db, 1).await;
    assert_eq!(db.position(), None);
    db.read_after(Position::unknown());
    assert!(is_replica(&db.reading()).await);
    let plain = Db::open(&pair.primary.dsn()).await.unwrap();
    cenote::scope(async {
        write(&plain, 1).await;
        assert_eq!(plain.position(), None);
        assert!(!is_replica(&plain.reading()).await);
        assert!(plain.replicas().is_empty());
    })
    .await;
}
