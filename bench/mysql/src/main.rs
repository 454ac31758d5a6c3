//! Measures the wall time and the CPU time of one client library at one task, in a process of its own.
//!
//!     cenote-bench-mysql PEER TASK WAY COUNT [FLAVOR]
//!
//! | | |
//! |---|---|
//! | PEER | `cenote`, `mysql_async` (its pool with the reset switched off, a bare `Conn` where there is one task), `mysql_async-text` (a bare `Conn` that is given the text, where there is one task), `mysql_async-defaults` (its pool as it comes), `sqlx` |
//! | TASK | `set-up` (makes the table), `one` (one task reads one row by its key over and over), `many` (64 tasks over 8 connections do) |
//! | WAY | `unix` or `tcp`: both to the server of `ci/mariadb.sh`, without TLS |
//! | FLAVOR | `threads` (default) or `current`: Tokio's scheduler |
//!
//! Prints `PEER TASK WAY WALL CPU`, in nanoseconds for each query. The CPU time is this process' own,
//! user and system. Connecting and warming up do not count.

mod peers;

use std::future::Future;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};

/// The statement that the peers run: its parameter is a key, its answer the name in [`name`].
pub const SQL: &str = "SELECT name FROM bench_item WHERE id = ?";

/// How many rows there are.
const ROWS: u64 = 1000;

pub const TASKS: u64 = 64;
pub const CONNECTIONS: usize = 8;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The address of the server, in the parts that all peers need.
#[derive(Clone, Debug)]
pub enum Server {
    Unix(String),
    Tcp(u16),
}

/// The key of the n-th query.
pub fn key(n: u64) -> u64 {
    n % ROWS + 1
}

/// Returns the name in the row with this key.
pub fn is_name(name: &str, key: u64) -> bool {
    name.strip_prefix("item ").and_then(|id| id.parse().ok()) == Some(key)
}

/// A client library under test.
pub trait Peer: Sized + Send + Sync + 'static {
    /// Opens a client with at most `connections` connections, either none or all of them opened.
    fn open(server: &Server, connections: usize) -> impl Future<Output = Outcome<Self>> + Send;

    /// Runs [`SQL`] `count` times in sequence.
    fn queries(&self, count: u64) -> impl Future<Output = Outcome<()>> + Send;
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
    if *task == "set-up" {
        return runtime.block_on(peers::cenote::set_up(&server, ROWS));
    }
    // Spawned, as the tasks of a server are.
    use peers::mysql_async::{AsItComes, Bare, BareByText, WithoutReset};
    let measured = match (*peer, *task) {
        ("cenote", _) => runtime.block_on(spawned::<peers::cenote::Cenote>(server, task, count)),
        ("mysql_async", "one") => runtime.block_on(spawned::<Bare>(server, task, count)),
        ("mysql_async-text", "one") => runtime.block_on(spawned::<BareByText>(server, task, count)),
        ("mysql_async", _) => runtime.block_on(spawned::<WithoutReset>(server, task, count)),
        ("mysql_async-defaults", _) => runtime.block_on(spawned::<AsItComes>(server, task, count)),
        ("sqlx", _) => runtime.block_on(spawned::<peers::sqlx::Sqlx>(server, task, count)),
        _ => {
            return Err(
                "PEER is cenote, mysql_async, mysql_async-text, mysql_async-defaults or sqlx"
                    .into(),
            );
        }
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
            std::env::var(name).map_err(|_| format!("{name} is not set: run bench/mysql.sh"))
        };
        Ok(match way {
            "unix" => Server::Unix(told("CENOTE_TEST_MARIADB_SOCKETS")? + "/primary"),
            "tcp" => Server::Tcp(told("CENOTE_TEST_MARIADB_PORT")?.parse()?),
            _ => return Err("WAY is unix or tcp".into()),
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
            _ => Err("TASK is set-up, one or many".into()),
        }
    };
    run(64 * 20).await?;
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
