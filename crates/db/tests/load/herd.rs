//! A thundering herd: thousands want a connection when the server comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use cenote::{Db, Kind};
use cenote_testkit::proxy::{Network, OnConnect};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep_until};

use crate::figures::{alone, length};
use crate::servers::network::{dsn_through, proxy_with};
use crate::servers::{quiet, soon};

const TASKS: usize = 2_000;
const CONNECTIONS: usize = 10;
/// How many connections are opened at the same time, by default.
const AT_ONCE: usize = 4;
/// The longest pause between attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The longest that each pause can be, in seconds.
const WHOLE_PAUSES: [f64; 9] = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0];
/// By how much an attempt may come late on a machine that has other things to do.
const SLACK: f64 = 0.5;
/// Two attempts that are nearer to each other are of one round.
const ROUND: Duration = Duration::from_millis(40);

/// What the tasks have come to.
#[derive(Default)]
struct Tally {
    served: AtomicU64,
    refused: AtomicU64,
    over: AtomicBool,
}

async fn live(db: Db, tally: Arc<Tally>) {
    while !tally.over.load(Relaxed) {
        match db.query("SELECT ?::int8", (1,)).await {
            Ok(_) => tally.served.fetch_add(1, Relaxed),
            Err(error) => {
                let expected = error.is_connection_lost() || error.kind() == Kind::Connect;
                assert!(expected, "{error:?}");
                tally.refused.fetch_add(1, Relaxed)
            }
        };
    }
}

/// How many are served in this time.
async fn rate(tally: &Tally, time: Duration) -> u64 {
    let before = tally.served.load(Relaxed);
    sleep_until(Instant::now() + time).await;
    tally.served.load(Relaxed) - before
}

/// When each round of attempts began.
fn rounds(attempts: &[Instant]) -> Vec<Instant> {
    let mut rounds: Vec<Instant> = Vec::new();
    let mut last: Option<Instant> = None;
    for attempt in attempts {
        if last.is_none_or(|last| *attempt - last > ROUND) {
            rounds.push(*attempt);
        }
        last = Some(*attempt);
    }
    rounds
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_outage_reconnects_are_few_and_throughput_returns() {
    let _alone = alone().await;
    let outage = length(Duration::from_secs(2));
    let proxy = proxy_with(Network::ideal()).await;
    let db = Db::builder(&dsn_through(&proxy))
        .max(CONNECTIONS)
        .acquire_timeout(None);
    let db = db.open().await.unwrap();
    let tally = Arc::new(Tally::default());
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        tasks.spawn(live(db.clone(), Arc::clone(&tally)));
    }
    while db.status().idle + db.status().active < CONNECTIONS {
        tokio::task::yield_now().await;
    }
    let before = rate(&tally, Duration::from_millis(500)).await;

    proxy.on_connect(OnConnect::Reset);
    proxy.reset();
    let (down, connected) = (Instant::now(), proxy.arrivals().len());
    sleep_until(down + outage).await;
    let tried = proxy.arrivals().split_off(connected);
    proxy.heal();
    let up = Instant::now();
    let mut looks = interval(Duration::from_millis(10));
    soon("throughput is back", async {
        while rate(&tally, Duration::from_millis(50)).await < before / 20 {
            looks.tick().await;
        }
    })
    .await;
    let back = up.elapsed();
    rate(&tally, Duration::from_millis(200)).await;
    let opened = proxy.arrivals().len() - connected - tried.len();
    tally.over.store(true, Relaxed);
    soon("all tasks end", async {
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
    })
    .await;
    quiet(&db).await;

    let rounds = rounds(&tried);
    println!(
        "{TASKS} tasks, {outage:?} without a server: {} attempts in {} rounds, {} calls refused; \
         {before} calls in 500 ms before, half of that {back:?} after, {opened} connections opened",
        tried.len(),
        rounds.len(),
        tally.refused.load(Relaxed)
    );
    let most = rounds.len() * (AT_ONCE + 1) + CONNECTIONS;
    assert!(tried.len() <= most, "{} attempts of {most}", tried.len());
    // Each pause is between half of what it could be and the whole, and they are not all the same
    // part of it.
    let pauses = rounds
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).as_secs_f64());
    let pauses: Vec<(f64, f64)> = pauses.zip(WHOLE_PAUSES).collect();
    assert!(pauses.len() >= 3, "it is tried again: {pauses:?}");
    for (pause, whole) in &pauses {
        assert!(
            *pause > whole * 0.45 && *pause < whole + SLACK,
            "{pauses:?}"
        );
    }
    let part = |(pause, whole): &(f64, f64)| pause / whole;
    let same = |of: &(f64, f64)| (part(of) - part(&pauses[0])).abs() < 0.005;
    assert!(!pauses.iter().all(same), "no jitter: {pauses:?}");
    // The pause under way is at most twice as long as all before it; the rest is for the machine.
    let pause = LONGEST_PAUSE.min(2 * outage);
    assert!(back < pause + Duration::from_secs(2), "{back:?}");
    assert!(
        opened <= CONNECTIONS + AT_ONCE,
        "{opened} connections opened"
    );
}
