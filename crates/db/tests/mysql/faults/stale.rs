//! Prepared statements that the server does not know any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use cenote::driver::{Connection, Value};
use cenote::mysql::MysqlConnection;
use cenote::{Db, Error};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use crate::servers::{assert_whole, dsn_at, own_tables_at, port};

/// A proxy to the server that replaces the numbers of statements.
struct Spoiler {
    port: u16,
    faults: Arc<Faults>,
    accepting: AbortHandle,
}

struct Faults {
    /// How many of the next executions name an unknown statement.
    spoil: AtomicUsize,
    /// The code of the resulting error.
    code: AtomicU16,
}

const COM_STMT_EXECUTE: u8 = 0x17;
const ERR: u8 = 0xff;
/// The server's error code for that.
const UNKNOWN_STATEMENT: u16 = 1243;

impl Spoiler {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap().port();
        let faults = Arc::new(Faults {
            spoil: AtomicUsize::new(0),
            code: AtomicU16::new(UNKNOWN_STATEMENT),
        });
        let shared = Arc::clone(&faults);
        let accepting = spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", port())).await.unwrap();
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                let (asking, answering) = (Arc::clone(&shared), Arc::clone(&shared));
                spawn(async move {
                    let _ = carry(from_client, to_server, |body| asking.spoil(body)).await;
                });
                spawn(async move {
                    let _ = carry(from_server, to_client, |body| answering.rename(body)).await;
                });
            }
        });
        Spoiler {
            port: at,
            faults,
            accepting,
        }
    }

    fn spoil_next(&self) {
        self.spoil_so_many(1, UNKNOWN_STATEMENT);
    }

    fn spoil_so_many(&self, times: usize, code: u16) {
        self.faults.code.store(code, Ordering::SeqCst);
        self.faults.spoil.store(times, Ordering::SeqCst);
    }

    fn has_spoilt(&self) -> bool {
        self.faults.spoil.load(Ordering::SeqCst) == 0
    }
}

impl Faults {
    fn spoil(&self, request: &mut [u8]) {
        let less = |left: usize| left.checked_sub(1);
        if request.first() == Some(&COM_STMT_EXECUTE)
            && self
                .spoil
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less)
                .is_ok()
        {
            request[1..5].copy_from_slice(&0x7fff_ffff_u32.to_le_bytes());
        }
    }

    fn rename(&self, answer: &mut [u8]) {
        let [low, high] = UNKNOWN_STATEMENT.to_le_bytes();
        if answer.starts_with(&[ERR, low, high]) {
            let code = self.code.load(Ordering::SeqCst);
            answer[1..3].copy_from_slice(&code.to_le_bytes());
        }
    }
}

impl Drop for Spoiler {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "the network is no part of the program, and has its own tasks"
)]
fn spawn(task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
    tokio::task::spawn(task).abort_handle()
}

/// Carries packet by packet: four bytes of length and number, and what they announce.
async fn carry(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    change: impl Fn(&mut [u8]),
) -> std::io::Result<()> {
    loop {
        let mut head = [0; 4];
        from.read_exact(&mut head).await?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], 0]);
        let mut body = vec![0; usize::try_from(length).unwrap()];
        from.read_exact(&mut body).await?;
        change(&mut body);
        to.write_all(&head).await?;
        to.write_all(&body).await?;
        to.flush().await?;
    }
}

async fn prepared_so_far(db: &Db) -> u64 {
    let mut link = db.pool().unwrap().acquire().await.unwrap();
    let own = link.driver().as_any().downcast_mut::<MysqlConnection>();
    own.expect("it is MySQL's").prepared_statements()
}

/// C-009
#[tokio::test]
async fn statement_forgotten_by_the_server_is_prepared_again_once() {
    let spoiler = Spoiler::new().await;
    let db = Db::builder(&dsn_at(spoiler.port))
        .max(1)
        .open()
        .await
        .unwrap();
    let ask = async |n: i64| db.query_as_one::<i64>("SELECT ? + 1", (n,)).await;
    assert_eq!(ask(1).await.unwrap(), 2);
    assert_eq!(prepared_so_far(&db).await, 1);
    for n in 2..5 {
        spoiler.spoil_next();
        assert_eq!(ask(n).await.unwrap(), n + 1);
        assert!(spoiler.has_spoilt());
        assert_eq!(prepared_so_far(&db).await, u64::try_from(n).unwrap());
    }
    assert_eq!(ask(9).await.unwrap(), 10);
    assert_eq!(prepared_so_far(&db).await, 4);
    // The same for a stream.
    spoiler.spoil_next();
    let mut rows = db.stream("SELECT ? + 1", (6,)).await.unwrap();
    let row = rows.try_next().await.unwrap().unwrap();
    assert_eq!(row.get::<i64>(0).unwrap(), 7);
    assert!(spoiler.has_spoilt());
    drop(rows);
    assert_whole(&db).await;
}

#[tokio::test]
async fn statement_forgotten_in_a_transaction_only_fails_its_call() {
    let spoiler = Spoiler::new().await;
    let db = own_tables_at(&dsn_at(spoiler.port), |builder| builder.max(1)).await;
    db.exec("CREATE TABLE t (n INT)", ()).await.unwrap();
    let insert = async |n: i64| db.exec("INSERT INTO t VALUES (?)", (n,)).await;
    insert(0).await.unwrap();
    let outcome: Result<(), Error> = db
        .transaction(async || {
            insert(1).await?;
            spoiler.spoil_next();
            let error = insert(2).await.unwrap_err();
            assert_eq!(error.code(), Some(1243), "{error}");
            insert(3).await?;
            // The same for a stream.
            let ask = "SELECT n FROM t WHERE n > ?";
            db.query(ask, (0,)).await?;
            spoiler.spoil_next();
            let error = db.stream(ask, (0,)).await.unwrap_err();
            assert_eq!(error.code(), Some(1243), "{error}");
            let mut rows = db.stream(ask, (0,)).await?;
            while rows.try_next().await?.is_some() {}
            Ok(())
        })
        .await;
    outcome.unwrap();
    let rows = db.query("SELECT n FROM t ORDER BY n", ()).await.unwrap();
    let rows: Vec<_> = rows.iter().map(|row| row.value(0).unwrap()).collect();
    assert_eq!(rows, [0, 1, 3].map(Value::Int));
    assert_whole(&db).await;
}

#[tokio::test]
async fn a_write_that_never_ran_is_run_once_more_and_not_twice() {
    let spoiler = Spoiler::new().await;
    let db = own_tables_at(&dsn_at(spoiler.port), |builder| builder.max(1)).await;
    db.exec("CREATE TABLE t (n INT)", ()).await.unwrap();
    let insert = async |n: i64| db.exec("INSERT INTO t VALUES (?)", (n,)).await;
    insert(0).await.unwrap();
    for code in [1243, 1615, 2057] {
        let n = i64::from(code);
        spoiler.spoil_so_many(1, code);
        insert(n).await.unwrap();
        spoiler.spoil_so_many(2, code);
        let error = insert(-1).await.unwrap_err();
        assert_eq!(error.code(), Some(n), "{error}");
        assert!(spoiler.has_spoilt());
        let rows: Vec<i64> = db
            .query_as("SELECT n FROM t WHERE n = ?", (n,))
            .await
            .unwrap();
        assert_eq!(rows, [n]);
    }
    // Another error is no reason.
    spoiler.spoil_so_many(1, 1210);
    assert_eq!(insert(-1).await.unwrap_err().code(), Some(1210));
    let all: i64 = db.query_as_one("SELECT COUNT(*) FROM t", ()).await.unwrap();
    assert_eq!(all, 4);
    assert_whole(&db).await;
}

/// The driver's own counts are what the tests above rely on.
#[tokio::test]
async fn the_driver_counts_what_it_prepares() {
    let db = Db::builder(&dsn_at(port())).max(1).open().await.unwrap();
    let mut link = db.pool().unwrap().acquire().await.unwrap();
    let connection: &mut dyn Connection = link.driver();
    for _ in 0..2 {
        connection.prepare("SELECT ?").await.unwrap();
    }
    let own = connection
        .as_any()
        .downcast_mut::<MysqlConnection>()
        .unwrap();
    assert_eq!((own.prepared_statements(), own.kept_statements()), (1, 1));
}
