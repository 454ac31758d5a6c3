//! Writes the same rows by `exec_many` and as one would by hand, in turn, and prints the medians of the times.
//!
//! Every way writes all rows in one transaction, into a table that it has just emptied.

mod by_hand;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use cenote::Db;
use rustix::time::{ClockId, clock_gettime};

/// A row of five columns.
pub struct Record {
    pub id: i64,
    pub name: String,
    pub amount: f64,
    pub active: bool,
    pub note: Option<String>,
}

impl Record {
    fn new(id: i64) -> Self {
        Record {
            id,
            name: format!("customer {id}"),
            amount: f64::from(u32::try_from(id % 10_000).unwrap_or(0)) / 4.0,
            active: id % 3 == 0,
            note: (id % 5 != 0).then(|| format!("note {}", id % 97)),
        }
    }
}

pub const INSERT: &str = "INSERT INTO bulk (id, name, amount, active, note) VALUES (?, ?, ?, ?, ?)";

type Failed = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<ExitCode, Failed> {
    let mut args = std::env::args().skip(1);
    let rounds: usize = args.next().map_or(Ok(7), |it| it.parse())?;
    let rows: i64 = args.next().map_or(Ok(200_000), |it| it.parse())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(run(rounds, rows))
}

async fn run(rounds: usize, rows: i64) -> Result<ExitCode, Failed> {
    let rows: Vec<Record> = (0..rows).map(Record::new).collect();
    println!(
        "{} rows of 5 columns, medians of {rounds} rounds",
        rows.len()
    );
    println!("processor time is that of this program, without the servers");
    let mut reached = sqlite(rounds, &rows).await?;
    if let Ok(dsn) = std::env::var("CENOTE_TEST_POSTGRES") {
        reached &= postgres(rounds, &rows, &dsn).await?;
    }
    if let Ok(dsn) = std::env::var("CENOTE_TEST_MARIADB") {
        mysql(rounds, &rows, &dsn).await?;
    }
    Ok(match reached {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

async fn sqlite(rounds: usize, rows: &[Record]) -> Result<bool, Failed> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("bulk.db");
    let db = Db::open(&format!("sqlite:{}", path.display())).await?;
    db.exec(&table("INTEGER", "REAL"), ()).await?;
    let mut times = Times::default();
    let mut bare = by_hand::Sqlite::open(&path)?;
    for _ in 0..rounds {
        empty(&db).await?;
        let began = Moment::now();
        bare.insert(rows)?;
        times.hand.push(began.took());
        times.many.push(ours(&db, rows).await?);
    }
    // Everything happens in this program: processor time shows the work on a busy machine, too.
    Ok(times.print("SQLite", "rusqlite, one prepared statement", 1.3))
}

async fn postgres(rounds: usize, rows: &[Record], dsn: &str) -> Result<bool, Failed> {
    let db = Db::open(dsn).await?;
    db.exec("DROP TABLE IF EXISTS bulk", ()).await?;
    db.exec(&table("BIGINT", "DOUBLE PRECISION"), ()).await?;
    let mut bare = by_hand::Postgres::connect(dsn).await?;
    let mut times = Times::default();
    for _ in 0..rounds {
        empty(&db).await?;
        let began = Moment::now();
        bare.insert(rows).await?;
        times.hand.push(began.took());
        times.many.push(ours(&db, rows).await?);
    }
    Ok(times.print("PostgreSQL", "tokio-postgres, 1,000 rows a VALUES", 1.5))
}

async fn mysql(rounds: usize, rows: &[Record], dsn: &str) -> Result<bool, Failed> {
    let db = Db::open(dsn).await?;
    db.exec("DROP TABLE IF EXISTS bulk", ()).await?;
    db.exec(&table("BIGINT", "DOUBLE"), ()).await?;
    let mut bare = by_hand::Mysql::connect(dsn).await?;
    let mut times = Times::default();
    for _ in 0..rounds {
        empty(&db).await?;
        let began = Moment::now();
        bare.insert(rows).await?;
        times.hand.push(began.took());
        times.many.push(ours(&db, rows).await?);
    }
    // No goal: each set takes a round trip.
    Ok(times.print("MariaDB", "mysql_async, 1,000 rows a VALUES", f64::INFINITY))
}

fn table(integer: &str, real: &str) -> String {
    format!(
        "CREATE TABLE bulk (id {integer} PRIMARY KEY, name VARCHAR(100) NOT NULL, amount {real} NOT NULL, \
         active BOOLEAN NOT NULL, note VARCHAR(100))"
    )
}

async fn empty(db: &Db) -> Result<(), Failed> {
    db.exec("DELETE FROM bulk", ()).await?;
    Ok(())
}

/// Returns how long `exec_many` takes, after it has emptied the table.
async fn ours(db: &Db, rows: &[Record]) -> Result<[Duration; 2], Failed> {
    empty(db).await?;
    let began = Moment::now();
    let sets = rows.iter().map(|row| {
        let note = row.note.as_deref();
        (row.id, &*row.name, row.amount, row.active, note)
    });
    let done = db.exec_many(INSERT, sets).await?;
    let took = began.took();
    assert_eq!(done.rows_affected, rows.len() as u64);
    Ok(took)
}

/// A moment by the clock, and by the processor time of this program.
struct Moment(Instant, Duration);

impl Moment {
    fn now() -> Self {
        Moment(Instant::now(), processor_time())
    }

    /// Returns the time since, and the processor time.
    fn took(&self) -> [Duration; 2] {
        [self.0.elapsed(), processor_time() - self.1]
    }
}

fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[derive(Default)]
struct Times {
    hand: Vec<[Duration; 2]>,
    many: Vec<[Duration; 2]>,
}

impl Times {
    /// Returns whether the goal is reached.
    fn print(&self, database: &str, peer: &str, goal: f64) -> bool {
        println!("{database}, beside {peer}; goal: {goal} times its time");
        let mut reached = false;
        for (n, clock) in ["time", "processor time"].into_iter().enumerate() {
            let (hand, many) = (median(&self.hand, n), median(&self.many, n));
            let ratio = many / hand;
            println!(
                "  {clock:<15} exec_many {many:>7.1} ms, by hand {hand:>7.1} ms, ratio {ratio:.2}"
            );
            // Of a server, the client's processor time says nothing.
            reached |= ratio <= goal && (n == 0 || database == "SQLite");
        }
        if !reached {
            println!("  missed");
        }
        reached
    }
}

/// Returns the median in milliseconds.
fn median(times: &[[Duration; 2]], clock: usize) -> f64 {
    let mut times: Vec<Duration> = times.iter().map(|took| took[clock]).collect();
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e3
}
