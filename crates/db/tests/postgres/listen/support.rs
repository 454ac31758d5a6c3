//! What the tests of listeners share.

use cenote::listen::{Event, GapCause, ListenStatus, Listener};
use cenote::{Db, Result};

use crate::servers::{dsn, soon, unique, until};

/// A handle on the server with one connection.
pub(crate) async fn open() -> Db {
    Db::builder(&dsn()).max(1).open().await.unwrap()
}

/// A channel that nobody else uses.
pub(crate) fn channel() -> String {
    unique("channel")
}

pub(crate) async fn notify(db: &Db, channel: &str, payload: impl ToString) {
    let sql = "SELECT pg_notify(?, ?)";
    db.exec(sql, (channel, payload.to_string())).await.unwrap();
}

/// The next event, which comes soon.
pub(crate) async fn event(listener: &mut Listener) -> Event {
    let next = soon("an event comes", listener.try_next()).await;
    next.unwrap().expect("the listener has not ended")
}

/// The channel and the payload of the next event, which is a notification.
pub(crate) async fn heard(listener: &mut Listener) -> (String, String) {
    match event(listener).await {
        Event::Notification {
            channel, payload, ..
        } => (channel.to_string(), payload.to_string()),
        other => panic!("not a notification: {other:?}"),
    }
}

pub(crate) async fn payload(listener: &mut Listener) -> String {
    heard(listener).await.1
}

/// The cause of the next event, which is a Gap.
pub(crate) async fn gap(listener: &mut Listener) -> GapCause {
    match event(listener).await {
        Event::Gap { cause } => cause,
        other => panic!("not a Gap: {other:?}"),
    }
}

/// The next event if it is there already.
pub(crate) fn at_once(listener: &mut Listener) -> Option<Result<Option<Event>>> {
    let mut next = std::pin::pin!(listener.try_next());
    match cenote_testkit::poll::poll_once(next.as_mut()) {
        std::task::Poll::Ready(next) => Some(next),
        std::task::Poll::Pending => None,
    }
}

pub(crate) fn status(db: &Db) -> ListenStatus {
    db.listen_status().expect("somebody listens")
}

/// The backend of the connection that listens.
pub(crate) fn backend(db: &Db) -> i64 {
    status(db).process_id.expect("it is connected").into()
}

/// The connection that listens is closed, and its task has ended.
pub(crate) async fn nothing_listens(db: &Db) {
    until("nothing listens", async || db.listen_status().is_none()).await;
}
