//! What `Db` makes of ODBC sources: values, scripts, streams; and what it does where ODBC leaves it in doubt.

mod bulk;
mod charsets;
mod doubt;
mod kept;
mod statements;

use cenote::{Builder, Db};
use tempfile::TempDir;

use crate::sources::{mariadb_dsn, own_database, own_schema, postgres_dsn, sqlite_dsn};

/// A database of its own, and what has to live as long.
pub(crate) struct Source {
    pub(crate) db: Db,
    pub(crate) is_sqlite: bool,
    _folder: Option<TempDir>,
}

/// One of each kind.
pub(crate) async fn sources(describe: impl Fn(Builder) -> Builder) -> [Source; 2] {
    [sqlite(&describe).await, postgres(&describe).await]
}

pub(crate) async fn sqlite(describe: impl Fn(Builder) -> Builder) -> Source {
    let folder = tempfile::tempdir().unwrap();
    let dsn = sqlite_dsn(&folder.path().join("test.db"));
    Source {
        db: describe(Db::builder(&dsn)).open().await.unwrap(),
        is_sqlite: true,
        _folder: Some(folder),
    }
}

pub(crate) async fn postgres(describe: impl Fn(Builder) -> Builder) -> Source {
    let dsn = own_schema(&postgres_dsn()).await;
    Source {
        db: describe(Db::builder(&dsn)).open().await.unwrap(),
        is_sqlite: false,
        _folder: None,
    }
}

/// One whose statements can commit by themselves.
pub(crate) async fn mariadb(describe: impl Fn(Builder) -> Builder) -> Db {
    let dsn = own_database(&mariadb_dsn()).await;
    describe(Db::builder(&dsn)).open().await.unwrap()
}

/// Waits until all connections are back or gone.
pub(crate) async fn quiet(db: &Db) {
    let waiting = async {
        loop {
            let status = db.status();
            if status.active + status.creating == 0 && status.idle == status.total {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(std::time::Duration::from_secs(20), waiting).await;
    assert!(waited.is_ok(), "not all are back: {:?}", db.status());
}
