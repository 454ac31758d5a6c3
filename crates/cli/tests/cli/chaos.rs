//! `cenote chaos`. What it verifies on each database, crates/bank tests.

use crate::process::{Folder, Running, exec_elsewhere};

#[test]
fn the_report_names_faults_recoveries_and_latencies() {
    let args = ["--seconds", "1", "--seed", "5", "--only", "exhaust_pool"];
    let run = Folder::new().run(&[&["chaos"][..], &args].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(run.err, "", "planned panics are not reported");
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

#[test]
fn the_json_has_every_fault_and_every_transfer() {
    let folder = Folder::new();
    let args = ["--json", "--seconds", "1", "--only", "replace_all"];
    let run = folder.run(&[&["chaos"][..], &args].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    let json: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    let chaos = &json["chaos"];
    assert_eq!(chaos["faults"][0]["kind"], "replace_all", "{json}");
    assert!(chaos["faults"][0]["count"].as_u64() > Some(0), "{json}");
    let transfers = &chaos["transfers"];
    assert!(transfers["acknowledged"].as_u64() > Some(0), "{json}");
    assert!(transfers["rolled_back"].as_u64() > Some(0), "{json}");
    assert!(folder.left_behind().is_empty());
}

#[cfg(unix)]
#[test]
fn ctrl_c_heals_checks_and_prints_the_summary() {
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

#[cfg(unix)]
#[test]
fn a_deleted_transfer_is_found_and_the_seed_is_named() {
    let folder = Folder::new();
    let dsn = folder.dsn();
    let args = ["chaos", "--dsn", &dsn, "--seconds", "600", "--seed", "3"];
    let mut running = Running::start(folder.command(&args));
    running.wait_for("commits/s");
    let sql = "DELETE FROM cenote_bank_ledger \
               WHERE number = (SELECT min(number) FROM cenote_bank_ledger)";
    assert_eq!(exec_elsewhere(&dsn, sql), 1);
    running.interrupt();
    let run = running.end();
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.out.contains("FAIL  ledger"), "{}", run.out);
    assert!(run.out.contains("IS NOT THERE"), "{}", run.out);
    assert!(run.out.contains("The same again: --seed 3"), "{}", run.out);
    assert!(run.out.contains("The tables are left in"), "{}", run.out);
}

#[test]
fn a_server_for_a_database_that_has_none_is_refused() {
    let folder = Folder::new();
    let run = folder.run(&["chaos", "--dsn", &folder.dsn(), "--server", "true"]);
    let line = run.one_line(2);
    assert!(line.contains("SQLite has none"), "{line}");
}

#[test]
fn cluster_takes_no_database_of_the_users() {
    let folder = Folder::new();
    for more in [&["--dsn", "sqlite:x.db"][..], &["--server", "true"]] {
        let run = folder.run(&[&["chaos", "--cluster"][..], more].concat());
        let line = run.one_line(2);
        assert!(line.contains("leave out --dsn and --server"), "{line}");
    }
    assert!(folder.left_behind().is_empty());
}

#[cfg(all(target_os = "linux", feature = "postgres"))]
mod cluster {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::process::Ended;

    /// A folder that the user of the servers may enter.
    fn folder() -> Folder {
        let folder = Folder::new();
        let all = std::fs::Permissions::from_mode(0o711);
        std::fs::set_permissions(folder.path(), all).unwrap();
        folder
    }

    /// The processes that have this folder in their command.
    fn processes(folder: &Folder) -> Vec<String> {
        let folder = folder.path().display().to_string();
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let commands =
            all.filter_map(|process| std::fs::read_to_string(process.path().join("cmdline")).ok());
        commands
            .filter(|command| command.contains(&folder))
            .collect()
    }

    #[test]
    fn ctrl_c_in_a_failover_heals_checks_and_leaves_nothing() {
        let folder = folder();
        let args = ["chaos", "--cluster", "--seconds", "600", "--tasks", "20"];
        let only = ["--only", "kill_primary"];
        let mut running = Running::start(folder.command(&[&args[..], &only].concat()));
        running.wait_for("primary killed");
        assert!(processes(&folder).len() >= 2, "the standbys run");
        running.interrupt();
        let run = running.end();
        assert_eq!(run.code, Some(0), "{run:?}");
        for said in [
            "on a temporary PostgreSQL cluster of three hosts",
            ", interrupted",
            "promotions",
            "ok    ledger",
            "ok    failovers",
        ] {
            assert!(run.out.contains(said), "{said}: {}", run.out);
        }
        assert_eq!(processes(&folder), [""; 0]);
        assert!(folder.left_behind().is_empty());
    }

    #[test]
    fn cluster_without_a_directory_is_refused_in_one_line() {
        let folder = Folder::new();
        let mut command = folder.command(&["chaos", "--cluster"]);
        command.env("TMPDIR", folder.path().join("missing"));
        let run = Ended::of(command);
        let line = run.one_line(4);
        assert!(line.contains("no room for a cluster"), "{line}");
    }
}
