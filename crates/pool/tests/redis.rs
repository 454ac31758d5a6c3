//! The pool with a real client and a real server, which dies on the way.
//!
//! Every test starts a Redis of its own on a free loopback port. The path of the
//! server's program is in `CENOTE_TEST_REDIS_SERVER`; without that, it is looked
//! for on the PATH.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashMap;
use std::error::Error;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use cenote_pool::{AcquireError, DestroyReason, Info, Manager, Pool, Verdict};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, RedisError, RedisResult, cmd};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;

const TASKS: usize = 100;
const MAX: usize = 20;
/// Far more than any step takes, far less than a stuck build would.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_tasks_share_twenty_connections_and_lose_no_update() {
    const ROUNDS: u64 = 50;
    let mut server = Server::start().await;
    let pool = pool_of(&server);
    let mut watcher = Connection::open(&server.client()).await.unwrap();

    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let pool = pool.clone();
        tasks.spawn(async move {
            let own_key = format!("task:{task}");
            for round in 1..=ROUNDS {
                let mut connection = pool.acquire().await.unwrap();
                connection.set(&own_key, round).await.unwrap();
                connection.incr("sum").await.unwrap();
                let own = connection.get(&own_key).await.unwrap();
                assert_eq!(own, round, "somebody else's answer");
            }
        });
    }
    let mut most_clients = 0;
    let all_done = async {
        loop {
            tokio::select! {
                task = tasks.join_next() => match task {
                    Some(task) => task.unwrap(),
                    None => break,
                },
                clients = clients_beside(&mut watcher) => {
                    most_clients = most_clients.max(clients);
                }
            }
        }
    };
    in_time("the hundred tasks", all_done).await;

    assert_eq!(watcher.get("sum").await.unwrap(), TASKS as u64 * ROUNDS);
    // None is closed before the end, so the last sample is the largest.
    most_clients = most_clients.max(clients_beside(&mut watcher).await);
    assert_eq!(most_clients, MAX, "connections that the server has seen");
    assert_settled(&pool).await;
    assert_eq!(pool.counters().created, MAX as u64);
    assert_eq!(pool.counters().acquired, TASKS as u64 * ROUNDS);

    pool.close_and_drain(PATIENCE).await.unwrap();
    in_time("the server to see the connections go", async {
        while clients_beside(&mut watcher).await > 0 {}
    })
    .await;
    server.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_server_that_returns_costs_errors_but_no_place_or_task() {
    let mut server = Server::start().await;
    let pool = pool_of(&server);
    let (progress, mut watch) = watch::channel(Progress::default());
    let progress = Arc::new(progress);

    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        tasks.spawn(work_until_stopped(pool.clone(), Arc::clone(&progress)));
    }
    let work = watch.wait_for(|progress| progress.successes() >= 2_000);
    drop(in_time("work on the first server", work).await.unwrap());

    server.kill().await;
    // All that were in use fail in the hands of their holders, and then those
    // that try to create new ones get the reason of the failure.
    let fail = watch.wait_for(|p| p.broken_in_use > 0 && p.refused >= 3);
    drop(in_time("errors that surface", fail).await.unwrap());
    in_time("every dead connection to be found and destroyed", async {
        until(|| {
            let status = pool.status();
            status.total == status.creating
        })
        .await;
    })
    .await;

    server.restart().await;
    let run_id = Connection::open(&server.client()).await.unwrap().run_id;
    let work = watch.wait_for(|progress| progress.on(&run_id) >= 2_000);
    drop(in_time("work on the second server", work).await.unwrap());

    progress.send_modify(|progress| progress.enough = true);
    in_time("the tasks to end", async {
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
    })
    .await;

    // What was answered with a success was done, once, and nothing else was.
    let progress = progress.borrow().clone();
    let mut connection = pool.acquire().await.unwrap();
    let sum = connection.get("sum").await.unwrap();
    assert_eq!(sum, progress.on(&run_id));
    drop(connection);

    assert_settled(&pool).await;
    let rejected = pool
        .counters()
        .destroyed_for(DestroyReason::ReleaseRejected);
    assert_eq!(rejected, progress.broken_in_use);
    assert!(pool.counters().create_failed >= progress.refused);
    assert!(pool.last_creation_error().is_none());

    pool.close_and_drain(PATIENCE).await.unwrap();
    let manager = pool.manager();
    assert_eq!(manager.made.load(Relaxed), manager.destroyed.load(Relaxed));
    server.kill().await;
}

/// What the tasks have lived through so far.
#[derive(Clone, Default, Debug)]
struct Progress {
    /// Successes by the server, which has another run id after a restart.
    by_server: HashMap<String, u64>,
    /// Commands that failed because the connection broke.
    broken_in_use: u64,
    /// Acquires that failed because no connection could be made.
    refused: u64,
    enough: bool,
}

impl Progress {
    fn successes(&self) -> u64 {
        self.by_server.values().sum()
    }

    fn on(&self, run_id: &str) -> u64 {
        self.by_server.get(run_id).copied().unwrap_or(0)
    }
}

/// Counts up on the server, and counts what came of it; goes on after every error.
async fn work_until_stopped(pool: Pool<Redis>, progress: Arc<watch::Sender<Progress>>) {
    while !progress.borrow().enough {
        match pool.acquire().await {
            Ok(mut connection) => {
                let answer = connection.incr("sum").await;
                progress.send_modify(|progress| match answer {
                    Ok(_) => {
                        let server = progress.by_server.entry(connection.run_id.clone());
                        *server.or_default() += 1;
                    }
                    Err(error) => {
                        assert!(connection.broken, "unexpected: {error}");
                        progress.broken_in_use += 1;
                    }
                });
            }
            Err(AcquireError::Create(error)) => {
                // A real error, with the system's own reason in it.
                assert!(error.is_io_error(), "unexpected: {error}");
                progress.send_modify(|progress| progress.refused += 1);
            }
            Err(error) => panic!("unexpected: {error}"),
        }
    }
}

fn pool_of(server: &Server) -> Pool<Redis> {
    let manager = Redis {
        client: server.client(),
        made: AtomicU64::new(0),
        destroyed: AtomicU64::new(0),
    };
    Pool::builder(manager)
        .max(MAX)
        .backoff(Duration::from_millis(5), Duration::from_millis(50))
        .healthcheck_interval(Duration::from_millis(20))
        .build()
        .unwrap()
}

/// Nothing is out, nothing is lost, and the hooks agree with the counters.
async fn assert_settled(pool: &Pool<Redis>) {
    // A creation that was overtaken by a return, or a check of an idle
    // connection, may still be under way.
    in_time("the pool to come to rest", async {
        until(|| {
            let status = pool.status();
            status.total == status.idle
        })
        .await;
    })
    .await;
    let (status, counters) = (pool.status(), pool.counters());
    assert!(status.total <= MAX, "{status}");
    assert_eq!((status.waiting, status.reserved), (0, 0), "{status}");
    assert_eq!(counters.created, counters.destroyed + status.total as u64);
    let manager = pool.manager();
    assert_eq!(counters.created, manager.made.load(Relaxed));
    assert_eq!(counters.destroyed, manager.destroyed.load(Relaxed));
}

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(done) => done,
        Err(_) => panic!("waited in vain for {what}"),
    }
}

/// Looks again and again; the caller bounds it in time.
async fn until(done: impl Fn() -> bool) {
    let mut again = tokio::time::interval(Duration::from_millis(2));
    while !done() {
        again.tick().await;
    }
}

/// How many connections the server has, less the one that asks.
async fn clients_beside(watcher: &mut Connection) -> usize {
    let list: String = watcher.run(cmd("CLIENT").arg("LIST")).await.unwrap();
    list.lines().count() - 1
}

// ---- the client -------------------------------------------------------------

struct Redis {
    client: Client,
    made: AtomicU64,
    destroyed: AtomicU64,
}

impl Manager for Redis {
    type Resource = Connection;
    type Error = RedisError;

    async fn create(&self) -> RedisResult<Connection> {
        let connection = Connection::open(&self.client).await?;
        self.made.fetch_add(1, Relaxed);
        Ok(connection)
    }

    async fn destroy(&self, _: Connection) -> RedisResult<()> {
        self.destroyed.fetch_add(1, Relaxed);
        Ok(())
    }

    async fn healthcheck(&self, connection: &mut Connection, _: Info<'_>) -> RedisResult<bool> {
        Ok(connection.run::<String>(&cmd("PING")).await? == "PONG")
    }

    async fn before_acquire(&self, connection: &mut Connection, _: Info<'_>) -> RedisResult<bool> {
        Ok(!connection.broken)
    }

    fn before_release(&self, connection: &mut Connection, _: Info<'_>) -> Verdict {
        if connection.broken {
            Verdict::Discard
        } else {
            Verdict::Keep
        }
    }
}

/// A connection that knows which server it is to, and whether it broke.
struct Connection {
    inner: MultiplexedConnection,
    run_id: String,
    broken: bool,
}

impl Connection {
    async fn open(client: &Client) -> RedisResult<Connection> {
        // The driver's own limit is half a second, which a busy machine can miss.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        let inner = client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        let mut connection = Connection {
            inner,
            run_id: String::new(),
            broken: false,
        };
        let info: String = connection.run(cmd("INFO").arg("server")).await?;
        let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:"));
        connection.run_id = run_id.unwrap_or_default().to_owned();
        Ok(connection)
    }

    async fn set(&mut self, key: &str, value: u64) -> RedisResult<()> {
        self.run(cmd("SET").arg(key).arg(value)).await
    }

    async fn get(&mut self, key: &str) -> RedisResult<u64> {
        self.run(cmd("GET").arg(key)).await
    }

    async fn incr(&mut self, key: &str) -> RedisResult<u64> {
        self.run(cmd("INCR").arg(key)).await
    }

    async fn run<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        let answer = command.query_async(&mut self.inner).await;
        if let Err(error) = &answer {
            self.broken |= error.is_unrecoverable_error();
        }
        answer
    }
}

// ---- the server -------------------------------------------------------------

/// A Redis that lives as long as this value, unless it is killed before.
struct Server {
    port: u16,
    dir: PathBuf,
    running: Option<Running>,
}

struct Running {
    child: Child,
    /// Held, so that the server can go on writing its log.
    _log: Lines<BufReader<ChildStdout>>,
}

impl Server {
    async fn start() -> Server {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let number = NEXT.fetch_add(1, Relaxed);
        let name = format!("cenote-redis-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        let mut server = Server {
            port: 0,
            dir,
            running: None,
        };
        // Below the ports that outgoing connections get: a client that calls a
        // server which is down must not by chance be given the port it calls.
        let first = 15_000 + (std::process::id() % 14_000) as u16;
        for port in (first..).step_by(7).take(100) {
            server.port = port;
            if is_free(port) && server.run().await.is_ok() {
                return server;
            }
        }
        panic!("no port for redis-server: {:?}", server.run().await.err());
    }

    /// Starts the program and waits until it says that it is ready.
    async fn run(&mut self) -> Result<(), Box<dyn Error>> {
        let program = std::env::var_os("CENOTE_TEST_REDIS_SERVER");
        let program = program.unwrap_or_else(|| "redis-server".into());
        let mut child = Command::new(&program)
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
            .arg("--dir")
            .arg(&self.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| {
                let program = program.display();
                panic!("cannot start {program}: {error}. ./ci/test.sh installs it and runs this.")
            });
        let mut log = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut said = String::new();
        let ready = async {
            while let Some(line) = log.next_line().await? {
                said = line;
                if said.contains("Ready to accept connections") {
                    return Ok(());
                }
            }
            Err(format!("redis-server ended: {said}").into())
        };
        let ready: Result<(), Box<dyn Error>> = in_time("redis-server to start", ready).await;
        ready?;
        self.running = Some(Running { child, _log: log });
        Ok(())
    }

    /// Kills it on the spot: it says good-bye to nobody.
    async fn kill(&mut self) {
        let mut running = self.running.take().expect("it runs");
        running.child.kill().await.unwrap();
    }

    /// Starts it again, at the same address, without its data.
    async fn restart(&mut self) {
        self.run().await.unwrap();
    }

    fn client(&self) -> Client {
        Client::open(format!("redis://127.0.0.1:{}", self.port)).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The child goes with `running`. A directory that stays behind is no failure.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}
