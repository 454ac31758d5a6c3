//! Chaos: nothing is lost whatever goes wrong, and what is lost is found out.
//!
//! Ten seconds a database; CENOTE_CHAOS_SECONDS says otherwise.

use serde_json::Value;

use crate::process::{Ended, Folder, Running};

fn seconds() -> String {
    std::env::var("CENOTE_CHAOS_SECONDS").unwrap_or_else(|_| "10".to_owned())
}

/// What a run under chaos says that ended well.
#[track_caller]
fn survived(run: &Ended) -> Value {
    assert_eq!(run.code, Some(0), "{}{}", run.out, run.err);
    assert_eq!(run.err, "");
    let summary: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(summary["ok"], true, "{summary}");
    let transfers = &summary["chaos"]["transfers"];
    assert!(transfers["acknowledged"].as_u64() > Some(0), "{transfers}");
    assert!(transfers["rolled_back"].as_u64() > Some(0), "{transfers}");
    assert!(summary["chaos"]["marks"].as_u64() > Some(0), "{summary}");
    summary
}

/// The kinds of faults that there were.
fn kinds(summary: &Value) -> Vec<&str> {
    let faults = summary["chaos"]["faults"].as_array().unwrap();
    let kinds = faults.iter().map(|fault| fault["kind"].as_str().unwrap());
    kinds.collect()
}

const OF_THE_POOL: [&str; 5] = [
    "exhaust_pool",
    "open_breaker",
    "resize",
    "replace_all",
    "lock_all",
];

#[test]
fn on_sqlite_nothing_is_lost_under_chaos() {
    let folder = Folder::new();
    let run = folder.run(&["chaos", "--json", "--seconds", &seconds()]);
    let summary = survived(&run);
    let kinds = kinds(&summary);
    assert!(
        kinds.iter().all(|kind| OF_THE_POOL.contains(kind)),
        "{kinds:?}"
    );
    assert!(kinds.len() > 2, "{kinds:?}");
    let quiet = summary["chaos"]["quiet_moments"].as_u64();
    assert!(quiet > Some(0), "{summary}");
    let left_out = summary["chaos"]["left_out"].to_string();
    assert!(left_out.contains("SQLite has neither"), "{left_out}");
    assert!(folder.left_behind().is_empty());
}

#[test]
fn the_report_tells_faults_recoveries_latencies_and_every_transfer() {
    let args = ["--seconds", "1", "--seed", "5", "--only", "exhaust_pool"];
    let run = Folder::new().run(&[&["chaos"][..], &args].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    for said in [
        "seed 5",
        "faults",
        "pool exhausted",
        "ms longest",
        "visits",
        "left out     faults of network and server",
        "acknowledged are there",
        "ok    sessions",
        "ok    recovery",
    ] {
        assert!(run.out.contains(said), "{said}: {}", run.out);
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_heals_checks_and_tells() {
    let folder = Folder::new();
    let mut running = Running::start(folder.command(&["chaos", "--seconds", "600"]));
    running.wait_for("commits/s");
    running.interrupt();
    let run = running.end();
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.out.contains(", interrupted"), "{run:?}");
    assert!(run.out.contains("acknowledged are there"), "{run:?}");
    assert!(folder.left_behind().is_empty());
}

#[test]
fn a_server_for_a_database_that_has_none_is_refused() {
    let folder = Folder::new();
    let run = folder.run(&["chaos", "--dsn", &folder.dsn(), "--server", "true"]);
    let line = run.one_line(2);
    assert!(line.contains("SQLite has none"), "{line}");
}

/// A server of a test's own, for the command to start and to kill.
#[cfg(any(feature = "mysql", feature = "postgres"))]
struct OwnServer {
    dsn: String,
    command: String,
}

#[cfg(any(feature = "mysql", feature = "postgres"))]
impl OwnServer {
    /// By the script that stands in the environment, as `CENOTE_TEST_…_SCRIPT`.
    fn new(database: &str, dsn: &str, settings: &str) -> Self {
        let told = |what: &str| {
            let name = format!("CENOTE_TEST_{database}_{what}");
            std::env::var(&name).unwrap_or_else(|_| panic!("{name} is not set: run ci/test.sh"))
        };
        // A free one, below those that outgoing connections get.
        let port = loop {
            let port = fastrand::u16(15_000..30_000);
            if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
                break port;
            }
        };
        let (script, home) = (told("SCRIPT"), told("HOME"));
        OwnServer {
            dsn: format!(
                "{dsn}:host=127.0.0.1;port={port};dbname=cenote;user=cenote;password=cenote-secret"
            ),
            command: format!("{script} own {home} chaos_{port} {port} {settings}"),
        }
    }

    fn run(&self, more: &[&str]) -> Ended {
        let args = ["chaos", "--dsn", &self.dsn, "--server", &self.command];
        Folder::new().run(&[&args[..], more].concat())
    }
}

#[cfg(any(feature = "mysql", feature = "postgres"))]
const OF_THE_SERVER: [&str; 13] = [
    "kill_backends",
    "cut",
    "reset",
    "cut_at_byte",
    "delay",
    "throttle",
    "single_bytes",
    "black_hole",
    "mute",
    "refuse",
    "restart",
    "crash",
    "freeze",
];

/// Faults of network and server as well; which of them is up to the time there is.
#[cfg(any(feature = "mysql", feature = "postgres"))]
#[track_caller]
fn survived_with_server(run: &Ended) {
    let summary = survived(run);
    let kinds = kinds(&summary);
    let known = |kind: &&str| OF_THE_SERVER.contains(kind) || OF_THE_POOL.contains(kind);
    assert!(kinds.iter().all(known), "{kinds:?}");
    let of_the_server = kinds.iter().filter(|kind| OF_THE_SERVER.contains(kind));
    assert!(of_the_server.count() > 2, "{kinds:?}");
    assert_eq!(summary["chaos"]["left_out"], serde_json::json!([]));
}

/// What a crash must not cost: what the machine's disk would lose is not lost with a process.
#[cfg(feature = "postgres")]
const KEEPS_COMMITS: &str = "-c synchronous_commit=on -c full_page_writes=on";

#[cfg(feature = "postgres")]
#[test]
fn on_postgres_nothing_is_lost_under_chaos() {
    let server = OwnServer::new("POSTGRES", "pgsql", KEEPS_COMMITS);
    survived_with_server(&server.run(&["--json", "--seconds", &seconds()]));
}

#[cfg(feature = "mysql")]
#[test]
fn on_mariadb_nothing_is_lost_under_chaos() {
    let server = OwnServer::new("MARIADB", "mysql", "--innodb-doublewrite=1");
    survived_with_server(&server.run(&["--json", "--seconds", &seconds()]));
}

#[cfg(feature = "postgres")]
#[test]
fn a_server_that_forgets_what_it_has_acknowledged_is_found_out() {
    // Commits are written down a little later: a crash takes the last ones with it.
    let server = OwnServer::new("POSTGRES", "pgsql", "-c synchronous_commit=off");
    let args = ["--seconds", "600", "--only", "crash", "--seed", "3"];
    let run = server.run(&args);
    assert_eq!(run.code, Some(1), "{}{}", run.out, run.err);
    assert!(run.out.contains("FAIL  ledger"), "{}", run.out);
    assert!(run.out.contains("The same again: --seed 3"), "{}", run.out);
}

#[cfg(feature = "postgres")]
#[test]
fn what_cannot_be_done_to_a_server_is_left_out_and_told() {
    let dsn = std::env::var("CENOTE_TEST_POSTGRES").expect("run ci/test.sh");
    let run = Folder::new().run(&["chaos", "--dsn", &dsn, "--json", "--seconds", "2"]);
    let summary = survived(&run);
    for process in ["restart", "crash", "freeze"] {
        assert!(!kinds(&summary).contains(&process), "{summary}");
    }
    let left_out = summary["chaos"]["left_out"].to_string();
    assert!(left_out.contains("--server"), "{left_out}");
}
