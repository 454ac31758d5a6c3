//! The page in a real browser: a program under remote control, and `browser/page.test.mjs`, which opens its page in Chromium.
//!
//! Needs PostgreSQL's programs, `chromium`, `node` and the packages of `browser/package.json` (`npm ci --prefix tests/browser`). Without them the
//! test is skipped, unless `CENOTE_NEED_BROWSER` is set. `CENOTE_PAGE_SECONDS` is the length of the load (10).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod cluster;

use std::collections::HashMap;
use std::panic::Location;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State};
use axum::routing::get;
use cenote::Db;
use cenote::pool::{AcquireOptions, ConsecutiveFailures};
use cenote_bank::cluster::Cluster;
use cenote_dashboard::Dashboard;
use cenote_testkit::Fake;
use lines::LINES;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinSet;

use crate::cluster::{Sharing, handle, with_replicas};

/// What the test can do to the program.
#[derive(Clone)]
struct Program {
    db: Db,
    broken: Db,
    dashboard: Dashboard,
    texts: Dashboard,
    crowd: (Fake, Db, Dashboard),
    servers: Arc<Mutex<Servers>>,
    /// Held transactions wait for a permit.
    hold: Arc<Semaphore>,
}

/// A handle with hosts and replicas, and one that shares its connection.
struct Servers {
    cluster: Cluster,
    db: Db,
    sharing: Db,
    /// The reads in flight on it.
    reads: Option<Sharing>,
}

impl Servers {
    async fn start() -> Self {
        let cluster = Cluster::start(60).await.unwrap();
        let db = with_replicas(&cluster).name("cluster").max(4);
        let sharing = handle(&cluster, &[cluster.primary_port()]).name("sharing");
        let sharing = sharing.max(1).share_connections(true);
        Servers {
            db: db.open().await.unwrap(),
            sharing: sharing.open().await.unwrap(),
            cluster,
            reads: None,
        }
    }
}

type Asked = Query<HashMap<String, u32>>;

fn number(asked: &Asked) -> u32 {
    asked.get("n").copied().unwrap_or(1)
}

/// Opens transactions that stay open, at one line, and returns the line.
async fn hold(State(program): State<Program>, asked: Asked) -> String {
    let mut line = 0;
    for _ in 0..number(&asked) {
        let Program { db, hold, .. } = program.clone();
        line = line!() + 4;
        tokio::spawn(async move {
            // SQLite has one writer at a time, and any number of readers.
            let options = db.transaction_options().read_only();
            let held = options.run(async || {
                db.query(
                    "SELECT name FROM customer WHERE secret = 'hush-literal' AND id = ?",
                    "hush-param",
                )
                .await?;
                drop(hold.acquire().await);
                Ok(())
            });
            held.await.unwrap();
        });
    }
    format!("tests/browser.rs:{line}")
}

/// Ends the transactions that are held, and waits until nobody waits.
async fn free(State(program): State<Program>) {
    program.hold.add_permits(1000);
    loop {
        let status = program.db.status();
        if status.active + status.waiting == 0 {
            break;
        }
        tokio::task::yield_now().await;
    }
}

/// Holds new transactions again.
async fn rearm(State(program): State<Program>) {
    program.hold.forget_permits(usize::MAX);
}

/// Makes calls, which wait if all connections are held.
async fn wait(State(program): State<Program>, asked: Asked) {
    for _ in 0..number(&asked) {
        let db = program.db.clone();
        tokio::spawn(async move {
            db.query("SELECT count(*) FROM customer", ())
                .await
                .map(drop)
        });
    }
}

/// Makes calls on a database that cannot be opened.
async fn fail(State(program): State<Program>, asked: Asked) {
    for _ in 0..number(&asked) {
        program.broken.query("SELECT 1", ()).await.unwrap_err();
    }
}

/// Runs SQL that contains HTML, and holds its connection.
async fn hostile(State(program): State<Program>) {
    let Program { db, hold, .. } = program;
    let table = "`<img src=x onerror=window.hacked=1><script>window.hacked=1</script>`";
    db.exec(
        &format!("CREATE TABLE IF NOT EXISTS {table} (n INTEGER)"),
        (),
    )
    .await
    .unwrap();
    tokio::spawn(async move {
        db.transaction(async || {
            db.query(&format!("SELECT n FROM {table} -- </script>"), ())
                .await?;
            drop(hold.acquire().await);
            Ok(())
        })
        .await
        .unwrap();
    });
}

/// Runs different statements, most of which fail.
async fn flood(State(program): State<Program>, asked: Asked) {
    for n in 0..number(&asked) {
        let sql = format!("SELECT * FROM `table_{n}_<b>` WHERE a = 'hush-literal'");
        let _ = program.db.query(&sql, ()).await;
    }
}

/// Holds connections at 500 lines and runs 500 statements on others until the page has seen some of each, so many times: 20
/// times for 10,000.
async fn crowd(State(program): State<Program>, asked: Asked) {
    let (fake, db, page) = program.crowd;
    for lines in LINES.chunks(500).take(number(&asked) as usize) {
        let (mut leases, mut statements) = (Vec::new(), JoinSet::new());
        for line in lines {
            let here = AcquireOptions::new().call_site(line);
            leases.push(db.pool().unwrap().acquire_with(here).await.unwrap());
            let sql = format!("SELECT a FROM table_{}_<b>", line.line());
            fake.hold(&sql);
            let db = db.clone();
            statements.spawn(async move { db.query(&sql, ()).await.map(drop) });
        }
        let seen = |incident: String| {
            let shown = |line: &&Location| incident.contains(&format!("lines.rs:{}:", line.line()));
            lines.iter().any(shown)
        };
        while fake.held().len() < lines.len() || !seen(page.incident()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        fake.release();
        statements.join_all().await;
    }
}

/// 1,000 checkouts a second, for this many seconds.
async fn load(State(program): State<Program>, asked: Asked) {
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    for _ in 0..number(&asked) * 100 {
        ticks.tick().await;
        for _ in 0..10 {
            let db = program.db.clone();
            tokio::spawn(async move {
                db.query("SELECT count(*) FROM customer", ())
                    .await
                    .map(drop)
            });
        }
    }
}

/// Reads on the replicas, and writes.
async fn serve(State(program): State<Program>) {
    let servers = program.servers.lock().await;
    let db = &servers.db;
    db.exec("CREATE TABLE IF NOT EXISTS t (n int8)", ())
        .await
        .unwrap();
    let sql = "SELECT count(*) FROM pg_catalog.pg_class";
    while db.replicas().iter().all(|replica| replica.reads < 3) {
        db.reading().query(sql, ()).await.unwrap();
    }
}

/// Has six reads share a connection, or ends them.
async fn share(State(program): State<Program>, asked: Asked) {
    let mut servers = program.servers.lock().await;
    if let Some(reads) = servers.reads.take() {
        reads.end().await;
    }
    if number(&asked) > 0 {
        let reads = Sharing::begin(&servers.sharing, &servers.db).await;
        servers.reads = Some(reads);
    }
}

/// Kills the primary, and promotes a standby.
async fn fail_over(State(program): State<Program>) {
    let mut servers = program.servers.lock_owned().await;
    let runtime = tokio::runtime::Handle::current();
    // The future of a promotion stays on its thread.
    let done = tokio::task::spawn_blocking(move || {
        runtime.block_on(async {
            servers.cluster.kill_primary().await;
            servers.cluster.promote().await.unwrap();
            let sql = "INSERT INTO t VALUES (1)";
            servers.db.exec(sql, ()).await.unwrap();
        });
    });
    done.await.unwrap();
}

/// Ends the streams of one page.
async fn close(State(program): State<Program>) {
    program.texts.close();
}

/// Checkouts so far, open pages, and the program's memory in KiB.
async fn figures(State(program): State<Program>) -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let memory = memory.and_then(|line| line.split_whitespace().next());
    let checkouts = program.db.counters().acquired;
    let pages = program.dashboard.open_pages();
    format!("{checkouts} {pages} {}", memory.unwrap_or("0"))
}

async fn program(folder: &Path) -> (Program, Router) {
    let dsn = format!("sqlite:{}", folder.join("main.db").display());
    let db = Db::builder(&dsn)
        .max(4)
        .name("main")
        .acquire_timeout(Some(Duration::from_secs(120)))
        .open()
        .await
        .unwrap();
    db.exec(
        "CREATE TABLE customer (id TEXT, name TEXT, secret TEXT)",
        (),
    )
    .await
    .unwrap();
    let dsn = format!("sqlite:{}", folder.join("missing/broken.db").display());
    let broken = Db::builder(&dsn)
        .name("broken")
        .breaker(ConsecutiveFailures::new(3).with_cool_down(Duration::from_secs(3600)))
        .open()
        .await
        .unwrap();
    let fake = Fake::new();
    let many = fake.builder().name("crowd").max(1000).open().await.unwrap();
    let crowded = Dashboard::with_statement_texts(&many);
    let servers = Servers::start().await;
    let (cluster, sharing) = (
        Dashboard::new(&servers.db),
        Dashboard::new(&servers.sharing),
    );
    let program = Program {
        dashboard: Dashboard::new(&db),
        texts: Dashboard::with_statement_texts(&db),
        db: db.clone(),
        broken: broken.clone(),
        crowd: (fake, many, crowded.clone()),
        servers: Arc::new(Mutex::new(servers)),
        hold: Arc::new(Semaphore::new(0)),
    };
    let router = Router::new()
        .route("/do/hold", get(hold))
        .route("/do/free", get(free))
        .route("/do/rearm", get(rearm))
        .route("/do/wait", get(wait))
        .route("/do/fail", get(fail))
        .route("/do/hostile", get(hostile))
        .route("/do/flood", get(flood))
        .route("/do/crowd", get(crowd))
        .route("/do/load", get(load))
        .route("/do/serve", get(serve))
        .route("/do/share", get(share))
        .route("/do/fail-over", get(fail_over))
        .route("/do/close", get(close))
        .route("/do/figures", get(figures))
        .nest_service("/main", program.dashboard.clone())
        .nest_service("/texts", program.texts.clone())
        .nest_service("/crowd", crowded)
        .nest_service("/cluster", cluster)
        .nest_service("/sharing", sharing)
        .nest_service("/broken", Dashboard::new(&broken))
        .with_state(program.clone());
    (program, router)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_works_in_a_real_browser() {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser");
    let has_all = scripts.join("node_modules/playwright-core").exists()
        && Path::new("/usr/bin/chromium").exists();
    if !has_all {
        let needed = std::env::var_os("CENOTE_NEED_BROWSER").is_some();
        assert!(!needed, "chromium or tests/browser/node_modules is missing");
        eprintln!("skipped: chromium or tests/browser/node_modules is missing");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (_program, router) = program(folder.path()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });
    let seconds = std::env::var("CENOTE_PAGE_SECONDS").unwrap_or_else(|_| "10".to_owned());
    let tested = tokio::process::Command::new("node")
        .args(["--test", "--test-reporter=spec"])
        .arg(scripts.join("page.test.mjs"))
        .env("PAGE_URL", format!("http://{address}"))
        .env("PAGE_SECONDS", seconds)
        .env(
            "PAGE_SHOTS",
            Path::new(env!("CARGO_TARGET_TMPDIR")).join("page"),
        )
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .status();
    let tested = tokio::time::timeout(Duration::from_secs(480), tested).await;
    serving.abort();
    assert!(
        tested.unwrap().unwrap().success(),
        "see the failed tests above"
    );
}
