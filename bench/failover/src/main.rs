//! How long writes are out after a promotion: `Db` beside deadpool-postgres and sqlx, each on a cluster of its own.
//!
//! Eight tasks write through four connections, with the defaults of each library, but 5 s to connect and to wait for a
//! connection. `hosts`: the DSN names all hosts and wants one to write to. `address`: the DSN names one address, whose new
//! connections go to the primary from its promotion on, as with a virtual IP; sqlx knows nothing else.

mod clients;

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use cenote_bank::cluster::Cluster;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use clients::Client;

const TASKS: usize = 8;
/// A former primary that hangs is shut down after this time, as an operator would.
const OPERATOR: Duration = Duration::from_secs(15);
/// After this time, writes count as out for good.
const GIVE_UP: Duration = Duration::from_secs(30);

const FAULTS: [&str; 3] = ["killed", "switched", "frozen"];

/// One address whose new connections go to the primary.
struct Address {
    port: u16,
    primary: Arc<AtomicU16>,
    _task: JoinSet<()>,
}

impl Address {
    async fn listen(primary: u16) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let primary = Arc::new(AtomicU16::new(primary));
        let to = Arc::clone(&primary);
        let mut task = JoinSet::new();
        task.spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let port = to.load(Relaxed);
                tokio::spawn(async move {
                    if let Ok(mut server) = TcpStream::connect(("127.0.0.1", port)).await {
                        let _ = copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
        });
        Ok(Address {
            port,
            primary,
            _task: task,
        })
    }
}

/// Tasks that write all the time.
struct Load {
    acknowledged: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

impl Load {
    fn start(client: &Client) -> Self {
        let (acknowledged, mut tasks) = (Arc::new(AtomicU64::new(0)), JoinSet::new());
        for _ in 0..TASKS {
            let (client, acknowledged) = (client.clone(), Arc::clone(&acknowledged));
            tasks.spawn(async move {
                loop {
                    match client.write().await {
                        Ok(()) => {
                            acknowledged.fetch_add(1, Relaxed);
                        }
                        Err(_) => sleep(Duration::from_millis(50)).await,
                    }
                }
            });
        }
        Load {
            acknowledged,
            _tasks: tasks,
        }
    }

    /// Waits for one more acknowledged write.
    async fn writes(&self) {
        let before = self.acknowledged.load(Relaxed);
        while self.acknowledged.load(Relaxed) == before {
            sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Breaks the primary and promotes a standby; returns how long writes were out then.
async fn fail_over(
    cluster: &mut Cluster,
    address: &Address,
    load: &Load,
    fault: &str,
) -> Result<Duration, String> {
    match fault {
        "killed" => cluster.kill_primary().await,
        "switched" => cluster.stop_primary().await,
        _ => cluster.freeze_primary(),
    }
    let promoted = cluster.promote().await?;
    address.primary.store(cluster.primary_port(), Relaxed);
    if fault == "frozen" && timeout(OPERATOR, load.writes()).await.is_ok() {
        return Ok(promoted.elapsed());
    }
    if fault == "frozen" {
        cluster.heal().await?;
    }
    // The time that is left.
    let _ = timeout(GIVE_UP.saturating_sub(promoted.elapsed()), load.writes()).await;
    Ok(promoted.elapsed())
}

async fn measure(peer: &str, way: &str, rounds: usize) -> Result<(), String> {
    let mut cluster = Cluster::start(100)
        .await
        .map_err(|error| error.to_string())?;
    let address = Address::listen(cluster.primary_port()).await;
    let address = address.map_err(|error| error.to_string())?;
    let ports = match way {
        "hosts" => cluster.ports(),
        _ => vec![address.port],
    };
    let client = Client::open(peer, &ports, cluster.password()).await?;
    client.create().await?;
    let load = Load::start(&client);
    for fault in FAULTS {
        let mut times = Vec::new();
        for _ in 0..rounds {
            // Otherwise the next fault would be measured with the last one.
            timeout(GIVE_UP, load.writes())
                .await
                .map_err(|_| format!("{peer} does not write"))?;
            sleep(Duration::from_millis(1_500)).await;
            let begun = Instant::now();
            let out = fail_over(&mut cluster, &address, &load, fault).await?;
            times.push(out.as_secs_f64());
            eprintln!(
                "{peer} {way} {fault} {:.2} s of {:.1} s",
                out.as_secs_f64(),
                begun.elapsed().as_secs_f64()
            );
            cluster.heal().await?;
        }
        times.sort_by(f64::total_cmp);
        let (median, longest) = (times[times.len() / 2], times[times.len() - 1]);
        println!("{peer:<18} {way:<8} {fault:<9} {median:>8.2} {longest:>8.2}");
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), String> {
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok());
    println!("seconds from the promotion to the first acknowledged write");
    println!(
        "{:<18} {:<8} {:<9} {:>8} {:>8}",
        "", "", "primary", "median", "longest"
    );
    for (peer, way) in [
        ("cenote", "hosts"),
        ("deadpool-postgres", "hosts"),
        ("cenote", "address"),
        ("deadpool-postgres", "address"),
        ("sqlx", "address"),
    ] {
        if let Err(why) = measure(peer, way, rounds.unwrap_or(5)).await {
            println!("{peer:<18} {way:<8} {why}");
        }
    }
    Ok(())
}
