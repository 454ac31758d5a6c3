//! Who receives what.

use cenote::listen::{Event, GapCause};
use cenote::{Credentials, Db, Kind};

use super::support::*;
use crate::servers::{
    dsn, is_gone, kill, required_variable, session_id, soon, tls_file, unique, until,
};

#[tokio::test]
async fn notification_right_after_listen_is_received() {
    let db = open().await;
    for n in 0..30 {
        let channel = channel();
        let mut listener = db.listen([&*channel]).await.unwrap();
        notify(&db, &channel, n).await;
        assert_eq!(payload(&mut listener).await, n.to_string());
    }
}

#[tokio::test]
async fn event_has_channel_payload_and_the_senders_process() {
    let db = open().await;
    let channel = channel();
    let mut listener = db.listen([&*channel]).await.unwrap();
    let sender = session_id(&db).await;
    db.exec(&format!("NOTIFY {channel}"), ()).await.unwrap();
    let long = "ü".repeat(3999);
    notify(&db, &channel, &long).await;
    for expected in ["", &long] {
        let Event::Notification {
            channel: of,
            payload,
            pid,
        } = event(&mut listener).await
        else {
            panic!("not a notification");
        };
        assert_eq!((&*of, &*payload), (&*channel, expected));
        assert_eq!(i64::from(pid), sender);
    }
}

#[tokio::test]
async fn rolled_back_notification_never_comes() {
    let db = open().await;
    let channel = channel();
    let mut listener = db.listen([&*channel]).await.unwrap();
    let rolled_back = db.transaction(async || {
        notify(&db, &channel, "never").await;
        Err::<(), _>(cenote::Error::other("no"))
    });
    assert!(rolled_back.await.is_err());
    db.transaction(async || {
        notify(&db, &channel, "first").await;
        assert!(at_once(&mut listener).is_none(), "it is not committed");
        notify(&db, &channel, "second").await;
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(payload(&mut listener).await, "first");
    assert_eq!(payload(&mut listener).await, "second");
}

#[tokio::test]
async fn each_listener_receives_its_own_channels_on_one_connection() {
    let db = open().await;
    let names: Vec<_> = (0..8).map(|_| channel()).collect();
    let mut listeners = Vec::new();
    // Listener n has the channels n, n + 1 and n + 2.
    for n in 0..names.len() {
        let own = (n..n + 3).map(|n| names[n % names.len()].clone());
        listeners.push(db.listen(own).await.unwrap());
    }
    let backend = backend(&db);
    for name in &names {
        notify(&db, name, "x").await;
    }
    for (n, listener) in listeners.iter_mut().enumerate() {
        let mut expected: Vec<_> = (n..n + 3).map(|n| n % names.len()).collect();
        expected.sort_unstable();
        for of in expected {
            assert_eq!(heard(listener).await.0, names[of]);
        }
        assert!(at_once(listener).is_none());
        assert_eq!(listener.channels().len(), 3);
    }
    let status = status(&db);
    assert_eq!(status.process_id.map(i64::from), Some(backend));
    assert_eq!((status.listeners, status.channels.len()), (8, 8));
    assert!(status.connected && status.last_error.is_none());
    assert_eq!(db.status().total, 1, "outside of the pool");
}

#[tokio::test]
async fn channel_is_left_with_its_last_listener() {
    let db = open().await;
    let (shared, own) = (channel(), channel());
    let mut first = db.listen([&*shared]).await.unwrap();
    let second = db.listen([&*shared, &*own]).await.unwrap();
    let backend = backend(&db);
    let last = async || -> String {
        let sql = "SELECT query FROM pg_stat_activity WHERE pid = ?::int4";
        db.query_as_one(sql, (backend,)).await.unwrap()
    };
    assert_eq!(last().await, format!("LISTEN \"{own}\";"));
    drop(second);
    until("the channel is left", async || {
        last().await == format!("UNLISTEN \"{own}\";")
    })
    .await;
    assert_eq!(status(&db).channels, [(&*shared).into()]);
    // It can be listened to again, and the other one was never left.
    let mut again = db.listen([&*own]).await.unwrap();
    notify(&db, &own, 1).await;
    notify(&db, &shared, 2).await;
    assert_eq!(payload(&mut again).await, "1");
    assert_eq!(payload(&mut first).await, "2");
    drop((first, again));
    nothing_listens(&db).await;
    is_gone(&db, backend).await;
    let mut anew = db.listen([&*own]).await.unwrap();
    notify(&db, &own, 3).await;
    assert_eq!(payload(&mut anew).await, "3");
}

#[tokio::test]
async fn channel_is_a_name_in_any_writing() {
    let db = open().await;
    let unique = unique("x");
    let names = [
        format!("Case{unique}"),
        format!("case{unique}"),
        format!("a \"b\"; 'c' -- {unique}"),
        format!("ünï {unique} \\ $1 ?"),
        format!("{unique:_<63}"),
    ];
    let mut listeners = Vec::new();
    for name in &names {
        listeners.push(db.listen([name]).await.unwrap());
    }
    for name in &names {
        notify(&db, name, "x").await;
    }
    for (listener, name) in listeners.iter_mut().zip(&names) {
        assert_eq!(heard(listener).await.0, *name);
        assert!(at_once(listener).is_none());
    }
}

#[tokio::test]
async fn full_pool_does_not_keep_anybody_from_listening() {
    let db = open().await;
    let admin = open().await;
    let channel = channel();
    db.transaction(async || {
        db.exec("SELECT 1", ()).await?;
        let mut listener = db.listen([&*channel]).await?;
        notify(&admin, &channel, 1).await;
        assert_eq!(payload(&mut listener).await, "1");
        assert_eq!((db.status().total, db.status().max), (1, 1));
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn listening_asks_the_provider_and_uses_tls() {
    let ask = async || Ok::<_, std::io::Error>(Credentials::new("cenote", "cenote-secret"));
    let server = format!(
        "pgsql:host=localhost;port={};dbname=cenote;sslmode=verify-full;sslrootcert={}",
        required_variable("CENOTE_TEST_POSTGRES_PORT"),
        tls_file("ca.crt")
    );
    let provider = cenote::CredentialProvider::new(ask);
    let db = Db::builder(&server)
        .credentials(provider)
        .open()
        .await
        .unwrap();
    let channel = channel();
    let mut listener = db.listen([&*channel]).await.unwrap();
    let sql = "SELECT ssl FROM pg_stat_ssl WHERE pid = ?::int4";
    let is_tls: bool = db.query_as_one(sql, (backend(&db),)).await.unwrap();
    assert!(is_tls);
    notify(&db, &channel, 1).await;
    assert_eq!(payload(&mut listener).await, "1");
}

#[tokio::test]
async fn hooks_and_defaults_are_for_the_pool_only() {
    let db = Db::builder(&dsn())
        .max(1)
        .on_connect(async |connection: &mut cenote::PooledConnection| {
            connection.exec("SET application_name = 'hooked'").await
        })
        .open()
        .await
        .unwrap();
    let listener = db.listen([channel()]).await.unwrap();
    let sql = "SELECT application_name FROM pg_stat_activity WHERE pid = ?::int4";
    let name: String = db.query_as_one(sql, (backend(&db),)).await.unwrap();
    assert_ne!(name, "hooked");
    drop(listener);
}

#[tokio::test]
async fn replacing_all_connections_is_a_gap() {
    let db = open().await;
    let channel = channel();
    let mut listener = db.listen([&*channel]).await.unwrap();
    let before = backend(&db);
    db.replace_all();
    assert!(matches!(gap(&mut listener).await, GapCause::Replaced));
    let after = backend(&db);
    assert_ne!(before, after);
    is_gone(&db, before).await;
    notify(&db, &channel, 1).await;
    assert_eq!(payload(&mut listener).await, "1");
    assert_eq!(status(&db).reconnects, 1);
}

#[tokio::test]
async fn payload_that_the_server_cannot_convert_is_a_gap() {
    let admin = open().await;
    let name = unique("ascii");
    let create = format!(
        "CREATE DATABASE {name} ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
    );
    admin.exec(&create, ()).await.unwrap();
    let dsn = dsn().replace("dbname=cenote", &format!("dbname={name}"));
    let db = Db::builder(&dsn).max(1).open().await.unwrap();
    let channel = channel();
    let mut listener = db.listen([&*channel]).await.unwrap();
    notify(&db, &channel, "before").await;
    let sql = "SELECT pg_notify(?, convert_from('\\xff41'::bytea, 'SQL_ASCII'))";
    db.exec(sql, (&*channel,)).await.unwrap();
    assert_eq!(payload(&mut listener).await, "before");
    // The server ends the session. What is sent before the Gap comes may be lost with it.
    let cause = gap(&mut listener).await;
    assert!(matches!(cause, GapCause::ConnectionLost(_)), "{cause:?}");
    notify(&db, &channel, "after").await;
    assert_eq!(payload(&mut listener).await, "after");
    db.close().await.unwrap();
    admin
        .exec(&format!("DROP DATABASE {name}"), ())
        .await
        .unwrap();
}

#[tokio::test]
async fn stream_gives_what_try_next_gives() {
    let db = open().await;
    let channel = channel();
    let mut listener = db.listen([&*channel]).await.unwrap();
    notify(&db, &channel, 1).await;
    let mut next = async || {
        let next = std::future::poll_fn(|cx| {
            futures_core::Stream::poll_next(std::pin::Pin::new(&mut listener), cx)
        });
        soon("an event comes", next).await
    };
    assert!(matches!(next().await, Some(Ok(Event::Notification { .. }))));
    // Only now: the server forgets what it has not sent when it ends a backend.
    kill(&db, backend(&db)).await;
    assert!(matches!(next().await, Some(Ok(Event::Gap { .. }))));
    db.close().await.unwrap();
    let end = next().await.unwrap().unwrap_err();
    assert_eq!(end.kind(), Kind::Closed);
    assert!(next().await.is_none());
}
