//! `--report`, and waits to write on SQLite.

use crate::process::Folder;

#[test]
fn the_report_of_chaos_stands_alone_and_has_the_faults_as_bands() {
    let folder = Folder::new();
    let page = folder.path().join("out.html");
    let shown = page.display().to_string();
    let args = ["chaos", "--seconds", "2", "--only", "exhaust_pool"];
    let run = folder.run(&[&args[..], &["--seed", "7", "--report", &shown]].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!doctype html>"), "{page}");
    for said in [
        "Throughput",
        "Waits",
        "Queue",
        "Connections",
        "<title>pool exhausted, ",
        "seed 7",
        "class=line",
    ] {
        assert!(page.contains(said), "{said}: {page}");
    }
    assert_eq!(page.matches("<svg").count(), 4);
    for elsewhere in ["<script", "http://", "https://", "@import", "NaN"] {
        assert!(!page.contains(elsewhere), "{elsewhere}: {page}");
    }
}

#[test]
fn a_report_that_cannot_be_written_is_an_error() {
    let args = ["--seconds", "0.2", "--report", "/no/such/folder/out.html"];
    let run = Folder::new().run(&args);
    assert_eq!(run.code, Some(4), "{run:?}");
    assert!(run.err.contains("/no/such/folder/out.html"), "{run:?}");
}

#[test]
fn waits_to_write_on_sqlite_are_counted() {
    let run = Folder::new().run(&["--seconds", "1", "--json"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let json: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    // 300 tasks write through at most four connections.
    assert!(json["pool"]["waited"].as_u64().unwrap() > 100, "{json}");
}
