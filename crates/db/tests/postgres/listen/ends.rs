//! How listeners end: with the handle, with the runtime, and dropped at any point.

use std::time::Duration;

use cenote::listen::{Event, Listener};
use cenote::{Db, Error, Kind};
use cenote_testkit::poll::drop_after;

use super::support::*;
use crate::servers::{dsn, is_gone, soon, unique, until};

/// The error that ends a listener; nothing follows it.
async fn end(listener: &mut Listener) -> Error {
    let end = soon("it ends", listener.try_next()).await.unwrap_err();
    for _ in 0..2 {
        assert!(matches!(at_once(listener), Some(Ok(None))));
    }
    end
}

#[tokio::test]
async fn close_ends_listeners_after_what_has_arrived() {
    let admin = open().await;
    for drains in [false, true] {
        let db = open().await;
        let channel = channel();
        let mut listener = db.listen([&*channel]).await.unwrap();
        let mut waiting = db.listen([&*channel]).await.unwrap();
        let backend = backend(&db);
        notify(&db, &channel, 1).await;
        assert_eq!(payload(&mut waiting).await, "1");
        let waiting = cenote::spawn(async move { end(&mut waiting).await });
        match drains {
            false => db.close().await.unwrap(),
            true => db.close_and_drain(Duration::from_secs(5)).await.unwrap(),
        }
        assert!(db.listen_status().is_none(), "its task has ended");
        is_gone(&admin, backend).await;
        assert_eq!(payload(&mut listener).await, "1");
        assert_eq!(end(&mut listener).await.kind(), Kind::Closed);
        assert_eq!(waiting.await.unwrap().kind(), Kind::Closed);
        let late = db.listen([&*channel]).await.unwrap_err();
        assert_eq!(late.kind(), Kind::Closed);
    }
}

#[tokio::test]
async fn last_handle_ends_listeners() {
    let admin = open().await;
    let db = open().await;
    let mut listener = db.listen([channel()]).await.unwrap();
    let backend = backend(&db);
    let other = db.outside();
    drop(db);
    assert!(at_once(&mut listener).is_none(), "a handle is left");
    drop(other);
    assert_eq!(end(&mut listener).await.kind(), Kind::Closed);
    is_gone(&admin, backend).await;
}

#[tokio::test]
async fn close_ends_those_who_wait_for_a_connection() {
    // It accepts, and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let db = Db::builder(&format!("pgsql:host=127.0.0.1;port={port};sslmode=disable"))
        .user("cenote")
        .open()
        .await
        .unwrap();
    let other = db.clone();
    let waiting = cenote::spawn(async move { other.listen(["news"]).await.map(drop) });
    until("it waits", async || db.listen_status().is_some()).await;
    soon("it closes", db.close()).await.unwrap();
    let error = soon("it ends", waiting).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), Kind::Closed, "{error:?}");
    assert!(db.listen_status().is_none());
}

/// Runs a future on a runtime of its own, which is shut down afterwards.
fn on_own_runtime<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
    multi_thread: bool,
) -> T {
    let thread = std::thread::spawn(move || {
        let mut builder = match multi_thread {
            true => tokio::runtime::Builder::new_multi_thread(),
            false => tokio::runtime::Builder::new_current_thread(),
        };
        builder.enable_all().build().unwrap().block_on(work)
    });
    thread.join().unwrap()
}

#[tokio::test]
async fn runtime_that_shuts_down_ends_listeners_and_not_the_handle() {
    for multi_thread in [false, true] {
        let db = open().await;
        let channel = channel();
        let (inside, name) = (db.clone(), channel.clone());
        let (mut listener, backend) = tokio::task::spawn_blocking(move || {
            on_own_runtime(
                async move {
                    let mut listener = inside.listen([&*name]).await.unwrap();
                    notify(&inside, &name, 1).await;
                    assert_eq!(payload(&mut listener).await, "1");
                    (listener, backend(&inside))
                },
                multi_thread,
            )
        })
        .await
        .unwrap();
        let error = end(&mut listener).await;
        assert_eq!(error.kind(), Kind::ConnectionLost, "{error:?}");
        assert!(error.message().contains("Db::listen"), "{error}");
        assert!(db.listen_status().is_none());
        is_gone(&db, backend).await;
        // A new one begins on the runtime of its caller.
        let mut again = db.listen([&*channel]).await.unwrap();
        notify(&db, &channel, 2).await;
        assert_eq!(payload(&mut again).await, "2");
        drop(listener);
        assert_eq!(status(&db).listeners, 1, "the old one has nothing to leave");
    }
}

#[tokio::test]
async fn provider_that_panics_ends_listeners_and_not_the_handle() {
    let panics = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let asked = std::sync::Arc::clone(&panics);
    let provider = cenote::CredentialProvider::new(move || {
        let panics = asked.load(std::sync::atomic::Ordering::Relaxed);
        async move {
            assert!(!panics, "a bug of the provider");
            Ok::<_, std::io::Error>(cenote::Credentials::new("cenote", "cenote-secret"))
        }
    });
    let server = dsn().replace(";user=cenote;password=cenote-secret", "");
    let db = Db::builder(&server)
        .credentials(provider)
        .open()
        .await
        .unwrap();
    let listening = db.listen(["news"]).into_future();
    let error = soon("it ends", listening).await.unwrap_err();
    assert_eq!(error.kind(), Kind::ConnectionLost, "{error:?}");
    panics.store(false, std::sync::atomic::Ordering::Relaxed);
    drop(db.listen(["news"]).await.unwrap());
    nothing_listens(&db).await;
}

#[tokio::test]
async fn listen_dropped_at_any_poll_leaves_nothing() {
    let db = open().await;
    let channel = channel();
    for others in [false, true] {
        let other = match others {
            false => None,
            true => Some(db.listen([super::support::channel()]).await.unwrap()),
        };
        for polls in 0.. {
            let listening = db.listen([&*channel]).into_future();
            let Some(listener) = drop_after(polls, listening).await else {
                let is_left = async || {
                    db.listen_status()
                        .is_none_or(|status| status.channels.iter().all(|it| **it != *channel))
                };
                until("nobody listens", is_left).await;
                continue;
            };
            let mut listener = listener.unwrap();
            notify(&db, &channel, polls).await;
            assert_eq!(payload(&mut listener).await, polls.to_string());
            break;
        }
        drop(other);
        nothing_listens(&db).await;
    }
}

#[tokio::test]
async fn try_next_dropped_at_any_poll_loses_nothing() {
    let db = open().await;
    let channel = channel();
    let mut listener = db.listen([&*channel]).await.unwrap();
    let mut expected = 0;
    for sent in 0..200 {
        notify(&db, &channel, sent).await;
        // At most two polls: one that waits, and one after a wake.
        if let Some(next) = drop_after(sent % 3, listener.try_next()).await {
            let Event::Notification { payload, .. } = next.unwrap().unwrap() else {
                panic!("nothing was lost");
            };
            assert_eq!(payload.parse::<usize>().unwrap(), expected);
            expected += 1;
        }
    }
    while expected < 200 {
        assert_eq!(payload(&mut listener).await, expected.to_string());
        expected += 1;
    }
}

#[tokio::test]
async fn listener_moves_between_tasks_and_wakes_the_last_one() {
    let db = open().await;
    let channel = channel();
    let mut listener = db.listen([&*channel]).await.unwrap();
    assert!(at_once(&mut listener).is_none(), "with another waker");
    let task = cenote::spawn(async move { payload(&mut listener).await });
    notify(&db, &channel, 1).await;
    assert_eq!(task.await.unwrap(), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_during_everything_ends_everybody() {
    let admin = open().await;
    let prefix = unique("closing");
    for round in 0..30 {
        let db = open().await;
        let channel = format!("{prefix}_{round}");
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let (db, channel) = (db.clone(), channel.clone());
            tasks.spawn(async move {
                loop {
                    let mut listener = match db.listen([&*channel]).await {
                        Ok(listener) => listener,
                        Err(error) => return error,
                    };
                    match listener.try_next().await {
                        Ok(Some(_)) => {}
                        Ok(None) => panic!("the end was never given"),
                        Err(error) => return error,
                    }
                }
            });
        }
        match round % 3 {
            0 => {}
            1 => notify(&admin, &channel, 1).await,
            _ => {
                until("somebody is connected", async || {
                    db.listen_status().is_some_and(|status| status.connected)
                })
                .await;
            }
        }
        soon("it closes", db.close()).await.unwrap();
        soon("all end", async {
            while let Some(error) = tasks.join_next().await {
                assert_eq!(error.unwrap().kind(), Kind::Closed);
            }
        })
        .await;
        assert!(db.listen_status().is_none());
    }
    until("no backend is left", async || {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN \"' || ? || '%'";
        admin.query_as_one::<i64>(sql, (&*prefix,)).await.unwrap() == 0
    })
    .await;
}
