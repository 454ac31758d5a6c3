//! Ctrl-C, and readers that go away.
#![cfg(unix)]

use crate::process::{Folder, Running, with_db};

#[test]
fn ctrl_c_stops_the_tasks_checks_and_prints_the_summary() {
    let folder = Folder::new();
    let running = Running::start(folder.command(&["--seconds", "600"]));
    running.interrupt();
    let run = running.end();
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.out.contains("stopping"), "{run:?}");
    assert!(run.out.contains(", interrupted"), "{run:?}");
    assert!(run.out.contains("not a cent lost"), "{run:?}");
    assert_eq!(run.err, "");
    assert!(folder.left_behind().is_empty());
}

#[test]
fn a_second_ctrl_c_ends_at_once() {
    let folder = Folder::new();
    let mut running = Running::start(folder.command(&["--seconds", "600"]));
    let file = folder.left_behind()[0].join("bank.db");
    let ended = with_db(&format!("sqlite:{}", file.display()), async |db| {
        // While this lasts no task comes to its end, and the first stop has to wait.
        db.transaction(async || {
            db.exec("UPDATE cenote_bank_account SET moves = moves", ())
                .await?;
            running.interrupt();
            running.wait_for("stopping");
            running.interrupt();
            Ok(running.end())
        })
        .await
    });
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert_eq!(ended.err.lines().count(), 1, "{ended:?}");
    assert!(ended.err.contains("nothing was checked"), "{ended:?}");
    assert!(!ended.out.contains("not a cent lost"), "{ended:?}");
    assert!(folder.left_behind().is_empty());
}

#[test]
fn without_a_reader_the_run_stops_and_cleans_up() {
    let folder = Folder::new();
    let mut running = Running::start(folder.command(&["--seconds", "600"]));
    running.stop_reading();
    let run = running.end();
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(run.err, "");
    assert!(folder.left_behind().is_empty());
}
