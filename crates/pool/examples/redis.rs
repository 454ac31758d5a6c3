//! A pool of Redis connections: 100 tasks share 20 of them.
//!
//! ```text
//! cargo run -p cenote-pool --example redis -- redis://127.0.0.1:6379
//! ```
//!
//! Without an argument it uses `REDIS_URL`, or that address.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use cenote_pool::{Info, Manager, Pool, Verdict};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{AsyncCommands, Client, Cmd, Pipeline, RedisError, RedisFuture, RedisResult, Value};

const TASKS: usize = 100;
const CONNECTIONS: usize = 20;
const ROUNDS: usize = 50;

/// How the pool creates and checks connections.
struct Redis {
    client: Client,
}

impl Manager for Redis {
    type Resource = Connection;
    type Error = RedisError;

    async fn create(&self) -> RedisResult<Connection> {
        Ok(Connection {
            inner: self.client.get_multiplexed_async_connection().await?,
            broken: false,
        })
    }

    /// Runs in the background on idle connections, so that a round trip delays nobody.
    async fn healthcheck(&self, connection: &mut Connection, _: Info<'_>) -> RedisResult<bool> {
        let answer: String = redis::cmd("PING").query_async(connection).await?;
        Ok(answer == "PONG")
    }

    /// Runs in every acquire, so that it must not need a round trip.
    async fn before_acquire(&self, connection: &mut Connection, _: Info<'_>) -> RedisResult<bool> {
        Ok(!connection.broken)
    }

    /// Keeps a broken connection from the next holder.
    fn before_release(&self, connection: &mut Connection, _: Info<'_>) -> Verdict {
        if connection.broken {
            Verdict::Discard
        } else {
            Verdict::Keep
        }
    }
}

/// A connection that records whether it broke.
///
/// The driver's own connection can be shared, but commands that block (`BLPOP`) or change its state
/// (`WATCH`, `SELECT`) affect all who share it. So each holder gets one of its own. A dropped command does
/// no harm: the driver discards the late answer.
struct Connection {
    inner: MultiplexedConnection,
    broken: bool,
}

impl Connection {
    fn note<T>(&mut self, answer: RedisResult<T>) -> RedisResult<T> {
        if let Err(error) = &answer {
            self.broken |= error.is_unrecoverable_error() || error.is_timeout();
        }
        answer
    }
}

/// Makes all commands of the driver available.
impl ConnectionLike for Connection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            let answer = self.inner.req_packed_command(cmd).await;
            self.note(answer)
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move {
            let inner = &mut self.inner;
            let answer = inner.req_packed_commands(pipeline, offset, count).await;
            self.note(answer)
        })
    }

    fn get_db(&self) -> i64 {
        self.inner.get_db()
    }
}

/// Acquires a connection for each round.
async fn work(pool: Pool<Redis>, key: String) -> Result<(), Box<dyn Error + Send + Sync>> {
    for _ in 0..ROUNDS {
        let mut connection = pool.acquire().await?;
        let () = connection.incr(&key, 1).await?;
    }
    Ok(())
}

async fn run(url: &str) -> Result<(), Box<dyn Error + Send + Sync>> {
    let manager = Redis {
        client: Client::open(url)?,
    };
    // `open` creates the first connection, so a wrong address fails here.
    let pool = Pool::builder(manager)
        .min(1)
        .max(CONNECTIONS)
        .acquire_timeout(Duration::from_secs(10))
        .create_timeout(Duration::from_secs(5))
        .healthcheck_interval(Duration::from_secs(30))
        .open()
        .await?;

    let key = format!("cenote:example:{}", std::process::id());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..TASKS {
        tasks.spawn(work(pool.clone(), key.clone()));
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }

    let mut connection = pool.acquire().await?;
    let sum: usize = connection.get_del(&key).await?;
    drop(connection);
    let made = pool.counters().created;
    println!(
        "{TASKS} tasks counted to {sum} over {made} connections: {}",
        pool.status()
    );
    pool.close_and_drain(Duration::from_secs(5)).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    let url = std::env::args()
        .nth(1)
        .or_else(|| std::env::var("REDIS_URL").ok())
        .unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned());
    match run(&url).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One line with all causes, but without the address, which may contain a password.
            let mut line = format!("redis: {error}");
            let mut cause = error.source();
            while let Some(error) = cause {
                let why = error.to_string();
                if !line.ends_with(&why) {
                    line = format!("{line}: {why}");
                }
                cause = error.source();
            }
            eprintln!("{line} (the address comes from the argument or REDIS_URL)");
            ExitCode::FAILURE
        }
    }
}
