//! Positions that are passed on as text, and forged ones.

use cenote::{Db, Position};

use super::{FOREVER, Pair, is_replica, read, write};

async fn written(db: &Db) -> Position {
    cenote::scope(async {
        write(db, 1).await;
        db.position().unwrap()
    })
    .await
}

/// Reads in a coroutine of its own, after a position.
async fn read_after(db: &Db, position: Position) -> (i64, bool) {
    cenote::scope(async {
        db.read_after(position);
        read(db, 1).await
    })
    .await
}

#[tokio::test]
async fn position_is_passed_on_as_text() {
    let pair = Pair::start(&[]).await;
    let (db, other) = (
        pair.open().await,
        pair.open_with(|it| it.replica_wait(FOREVER)).await,
    );
    pair.pause().await;
    let text = written(&db).await.to_string();
    assert!(text.len() <= 48, "{text}");
    assert_eq!(read_after(&db, text.parse().unwrap()).await, (1, false));
    pair.resume().await;
    // The other handle learns how far the primary is.
    crate::servers::until("the replica answers", async || {
        let seen = read_after(&other, text.parse().unwrap()).await;
        assert_eq!(seen.0, 1);
        seen.1
    })
    .await;
}

#[tokio::test]
async fn forged_positions_read_the_primary_at_once() {
    let pair = Pair::start(&[]).await;
    // A read that waited would wait for ever.
    let db = pair
        .open_with(|builder| builder.replica_wait(FOREVER))
        .await;
    let position = written(&db).await.to_string();
    let parts: Vec<&str> = position.split('.').collect();
    let forged = [
        format!("1.{}.{}.ffffffffffffffff", parts[1], parts[2]),
        format!("1.{}.ffffffff.{}", parts[1], parts[3]),
        format!("1.{}.0.{}", parts[1], parts[3]),
        format!("1.123.{}.{}", parts[2], parts[3]),
        "1.unknown".to_owned(),
    ];
    for text in forged {
        let seen = read_after(&db, text.parse().unwrap()).await;
        assert_eq!(seen, (1, false), "{text}");
    }
    for text in [
        "",
        "1",
        "2.1.1.1",
        "1.1.1.1.1",
        "1.g.1.1",
        "1.1.100000000.1",
        "1.+1.1.1",
    ] {
        assert!(text.parse::<Position>().is_err(), "{text}");
    }
    assert!("1".repeat(100_000).parse::<Position>().is_err());
    assert!(is_replica(&db.reading()).await);
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
