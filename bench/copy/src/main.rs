//! `copy_in_rows` beside tokio-postgres' `BinaryCopyInWriter`, in one process, in turn.
//!
//!     cenote-bench-copy WAY ROUNDS ROWS [PEER]
//!
//! WAY is `unix` or `tcp`: both to the server of `ci/postgres.sh`, without TLS. Each round copies ROWS rows of five columns
//! with each peer, into an empty unlogged table, and begins with the other peer than the round before. Prints the
//! medians of the time and of this process' own CPU time, and their ratios. With PEER, `cenote` or `tokio-postgres`, only
//! that one runs: for callgrind.

use std::time::{Duration, Instant};

use cenote::Db;
use futures_util::pin_mut;
use nix::sys::resource::{UsageWho, getrusage};
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, NoTls};

const TABLE: &str = "CREATE UNLOGGED TABLE copied \
                     (id int8, count int4, name text, price float8, active bool)";
const COLUMNS: [&str; 5] = ["id", "count", "name", "price", "active"];
const NAMES: [&str; 4] = ["ada", "grace hopper", "barbara liskov", "a name that is a little longer"];

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
type Row = (i64, i32, &'static str, f64, bool);

/// The rows, made while they are sent.
fn rows(count: u64) -> impl Iterator<Item = Row> + Send {
    (0..i64::try_from(count).unwrap_or(i64::MAX)).map(|id| {
        let small = i32::try_from(id % 100_000).unwrap_or(0);
        let name = NAMES[usize::try_from(id).unwrap_or(0) % NAMES.len()];
        (id, small, name, f64::from(small) * 0.25, id % 3 == 0)
    })
}

async fn cenote(db: &Db, count: u64) -> Outcome<u64> {
    Ok(db.copy_in_rows("copied", &COLUMNS, rows(count)).await?)
}

async fn tokio_postgres(client: &Client, count: u64) -> Outcome<u64> {
    let sql = format!("COPY copied ({}) FROM STDIN (FORMAT binary)", COLUMNS.join(", "));
    let sink = client.copy_in(&sql).await?;
    let types = [Type::INT8, Type::INT4, Type::TEXT, Type::FLOAT8, Type::BOOL];
    let writer = BinaryCopyInWriter::new(sink, &types);
    pin_mut!(writer);
    for (id, small, name, price, active) in rows(count) {
        writer.as_mut().write(&[&id, &small, &name, &price, &active]).await?;
    }
    Ok(writer.finish().await?)
}

#[derive(Clone, Copy)]
struct Measured {
    wall: Duration,
    cpu: Duration,
}

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [way, rounds, count, peer @ ..] = &words[..] else {
        return Err("WAY ROUNDS ROWS [PEER]".into());
    };
    let (rounds, count): (usize, u64) = (rounds.parse()?, count.parse()?);
    let (way, peer) = ((*way).to_owned(), peer.first().map(|peer| (*peer).to_owned()));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    // Spawned, as the tasks of a server are.
    runtime.block_on(async {
        tokio::spawn(async move { compare(&way, rounds, count, peer.as_deref()).await }).await?
    })
}

async fn compare(way: &str, rounds: usize, count: u64, only: Option<&str>) -> Outcome<()> {
    let told = |name: &str| {
        std::env::var(name).map_err(|_| format!("{name} is not set: run bench/copy.sh"))
    };
    let host = match way {
        "unix" => told("CENOTE_TEST_POSTGRES_SOCKETS")?,
        _ => "127.0.0.1".to_owned(),
    };
    let port = told("CENOTE_TEST_POSTGRES_PORT")?;
    let dsn = format!(
        "pgsql:host={host};port={port};dbname=cenote;user=cenote;password=cenote-secret;sslmode=disable"
    );
    let db = Db::builder(&dsn).max(2).open().await?;
    let parts = format!("host={host} port={port} dbname=cenote user=cenote password=cenote-secret");
    let (client, connection) = tokio_postgres::connect(&parts, NoTls).await?;
    tokio::spawn(connection);
    db.exec("DROP TABLE IF EXISTS copied", ()).await?;
    db.exec(TABLE, ()).await?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        for turn in 0..2 {
            let is_ours = (round + turn) % 2 == 0;
            let name = if is_ours { "cenote" } else { "tokio-postgres" };
            if only.is_some_and(|only| only != name) {
                continue;
            }
            db.exec("TRUNCATE copied", ()).await?;
            let (wall, cpu) = (Instant::now(), cpu_time()?);
            let stored = match is_ours {
                true => cenote(&db, count).await?,
                false => tokio_postgres(&client, count).await?,
            };
            let measured = Measured {
                wall: wall.elapsed(),
                cpu: cpu_time()? - cpu,
            };
            assert_eq!(stored, count, "{name} has stored all rows");
            // The first round warms up.
            if round > 0 {
                if is_ours { &mut ours } else { &mut theirs }.push(measured);
            }
        }
    }
    db.exec("DROP TABLE copied", ()).await?;
    if only.is_some() {
        return Ok(());
    }
    let each = |time: Duration| time.as_nanos() / u128::from(count);
    for (name, all) in [("cenote", &ours), ("tokio-postgres", &theirs)] {
        println!(
            "{way} {name}: {} ns wall, {} ns client CPU for each row, median of {rounds}",
            each(median(all, |it| it.wall)),
            each(median(all, |it| it.cpu))
        );
    }
    let ratio = |of: fn(&Measured) -> Duration| {
        median(&ours, of).as_secs_f64() / median(&theirs, of).as_secs_f64()
    };
    println!("RATIO {way} {:.3} {:.3}", ratio(|it| it.wall), ratio(|it| it.cpu));
    Ok(())
}

fn median(all: &[Measured], of: fn(&Measured) -> Duration) -> Duration {
    let mut times: Vec<Duration> = all.iter().map(of).collect();
    times.sort_unstable();
    times[times.len() / 2]
}

fn cpu_time() -> Outcome<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let of = |time: nix::sys::time::TimeVal| {
        Duration::from_micros(u64::try_from(time.tv_sec() * 1_000_000 + time.tv_usec()).unwrap_or(0))
    };
    Ok(of(usage.user_time()) + of(usage.system_time()))
}
