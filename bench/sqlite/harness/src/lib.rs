//! What the SQLite benchmarks measure, the same for every program.
//!
//! A program is started with `FILE SCENARIO MILLISECONDS`, works on a copy of the file, and
//! prints one line for each figure: `NAME VALUE`. `sqlite.sh` runs the programs in turn and takes
//! the medians.

mod crowd;
mod engine;
mod late;
mod reads;

use std::path::Path;
use std::time::Duration;

pub use engine::{Account, Engine, Failure, Session, Synchronous, sql};

/// Rows of the table that `sqlite-bare fill FILE` makes.
pub const ROWS: i64 = 10_000;

/// Tasks that write at the same time.
const WRITERS: usize = 200;

/// Runs the scenario of the command line. `writers_alone` is for an engine with which only one task can write.
///
/// # Panics
///
/// If a required operation fails: then there is nothing to compare.
pub fn run<E: Engine>(writers_alone: bool) {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, scenario, milliseconds] = arguments.as_slice() else {
        panic!("call it with FILE SCENARIO MILLISECONDS, as sqlite.sh does");
    };
    let time = Duration::from_millis(milliseconds.parse().expect("a number of milliseconds"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let own = folder.path().join("bench.db");
    std::fs::copy(file, &own).expect("the file is there, and there is room for it");
    let (what, runtime) = match scenario.rsplit_once('-') {
        Some((what, "mt")) => (what, many_threads()),
        Some((what, "ct")) => (what, one_thread()),
        _ => panic!("the scenario {scenario} does not end in -mt or -ct"),
    };
    // In a spawned task, as in a server: the runtime polls its main future differently.
    let task = runtime.spawn(measure::<E>(what.to_owned(), own, time, writers_alone));
    runtime.block_on(task).expect("nothing in it panics");
}

async fn measure<E: Engine>(
    what: String,
    file: impl AsRef<Path> + Send,
    time: Duration,
    writers_alone: bool,
) {
    let file = file.as_ref();
    let writers = if writers_alone { 1 } else { WRITERS };
    let normal = E::open(file, Synchronous::Normal);
    let full = E::open(file, Synchronous::Full);
    match what.as_str() {
        "read" => reads::one_task(&normal.await, time).await,
        "timer" => late::timer(&normal.await).await,
        "timer-without" => late::timer_without().await,
        "gap" => late::gap(&normal.await).await,
        "gap-without" => late::gap_without().await,
        "write-normal" => crowd::writes(&normal.await, writers, time).await,
        "write-full" => crowd::writes(&full.await, writers, time).await,
        "beside-normal" => crowd::reads_beside(&normal.await, writers, time).await,
        "transaction-normal" => crowd::transfers(&normal.await, writers, time).await,
        "transaction-full" => crowd::transfers(&full.await, writers, time).await,
        other => panic!("there is no scenario {other}"),
    }
}

fn many_threads() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .enable_time()
        .build()
        .expect("threads can be started")
}

fn one_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime can be built")
}

fn report(name: &str, value: impl std::fmt::Display) {
    println!("{name} {value}");
}

/// Accounts in an order that looks random and is the same for every program.
struct Ids(u64);

impl Ids {
    fn new(seed: u64) -> Self {
        Ids(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> i64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let row = self.0 % ROWS.unsigned_abs();
        i64::try_from(row).expect("there are not that many rows") + 1
    }
}
