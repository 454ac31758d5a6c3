//! Measures point reads of one client at one task, in a process of its own.
//!
//!     cenote-bench-pipeline PEER TASK COUNT TASKS CONNECTIONS
//!     cenote-bench-pipeline setup             creates the table that the peers read
//!     cenote-bench-pipeline proxy MICROS      delays the server by so much each way; prints its port, ends with its input
//!
//! | | |
//! |---|---|
//! | PEER | `floor`: sockets that pipeline, without a client library; `deadpool`: deadpool-postgres; `shared`: clients of tokio-postgres that all tasks share, which pipelines; `cenote`: calls on a `Db`; `lanes`: calls on a `Db` that shares connections; `batch`: `db.batch()` |
//! | TASK | `points`: each unit is one read; `twenty`: each unit is twenty reads that do not depend on each other |
//! | COUNT | units of all TASKS together |
//!
//! The server's address is in `BENCH_HOST` and `BENCH_PORT`. Prints `PEER TASK TASKS CONNECTIONS WALL CPU`, in nanoseconds for each read. The CPU time
//! is this process' own, user and system. Connecting and warming up do not count.

mod peers;

use std::future::Future;
use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cenote_testkit::proxy::{Network, Proxy};
use nix::sys::resource::{UsageWho, getrusage};

/// The read of all peers.
pub const SQL: &str = "SELECT id, randomnumber FROM cenote_bench_world WHERE id = $1";

/// The number of rows.
pub const ROWS: u64 = 10_000;

/// The reads of a unit of `twenty`.
pub const TWENTY: u64 = 20;

pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The address of the server.
#[derive(Clone, Debug)]
pub struct Server {
    pub host: String,
    pub port: u16,
}

/// A client under test.
pub trait Peer: Sized + Send + Sync + 'static {
    /// Opens a client with so many connections.
    fn open(server: &Server, connections: usize) -> impl Future<Output = Outcome<Self>> + Send;

    /// Reads rows one after the other, as one of several tasks.
    fn points(&self, task: usize, count: u64) -> impl Future<Output = Outcome<()>> + Send;

    /// Reads rows, twenty at a time.
    fn twenties(&self, task: usize, count: u64) -> impl Future<Output = Outcome<()>> + Send;
}

/// Returns a key that differs from read to read.
pub fn key(task: usize, n: u64) -> i32 {
    let mixed = (task as u64 * 7919 + n).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
    i32::try_from(mixed % ROWS).expect("the table is small") + 1
}

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let server = Server::from_env()?;
    match words[..] {
        ["setup"] => runtime.block_on(peers::shared::set_up(&server)),
        ["proxy", micros] => runtime.block_on(delay(&server, micros.parse()?)),
        [peer, task, count, tasks, connections] => {
            let run = Run {
                task: task.to_owned(),
                count: count.parse()?,
                tasks: tasks.parse()?,
                connections: connections.parse()?,
            };
            let measured = runtime.block_on(async {
                match peer {
                    "floor" => run.spawned::<peers::floor::Floor>(server).await,
                    "deadpool" => run.spawned::<peers::deadpool::Pooled>(server).await,
                    "shared" => run.spawned::<peers::shared::Shared>(server).await,
                    "cenote" => run.spawned::<peers::cenote::Single>(server).await,
                    "lanes" => run.spawned::<peers::cenote::Lanes>(server).await,
                    "batch" => run.spawned::<peers::cenote::Batched>(server).await,
                    _ => Err("PEER is floor, deadpool, shared, cenote, lanes or batch".into()),
                }
            })?;
            let reads = run.count * if task == "twenty" { TWENTY } else { 1 };
            let each = |time: Duration| time.as_nanos() / u128::from(reads);
            let (wall, cpu) = (each(measured.wall), each(measured.cpu));
            println!("{peer} {task} {tasks} {connections} {wall} {cpu}");
            Ok(())
        }
        _ => Err("PEER TASK COUNT TASKS CONNECTIONS, setup, or proxy MICROS".into()),
    }
}

impl Server {
    fn from_env() -> Outcome<Self> {
        let told = |name: &str| {
            std::env::var(name).map_err(|_| format!("{name} is not set: run bench/pipeline.sh"))
        };
        Ok(Server {
            host: told("BENCH_HOST")?,
            port: told("BENCH_PORT")?.parse()?,
        })
    }
}

/// Delays the server until the input ends.
async fn delay(server: &Server, micros: u64) -> Outcome<()> {
    let address: std::net::SocketAddr = format!("{}:{}", server.host, server.port).parse()?;
    let proxy = Proxy::in_front_of(address).await?;
    proxy.set(Network {
        delay: Duration::from_micros(micros),
        ..Network::ideal()
    });
    println!("{}", proxy.address().port().ok_or("it is TCP")?);
    let end = || std::io::stdin().read_to_end(&mut Vec::new());
    tokio::task::spawn_blocking(end).await??;
    Ok(())
}

struct Measured {
    wall: Duration,
    cpu: Duration,
}

struct Run {
    task: String,
    count: u64,
    tasks: usize,
    connections: usize,
}

impl Run {
    async fn spawned<P: Peer>(&self, server: Server) -> Outcome<Measured> {
        let peer = Arc::new(P::open(&server, self.connections).await?);
        self.run(&peer, self.count / 10 + 1).await?;
        let (wall, cpu) = (Instant::now(), cpu_time()?);
        self.run(&peer, self.count).await?;
        Ok(Measured {
            wall: wall.elapsed(),
            cpu: cpu_time()? - cpu,
        })
    }

    async fn run<P: Peer>(&self, peer: &Arc<P>, count: u64) -> Outcome<()> {
        let each = count / self.tasks as u64;
        let twenties = match &*self.task {
            "points" => false,
            "twenty" => true,
            _ => return Err("TASK is points or twenty".into()),
        };
        let tasks: Vec<_> = (0..self.tasks)
            .map(|task| {
                let peer = Arc::clone(peer);
                tokio::spawn(async move {
                    match twenties {
                        false => peer.points(task, each).await,
                        true => peer.twenties(task, each).await,
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await??;
        }
        Ok(())
    }
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
