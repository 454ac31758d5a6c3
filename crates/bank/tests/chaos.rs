//! No transfer is lost whatever goes wrong, and a server that loses one is found out.
//!
//! Ten seconds for each database; CENOTE_CHAOS_SECONDS sets another length.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use cenote_bank::{Chaos, Fault, Options, Run, Summary};

const POOL_FAULTS: [Fault; 5] = [
    Fault::ExhaustPool,
    Fault::OpenBreaker,
    Fault::Resize,
    Fault::ReplaceAll,
    Fault::LockAll,
];

#[cfg(feature = "postgres")]
const CLUSTER_FAULTS: [Fault; 6] = [
    Fault::KillBackends,
    Fault::KillPrimary,
    Fault::FreezePrimary,
    Fault::SwitchOver,
    Fault::KillStandby,
    Fault::Roll,
];

fn length() -> Duration {
    let seconds = std::env::var("CENOTE_CHAOS_SECONDS");
    Duration::from_secs_f64(seconds.map_or(10.0, |seconds| seconds.parse().unwrap()))
}

fn run(options: Options) -> Summary {
    static SILENT: std::sync::Once = std::sync::Once::new();
    SILENT.call_once(cenote_bank::silence_planned_panics);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(Run::to_end(options)).unwrap()
}

/// Asserts that a run passed its checks; returns the kinds of faults that it had.
#[track_caller]
fn survived(summary: &Summary) -> Vec<Fault> {
    assert!(summary.ok, "{summary:#?}");
    let chaos = summary.chaos.as_ref().unwrap();
    assert!(chaos.transfers.acknowledged > 0, "{chaos:?}");
    assert!(chaos.transfers.rolled_back > 0, "{chaos:?}");
    assert!(chaos.marks > 0, "{chaos:?}");
    chaos.faults.iter().map(|fault| fault.kind).collect()
}

#[test]
fn on_sqlite_nothing_is_lost_under_chaos() {
    let summary = run(Options {
        length: length(),
        chaos: Some(Chaos::default()),
        ..Options::default()
    });
    let kinds = survived(&summary);
    assert!(
        kinds.iter().all(|kind| POOL_FAULTS.contains(kind)),
        "{kinds:?}"
    );
    assert!(kinds.len() > 2, "{kinds:?}");
    let chaos = summary.chaos.unwrap();
    assert!(chaos.quiet_moments > 0, "{chaos:?}");
    let left_out = chaos.left_out.join("; ");
    assert!(left_out.contains("SQLite has neither"), "{left_out}");
}

#[cfg(any(feature = "mysql", feature = "postgres"))]
mod servers {
    use cenote::Secret;
    use cenote_bank::Database;

    use super::*;

    fn variable(name: &str) -> String {
        std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run ci/test.sh"))
    }

    fn theirs(dsn: String) -> Database {
        Database::Theirs {
            dsn: Secret::from(dsn),
            user: None,
            password: None,
        }
    }

    /// Options for a server of the test's own, which the injector starts and kills. The script in
    /// the variable `CENOTE_TEST_…_SCRIPT` starts it.
    fn on_own_server(database: &str, driver: &str, settings: &str) -> Options {
        // A free port, below those of outgoing connections.
        let port = loop {
            let port = fastrand::u16(15_000..30_000);
            if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
                break port;
            }
        };
        let script = variable(&format!("CENOTE_TEST_{database}_SCRIPT"));
        let home = variable(&format!("CENOTE_TEST_{database}_HOME"));
        let server = format!("{script} own {home} chaos_{port} {port} {settings}");
        Options {
            database: theirs(format!(
                "{driver}:host=127.0.0.1;port={port};dbname=cenote;user=cenote;password=cenote-secret"
            )),
            length: length(),
            chaos: Some(Chaos {
                server: Some(server),
                ..Chaos::default()
            }),
            ..Options::default()
        }
    }

    /// Which faults of network and server there were depends on the time.
    #[track_caller]
    fn survived_with_server(summary: &Summary) {
        let kinds = survived(summary);
        let of_the_server = kinds.iter().filter(|kind| !POOL_FAULTS.contains(kind));
        assert!(of_the_server.count() > 2, "{kinds:?}");
        assert_eq!(summary.chaos.as_ref().unwrap().left_out, [""; 0]);
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn on_postgres_nothing_is_lost_under_chaos() {
        // The tests' servers keep less than a crash of a process may cost.
        let settings = "-c synchronous_commit=on -c full_page_writes=on";
        survived_with_server(&run(on_own_server("POSTGRES", "pgsql", settings)));
    }

    /// With the same seed, with and without shared connections.
    #[cfg(feature = "postgres")]
    #[test]
    fn shared_connections_lose_nothing_under_chaos() {
        let settings = "-c synchronous_commit=on -c full_page_writes=on";
        for share_connections in [false, true] {
            let mut options = on_own_server("POSTGRES", "pgsql", settings);
            options.seed = 2026;
            let chaos = options.chaos.as_mut().unwrap();
            chaos.share_connections = share_connections;
            let summary = run(options);
            survived_with_server(&summary);
            let shared = summary.chaos.unwrap().shared_reads;
            assert_eq!(shared > 0, share_connections, "{shared} shared reads");
        }
    }

    #[cfg(feature = "mysql")]
    #[test]
    fn on_mariadb_nothing_is_lost_under_chaos() {
        let settings = "--innodb-doublewrite=1";
        survived_with_server(&run(on_own_server("MARIADB", "mysql", settings)));
    }

    /// As long as it takes to have each fault of the cluster about once.
    #[cfg(feature = "postgres")]
    #[test]
    fn on_a_cluster_nothing_is_lost_in_failovers() {
        let summary = run(Options {
            length: length().max(Duration::from_secs(15)),
            tasks: 60,
            chaos: Some(Chaos {
                cluster: true,
                only: CLUSTER_FAULTS.to_vec(),
                ..Chaos::default()
            }),
            ..Options::default()
        });
        survived(&summary);
        let cluster = summary.chaos.unwrap().cluster.unwrap();
        let promotions: usize = cluster.failovers.iter().map(|it| it.count).sum();
        assert!(promotions > 1, "{cluster:?}");
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn a_server_that_loses_acknowledged_commits_is_detected() {
        // The server writes commits a little later: a crash loses the last ones.
        let mut options = on_own_server("POSTGRES", "pgsql", "-c synchronous_commit=off");
        options.length = Duration::from_secs(600);
        options.seed = 3;
        options.chaos.as_mut().unwrap().only = vec![Fault::Crash];
        let summary = run(options);
        assert!(!summary.ok);
        let ledger = summary.checks.iter().find(|check| check.name == "ledger");
        assert!(!ledger.unwrap().ok, "{summary:#?}");
        assert!(summary.kept.is_some(), "the tables show what is missing");
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn locks_of_unreachable_clients_do_not_stop_the_faults() {
        // The server keeps the row locks of clients that the network has cut off.
        let mut options = on_own_server("POSTGRES", "pgsql", "");
        options.length = Duration::from_secs(5);
        options.chaos.as_mut().unwrap().only = vec![Fault::BlackHole, Fault::LockAll];
        survived(&run(options));
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn faults_that_a_server_cannot_have_are_left_out() {
        let summary = run(Options {
            database: theirs(variable("CENOTE_TEST_POSTGRES")),
            length: Duration::from_secs(2),
            chaos: Some(Chaos::default()),
            ..Options::default()
        });
        let kinds = survived(&summary);
        for process in [Fault::Restart, Fault::Crash, Fault::Freeze] {
            assert!(!kinds.contains(&process), "{kinds:?}");
        }
        let left_out = summary.chaos.unwrap().left_out.join("; ");
        assert!(left_out.contains("--server"), "{left_out}");
    }
}
