//! A caller gets an error when a changed session is lost with its connection, no matter which task noticed the loss first.

use cenote::{Db, Error, Kind, Result, TransactionOptions};

use crate::servers::scripted::{Client, Scripted, message};
use crate::servers::{dsn, kill, session_id};

async fn user(db: &Db) -> Result<String> {
    db.query_as_one("SELECT current_user::text", ()).await
}

/// The next call is refused, and the one after it runs as who has logged in.
async fn assert_told_once(db: &Db, what: &str) {
    let next = user(db).await;
    let lost = next.err().map(|error| error.kind());
    assert_eq!(lost, Some(Kind::ConnectionLost), "{what}");
    assert_eq!(user(db).await.unwrap(), "cenote", "{what}");
}

/// The BEGIN of these transactions was never sent, so that their end sends nothing either.
#[tokio::test]
async fn unbegun_closure_leaves_the_loss_to_the_next_call() {
    let admin = Db::open(&dsn()).await.unwrap();
    let db = Db::builder(&dsn()).max(2).open().await.unwrap();
    let eagerly = TransactionOptions::new();
    for options in [eagerly, eagerly.begin_lazily()] {
        for fails in [false, true] {
            let what = format!("{options:?}, fails: {fails}");
            cenote::scope(async {
                db.exec("SET ROLE trusted", ()).await.unwrap();
                let pid = session_id(&db).await;
                let done: Result<()> = options
                    .on(&db)
                    .run(async || {
                        kill(&admin, pid).await;
                        match fails {
                            true => Err(Error::new(Kind::Other, "a reason of its own")),
                            false => Ok(()),
                        }
                    })
                    .await;
                assert_eq!(done.is_err(), fails, "{what}");
                assert_told_once(&db, &what).await;
            })
            .await;
        }
    }
}

#[tokio::test]
async fn unbegun_guard_leaves_the_loss_to_the_next_call() {
    let admin = Db::open(&dsn()).await.unwrap();
    let db = Db::builder(&dsn()).max(2).open().await.unwrap();
    for end in ["commit", "rollback", "drop"] {
        cenote::scope(async {
            db.exec("SET ROLE trusted", ()).await.unwrap();
            let pid = session_id(&db).await;
            let tx = db.begin().await.unwrap();
            kill(&admin, pid).await;
            match end {
                "commit" => tx.commit().await.unwrap(),
                "rollback" => tx.rollback().await.unwrap(),
                _ => drop(tx),
            }
            assert_told_once(&db, end).await;
        })
        .await;
    }
}

/// To begin is tried again after a loss: that must not hide that the session is gone.
#[tokio::test]
async fn transaction_after_an_unreported_loss_is_refused() {
    let admin = Db::open(&dsn()).await.unwrap();
    let db = Db::builder(&dsn()).max(2).open().await.unwrap();
    for begins in [false, true] {
        cenote::scope(async {
            db.exec("SET ROLE trusted", ()).await.unwrap();
            let pid = session_id(&db).await;
            let tx = db.begin().await.unwrap();
            kill(&admin, pid).await;
            tx.rollback().await.unwrap();
            let next = match begins {
                true => db.begin().await.map(drop),
                false => db.transaction(async || user(&db).await).await.map(drop),
            };
            let lost = next.map_err(|error| error.kind());
            assert_eq!(lost, Err(Kind::ConnectionLost), "begins: {begins}");
        })
        .await;
    }
}

/// Answers SET and INSERT, and closes the connection with the answer to the one that has this tag.
async fn close_after(mut client: Client, closes: &'static [u8]) {
    client.let_in().await;
    let mut last = b"SET\0".as_slice();
    while let Some((tag, body)) = client.read().await {
        let says = |word: &[u8]| body.windows(word.len()).any(|part| part == word);
        if says(b"INSERT") {
            last = b"INSERT 0 0\0";
        }
        let last_words = message(b'E', b"SFATAL\0VFATAL\0C57P01\0Mterminating\0\0");
        let answer = match tag {
            b'P' => message(b'1', b""),
            b'B' => message(b'2', b""),
            b'D' => [message(b't', &[0, 0]), message(b'n', b"")].concat(),
            b'E' => message(b'C', last),
            b'S' if last == closes => [message(b'Z', b"I"), last_words].concat(),
            b'S' => message(b'Z', b"I"),
            _ => Vec::new(),
        };
        client.send(&answer).await;
    }
}

#[tokio::test]
async fn loss_that_comes_with_an_answer_fails_the_next_call() {
    for closes in [b"SET\0".as_slice(), b"INSERT 0 0\0"] {
        let server = Scripted::new(move |client| close_after(client, closes)).await;
        let db = Db::builder(&server.dsn()).max(2).open().await.unwrap();
        cenote::scope(async {
            db.exec("SET ROLE trusted", ()).await.unwrap();
            if closes != b"SET\0" {
                db.exec("INSERT INTO t VALUES (1)", ()).await.unwrap();
            }
            let next = db.exec("INSERT INTO t VALUES (2)", ()).await;
            assert_eq!(next.unwrap_err().kind(), Kind::ConnectionLost);
        })
        .await;
    }
}
