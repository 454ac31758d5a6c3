//! Measures the wall time and the CPU time of one client library at one task, in a process of its own.
//!
//!     cenote-bench-postgres PEER TASK WAY COUNT [FLAVOR]
//!
//! | | |
//! |---|---|
//! | PEER | `cenote`, `tokio-postgres` (with deadpool's pool where there are several tasks), `sqlx`; for `one` also `socket`: no client library at all |
//! | TASK | `one` (one task, one statement over and over), `many` (64 tasks over 8 connections), `transaction` (begin, a statement, commit), `rows` (reads so many rows) |
//! | WAY | `unix` or `tcp`: both to the server of `ci/postgres.sh`, without TLS |
//! | FLAVOR | `threads` (default) or `current`: Tokio's scheduler |
//!
//! Prints `PEER TASK WAY WALL CPU`, in nanoseconds for each query, transaction or row. The CPU time is
//! this process' own, user and system. Connecting and warming up do not count.

mod peers;

use std::future::Future;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};

/// The statement that the peers run, and its answer to `n`.
pub const SQL: &str = "SELECT $1::int4 + 1";

/// The statement whose rows the peers read, with two columns.
pub const ROWS: &str = "SELECT n::int8, 'row ' || n FROM generate_series(1, $1::int4) n";

pub const TASKS: u64 = 64;
pub const CONNECTIONS: usize = 8;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The address of the server, in the parts that all peers need.
#[derive(Clone, Debug)]
pub struct Server {
    pub host: String,
    pub port: u16,
}

/// A client library under test.
pub trait Peer: Sized + Send + Sync + 'static {
    /// Opens a client with at most `connections` connections, either none or all of them opened.
    fn open(server: &Server, connections: usize) -> impl Future<Output = Outcome<Self>> + Send;

    /// Runs [`SQL`] `count` times in sequence.
    fn queries(&self, count: u64) -> impl Future<Output = Outcome<()>> + Send;

    /// Runs `count` transactions with [`SQL`] in sequence.
    fn transactions(&self, count: u64) -> impl Future<Output = Outcome<()>> + Send;

    /// Reads `count` rows of [`ROWS`], both columns of each.
    fn rows(&self, count: u64) -> impl Future<Output = Outcome<()>> + Send;
}

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [peer, task, way, count, flavor @ ..] = &words[..] else {
        return Err("PEER TASK WAY COUNT [FLAVOR]".into());
    };
    let mut runtime = match flavor {
        [] | ["threads"] => tokio::runtime::Builder::new_multi_thread(),
        ["current"] => tokio::runtime::Builder::new_current_thread(),
        _ => return Err("FLAVOR is threads or current".into()),
    };
    let runtime = runtime.enable_all().build()?;
    let server = Server::by(way)?;
    let count: u64 = count.parse()?;
    // Spawned, as the tasks of a server are.
    let measured = match *peer {
        "cenote" => runtime.block_on(spawned::<peers::cenote::Cenote>(server, task, count)),
        "tokio-postgres" if *task == "one" || *task == "rows" => {
            runtime.block_on(spawned::<peers::tokio_postgres::Bare>(server, task, count))
        }
        "tokio-postgres" => runtime.block_on(spawned::<peers::tokio_postgres::Pooled>(
            server, task, count,
        )),
        "socket" => runtime.block_on(spawned::<peers::socket::Socket>(server, task, count)),
        "sqlx" => runtime.block_on(spawned::<peers::sqlx::Sqlx>(server, task, count)),
        _ => return Err("PEER is cenote, tokio-postgres, sqlx or socket".into()),
    }?;
    let each = |time: Duration| time.as_nanos() / u128::from(count);
    println!(
        "{peer} {task} {way} {} {}",
        each(measured.wall),
        each(measured.cpu)
    );
    Ok(())
}

impl Server {
    fn by(way: &str) -> Outcome<Self> {
        let told = |name: &str| {
            std::env::var(name).map_err(|_| format!("{name} is not set: run bench/postgres.sh"))
        };
        Ok(Server {
            host: match way {
                "unix" => told("CENOTE_TEST_POSTGRES_SOCKETS")?,
                "tcp" => "127.0.0.1".to_owned(),
                _ => return Err("WAY is unix or tcp".into()),
            },
            port: told("CENOTE_TEST_POSTGRES_PORT")?.parse()?,
        })
    }
}

struct Measured {
    wall: Duration,
    cpu: Duration,
}

async fn spawned<P: Peer>(server: Server, task: &str, count: u64) -> Outcome<Measured> {
    let task = task.to_owned();
    tokio::spawn(async move { measure::<P>(&server, &task, count).await }).await?
}

async fn measure<P: Peer>(server: &Server, task: &str, count: u64) -> Outcome<Measured> {
    let connections = if task == "many" { CONNECTIONS } else { 1 };
    let peer = std::sync::Arc::new(P::open(server, connections).await?);
    let run = async |count: u64| -> Outcome<()> {
        match task {
            "one" => peer.queries(count).await,
            "transaction" => peer.transactions(count).await,
            "rows" => peer.rows(count).await,
            "many" => {
                let tasks: Vec<_> = (0..TASKS)
                    .map(|_| {
                        let peer = std::sync::Arc::clone(&peer);
                        tokio::spawn(async move { peer.queries(count / TASKS).await })
                    })
                    .collect();
                for task in tasks {
                    task.await??;
                }
                Ok(())
            }
            _ => Err("TASK is one, many, transaction or rows".into()),
        }
    };
    run(if task == "rows" { 1000 } else { 64 * 20 }).await?;
    let (wall, cpu) = (Instant::now(), cpu_time()?);
    run(count).await?;
    Ok(Measured {
        wall: wall.elapsed(),
        cpu: cpu_time()? - cpu,
    })
}

fn cpu_time() -> Outcome<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let of = |time: nix::sys::time::TimeVal| {
        Duration::from_micros(
            u64::try_from(time.tv_sec() * 1_000_000 + time.tv_usec()).unwrap_or(0),
        )
    };
    Ok(of(usage.user_time()) + of(usage.system_time()))
}
