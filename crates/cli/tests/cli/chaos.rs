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
