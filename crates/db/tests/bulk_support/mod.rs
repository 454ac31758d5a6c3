//! What `exec_many`, `exec_many_stream` and `query_many` promise on every database.
//!
//! Each program calls `bulk_tests!` with a function that returns handles; each has the table
//! `bulk (n BIGINT PRIMARY KEY, name VARCHAR(100))` to itself.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use cenote::{Db, Error, Kind, Result};
use futures_core::Stream;

pub(crate) const CREATE: &str = "CREATE TABLE bulk (n BIGINT PRIMARY KEY, name VARCHAR(100))";
const INSERT: &str = "INSERT INTO bulk (n, name) VALUES (?, ?)";

/// One driver call by single statements, one by larger ones where the driver has them, and several driver calls.
const SIZES: [i64; 3] = [10, 1_000, 9_000];

fn sets(count: i64) -> impl Iterator<Item = (i64, String)> + Send {
    (0..count).map(|n| (n, format!("name {n}")))
}

/// As [`sets`], but the third last repeats the first.
fn failing(count: i64) -> impl Iterator<Item = (i64, String)> + Send {
    sets(count).map(move |(n, name)| (if n == count - 3 { 0 } else { n }, name))
}

async fn count(db: &Db) -> i64 {
    let count = db.query_scalar_one("SELECT count(*) FROM bulk", ()).await;
    count.unwrap()
}

async fn empty(db: &Db) {
    db.exec("DELETE FROM bulk", ()).await.unwrap();
}

/// Waits until all connections are back or gone.
async fn quiet(db: &Db) {
    let waiting = async {
        while db.status().active > 0 {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(30), waiting).await;
    assert!(waited.is_ok(), "a connection does not come back");
}

pub(crate) async fn all_sets_are_written(db: &Db) {
    for size in SIZES {
        let done = db.exec_many(INSERT, sets(size)).await.unwrap();
        assert_eq!(done.rows_affected, size.unsigned_abs());
        let sql = "SELECT n, name FROM bulk ORDER BY n";
        let rows: Vec<(i64, String)> = db.query_as(sql, ()).await.unwrap();
        assert_eq!(rows, sets(size).collect::<Vec<_>>());
        empty(db).await;
    }
    let nothing = db.exec_many(INSERT, sets(0)).await.unwrap();
    assert_eq!(nothing.rows_affected, 0);
    quiet(db).await;
}

pub(crate) async fn failed_set_undoes_all_and_is_named(db: &Db) {
    for size in SIZES {
        let error = db.exec_many(INSERT, failing(size)).await.unwrap_err();
        assert!(error.is_unique_violation(), "{error}");
        assert_eq!(
            error.set_index(),
            Some((size - 3).unsigned_abs()),
            "{error}"
        );
        assert_eq!(error.sql(), Some(INSERT));
        assert!(
            error
                .call_site()
                .unwrap()
                .file()
                .ends_with("bulk_support/mod.rs")
        );
        let shown = error.to_string();
        assert!(
            shown.contains(&format!("in parameter set {}", size - 3)),
            "{shown}"
        );
        assert_eq!(count(db).await, 0, "all sets, or none");
    }
    // A set that does not fit the SQL.
    let short = sets(9_000).map(|(n, name)| match n {
        8_999 => vec![cenote::Value::from(n)],
        _ => vec![n.into(), name.into()],
    });
    let error = db.exec_many(INSERT, short).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.set_index()),
        (Kind::Parameters, Some(8_999))
    );
    assert_eq!(count(db).await, 0);
    // A statement that is wrong for every set.
    let error = db
        .exec_many("INSERT INTO nowhere VALUES (?)", [1, 2])
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Database, "{error}");
    quiet(db).await;
}

pub(crate) async fn failed_call_dooms_its_transaction(db: &Db) {
    for size in SIZES {
        let committed: Result<()> = db
            .transaction(async || {
                db.exec(INSERT, (-1, "before")).await?;
                let error = db.exec_many(INSERT, failing(size)).await.unwrap_err();
                assert!(error.is_unique_violation(), "{error}");
                assert_eq!(error.set_index(), Some((size - 3).unsigned_abs()));
                let next = db.exec(INSERT, (-2, "after")).await.unwrap_err();
                assert_eq!(next.kind(), Kind::Doomed, "{next}");
                Ok(())
            })
            .await;
        assert_eq!(committed.unwrap_err().kind(), Kind::Doomed);
        assert_eq!(count(db).await, 0);

        // A nested transaction is rolled back alone.
        db.transaction(async || {
            db.exec(INSERT, (-1, "before")).await?;
            let nested: Result<()> = db
                .transaction(async || db.exec_many(INSERT, failing(size)).await.map(drop))
                .await;
            assert!(nested.unwrap_err().is_unique_violation());
            db.exec_many(INSERT, sets(size)).await?;
            Ok::<_, Error>(())
        })
        .await
        .unwrap();
        assert_eq!(count(db).await, size + 1);
        empty(db).await;
    }
    // By a guard.
    cenote::scope(async {
        let transaction = db.begin().await.unwrap();
        let failed = transaction.exec_many(INSERT, failing(9_000)).await;
        assert!(failed.unwrap_err().is_unique_violation());
        assert_eq!(transaction.commit().await.unwrap_err().kind(), Kind::Doomed);
    })
    .await;
    assert_eq!(count(db).await, 0);
    quiet(db).await;
}

pub(crate) async fn rows_come_in_the_order_of_the_sets(db: &Db) {
    let insert = "INSERT INTO bulk (n, name) VALUES (?, ?) RETURNING n, name";
    let alone = db.query(insert, (-1, "alone")).await.unwrap();
    empty(db).await;
    if alone.is_empty() {
        // SQLite's ODBC driver returns no rows of an INSERT.
        let many = db.query_many(insert, sets(10)).await.unwrap();
        assert!(many.is_empty());
        return;
    }
    for size in SIZES {
        // In no order of the database's.
        let mixed = || (0..size).map(move |n| ((n * 7_919) % 10_007, format!("set {n}")));
        let rows = db.query_many(insert, mixed()).await.unwrap();
        let rows: Vec<(i64, String)> = rows
            .iter()
            .map(|row| cenote::from_row(row).unwrap())
            .collect();
        assert_eq!(rows, mixed().collect::<Vec<_>>());
        let error = db.query_many(insert, mixed()).await.unwrap_err();
        assert_eq!(error.set_index(), Some(0), "{error}");
        assert_eq!(count(db).await, size);
        empty(db).await;
    }
    quiet(db).await;
}

pub(crate) async fn panicking_input_leaves_nothing(db: &Db) {
    for at in [5, 8_999] {
        let panicking = || sets(9_000).inspect(move |(n, _)| assert_ne!(*n, at, "on purpose"));
        let outside = caught(db.exec_many(INSERT, panicking())).await;
        assert!(outside.is_none(), "it panics");
        quiet(db).await;
        assert_eq!(count(db).await, 0);
        let inside = db.transaction(async || {
            db.exec(INSERT, (-1, "before")).await?;
            let panicked = caught(db.exec_many(INSERT, panicking())).await;
            assert!(panicked.is_none(), "it panics");
            Ok::<_, Error>(())
        });
        // Before the first chunk was sent nothing has happened, and the transaction goes on.
        match (at, inside.await) {
            (5, committed) => committed.unwrap(),
            (_, failed) => {
                // MySQL's connection was closed, because a call was dropped on it.
                let kind = failed.unwrap_err().kind();
                assert!(
                    matches!(kind, Kind::Doomed | Kind::TransactionLost),
                    "{kind:?}"
                );
            }
        }
        quiet(db).await;
        assert_eq!(count(db).await, i64::from(at == 5));
        empty(db).await;
    }
}

/// Awaits a future; `None` if it panics.
async fn caught<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = Some(Box::pin(future));
    std::future::poll_fn(|cx| {
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| {
            future
                .as_mut()
                .expect("not polled after its end")
                .as_mut()
                .poll(cx)
        }));
        match polled {
            Ok(polled) => polled.map(Some),
            Err(_) => {
                future = None;
                Poll::Ready(None)
            }
        }
    })
    .await
}

pub(crate) async fn dropped_call_leaves_nothing(db: &Db) {
    for polls in [1, 3, 10, 30] {
        let mut many = Box::pin(db.exec_many(INSERT, sets(30_000)));
        for _ in 0..polls {
            let is_over = std::future::poll_fn(|cx| Poll::Ready(many.as_mut().poll(cx).is_ready()));
            assert!(!is_over.await, "30,000 rows take more polls");
            tokio::task::yield_now().await;
        }
        drop(many);
        quiet(db).await;
        assert_eq!(count(db).await, 0, "after {polls} polls");
    }
}

/// Yields sets, and is pending before every third.
struct Slow {
    sets: VecDeque<Result<(i64, String)>>,
    polls: u64,
}

impl Stream for Slow {
    type Item = Result<(i64, String)>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.polls += 1;
        if self.polls.is_multiple_of(3) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(self.sets.pop_front())
    }
}

pub(crate) async fn stream_is_written_from_a_spawned_task(db: &Db) {
    for size in SIZES {
        let own = db.clone();
        let slow = Slow {
            sets: sets(size).map(Ok).collect(),
            polls: 0,
        };
        let task = cenote::spawn(async move { own.exec_many_stream(INSERT, slow).await });
        assert_eq!(
            task.await.unwrap().unwrap().rows_affected,
            size.unsigned_abs()
        );
        assert_eq!(count(db).await, size);
        empty(db).await;

        let broken = sets(size)
            .map(Ok)
            .chain([Err(Error::other("the source is gone"))]);
        let slow = Slow {
            sets: broken.collect(),
            polls: 0,
        };
        let error = db.exec_many_stream(INSERT, slow).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Other);
        assert_eq!(error.set_index(), Some(size.unsigned_abs()), "{error}");
        assert_eq!(count(db).await, 0);
    }
    quiet(db).await;
}

pub(crate) async fn statement_and_connection_take_sets(db: &Db) {
    let statement = db.prepare(INSERT).await.unwrap();
    assert_eq!(
        statement
            .exec_many(sets(9_000))
            .await
            .unwrap()
            .rows_affected,
        9_000
    );
    let failed = statement.exec_many(failing(9_000)).await.unwrap_err();
    assert_eq!(failed.set_index(), Some(0));
    drop(statement);
    assert_eq!(count(db).await, 9_000);
    empty(db).await;
    let connection = db.connection().await.unwrap();
    connection.exec_many(INSERT, sets(9_000)).await.unwrap();
    assert!(!connection.in_transaction());
    drop(connection);
    assert_eq!(count(db).await, 9_000);
    quiet(db).await;
}

/// Runs every promise on each of the handles that a function returns.
macro_rules! bulk_tests {
    ($handles:path: $($promise:ident)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $promise() {
            for held in $handles().await {
                $crate::bulk::$promise(&held.db).await;
            }
        }
    )*};
    ($handles:path) => {
        bulk_tests! { $handles:
            all_sets_are_written
            failed_set_undoes_all_and_is_named
            failed_call_dooms_its_transaction
            rows_come_in_the_order_of_the_sets
            panicking_input_leaves_nothing
            dropped_call_leaves_nothing
            stream_is_written_from_a_spawned_task
            statement_and_connection_take_sets
        }
    };
}

pub(crate) use bulk_tests;
