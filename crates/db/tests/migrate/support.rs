//! Databases of one test each, and what the tests ask them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cenote::migrate::{Migrations, State};
use cenote::{Builder, Db};
use tempfile::TempDir;

/// How long anything may take before a test fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(60);

/// An empty database, which any number of handles can open.
pub(crate) struct TestDatabase {
    dsn: String,
    option: Option<(&'static str, String)>,
    _folder: Option<TempDir>,
}

impl TestDatabase {
    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        TestDatabase {
            dsn: format!("sqlite:{}", folder.path().join("test.db").display()),
            option: None,
            _folder: Some(folder),
        }
    }

    #[cfg(feature = "postgres")]
    pub(crate) async fn postgres() -> Self {
        TestDatabase::on_server("CENOTE_TEST_POSTGRES", "SCHEMA", "search_path").await
    }

    #[cfg(feature = "mysql")]
    pub(crate) async fn mysql() -> Self {
        TestDatabase::on_server("CENOTE_TEST_MARIADB", "DATABASE", "dbname").await
    }

    #[cfg(any(feature = "postgres", feature = "mysql"))]
    async fn on_server(variable: &str, space: &str, option: &'static str) -> Self {
        let dsn = variable_of_script(variable);
        let name = unique("migrate");
        let maker = Db::builder(&dsn).max(1).open().await.unwrap();
        let create = format!("CREATE {space} {name}");
        maker.exec(&create, ()).await.unwrap();
        maker.close().await.unwrap();
        TestDatabase {
            dsn,
            option: Some((option, name)),
            _folder: None,
        }
    }

    /// A schema of the PostgreSQL server, through its ODBC driver.
    #[cfg(all(feature = "postgres", feature = "odbc"))]
    pub(crate) async fn odbc() -> Self {
        use cenote::driver::Dsn;
        let native = TestDatabase::postgres().await;
        let (_, schema) = native.option.unwrap();
        let dsn = Dsn::parse(&native.dsn).unwrap();
        let credentials = dsn.credentials();
        let folders = std::fs::read_dir("/usr/lib").unwrap();
        let library = folders
            .filter_map(|entry| Some(entry.ok()?.path().join("odbc/psqlodbcw.so")))
            .find(|path| path.exists())
            .expect("ci/test.sh installs odbc-postgresql");
        TestDatabase {
            dsn: format!(
                "odbc:Driver={};Server=127.0.0.1;Port={};Database=cenote;UID={};PWD={};\
                 ConnSettings={{SET search_path TO {schema}}}",
                library.display(),
                dsn.option("port").unwrap(),
                credentials.user.unwrap(),
                credentials.password.unwrap().expose()
            ),
            option: None,
            _folder: None,
        }
    }

    pub(crate) fn dsn(&self) -> &str {
        &self.dsn
    }

    pub(crate) async fn open(&self) -> Db {
        self.open_with(|builder| builder.max(2)).await
    }

    pub(crate) async fn open_with(&self, describe: impl FnOnce(Builder) -> Builder) -> Db {
        describe(self.builder()).open().await.unwrap()
    }

    pub(crate) fn builder(&self) -> Builder {
        let builder = Db::builder(&self.dsn);
        match &self.option {
            Some((name, value)) => builder.option(*name, value.clone()),
            None => builder,
        }
    }
}

/// What the script says that has started the server.
#[cfg(any(feature = "postgres", feature = "mysql"))]
fn variable_of_script(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!(
            "{name} is not set: run ci/test.sh, or \
             ci/postgres.sh run -- ci/mariadb.sh run -- cargo test …"
        )
    })
}

pub(crate) fn unique(what: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // Relaxed: it only has to be unique.
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{what}_{}_{n}", std::process::id())
}

/// Fails a test instead of letting it hang.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, future).await;
    done.unwrap_or_else(|_| panic!("it hangs: {what}"))
}

/// Waits for what happens on a server or in another process.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let mut looks = tokio::time::interval(Duration::from_millis(5));
    soon(what, async {
        while !is_so().await {
            looks.tick().await;
        }
    })
    .await;
}

/// Forty migrations: the first creates `log`, and each writes its number there and creates a
/// table of its own.
pub(crate) fn forty() -> Migrations {
    let files = (1..=40).map(|n| {
        let first = match n {
            1 => "CREATE TABLE log (n INTEGER NOT NULL);\n",
            _ => "",
        };
        let sql = format!(
            "{first}-- number {n}\nINSERT INTO log VALUES ({n});\nCREATE TABLE t{n} (a INTEGER);\n"
        );
        (format!("V{n}__number_{n}.sql"), sql)
    });
    Migrations::from_files(files).unwrap()
}

pub(crate) fn files(files: &[(&str, &str)]) -> Migrations {
    Migrations::from_files(files.iter().copied()).unwrap()
}

pub(crate) async fn numbers(db: &Db, sql: &str) -> Vec<i64> {
    let numbers: Vec<(i64,)> = db.query_as(sql, ()).await.unwrap();
    numbers.into_iter().map(|(number,)| number).collect()
}

/// The versions that the history has.
pub(crate) async fn history(db: &Db) -> Vec<i64> {
    numbers(
        db,
        "SELECT version FROM refinery_schema_history ORDER BY version",
    )
    .await
}

pub(crate) async fn has_table(db: &Db, table: &str) -> bool {
    let sql = format!("SELECT 1 FROM {table} WHERE 1 = 0");
    db.query(&sql, ()).await.is_ok()
}

/// The files that are pending.
pub(crate) async fn pending(db: &Db, migrations: &Migrations) -> Vec<String> {
    let status = migrations.status(db).await.unwrap();
    let pending = status.entries.into_iter();
    pending
        .filter(|entry| entry.state == State::Pending)
        .map(|entry| entry.file)
        .collect()
}
