//! Measures point reads of one client at one task, in a process of its own.
//!
//!     cenote-bench-pipeline PEER TASK COUNT TASKS CONNECTIONS
//!     cenote-bench-pipeline setup             creates the table that the peers read
//!     cenote-bench-pipeline proxy MICROS      delays the server by so much each way; prints its port, ends with its input
//!
//! | | |
//! |---|---|
//! | PEER | `floor`: sockets that pipeline, without a client library; `deadpool`: deadpool-postgres; `shared`: clients of tokio-postgres that all tasks share, which pipelines; `cenote`: calls on a `Db`; `lanes`: calls on a `Db` that shares connections; `batch`: `db.batch()` |
//! | TASK | `points`: each unit is one read; `twenty`: each unit is twenty reads that do not depend on each other; `beside-text`, `beside-parameter` (for `cenote` and `lanes`): each unit is one read, 100 a second in each task, and one in 100 takes 50 ms, by its text or by its parameter |
//! | COUNT | units of all TASKS together |
//!
//! The server's address is in `BENCH_HOST` and `BENCH_PORT`. Prints `PEER TASK TASKS CONNECTIONS WALL CPU P99`, in nanoseconds for each read. The CPU time
//! is this process' own, user and system. P99 is that of the short reads in the `beside` tasks, otherwise 0. Connecting and warming up do not count.

mod delay;
mod peers;

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

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

    /// Reads rows one after the other, and some of these reads are slow. Returns how long the others took.
    fn beside(
        &self,
        _slow: Slow,
        _task: usize,
        _count: u64,
    ) -> impl Future<Output = Outcome<Vec<Duration>>> + Send {
        async { Err("only cenote and lanes have slow reads".into()) }
    }
}

/// What makes a read slow.
#[derive(Clone, Copy, Debug)]
pub enum Slow {
    /// Its text.
    OtherText,
    /// A parameter of the same text.
    Parameter,
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
        ["proxy", micros] => {
            let address = format!("{}:{}", server.host, server.port).parse()?;
            delay::serve(address, Duration::from_micros(micros.parse()?))
        }
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
                    "cenote" => run.spawned::<peers::cenote::Calls<false>>(server).await,
                    "lanes" => run.spawned::<peers::cenote::Calls<true>>(server).await,
                    "batch" => run.spawned::<peers::cenote::Batched>(server).await,
                    _ => Err("PEER is floor, deadpool, shared, cenote, lanes or batch".into()),
                }
            })?;
            let reads = run.count * if task == "twenty" { TWENTY } else { 1 };
            let each = |time: Duration| time.as_nanos() / u128::from(reads);
            let (wall, cpu) = (each(measured.wall), each(measured.cpu));
            let p99 = measured.p99.as_nanos();
            println!("{peer} {task} {tasks} {connections} {wall} {cpu} {p99}");
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

struct Measured {
    wall: Duration,
    cpu: Duration,
    p99: Duration,
}

#[derive(Clone, Copy)]
enum Work {
    Points,
    Twenty,
    Beside(Slow),
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
        let mut waits = self.run(&peer, self.count).await?;
        let (wall, cpu) = (wall.elapsed(), cpu_time()? - cpu);
        waits.sort_unstable();
        let p99 = waits
            .get(waits.len() * 99 / 100)
            .copied()
            .unwrap_or_default();
        Ok(Measured { wall, cpu, p99 })
    }

    /// Returns how long the short reads took, if the task has slow ones.
    async fn run<P: Peer>(&self, peer: &Arc<P>, count: u64) -> Outcome<Vec<Duration>> {
        let each = count / self.tasks as u64;
        let work = match &*self.task {
            "points" => Work::Points,
            "twenty" => Work::Twenty,
            "beside-text" => Work::Beside(Slow::OtherText),
            "beside-parameter" => Work::Beside(Slow::Parameter),
            _ => return Err("TASK is points, twenty, beside-text or beside-parameter".into()),
        };
        let tasks: Vec<_> = (0..self.tasks)
            .map(|task| {
                let peer = Arc::clone(peer);
                tokio::spawn(async move {
                    match work {
                        Work::Points => peer.points(task, each).await.map(|()| Vec::new()),
                        Work::Twenty => peer.twenties(task, each).await.map(|()| Vec::new()),
                        Work::Beside(slow) => peer.beside(slow, task, each).await,
                    }
                })
            })
            .collect();
        let mut waits = Vec::new();
        for task in tasks {
            waits.extend(task.await??);
        }
        Ok(waits)
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
