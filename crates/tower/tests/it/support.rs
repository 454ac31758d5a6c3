//! What the tests of the layers share: a database, and bodies under the test's control.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use cenote::{CoroutineId, Db};
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};
use tower::Service;

/// A database in a folder of its own, with a table `t (n)` and two connections at most.
pub(crate) struct Store {
    pub(crate) db: Db,
    dsn: String,
    _folder: tempfile::TempDir,
}

impl Store {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dsn = format!("sqlite:{}", folder.path().join("test.db").display());
        let db = Db::builder(&dsn).max(2).open().await.unwrap();
        db.exec("CREATE TABLE t (n INTEGER NOT NULL)", ())
            .await
            .unwrap();
        Store {
            db,
            dsn,
            _folder: folder,
        }
    }

    /// A sandbox over the database.
    pub(crate) async fn sandbox(&self) -> cenote::Sandbox {
        Db::builder(&self.dsn).sandbox().await.unwrap()
    }

    /// How many rows others see.
    pub(crate) async fn rows(&self) -> i64 {
        let count = self.db.query_as_one("SELECT count(*) FROM t", ());
        count.await.unwrap()
    }

    /// Returns the number of connections in use.
    pub(crate) fn in_use(&self) -> usize {
        self.db.status().active
    }

    /// Waits until every connection is back, rolled back and all.
    pub(crate) async fn is_whole(&self) {
        let back = async {
            loop {
                let status = self.db.status();
                if status.idle == status.total && status.waiting == 0 {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        let back = tokio::time::timeout(Duration::from_secs(30), back).await;
        back.unwrap_or_else(|_| panic!("not all came back: {}", self.db.status()));
    }
}

pub(crate) async fn insert(db: &Db, n: i64) -> cenote::Result<()> {
    db.exec("INSERT INTO t VALUES (?)", (n,)).await?;
    Ok(())
}

/// Leaves a transaction open that has a row in it: only the end of the coroutine ends that.
pub(crate) async fn leave_transaction(db: &Db) {
    db.exec("BEGIN IMMEDIATE", ()).await.unwrap();
    insert(db, 1).await.unwrap();
}

pub(crate) fn request() -> Request<()> {
    Request::new(())
}

/// Makes one request.
pub(crate) async fn ask<S: Service<Request<()>>>(mut service: S) -> Result<S::Response, S::Error> {
    poll_fn(|cx| service.poll_ready(cx)).await?;
    service.call(request()).await
}

pub(crate) async fn next_frame<B: Body + Unpin>(
    body: &mut B,
) -> Option<Result<Frame<B::Data>, B::Error>> {
    poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await
}

/// What happened, and in which coroutine.
type Event = (&'static str, Option<CoroutineId>);

#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<Event>>>);

impl Log {
    pub(crate) fn note(&self, what: &'static str) {
        self.0.lock().unwrap().push((what, cenote::current()));
    }

    pub(crate) fn what(&self) -> Vec<&'static str> {
        let log = self.0.lock().unwrap();
        log.iter().map(|(what, _)| *what).collect()
    }

    pub(crate) fn coroutines(&self) -> Vec<Option<CoroutineId>> {
        let mut all: Vec<_> = self.0.lock().unwrap().iter().map(|(_, id)| *id).collect();
        all.dedup();
        all
    }
}

/// Notes when it is dropped.
#[derive(Debug)]
pub(crate) struct NotedDrop(pub(crate) Log, pub(crate) &'static str);

impl Drop for NotedDrop {
    fn drop(&mut self) {
        self.0.note(self.1);
    }
}

#[derive(Debug)]
pub(crate) enum Step {
    Data(&'static str),
    Trailers,
    Fail,
    Panic,
    Wait,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Broken;

impl fmt::Display for Broken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("broken")
    }
}

impl std::error::Error for Broken {}

/// A body that goes step by step and notes what happens to it.
#[derive(Debug)]
pub(crate) struct Steps {
    left: VecDeque<Step>,
    log: Log,
    _dropped: NotedDrop,
}

impl Steps {
    pub(crate) fn new<const N: usize>(log: &Log, steps: [Step; N]) -> Self {
        Steps {
            left: steps.into(),
            log: log.clone(),
            _dropped: NotedDrop(log.clone(), "body dropped"),
        }
    }

    pub(crate) fn respond(self) -> Result<Response<Self>, Infallible> {
        Ok(Response::new(self))
    }
}

impl Body for Steps {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        self.log.note("body polled");
        Poll::Ready(match self.left.pop_front() {
            Some(Step::Data(data)) => Some(Ok(Frame::data(Bytes::from_static(data.as_bytes())))),
            Some(Step::Trailers) => Some(Ok(Frame::trailers(HeaderMap::new()))),
            Some(Step::Fail) => Some(Err(Broken)),
            Some(Step::Panic) => panic!("a body that panics"),
            Some(Step::Wait) => return Poll::Pending,
            None => None,
        })
    }

    /// Does not tell its end in advance.
    fn is_end_stream(&self) -> bool {
        false
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = SizeHint::new();
        hint.set_lower(u64::try_from(self.left.len()).unwrap());
        hint
    }
}
