//! Operations on a database, which the tests drop half-way.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;

use cenote::driver::DatabaseError;
use cenote::{Db, Error, Result, TransactionOptions};
use cenote_testkit::poll::yield_now;

const ONE: &str = "INSERT INTO t VALUES (1)";
const TWO: &str = "INSERT INTO t VALUES (2)";

/// What an operation works with, and what it records.
pub(crate) struct Stage<'d> {
    pub(crate) db: &'d Db,
    /// Set once rows may be committed, even if the operation is dropped.
    pub(crate) may_commit: Cell<bool>,
}

impl<'d> Stage<'d> {
    pub(crate) fn new(db: &'d Db) -> Self {
        Stage {
            db,
            may_commit: Cell::new(false),
        }
    }

    fn may_commit(&self) {
        self.may_commit.set(true);
    }

    /// A statement that changes the session and nothing else.
    fn session_change(&self) -> &'static str {
        match self.db.driver_name() {
            "sqlite" => "PRAGMA cache_size = 77",
            _ => "SET a = 1",
        }
    }
}

type Doing<'s> = Pin<Box<dyn Future<Output = Result<()>> + 's>>;

/// One operation on a database.
pub(crate) struct Operation {
    pub(crate) name: &'static str,
    pub(crate) run: for<'s> fn(&'s Stage<'_>) -> Doing<'s>,
    /// The rows in the table after the operation.
    pub(crate) gives: &'static [i64],
    /// All rows are committed, or none.
    pub(crate) is_atomic: bool,
    /// It works outside of coroutines.
    pub(crate) is_free: bool,
    /// It works in a transaction of the same coroutine, as a part of it.
    pub(crate) nests: bool,
}

const OPERATION: Operation = Operation {
    name: "nothing",
    run: |_| Box::pin(async { Ok(()) }),
    gives: &[],
    is_atomic: true,
    is_free: false,
    nests: false,
};

pub(crate) const OPERATIONS: &[Operation] = &[
    Operation {
        name: "begin",
        run: |stage| Box::pin(begin(stage)),
        ..OPERATION
    },
    Operation {
        name: "commit",
        run: |stage| Box::pin(commit(stage)),
        gives: &[1, 2],
        ..OPERATION
    },
    Operation {
        name: "rollback",
        run: |stage| Box::pin(rollback(stage)),
        ..OPERATION
    },
    Operation {
        name: "savepoint that is released",
        run: |stage| Box::pin(savepoint(stage, true)),
        gives: &[1, 2],
        ..OPERATION
    },
    Operation {
        name: "savepoint that is rolled back",
        run: |stage| Box::pin(savepoint(stage, false)),
        gives: &[1],
        ..OPERATION
    },
    Operation {
        name: "exec",
        run: |stage| Box::pin(exec(stage)),
        gives: &[1],
        is_free: true,
        nests: true,
        ..OPERATION
    },
    Operation {
        name: "exec_many",
        run: |stage| Box::pin(exec_many(stage)),
        gives: &[1, 2],
        is_atomic: false,
        is_free: true,
        nests: true,
    },
    Operation {
        name: "batch",
        run: |stage| Box::pin(batch(stage)),
        gives: &[1, 2],
        is_atomic: false,
        is_free: true,
        nests: true,
    },
    Operation {
        name: "query",
        run: |stage| Box::pin(query(stage)),
        is_free: true,
        nests: true,
        ..OPERATION
    },
    Operation {
        name: "ping",
        run: |stage| Box::pin(async { stage.db.ping().await }),
        is_free: true,
        nests: true,
        ..OPERATION
    },
    Operation {
        name: "prepare",
        run: |stage| Box::pin(prepare(stage)),
        gives: &[1],
        is_free: true,
        nests: true,
        ..OPERATION
    },
    Operation {
        name: "stream",
        run: |stage| Box::pin(stream(stage)),
        is_free: true,
        nests: true,
        ..OPERATION
    },
    Operation {
        name: "stream in a transaction",
        run: |stage| Box::pin(stream_in_transaction(stage)),
        gives: &[1],
        is_free: true,
        nests: true,
        ..OPERATION
    },
    Operation {
        name: "transaction",
        run: |stage| Box::pin(transaction(stage)),
        gives: &[1, 2],
        is_free: true,
        nests: true,
        ..OPERATION
    },
    Operation {
        name: "nested transactions",
        run: |stage| Box::pin(nested(stage)),
        gives: &[1, 2],
        is_free: true,
        nests: true,
        ..OPERATION
    },
    Operation {
        name: "a transaction around one that fails",
        run: |stage| Box::pin(failing(stage)),
        gives: &[1],
        is_free: true,
        nests: true,
        ..OPERATION
    },
    Operation {
        name: "retry_transaction",
        run: |stage| Box::pin(retry(stage)),
        gives: &[2],
        is_free: true,
        ..OPERATION
    },
    Operation {
        name: "pin",
        run: |stage| Box::pin(pin(stage)),
        gives: &[1],
        ..OPERATION
    },
    Operation {
        name: "connection",
        run: |stage| Box::pin(connection(stage)),
        gives: &[1],
        is_free: true,
        ..OPERATION
    },
    Operation {
        name: "outside",
        run: |stage| Box::pin(outside(stage)),
        gives: &[1],
        is_free: true,
        ..OPERATION
    },
    Operation {
        name: "raw transaction",
        run: |stage| Box::pin(raw(stage)),
        gives: &[1, 2],
        ..OPERATION
    },
    Operation {
        name: "touched session",
        run: |stage| Box::pin(session(stage)),
        gives: &[1],
        ..OPERATION
    },
    Operation {
        name: "everything at once",
        run: |stage| Box::pin(everything(stage)),
        ..OPERATION
    },
];

async fn begin(stage: &Stage<'_>) -> Result<()> {
    let tx = stage.db.begin().await?;
    tx.exec(ONE, ()).await?;
    yield_now().await;
    drop(tx);
    Ok(())
}

async fn commit(stage: &Stage<'_>) -> Result<()> {
    let tx = stage.db.begin().await?;
    stage.db.exec(ONE, ()).await?;
    tx.exec(TWO, ()).await?;
    stage.may_commit();
    tx.commit().await
}

async fn rollback(stage: &Stage<'_>) -> Result<()> {
    let tx = stage.db.begin().await?;
    tx.exec(ONE, ()).await?;
    tx.rollback().await
}

async fn savepoint(stage: &Stage<'_>, release: bool) -> Result<()> {
    let mut tx = stage.db.begin().await?;
    tx.exec(ONE, ()).await?;
    let savepoint = tx.savepoint().await?;
    savepoint.exec(TWO, ()).await?;
    match release {
        true => savepoint.commit().await?,
        false => savepoint.rollback().await?,
    }
    stage.may_commit();
    tx.commit().await
}

async fn exec(stage: &Stage<'_>) -> Result<()> {
    stage.may_commit();
    stage.db.exec(ONE, ()).await.map(drop)
}

async fn exec_many(stage: &Stage<'_>) -> Result<()> {
    stage.may_commit();
    let sets = [(1,), (2,)];
    let many = stage.db.exec_many("INSERT INTO t VALUES (?)", sets);
    many.await.map(drop)
}

async fn batch(stage: &Stage<'_>) -> Result<()> {
    stage.may_commit();
    let mut batch = stage.db.batch();
    batch.exec(ONE, ());
    let many = batch.query("SELECT * FROM many", ());
    batch.exec(TWO, ());
    let mut results = batch.run().await?;
    results.check()?;
    assert_eq!(results.take(many)?.len(), 5);
    Ok(())
}

async fn query(stage: &Stage<'_>) -> Result<()> {
    let rows = stage.db.query("SELECT * FROM many", ()).await?;
    assert_eq!(rows.len(), 5);
    Ok(())
}

async fn prepare(stage: &Stage<'_>) -> Result<()> {
    let statement = stage.db.prepare(ONE).await?;
    yield_now().await;
    stage.may_commit();
    statement.exec(()).await.map(drop)
}

/// Reads all rows, and yields after the first.
async fn read(db: &Db) -> Result<usize> {
    let mut rows = db.stream("SELECT * FROM many", ()).await?;
    let mut count = 0;
    while rows.try_next().await?.is_some() {
        count += 1;
        yield_now().await;
    }
    Ok(count)
}

async fn stream(stage: &Stage<'_>) -> Result<()> {
    assert_eq!(read(stage.db).await?, 5);
    Ok(())
}

async fn stream_in_transaction(stage: &Stage<'_>) -> Result<()> {
    let db = stage.db;
    db.transaction(async || {
        db.exec(ONE, ()).await?;
        assert_eq!(read(db).await?, 5);
        // A stream that is not read to its end.
        let mut rows = db.stream("SELECT * FROM many", ()).await?;
        rows.try_next().await?;
        drop(rows);
        stage.may_commit();
        Ok(())
    })
    .await
}

async fn transaction(stage: &Stage<'_>) -> Result<()> {
    let db = stage.db;
    db.transaction(async || {
        db.exec(ONE, ()).await?;
        yield_now().await;
        db.exec(TWO, ()).await?;
        stage.may_commit();
        Ok(())
    })
    .await
}

async fn nested(stage: &Stage<'_>) -> Result<()> {
    let db = stage.db;
    db.transaction(async || {
        db.exec(ONE, ()).await?;
        db.transaction(async || {
            db.transaction(async || db.exec(TWO, ()).await).await?;
            yield_now().await;
            Ok(())
        })
        .await?;
        stage.may_commit();
        Ok(())
    })
    .await
}

async fn failing(stage: &Stage<'_>) -> Result<()> {
    let db = stage.db;
    db.transaction(async || {
        let inner: Result<()> = db
            .transaction(async || {
                db.exec(TWO, ()).await?;
                Err(Error::other("no"))
            })
            .await;
        // Any other error is the operation's own.
        if inner
            .as_ref()
            .is_err_and(|error| error.kind() != cenote::Kind::Other)
        {
            return inner;
        }
        db.exec(ONE, ()).await?;
        stage.may_commit();
        Ok(())
    })
    .await
}

async fn retry(stage: &Stage<'_>) -> Result<()> {
    let db = stage.db;
    let attempts = Cell::new(0);
    let attempts = &attempts;
    let options = TransactionOptions::new().retries(3);
    options
        .on(db)
        .retry(async || {
            attempts.set(attempts.get() + 1);
            if attempts.get() == 1 {
                db.exec(ONE, ()).await?;
                let said = DatabaseError::new("could not serialize").with_sql_state("40001");
                return Err(Error::database(said));
            }
            db.exec(TWO, ()).await?;
            stage.may_commit();
            Ok(())
        })
        .await
}

async fn pin(stage: &Stage<'_>) -> Result<()> {
    let _pin = stage.db.pin().await?;
    stage.may_commit();
    stage.db.exec(ONE, ()).await?;
    yield_now().await;
    Ok(())
}

async fn connection(stage: &Stage<'_>) -> Result<()> {
    let mut connection = stage.db.connection().await?;
    connection.exec(stage.session_change(), ()).await?;
    let tx = connection.begin().await?;
    tx.exec(ONE, ()).await?;
    stage.may_commit();
    tx.commit().await?;
    yield_now().await;
    Ok(())
}

async fn outside(stage: &Stage<'_>) -> Result<()> {
    let outside = stage.db.outside();
    let done = outside.transaction(async || {
        outside.exec(ONE, ()).await?;
        stage.may_commit();
        Ok(())
    });
    done.await
}

async fn raw(stage: &Stage<'_>) -> Result<()> {
    let db = stage.db;
    db.exec("BEGIN", ()).await?;
    db.exec(ONE, ()).await?;
    yield_now().await;
    db.exec(TWO, ()).await?;
    stage.may_commit();
    db.exec("COMMIT", ()).await.map(drop)
}

async fn session(stage: &Stage<'_>) -> Result<()> {
    stage.db.exec(stage.session_change(), ()).await?;
    yield_now().await;
    stage.may_commit();
    stage.db.exec(ONE, ()).await.map(drop)
}

/// Ends with a transaction, a statement, a stream, a pin and a touched session open.
async fn everything(stage: &Stage<'_>) -> Result<()> {
    let db = stage.db;
    db.exec(stage.session_change(), ()).await?;
    let _pin = db.pin().await?;
    let mut tx = db.begin().await?;
    let statement = db.prepare(ONE).await?;
    statement.exec(()).await?;
    let savepoint = tx.savepoint().await?;
    savepoint.exec(TWO, ()).await?;
    let mut rows = savepoint.stream("SELECT * FROM many", ()).await?;
    rows.try_next().await?;
    yield_now().await;
    Ok(())
}

/// Returns what is wrong with the rows after an operation, if anything.
pub(crate) fn wrong_rows(
    operation: &Operation,
    stage: &Stage<'_>,
    done: Option<&Result<()>>,
    found: &[i64],
) -> Option<String> {
    let is_right = match done {
        Some(Ok(())) => found == operation.gives,
        // No operation fails unless it is dropped.
        Some(Err(_)) => false,
        None if !stage.may_commit.get() => found.is_empty(),
        None if operation.is_atomic => found.is_empty() || found == operation.gives,
        None => operation.gives.starts_with(found),
    };
    let wrong = || {
        format!(
            "done: {done:?}, found: {found:?}, may: {:?}",
            stage.may_commit
        )
    };
    (!is_right).then(wrong)
}
