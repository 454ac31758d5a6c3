//! Servers whose answer to the question for the position is wrong, late or missing: scripted.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cenote::{Db, Kind};
use tokio::net::TcpListener;

use crate::servers::client::Client;
use crate::servers::scripted::{OK, OK_AND_MORE, OK_INSIDE, Peer, Refusal};
use crate::servers::{soon, until};

const MARIADB: &str = "10.11.6-MariaDB";
const MYSQL: &str = "8.0.36";
const WRITE: &str = "UPDATE t SET n = 1";

/// What a server does when it is asked for its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    Told,
    Refused,
    Nonsense,
    Silence,
    HungUp,
}

const UNKNOWN_VARIABLE: Refusal = Refusal {
    code: 1193,
    state: "HY000",
    message: "Unknown system variable",
};

/// A conflict at COMMIT.
const DEADLOCK: Refusal = Refusal {
    code: 1213,
    state: "40001",
    message: "Deadlock found when trying to get lock; try restarting transaction",
};

#[allow(
    clippy::disallowed_methods,
    reason = "a server of a test is no work of a pool"
)]
async fn start(version: &'static str, position: Position) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = Server {
        port,
        got: Arc::default(),
        conflicts: Arc::default(),
    };
    let shared = server.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let shared = shared.clone();
            let peer = Peer::new(stream);
            tokio::spawn(async move { shared.serve(peer, version, position).await });
        }
    });
    server
}

#[derive(Clone)]
struct Server {
    port: u16,
    /// Every text but those of the login.
    got: Arc<Mutex<Vec<String>>>,
    /// How many commits are refused.
    conflicts: Arc<AtomicUsize>,
}

impl Server {
    async fn serve(&self, mut peer: Peer, version: &str, position: Position) {
        peer.let_in(version).await;
        let mut is_inside = false;
        while let Some(request) = peer.read().await {
            let (_, text) = request.split_first().unwrap();
            let text = String::from_utf8_lossy(text).into_owned();
            if peer.serve_driver(&text, version).await {
                continue;
            }
            self.got.lock().unwrap().push(text.clone());
            is_inside = text.starts_with("START")
                || text == "BEGIN"
                || is_inside && !text.starts_with("COMMIT");
            let is_commit = text.starts_with("COMMIT");
            let take = |left: usize| left.checked_sub(1);
            let conflicts = &self.conflicts;
            if is_commit
                && conflicts
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, take)
                    .is_ok()
            {
                peer.refuse(DEADLOCK).await;
                continue;
            }
            if text.contains("gtid_slave_pos") {
                let is_alone = text.ends_with("gtid_slave_pos)");
                let applied: &[_] = &[Some("ON 0-7-5")];
                peer.send_rows_before(&[applied], !is_alone).await;
                if !is_alone {
                    peer.send_rows(&[&[Some("1")]]).await;
                }
                continue;
            }
            if !text.contains("gtid_binlog_pos") {
                peer.send(if is_inside { OK_INSIDE } else { OK }).await;
                continue;
            }
            if is_commit {
                peer.send(OK_AND_MORE).await;
            }
            match position {
                Position::Told => {
                    peer.send_rows(&[&[Some("OFF 1 1 0 0 7 0-7-5 0-7-5")]])
                        .await
                }
                Position::Refused => peer.refuse(UNKNOWN_VARIABLE).await,
                Position::Nonsense => peer.send_rows(&[&[None]]).await,
                // Until the client has gone.
                Position::Silence => while peer.read().await.is_some() {},
                Position::HungUp => return,
            }
        }
    }

    fn dsn(&self) -> String {
        format!("mysql:host=127.0.0.1;port={};user=app", self.port)
    }

    /// Opens a handle with a replica that nobody asks.
    async fn open(&self) -> Db {
        let builder = Db::builder(&self.dsn()).replica(self.dsn());
        // Shorter than the wait for the position.
        let limit = Duration::from_millis(400);
        builder.statement_timeout(limit).open().await.unwrap()
    }

    /// How many texts contain this.
    fn count(&self, what: &str) -> usize {
        let got = self.got.lock().unwrap();
        got.iter().filter(|text| text.contains(what)).count()
    }
}

async fn in_transaction(db: &Db) -> cenote::Result<()> {
    db.transaction(async || db.exec(WRITE, ()).await.map(drop))
        .await
}

#[tokio::test]
async fn commit_without_a_position_is_a_commit() {
    for position in [
        Position::Refused,
        Position::Nonsense,
        Position::Silence,
        Position::HungUp,
    ] {
        let server = start(MARIADB, position).await;
        let db = server.open().await;
        cenote::scope(async {
            for _ in 0..2 {
                let committed = soon("it is committed", in_transaction(&db)).await;
                assert!(committed.is_ok(), "{position:?}: {committed:?}");
                assert!(db.position().unwrap().is_unknown(), "{position:?}");
            }
            let written = soon("it is written", db.exec(WRITE, ())).await;
            assert!(written.is_ok(), "{position:?}: {written:?}");
            assert!(db.position().unwrap().is_unknown(), "{position:?}");
            assert!(db.peek().is_none());
        })
        .await;
        assert_eq!(server.count("UPDATE"), 3, "{position:?}");
    }
}

#[tokio::test]
async fn position_of_a_commit_costs_no_round_trip() {
    let server = start(MARIADB, Position::Told).await;
    let db = server.open().await;
    cenote::scope(async {
        in_transaction(&db).await.unwrap();
        assert!(!db.position().unwrap().is_unknown());
        let before = server.got.lock().unwrap().len();
        in_transaction(&db).await.unwrap();
        // BEGIN, the write, COMMIT.
        assert_eq!(server.got.lock().unwrap().len() - before, 3);
        db.exec(WRITE, ()).await.unwrap();
        // The write, the question.
        assert_eq!(server.got.lock().unwrap().len() - before, 5);
    })
    .await;
    assert_eq!(db.position(), None);
    // Outside of coroutines nothing is asked.
    let before = server.count("gtid_binlog_pos");
    db.exec(WRITE, ()).await.unwrap();
    assert_eq!(server.count("gtid_binlog_pos"), before);
}

#[tokio::test]
async fn text_read_on_a_replica_costs_no_round_trip() {
    let (primary, replica) = (
        start(MARIADB, Position::Told).await,
        start(MARIADB, Position::Told).await,
    );
    let db = Db::builder(&primary.dsn()).replica(replica.dsn());
    let db = db.open().await.unwrap();
    let read = async || {
        let one: String = db.reading().query_scalar_one("SELECT 1", ()).await.unwrap();
        assert_eq!(one, "1");
    };
    until("the replica gets reads", async || {
        let _ = db.reading().query("SELECT 1", ()).await.unwrap();
        db.replicas()[0].reads > 0
    })
    .await;
    let all = || replica.got.lock().unwrap().len();
    let (reads, before) = (replica.count("SELECT 1"), all());
    for _ in 0..100 {
        read().await;
    }
    assert_eq!(replica.count("SELECT 1") - reads, 100);
    // The watcher asks as well, twice a second.
    let sent = all() - before;
    assert!((100..150).contains(&sent), "{sent}");
}

#[tokio::test]
async fn conflict_at_commit_asks_for_no_position() {
    let server = start(MARIADB, Position::Told).await;
    let db = server.open().await;
    cenote::scope(async {
        server.conflicts.store(1, Ordering::SeqCst);
        let error = in_transaction(&db).await.unwrap_err();
        assert_eq!(error.code(), Some(1213));
        // The connection goes on.
        in_transaction(&db).await.unwrap();
        assert!(!db.position().unwrap().is_unknown());
    })
    .await;
}

#[tokio::test]
async fn commit_in_a_text_is_over_without_a_position() {
    for position in [
        Position::Refused,
        Position::Nonsense,
        Position::Silence,
        Position::HungUp,
    ] {
        let server = start(MARIADB, position).await;
        let db = server.open().await;
        cenote::scope(async {
            for _ in 0..2 {
                for text in ["BEGIN", WRITE, "COMMIT"] {
                    let done = soon("it is answered", db.exec(text, ())).await;
                    assert!(done.is_ok(), "{position:?}, {text}: {done:?}");
                }
                assert!(!db.in_transaction(), "{position:?}");
                assert!(db.position().unwrap().is_unknown(), "{position:?}");
            }
        })
        .await;
        assert_eq!(server.count("UPDATE"), 2, "{position:?}");
    }
}

#[tokio::test]
async fn refused_position_fails_no_later_call() {
    let server = start(MARIADB, Position::Refused).await;
    let mut client = Client::open(&server.dsn()).await;
    client.begin().await;
    client.connection.expect_position();
    client.connection.commit().await.unwrap();
    assert_eq!(client.connection.take_position().await, None);
    client.must(WRITE).await;
}

#[tokio::test]
async fn position_that_is_missing_costs_a_held_session() {
    for position in [Position::Silence, Position::HungUp] {
        let server = start(MARIADB, position).await;
        let db = server.open().await;
        cenote::scope(async {
            let session = db.connection().await.unwrap();
            soon("it is written", session.exec(WRITE, ()))
                .await
                .unwrap();
            let error = session.exec(WRITE, ()).await.unwrap_err();
            assert_eq!(error.kind(), Kind::ConnectionLost, "{position:?}");
        })
        .await;
        // The call that failed was never sent.
        assert_eq!(server.count("UPDATE"), 1, "{position:?}");
    }
}

#[tokio::test]
async fn dropped_question_closes_its_connection() {
    let server = start(MARIADB, Position::Silence).await;
    let db = server.open().await;
    cenote::scope(async {
        {
            let mut writing = std::pin::pin!(in_transaction(&db));
            soon("the commit was sent", async {
                let mut ticks = tokio::time::interval(Duration::from_millis(1));
                while server.count("COMMIT") == 0 {
                    tokio::select! {
                        _ = &mut writing => panic!("it has ended"),
                        _ = ticks.tick() => {}
                    }
                }
            })
            .await;
        }
        assert!(db.position().unwrap().is_unknown());
        db.exec("DO 1", ()).await.unwrap();
    })
    .await;
    crate::servers::quiet(&db).await;
}

#[tokio::test]
async fn mysql_leaves_all_reads_to_the_primary() {
    let server = start(MYSQL, Position::Refused).await;
    let db = server.open().await;
    cenote::scope(async {
        db.exec(WRITE, ()).await.unwrap();
        in_transaction(&db).await.unwrap();
        assert!(db.position().unwrap().is_unknown());
    })
    .await;
    db.reading().query("SELECT 1", ()).await.unwrap();
    until("the replica was asked", async || {
        db.reading().query("SELECT 1", ()).await.unwrap();
        db.replicas()[0].connections == 0
    })
    .await;
    assert!(!db.replicas()[0].is_usable);
    // Nobody asks a question that the server does not know.
    assert_eq!(server.count("gtid"), 0);
}
